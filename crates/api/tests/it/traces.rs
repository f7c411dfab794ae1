//! Distributed traces, from the caller's span down to each database statement.

use crate::{
    agent_mcp_tools::AGENT_FLOW,
    guardrail::evidence_documents,
    support::{captured_telemetry::CapturedServer, workspace_fixture::WorkspaceFixture},
};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn traces_a_request_from_its_caller_to_its_statements() {
    // The log level is `warn`, which must not affect the exported spans.
    let server = CapturedServer::start("warn").await;
    let fixture = WorkspaceFixture::create(&server.client).await;
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a word that nobody else says" } });
    let run = server.client.post(fixture.workload.execute_path(), body).header("traceparent", &traceparent).await;
    run.expect(200);
    let version = fixture.successful_request("create_asset_version").await.header("traceparent", &traceparent).await;
    version.expect(201);
    let (telemetry, _) = server.shut_down().await;

    let spans: Vec<Span> = telemetry
        .trace_request
        .resource_spans
        .into_iter()
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .filter(|span| hex(&span.trace_id) == TRACE)
        .collect();
    let spans_by_id: BTreeMap<String, &Span> = spans.iter().map(|span| (hex(&span.span_id), span)).collect();
    // For each span below the caller's span, its outermost ancestor.
    let roots: BTreeSet<&str> = spans
        .iter()
        .map(|span| {
            let mut current = span;
            while let Some(parent) = spans_by_id.get(&hex(&current.parent_span_id)) {
                current = parent;
            }
            assert_eq!(hex(&current.parent_span_id), PARENT, "{} has lost its trace", current.name);
            current.name.as_str()
        })
        .collect();
    let routes = ["POST /v1/assets/{asset_id}/versions", "POST /v1/workloads/by-slug/{slug}/execute"];
    assert_eq!(roots, BTreeSet::from(routes));
    let span_names: BTreeSet<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    for call in ["statement", "batch wait", "chat", "artifact put"] {
        assert!(span_names.contains(call), "{call}: {span_names:?}");
    }
    let attributes = |span: &Span| format!("{:?}", span.attributes);
    for name in ["accepts of runs", "ends of runs", "new versions"] {
        assert!(spans.iter().any(|span| attributes(span).contains(name)), "{name}");
    }
    assert!(!telemetry.spans.contains("a word that nobody else says"));
}

/// A text that only the tool server sends, or that only a stored row contains.
const CANARY: &str = "canary-qxzw-7781";

/// The MCP SDK logs whole messages. None of them may reach the log or the trace collector.
#[tokio::test]
async fn exports_no_messages_of_a_tool_server() {
    let endpoint = ScriptedEndpoint::start().await;
    let server = CapturedServer::start_with("trace", "[egress]\nallow = [\"127.0.0.1/32\"]").await;
    let fixtures = server.client.fixtures();
    let (name, schema) = ("weather", json!({ "type": "object", "properties": { "city": { "type": "string" } } }));
    let transport = json!({ "type": "streamable-http", "url": endpoint.url("/mcp") });
    fixtures
        .asset_with_version("mcp_server", "skies", json!({ "name": "com.example/skies", "transport": transport }))
        .await;
    let tool = json!({ "name": name, "description": "Tells it.", "input_schema": schema,
        "binding": { "kind": "mcp", "ref": { "slug": "skies" } } });
    let route = json!({ "route_id": "local", "provider": "local", "model": "rules", "account_slot": "local",
        "state": "approved" });
    let models = json!({ "provider_route": route, "supports_tool_use": true });
    let versions = vec![
        fixtures.allow_all_policy("policy").await,
        fixtures.asset_with_version("model_policy", "models", models).await,
        fixtures.flow("flow", AGENT_FLOW).await,
        fixtures.asset_with_version("tool_definition", "sky", tool).await,
    ];
    let workload = fixtures.active_workload_with_bindings("desk", versions).await;
    // The tool server adds unsolicited notifications to each response.
    let notification = |method: &str, params: Value| {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        format!("event: message\ndata: {message}\n\n")
    };
    let rpc_response = |id: u32, result: Value| {
        let message = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        ScriptedResponse::events([
            notification("notifications/message", json!({ "level": "info", "data": { CANARY: CANARY } })),
            notification(
                "notifications/progress",
                json!({ "progressToken": CANARY, "progress": 1, "message": CANARY }),
            ),
            notification("notifications/of-its-own", json!({ CANARY: CANARY })),
            format!("event: message\ndata: {message}\n\n"),
        ])
    };
    let initialize_result = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "instructions": CANARY,
        "serverInfo": { "name": CANARY, "version": "1" } });
    let tools = json!({ "tools": [{ "name": name, "description": "Tells it.", "inputSchema": schema }] });
    let gives = json!({ "content": [{ "type": "text", "text": "17" }] });
    endpoint.respond_in_sequence([
        rpc_response(0, initialize_result),
        ScriptedResponse::status(202, ""),
        rpc_response(1, tools),
        rpc_response(2, gives),
    ]);
    let body = json!({ "environment": "dev", "inputs": { "ticket": "Call: weather {\"city\": \"Bonn\"}" } });
    let response = server.client.post(workload.execute_path(), body).await.expect(200);
    assert_eq!(
        evidence_documents(&server.client, &response["execution_id"], "tool_call").await[0]["result"],
        "answered",
        "{response}"
    );
    let (telemetry, _) = server.shut_down().await;
    assert!(telemetry.spans.contains("chat"), "the run was traced");
    let logged = telemetry.log.lines().find(|line| line.contains(CANARY));
    assert_eq!(logged, None);
    assert!(!telemetry.spans.contains(CANARY), "a message of a tool server reached the collector");
}

/// PostgreSQL quotes a refused row in its error. The server logs only the SQLSTATE and the constraint.
#[tokio::test]
async fn logs_sqlstate_and_constraint_of_a_refused_statement_and_no_row() {
    let server = CapturedServer::start("trace").await;
    let owner = server.database.connect_as_owner().await.unwrap();
    let check = format!("ALTER TABLE asset ADD CONSTRAINT no_canary CHECK (slug <> '{CANARY}')");
    owner.batch_execute(&check).await.unwrap();
    let skill = json!({ "slug": CANARY, "asset_kind": "skill", "owner_ref": "team:a" });
    let response = server.client.post("/v1/assets", skill).await;
    response.expect_refusal(500, "internal");
    assert!(!response.text().contains(CANARY), "{response}");
    let (telemetry, _) = server.shut_down().await;
    let logged = telemetry.log.lines().find(|line| line.contains("SQLSTATE 23514, constraint `no_canary`"));
    assert!(logged.is_some(), "{}", telemetry.log);
    for text in [&telemetry.log, &telemetry.spans] {
        let leaking_line = text.lines().find(|line| line.contains(CANARY) || line.contains("Failing row"));
        assert_eq!(leaking_line, None);
    }
}
