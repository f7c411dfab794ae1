//! Rules of sandbox profiles: network, image and variables must be consistent.

use super::{Violation, Findings, items, text};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn check(content: &Value, findings: &mut Findings) {
    if let Some(network) = content.get("network") {
        match text(network, "mode") {
            Some("allowlist") => findings.need(network, "/network", "hosts"),
            Some("none") => findings.forbid(network, "/network", "hosts"),
            Some(_) | None => {}
        }
    }
    if content.get("image_digest").is_some() {
        findings.need(content, "", "image");
    }
    // A secret with the name of an allowed variable would hide one of the two.
    let allowed: BTreeSet<&str> = items(content, "env_allow").filter_map(|(_, name)| name.as_str()).collect();
    for (index, secret) in items(content, "secrets") {
        if text(secret, "name").is_some_and(|name| allowed.contains(name)) {
            findings.add(format!("/secrets/{index}/name"), Violation::Contradiction);
        }
    }
}
