//! Rules for the content of workload harnesses.

use super::{Violation, Violations, list_items};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn check(content: &Value, findings: &mut Violations) {
    if let Some(entry) = content.get("entry") {
        findings.require_one_of(entry, "/entry", "flow_ref", "agent_ref");
    }
    let Some(permissions) = content.get("permissions") else { return };
    let mut listed_tools = BTreeSet::new();
    for list in ["deny", "ask", "allow"] {
        for (index, tool) in list_items(permissions, list) {
            if tool.as_str().is_some_and(|name| !listed_tools.insert(name)) {
                findings.add(format!("/permissions/{list}/{index}"), Violation::Contradiction);
            }
        }
    }
}
