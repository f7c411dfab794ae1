use super::*;
use crate::{
    asset::{
        content::{self, Tool},
        kind::AssetKind,
    },
    redaction::Redactor,
};
use serde_json::json;

fn guardrails(guardrails: Value) -> Arc<Guardrails> {
    let mut made = Guardrails::default();
    made.add("rails", &json!({ "guardrails": guardrails })).unwrap();
    Arc::new(made)
}

fn rail(detector: &str, action: &str, more: Value) -> Value {
    let mut one = json!({ "id": "one", "detector": detector, "stage": "output", "action": action });
    one.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    one
}

fn run_within(rails: Value, value: Value, room: usize) -> GuardrailResult {
    GuardrailCheck::new(guardrails(rails), Stage::Output, value, MAX_INSPECTED_BYTES, room).run(&Redactor::default())
}

fn run(rails: Value, value: Value) -> GuardrailResult {
    run_within(rails, value, 1 << 20)
}

fn masked(pattern: &str, value: Value) -> Value {
    run(json!([rail("regex", "mask", json!({ "pattern": pattern }))]), value).value
}

#[test]
fn regex_matches_nested_texts_keys_and_numbers() {
    let value = json!({ "PX-1": [{ "a": "see PX-2, PX-3" }, 4711, true], "b": null });
    let expected = json!({ "[masked]": [{ "a": "see [masked], [masked]" }, "[masked]", true], "b": null });
    assert_eq!(masked("PX-[0-9]|^4711$", value), expected);
    // If two masked keys become equal, both members are kept.
    assert_eq!(masked("PX-[0-9]", json!({ "PX-1": 1, "PX-2": 2 })), json!({ "[masked]": 1, "[masked] 2": 2 }));
}

#[test]
fn regex_ignores_empty_matches() {
    assert_eq!(masked("x*", json!("axxb")), json!("a[masked]b"));
    let looked = run(json!([rail("regex", "block", json!({ "pattern": "x*" }))]), json!("abc"));
    assert_eq!((looked.outcome, looked.findings.len()), (GuardrailOutcome::Passed, 0));
}

#[test]
fn masking_fails_beyond_the_memory_limit() {
    let rails = json!([rail("regex", "mask", json!({ "pattern": "." }))]);
    assert_eq!(run_within(rails.clone(), json!("aaaa"), 32).outcome, GuardrailOutcome::Passed);
    assert_eq!(run_within(rails, json!("aaaa"), 31).outcome, GuardrailOutcome::OutOfMemory);
}

#[test]
fn max_length_counts_all_texts_and_keeps_the_first() {
    let rails = |action: &str| json!([rail("max_length", action, json!({ "max_length": 4 }))]);
    assert_eq!(run(rails("block"), json!(["äöü", { "k": "ß" }, 123_456])).outcome, GuardrailOutcome::Passed);
    assert_eq!(run(rails("block"), json!(["äöü", { "k": "ßß" }])).outcome, GuardrailOutcome::Blocked);
    assert_eq!(run(rails("mask"), json!(["äöü", { "k": "ßß" }, "x"])).value, json!(["äöü", { "k": "ß" }, ""]));
}

#[test]
fn json_schema_checks_values_and_json_texts() {
    let rails = |schema: Value| json!([rail("json_schema", "block", json!({ "schema": schema }))]);
    let number = rails(json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": "number" } } }));
    for (value, verdict) in [
        (json!({ "a": 1 }), GuardrailOutcome::Passed),
        (json!("{\"a\": 1}"), GuardrailOutcome::Passed),
        (json!("{\"a\": \"1\"}"), GuardrailOutcome::Blocked),
        (json!("no JSON"), GuardrailOutcome::Blocked),
        (json!([1]), GuardrailOutcome::Blocked),
    ] {
        assert_eq!(run(number.clone(), value.clone()).outcome, verdict, "{value}");
    }
}

#[test]
fn pii_applies_the_action_of_each_entity_alias() {
    let rails =
        json!([rail("pii", "mask", json!({ "entities": { "EMAIL_ADDRESS": "flag", "IP": "require_approval" } }))]);
    let looked = run(rails.clone(), json!({ "a@example.com": "a@example.com from 10.0.0.1 by 4111 1111 1111 1111" }));
    assert_eq!(looked.value, json!({ "a@example.com": "a@example.com from 10.0.0.1 by [card]" }));
    assert!(looked.requires_review && looked.is_changed);
    assert_eq!(looked.findings[0].to_json()["entities"], json!({ "email": 2, "ip": 1, "card": 1 }));
    let beside = GuardrailCheck::new(guardrails(rails), Stage::Output, json!("x"), MAX_INSPECTED_BYTES, 1 << 20);
    let looked = beside.with_context(json!({ "trace": "4111 1111 1111 1111" })).run(&Redactor::default());
    assert_eq!((looked.value, looked.context), (json!("x"), json!({ "trace": "[card]" })));
}

/// Each guardrail counts the bytes that it inspects, and fails if the total exceeds the limit.
#[test]
fn fails_beyond_the_inspected_bytes_of_a_run() {
    let seen = |on_error: &str, mode: &str, left: usize| {
        let more = json!({ "pattern": "zzz", "on_error": on_error, "mode": mode });
        let rails = guardrails(json!([rail("regex", "block", more)]));
        GuardrailCheck::new(rails, Stage::Output, json!("0123456789"), left, 1 << 20).run(&Redactor::default())
    };
    let enough = seen("fail_closed", "pre_call", 26);
    assert_eq!((enough.outcome, enough.remaining_bytes), (GuardrailOutcome::Passed, 0));
    assert_eq!(seen("fail_closed", "pre_call", 25).outcome, GuardrailOutcome::Unavailable);
    let open = seen("fail_open", "pre_call", 25);
    assert_eq!((open.outcome, open.findings.len()), (GuardrailOutcome::Passed, 1));
    assert_eq!(seen("fail_closed", "logging_only", 25).outcome, GuardrailOutcome::Passed);
}

#[test]
fn buffers_responses_that_guardrails_may_change() {
    let holds = |rail: Value| guardrails(json!([rail])).requires_buffering();
    let open = json!({ "on_error": "fail_open" });
    for (rail, expected) in [
        (rail("pii", "block", open.clone()), true),
        (rail("pii", "mask", open.clone()), true),
        (rail("pii", "require_approval", open.clone()), true),
        (rail("pii", "flag", open.clone()), false),
        (rail("pii", "flag", json!({})), true),
        (rail("pii", "flag", json!({ "entities": { "IP": "block" }, "on_error": "fail_open" })), true),
        (rail("pii", "block", json!({ "mode": "logging_only" })), false),
        (rail("pii", "block", json!({ "default_on": false })), false),
        (rail("pii", "block", json!({ "stage": "input" })), false),
        (rail("pii", "require_approval", json!({ "stage": "input" })), true),
    ] {
        assert_eq!(holds(rail.clone()), expected, "{rail}");
    }
}

/// Older versions may contain unsupported parts. Validation reports these parts, and the guardrail fails closed.
#[test]
fn reports_unsupported_parts_and_fails_closed() {
    let rails = json!([
        rail("toxicity", "block", json!({})),
        rail("regex", "block", json!({})),
        rail("regex", "block", json!({ "pattern": "(a)\\1" })),
        rail("max_length", "block", json!({})),
        rail("json_schema", "block", json!({ "schema": { "$ref": "#" } })),
        rail("json_schema", "mask", json!({ "schema": { "type": "object" } })),
        rail("pii", "block", json!({ "entities": { "PERSON": "mask", "EMAIL": "mask" } })),
        rail("toxicity", "block", json!({ "default_on": false })),
    ]);
    let pointers = unsupported_parts(&json!({ "guardrails": rails })).unwrap();
    let expected =
        ["0/detector", "1/pattern", "2/pattern", "3/max_length", "4/schema", "5/action", "6/entities/PERSON"];
    assert_eq!(pointers, expected.map(|place| format!("/guardrails/{place}")));
    assert_eq!(run(json!([rail("toxicity", "flag", json!({}))]), json!("x")).outcome, GuardrailOutcome::Unavailable);
    assert_eq!(
        run(json!([rail("json_schema", "mask", json!({ "schema": { "type": "object" } }))]), json!("x")).outcome,
        GuardrailOutcome::Blocked
    );
    assert!(unsupported_parts(&json!({})).is_err());
}

#[test]
fn brief_checks_depend_on_evaluations_not_bytes() {
    let redactor = Redactor::default();
    let looking = |rails: Value, value: Value| {
        GuardrailCheck::new(guardrails(json!([rails])), Stage::Output, value, MAX_INSPECTED_BYTES, 1 << 20)
    };
    let backwards = || rail("regex", "block", json!({ "pattern": ".*[^A-Z]|[A-Z]" }));
    let (short, long) = ("A".repeat(300), "A".repeat(1_000));
    let brief = looking(backwards(), json!(short)).run_briefly(&redactor).unwrap();
    assert_eq!(brief, looking(backwards(), json!(short)).run(&redactor));
    assert_eq!(looking(backwards(), json!(long)).run_briefly(&redactor), None);
    assert_eq!(looking(backwards(), json!(long)).run(&redactor).outcome, GuardrailOutcome::Blocked);
    let branches =
        rail("json_schema", "block", json!({ "schema": { "items": { "anyOf": vec![json!(false); 9_000] } } }));
    assert!(looking(branches.clone(), json!([1])).run_briefly(&redactor).is_some());
    assert_eq!(looking(branches, json!(vec![1; 100])).run_briefly(&redactor), None);
}

#[test]
fn quadratic_patterns_exceed_the_budget() {
    let backwards = rail("regex", "block", json!({ "pattern": ".*[^A-Z]|[A-Z]", "on_error": "fail_open" }));
    let looked = run(json!([backwards]), json!("A".repeat(64 << 10)));
    assert_eq!(looked.outcome, GuardrailOutcome::Passed);
    assert_eq!(looked.findings[0].to_json()["error_code"], "schema_budget_exceeded");
    let numbers = rail("regex", "mask", json!({ "pattern": r"\d+" }));
    assert_eq!(run(json!([numbers]), json!("12 ".repeat(64 << 10))).findings[0].to_json()["found"], 64 << 10);
}

#[test]
fn compiled_bytes_match_their_estimate() {
    let schema = json!({ "anyOf": vec![json!({ "pattern": "a{1,9}" }); 50] });
    let rails = json!([
        rail("regex", "block", json!({ "pattern": "a+" })),
        rail("json_schema", "block", json!({ "schema": schema })),
        rail("pii", "mask", json!({})),
    ]);
    let estimate = |kind, content: &Value| content::estimate_compiled_bytes(kind, content);
    let bytes = guardrails(rails.clone()).compiled_bytes();
    assert_eq!(estimate(AssetKind::GuardrailConfig, &json!({ "guardrails": rails })), bytes);
    assert!(bytes > 51 * (512 << 10), "{bytes}");
    let tool = json!({ "name": "a", "input_schema": schema, "output_schema": { "type": "object" },
        "binding": { "kind": "http", "ref": "https://api.example.com" } });
    assert_eq!(estimate(AssetKind::ToolDefinition, &tool), Tool::parse(&tool).unwrap().schema_bytes());
}
