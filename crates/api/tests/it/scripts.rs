//! Code mode: scripts are admitted like runs, and dispatched to the script gateway at most once.

mod request_fields;
mod unknown_outcome;

use crate::{dispatch::execution_path, execution::wait_until_ended, support::workspace_fixture::WORKSPACE};
use fairway_domain::execution::script::{Language, MAX_CONCURRENT_PER_TENANT_AND_PROCESS, ScriptFailure, ScriptResult};
use fairway_testkit::{ScriptGatewayBehaviour, StubScriptGateway, TestApp, app::Request};
use futures_util::{StreamExt as _, future::join_all, stream::FuturesUnordered};
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

const HELLO_SCRIPT: &str = "print('hello')\nresult = 1 + 1";

fn script_body(slug: &str) -> Value {
    json!({
        "workspace_id": WORKSPACE, "workload_slug": slug, "environment": "dev", "language": "starlark", "code": HELLO_SCRIPT,
    })
}

fn run_script(app: &TestApp) -> Request {
    app.post("/v1/runtime/code", script_body("main"))
}

async fn start_app(gateway: &Arc<StubScriptGateway>) -> TestApp {
    let app = TestApp::builder().gateway(gateway.clone()).start().await;
    app.active_workload("main").await;
    app
}

fn successful_behaviour(result: Value, stdout: &str) -> ScriptGatewayBehaviour {
    ScriptGatewayBehaviour::Answers(Ok(ScriptResult { result: Ok(result), stdout: stdout.to_owned() }))
}

async fn query_count(app: &TestApp, sql: &str) -> i64 {
    app.database().connect_as_owner().await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

async fn execution_facts(app: &TestApp) -> Vec<Value> {
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "SELECT convert_from(body, 'UTF8') FROM fact WHERE kind LIKE 'execution.%' ORDER BY fact_id";
    let rows = owner.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect()
}

#[tokio::test]
async fn script_is_recorded_as_a_run() {
    let gateway = StubScriptGateway::new(successful_behaviour(json!({ "sum": 2 }), "hello\n"));
    let app = start_app(&gateway).await;
    let response = run_script(&app).await.expect(200);
    assert_eq!(
        (&response["status"], &response["result"], &response["stdout"], &response["error"]),
        (&json!("completed"), &json!({ "sum": 2 }), &json!("hello\n"), &Value::Null)
    );
    assert_eq!((gateway.script_count(), gateway.received_scripts()[0].language), (1, Language::Starlark));
    assert_eq!(gateway.received_scripts()[0].code, HELLO_SCRIPT);
    let id = &response["execution_id"];
    let execution = app.get(execution_path(id, "")).await.expect(200);
    assert_eq!((&execution["status"], &execution["lane"]), (&json!("completed"), &json!("standard")));
    assert_eq!(execution["queued_result"]["result"], json!({ "sum": 2 }));
    assert_eq!(
        (&execution["steps"][0]["step_type"], execution["steps"].as_array().map(Vec::len)),
        (&json!("code"), Some(1))
    );
    let evidence = app.get(execution_path(id, "/evidence-graph")).await;
    let document = &evidence.expect(200)["evidence_artifacts"][0];
    assert_eq!(document["artifact_kind"], "code_run");
    assert!(!evidence.text().contains("hello"), "evidence must not hold the output of scripts: {evidence}");
    let recorded = execution_facts(&app).await;
    let kinds: Vec<&str> = recorded.iter().map(|fact| fact["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["execution.code_accepted", "execution.ended"]);
    assert_eq!(recorded[0]["detail"]["language"], "starlark");
    assert!(!json!(recorded).to_string().contains("hello"), "no fact holds a script");
}

#[tokio::test]
async fn failed_script_returns_its_code_and_output() {
    let gateway = StubScriptGateway::succeeding();
    let app = start_app(&gateway).await;
    for failure in ScriptFailure::ALL {
        gateway.set_behaviour(ScriptGatewayBehaviour::Answers(Ok(ScriptResult {
            result: Err(failure),
            stdout: "so far\n".to_owned(),
        })));
        let response = run_script(&app).await.expect(200);
        assert_eq!((&response["status"], &response["result"]), (&json!("failed"), &Value::Null));
        assert_eq!((&response["error"]["code"], &response["stdout"]), (&json!(failure.code()), &json!("so far\n")));
    }
}

#[tokio::test]
async fn scripts_pass_the_same_checks_as_runs() {
    let gateway = StubScriptGateway::succeeding();
    let app = start_app(&gateway).await;
    let fixtures = app.fixtures();
    let run_script_of = |slug: &str| app.post("/v1/runtime/code", script_body(slug));
    run_script_of("nobody").await.expect_refusal(404, "not_found");
    let other_workspace = fixtures.workspace("elsewhere", "elsewhere").await;
    run_script(&app)
        .json({
            let mut body = script_body("main");
            body["workspace_id"] = json!(other_workspace);
            body
        })
        .await
        .expect_refusal(404, "not_found");
    fixtures.workload("bare").await;
    run_script_of("bare").await.expect_refusal(409, "no_active_release");
    let rules = json!([{ "id": "no", "condition": "inputs.language == 'starlark'", "outcome": "deny",
        "reason_code": "no_starlark" }]);
    fixtures.active_workload_with_policy("strict", fixtures.policy_with_rules("strict-policy", rules).await).await;
    let denial = run_script_of("strict").await.expect_refusal(403, "policy_denied");
    assert_eq!(denial["reason_code"], "no_starlark");
    assert_eq!(wait_until_ended(&app, &denial["execution_id"]).await["status"], "denied");
    // Public access to a workload does not include scripts.
    fixtures.bind_role("user:viewer", "viewer", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:nobody", "viewer", "workspace", Some(&other_workspace)).await;
    let public = fixtures.active_workload("public").await;
    let exposed = json!({ "interface_config": { "presentation_mode": "form", "access_mode": "public" } });
    app.patch(format!("/v1/workloads/{}", public.workload_id), exposed).await.expect(200);
    let refusal = run_script_of("public").as_actor("user:viewer").await.expect_refusal(403, "forbidden");
    assert_eq!(refusal["permission"], "execution.run");
    run_script_of("public").as_actor("user:nobody").await.expect_refusal(404, "not_found");
    run_script_of("public").as_actor("anonymous").await.expect_refusal(404, "not_found");
    let suspend = app.patch(format!("/v1/workloads/{}", public.workload_id), json!({ "status": "suspended" }));
    suspend.await.expect(200);
    run_script_of("public").await.expect_refusal(409, "workload_suspended");
    assert_eq!(gateway.script_count(), 0);
}

#[tokio::test]
async fn limits_concurrent_scripts_per_tenant() {
    let gateway = StubScriptGateway::new(ScriptGatewayBehaviour::Blocks);
    let app = start_app(&gateway).await;
    let blocked: Vec<_> =
        (0..MAX_CONCURRENT_PER_TENANT_AND_PROCESS).map(|_| tokio::spawn(run_script(&app).into_future())).collect();
    gateway.wait_for_scripts(MAX_CONCURRENT_PER_TENANT_AND_PROCESS).await;
    let response = run_script(&app).idempotency_key("k").await;
    response.expect_refusal(429, "too_many_scripts");
    assert_eq!(response.header("retry-after"), Some("1"));
    let fixtures = app.fixtures();
    let tenant = fixtures.tenant("acme").await;
    let workspace = fixtures.in_tenant(&tenant, "").workspace("there", "there").await;
    fixtures.in_tenant(&tenant, &workspace).active_workload("main").await;
    let mut body = script_body("main");
    body["workspace_id"] = json!(workspace);
    let other_request = tokio::spawn(app.post("/v1/runtime/code", body).in_tenant(&tenant).into_future());
    gateway.wait_for_scripts(MAX_CONCURRENT_PER_TENANT_AND_PROCESS + 1).await;
    gateway.set_behaviour(successful_behaviour(json!(1), ""));
    for response in join_all(blocked).await.into_iter().chain([other_request.await]) {
        response.unwrap().expect(200);
    }
    run_script(&app).idempotency_key("k").await.expect(200);
    assert_eq!(gateway.script_count(), MAX_CONCURRENT_PER_TENANT_AND_PROCESS + 2);
}

/// Concurrent requests with one key are one script. It occupies one permit, and the duplicates get 409.
#[tokio::test]
async fn concurrent_duplicates_of_a_key_take_one_permit() {
    let gateway = StubScriptGateway::new(ScriptGatewayBehaviour::Blocks);
    let app = start_app(&gateway).await;
    let mut duplicates: FuturesUnordered<_> = (0..3 * MAX_CONCURRENT_PER_TENANT_AND_PROCESS)
        .map(|_| tokio::spawn(run_script(&app).idempotency_key("twin").into_future()))
        .collect();
    for _ in 1..duplicates.len() {
        duplicates.next().await.unwrap().unwrap().expect_refusal(409, "request_in_progress");
    }
    assert_eq!(gateway.script_count(), 1);
    let other_requests: Vec<_> =
        (1..MAX_CONCURRENT_PER_TENANT_AND_PROCESS).map(|_| tokio::spawn(run_script(&app).into_future())).collect();
    gateway.wait_for_scripts(MAX_CONCURRENT_PER_TENANT_AND_PROCESS).await;
    run_script(&app).await.expect_refusal(429, "too_many_scripts");
    gateway.set_behaviour(successful_behaviour(json!(1), ""));
    let first_response = duplicates.next().await.unwrap().unwrap().expect(200);
    for response in join_all(other_requests).await {
        response.unwrap().expect(200);
    }
    let replay = run_script(&app).idempotency_key("twin").await;
    assert_eq!((replay.expect(200), replay.header("idempotency-replayed")), (first_response, Some("true")));
    assert_eq!(gateway.script_count(), MAX_CONCURRENT_PER_TENANT_AND_PROCESS);
}

#[tokio::test]
async fn scripts_can_be_cancelled_and_fulfil_obligations() {
    let gateway = StubScriptGateway::new(ScriptGatewayBehaviour::Blocks);
    let app = start_app(&gateway).await;
    let request = tokio::spawn(run_script(&app).into_future());
    gateway.wait_for_scripts(1).await;
    let running = app.get("/v1/executions?status=running").await.expect(200);
    let cancelled = app.post(execution_path(&running[0]["execution_id"], "/cancel"), json!({})).await.expect(200);
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(request.await.unwrap().expect(200)["status"], "cancelled");

    gateway.set_behaviour(successful_behaviour(json!("ada@example.com"), "grace@example.com\n"));
    let fixtures = app.fixtures();
    let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations",
        "reason_code": "watched", "obligations": ["redact_output", "record_transcript"] }]);
    fixtures.active_workload_with_policy("masked", fixtures.policy_with_rules("masked-policy", rules).await).await;
    let masked = app.post("/v1/runtime/code", script_body("masked")).await.expect(200);
    assert_eq!((&masked["result"], &masked["stdout"]), (&json!("[email]"), &json!("[email]\n")));
    let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations",
        "reason_code": "watched", "obligations": ["human_review"] }]);
    fixtures
        .active_workload_with_policy("looked-at", fixtures.policy_with_rules("looked-at-policy", rules).await)
        .await;
    let waiting_run = app.post("/v1/runtime/code", script_body("looked-at")).await.expect(202);
    assert_eq!(waiting_run["review"], "pending");
    let id = &waiting_run["execution_id"];
    assert_eq!(
        app.get(execution_path(id, "")).await.expect(200)["queued_result"],
        Value::Null,
        "the run waits for review"
    );
    let review = app.get(execution_path(id, "/review")).as_actor("user:reviewer").await.expect(200);
    assert_eq!(review["metadata"]["stdout"], "grace@example.com\n");
    let verdict = app.post(execution_path(id, "/review"), json!({ "outcome": "approved" })).as_actor("user:reviewer");
    verdict.await.expect(200);
    let queued_result = &app.get(execution_path(id, "")).await.expect(200)["queued_result"];
    assert_eq!(
        (&queued_result["result"], &queued_result["stdout"]),
        (&json!("ada@example.com"), &json!("grace@example.com\n"))
    );
}

/// Promise R4 in `docs/security.md`: a client that disconnects at any moment does not end its run.
#[tokio::test]
async fn disconnected_clients_leave_no_unfinished_run() {
    let gateway = StubScriptGateway::succeeding();
    let app = start_app(&gateway).await;
    let body = script_body("main").to_string();
    let head = format!(
        "POST /v1/runtime/code HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        app.address(),
        body.len()
    );
    for millis in (0..10).cycle().take(100) {
        let mut stream = TcpStream::connect(app.address()).await.unwrap();
        // With zero linger, closing the socket sends a reset. The server detects the reset while it works.
        stream.set_zero_linger().unwrap();
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
    let owner = app.database().connect_as_owner().await.unwrap();
    let counts = "SELECT count(*) FILTER (WHERE finished_at IS NULL), count(*) FILTER (WHERE status = 'completed'),
        count(*) FROM execution";
    let started_at = Instant::now();
    let (completed, all_runs) = loop {
        let row = owner.query_one(counts, &[]).await.unwrap();
        let (open_runs, completed, all_runs): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        if open_runs == 0 && all_runs > 0 {
            break (completed, all_runs);
        }
        assert!(started_at.elapsed() < Duration::from_secs(10), "{open_runs} of {all_runs} runs have not ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((completed, usize::try_from(all_runs).unwrap()), (all_runs, gateway.script_count()));
}

/// The output of a failed script must not be shown without human review.
#[tokio::test]
async fn withholds_the_output_of_a_failed_script_under_review() {
    let failed = Err(ScriptFailure::Error);
    let gateway = StubScriptGateway::new(ScriptGatewayBehaviour::Answers(Ok(ScriptResult {
        result: failed,
        stdout: "canary".to_owned(),
    })));
    let app = TestApp::builder().gateway(gateway.clone()).start().await;
    let rules = json!([{
        "id": "look", "condition": "always", "outcome": "allow_with_obligations", "reason_code": "watched",
        "obligations": ["human_review"],
    }]);
    let policy = app.fixtures().policy_with_rules("looked-at", rules).await;
    app.fixtures().active_workload_with_policy("main", policy).await;
    let response = run_script(&app).await;
    let id = response.expect(200)["execution_id"].clone();
    let execution_response = app.get(execution_path(&id, "")).await;
    assert_eq!(execution_response.expect(200)["status"], "failed");
    assert!(
        !response.text().contains("canary") && !execution_response.text().contains("canary"),
        "{response} {execution_response}"
    );
}

/// A replay returns the stored result. It occupies neither a permit nor a prepared sandbox.
#[tokio::test]
async fn replay_takes_no_permit() {
    let gateway = StubScriptGateway::new(successful_behaviour(json!(2), ""));
    let app = start_app(&gateway).await;
    run_script(&app).idempotency_key("k").await.expect(200);
    let (prepared, _) = gateway.prepared_and_waiting_sandboxes();
    let replay = run_script(&app).idempotency_key("k").await;
    assert_eq!((replay.status, replay.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!(gateway.prepared_and_waiting_sandboxes(), (prepared, 0), "a replay must not prepare a sandbox");
}

#[tokio::test]
async fn idempotency_key_identifies_one_script() {
    let gateway = StubScriptGateway::new(successful_behaviour(json!(2), "hello\n"));
    let app = start_app(&gateway).await;
    let first_response = run_script(&app).idempotency_key("k").await;
    let replay = run_script(&app).idempotency_key("k").await;
    assert_eq!((first_response.expect(200), replay.header("idempotency-replayed")), (replay.expect(200), Some("true")));
    let mut other_body = script_body("main");
    other_body["code"] = json!("result = 3");
    app.post("/v1/runtime/code", other_body).idempotency_key("k").await.expect_refusal(409, "idempotency_key_conflict");
    assert_eq!(gateway.script_count(), 1);
    gateway.set_behaviour(ScriptGatewayBehaviour::Blocks);
    let slow_request = tokio::spawn(run_script(&app).idempotency_key("slow").into_future());
    gateway.wait_for_scripts(2).await;
    run_script(&app).idempotency_key("slow").await.expect_refusal(409, "request_in_progress");
    gateway.set_behaviour(successful_behaviour(json!(2), ""));
    slow_request.await.unwrap().expect(200);
    assert_eq!(gateway.script_count(), 2);
}
