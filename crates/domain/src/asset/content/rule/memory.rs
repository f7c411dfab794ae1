//! Rules for the content of memory configurations.

use super::{Violations, text_field};
use serde_json::Value;

pub(super) fn check(content: &Value, findings: &mut Violations) {
    match text_field(content, "type") {
        Some("blocks") => findings.require(content, "", "blocks"),
        Some(_) => findings.forbid(content, "", "blocks"),
        None => {}
    }
}
