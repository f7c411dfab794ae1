//! One trace from the caller's span to the single statement: what a collector gets of a request.

use crate::{guardrail::documents, mcp_server::FLOW, overheard::Overheard, stage::Stage};
use fairway_testkit::{FaultyEndpoint, Script};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_request_is_traced_from_its_caller_to_its_statements() {
    // A log of warnings alone, so that it is not the log that decides.
    let server = Overheard::start("warn").await;
    let stage = Stage::set(&server.client).await;
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a word that nobody else says" } });
    let run = server.client.post(stage.workload.execute_path(), body).header("traceparent", &traceparent).await;
    run.expect(200);
    let version = stage.request("create_asset_version").await.header("traceparent", &traceparent).await;
    version.expect(201);
    let (said, _) = server.end().await;

    let spans: Vec<Span> = said
        .traced
        .resource_spans
        .into_iter()
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .filter(|span| hex(&span.trace_id) == TRACE)
        .collect();
    let names: BTreeMap<String, &Span> = spans.iter().map(|span| (hex(&span.span_id), span)).collect();
    // What stands above a span, up to the caller's.
    let roots: BTreeSet<&str> = spans
        .iter()
        .map(|span| {
            let mut at = span;
            while let Some(above) = names.get(&hex(&at.parent_span_id)) {
                at = above;
            }
            assert_eq!(hex(&at.parent_span_id), PARENT, "{} has lost its trace", at.name);
            at.name.as_str()
        })
        .collect();
    let routes = ["POST /v1/assets/{asset_id}/versions", "POST /v1/workloads/by-slug/{slug}/execute"];
    assert_eq!(roots, BTreeSet::from(routes));
    let told: BTreeSet<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    for call in ["statement", "together", "chat", "artifact put"] {
        assert!(told.contains(call), "{call}: {told:?}");
    }
    let attributes = |span: &Span| format!("{:?}", span.attributes);
    for what in ["accepts of runs", "ends of runs", "new versions"] {
        assert!(spans.iter().any(|span| attributes(span).contains(what)), "{what}");
    }
    assert!(!said.spans.contains("a word that nobody else says"));
}

/// What only strangers say, and only stored rows hold.
const CANARY: &str = "canary-qxzw-7781";

/// The SDK of the protocol logs whole messages; none of them reaches the log or the collector.
#[tokio::test]
async fn exports_nothing_that_a_chatty_tool_server_says() {
    let endpoint = FaultyEndpoint::start().await;
    let server = Overheard::start_with("trace", "[egress]\nallow = [\"127.0.0.1/32\"]").await;
    let given = server.client.given();
    let (name, schema) = ("weather", json!({ "type": "object", "properties": { "city": { "type": "string" } } }));
    let transport = json!({ "type": "streamable-http", "url": endpoint.url("/mcp") });
    given.version("mcp_server", "skies", json!({ "name": "com.example/skies", "transport": transport })).await;
    let tool = json!({ "name": name, "description": "Tells it.", "input_schema": schema,
        "binding": { "kind": "mcp", "ref": { "slug": "skies" } } });
    let route = json!({ "route_id": "local", "provider": "local", "model": "rules", "account_slot": "local",
        "state": "approved" });
    let models = json!({ "provider_route": route, "supports_tool_use": true });
    let versions = vec![
        given.policy("policy").await,
        given.version("model_policy", "models", models).await,
        given.flow("flow", FLOW).await,
        given.version("tool_definition", "sky", tool).await,
    ];
    let workload = given.active_with("desk", versions).await;
    // Each answer comes with more than what was asked for.
    let chatter = |method: &str, params: Value| {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        format!("event: message\ndata: {message}\n\n")
    };
    let answer = |id: u32, result: Value| {
        let message = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        Script::events([
            chatter("notifications/message", json!({ "level": "info", "data": { CANARY: CANARY } })),
            chatter("notifications/progress", json!({ "progressToken": CANARY, "progress": 1, "message": CANARY })),
            chatter("notifications/of-its-own", json!({ CANARY: CANARY })),
            format!("event: message\ndata: {message}\n\n"),
        ])
    };
    let begun = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "instructions": CANARY,
        "serverInfo": { "name": CANARY, "version": "1" } });
    let tools = json!({ "tools": [{ "name": name, "description": "Tells it.", "inputSchema": schema }] });
    let gives = json!({ "content": [{ "type": "text", "text": "17" }] });
    endpoint.says_in_turn([answer(0, begun), Script::status(202, ""), answer(1, tools), answer(2, gives)]);
    let body = json!({ "environment": "dev", "inputs": { "ticket": "Call: weather {\"city\": \"Bonn\"}" } });
    let ran = server.client.post(workload.execute_path(), body).await.expect(200);
    assert_eq!(documents(&server.client, &ran["execution_id"], "tool_call").await[0]["result"], "answered", "{ran}");
    let (said, _) = server.end().await;
    assert!(said.spans.contains("chat"), "the run was traced");
    let logged = said.log.lines().find(|line| line.contains(CANARY));
    assert_eq!(logged, None);
    assert!(!said.spans.contains(CANARY), "a message of a tool server reached the collector");
}

/// PostgreSQL repeats the row that it refuses. What stays is the code and the constraint, which are ours.
#[tokio::test]
async fn logs_sqlstate_and_constraint_of_a_refused_statement_and_no_row() {
    let server = Overheard::start("trace").await;
    let owner = server.database.owner().await.unwrap();
    let check = format!("ALTER TABLE asset ADD CONSTRAINT no_canary CHECK (slug <> '{CANARY}')");
    owner.batch_execute(&check).await.unwrap();
    let skill = json!({ "slug": CANARY, "asset_kind": "skill", "owner_ref": "team:a" });
    let answer = server.client.post("/v1/assets", skill).await;
    answer.refused(500, "internal");
    assert!(!answer.text().contains(CANARY), "{answer}");
    let (said, _) = server.end().await;
    let told = said.log.lines().find(|line| line.contains("SQLSTATE 23514, constraint `no_canary`"));
    assert!(told.is_some(), "{}", said.log);
    for text in [&said.log, &said.spans] {
        let quoted = text.lines().find(|line| line.contains(CANARY) || line.contains("Failing row"));
        assert_eq!(quoted, None);
    }
}
