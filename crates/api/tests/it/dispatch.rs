//! Dispatch: queued runs, the workers that claim them, and the responses to their callers.

use crate::execution::{run, wait_until_ended};
use fairway_domain::execution::provider::{
    Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use fairway_testkit::{
    FaultPoint, FaultProxy, MovableClock, ProviderBehaviour, ProxyFault, StubProvider, TestApp,
    app::{ActiveWorkload, Request},
};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

pub(crate) fn async_run(app: &TestApp, workload: &ActiveWorkload) -> Request {
    run(app, workload).header("prefer", "respond-async")
}

/// Submits a queued run, checks the 202 response, and returns the execution identifier.
pub(crate) async fn submit_queued_run(app: &TestApp, workload: &ActiveWorkload) -> Value {
    let response = async_run(app, workload).await;
    let body = response.expect(202);
    assert_eq!(body["state"], "queued");
    assert_eq!(body.as_object().unwrap().len(), 2, "{body}");
    let path = format!("/v1/executions/{}", body["execution_id"].as_str().unwrap());
    assert_eq!(response.header("location"), Some(path.as_str()));
    body["execution_id"].clone()
}

pub(crate) fn execution_path(id: &Value, suffix: &str) -> String {
    format!("/v1/executions/{}{suffix}", id.as_str().unwrap())
}

fn answering_provider() -> Arc<StubProvider> {
    StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()))
}

#[tokio::test]
async fn worker_executes_a_queued_run_for_its_submitter() {
    let provider = answering_provider();
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let workload = app.active_workload("main").await;
    let by_query = format!("{}?mode=async", workload.execute_path());
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let other_run = app.post(by_query, body).await.expect(202)["execution_id"].clone();
    let id = submit_queued_run(&app, &workload).await;
    for id in [&other_run, &id] {
        let ended_run = wait_until_ended(&app, id).await;
        assert_eq!((&ended_run["status"], &ended_run["outcome"]), (&json!("completed"), &json!("success")));
        assert_eq!(ended_run["queued_result"]["result"], "billing");
        assert_eq!(
            app.get(execution_path(id, "")).as_actor("user:eve").await.expect(200)["queued_result"],
            Value::Null
        );
        let evidence = app.get(execution_path(id, "/evidence-graph")).await.expect(200);
        assert_eq!(evidence["policy_decision"]["outcome"], "allow");
    }
    assert_eq!(provider.call_count(), 2);
}

#[tokio::test]
async fn queued_dispatch_lets_callers_wait_for_a_worker() {
    let provider = answering_provider();
    let server = TestApp::builder()
        .setting("FAIRWAY_DISPATCH", "queued")
        .setting("FAIRWAY_SYNC_WAIT", "20s")
        .without_worker()
        .provider(provider.clone())
        .start()
        .await;
    let workload = server.active_workload("main").await;
    let id = run(&server, &workload).header("prefer", "wait=0").await.expect(202)["execution_id"].clone();
    assert_eq!(server.get(execution_path(&id, "")).await.expect(200)["status"], "queued");
    let listed = server.get("/v1/executions?status=queued").await.expect(200);
    assert_eq!(listed[0]["execution_id"], id);
    assert_eq!(provider.call_count(), 0, "no worker is running yet");
    let worker = TestApp::builder()
        .sharing_storage_of(&server)
        .setting("FAIRWAY_DISPATCH", "queued")
        .provider(provider.clone())
        .start()
        .await;
    assert_eq!(wait_until_ended(&server, &id).await["queued_result"]["result"], "billing");
    assert_eq!(run(&server, &workload).await.expect(200)["output"], "billing");
    worker.shut_down_gracefully().await;
}

#[tokio::test]
async fn worker_executes_a_claimed_run_after_a_lost_response() {
    for point in [FaultPoint::After, FaultPoint::Late] {
        let server = TestApp::builder().without_worker().provider(answering_provider()).start().await;
        let workload = server.active_workload("main").await;
        let id = submit_queued_run(&server, &workload).await;
        let proxy = FaultProxy::start_for_database(server.database(), 1);
        proxy.set_fault(ProxyFault::Once("execution_queue WHERE tenant_id > $6", point));
        // The lease expires only after an hour. The worker must resume the run without waiting for that.
        let worker = TestApp::builder()
            .sharing_storage_of(&server)
            .through_proxy(&proxy)
            .setting("FAIRWAY_WORKER_LEASE", "1h")
            .provider(answering_provider())
            .start()
            .await;
        assert_eq!(wait_until_ended(&server, &id).await["queued_result"]["result"], "billing", "{point:?}");
        assert_eq!(proxy.injected().len(), 1, "{point:?}");
        worker.shut_down_gracefully().await;
    }
}

#[tokio::test]
async fn policy_denies_a_queued_run_after_acceptance() {
    let app = TestApp::builder().provider(answering_provider()).start().await;
    let fixtures = app.fixtures();
    let rules = json!([
        { "id": "yes", "condition": "always", "outcome": "allow", "reason_code": "usual" },
        { "id": "no", "condition": "inputs.ticket == 'a refund'", "outcome": "deny", "reason_code": "no_refunds" },
    ]);
    let policy = fixtures.policy_with_rules("strict", rules).await;
    let workload = fixtures.active_workload_with_policy("main", policy).await;
    let id = submit_queued_run(&app, &workload).await;
    let ended_run = wait_until_ended(&app, &id).await;
    assert_eq!((&ended_run["status"], &ended_run["reason_code"]), (&json!("denied"), &json!("no_refunds")));
}

#[tokio::test]
async fn queued_run_uses_the_release_that_is_active_at_its_start() {
    let server = TestApp::builder().without_worker().provider(answering_provider()).start().await;
    let fixtures = server.fixtures();
    let workload = fixtures.active_workload("main").await;
    let kept_run = submit_queued_run(&server, &workload).await;
    let rules = json!([{ "id": "no", "condition": "always", "outcome": "deny", "reason_code": "not_any_more" }]);
    let versions = [
        fixtures.ticket_prompt("prompt-2").await,
        fixtures.model_policy("model-2").await,
        fixtures.policy_with_rules("policy-2", rules).await,
    ];
    let release = fixtures.approved_release(&workload.workload_id, &versions).await;
    fixtures.transition(&release, "active").await;
    let other_workload = fixtures.active_workload("other").await;
    let suspended = submit_queued_run(&server, &other_workload).await;
    let change = json!({ "status": "suspended" });
    server.patch(format!("/v1/workloads/{}", other_workload.workload_id), change).await.expect(200);
    let removed_workload = fixtures.active_workload("gone").await;
    let without = submit_queued_run(&server, &removed_workload).await;
    fixtures.transition(&removed_workload.release_id, "retired").await;
    let worker = TestApp::builder().sharing_storage_of(&server).provider(answering_provider()).start().await;
    let ended_run = wait_until_ended(&server, &kept_run).await;
    assert_eq!((&ended_run["status"], &ended_run["reason_code"]), (&json!("denied"), &json!("not_any_more")));
    let ended_run = wait_until_ended(&server, &suspended).await;
    assert_eq!(
        (&ended_run["status"], &ended_run["error"]["code"]),
        (&json!("cancelled"), &json!("workload_suspended"))
    );
    let ended_run = wait_until_ended(&server, &without).await;
    assert_eq!((&ended_run["status"], &ended_run["error"]["code"]), (&json!("failed"), &json!("no_active_release")));
    worker.shut_down_gracefully().await;
}

#[tokio::test]
async fn full_queue_refuses_further_runs_of_the_tenant() {
    let app = TestApp::builder()
        .setting("FAIRWAY_QUEUE_CAP", "2")
        .without_worker()
        .provider(answering_provider())
        .start()
        .await;
    let workload = app.active_workload("main").await;
    let first_run = submit_queued_run(&app, &workload).await;
    submit_queued_run(&app, &workload).await;
    for key in [None, Some("a-key")] {
        let request = async_run(&app, &workload);
        let response = match key {
            Some(key) => request.idempotency_key(key).await,
            None => request.await,
        };
        assert_eq!(response.expect_refusal(429, "queue_full")["limit"], 2);
        assert!(response.header("retry-after").is_some());
    }
    let fixtures = app.fixtures();
    let tenant = fixtures.tenant("other").await;
    let workspace = fixtures.in_tenant(&tenant, "").workspace("theirs", "theirs").await;
    let other_workload = fixtures.in_tenant(&tenant, &workspace).active_workload("theirs").await;
    async_run(&app, &other_workload).in_tenant(&tenant).await.expect(202);
    // A cancelled run frees its place in the queue.
    app.post(execution_path(&first_run, "/cancel"), json!({})).await.expect(200);
    async_run(&app, &workload).idempotency_key("a-key").await.expect(202);
}

#[tokio::test]
async fn idempotency_key_finds_the_queued_run() {
    let app = TestApp::builder().without_worker().provider(answering_provider()).start().await;
    let workload = app.active_workload("main").await;
    let first_response = async_run(&app, &workload).idempotency_key("k").await.expect(202);
    let replay = async_run(&app, &workload).idempotency_key("k").await;
    assert_eq!(replay.expect(202), first_response);
    assert_eq!(replay.header("idempotency-replayed"), Some("true"));
    // While the run is queued, a repeated request that waits for the result gets 409.
    run(&app, &workload).idempotency_key("k").await.expect_refusal(409, "request_in_progress");
    let worker = TestApp::builder().sharing_storage_of(&app).provider(answering_provider()).start().await;
    wait_until_ended(&app, &first_response["execution_id"]).await;
    assert_eq!(async_run(&app, &workload).idempotency_key("k").await.expect(202), first_response);
    assert_eq!(run(&app, &workload).idempotency_key("k").await.expect(200)["output"], "billing");
    worker.shut_down_gracefully().await;
}

#[tokio::test]
async fn queued_and_running_runs_are_cancelled_once() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let server = TestApp::builder().without_worker().provider(provider.clone()).start().await;
    let workload = server.active_workload("main").await;
    let queued_run = submit_queued_run(&server, &workload).await;
    let cancelled =
        server.post(execution_path(&queued_run, "/cancel"), json!({})).idempotency_key("stop").await.expect(200);
    assert_eq!((&cancelled["status"], &cancelled["error"]["code"]), (&json!("cancelled"), &json!("cancelled")));
    let replay = server.post(execution_path(&queued_run, "/cancel"), json!({})).idempotency_key("stop").await;
    assert_eq!(replay.expect(200)["status"], "cancelled");
    assert_eq!(replay.header("idempotency-replayed"), Some("true"));
    server
        .post(execution_path(&queued_run, "/cancel"), json!({}))
        .await
        .expect_refusal(409, "execution_not_cancellable");
    // A worker executes this run. The worker receives the cancellation and ends the run. The end also records the
    // running step.
    let worker = TestApp::builder().sharing_storage_of(&server).provider(provider.clone()).start().await;
    let active_run = submit_queued_run(&server, &workload).await;
    provider.wait_for_calls(1).await;
    let cancelled = server.post(execution_path(&active_run, "/cancel"), json!({})).await.expect(200);
    assert_eq!((&cancelled["status"], &cancelled["outcome"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(cancelled["steps"].as_array().map(Vec::len), Some(1), "the running step is recorded");
    let evidence = server.get(execution_path(&active_run, "/evidence-graph")).await.expect(200);
    assert_eq!(evidence["evidence_artifacts"][0]["artifact_kind"], "provider_call");
    worker.shut_down_gracefully().await;
}

#[tokio::test]
async fn submitters_and_permitted_callers_cancel_runs() {
    let app = TestApp::builder().without_worker().provider(answering_provider()).start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.active_workload("main").await;
    for (actor, role) in [("user:sender", "runtime_user"), ("user:viewer", "viewer"), ("user:operator", "operator")] {
        fixtures.bind_role(actor, role, "workspace", Some("00000000-0000-7000-8000-000000000003")).await;
    }
    fixtures.bind_role("user:nobody", "viewer", "workload", Some(&fixtures.workload("elsewhere").await)).await;
    let first_run = async_run(&app, &workload).as_actor("user:sender").await.expect(202)["execution_id"].clone();
    let second_run = async_run(&app, &workload).as_actor("user:sender").await.expect(202)["execution_id"].clone();
    let stop = |id: &Value, actor: &str| app.post(execution_path(id, "/cancel"), json!({})).as_actor(actor);
    stop(&first_run, "user:nobody").await.expect_refusal(404, "not_found");
    let refusal = stop(&first_run, "user:viewer").await.expect_refusal(403, "forbidden");
    assert_eq!(refusal["permission"], "execution.kill");
    stop(&first_run, "user:sender").await.expect(200);
    stop(&second_run, "user:operator").await.expect(200);
}

#[tokio::test]
async fn suspending_a_workload_cancels_its_runs_at_once() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let workload = app.active_workload("main").await;
    let id = submit_queued_run(&app, &workload).await;
    provider.wait_for_calls(1).await;
    let change = json!({ "status": "suspended" });
    app.patch(format!("/v1/workloads/{}", workload.workload_id), change).await.expect(200);
    // The cancellation is pushed to the worker, because polling would take ten seconds.
    let started_at = std::time::Instant::now();
    let ended_run = wait_until_ended(&app, &id).await;
    assert_eq!(
        (&ended_run["status"], &ended_run["error"]["code"]),
        (&json!("cancelled"), &json!("workload_suspended"))
    );
    assert!(started_at.elapsed() < std::time::Duration::from_secs(5), "{:?}", started_at.elapsed());
}

/// A provider that answers the first call and blocks all further calls.
#[derive(Default)]
struct FirstCallProvider(AtomicUsize);

#[async_trait::async_trait]
impl Provider for FirstCallProvider {
    async fn complete(&self, _: &ProviderCall, _: Option<&dyn DeltaListener>) -> Result<Completion, ProviderFailure> {
        if self.0.fetch_add(1, Ordering::SeqCst) > 0 {
            std::future::pending::<()>().await;
        }
        Ok(Completion { text: "first".to_owned(), tokens_in: 1, tokens_out: 1, ..Completion::default() })
    }

    async fn embed(&self, _: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    fn residency(&self, _: &str) -> Option<&str> {
        None
    }
}

const TWO_CALLS_FLOW: &str = "\
name: Two questions
description: Asks twice.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: one
steps:
  - id: one
    type: llm_call
    inputs: { prompt: '{{release.prompt_template}}', message: '{{trigger.ticket}}' }
  - id: two
    type: llm_call
    inputs: { prompt: '{{release.prompt_template}}', message: '{{steps.one.output}}' }
  - id: answer
    type: return
    output: 'It was {{steps.one.output}}, then {{steps.two.output}}.'
";

async fn workload_with_two_calls(app: &TestApp) -> ActiveWorkload {
    let fixtures = app.fixtures();
    let versions = vec![
        fixtures.ticket_prompt("prompt").await,
        fixtures.model_policy("model").await,
        fixtures.allow_all_policy("policy").await,
        fixtures.flow("flow", TWO_CALLS_FLOW).await,
    ];
    fixtures.active_workload_with_bindings("main", versions).await
}

/// Expires every lease, as if the worker had stopped sending heartbeats.
pub(crate) async fn expire_leases(app: &TestApp) {
    let owner = app.database().connect_as_owner().await.unwrap();
    owner.execute("UPDATE execution_lease SET lapses_at = fairway_now() - interval '1 second'", &[]).await.unwrap();
}

async fn query_count(app: &TestApp, sql: &str) -> i64 {
    app.database().connect_as_owner().await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

/// Waits until `count` responses of the provider are stored as progress.
async fn wait_for_stored_responses(app: &TestApp, count: i64) {
    let wait = async {
        while query_count(app, "SELECT count(*) FROM execution_progress WHERE answer IS NOT NULL").await < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), wait).await.unwrap();
}

/// Asserts that the second server resumed the run from the stored response, and called its own provider once.
async fn assert_resumed(server: &TestApp, second_provider: &StubProvider, id: &Value) {
    let ended_run = wait_until_ended(server, id).await;
    assert_eq!(ended_run["queued_result"]["result"], "It was first, then second.");
    assert_eq!(second_provider.call_count(), 1, "the first response was stored");
    assert_eq!(ended_run["steps"].as_array().map(Vec::len), Some(3));
    let events = server.get(execution_path(id, "/events")).await.text();
    assert_eq!(events.matches("event: step.started").count(), 3, "each event is recorded once: {events}");
    assert_eq!(events.matches("event: step.completed").count(), 3, "{events}");
}

#[tokio::test]
async fn resumed_queued_run_reuses_stored_provider_responses() {
    let server = TestApp::builder().without_worker().start().await;
    let workload = workload_with_two_calls(&server).await;
    let first_server =
        TestApp::builder().sharing_storage_of(&server).provider(Arc::new(FirstCallProvider::default())).start().await;
    let id = submit_queued_run(&server, &workload).await;
    wait_for_stored_responses(&server, 1).await;
    drop(first_server);
    expire_leases(&server).await;
    let second_provider = StubProvider::new(ProviderBehaviour::Answers("second".to_owned()));
    let other_server = TestApp::builder().sharing_storage_of(&server).provider(second_provider.clone()).start().await;
    assert_resumed(&other_server, &second_provider, &id).await;
}

#[tokio::test]
async fn resumed_inline_run_reuses_stored_provider_responses() {
    // This server has no worker, so it cannot resume its own runs.
    let server = TestApp::builder().without_worker().provider(Arc::new(FirstCallProvider::default())).start().await;
    let workload = workload_with_two_calls(&server).await;
    let id = run(&server, &workload).header("prefer", "wait=0").await.expect(202)["execution_id"].clone();
    wait_for_stored_responses(&server, 1).await;
    expire_leases(&server).await;
    let second_provider = StubProvider::new(ProviderBehaviour::Answers("second".to_owned()));
    let other_server = TestApp::builder().sharing_storage_of(&server).provider(second_provider.clone()).start().await;
    assert_resumed(&other_server, &second_provider, &id).await;
}

/// Promise R24 in `docs/security.md`: leases, deadlines and the expiry of share links use only the database's clock.
#[tokio::test]
async fn leases_and_links_ignore_server_clocks() {
    const DAY: i64 = 86_400;
    let (fast_clock, slow_clock) = (Arc::new(MovableClock::default()), Arc::new(MovableClock::default()));
    fast_clock.set_offset(DAY);
    slow_clock.set_offset(-DAY);
    let blocked_provider = StubProvider::new(ProviderBehaviour::Blocks);
    let server = TestApp::builder().clock(slow_clock).without_worker().provider(blocked_provider.clone()).start().await;
    let workload = server.active_workload("main").await;
    let config = json!({ "interface_config": { "presentation_mode": "form", "access_mode": "link_shared",
        "input_fields": [{ "name": "ticket", "type": "text" }] } });
    let linked = server.active_workload("linked").await;
    server.patch(format!("/v1/workloads/{}", linked.workload_id), config).await.expect(200);
    let links = format!("/v1/workloads/{}/share-links", linked.workload_id);
    let link = server.post(links, json!({ "ttl_hours": 1, "max_uses": 10 })).await.expect(201);
    let by_link = format!("{}?token={}", linked.execute_path(), link["token"].as_str().unwrap());
    let body = || json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });

    let id = run(&server, &workload).header("prefer", "wait=0").await.expect(202)["execution_id"].clone();
    blocked_provider.wait_for_calls(1).await;
    let other_provider = StubProvider::new(ProviderBehaviour::Answers("taken away".to_owned()));
    let other_server =
        TestApp::builder().sharing_storage_of(&server).clock(fast_clock).provider(other_provider.clone()).start().await;
    // Of the servers with different clocks, the one that is ahead has the worker that claims queued runs.
    assert_eq!(
        wait_until_ended(&other_server, &submit_queued_run(&other_server, &workload).await).await["queued_result"]["result"],
        "taken away"
    );
    assert_eq!(other_server.post(by_link.clone(), body()).await.expect(200)["output"], "taken away");
    assert_eq!(query_count(&other_server, "SELECT count(*) FROM execution_lease WHERE takeovers > 0").await, 0);
    blocked_provider.set_behaviour(ProviderBehaviour::Answers("kept".to_owned()));
    assert_eq!(wait_until_ended(&server, &id).await["queued_result"]["result"], "kept");

    server.database().set_clock_offset(3_601).await.unwrap();
    for app in [&server, &other_server] {
        app.post(by_link.clone(), body()).await.expect_refusal(401, "share_token_expired");
    }
}

#[tokio::test]
async fn late_worker_does_not_overwrite_a_reclaimed_run() {
    let blocking_provider = StubProvider::new(ProviderBehaviour::Blocks);
    let server = TestApp::builder().without_worker().provider(blocking_provider.clone()).start().await;
    let workload = server.active_workload("main").await;
    let id = run(&server, &workload).header("prefer", "wait=0").await.expect(202)["execution_id"].clone();
    blocking_provider.wait_for_calls(1).await;
    expire_leases(&server).await;
    let quick_provider = StubProvider::new(ProviderBehaviour::Answers("quick".to_owned()));
    let other_server = TestApp::builder().sharing_storage_of(&server).provider(quick_provider).start().await;
    assert_eq!(wait_until_ended(&other_server, &id).await["queued_result"]["result"], "quick");
    blocking_provider.set_behaviour(ProviderBehaviour::Answers("slow".to_owned()));
    server.shut_down_gracefully().await;
    assert_eq!(wait_until_ended(&other_server, &id).await["queued_result"]["result"], "quick");
    assert_eq!(query_count(&other_server, "SELECT count(*) FROM fact WHERE kind = 'execution.ended'").await, 1);
    assert_eq!(query_count(&other_server, "SELECT count(*) FROM execution_lease").await, 0);
}

#[tokio::test]
async fn reclaimed_run_of_a_suspended_workload_is_cancelled() {
    let server = TestApp::builder().without_worker().provider(Arc::new(FirstCallProvider::default())).start().await;
    let workload = workload_with_two_calls(&server).await;
    let id = run(&server, &workload).header("prefer", "wait=0").await.expect(202)["execution_id"].clone();
    wait_for_stored_responses(&server, 1).await;
    // The update bypasses the API, so the executing server receives no wakeup.
    let owner = server.database().connect_as_owner().await.unwrap();
    owner.execute("UPDATE workload SET status = 'suspended', revision = revision + 1", &[]).await.unwrap();
    expire_leases(&server).await;
    let second_provider = answering_provider();
    let other_server = TestApp::builder().sharing_storage_of(&server).provider(second_provider.clone()).start().await;
    let ended_run = wait_until_ended(&other_server, &id).await;
    assert_eq!(
        (&ended_run["status"], &ended_run["error"]["code"]),
        (&json!("cancelled"), &json!("workload_suspended"))
    );
    assert_eq!(second_provider.call_count(), 0);
}

/// The server that dequeued the run in order to cancel it died after it had recorded the cancellation.
#[tokio::test]
async fn interrupted_cancellation_is_completed_by_another_server() {
    let server = TestApp::builder().without_worker().start().await;
    let workload = server.active_workload("main").await;
    let id = submit_queued_run(&server, &workload).await;
    let owner = server.database().connect_as_owner().await.unwrap();
    owner
        .batch_execute(
            "WITH gone AS (DELETE FROM execution_queue RETURNING tenant_id, execution_id)
             INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at, cancelled_by)
             SELECT tenant_id, execution_id, gen_random_uuid(), '30 seconds', fairway_now() - interval '1 second',
                fairway_now() + interval '1 hour', 'user:ada' FROM gone",
        )
        .await
        .unwrap();
    let provider = answering_provider();
    let other_server = TestApp::builder().sharing_storage_of(&server).provider(provider.clone()).start().await;
    let ended_run = wait_until_ended(&other_server, &id).await;
    assert_eq!((&ended_run["status"], &ended_run["error"]["code"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(provider.call_count(), 0);
    let cancelled_by_sql =
        "SELECT convert_from(body, 'UTF8')::json ->> 'actor' = 'user:ada' FROM fact WHERE kind LIKE 'execution.%'";
    assert!(owner.query_one(cancelled_by_sql, &[]).await.unwrap().get::<_, bool>(0));
}

#[tokio::test]
async fn run_with_too_many_reclaims_fails() {
    let holds = StubProvider::new(ProviderBehaviour::Blocks);
    let server = TestApp::builder().provider(holds.clone()).start().await;
    let workload = server.active_workload("main").await;
    let id = submit_queued_run(&server, &workload).await;
    // The start of the run extends the lease, so the test waits for the start before it changes the lease.
    holds.wait_for_calls(1).await;
    let owner = server.database().connect_as_owner().await.unwrap();
    let exhaust_reclaims = "UPDATE execution_lease SET takeovers = 5, lapses_at = fairway_now() - interval '1 second'";
    let wait = async { while owner.execute(exhaust_reclaims, &[]).await.unwrap() == 0 {} };
    tokio::time::timeout(std::time::Duration::from_secs(20), wait).await.unwrap();
    let ended_run = wait_until_ended(&server, &id).await;
    assert_eq!((&ended_run["status"], &ended_run["error"]["code"]), (&json!("failed"), &json!("interrupted")));
}
