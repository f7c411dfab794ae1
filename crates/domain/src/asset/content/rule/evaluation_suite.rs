//! Rules for the content of evaluation suites: a dataset, at least one assertion, and a judge for assertions that need
//! one.

use super::{CompileMode, Violation, Violations, extension_keywords::ExtensionKeywordRules, list_items, text_field};
use serde_json::Value;

/// The assertions that a model decides, so that they need a judge.
const MODEL_ASSERTIONS: [&str; 6] =
    ["llm-rubric", "factuality", "answer-relevance", "context-faithfulness", "context-recall", "context-relevance"];

pub(super) fn check(content: &Value, compile: CompileMode, findings: &mut Violations) {
    if let Some(dataset) = content.get("dataset") {
        findings.require_one_of(dataset, "/dataset", "items", "ref");
        if dataset.get("ref").is_some() {
            findings.require(dataset, "/dataset", "sha256");
        }
    }
    let mut extension_keyword_rules = ExtensionKeywordRules::new(compile);
    let mut count = 0_usize;
    for list in ["assertions", "default_assertions"] {
        for (index, assertion) in list_items(content, list) {
            count += 1;
            self::check_assertion(
                content,
                assertion,
                &format!("/{list}/{index}"),
                &mut extension_keyword_rules,
                findings,
            );
        }
    }
    if count == 0 {
        findings.add("/assertions", Violation::MissingField);
    }
}

fn check_assertion(
    content: &Value,
    assertion: &Value,
    pointer: &str,
    extension_keyword_rules: &mut ExtensionKeywordRules,
    findings: &mut Violations,
) {
    let Some(kind) = text_field(assertion, "type") else { return };
    let value = assertion.get("value");
    let value_pointer = format!("{pointer}/value");
    match kind.strip_prefix("not-").unwrap_or(kind) {
        "regex" => match value.and_then(Value::as_str) {
            Some(pattern) => extension_keyword_rules.check_pattern(pattern, &value_pointer, findings),
            None => findings.add(value_pointer, Violation::MissingField),
        },
        "is-json" | "contains-json" => {
            if let Some(schema) = value {
                extension_keyword_rules.check_schema(schema, &value_pointer, findings);
            }
        }
        model_assertion if MODEL_ASSERTIONS.contains(&model_assertion) && content.get("judge").is_none() => {
            findings.add("/judge", Violation::MissingField);
        }
        _ => {}
    }
}
