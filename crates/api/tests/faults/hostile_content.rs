//! Threats T9 to T12 in `docs/security.md`: hostile content is refused within a time limit, and the refusal does not
//! increase the server's memory noticeably.

use crate::server_process::{Server, ServerSetup};
use fairway_testkit::TestDatabase;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Time limit for a refusal. A debug build is several times slower than a release build.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
/// Maximum growth of the resident memory during a refusal, in KiB.
const MAX_GROWTH_KIB: u64 = 32 << 10;

/// All hostile contents: asset kind, label and content.
fn hostile_contents() -> Vec<(&'static str, &'static str, Value)> {
    let mut contents = large_contents();
    contents.extend(schema_contents());
    contents.extend(policy_contents());
    contents
}

fn object_of(count: usize, member: impl Fn(usize) -> (String, Value)) -> Value {
    Value::Object((0..count).map(member).collect::<Map<_, _>>())
}

/// Contents with very many or very large values.
fn large_contents() -> Vec<(&'static str, &'static str, Value)> {
    let names: Vec<String> = (0..45_000).map(|index| format!("tool-{index}")).collect();
    let references: Vec<Value> = (0..20_000).map(|index| json!({ "slug": format!("tool-{index}") })).collect();
    let nested_list = (0..55).fold(json!(1), |inner, _| json!([inner]));
    vec![
        ("guardrail_config", "two million numbers", json!({ "guardrails": vec![0; 2_000_000] })),
        ("guardrail_config", "as many numbers as fit in the limit", json!({ "guardrails": vec![0; 49_000] })),
        ("skill", "unknown fields", object_of(45_000, |index| (format!("field-{index}"), json!(0)))),
        ("skill", "very many keys", object_of(250_000, |index| (format!("k{index}"), json!(0)))),
        ("model_policy", "labels", json!({ "labels": object_of(45_000, |index| (format!("!{index}"), json!(0))) })),
        ("mcp_server", "distinct names", json!({ "allowed_tools": names })),
        ("agent", "distinct references", json!({ "tools": references })),
        ("agent", "deep nesting", json!({ "instructions": nested_list })),
        ("skill", "a long text", json!({ "name": "a".repeat(3_900_000) })),
        ("prompt_template", "tokens", json!({ "system_prompt": "$arg:a".repeat(40_000) })),
        ("prompt_template", "incomplete tokens", json!({ "system_prompt": "@asset-ref:".repeat(20_000) })),
        (
            "orchestration_flow",
            "steps",
            json!({ "entry_step": "s0", "steps": vec![json!({ "id": "s0", "type": "return" }); 10_000] }),
        ),
    ]
}

/// Contents with expensive JSON Schemas and patterns.
fn schema_contents() -> Vec<(&'static str, &'static str, Value)> {
    let expensive_pattern = |index: usize| format!("^\\w{{{}}}{index}$", 20);
    let patterns =
        |count: usize| object_of(count, |index| (format!("p{index}"), json!({ "pattern": expensive_pattern(index) })));
    let tool_with =
        |schema: Value| json!({ "name": "t", "input_schema": schema, "binding": { "kind": "x", "ref": "y" } });
    let mut doubling = json!({ "d0": { "type": "string" } });
    for level in 1..30 {
        let previous = json!({ "$ref": format!("#/$defs/d{}", level - 1) });
        doubling[format!("d{level}")] = json!({ "allOf": [previous, previous] });
    }
    let suite = |assertions: Vec<Value>| json!({ "dataset": { "items": [] }, "assertions": assertions });
    let regex = |index: usize| json!({ "type": "regex", "value": expensive_pattern(index) });
    let json_assertion = |_: usize| json!({ "type": "is-json", "value": { "properties": patterns(40) } });
    vec![
        (
            "tool_definition",
            "as many expensive patterns as fit in the limit",
            tool_with(json!({ "properties": patterns(50) })),
        ),
        ("tool_definition", "very many expensive patterns", tool_with(json!({ "properties": patterns(9_000) }))),
        ("tool_definition", "an oversized pattern", tool_with(json!({ "pattern": "(\\w{100}){100}" }))),
        ("tool_definition", "a backtracking pattern", tool_with(json!({ "pattern": "^(?=(a+)+$)(a|aa)+\\1$" }))),
        ("tool_definition", "exponential references", tool_with(json!({ "$ref": "#/$defs/d29", "$defs": doubling }))),
        ("tool_definition", "a recursive reference", tool_with(json!({ "properties": { "a": { "$ref": "#" } } }))),
        ("tool_definition", "a remote reference", tool_with(json!({ "$ref": "http://127.0.0.1:1/schema" }))),
        ("tool_definition", "many schemas", tool_with(json!({ "allOf": vec![json!({ "type": "string" }); 4_000] }))),
        ("tool_definition", "a long list", tool_with(json!({ "enum": (0..9_000).collect::<Vec<_>>() }))),
        ("evaluation_suite", "a list of patterns", suite((0..200).map(regex).collect())),
        ("evaluation_suite", "a list of schemas", suite((0..200).map(json_assertion).collect())),
        ("hook_definition", "an oversized matcher", json!({ "event": "pre_tool", "matcher": "(\\w{100}){100}" })),
    ]
}

/// Policies with expensive conditions and tests.
fn policy_contents() -> Vec<(&'static str, &'static str, Value)> {
    let rule = |index: usize, condition: &str| json!({ "id": format!("r{index}"), "condition": condition, "outcome": "allow", "reason_code": "x" });
    let rules = |condition: &str| (0..200).map(|index| rule(index, condition)).collect::<Vec<_>>();
    let loops = "inputs.list.exists(x, inputs.list.exists(y, x == y + 1000000))";
    let numbers: Vec<usize> = (0..400).collect();
    let test = |index: usize| {
        let input = json!({ "inputs": { "list": numbers } });
        json!({ "name": format!("t{index}"), "input": input, "expect": { "outcome": "allow" } })
    };
    let expensive_rules: Vec<Value> =
        (0..200).map(|index| rule(index, &format!("lane.matches('^\\\\w{{40}}{index}$')"))).collect();
    vec![
        ("policy_bundle", "nested brackets", json!({ "rules": rules(&"(".repeat(4_000)) })),
        ("policy_bundle", "a long sum", json!({ "rules": rules(&vec!["1"; 1_300].join("+")) })),
        ("policy_bundle", "conditionals", json!({ "rules": rules(&"true ? ".repeat(580)) })),
        ("policy_bundle", "expensive patterns", json!({ "rules": expensive_rules })),
        (
            "policy_bundle",
            "slow tests",
            json!({ "rules": rules(loops), "tests": (0..100).map(test).collect::<Vec<_>>() }),
        ),
    ]
}

#[tokio::test]
async fn hostile_content_is_refused_in_bounded_time_and_memory() {
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner());
    let server = setup.start().await;
    warm_up(&server).await;
    let mut failures = Vec::new();
    for (kind, label, content) in hostile_contents() {
        let asset = server.client.create_asset(kind).await;
        let body = serde_json::to_vec(&json!({ "content": content })).unwrap();
        drop(content);
        server.reset_peak_memory();
        let before_kib = server.memory().resident_kib;
        let started_at = Instant::now();
        let response = server.client.post_bytes(&format!("/v1/assets/{asset}/versions"), body).await.unwrap();
        let (elapsed, growth_kib) = (started_at.elapsed(), server.memory().peak_kib.saturating_sub(before_kib));
        if !matches!(response.status, 400 | 413 | 422) || elapsed > REFUSAL_TIMEOUT || growth_kib > MAX_GROWTH_KIB {
            failures.push(format!(
                "{kind}, {label}: status {} after {elapsed:?}, grew by {growth_kib} KiB",
                response.status
            ));
        }
    }
    assert!(failures.is_empty(), "{}\n{}", failures.join("\n"), server.read_log());
    server
        .client
        .create("/v1/assets", &json!({ "slug": "still-there", "asset_kind": "skill", "owner_ref": "team:x" }))
        .await;
}

/// Initialises data that the server creates lazily, such as the schemas of asset kinds, so that it is not measured.
async fn warm_up(server: &Server) {
    let kinds: std::collections::BTreeSet<&str> = hostile_contents().into_iter().map(|(kind, ..)| kind).collect();
    for kind in kinds {
        let asset = server.client.create_asset(kind).await;
        let response =
            server.client.post(&format!("/v1/assets/{asset}/versions"), &json!({ "content": {} }), None).await;
        assert_eq!(response.unwrap().status, 400, "{kind}");
    }
}
