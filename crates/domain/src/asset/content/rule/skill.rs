//! Rules for the content of skills.

use super::{Violation, Violations, is_true, list_items, text_field};
use serde_json::Value;

/// Refuses file names that Windows treats as devices, and executable files without a sandbox profile.
pub(super) fn check(content: &Value, findings: &mut Violations) {
    for (index, file) in list_items(content, "files") {
        if text_field(file, "path").is_some_and(|path| path.split('/').any(is_device_name)) {
            findings.add(format!("/files/{index}/path"), Violation::DeviceName);
        }
    }
    if content.get("sandbox_profile_ref").is_some() {
        return;
    }
    for (index, file) in list_items(content, "files") {
        if is_true(file, "executable") {
            findings.add(format!("/files/{index}/executable"), Violation::SandboxProfileRequired);
        }
    }
}

/// Whether Windows treats a file with this name as a device. Windows ignores everything after the first dot.
fn is_device_name(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    let is_device_number = |digits: &str| matches!(digits.as_bytes(), [b'1'..=b'9']);
    matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL")
        || stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT")).is_some_and(is_device_number)
}
