//! Content beyond its bounds is refused before anything of it is compiled.

use super::{AssetKind, problems};
use serde_json::{Value, json};

/// Nothing compiles this pattern, so a problem tells where it was tried.
const NO_PATTERN: &str = "(";

fn guardrails(count: usize) -> Value {
    let guardrail = |number: usize| {
        json!({
            "id": format!("g{number}"), "detector": "regex", "pattern": NO_PATTERN, "stage": "input", "action": "block"
        })
    };
    json!({ "guardrails": (0..count).map(guardrail).collect::<Vec<_>>() })
}

fn at(pointer: &str, code: &str) -> (String, String) {
    (pointer.to_owned(), code.to_owned())
}

#[test]
fn patterns_and_schemas_beyond_their_number_are_not_compiled() {
    let told = |content: &Value| -> Vec<(String, String)> {
        let told = problems(AssetKind::GuardrailConfig, content);
        told.into_iter().map(|(pointer, code)| (pointer, code.to_owned())).collect()
    };
    let few = told(&guardrails(50));
    assert_eq!((few.len(), &few[49]), (50, &at("/guardrails/49/pattern", "pattern_not_linear")));
    assert_eq!(told(&guardrails(51)), [at("/guardrails/50/pattern", "too_many_carried")]);
    let crowd = told(&guardrails(101));
    assert_eq!(crowd, [at("/guardrails", "out_of_bounds"), at("/guardrails/50/pattern", "too_many_carried")]);
    let schema = |number: usize| {
        json!({
            "id": format!("g{number}"), "detector": "json_schema", "schema": { "type": "none" }, "stage": "input",
            "action": "block"
        })
    };
    let schemas = json!({ "guardrails": (0..11).map(schema).collect::<Vec<_>>() });
    assert_eq!(told(&schemas), [at("/guardrails/10/schema", "too_many_carried")]);
}

#[test]
fn assertions_beyond_their_number_are_not_compiled() {
    let assertion = json!({ "type": "regex", "value": NO_PATTERN });
    let suite = |count: usize| json!({ "dataset": { "items": [{ "input": "x" }] }, "assertions": vec![assertion.clone(); count] });
    let code = |count: usize, code: &str| {
        problems(AssetKind::EvaluationSuite, &suite(count)).iter().filter(|problem| problem.1 == code).count()
    };
    assert_eq!((code(50, "pattern_not_linear"), code(50, "too_many_carried")), (50, 0));
    assert_eq!((code(51, "pattern_not_linear"), code(51, "too_many_carried")), (0, 1));
}

#[test]
fn rules_of_a_policy_beyond_their_number_are_not_compiled() {
    let rule = |number: usize| json!({ "id": format!("r{number}"), "condition": "lane ==", "outcome": "deny", "reason_code": "no" });
    let policy = |count: usize| json!({ "rules": (0..count).map(rule).collect::<Vec<_>>() });
    let told = |count: usize| problems(AssetKind::PolicyBundle, &policy(count));
    assert!(told(2).iter().all(|(pointer, _)| pointer.ends_with("/condition")), "{:?}", told(2));
    let told: Vec<_> = told(201).into_iter().map(|(pointer, code)| at(&pointer, code)).collect();
    assert_eq!(told, [at("/rules", "out_of_bounds")]);
}

#[test]
fn a_text_that_is_too_short_hides_no_other_problem() {
    let rule = |number: usize, condition: &str| json!({ "id": format!("r{number}"), "condition": condition, "outcome": "deny", "reason_code": "no" });
    let policy = json!({ "rules": [rule(0, ""), rule(1, "lane ==")] });
    let pointers: Vec<String> =
        problems(AssetKind::PolicyBundle, &policy).into_iter().map(|(pointer, _)| pointer).collect();
    assert_eq!(pointers, ["/rules/0/condition", "/rules/1/condition"]);
}
