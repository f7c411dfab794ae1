//! Agents: tool calls, the results that the model receives, and the recorded evidence.

use crate::{
    dispatch::{execution_path, expire_leases},
    execution::wait_until_ended,
    guardrail::evidence_documents,
    support::workspace_fixture::{WORKSPACE, knowledge_content},
};
use fairway_testkit::{
    AGENT_FLOW, ScriptedEndpoint, ScriptedResponse, TestApp,
    app::{ActiveWorkload, Response, Version},
};
use serde_json::{Value, json};

const LOOPBACK: &str = "127.0.0.1/32";

/// A server whose egress guard allows this machine, and a tool endpoint on this machine.
struct AgentFixture {
    app: TestApp,
    endpoint: ScriptedEndpoint,
}

impl AgentFixture {
    async fn start() -> Self {
        let app = TestApp::builder().setting("FAIRWAY_EGRESS_ALLOW", LOOPBACK).start().await;
        Self { app, endpoint: ScriptedEndpoint::start().await }
    }

    /// The content of a tool definition for the endpoint. `overrides` replaces members.
    fn tool_content(&self, overrides: &Value) -> Value {
        let mut content = json!({
            "name": "weather", "description": "The weather of a city.",
            "input_schema": {
                "type": "object", "required": ["city"], "additionalProperties": false,
                "properties": { "city": { "type": "string" } },
            },
            "binding": { "kind": "http", "ref": self.endpoint.url("/weather") },
        });
        content.as_object_mut().unwrap().extend(overrides.as_object().unwrap().clone());
        content
    }

    async fn release_versions(&self, tools: &[Value]) -> Vec<Version> {
        let fixtures = self.app.fixtures();
        let route = json!({
            "route_id": "local", "provider": "local", "model": "rules", "account_slot": "local", "state": "approved",
        });
        let models = json!({ "provider_route": route, "supports_tool_use": true });
        let mut versions = vec![
            fixtures.allow_all_policy("policy").await,
            fixtures.asset_with_version("model_policy", "models", models).await,
            fixtures.flow("flow", AGENT_FLOW).await,
        ];
        for (index, tool) in tools.iter().enumerate() {
            versions.push(fixtures.asset_with_version("tool_definition", &format!("tool-{index}"), tool.clone()).await);
        }
        versions
    }

    async fn workload_with_tools(&self, tools: &[Value]) -> ActiveWorkload {
        self.app.fixtures().active_workload_with_bindings("desk", self.release_versions(tools).await).await
    }

    async fn execute(&self, workload: &ActiveWorkload, ticket: &str) -> Response {
        let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
        self.app.post(workload.execute_path(), body).await
    }
}

#[tokio::test]
async fn agent_calls_a_tool_and_records_evidence() {
    let fixture = AgentFixture::start().await;
    fixture.endpoint.respond_with(ScriptedResponse::json(&json!("It rains in Bonn. It will stop.")));
    let workload = fixture.workload_with_tools(&[fixture.tool_content(&json!({}))]).await;
    let response = fixture.execute(&workload, "What is it like?\nCall: weather {\"city\": \"Bonn\"}").await.expect(200);
    assert_eq!((&response["status"], &response["output"]), (&json!("completed"), &json!("It rains in Bonn.")));
    let id = &response["execution_id"];
    let request = &fixture.endpoint.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/weather"));
    assert_eq!(request.json(), json!({ "city": "Bonn" }));
    let call_id = format!("{}.tool.1", id.as_str().unwrap());
    assert_eq!(request.header("idempotency-key"), Some(call_id.as_str()));
    let call = &evidence_documents(&fixture.app, id, "tool_call").await[0];
    assert_eq!((&call["tool"], &call["version"]), (&json!("weather"), &json!("tool-0@v1")));
    assert_eq!((&call["step_id"], &call["call"], &call["result"]), (&json!("work"), &json!(1), &json!("answered")));
    assert!(!call.to_string().contains("Bonn"), "evidence must not hold the arguments: {call}");
    assert_eq!(evidence_documents(&fixture.app, id, "provider_call").await.len(), 2);
    let lineage = fixture
        .app
        .get(execution_path(id, &format!("/context-lineage?workspace_id={WORKSPACE}&origin=tool_result")))
        .await;
    let item = &lineage.expect(200)["items"][0];
    assert_eq!((&item["ref"], &item["action_class"]), (&json!("tool-0@v1#call-1"), &json!("tool_call")));
    assert_eq!((&item["trust"], &item["untrusted_reason"]), (&json!("untrusted"), &json!("tool_result")));
}

#[tokio::test]
async fn tool_call_payload_is_withheld_from_viewers() {
    let fixture = AgentFixture::start().await;
    fixture.endpoint.respond_with(ScriptedResponse::json(&json!({ "sky": "rain" })));
    let workload = fixture.workload_with_tools(&[fixture.tool_content(&json!({}))]).await;
    let response = fixture.execute(&workload, "Call: weather {\"city\": \"Bonn\"}").await.expect(200);
    let id = &response["execution_id"];
    let evidence = fixture.app.get(execution_path(id, "/evidence-graph")).await.expect(200);
    let artifacts = evidence["evidence_artifacts"].as_array().unwrap();
    let tool_call = artifacts.iter().find(|artifact| artifact["artifact_kind"] == "tool_call").unwrap();
    let artifact_path = format!("/evidence-artifacts/{}", tool_call["artifact_id"].as_str().unwrap());
    let full_artifact = fixture.app.get(execution_path(id, &artifact_path)).await.expect(200);
    assert_eq!(full_artifact["payload"], json!({ "arguments": { "city": "Bonn" }, "result": { "sky": "rain" } }));
    fixture
        .app
        .fixtures()
        .bind_role("user:vera", "viewer", "tenant", Some(crate::support::workspace_fixture::TENANT))
        .await;
    let viewer_artifact = fixture.app.get(execution_path(id, &artifact_path)).as_actor("user:vera").await.expect(200);
    assert_eq!((&viewer_artifact["payload"], &viewer_artifact["payload_withheld"]), (&Value::Null, &json!(true)));
}

#[tokio::test]
async fn model_receives_tool_errors_and_the_tool_is_not_retried() {
    let fixture = AgentFixture::start().await;
    let workload = fixture.workload_with_tools(&[fixture.tool_content(&json!({ "timeout_ms": 200 }))]).await;
    for (script, code) in [
        (ScriptedResponse::status(500, "no"), "call_refused"),
        (ScriptedResponse::reset(), "call_broken"),
        (ScriptedResponse::redirect("http://169.254.169.254/"), "call_refused"),
        (ScriptedResponse::hang(), "call_timeout"),
        (ScriptedResponse::status(200, "{broken"), "call_malformed_answer"),
    ] {
        let requests_before = fixture.endpoint.request_count();
        fixture.endpoint.respond_with(script);
        let response = fixture.execute(&workload, "Call: weather {\"city\": \"Bonn\"}").await.expect(200);
        assert_eq!(response["output"], json!(format!("{{\"error\":\"{code}\"}}")), "{response}");
        assert_eq!(fixture.endpoint.request_count(), requests_before + 1, "{code}");
        let call = &evidence_documents(&fixture.app, &response["execution_id"], "tool_call").await[0];
        assert_eq!(call["result"], code);
    }
}

#[tokio::test]
async fn refuses_forbidden_invalid_and_unapproved_tool_calls() {
    let fixture = AgentFixture::start().await;
    let other_host = json!({ "egress_hosts": ["api.example.com"] });
    let needs_approval = json!({ "name": "book", "approval": "always" });
    let workload =
        fixture.workload_with_tools(&[fixture.tool_content(&other_host), fixture.tool_content(&needs_approval)]).await;
    for (ticket, code) in [
        ("Call: weather {\"city\": \"Bonn\"}", "call_forbidden"),
        ("Call: weather {\"town\": \"Bonn\"}", "tool_arguments_invalid"),
        ("Call: weather not json", "tool_arguments_malformed"),
        ("Call: book {\"city\": \"Bonn\"}", "tool_needs_approval"),
    ] {
        let response = fixture.execute(&workload, ticket).await.expect(200);
        assert_eq!(response["output"], json!(format!("{{\"error\":\"{code}\"}}")), "{response}");
    }
    assert_eq!(fixture.endpoint.request_count(), 0);
    // Without `FAIRWAY_EGRESS_ALLOW`, the server refuses calls to this machine.
    let server_without_egress = TestApp::builder().sharing_storage_of(&fixture.app).start().await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "Call: weather {\"city\": \"Bonn\"}" } });
    server_without_egress.post(workload.execute_path(), body).await.expect(200);
    assert_eq!(fixture.endpoint.request_count(), 0);
}

#[tokio::test]
async fn tool_secret_is_sent_to_the_tool_and_never_disclosed() {
    let secret_dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(secret_dir.path().join("default")).unwrap();
    std::fs::write(secret_dir.path().join("default/weather-key"), "s3cret-value").unwrap();
    let folder = secret_dir.path().to_str().unwrap();
    let app = TestApp::builder()
        .setting("FAIRWAY_EGRESS_ALLOW", LOOPBACK)
        .setting("FAIRWAY_SECRETS_DIR", folder)
        .start()
        .await;
    let fixture = AgentFixture { app, endpoint: ScriptedEndpoint::start().await };
    let tool_binding =
        |reference: &str| json!({ "kind": "http", "ref": fixture.endpoint.url("/"), "secret_ref": reference });
    let none = json!({ "name": "none", "binding": tool_binding("file:nobody") });
    let tools =
        [fixture.tool_content(&json!({ "binding": tool_binding("file:weather-key") })), fixture.tool_content(&none)];
    let workload = fixture.workload_with_tools(&tools).await;
    fixture.endpoint.respond_with(ScriptedResponse::json(&json!("fine")));
    let response = fixture.execute(&workload, "Call: weather {\"city\": \"Bonn\"}").await.expect(200);
    assert_eq!(fixture.endpoint.requests()[0].header("authorization"), Some("Bearer s3cret-value"));
    let evidence = fixture.app.get(execution_path(&response["execution_id"], "/evidence-graph")).await.text();
    assert!(!evidence.contains("s3cret-value") && !response.to_string().contains("s3cret-value"));
    let response = fixture.execute(&workload, "Call: none {\"city\": \"Bonn\"}").await.expect(200);
    assert_eq!(
        (&response["output"], fixture.endpoint.request_count()),
        (&json!("{\"error\":\"call_secret_unavailable\"}"), 1)
    );
}

#[tokio::test]
async fn agent_searches_only_knowledge_bases_bound_by_the_release() {
    let fixture = AgentFixture::start().await;
    let base =
        fixture.app.fixtures().asset_with_version("knowledge_base", "handbook", knowledge_content("handbook")).await;
    let documents = json!({ "documents": [{ "document_id": "leave", "text": "Everybody has thirty days of leave." }] });
    let path_of = |suffix: &str| format!("/v1/assets/{}/{suffix}?workspace_id={WORKSPACE}", base.asset_id);
    fixture.app.post(path_of("documents"), documents).await.expect(201);
    let search = json!({
        "name": "search", "input_schema": { "type": "object", "required": ["query"] },
        "annotations": { "read_only": true }, "binding": { "kind": "builtin", "ref": "query_knowledge_base" },
    });
    let mut versions = fixture.release_versions(&[search]).await;
    versions.push(base.clone());
    let workload = fixture.app.fixtures().active_workload_with_bindings("desk", versions).await;
    let ticket = "Call: search {\"query\": \"days of leave\", \"knowledge_base_slug\": \"handbook\"}";
    let response = fixture.execute(&workload, ticket).await.expect(200);
    assert!(response["output"].as_str().unwrap().contains("thirty days"), "{response}");
    let id = &response["execution_id"];
    assert_eq!(evidence_documents(&fixture.app, id, "retrieval_event").await.len(), 1);
    assert_eq!(evidence_documents(&fixture.app, id, "tool_call").await[0]["result"], "answered");
    let unknown =
        fixture.execute(&workload, "Call: search {\"query\": \"x\", \"knowledge_base_slug\": \"other\"}").await;
    assert_eq!(unknown.expect(200)["output"], "{\"error\":\"tool_failed\"}");
    // A revoked access contract also refuses retrieval by agents, and the run fails.
    fixture
        .app
        .post(path_of("access-contract/revoke"), json!({ "contract_id": "handbook", "reason": "over" }))
        .await
        .expect(200);
    let refusal = fixture.execute(&workload, ticket).await.expect(422);
    assert_eq!(refusal["detail"]["error"], "contract_refused");
}

#[tokio::test]
async fn activation_is_blocked_by_unavailable_agent_tools() {
    let fixture = AgentFixture::start().await;
    let fixtures = fixture.app.fixtures();
    let remote = json!({ "binding": { "kind": "builtin", "ref": "execute_flow" } });
    let mut versions =
        fixture.release_versions(&[fixture.tool_content(&remote), fixture.tool_content(&json!({}))]).await;
    let flow_with_tools = AGENT_FLOW.replace("    max_steps: 3\n", "    tools: [weather, stocks]\n");
    versions.retain(|version| version.kind != "orchestration_flow");
    versions.push(fixtures.flow("named", &flow_with_tools).await);
    let workload_id = fixtures.workload("blocked").await;
    let release = fixtures.approved_release(&workload_id, &versions).await;
    let transition = json!({ "to_state": "active" });
    let refusal = fixture.app.post(format!("/v1/releases/{release}/transition"), transition).await.expect(422);
    let missing: Vec<(&str, &str)> = refusal["detail"]["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gap| (gap["code"].as_str().unwrap(), gap["message"].as_str().unwrap()))
        .collect();
    assert_eq!(
        missing,
        [
            ("reference_unresolved", "an agent uses the tool `stocks`, which is not bound"),
            ("step_type_unavailable", "this server cannot call the tool `tool-0`"),
            ("reference_unresolved", "two bound tools have the name `weather`"),
        ]
    );
}

/// Kills the worker of a run during a tool call. Returns the number of tool calls and the result of the run.
async fn run_with_worker_death(overrides: &Value) -> (usize, Value) {
    let server = || TestApp::builder().setting("FAIRWAY_EGRESS_ALLOW", LOOPBACK);
    let fixture =
        AgentFixture { app: server().without_worker().start().await, endpoint: ScriptedEndpoint::start().await };
    let workload = fixture.workload_with_tools(&[fixture.tool_content(overrides)]).await;
    let first_server = server().sharing_storage_of(&fixture.app).start().await;
    fixture.endpoint.respond_in_sequence([ScriptedResponse::hang(), ScriptedResponse::json(&json!("sunny"))]);
    let body = json!({ "environment": "dev", "inputs": { "ticket": "Call: weather {\"city\": \"Bonn\"}" } });
    let accepted = fixture.app.post(workload.execute_path(), body).header("prefer", "respond-async").await.expect(202);
    fixture.endpoint.wait_for_requests(1).await;
    drop(first_server);
    expire_leases(&fixture.app).await;
    let _successor = server().sharing_storage_of(&fixture.app).start().await;
    let ended_run = wait_until_ended(&fixture.app, &accepted["execution_id"]).await;
    (fixture.endpoint.request_count(), ended_run["queued_result"]["result"].clone())
}

#[tokio::test]
async fn resumed_run_repeats_only_read_only_tool_calls() {
    let (calls, result) = run_with_worker_death(&json!({})).await;
    assert_eq!((calls, result), (1, json!("{\"error\":\"tool_outcome_unknown\"}")));
    let (calls, result) = run_with_worker_death(&json!({ "annotations": { "read_only": true } })).await;
    assert_eq!((calls, result), (2, json!("sunny")));
}
