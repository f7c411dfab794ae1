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
    let mut guardrail_set = Guardrails::default();
    guardrail_set.add("rails", &json!({ "guardrails": guardrails })).unwrap();
    Arc::new(guardrail_set)
}

fn guardrail(detector: &str, action: &str, settings: Value) -> Value {
    let mut content = json!({ "id": "one", "detector": detector, "stage": "output", "action": action });
    content.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    content
}

fn run_within(configuration: Value, value: Value, max_masked_bytes: usize) -> GuardrailResult {
    GuardrailCheck::new(guardrails(configuration), Stage::Output, value, MAX_BYTES_INSPECTED_PER_RUN, max_masked_bytes)
        .run(&Redactor::default())
}

fn run(configuration: Value, value: Value) -> GuardrailResult {
    run_within(configuration, value, 1 << 20)
}

fn masked(pattern: &str, value: Value) -> Value {
    run(json!([guardrail("regex", "mask", json!({ "pattern": pattern }))]), value).value
}

#[test]
fn regex_matches_nested_texts_keys_and_numbers() {
    let value = json!({ "PX-1": [{ "a": "see PX-2, PX-3" }, 4711, true], "b": null });
    let expected = json!({ "[masked]": [{ "a": "see [masked], [masked]" }, "[masked]", true], "b": null });
    assert_eq!(masked("PX-[0-9]|^4711$", value), expected);
    // Both members are kept even though their masked keys are equal.
    assert_eq!(masked("PX-[0-9]", json!({ "PX-1": 1, "PX-2": 2 })), json!({ "[masked]": 1, "[masked] 2": 2 }));
}

#[test]
fn regex_ignores_empty_matches() {
    assert_eq!(masked("x*", json!("axxb")), json!("a[masked]b"));
    let result = run(json!([guardrail("regex", "block", json!({ "pattern": "x*" }))]), json!("abc"));
    assert_eq!((result.outcome, result.findings.len()), (GuardrailOutcome::Passed, 0));
}

#[test]
fn masking_fails_beyond_the_memory_limit() {
    let configuration = json!([guardrail("regex", "mask", json!({ "pattern": "." }))]);
    assert_eq!(run_within(configuration.clone(), json!("aaaa"), 32).outcome, GuardrailOutcome::Passed);
    assert_eq!(run_within(configuration, json!("aaaa"), 31).outcome, GuardrailOutcome::OutOfMemory);
}

#[test]
fn max_length_counts_all_texts_and_keeps_the_first() {
    let configuration = |action: &str| json!([guardrail("max_length", action, json!({ "max_length": 4 }))]);
    assert_eq!(run(configuration("block"), json!(["äöü", { "k": "ß" }, 123_456])).outcome, GuardrailOutcome::Passed);
    assert_eq!(run(configuration("block"), json!(["äöü", { "k": "ßß" }])).outcome, GuardrailOutcome::Blocked);
    assert_eq!(run(configuration("mask"), json!(["äöü", { "k": "ßß" }, "x"])).value, json!(["äöü", { "k": "ß" }, ""]));
}

#[test]
fn json_schema_checks_values_and_json_texts() {
    let configuration = |schema: Value| json!([guardrail("json_schema", "block", json!({ "schema": schema }))]);
    let number =
        configuration(json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": "number" } } }));
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
    let configuration =
        json!([guardrail("pii", "mask", json!({ "entities": { "EMAIL_ADDRESS": "flag", "IP": "require_approval" } }))]);
    let result =
        run(configuration.clone(), json!({ "a@example.com": "a@example.com from 10.0.0.1 by 4111 1111 1111 1111" }));
    assert_eq!(result.value, json!({ "a@example.com": "a@example.com from 10.0.0.1 by [card]" }));
    assert!(result.requires_review && result.is_changed);
    assert_eq!(result.findings[0].to_json()["entities"], json!({ "email": 2, "ip": 1, "card": 1 }));
    let check =
        GuardrailCheck::new(guardrails(configuration), Stage::Output, json!("x"), MAX_BYTES_INSPECTED_PER_RUN, 1 << 20);
    let result = check.with_context(json!({ "trace": "4111 1111 1111 1111" })).run(&Redactor::default());
    assert_eq!((result.value, result.context), (json!("x"), json!({ "trace": "[card]" })));
}

/// Each guardrail counts the bytes that it inspects. It fails if the total of the run exceeds the limit.
#[test]
fn fails_beyond_the_inspected_bytes_of_a_run() {
    let run_with_limit = |on_error: &str, mode: &str, remaining_bytes: usize| {
        let settings = json!({ "pattern": "zzz", "on_error": on_error, "mode": mode });
        let configuration = guardrails(json!([guardrail("regex", "block", settings)]));
        GuardrailCheck::new(configuration, Stage::Output, json!("0123456789"), remaining_bytes, 1 << 20)
            .run(&Redactor::default())
    };
    let within_limit = run_with_limit("fail_closed", "pre_call", 26);
    assert_eq!((within_limit.outcome, within_limit.remaining_bytes), (GuardrailOutcome::Passed, 0));
    assert_eq!(run_with_limit("fail_closed", "pre_call", 25).outcome, GuardrailOutcome::Unavailable);
    let fail_open = run_with_limit("fail_open", "pre_call", 25);
    assert_eq!((fail_open.outcome, fail_open.findings.len()), (GuardrailOutcome::Passed, 1));
    assert_eq!(run_with_limit("fail_closed", "logging_only", 25).outcome, GuardrailOutcome::Passed);
}

#[test]
fn buffers_responses_that_guardrails_may_change() {
    let requires_buffering = |guardrail: Value| guardrails(json!([guardrail])).requires_buffering();
    let fail_open = json!({ "on_error": "fail_open" });
    for (guardrail, expected) in [
        (guardrail("pii", "block", fail_open.clone()), true),
        (guardrail("pii", "mask", fail_open.clone()), true),
        (guardrail("pii", "require_approval", fail_open.clone()), true),
        (guardrail("pii", "flag", fail_open.clone()), false),
        (guardrail("pii", "flag", json!({})), true),
        (guardrail("pii", "flag", json!({ "entities": { "IP": "block" }, "on_error": "fail_open" })), true),
        (guardrail("pii", "block", json!({ "mode": "logging_only" })), false),
        (guardrail("pii", "block", json!({ "default_on": false })), false),
        (guardrail("pii", "block", json!({ "stage": "input" })), false),
        (guardrail("pii", "require_approval", json!({ "stage": "input" })), true),
    ] {
        assert_eq!(requires_buffering(guardrail.clone()), expected, "{guardrail}");
    }
}

/// Content that older servers accepted may have unsupported parts. Validation reports them, and the guardrail fails
/// closed.
#[test]
fn reports_unsupported_parts_and_fails_closed() {
    let configuration = json!([
        guardrail("toxicity", "block", json!({})),
        guardrail("regex", "block", json!({})),
        guardrail("regex", "block", json!({ "pattern": "(a)\\1" })),
        guardrail("max_length", "block", json!({})),
        guardrail("json_schema", "block", json!({ "schema": { "$ref": "#" } })),
        guardrail("json_schema", "mask", json!({ "schema": { "type": "object" } })),
        guardrail("pii", "block", json!({ "entities": { "PERSON": "mask", "EMAIL": "mask" } })),
        guardrail("toxicity", "block", json!({ "default_on": false })),
    ]);
    let pointers = unsupported_parts(&json!({ "guardrails": configuration })).unwrap();
    let expected =
        ["0/detector", "1/pattern", "2/pattern", "3/max_length", "4/schema", "5/action", "6/entities/PERSON"];
    assert_eq!(pointers, expected.map(|path| format!("/guardrails/{path}")));
    assert_eq!(
        run(json!([guardrail("toxicity", "flag", json!({}))]), json!("x")).outcome,
        GuardrailOutcome::Unavailable
    );
    assert_eq!(
        run(json!([guardrail("json_schema", "mask", json!({ "schema": { "type": "object" } }))]), json!("x")).outcome,
        GuardrailOutcome::Blocked
    );
    assert!(unsupported_parts(&json!({})).is_err());
}

#[test]
fn brief_checks_depend_on_evaluations_not_bytes() {
    let redactor = Redactor::default();
    let check_of = |configuration: Value, value: Value| {
        GuardrailCheck::new(
            guardrails(json!([configuration])),
            Stage::Output,
            value,
            MAX_BYTES_INSPECTED_PER_RUN,
            1 << 20,
        )
    };
    let backwards = || guardrail("regex", "block", json!({ "pattern": ".*[^A-Z]|[A-Z]" }));
    let (short, long) = ("A".repeat(300), "A".repeat(1_000));
    let brief = check_of(backwards(), json!(short)).run_briefly(&redactor).unwrap();
    assert_eq!(brief, check_of(backwards(), json!(short)).run(&redactor));
    assert_eq!(check_of(backwards(), json!(long)).run_briefly(&redactor), None);
    assert_eq!(check_of(backwards(), json!(long)).run(&redactor).outcome, GuardrailOutcome::Blocked);
    let branches =
        guardrail("json_schema", "block", json!({ "schema": { "items": { "anyOf": vec![json!(false); 9_000] } } }));
    assert!(check_of(branches.clone(), json!([1])).run_briefly(&redactor).is_some());
    assert_eq!(check_of(branches, json!(vec![1; 100])).run_briefly(&redactor), None);
}

#[test]
fn quadratic_patterns_exceed_the_budget() {
    let backwards = guardrail("regex", "block", json!({ "pattern": ".*[^A-Z]|[A-Z]", "on_error": "fail_open" }));
    let result = run(json!([backwards]), json!("A".repeat(64 << 10)));
    assert_eq!(result.outcome, GuardrailOutcome::Passed);
    assert_eq!(result.findings[0].to_json()["error_code"], "schema_budget_exceeded");
    let numbers = guardrail("regex", "mask", json!({ "pattern": r"\d+" }));
    assert_eq!(run(json!([numbers]), json!("12 ".repeat(64 << 10))).findings[0].to_json()["found"], 64 << 10);
}

#[test]
fn compiled_bytes_match_their_estimate() {
    let schema = json!({ "anyOf": vec![json!({ "pattern": "a{1,9}" }); 50] });
    let configuration = json!([
        guardrail("regex", "block", json!({ "pattern": "a+" })),
        guardrail("json_schema", "block", json!({ "schema": schema })),
        guardrail("pii", "mask", json!({})),
    ]);
    let estimate = |kind, content: &Value| content::estimate_compiled_bytes(kind, content);
    let bytes = guardrails(configuration.clone()).compiled_bytes();
    assert_eq!(estimate(AssetKind::GuardrailConfig, &json!({ "guardrails": configuration })), bytes);
    assert!(bytes > 51 * (512 << 10), "{bytes}");
    let tool = json!({ "name": "a", "input_schema": schema, "output_schema": { "type": "object" },
        "binding": { "kind": "http", "ref": "https://api.example.com" } });
    assert_eq!(estimate(AssetKind::ToolDefinition, &tool), Tool::parse(&tool).unwrap().schema_bytes());
}
