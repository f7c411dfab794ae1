//! Tests of bounds: content beyond them is refused before its patterns, schemas and conditions are compiled.

use super::{AssetKind, problems};
use serde_json::{Value, json};

/// An invalid pattern. Only its compilation reports it, so a problem shows that the content was compiled.
const INVALID_PATTERN: &str = "(";

fn guardrails(count: usize) -> Value {
    let guardrail = |number: usize| {
        json!({
            "id": format!("g{number}"), "detector": "regex", "pattern": INVALID_PATTERN, "stage": "input", "action": "block"
        })
    };
    json!({ "guardrails": (0..count).map(guardrail).collect::<Vec<_>>() })
}

fn problem_at(pointer: &str, code: &str) -> (String, String) {
    (pointer.to_owned(), code.to_owned())
}

#[test]
fn does_not_compile_too_many_patterns_or_schemas() {
    let reported = |content: &Value| -> Vec<(String, String)> {
        let found = problems(AssetKind::GuardrailConfig, content);
        found.into_iter().map(|(pointer, code)| (pointer, code.to_owned())).collect()
    };
    let at_limit = reported(&guardrails(50));
    assert_eq!((at_limit.len(), &at_limit[49]), (50, &problem_at("/guardrails/49/pattern", "pattern_not_linear")));
    assert_eq!(reported(&guardrails(51)), [problem_at("/guardrails/50/pattern", "too_many_carried")]);
    let over_limit = reported(&guardrails(101));
    assert_eq!(
        over_limit,
        [problem_at("/guardrails", "out_of_bounds"), problem_at("/guardrails/50/pattern", "too_many_carried")]
    );
    let schema = |number: usize| {
        json!({
            "id": format!("g{number}"), "detector": "json_schema", "schema": { "type": "none" }, "stage": "input",
            "action": "block"
        })
    };
    let schemas = json!({ "guardrails": (0..11).map(schema).collect::<Vec<_>>() });
    assert_eq!(reported(&schemas), [problem_at("/guardrails/10/schema", "too_many_carried")]);
}

#[test]
fn does_not_compile_too_many_assertions() {
    let assertion = json!({ "type": "regex", "value": INVALID_PATTERN });
    let suite = |count: usize| json!({ "dataset": { "items": [{ "input": "x" }] }, "assertions": vec![assertion.clone(); count] });
    let code = |count: usize, code: &str| {
        problems(AssetKind::EvaluationSuite, &suite(count)).iter().filter(|problem| problem.1 == code).count()
    };
    assert_eq!((code(50, "pattern_not_linear"), code(50, "too_many_carried")), (50, 0));
    assert_eq!((code(51, "pattern_not_linear"), code(51, "too_many_carried")), (0, 1));
}

#[test]
fn does_not_compile_too_many_policy_rules() {
    let rule = |number: usize| json!({ "id": format!("r{number}"), "condition": "lane ==", "outcome": "deny", "reason_code": "no" });
    let policy = |count: usize| json!({ "rules": (0..count).map(rule).collect::<Vec<_>>() });
    let reported = |count: usize| problems(AssetKind::PolicyBundle, &policy(count));
    assert!(reported(2).iter().all(|(pointer, _)| pointer.ends_with("/condition")), "{:?}", reported(2));
    let over_limit: Vec<_> = reported(201).into_iter().map(|(pointer, code)| problem_at(&pointer, code)).collect();
    assert_eq!(over_limit, [problem_at("/rules", "out_of_bounds")]);
}

#[test]
fn short_text_hides_no_other_problem() {
    let rule = |number: usize, condition: &str| json!({ "id": format!("r{number}"), "condition": condition, "outcome": "deny", "reason_code": "no" });
    let policy = json!({ "rules": [rule(0, ""), rule(1, "lane ==")] });
    let pointers: Vec<String> =
        problems(AssetKind::PolicyBundle, &policy).into_iter().map(|(pointer, _)| pointer).collect();
    assert_eq!(pointers, ["/rules/0/condition", "/rules/1/condition"]);
}
