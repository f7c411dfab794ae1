//! The server records a script before dispatch, and dispatches it at most once. If the response is lost, the run's
//! outcome is unknown.

use super::{HELLO_SCRIPT, execution_facts, query_count, run_script, start_app, successful_behaviour};
use crate::{
    dispatch::{execution_path, expire_leases},
    execution::wait_until_ended,
    support::workspace_fixture::WORKSPACE,
};
use fairway_domain::execution::script::GatewayFailure;
use fairway_testkit::{
    FaultPoint, FaultProxy, ProxyFault, ScriptGatewayBehaviour, ScriptedEndpoint, ScriptedResponse, StubScriptGateway,
    TestApp, app::Response, unused_address,
};
use serde_json::{Value, json};

async fn resolve_unknown(app: &TestApp, id: &Value, outcome: &str) -> Response {
    app.post(execution_path(id, "/settle"), json!({ "outcome": outcome, "note": "Checked at the gateway." })).await
}

/// Promise R4 in `docs/security.md`: whatever the gateway does after it received a script, the server dispatches the
/// script once. The caller gets the known outcome, and the server records the run.
#[tokio::test]
async fn lost_gateway_responses_leave_unknown_runs_and_no_retry() {
    let endpoint = ScriptedEndpoint::start().await;
    let app = TestApp::builder().setting("FAIRWAY_RUNTIME_GATEWAY_URL", endpoint.url("/s3cret-path")).start().await;
    app.active_workload("main").await;
    endpoint.respond_with(ScriptedResponse::json(&json!({ "result": [1], "stdout": "hi\n" })));
    let response = run_script(&app).await.expect(200);
    assert_eq!((&response["result"], &response["stdout"]), (&json!([1]), &json!("hi\n")));
    let request = &endpoint.requests()[0];
    assert_eq!(request.header("idempotency-key"), response["execution_id"].as_str());
    assert_eq!((&request.json()["code"], &request.json()["language"]), (&json!(HELLO_SCRIPT), &json!("starlark")));
    assert_eq!(request.json()["execution_id"], response["execution_id"]);
    endpoint.respond_with(ScriptedResponse::json(&json!({ "failure": "script_error", "stdout": "no\n" })));
    assert_eq!(run_script(&app).await.expect(200)["error"]["code"], "script_error");

    let complete_response = ScriptedResponse::json(&json!({ "result": 1 }));
    for (fault, status, code) in [
        (ScriptedResponse::reset(), 502, "gateway_error"),
        (complete_response.clone().truncated(), 502, "gateway_error"),
        (complete_response.clone().reset_before_end(), 502, "gateway_error"),
        (ScriptedResponse::status(200, "{garbage"), 502, "gateway_error"),
        (ScriptedResponse::status(200, "{\"failure\":\"made_up\"}"), 502, "gateway_error"),
        (ScriptedResponse::status(500, "{}"), 502, "gateway_error"),
        (ScriptedResponse::status(503, "{}"), 502, "gateway_error"),
        (ScriptedResponse::redirect("http://169.254.169.254/"), 502, "gateway_error"),
        (ScriptedResponse::status(200, &"x".repeat(1 << 20)), 502, "gateway_error"),
        (ScriptedResponse::hang(), 504, "gateway_timeout"),
        (complete_response.clone().hanging_at_end(), 504, "gateway_timeout"),
    ] {
        let requests_before = endpoint.request_count();
        endpoint.respond_with(fault.clone());
        let key = format!("key-{requests_before}");
        let response = run_script(&app).idempotency_key(&key).await;
        let refusal = response.expect_refusal(status, code);
        assert!(!response.text().contains("s3cret") && !response.text().contains("hello"), "{response}");
        let execution = app.get(execution_path(&refusal["execution_id"], "")).await.expect(200);
        assert_eq!((&execution["status"], &execution["outcome"]), (&json!("unknown"), &json!("unknown")), "{fault:?}");
        let replay = run_script(&app).idempotency_key(&key).await;
        assert_eq!(replay.expect_refusal(status, code)["execution_id"], refusal["execution_id"]);
        assert_eq!(replay.header("idempotency-replayed"), Some("true"));
        assert_eq!(endpoint.request_count(), requests_before + 1, "{fault:?} is dispatched once");
    }
    let unknown = app.get("/v1/executions?status=unknown").await.expect(200);
    assert_eq!(unknown.as_array().map(Vec::len), Some(11));
    let facts = execution_facts(&app).await;
    let last_fact = facts.last().unwrap();
    assert_eq!(
        (&last_fact["detail"]["outcome"], &last_fact["categories"]),
        (&json!("unknown"), &json!(["executions"]))
    );
}

#[tokio::test]
async fn unreachable_gateway_fails_the_run() {
    let port = unused_address().unwrap().port();
    let app =
        TestApp::builder().setting("FAIRWAY_RUNTIME_GATEWAY_URL", format!("http://127.0.0.1:{port}/")).start().await;
    app.active_workload("main").await;
    let refusal = run_script(&app).await.expect_refusal(502, "gateway_unreachable");
    let execution = app.get(execution_path(&refusal["execution_id"], "")).await.expect(200);
    assert_eq!((&execution["status"], &execution["outcome"]), (&json!("failed"), &json!("failure")));
    resolve_unknown(&app, &refusal["execution_id"], "success").await.expect_refusal(409, "execution_not_unknown");
}

#[tokio::test]
async fn authorized_caller_resolves_an_unknown_run_once() {
    let gateway = StubScriptGateway::new(ScriptGatewayBehaviour::Answers(Err(GatewayFailure::Lost)));
    let app = start_app(&gateway).await;
    let fixtures = app.fixtures();
    fixtures.bind_role("user:author", "author", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:operator", "operator", "workspace", Some(WORKSPACE)).await;
    let other_workspace = fixtures.workspace("elsewhere", "elsewhere").await;
    fixtures.bind_role("user:elsewhere", "operator", "workspace", Some(&other_workspace)).await;
    for (outcome, status, error) in
        [("success", "completed", Value::Null), ("failure", "failed", json!("settled_as_failure"))]
    {
        let lost_response = run_script(&app).as_actor("user:author").idempotency_key(outcome).await;
        let id = lost_response.expect_refusal(502, "gateway_error")["execution_id"].clone();
        let resolve = |actor: &str, outcome: &str| {
            let body = json!({ "outcome": outcome, "note": "Checked at the gateway." });
            app.post(execution_path(&id, "/settle"), body).as_actor(actor)
        };
        let refusal = resolve("user:author", outcome).await.expect_refusal(403, "forbidden");
        assert_eq!(refusal["permission"], "execution.kill");
        resolve("user:elsewhere", outcome).await.expect_refusal(404, "not_found");
        resolve("user:operator", "unknown").await.expect_refusal(422, "validation_error");
        let resolution = resolve("user:operator", outcome).idempotency_key("k1").await.expect(200);
        assert_eq!((&resolution["status"], &resolution["outcome"]), (&json!(status), &json!(outcome)));
        assert_eq!(resolution["error"]["code"], error);
        let replay_response = resolve("user:operator", outcome).idempotency_key("k1").await;
        assert_eq!(
            (replay_response.expect(200), replay_response.header("idempotency-replayed")),
            (resolution, Some("true"))
        );
        resolve("user:operator", "success").await.expect_refusal(409, "execution_not_unknown");
        let listed = app.get("/v1/executions?status=unknown").await.expect(200);
        assert_eq!(listed, json!([]), "a resolved run is not unknown");
        let listed = app.get(format!("/v1/executions?status={status}")).await.expect(200);
        assert_eq!(listed[0]["execution_id"], id);
        let replay = run_script(&app).as_actor("user:author").idempotency_key(outcome).await;
        assert_eq!(replay.expect(200)["status"], status, "a replay returns the resolved outcome");
        let graph = app.get(execution_path(&id, "/evidence-graph")).await.expect(200);
        let documents = graph["evidence_artifacts"].as_array().unwrap();
        assert!(documents.iter().any(|document| document["artifact_kind"] == "settlement"), "{graph}");
        app.database()
            .connect_as_owner()
            .await
            .unwrap()
            .execute("DELETE FROM idempotency_key WHERE key = 'k1'", &[])
            .await
            .unwrap();
    }
    assert_eq!(gateway.script_count(), 2);
    let resolutions: Vec<Value> =
        execution_facts(&app).await.into_iter().filter(|fact| fact["kind"] == "execution.settled").collect();
    assert_eq!((resolutions.len(), &resolutions[0]["actor"]), (2, &json!("user:operator")));
    assert!(!json!(resolutions).to_string().contains("Checked"), "facts must not hold notes");
}

/// Promise R4 in `docs/security.md`: the server does not dispatch a script without a committed row.
#[tokio::test]
async fn script_without_a_committed_row_is_not_dispatched() {
    let gateway = StubScriptGateway::succeeding();
    let direct = start_app(&gateway).await;
    let proxy = FaultProxy::start_for_database(direct.database(), 1);
    let proxied =
        TestApp::builder().gateway(gateway.clone()).sharing_storage_of(&direct).through_proxy(&proxy).start().await;
    proxied.get("/v1/executions").await.expect(200);
    proxy.set_fault(ProxyFault::Matching("INTO execution ("));
    run_script(&proxied).await.expect_refusal(503, "unavailable");
    assert_eq!(
        (gateway.script_count(), gateway.prepared_and_waiting_sandboxes()),
        (0, (1, 0)),
        "the prepared sandbox is not used"
    );
    assert_eq!(query_count(&direct, "SELECT count(*) FROM execution").await, 0);
    // The row is committed, but the database's response is lost. The server finds the row and dispatches the script.
    proxy.set_fault(ProxyFault::Once("INTO execution (", FaultPoint::After));
    run_script(&proxied).await.expect(200);
    assert_eq!((gateway.script_count(), query_count(&direct, "SELECT count(*) FROM execution").await), (1, 1));
}

/// Promise R4 in `docs/security.md`: the acceptance of a script is recorded as a fact. If the fact cannot be written,
/// the script is refused.
#[tokio::test]
async fn script_without_an_accepted_fact_is_not_dispatched() {
    let gateway = StubScriptGateway::succeeding();
    let app = start_app(&gateway).await;
    let owner = app.database().connect_as_owner().await.unwrap();
    for (number, state) in (1..).zip(["disk_full", "raise_exception", "insufficient_privilege", "check_violation"]) {
        let fails = format!(
            "CREATE OR REPLACE FUNCTION no_log() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'not today' USING ERRCODE = '{state}'; END $$;
            CREATE OR REPLACE TRIGGER no_log BEFORE INSERT ON fact FOR EACH ROW
                WHEN (NEW.kind = 'execution.code_accepted') EXECUTE FUNCTION no_log()"
        );
        owner.batch_execute(&fails).await.unwrap();
        let response = run_script(&app).await;
        response.expect_refusal(503, "unavailable");
        assert!(!response.text().contains("not today"), "{response}");
        assert_eq!(gateway.prepared_and_waiting_sandboxes(), (number, 0), "the prepared sandbox is released: {state}");
        assert_eq!(
            (gateway.script_count(), query_count(&app, "SELECT count(*) FROM execution").await),
            (0, 0),
            "{state}"
        );
    }
    owner.batch_execute("DROP TRIGGER no_log ON fact").await.unwrap();
    run_script(&app).await.expect(200);
    assert_eq!(gateway.script_count(), 1);
}

/// Promise R4 in `docs/security.md`: if a process dies between the commit and the gateway's response, the run's outcome
/// is unknown. No dispatch mode sends the script again.
#[tokio::test]
async fn script_of_a_dead_process_is_unknown_and_not_resumed() {
    for dispatch in ["hybrid", "inline", "queued"] {
        let (blocked_gateway, idle_gateway) =
            (StubScriptGateway::new(ScriptGatewayBehaviour::Blocks), StubScriptGateway::succeeding());
        let surviving_server =
            TestApp::builder().gateway(idle_gateway.clone()).setting("FAIRWAY_DISPATCH", dispatch).start().await;
        surviving_server.active_workload("main").await;
        let builder = TestApp::builder().gateway(blocked_gateway.clone()).setting("FAIRWAY_DISPATCH", dispatch);
        let stopped_server = builder.sharing_storage_of(&surviving_server).start().await;
        let request = tokio::spawn(run_script(&stopped_server).into_future());
        blocked_gateway.wait_for_scripts(1).await;
        let running = surviving_server.get("/v1/executions?status=running").await.expect(200);
        let id = running[0]["execution_id"].clone();
        expire_leases(&surviving_server).await;
        let ended_run = wait_until_ended(&surviving_server, &id).await;
        assert_eq!((&ended_run["status"], &ended_run["outcome"]), (&json!("unknown"), &json!("unknown")), "{dispatch}");
        assert_eq!(ended_run["error"]["code"], "gateway_error");
        // The first server receives its response late. The response does not overwrite the outcome.
        blocked_gateway.set_behaviour(successful_behaviour(json!(1), "late"));
        drop(request.await.unwrap());
        assert_eq!(wait_until_ended(&surviving_server, &id).await, ended_run, "{dispatch}");
        assert_eq!(
            (blocked_gateway.script_count(), idle_gateway.script_count()),
            (1, 0),
            "{dispatch}: the script is dispatched once"
        );
        resolve_unknown(&surviving_server, &id, "success").await.expect(200);
    }
}

/// The deadline of a run also applies while the gateway works. The script may continue, so the run's outcome is
/// unknown.
#[tokio::test]
async fn deadline_leaves_a_dispatched_script_unknown() {
    let gateway = StubScriptGateway::new(ScriptGatewayBehaviour::Blocks);
    let app = TestApp::builder().gateway(gateway.clone()).setting("FAIRWAY_EXECUTION_DEADLINE", "1s").start().await;
    app.active_workload("main").await;
    let detail = run_script(&app).await.expect_refusal(504, "gateway_timeout");
    let execution = app.get(execution_path(&detail["execution_id"], "")).await.expect(200);
    assert_eq!((&execution["outcome"], gateway.script_count()), (&json!("unknown"), 1));
    resolve_unknown(&app, &detail["execution_id"], "failure").await.expect(200);
}
