//! Hooks of runs: their requests, the effect of their responses, and failures.

use crate::{dispatch::execution_path, execution::wait_until_ended, guardrail::evidence_documents};
use fairway_testkit::{
    ProviderBehaviour, ScriptedEndpoint, ScriptedResponse, StubProvider, TestApp,
    app::{ActiveWorkload, Response, Version},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// A server with a stub model provider, and a hook endpoint on this machine.
struct HookFixture {
    app: TestApp,
    provider: Arc<StubProvider>,
    endpoint: ScriptedEndpoint,
}

impl HookFixture {
    async fn start(allowed: &'static str) -> Self {
        let provider = StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()));
        let app = TestApp::builder().setting("FAIRWAY_EGRESS_ALLOW", allowed).provider(provider.clone()).start().await;
        Self { app, provider, endpoint: ScriptedEndpoint::start().await }
    }

    /// A workload with a hook that calls the endpoint. `overrides` extends the content of the hook.
    async fn workload_with_endpoint(&self, slug: &str, event: &str, overrides: Value) -> ActiveWorkload {
        let mut content =
            json!({ "event": event, "handler": { "type": "http", "ref": self.endpoint.url("/s3cret-path") } });
        content.as_object_mut().unwrap().extend(overrides.as_object().unwrap().clone());
        self.workload_with_hook(slug, content).await
    }

    async fn workload_with_hook(&self, slug: &str, content: Value) -> ActiveWorkload {
        let versions = self.release_versions(slug, content).await;
        self.app.fixtures().active_workload_with_bindings(slug, versions).await
    }

    async fn release_versions(&self, slug: &str, content: Value) -> Vec<Version> {
        let fixtures = self.app.fixtures();
        let name = |suffix: &str| format!("{slug}-{suffix}");
        vec![
            fixtures.ticket_prompt(&name("prompt")).await,
            fixtures.allow_all_policy(&name("policy")).await,
            fixtures.model_policy(&name("models")).await,
            fixtures.asset_with_version("hook_definition", &name("hook"), content).await,
        ]
    }

    async fn execute(&self, workload: &ActiveWorkload, ticket: &str) -> Response {
        let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
        self.app.post(workload.execute_path(), body).await
    }
}

const LOOPBACK: &str = "127.0.0.1/32";

#[tokio::test]
async fn hook_receives_the_model_request_and_can_modify_it() {
    let fixture = HookFixture::start(LOOPBACK).await;
    let workload = fixture.workload_with_endpoint("main", "pre_llm", json!({ "may": ["allow", "modify"] })).await;
    let replacement =
        json!({ "system_prompt": "Be brief.", "messages": [{ "role": "user", "content": "Sort this." }] });
    let modification = json!({ "decision": "modify", "reason_code": "shorter", "modified": replacement });
    fixture.endpoint.respond_in_sequence([
        ScriptedResponse::json(&modification),
        ScriptedResponse::json(&json!({ "decision": "allow" })),
    ]);
    let response = fixture.execute(&workload, "a refund").await.expect(200);
    assert_eq!(response["output"], "billing");
    let call = &fixture.provider.calls()[0].conversation;
    assert_eq!((call.system_prompt.as_str(), call.messages[0].content.as_str()), ("Be brief.", "Sort this."));
    let id = response["execution_id"].as_str().unwrap();
    let request = &fixture.endpoint.requests()[0];
    let payload = request.json();
    let call_id = format!("{id}.1");
    assert_eq!((request.method.as_str(), request.header("idempotency-key")), ("POST", Some(call_id.as_str())));
    for (name, value) in [
        ("call_id", json!(call_id)),
        ("event", json!("pre_llm")),
        ("hook", json!("main-hook")),
        ("execution_id", json!(id)),
        ("workload", json!("main")),
        ("release_id", json!(workload.release_id)),
        ("environment", json!("dev")),
        ("lane", json!("standard")),
        ("actor", json!("user:local")),
    ] {
        assert_eq!(payload[name], value, "{name} of {payload}");
    }
    assert!(payload["value"]["system_prompt"].as_str().unwrap().ends_with("Ticket: a refund"), "{payload}");
    let evidence = &evidence_documents(&fixture.app, &response["execution_id"], "hook").await[0];
    assert_eq!((&evidence["decision"], &evidence["reason_code"]), (&json!("modify"), &json!("shorter")));
    assert!(!evidence.to_string().contains("brief") && !evidence.to_string().contains("s3cret-path"), "{evidence}");
    fixture.execute(&workload, "a refund").await.expect(200);
    assert!(fixture.provider.calls()[1].conversation.system_prompt.ends_with("Ticket: a refund"));
}

#[tokio::test]
async fn hook_denial_fails_the_run_before_the_model_call() {
    let fixture = HookFixture::start(LOOPBACK).await;
    let workload = fixture.workload_with_endpoint("main", "pre_execute", json!({})).await;
    fixture.endpoint.respond_with(ScriptedResponse::json(&json!({ "decision": "deny", "reason_code": "after_hours" })));
    let refusal = fixture.execute(&workload, "a refund").await.expect_refusal(422, "hook_denied");
    assert_eq!(fixture.provider.call_count(), 0);
    let ended_run = wait_until_ended(&fixture.app, &refusal["execution_id"]).await;
    assert_eq!((&ended_run["status"], &ended_run["error"]["code"]), (&json!("failed"), &json!("hook_denied")));
    let evidence = &evidence_documents(&fixture.app, &refusal["execution_id"], "hook").await[0];
    assert_eq!((&evidence["event"], &evidence["reason_code"]), (&json!("pre_execute"), &json!("after_hours")));
    let graph = fixture.app.get(execution_path(&refusal["execution_id"], "/evidence-graph?format=graph")).await;
    assert!(graph.text().contains("hook"), "{graph}");
}

#[tokio::test]
async fn hook_can_require_human_review() {
    let fixture = HookFixture::start(LOOPBACK).await;
    let workload = fixture.workload_with_endpoint("main", "post_execute", json!({ "may": ["ask"] })).await;
    fixture.endpoint.respond_with(ScriptedResponse::json(&json!({ "decision": "ask" })));
    let waiting_run = fixture.execute(&workload, "a refund").await.expect(202);
    assert_eq!(waiting_run["review"], "pending");
    assert_eq!(fixture.endpoint.requests()[0].json()["value"], "billing");
}

/// Threats T35 to T37 in `docs/security.md`: whatever the hook endpoint responds, the run continues or fails as
/// `on_error` specifies.
#[tokio::test]
async fn invalid_hook_responses_follow_on_error() {
    let fixture = HookFixture::start(LOOPBACK).await;
    let fail_closed = fixture.workload_with_endpoint("closed", "pre_llm", json!({ "timeout_ms": 300 })).await;
    let fail_open =
        fixture.workload_with_endpoint("open", "pre_llm", json!({ "timeout_ms": 300, "on_error": "fail_open" })).await;
    let huge_text = "x".repeat(10 << 20);
    for (script, code) in [
        (ScriptedResponse::hang(), "call_timeout"),
        (ScriptedResponse::reset(), "call_broken"),
        (ScriptedResponse::status(200, "{garbage"), "call_malformed_answer"),
        (ScriptedResponse::status(500, "{}"), "call_refused"),
        (ScriptedResponse::redirect("http://169.254.169.254/"), "call_refused"),
        (ScriptedResponse::status(200, &huge_text), "call_answer_too_long"),
        (ScriptedResponse::json(&json!({ "verdict": "allow" })), "hook_answer_malformed"),
        (ScriptedResponse::json(&json!({ "decision": "allow", "reason_code": "no code" })), "hook_answer_malformed"),
        (ScriptedResponse::json(&json!({ "decision": "ask" })), "hook_answer_not_allowed"),
    ] {
        let (model_calls, hook_calls) = (fixture.provider.call_count(), fixture.endpoint.request_count());
        fixture.endpoint.respond_with(script.clone());
        let response = fixture.execute(&fail_closed, "a refund").await.expect(200);
        assert_eq!(
            (&response["status"], &response["error"]["code"]),
            (&json!("failed"), &json!("hook_unavailable")),
            "{code}"
        );
        assert_eq!(
            (fixture.provider.call_count(), fixture.endpoint.request_count()),
            (model_calls, hook_calls + 1),
            "{code}: the model is not called"
        );
        let evidence = &evidence_documents(&fixture.app, &response["execution_id"], "hook").await[0];
        assert_eq!((&evidence["error"], &evidence["decision"]), (&json!(code), &Value::Null));
        assert!(!evidence.to_string().contains("garbage") && !evidence.to_string().contains("127.0.0.1"), "{evidence}");
        fixture.endpoint.respond_with(script);
        let response = fixture.execute(&fail_open, "a refund").await.expect(200);
        assert_eq!(response["output"], "billing", "{code}");
        assert_eq!(evidence_documents(&fixture.app, &response["execution_id"], "hook").await[0]["error"], code);
    }
}

#[tokio::test]
async fn loopback_hooks_require_an_egress_allowance() {
    let fixture = HookFixture::start("").await;
    fixture.endpoint.respond_with(ScriptedResponse::json(&json!({ "decision": "allow" })));
    let fail_closed = fixture.workload_with_endpoint("closed", "pre_llm", json!({})).await;
    let fail_open = fixture.workload_with_endpoint("open", "pre_llm", json!({ "on_error": "fail_open" })).await;
    let response = fixture.execute(&fail_closed, "a refund").await.expect(200);
    assert_eq!(response["error"]["code"], "hook_unavailable");
    assert_eq!(evidence_documents(&fixture.app, &response["execution_id"], "hook").await[0]["error"], "call_forbidden");
    assert_eq!(fixture.execute(&fail_open, "a refund").await.expect(200)["output"], "billing");
    assert_eq!(fixture.endpoint.request_count(), 0, "the endpoint is not called");
}

#[tokio::test]
async fn policy_hook_uses_the_version_resolved_at_approval() {
    let fixture = HookFixture::start("").await;
    let deny = json!([
        { "id": "no", "condition": "inputs.event.value.contains('bill')", "outcome": "deny", "reason_code": "no_bills" },
        { "id": "all", "condition": "always", "outcome": "allow", "reason_code": "fine" },
    ]);
    let gate = fixture.app.fixtures().policy_with_rules("gate", deny).await;
    let content = json!({ "event": "post_llm", "handler": { "type": "policy", "ref": { "slug": "gate" } },
        "if": "actor.ref == 'user:local' && inputs.event.name == 'post_llm'" });
    let workload = fixture.workload_with_hook("main", content).await;
    // A later version of the policy does not affect an approved release.
    let allow = json!({ "rules": [{ "id": "all", "condition": "always", "outcome": "allow", "reason_code": "fine" }] });
    fixture.app.fixtures().add_version(&gate.asset_id, allow).await;
    let refusal = fixture.execute(&workload, "a refund").await.expect_refusal(422, "hook_denied");
    let evidence = &evidence_documents(&fixture.app, &refusal["execution_id"], "hook").await[0];
    assert_eq!((&evidence["handler"], &evidence["reason_code"]), (&json!("policy"), &json!("no_bills")));
    fixture.provider.set_behaviour(ProviderBehaviour::Answers("other".to_owned()));
    assert_eq!(fixture.execute(&workload, "a refund").await.expect(200)["output"], "other");
}

#[tokio::test]
async fn unsupported_hook_handlers_block_activation() {
    let fixture = HookFixture::start("").await;
    let fixtures = fixture.app.fixtures();
    fixtures.ticket_prompt("ask").await;
    let content =
        json!({ "event": "pre_llm", "handler": { "type": "prompt", "ref": { "slug": "ask" } }, "mode": "observe" });
    let versions = fixture.release_versions("main", content).await;
    let release = fixtures.approved_release(&fixtures.workload("main").await, &versions).await;
    let path = format!("/v1/releases/{release}/transition");
    let detail =
        fixture.app.post(path, json!({ "to_state": "active" })).await.expect_refusal(422, "activation_blocked");
    let missing = json!([{ "code": "control_not_enforced",
        "message": "this server does not support `content.handler.type` of the `hook_definition` `main-hook`" }]);
    assert_eq!(detail["missing"], missing);
}
