//! Rules for the content of agents.

use super::Violations;
use serde_json::Value;

pub(super) fn check(content: &Value, findings: &mut Violations) {
    findings.require_one_of(content, "", "instructions", "prompt_ref");
}
