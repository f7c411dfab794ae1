//! Rules of guardrails: each detector has the parameter that it requires, and none that it would ignore.

use super::{Violation, CompileMode, Findings, items, text};
use crate::asset::content::schema;
use serde_json::Value;

/// Parameter of each built-in detector. Parameters of other detectors are not checked.
const PARAMETERS: [(&str, &str); 4] =
    [("pii", "entities"), ("regex", "pattern"), ("max_length", "max_length"), ("json_schema", "schema")];

pub(super) fn check(content: &Value, compile: CompileMode, findings: &mut Findings) {
    for (index, guardrail) in items(content, "guardrails") {
        let pointer = format!("/guardrails/{index}");
        let Some(detector) = text(guardrail, "detector") else { continue };
        if !PARAMETERS.iter().any(|(name, _)| *name == detector) {
            continue;
        }
        for (name, parameter) in PARAMETERS {
            match (name == detector, parameter) {
                // Without the list every entity type counts.
                (true, "entities") => {}
                (true, _) => findings.need(guardrail, &pointer, parameter),
                (false, _) => findings.forbid(guardrail, &pointer, parameter),
            }
        }
        let is_refused = |pattern: &str| compile == CompileMode::Yes && schema::linear(pattern).is_none();
        if text(guardrail, "pattern").is_some_and(is_refused) {
            findings.add(format!("{pointer}/pattern"), Violation::PatternNotLinear);
        }
        if detector == "json_schema" && text(guardrail, "action") == Some("mask") {
            findings.add(format!("{pointer}/action"), Violation::NotAllowedHere);
        }
    }
}
