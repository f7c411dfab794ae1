//! Guardrails of runs: masking, blocking, human review, and their evidence.

use crate::{
    dispatch::execution_path,
    execution::wait_until_ended,
    retrieval,
    run_events::parse_event_stream,
    support::{
        resource_measurement::assert_bounded,
        workspace_fixture::{WORKSPACE, knowledge_content},
    },
};
use fairway_testkit::{
    ProviderBehaviour, StubProvider, TestApp,
    app::{ActiveWorkload, Client, Response, Version},
};
use serde_json::{Value, json};
use std::sync::Arc;

const TICKET: &str = "I am ada@example.com, my card is 4111 1111 1111 1111.";

/// A workload with guardrails, its server and its stub provider.
struct GuardrailFixture {
    app: TestApp,
    provider: Arc<StubProvider>,
    workload: ActiveWorkload,
}

impl GuardrailFixture {
    async fn start_with(guardrails: Value, extra_versions: impl AsyncFnOnce(&TestApp) -> Vec<Version>) -> Self {
        let provider = StubProvider::new(ProviderBehaviour::Answers("write to bob@example.com".to_owned()));
        let app = TestApp::builder().provider(provider.clone()).start().await;
        let fixtures = app.fixtures();
        let route = json!({
            "route_id": "local", "provider": "local", "model": "rules", "account_slot": "local", "state": "approved",
        });
        let models = json!({ "provider_route": route, "supports_streaming": true });
        let mut versions = vec![
            fixtures.ticket_prompt("prompt").await,
            fixtures.allow_all_policy("policy").await,
            fixtures.asset_with_version("model_policy", "models", models).await,
            fixtures.asset_with_version("guardrail_config", "rails", json!({ "guardrails": guardrails })).await,
        ];
        versions.extend(extra_versions(&app).await);
        let workload = fixtures.active_workload_with_bindings("desk", versions).await;
        Self { app, provider, workload }
    }

    async fn start(guardrails: Value) -> Self {
        Self::start_with(guardrails, async |_: &TestApp| Vec::new()).await
    }

    async fn execute(&self, ticket: &str) -> Response {
        let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
        self.app.post(self.workload.execute_path(), body).await
    }

    async fn execute_with_key(&self, ticket: &str) -> Response {
        let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
        self.app.post(self.workload.execute_path(), body).idempotency_key("once").await
    }

    /// Text of every conversation that the provider received.
    fn provider_input(&self) -> String {
        let calls = self.provider.calls();
        calls.iter().map(|call| format!("{:?}\n", call.conversation)).collect()
    }
}

/// The contents of a run's evidence artifacts of one kind, without payloads.
pub(crate) async fn evidence_documents(app: &Client, execution: &Value, kind: &str) -> Vec<Value> {
    let evidence = app.get(execution_path(execution, "/evidence-graph")).await.expect(200);
    let mut documents = Vec::new();
    for artifact in evidence["evidence_artifacts"].as_array().unwrap() {
        if artifact["artifact_kind"] == kind {
            let suffix = format!("/evidence-artifacts/{}", artifact["artifact_id"].as_str().unwrap());
            documents.push(app.get(execution_path(execution, &suffix)).await.expect(200)["content"].clone());
        }
    }
    documents
}

fn pii_guardrail(stage: &str, action: &str) -> Value {
    json!({ "id": "pii", "detector": "pii", "stage": stage, "action": action, "reason_code": "personal_data" })
}

#[tokio::test]
async fn masks_input_before_the_model_call() {
    let fixture = GuardrailFixture::start(json!([pii_guardrail("input", "mask")])).await;
    let response = fixture.execute(TICKET).await.expect(200);
    assert_eq!(response["output"], "write to bob@example.com", "an `input` guardrail must not mask the output");
    let provider_input = fixture.provider_input();
    assert!(provider_input.contains("I am [email], my card is [card]."), "{provider_input}");
    assert!(!provider_input.contains("ada@") && !provider_input.contains("4111 1111"), "{provider_input}");
    let id = &response["execution_id"];
    let [found] = &evidence_documents(&fixture.app, id, "guardrail").await[..] else {
        panic!("expected exactly one guardrail document")
    };
    assert_eq!(
        (&found["stage"], &found["verdict"], &found["masked"]),
        (&json!("input"), &json!("passed"), &json!(true))
    );
    assert_eq!(
        found["findings"],
        json!([{ "guardrail_config": "rails", "id": "pii", "detector": "pii", "reason_code": "personal_data",
            "effect": "enforced", "action": "mask", "found": 2, "entities": { "card": 1, "email": 1 } }])
    );
    let graph = fixture.app.get(execution_path(id, "/evidence-graph?format=graph")).await;
    assert!(graph.text().contains("guardrail") && !graph.text().contains("4111 1111"), "{graph}");
}

#[tokio::test]
async fn blocks_input_before_the_model_call() {
    let blocking = json!({ "id": "pii", "detector": "pii", "stage": "input", "action": "flag",
        "entities": { "CREDIT_CARD": "block" }, "reason_code": "card_sent" });
    let fixture = GuardrailFixture::start(json!([blocking])).await;
    let refusal = fixture.execute_with_key(TICKET).await.expect_refusal(422, "guardrail_blocked");
    let second_response = fixture.execute_with_key(TICKET).await;
    assert_eq!(second_response.expect_refusal(422, "guardrail_blocked")["execution_id"], refusal["execution_id"]);
    assert_eq!((fixture.provider.call_count(), second_response.header("idempotency-replayed")), (0, Some("true")));
    let id = &refusal["execution_id"];
    let ended_run = wait_until_ended(&fixture.app, id).await;
    assert_eq!((&ended_run["status"], &ended_run["error"]["code"]), (&json!("failed"), &json!("guardrail_blocked")));
    let found = &evidence_documents(&fixture.app, id, "guardrail").await[0];
    assert_eq!((&found["verdict"], &found["findings"][0]["reason_code"]), (&json!("blocked"), &json!("card_sent")));
    fixture.execute("I am ada@example.com.").await.expect(200);
    assert!(fixture.provider_input().contains("ada@example.com"), "flagged text is not masked");
}

#[tokio::test]
async fn blocked_output_is_never_disclosed() {
    let fixture =
        GuardrailFixture::start(json!([{ "id": "short", "detector": "max_length", "max_length": 5, "stage": "output",
        "action": "block" }]))
        .await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let stream = fixture.app.post(fixture.workload.execute_path(), body).header("accept", "text/event-stream").await;
    assert!(!stream.text().contains("bob"), "{stream}");
    let refusal = fixture.execute("Whom?").await.expect_refusal(422, "guardrail_blocked");
    let id = &refusal["execution_id"];
    for suffix in ["", "/evidence-graph", "/events"] {
        let response = fixture.app.get(execution_path(id, suffix)).await;
        assert_eq!(response.status, 200, "{response}");
        assert!(!response.text().contains("bob@"), "{response}");
    }
}

#[tokio::test]
async fn logging_only_guardrail_withholds_nothing() {
    let mut logging_guardrail = pii_guardrail("output", "block");
    logging_guardrail["mode"] = json!("logging_only");
    let fixture = GuardrailFixture::start(json!([logging_guardrail])).await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let stream = fixture.app.post(fixture.workload.execute_path(), body).header("accept", "text/event-stream").await;
    let output: String = parse_event_stream(&stream).iter().filter_map(|event| event.data["delta"].as_str()).collect();
    assert_eq!(output, "write to bob@example.com");
    let response = fixture.execute("Whom?").await.expect(200);
    let found = &evidence_documents(&fixture.app, &response["execution_id"], "guardrail").await[0]["findings"][0];
    assert_eq!((&found["effect"], &found["action"]), (&json!("logging_only"), &json!("block")));
}

#[tokio::test]
async fn finding_can_require_human_review() {
    let fixture = GuardrailFixture::start(json!([pii_guardrail("output", "require_approval")])).await;
    let waiting_run = fixture.execute("Whom?").await.expect(202);
    assert_eq!(waiting_run["review"], "pending");
    let id = &waiting_run["execution_id"];
    assert!(!fixture.app.get(execution_path(id, "")).await.text().contains("bob@"));
    let verdict = json!({ "outcome": "approved" });
    fixture.app.post(execution_path(id, "/review"), verdict).as_actor("user:reviewer").await.expect(200);
    assert_eq!(wait_until_ended(&fixture.app, id).await["queued_result"]["result"], "write to bob@example.com");
}

#[tokio::test]
async fn retrieved_documents_are_checked_before_the_step_uses_them() {
    for (action, blocked) in [("mask", false), ("block", true)] {
        let guardrails = json!([{ "id": "names", "detector": "regex", "pattern": "(?i)ada|handbook", "stage": "retrieval",
            "action": action }]);
        let fixture = GuardrailFixture::start_with(guardrails, async |app: &TestApp| {
            let base =
                app.fixtures().asset_with_version("knowledge_base", "handbook", knowledge_content("handbook")).await;
            let document = json!({ "document_id": "leave", "title": "Handbook", "text": "Ask Ada about leave." });
            let path = format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", base.asset_id);
            app.post(path, json!({ "documents": [document] })).await.expect(201);
            vec![base, app.fixtures().flow("flow", retrieval::RETRIEVAL_FLOW).await]
        })
        .await;
        let response = fixture.execute("leave").await;
        if blocked {
            let refusal = response.expect_refusal(422, "guardrail_blocked");
            assert_eq!(fixture.provider.call_count(), 0, "the model is not called, and `on_failure` does not apply");
            let found = &evidence_documents(&fixture.app, &refusal["execution_id"], "guardrail").await[0];
            assert_eq!((&found["step_id"], &found["stage"]), (&json!("find"), &json!("retrieval")));
        } else {
            response.expect(200);
            let provider_input = fixture.provider_input();
            assert!(provider_input.contains("[leave] [masked]\\nAsk [masked] about leave."), "{provider_input}");
        }
    }
}

/// A guardrail whose schema has 9,000 branches, each of which fails for every item.
fn failing_branches(stage: &str) -> Value {
    let schema = json!({ "properties": { "ticket": { "items": { "anyOf": vec![json!(false); 9_000] } } } });
    json!([{ "id": "shape", "detector": "json_schema", "schema": schema, "stage": stage, "action": "block" }])
}

/// A list of all branches' errors would occupy 280 MiB for 100 numbers, and exhaust memory for 1,000.
#[tokio::test]
async fn schema_guardrail_memory_is_bounded() {
    let fixture = GuardrailFixture::start(failing_branches("input")).await;
    let send = |count: usize| {
        let body = json!({ "environment": "dev", "inputs": { "ticket": vec![1; count] } });
        fixture.app.post(fixture.workload.execute_path(), body)
    };
    for count in [100, 1_000] {
        let refusal =
            assert_bounded(&format!("{count} numbers"), send(count)).await.expect_refusal(422, "guardrail_blocked");
        let found = &evidence_documents(&fixture.app, &refusal["execution_id"], "guardrail").await[0]["findings"][0];
        assert_eq!((&found["found"], &found["action"]), (&json!(1), &json!("block")), "{count} numbers");
    }
    // Beyond the evaluation budget, the guardrail fails closed.
    let failed = assert_bounded("2,000 numbers", send(2_000)).await.expect(200);
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("guardrail_unavailable")));
    let found = &evidence_documents(&fixture.app, &failed["execution_id"], "guardrail").await[0]["findings"][0];
    assert_eq!((&found["on_error"], &found["error_code"]), (&json!("fail_closed"), &json!("schema_budget_exceeded")));
    assert_eq!(fixture.provider.call_count(), 0);
}

/// The text is longer than the size that worker threads scan themselves, so it is checked on the blocking pool.
#[tokio::test]
async fn long_texts_are_checked() {
    let fixture =
        GuardrailFixture::start(json!([pii_guardrail("input", "mask"), blocking_pii_guardrail("again")])).await;
    let long_output = format!("{}ada@example.com", "words and 0301234567 ".repeat(15_000));
    fixture.execute(&long_output).await.expect(200);
    let provider_input = fixture.provider_input();
    assert!(provider_input.contains("[email]") && !provider_input.contains("ada@example.com"));
}

fn blocking_pii_guardrail(id: &str) -> Value {
    json!({ "id": id, "detector": "pii", "stage": "input", "action": "block" })
}

#[tokio::test]
async fn unsupported_detectors_block_activation() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let guardrails = json!({ "guardrails": [
        { "id": "a", "detector": "toxicity", "stage": "output", "action": "block" },
        { "id": "b", "detector": "pii", "stage": "output", "action": "block", "entities": { "PERSON": "mask" } },
        { "id": "c", "detector": "nothing", "stage": "output", "action": "block", "default_on": false },
        { "id": "d", "detector": "pii", "stage": "output", "action": "block" },
    ] });
    let versions = [
        fixtures.ticket_prompt("prompt").await,
        fixtures.allow_all_policy("policy").await,
        fixtures.model_policy("models").await,
        fixtures.asset_with_version("guardrail_config", "rails", guardrails).await,
    ];
    let release = fixtures.approved_release(&fixtures.workload("guarded").await, &versions).await;
    let transition = app.post(format!("/v1/releases/{release}/transition"), json!({ "to_state": "active" })).await;
    let detail = transition.expect_refusal(422, "activation_blocked");
    let missing: Vec<(&str, &str)> = detail["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|requirement| (requirement["code"].as_str().unwrap(), requirement["message"].as_str().unwrap()))
        .collect();
    assert_eq!(
        missing,
        ["guardrails[0].detector", "guardrails[1].entities.PERSON"].map(|path| (
            "control_not_enforced",
            &*format!("this server does not support `content.{path}` of the `guardrail_config` `rails`").leak()
        ))
    );
}
