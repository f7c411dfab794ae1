//! Rules for the content of tools: the annotations must be consistent, and the binding must have a target of its kind.

use super::{Violation, Violations, http_url::is_http_url, is_true, text_field};
use serde_json::Value;

/// The names of the tools that Fairway itself provides.
const BUILTINS: [&str; 3] = ["execute_flow", "query_knowledge_base", "inspect_evidence"];

pub(super) fn check(content: &Value, findings: &mut Violations) {
    if let Some(annotations) = content.get("annotations")
        && is_true(annotations, "read_only")
        && is_true(annotations, "destructive")
    {
        findings.add("/annotations/destructive", Violation::Contradiction);
    }
    let Some(binding) = content.get("binding") else { return };
    let Some(target) = binding.get("ref") else { return };
    let pointer = "/binding/ref";
    match text_field(binding, "kind") {
        Some("http") => check_address_or_reference(target, pointer, findings),
        Some("mcp" | "code") if !target.is_object() => findings.add(pointer, Violation::ReferenceExpected),
        Some("builtin") if !target.as_str().is_some_and(|name| BUILTINS.contains(&name)) => {
            findings.add(pointer, Violation::UnknownBuiltin);
        }
        Some(_) | None => {}
    }
}

fn check_address_or_reference(target: &Value, pointer: &str, findings: &mut Violations) {
    if target.as_str().is_some_and(|text| !is_http_url(text)) {
        findings.add(pointer, Violation::AddressExpected);
    }
}
