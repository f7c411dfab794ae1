//! Rules for the content of guardrails: each detector has its required parameter, and no parameter of another detector.

use super::{CompileMode, Violation, Violations, list_items, text_field};
use crate::asset::content::compile_linear_pattern;
use serde_json::Value;

/// The built-in detectors, each with its parameter. Parameters of other detectors are not checked.
const PARAMETERS: [(&str, &str); 4] =
    [("pii", "entities"), ("regex", "pattern"), ("max_length", "max_length"), ("json_schema", "schema")];

pub(super) fn check(content: &Value, compile: CompileMode, findings: &mut Violations) {
    for (index, guardrail) in list_items(content, "guardrails") {
        let pointer = format!("/guardrails/{index}");
        let Some(detector) = text_field(guardrail, "detector") else { continue };
        if !PARAMETERS.iter().any(|(name, _)| *name == detector) {
            continue;
        }
        for (name, parameter) in PARAMETERS {
            match (name == detector, parameter) {
                // `entities` is optional, because the guardrail's `action` also applies to entity types that it omits.
                (true, "entities") => {}
                (true, _) => findings.require(guardrail, &pointer, parameter),
                (false, _) => findings.forbid(guardrail, &pointer, parameter),
            }
        }
        let is_refused = |pattern: &str| compile == CompileMode::Yes && compile_linear_pattern(pattern).is_none();
        if text_field(guardrail, "pattern").is_some_and(is_refused) {
            findings.add(format!("{pointer}/pattern"), Violation::PatternNotLinear);
        }
        if detector == "json_schema" && text_field(guardrail, "action") == Some("mask") {
            findings.add(format!("{pointer}/action"), Violation::NotAllowedHere);
        }
    }
}
