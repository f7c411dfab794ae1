//! Rules for the content of hooks: matcher and condition must compile, and the handler must have a target of its type.

use super::{Violation, Violations, http_url::is_http_url, text_field};
use crate::{hook, policy::CompiledPolicy};
use serde_json::Value;

pub(super) fn check(content: &Value, findings: &mut Violations) {
    if let Some(pattern) = text_field(content, "matcher").filter(|pattern| !matches!(*pattern, "" | "*"))
        && hook::compile_full_match(pattern).is_none()
    {
        findings.add("/matcher", Violation::PatternNotLinear);
    }
    if let Some(source) = text_field(content, "if") {
        for problem in CompiledPolicy::rule_problems(&hook::condition_bundle(source)) {
            findings.add_problem("/if", problem.code, problem.message);
        }
    }
    let Some(handler) = content.get("handler") else { return };
    let Some(target) = handler.get("ref") else { return };
    let pointer = "/handler/ref";
    match text_field(handler, "type") {
        Some("http") if !target.as_str().is_some_and(is_http_url) => findings.add(pointer, Violation::AddressExpected),
        Some("policy" | "mcp_tool" | "prompt" | "code") if !target.is_object() => {
            findings.add(pointer, Violation::ReferenceExpected);
        }
        Some(_) | None => {}
    }
}
