//! T9 to T12: content that is made to hurt is refused soon, and the process does not grow by it.

use crate::process::{Place, Server};
use fairway_testkit::TestDatabase;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// How long a refusal may take. A build for tests is many times slower than a real one.
const SOON: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
/// By how much the process may grow while it refuses, in KiB.
const ROOM: u64 = 32 << 10;

/// What is sent to which kind, and what it is.
fn hostile() -> Vec<(&'static str, &'static str, Value)> {
    let mut all = wide();
    all.extend(schemas());
    all.extend(conditions());
    all
}

fn object(count: usize, member: impl Fn(usize) -> (String, Value)) -> Value {
    Value::Object((0..count).map(member).collect::<Map<_, _>>())
}

/// Much of everything.
fn wide() -> Vec<(&'static str, &'static str, Value)> {
    let names: Vec<String> = (0..45_000).map(|index| format!("tool-{index}")).collect();
    let references: Vec<Value> = (0..20_000).map(|index| json!({ "slug": format!("tool-{index}") })).collect();
    let deep = (0..55).fold(json!(1), |inner, _| json!([inner]));
    vec![
        ("guardrail_config", "two million numbers", json!({ "guardrails": vec![0; 2_000_000] })),
        ("guardrail_config", "as many as may be looked at", json!({ "guardrails": vec![0; 49_000] })),
        ("skill", "unknown fields", object(45_000, |index| (format!("field-{index}"), json!(0)))),
        ("skill", "keys without end", object(250_000, |index| (format!("k{index}"), json!(0)))),
        ("model_policy", "labels", json!({ "labels": object(45_000, |index| (format!("!{index}"), json!(0))) })),
        ("mcp_server", "names that differ", json!({ "allowed_tools": names })),
        ("agent", "references that differ", json!({ "tools": references })),
        ("agent", "depth", json!({ "instructions": deep })),
        ("skill", "a long text", json!({ "name": "a".repeat(3_900_000) })),
        ("prompt_template", "tokens", json!({ "system_prompt": "$arg:a".repeat(40_000) })),
        ("prompt_template", "half tokens", json!({ "system_prompt": "@asset-ref:".repeat(20_000) })),
        (
            "orchestration_flow",
            "steps",
            json!({ "entry_step": "s0", "steps": vec![json!({ "id": "s0", "type": "return" }); 10_000] }),
        ),
    ]
}

/// JSON Schemas and patterns inside of content.
fn schemas() -> Vec<(&'static str, &'static str, Value)> {
    let dear = |index: usize| format!("^\\w{{{}}}{index}$", 20);
    let patterns = |count: usize| object(count, |index| (format!("p{index}"), json!({ "pattern": dear(index) })));
    let carried =
        |schema: Value| json!({ "name": "t", "input_schema": schema, "binding": { "kind": "x", "ref": "y" } });
    let mut doubling = json!({ "d0": { "type": "string" } });
    for level in 1..30 {
        let below = json!({ "$ref": format!("#/$defs/d{}", level - 1) });
        doubling[format!("d{level}")] = json!({ "allOf": [below, below] });
    }
    let suite = |assertions: Vec<Value>| json!({ "dataset": { "items": [] }, "assertions": assertions });
    let regex = |index: usize| json!({ "type": "regex", "value": dear(index) });
    let shaped = |_: usize| json!({ "type": "is-json", "value": { "properties": patterns(40) } });
    vec![
        ("tool_definition", "as many dear patterns as may be", carried(json!({ "properties": patterns(50) }))),
        ("tool_definition", "dear patterns without end", carried(json!({ "properties": patterns(9_000) }))),
        ("tool_definition", "a pattern too large", carried(json!({ "pattern": "(\\w{100}){100}" }))),
        ("tool_definition", "a pattern that backtracks", carried(json!({ "pattern": "^(?=(a+)+$)(a|aa)+\\1$" }))),
        ("tool_definition", "doubling", carried(json!({ "$ref": "#/$defs/d29", "$defs": doubling }))),
        ("tool_definition", "itself", carried(json!({ "properties": { "a": { "$ref": "#" } } }))),
        ("tool_definition", "another server", carried(json!({ "$ref": "http://127.0.0.1:1/schema" }))),
        ("tool_definition", "many schemas", carried(json!({ "allOf": vec![json!({ "type": "string" }); 4_000] }))),
        ("tool_definition", "a long list", carried(json!({ "enum": (0..9_000).collect::<Vec<_>>() }))),
        ("evaluation_suite", "patterns in a row", suite((0..200).map(regex).collect())),
        ("evaluation_suite", "schemas in a row", suite((0..200).map(shaped).collect())),
        ("hook_definition", "a matcher too large", json!({ "event": "pre_tool", "matcher": "(\\w{100}){100}" })),
    ]
}

/// Conditions and tests of policies.
fn conditions() -> Vec<(&'static str, &'static str, Value)> {
    let rule = |index: usize, condition: &str| json!({ "id": format!("r{index}"), "condition": condition, "outcome": "allow", "reason_code": "x" });
    let rules = |condition: &str| (0..200).map(|index| rule(index, condition)).collect::<Vec<_>>();
    let loops = "inputs.list.exists(x, inputs.list.exists(y, x == y + 1000000))";
    let numbers: Vec<usize> = (0..400).collect();
    let test = |index: usize| {
        let input = json!({ "inputs": { "list": numbers } });
        json!({ "name": format!("t{index}"), "input": input, "expect": { "outcome": "allow" } })
    };
    let dear: Vec<Value> =
        (0..200).map(|index| rule(index, &format!("lane.matches('^\\\\w{{40}}{index}$')"))).collect();
    vec![
        ("policy_bundle", "brackets", json!({ "rules": rules(&"(".repeat(4_000)) })),
        ("policy_bundle", "a long sum", json!({ "rules": rules(&vec!["1"; 1_300].join("+")) })),
        ("policy_bundle", "conditionals", json!({ "rules": rules(&"true ? ".repeat(580)) })),
        ("policy_bundle", "dear patterns", json!({ "rules": dear })),
        (
            "policy_bundle",
            "tests that take long",
            json!({ "rules": rules(loops), "tests": (0..100).map(test).collect::<Vec<_>>() }),
        ),
    ]
}

#[tokio::test]
async fn hostile_content_is_refused_soon_and_in_little_room() {
    let database = TestDatabase::create().await.unwrap();
    let place = Place::new(&database.url());
    let server = place.start().await;
    warm_up(&server).await;
    let mut wrong = Vec::new();
    for (kind, what, content) in hostile() {
        let asset = server.remote.asset(kind).await;
        let body = serde_json::to_vec(&json!({ "content": content })).unwrap();
        drop(content);
        server.forget_peak();
        let before = server.memory().now;
        let since = Instant::now();
        let answer = server.remote.post_bytes(&format!("/v1/assets/{asset}/versions"), body).await.unwrap();
        let (took, grown) = (since.elapsed(), server.memory().peak.saturating_sub(before));
        if !matches!(answer.status, 400 | 413 | 422) || took > SOON || grown > ROOM {
            wrong.push(format!("{kind}, {what}: {} after {took:?}, {grown} KiB more", answer.status));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), server.said());
    server
        .remote
        .make("/v1/assets", &json!({ "slug": "still-there", "asset_kind": "skill", "owner_ref": "team:x" }))
        .await;
}

/// What is made once, such as the schemas of the kinds, is not what is measured.
async fn warm_up(server: &Server) {
    let kinds: std::collections::BTreeSet<&str> = hostile().into_iter().map(|(kind, ..)| kind).collect();
    for kind in kinds {
        let asset = server.remote.asset(kind).await;
        let answer = server.remote.post(&format!("/v1/assets/{asset}/versions"), &json!({ "content": {} }), None).await;
        assert_eq!(answer.unwrap().status, 400, "{kind}");
    }
}
