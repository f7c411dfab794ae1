//! A rejected answer appears in no response, table, log line or span.

use crate::{
    dispatch::execution_path,
    support::{
        captured_telemetry::{CapturedServer, CapturedTelemetry},
        documented_routes::{Route, routes},
        workspace_fixture::WORKSPACE,
    },
};
use fairway_testkit::{
    ScriptedEndpoint, ScriptedResponse, TestDatabase,
    app::{ActiveWorkload, Client, Request, Version},
};
use serde_json::{Value, json};
use std::time::Duration;

/// A text that only the model produces.
const CANARY: &str = "CANARYqxzw7781";
const SUBMITTER: &str = "user:ada";
const REVIEWER: &str = "user:reviewer";
/// Callers that try to read the answer: the submitter, the reviewer, and an operator with all read permissions.
const READERS: [&str; 3] = [SUBMITTER, REVIEWER, "user:local"];
const SESSION: &str = "session-1";

const FLOW: &str = "\
name: Answer from documents
description: Lets a model search until it knows.
trigger: { type: api_request, inputs_schema: { message: string } }
entry_step: work
steps:
  - id: work
    type: agent
    max_steps: 3
    inputs: { prompt: 'Answer from the documents.', message: '{{trigger.message}}' }
  - id: look
    type: task
    action: retrieve_documents
    inputs: { query: '{{steps.work.output}}' }
  - id: done
    type: return
    output: '{{steps.work.output}}'
";

/// A server with human review. Its model searches documents for the canary, and then answers with the canary.
struct ReviewedServer {
    server: CapturedServer,
    model: ScriptedEndpoint,
    workload: ActiveWorkload,
}

impl ReviewedServer {
    async fn start() -> Self {
        let model = ScriptedEndpoint::start().await;
        let account = format!(
            "[[providers]]\naccount_slot = \"first\"\nkind = \"openai\"\nbase_url = \"{}\"\n",
            model.url("/v1")
        );
        let server = CapturedServer::start_with("trace", &account).await;
        let versions = reviewed_versions(&server.client).await;
        let workload = server.client.fixtures().active_workload_with_bindings("main", versions).await;
        Self { server, model, workload }
    }

    /// A request that executes a run in a session.
    fn run_request(&self) -> Request {
        let call = json!({ "id": "1", "type": "function",
            "function": { "name": "search", "arguments": json!({ "query": CANARY }).to_string() } });
        self.model.respond_in_sequence([
            completion_response(json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls"),
            completion_response(json!({ "role": "assistant", "content": CANARY }), "stop"),
        ]);
        let body = json!({ "environment": "dev", "inputs": { "message": "Who?" }, "session_id": SESSION });
        self.server.client.post(self.workload.execute_path(), body).as_actor(SUBMITTER)
    }

    /// Waits until the run awaits its review.
    async fn wait_for_review(&self, id: &Value) {
        let awaits = async {
            while self.server.client.get(execution_path(id, "")).await.expect(200)["status"] != "awaiting_review" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), awaits).await.unwrap();
    }

    /// A request that runs a script.
    fn script_request(&self, language: &str, code: &str) -> Request {
        let body = json!({ "workspace_id": WORKSPACE, "workload_slug": self.workload.slug, "environment": "dev",
            "language": language, "code": code });
        self.server.client.post("/v1/runtime/code", body).as_actor(SUBMITTER)
    }

    fn review_request(&self, id: &Value, outcome: &str) -> Request {
        self.server
            .client
            .post(execution_path(id, "/review"), json!({ "outcome": outcome, "note": "No." }))
            .as_actor(REVIEWER)
    }

    /// The responses of all routes about the run, to every reader. With `everything`, the other read routes are
    /// included.
    async fn responses_about(&self, id: &Value, everything: bool) -> Vec<(String, String)> {
        self.responses_about_artifacts(id, everything, 6).await
    }

    /// Like `responses_about`, but asserts that the run has at least `min_artifacts` artifacts.
    async fn responses_about_artifacts(
        &self,
        id: &Value,
        everything: bool,
        min_artifacts: usize,
    ) -> Vec<(String, String)> {
        let client = &self.server.client;
        let graph = client.get(execution_path(id, "/evidence-graph")).await.expect(200);
        let artifacts: Vec<&str> = graph["evidence_artifacts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|artifact| artifact["artifact_id"].as_str().unwrap())
            .collect();
        assert!(artifacts.len() >= min_artifacts, "{graph}");
        let mut requests = Vec::new();
        let about = |route: &&Route| {
            route.method == "get"
                && !["read_document", "read_reference"].contains(&route.operation_id())
                && (everything || route.path.contains("{execution_id}"))
        };
        for route in routes().iter().filter(about) {
            for artifact in if route.path.contains("{artifact_id}") { &artifacts[..] } else { &[""] } {
                let Some(path) = self.path_about(route, id, artifact) else { continue };
                if route.operation_id() == "read_evidence_graph" {
                    requests.push((path.clone(), client.get(format!("{path}&format=graph"))));
                }
                requests.push((path.clone(), client.get(path)));
            }
        }
        assert!(requests.len() > if everything { 40 } else { 6 }, "{}", requests.len());
        let arguments = json!({ "arguments": { "execution_id": id, "format": "graph" } });
        let tool = "/v1/runtime/tools/inspect_evidence";
        requests.push((tool.to_owned(), client.post(tool, arguments)));
        let mut responses = Vec::new();
        for (path, request) in requests {
            for reader in READERS {
                let response = request.clone().as_actor(reader).await;
                responses.push((format!("{path} as {reader}"), response.text()));
            }
        }
        responses
    }

    /// The path of a route for the run, with its required query. `None` if the route is about another resource.
    fn path_about(&self, route: &Route, id: &Value, artifact: &str) -> Option<String> {
        let mut path = route.path.clone();
        for name in route.placeholders() {
            let is_known = match name {
                "execution_id" => id.as_str().unwrap(),
                "artifact_id" if route.path.contains("/executions/") => artifact,
                "workload_id" => &self.workload.workload_id,
                "release_id" => &self.workload.release_id,
                "session_id" => SESSION,
                "slug" => &self.workload.slug,
                "workspace_id" => WORKSPACE,
                "environment" => "dev",
                _ => return None,
            };
            path = path.replace(&format!("{{{name}}}"), is_known);
        }
        Some(format!("{path}{}", route.query(&[("workspace_id", WORKSPACE), ("environment", "dev"), ("limit", "200")])))
    }
}

fn completion_response(message: Value, reason: &str) -> ScriptedResponse {
    ScriptedResponse::json(&json!({
        "model": "small-2026", "choices": [{ "index": 0, "message": message, "finish_reason": reason }],
        "usage": { "prompt_tokens": 4, "completion_tokens": 2 },
    }))
}

/// The versions that a release binds: it records transcripts, uses memory and search, and requires human review.
async fn reviewed_versions(client: &Client) -> Vec<Version> {
    let fixtures = client.fixtures();
    let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations",
        "reason_code": "watched", "obligations": ["record_transcript", "redact_output", "human_review"] }]);
    let route = json!({ "route_id": "main", "provider": "acme", "model": "small", "account_slot": "first",
        "state": "approved" });
    let model = json!({ "provider_route": route, "supports_tool_use": true, "supports_streaming": true });
    let search = json!({ "name": "search", "input_schema": { "type": "object", "required": ["query"] },
        "annotations": { "read_only": true }, "binding": { "kind": "builtin", "ref": "query_knowledge_base" } });
    let base = json!({ "source_type": "inline", "access_contract": {
        "contract_id": "handbook", "version": "1", "default_decision": "deny", "allowed_principals": [SUBMITTER],
        "allowed_workspaces": [WORKSPACE],
        "allowed_access_modes": ["retrieve", "memory_replay", "memory_writeback"],
    } });
    vec![
        fixtures.policy_with_rules("policy", rules).await,
        fixtures.asset_with_version("model_policy", "models", model).await,
        fixtures.asset_with_version("tool_definition", "search", search).await,
        fixtures.asset_with_version("knowledge_base", "handbook", base).await,
        fixtures.asset_with_version("memory", "memory", json!({ "scope": "session", "type": "buffer" })).await,
        fixtures.flow("flow", FLOW).await,
    ]
}

async fn tables_with_canary(database: &TestDatabase) -> Vec<String> {
    tables_with(database, CANARY).await
}

/// The tables that contain a text, either as text or as bytes.
pub(crate) async fn tables_with(database: &TestDatabase, canary: &str) -> Vec<String> {
    let owner = database.connect_as_owner().await.unwrap();
    let tables = "SELECT quote_ident(relname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = 'public' AND relkind = 'r' ORDER BY relname";
    let bytes: String = canary.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut found = Vec::new();
    for table in owner.query(tables, &[]).await.unwrap() {
        let table: String = table.get(0);
        let holds = format!(
            "SELECT EXISTS (SELECT FROM {table} AS held WHERE held::text LIKE '%{canary}%' OR held::text LIKE '%{bytes}%')"
        );
        if owner.query_one(&holds, &[]).await.unwrap().get(0) {
            found.push(
                table.trim_end_matches(|character: char| character.is_ascii_digit() || character == '_').to_owned(),
            );
        }
    }
    found
}

#[tokio::test]
async fn rejected_answer_is_absent_from_responses_tables_and_telemetry() {
    let reviewed_server = ReviewedServer::start().await;
    let client = &reviewed_server.server.client;
    let queued =
        reviewed_server.run_request().header("prefer", "respond-async").await.expect(202)["execution_id"].clone();
    reviewed_server.wait_for_review(&queued).await;
    let streamed = reviewed_server.run_request().header("accept", "text/event-stream").await;
    assert!(!streamed.text().contains(CANARY), "{streamed}");
    let streamed = streamed.header("content-location").unwrap().split('/').nth(3).unwrap().to_owned();
    let approved_run = reviewed_server.run_request().idempotency_key("k").await.expect(202)["execution_id"].clone();
    let cancelled = reviewed_server.run_request().await.expect(202)["execution_id"].clone();
    let runs = [queued, json!(streamed), approved_run.clone()];
    // Before the review, the canary is stored, so its absence afterwards is meaningful.
    let tables_before = tables_with_canary(&reviewed_server.server.database).await;
    assert_eq!(tables_before, ["evidence_payload", "execution_progress", "execution_result"]);
    for id in &runs {
        let review = client.get(execution_path(id, "/review")).as_actor(REVIEWER).await.expect(200);
        assert_eq!(review["output"], CANARY);
        let pending = reviewed_server.responses_about(id, id == &runs[0]).await;
        let carries = |response: &&(String, String)| response.1.contains(CANARY);
        let routes: Vec<&str> = pending.iter().filter(carries).map(|(route, _)| route.as_str()).collect();
        assert!(routes.iter().all(|route| route.contains("/review")), "{routes:?}");
        assert_eq!(reviewed_server.review_request(id, "rejected").await.expect(200)["status"], "denied");
    }
    client.post(execution_path(&cancelled, "/cancel"), json!({})).as_actor(SUBMITTER).await.expect(200);

    let mut responses = Vec::new();
    for id in runs.iter().chain([&cancelled]) {
        responses.extend(reviewed_server.responses_about(id, id == &runs[0]).await);
    }
    let replayed = reviewed_server.run_request().idempotency_key("k").await;
    assert_eq!(replayed.expect_refusal(403, "review_rejected")["execution_id"], approved_run);
    responses.push(("the repeated request".to_owned(), replayed.text()));
    // The next run of the session does not replay the rejected answer.
    reviewed_server.run_request().await.expect(202);
    let model_request = reviewed_server.model.requests().pop().unwrap();
    responses.push(("the session in the model's request".to_owned(), model_request.json()["messages"][1].to_string()));
    assert_no_canary(&responses);
    let (telemetry, database) = reviewed_server.server.shut_down().await;
    // The last run still awaits its review, so its rows are excluded.
    let owner = database.connect_as_owner().await.unwrap();
    let pending: Vec<uuid::Uuid> = owner
        .query("SELECT execution_id FROM execution_review", &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(pending.len(), 1);
    for table in ["evidence_payload", "execution_progress", "execution_result"] {
        owner.execute(&format!("DELETE FROM {table} WHERE execution_id = $1"), &[&pending[0]]).await.unwrap();
    }
    assert_eq!(tables_with_canary(&database).await, Vec::<String>::new());
    assert!(telemetry.spans.contains("chat"), "{}", telemetry.spans.len());
    assert_no_canary_in_telemetry(&telemetry);
}

/// Covers the output, result and error of scripts. The script itself never contains the whole canary.
#[tokio::test]
async fn rejected_script_is_absent_from_responses_tables_and_telemetry() {
    let reviewed_server = ReviewedServer::start().await;
    let client = &reviewed_server.server.client;
    let code = "said = 'CANARYqxz' + 'w7781'\nprint(said)\nresult = {'answer': said}";
    let rejected =
        reviewed_server.script_request("starlark", code).idempotency_key("script").await.expect(202)["execution_id"]
            .clone();
    let tables_before = tables_with_canary(&reviewed_server.server.database).await;
    assert_eq!(tables_before, ["evidence_payload", "execution_result"]);
    let review = client.get(execution_path(&rejected, "/review")).as_actor(REVIEWER).await.expect(200);
    assert_eq!(review["output"]["answer"], CANARY);
    assert_eq!(review["metadata"]["stdout"], format!("{CANARY}\n"));
    let pending = reviewed_server.responses_about_artifacts(&rejected, true, 2).await;
    let routes = pending.iter().filter(|response| response.1.contains(CANARY)).map(|(route, _)| route.as_str());
    let routes: Vec<&str> = routes.collect();
    assert!(!routes.is_empty() && routes.iter().all(|route| route.contains("/review")), "{routes:?}");
    assert_eq!(reviewed_server.review_request(&rejected, "rejected").await.expect(200)["status"], "denied");

    let mut responses = reviewed_server.responses_about_artifacts(&rejected, true, 2).await;
    let replayed = reviewed_server.script_request("starlark", code).idempotency_key("script").await;
    assert_eq!(replayed.expect_refusal(403, "review_rejected")["execution_id"], rejected);
    responses.push(("the repeated request".to_owned(), replayed.text()));
    // A failed script is not reviewed, so no caller may see its output and error.
    for (language, code) in [
        ("starlark", "print('CANARYqxz' + 'w7781')\nfail('CANARYqxz' + 'w7781')"),
        ("javascript", "console.log('CANARYqxz' + 'w7781'); throw new Error('CANARYqxz' + 'w7781')"),
    ] {
        let failed = reviewed_server.script_request(language, code).await;
        let failed_run = failed.expect(200);
        assert_eq!(
            (&failed_run["status"], &failed_run["error"]["code"]),
            (&json!("failed"), &json!("script_error")),
            "{code}"
        );
        responses.push((format!("the answer to {code}"), failed.text()));
        responses.extend(reviewed_server.responses_about_artifacts(&failed_run["execution_id"], false, 2).await);
    }
    assert_no_canary(&responses);
    let (telemetry, database) = reviewed_server.server.shut_down().await;
    assert_eq!(tables_with_canary(&database).await, Vec::<String>::new());
    assert_no_canary_in_telemetry(&telemetry);
    for (location, bytes) in &telemetry.files {
        assert!(!bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes()), "{}", location.display());
    }
}

fn assert_no_canary(responses: &[(String, String)]) {
    for (location, text) in responses {
        assert!(!text.contains(CANARY), "{location}: {text}");
    }
}

fn assert_no_canary_in_telemetry(telemetry: &CapturedTelemetry) {
    assert!(telemetry.log.contains("execution"), "{}", telemetry.log.len());
    for (location, text) in [("the log", &telemetry.log), ("spans", &telemetry.spans)] {
        let line = text.lines().find(|line| line.contains(CANARY));
        assert!(line.is_none(), "{location}: {line:?}");
    }
}
