//! Provider adapters end to end, with loopback endpoints that implement the providers' protocols and inject faults.

use crate::{
    dispatch::{async_run, execution_path},
    execution::{run, wait_until_ended},
    run_events::EventStream,
    support::captured_telemetry::CapturedServer,
};
use fairway_testkit::{
    ScriptedEndpoint, ScriptedResponse, TestApp,
    app::{ActiveWorkload, Client, Fixtures},
};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

/// A unique value in the format of an API key.
const KEY: &str = "sk-live-CANARYqxzw7781";

pub(crate) fn chat_response(text: &str) -> ScriptedResponse {
    let choice = json!({ "index": 0, "message": { "role": "assistant", "content": text }, "finish_reason": "stop" });
    ScriptedResponse::json(&json!({
        "model": "small-2026", "choices": [choice], "usage": { "prompt_tokens": 40, "completion_tokens": 2 },
    }))
}

fn message_response(text: &str) -> ScriptedResponse {
    ScriptedResponse::json(&json!({
        "type": "message", "model": "other-2026", "content": [{ "type": "text", "text": text }],
        "stop_reason": "end_turn", "usage": { "input_tokens": 30, "output_tokens": 1 },
    }))
}

/// Two provider accounts with different protocols. A file contains their common key.
pub(crate) struct ProviderAccounts {
    pub(crate) openai: ScriptedEndpoint,
    anthropic: ScriptedEndpoint,
    folder: TempDir,
}

impl ProviderAccounts {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("key"), format!("{KEY}\n")).unwrap();
        Self { openai: ScriptedEndpoint::start().await, anthropic: ScriptedEndpoint::start().await, folder }
    }

    pub(crate) fn settings(&self) -> String {
        let key = self.folder.path().join("key");
        let account = |slot: &str, kind: &str, base: String| {
            format!(
                "[[providers]]\naccount_slot = \"{slot}\"\nkind = \"{kind}\"\nbase_url = \"{base}\"\n\
                 secret_ref = \"file:{}\"\nresidency = \"de\"\ntimeout = \"20s\"\nconcurrency = 4\n\
                 [[providers.prices]]\nmodel = \"small\"\ninput_micros_per_million = 150000\n\
                 output_micros_per_million = 600000\n",
                key.display()
            )
        };
        account("first", "openai", self.openai.url("/v1")) + &account("second", "anthropic", self.anthropic.url(""))
    }
}

/// A workload whose model policy routes to the first account, with the second account as fallback.
async fn active_workload(fixtures: &Fixtures, slug: &str) -> ActiveWorkload {
    active_workload_with_policy(fixtures, slug, None).await
}

/// Like `active_workload`, but with a sovereignty profile.
async fn active_workload_with_policy(fixtures: &Fixtures, slug: &str, profile: Option<Value>) -> ActiveWorkload {
    let route = |id: &str, model: &str, slot: &str| {
        json!({
            "route_id": id, "provider": "acme", "model": model, "account_slot": slot, "state": "approved",
            "residency": "DE",
        })
    };
    let content = json!({
        "provider_route": route("main", "small", "first"), "fallback_routes": [route("spare", "other", "second")],
        "supports_streaming": true,
    });
    let mut versions = vec![
        fixtures.asset_with_version("model_policy", &format!("{slug}-model"), content).await,
        fixtures.ticket_prompt(&format!("{slug}-prompt")).await,
        fixtures.allow_all_policy(&format!("{slug}-policy")).await,
    ];
    if let Some(profile) = profile {
        versions.push(fixtures.asset_with_version("sovereignty_profile", &format!("{slug}-profile"), profile).await);
    }
    fixtures.active_workload_with_bindings(slug, versions).await
}

/// The evidence of a run's only provider call.
async fn call_evidence(client: &Client, execution_id: &Value) -> Value {
    let id = execution_id.as_str().unwrap();
    let graph = client.get(format!("/v1/executions/{id}/evidence-graph")).await.expect(200);
    let artifact = &graph["evidence_artifacts"][0];
    assert_eq!(artifact["artifact_kind"], "provider_call");
    let artifact = artifact["artifact_id"].as_str().unwrap();
    client.get(format!("/v1/executions/{id}/evidence-artifacts/{artifact}")).await.expect(200)["content"].clone()
}

fn route_attempts(evidence: &Value) -> Vec<(&str, &str)> {
    let attempts = evidence["attempts"].as_array().unwrap().iter();
    attempts.map(|attempt| (attempt["route_id"].as_str().unwrap(), attempt["result"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn records_route_tokens_and_cost_of_a_provider_call() {
    let accounts = ProviderAccounts::start().await;
    let app = TestApp::builder().config_file(accounts.settings()).start().await;
    let workload = active_workload(&app.fixtures(), "main").await;
    accounts.openai.respond_with(chat_response("billing"));
    let response = run(&app, &workload).await.expect(200);
    assert_eq!((&response["status"], &response["output"]), (&json!("completed"), &json!("billing")));
    let call = call_evidence(&app, &response["execution_id"]).await;
    assert_eq!(route_attempts(&call), [("main", "answered")]);
    assert_eq!((&call["account_slot"], &call["model"]), (&json!("first"), &json!("small")));
    // 40 input tokens at 0.15 and 2 output tokens at 0.60, each price per million tokens.
    assert_eq!((&call["tokens_in"], &call["tokens_out"], &call["cost_micros"]), (&json!(40), &json!(2), &json!(8)));
    let request = &accounts.openai.requests()[0];
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    let body = request.json();
    assert!(body["messages"][0]["content"].as_str().unwrap().ends_with("Ticket: a refund"), "{body}");
    assert_eq!(accounts.anthropic.request_count(), 0);
}

#[tokio::test]
async fn falls_back_to_the_next_route_on_provider_errors() {
    let accounts = ProviderAccounts::start().await;
    let app = TestApp::builder().config_file(accounts.settings()).start().await;
    let workload = active_workload(&app.fixtures(), "main").await;
    accounts.anthropic.respond_with(message_response("other"));
    for (script, code) in [
        (ScriptedResponse::status(503, "no"), "provider_unavailable"),
        (ScriptedResponse::status(429, "no").header("Retry-After", "60"), "provider_busy"),
        (ScriptedResponse::status(408, "no"), "provider_timeout"),
        (ScriptedResponse::status(409, "no"), "provider_unavailable"),
        (ScriptedResponse::status(200, "<html>"), "provider_malformed_answer"),
        (ScriptedResponse::reset(), "provider_unavailable"),
    ] {
        accounts.openai.respond_with(script);
        let response = run(&app, &workload).await.expect(200);
        assert_eq!(response["output"], "other", "{response}");
        let call = call_evidence(&app, &response["execution_id"]).await;
        assert_eq!(route_attempts(&call), [("main", code), ("spare", "answered")]);
        assert_eq!((&call["account_slot"], &call["tokens_in"]), (&json!("second"), &json!(30)));
        assert_eq!(call["cost_micros"], Value::Null, "this model has no price");
    }
    let requests = accounts.anthropic.requests();
    assert_eq!((requests.len(), requests[0].header("x-api-key")), (6, Some(KEY)));
}

#[tokio::test]
async fn evidence_names_the_cause_of_a_call_that_no_provider_answered() {
    let accounts = ProviderAccounts::start().await;
    fs::remove_file(accounts.folder.path().join("key")).unwrap();
    let app = TestApp::builder().config_file(accounts.settings()).start().await;
    let workload = active_workload(&app.fixtures(), "main").await;
    let response = run(&app, &workload).await.expect(200);
    assert_eq!((&response["status"], &response["error"]["code"]), (&json!("failed"), &json!("provider_unavailable")));
    let message = "the provider was not called, because this server cannot read the key of the account";
    assert_eq!(response["error"]["message"], message);
    assert!(!response.to_string().contains("secret"), "the caller learns nothing about secrets: {response}");
    let call = call_evidence(&app, &response["execution_id"]).await;
    let causes: Vec<&Value> = call["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["cause"]).collect();
    assert!(causes.len() >= 2 && causes.iter().all(|cause| *cause == "secret_missing"), "{call}");
    assert_eq!(accounts.openai.request_count(), 0);
}

#[tokio::test]
async fn provider_refusal_fails_the_step_without_fallback() {
    let accounts = ProviderAccounts::start().await;
    let app = TestApp::builder().config_file(accounts.settings()).start().await;
    let workload = active_workload(&app.fixtures(), "main").await;
    accounts
        .openai
        .respond_with(ScriptedResponse::status(400, "{\"error\": {\"message\": \"your prompt is too long\"}}"));
    accounts.anthropic.respond_with(message_response("never"));
    let response = run(&app, &workload).await.expect(200);
    assert_eq!((&response["status"], &response["error"]["code"]), (&json!("failed"), &json!("provider_refused")));
    assert!(!response.to_string().contains("too long"), "{response}");
    let call = call_evidence(&app, &response["execution_id"]).await;
    assert_eq!(route_attempts(&call), [("main", "provider_refused")]);
    assert_eq!((accounts.openai.request_count(), accounts.anthropic.request_count()), (1, 0));
}

#[tokio::test]
async fn provider_keys_never_leave_the_server() {
    let accounts = ProviderAccounts::start().await;
    let server = CapturedServer::start_with("trace", &accounts.settings()).await;
    let workload = active_workload(&server.client.fixtures(), "main").await;
    // The provider echoes the key in bodies and headers.
    let echo = json!({ "error": { "message": format!("bad key {KEY}") } }).to_string();
    accounts.openai.respond_in_sequence([
        chat_response("billing"),
        ScriptedResponse::status(401, &echo),
        ScriptedResponse::status(503, &echo).header("X-Key", KEY),
        ScriptedResponse::status(200, &format!("{KEY} is no JSON")),
        ScriptedResponse::reset(),
    ]);
    accounts.anthropic.respond_with(ScriptedResponse::status(500, &echo));
    let mut received = String::new();
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    for _ in 0..5 {
        let response = server.client.post(workload.execute_path(), body.clone()).await;
        let id = response.expect(200)["execution_id"].as_str().unwrap().to_owned();
        received += &response.text();
        for path in ["", "/evidence-graph"] {
            received += &server.client.get(format!("/v1/executions/{id}{path}")).await.text();
        }
        received += &call_evidence(&server.client, &json!(id)).await.to_string();
    }
    received += &server.client.get("/metrics").await.text();
    received += &server.client.get("/v1/audit/events?limit=200").await.text();
    assert!(accounts.openai.requests().iter().all(|request| request.header("authorization").unwrap().contains(KEY)));
    assert!(accounts.anthropic.request_count() > 0);
    let (telemetry, _) = server.shut_down().await;
    assert!(
        telemetry.log.contains("a model provider returned an error status") && telemetry.spans.contains("chat"),
        "{}",
        telemetry.log
    );
    for (source, text) in [("answers", &received), ("the log", &telemetry.log), ("spans", &telemetry.spans)] {
        let line = text.lines().find(|line| line.contains("CANARY") || line.contains("qxzw7781"));
        assert!(line.is_none(), "{source}: {line:?}");
    }
}

#[tokio::test]
async fn falls_back_when_the_account_is_at_its_concurrency_limit() {
    let accounts = ProviderAccounts::start().await;
    let settings = accounts.settings().replace("concurrency = 4", "concurrency = 1");
    let app = TestApp::builder().config_file(settings).start().await;
    let workload = active_workload(&app.fixtures(), "main").await;
    accounts.openai.respond_with(ScriptedResponse::hang());
    accounts.anthropic.respond_with(message_response("other"));
    let pending_run = run(&app, &workload).header("Prefer", "respond-async").await.expect(202)["execution_id"].clone();
    accounts.openai.wait_for_requests(1).await;
    let response = run(&app, &workload).await.expect(200);
    assert_eq!(response["output"], "other");
    let call = call_evidence(&app, &response["execution_id"]).await;
    assert_eq!(route_attempts(&call), [("main", "provider_busy"), ("spare", "answered")]);
    assert_eq!(accounts.openai.request_count(), 1);
    let path = format!("/v1/executions/{}/cancel", pending_run.as_str().unwrap());
    app.post(path, json!({})).await.expect(200);
}

/// A server-sent event with a part of the answer, in OpenAI's protocol, which the first account uses.
fn delta_event(text: &str) -> String {
    format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": { "content": text } }] }))
}

#[tokio::test]
async fn streams_deltas_while_the_provider_sends_them() {
    let accounts = ProviderAccounts::start().await;
    let app = TestApp::builder().config_file(accounts.settings()).start().await;
    let workload = active_workload(&app.fixtures(), "main").await;
    let end_fields = json!({
        "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 40, "completion_tokens": 2 },
    });
    let events =
        [delta_event("bil"), delta_event("ling"), format!("data: {end_fields}\n\n"), "data: [DONE]\n\n".to_owned()];
    accounts.openai.respond_with(ScriptedResponse::events(events).with_pauses());
    let id = async_run(&app, &workload).await.expect(202)["execution_id"].clone();
    let mut stream = EventStream::open(&app, &execution_path(&id, "/events"), "").await;
    let mut deltas = Vec::new();
    while deltas.len() < 2 {
        let (kind, data) = stream.next_event().await;
        if kind == "output.delta" {
            deltas.push(data["delta"].as_str().unwrap().to_owned());
            // The endpoint sends the next delta only after the client has received this one.
            accounts.openai.release_pauses(1);
        }
    }
    accounts.openai.release_pauses(1);
    assert_eq!(deltas, ["bil", "ling"]);
    assert_eq!(wait_until_ended(&app, &id).await["queued_result"]["result"], "billing");
    let call = call_evidence(&app, &id).await;
    assert_eq!((&call["tokens_in"], &call["cost_micros"]), (&json!(40), &json!(8)));

    // A truncated stream is discarded, and the fallback account answers.
    accounts.openai.respond_with(ScriptedResponse::events([delta_event("wrong")]).truncated());
    accounts.anthropic.respond_with(message_response("right"));
    let id = async_run(&app, &workload).await.expect(202)["execution_id"].clone();
    assert_eq!(wait_until_ended(&app, &id).await["queued_result"]["result"], "right");
    assert_eq!(
        route_attempts(&call_evidence(&app, &id).await),
        [("main", "provider_malformed_answer"), ("spare", "answered")]
    );
}

#[tokio::test]
async fn skips_accounts_outside_the_allowed_jurisdictions() {
    let accounts = ProviderAccounts::start().await;
    let settings = accounts.settings().replacen("residency = \"de\"", "residency = \"us\"", 1);
    let app = TestApp::builder().config_file(settings).start().await;
    let profile = json!({ "jurisdictions_allowed": ["eu"] });
    let workload = active_workload_with_policy(&app.fixtures(), "main", Some(profile)).await;
    accounts.openai.respond_with(chat_response("elsewhere"));
    accounts.anthropic.respond_with(message_response("here"));
    assert_eq!(run(&app, &workload).await.expect(200)["output"], "here");
    assert_eq!((accounts.openai.request_count(), accounts.anthropic.request_count()), (0, 1));
}
