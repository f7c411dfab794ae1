//! Erasures of a person's texts: decisions by two people, the erased data, and evidence that still verifies.

mod approvals;
mod documents;

use crate::{
    chat_memory::turns_of_actor,
    evidence_bundle::{bundle, failed_checks, keys, statement},
    execution::wait_until_ended,
    rejected_results::tables_with,
    retrieval::RETRIEVAL_FLOW,
    share_link::{create_link, create_shared_workload, query_number, run_request},
    support::workspace_fixture::knowledge_content,
};
use fairway_domain::evidence::bundle::verify_bundle;
use fairway_testkit::{
    ProviderBehaviour, StubProvider, TestApp,
    app::{ActiveWorkload, Request},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// The person whose texts are erased.
const SUBJECT: &str = "user:eve";
const REQUESTER: &str = "user:ada";
const APPROVER: &str = "user:grace";
/// A word that every text of the subject contains.
const CANARY: &str = "canaryoferasure";

/// Requests an erasure of the subject's texts, and returns its path.
async fn request_erasure(app: &TestApp, subject: &str) -> String {
    let requested = app.post("/v1/erasures", json!({ "subject": subject })).as_actor(REQUESTER).await.expect(201);
    format!("/v1/erasures/{}", requested["erasure_id"].as_str().unwrap())
}

/// Approves the erasure at this path as `APPROVER`.
async fn approve(app: &TestApp, erasure: &str) {
    app.post(format!("{erasure}/approve"), json!({})).as_actor(APPROVER).await.expect(200);
}

/// Executes one pass of the erasures, which erases what is erasable now.
async fn carry_out(app: &TestApp) {
    while app.services().erasures.erase_next_batches().await.unwrap() {}
}

/// Executes approved erasures to completion, including the texts of runs that were active at the approval.
async fn complete(app: &TestApp) {
    carry_out(app).await;
    app.database().set_clock_offset(200).await.unwrap();
    carry_out(app).await;
}

/// A server with a workload that stores all kinds of texts: transcripts, queries, progress and conversation turns.
struct ErasureSetup {
    provider: Arc<StubProvider>,
    app: TestApp,
    workload: ActiveWorkload,
}

impl ErasureSetup {
    async fn start() -> Self {
        let provider = StubProvider::new(ProviderBehaviour::Answers(format!("It is {CANARY}.")));
        let app = TestApp::builder().provider(provider.clone()).start().await;
        let fixtures = app.fixtures();
        let mut base = knowledge_content("handbook");
        base["access_contract"]["allowed_principals"] = json!([SUBJECT, "user:local"]);
        base["access_contract"]["allowed_access_modes"] = json!(["retrieve", "memory_replay", "memory_writeback"]);
        let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations",
            "reason_code": "watched", "obligations": ["record_transcript"] }]);
        let versions = vec![
            fixtures.ticket_prompt("prompt").await,
            fixtures.policy_with_rules("policy", rules).await,
            fixtures.model_policy("models").await,
            fixtures.asset_with_version("knowledge_base", "handbook", base).await,
            fixtures.asset_with_version("memory", "memory", json!({ "scope": "session", "type": "buffer" })).await,
            fixtures.flow("flow", RETRIEVAL_FLOW).await,
        ];
        let workload = fixtures.active_workload_with_bindings("desk", versions).await;
        Self { provider, app, workload }
    }

    /// A request that runs the workload as an actor.
    fn execute(&self, actor: &str, ticket: &str) -> Request {
        let body = json!({ "environment": "dev", "inputs": { "ticket": ticket }, "session_id": "s" });
        self.app.post(self.workload.execute_path(), body).as_actor(actor)
    }

    async fn evidence(&self, run: &Value) -> Value {
        let path = format!("/v1/executions/{}/evidence-graph", run["execution_id"].as_str().unwrap());
        self.app.get(path).await.expect(200)
    }

    /// The payloads of a run's evidence artifacts.
    async fn payloads(&self, run: &Value) -> Vec<Value> {
        let mut payloads = Vec::new();
        for artifact in self.evidence(run).await["evidence_artifacts"].as_array().unwrap() {
            let (execution, artifact) =
                (run["execution_id"].as_str().unwrap(), artifact["artifact_id"].as_str().unwrap());
            let path = format!("/v1/executions/{execution}/evidence-artifacts/{artifact}");
            payloads.push(self.app.get(path).await.expect(200)["payload"].clone());
        }
        payloads.retain(|payload| !payload.is_null());
        payloads
    }
}

#[tokio::test]
async fn erased_texts_are_absent_and_bundles_still_verify() {
    let setup = ErasureSetup::start().await;
    let app = &setup.app;
    let subject_run = setup.execute(SUBJECT, &format!("Where is {CANARY}?")).await.expect(200);
    setup.provider.set_behaviour(ProviderBehaviour::Answers("Elsewhere.".to_owned()));
    let other_run = setup.execute("user:local", "Where?").await.expect(200);
    // A queued run also stores its progress.
    setup.provider.set_behaviour(ProviderBehaviour::Answers(format!("It is {CANARY}.")));
    let queued = setup.execute(SUBJECT, CANARY).header("prefer", "respond-async").await.expect(202);
    wait_until_ended(app, &queued["execution_id"]).await;
    let id = subject_run["execution_id"].as_str().unwrap();
    let evidence_before = (bundle(app, id).await, setup.evidence(&subject_run).await);
    let stored = tables_with(app.database(), CANARY).await;
    for table in ["evidence_payload", "execution_input", "execution_result", "memory_turn"] {
        assert!(stored.iter().any(|name| name == table), "{table}: {stored:?}");
    }

    let erasure = request_erasure(app, SUBJECT).await;
    carry_out(app).await;
    assert_eq!(setup.evidence(&subject_run).await, evidence_before.1, "a requested erasure changes nothing");
    approve(app, &erasure).await;
    complete(app).await;
    let completed_erasure = app.get(&erasure).await.expect(200);
    let counts = ["erased_runs", "erased_turns", "erased_documents"].map(|name| completed_erasure[name].clone());
    assert_eq!(
        (&completed_erasure["status"], counts),
        (&json!("completed"), [json!(2), json!(2), json!(0)]),
        "{completed_erasure}"
    );
    assert_eq!(tables_with(app.database(), CANARY).await, [""; 0]);

    // Run, events and conversation can still be read, but contain no text.
    let execution = app.get(format!("/v1/executions/{id}")).as_actor(SUBJECT).await.expect(200);
    assert_eq!((&execution["status"], &execution["queued_result"]), (&json!("completed"), &Value::Null));
    let events = app.get(format!("/v1/executions/{id}/events")).as_actor(SUBJECT).await;
    assert!(events.status == 200 && !events.text().contains(CANARY), "{events}");
    assert_eq!(turns_of_actor(app, &setup.workload, "s", SUBJECT).await, json!([]));
    assert_eq!(setup.payloads(&subject_run).await, [Value::Null; 0]);
    // The evidence reports the erasure, and is otherwise unchanged.
    let mut evidence = setup.evidence(&subject_run).await;
    let run = evidence["execution"].as_object_mut().unwrap();
    assert!(run.remove("erased_at").unwrap().is_string());
    assert_eq!(run.remove("erasure_id").unwrap(), completed_erasure["erasure_id"]);
    let mut earlier = evidence_before.1.clone();
    assert!(earlier["retrieval_events"][0]["query_text"].as_str().unwrap().contains(CANARY));
    earlier["retrieval_events"][0]["query_text"] = Value::Null;
    assert_eq!(evidence, earlier);
    let graph = app.get(format!("/v1/executions/{id}/evidence-graph?format=graph")).await.expect(200);
    assert_eq!(graph["nodes"][0]["data"]["erasure_id"], completed_erasure["erasure_id"]);

    // Evidence bundles from before and after the erasure verify. The later bundle also contains the facts of the
    // erasure.
    let bundle_after = bundle(app, id).await;
    for file in [&evidence_before.0, &bundle_after] {
        let report = verify_bundle(&file.body, &keys(app).await);
        assert!(report.has_passed(), "{:?}", failed_checks(&report));
        let has_check = report.checks.iter().any(|check| check.name == "erasure in the log");
        assert_eq!(has_check, file.body == bundle_after.body);
    }
    let predicate = statement(&bundle_after).predicate;
    assert_eq!(predicate.evidence["execution"]["erasure_id"], completed_erasure["erasure_id"]);
    assert!(predicate.facts.iter().any(|fact| fact.body.contains("\"erasure.approved\"")));
    assert_eq!(statement(&evidence_before.0).subject, statement(&bundle_after).subject);

    // Runs of other people do not change.
    assert!(setup.evidence(&other_run).await["execution"].get("erased_at").is_none());
    assert!(!setup.payloads(&other_run).await.is_empty());
    let turns = turns_of_actor(app, &setup.workload, "s", "user:local").await;
    assert_eq!(turns, json!([[r#"{"ticket":"Where?"}"#, "Elsewhere."]]));
}

#[tokio::test]
async fn erasure_waits_for_the_end_of_runs() {
    let setup = ErasureSetup::start().await;
    let app = &setup.app;
    setup.execute(SUBJECT, CANARY).await.expect(200);
    setup.provider.set_behaviour(ProviderBehaviour::Blocks);
    let calls = setup.provider.call_count();
    let running = setup.execute(SUBJECT, CANARY).header("prefer", "respond-async").await.expect(202);
    setup.provider.wait_for_calls(calls + 1).await;
    let erasure = request_erasure(app, SUBJECT).await;
    approve(app, &erasure).await;
    // The erasure does not cover a run that starts later.
    let later_run = setup.execute(SUBJECT, "later").header("prefer", "respond-async").await.expect(202);
    for _ in 0..2 {
        carry_out(app).await;
        let waiting_erasure = app.get(&erasure).await.expect(200);
        assert_eq!(
            (&waiting_erasure["status"], &waiting_erasure["erased_runs"]),
            (&json!("approved"), &json!(1)),
            "{waiting_erasure}"
        );
    }
    let inputs = format!(
        "SELECT count(*) FROM execution_input WHERE execution_id = '{}'",
        running["execution_id"].as_str().unwrap()
    );
    assert_eq!(query_number(app, &inputs).await, 1);
    setup.provider.set_behaviour(ProviderBehaviour::Answers(CANARY.to_owned()));
    wait_until_ended(app, &running["execution_id"]).await;
    wait_until_ended(app, &later_run["execution_id"]).await;
    complete(app).await;
    let completed_erasure = app.get(&erasure).await.expect(200);
    assert_eq!(
        (&completed_erasure["status"], &completed_erasure["erased_runs"]),
        (&json!("completed"), &json!(2)),
        "{completed_erasure}"
    );
    assert_eq!(query_number(app, &inputs).await, 0);
    assert!(setup.evidence(&later_run).await["execution"].get("erased_at").is_none());
    assert_eq!(turns_of_actor(app, &setup.workload, "s", SUBJECT).await[0][0], r#"{"ticket":"later"}"#);
}

#[tokio::test]
async fn runs_of_a_share_link_are_a_subject() {
    let app = TestApp::start().await;
    let workload = create_shared_workload(&app, "main").await;
    let (link, other_link) =
        (create_link(&app, &workload, json!({})).await, create_link(&app, &workload, json!({})).await);
    for token in [&link.token, &other_link.token] {
        run_request(&app, &workload, token).await.expect(200);
    }
    let erasure = request_erasure(&app, &format!("share_link:{}", link.id)).await;
    approve(&app, &erasure).await;
    complete(&app).await;
    let completed_erasure = app.get(&erasure).await.expect(200);
    assert_eq!(
        (&completed_erasure["status"], &completed_erasure["erased_runs"]),
        (&json!("completed"), &json!(1)),
        "{completed_erasure}"
    );
    assert_eq!(query_number(&app, "SELECT count(*) FROM execution_input").await, 1, "that of the other link");
}
