//! Waiting for runs: the wait budget, deadlines, disconnected clients, and graceful shutdown.

use super::{fact_count, run, wait_until_ended};
use fairway_testkit::{ProviderBehaviour, StubProvider, TestApp};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

#[tokio::test]
async fn inline_dispatch_refuses_asynchronous_runs() {
    let app = TestApp::builder().setting("FAIRWAY_DISPATCH", "inline").start().await;
    let workload = app.active_workload("main").await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let path = workload.execute_path();
    app.post(format!("{path}?mode=async"), body.clone()).await.expect_refusal(409, "async_dispatch_unavailable");
    for preference in ["respond-async", "respond-async, wait=10", "handling=lenient, Respond-Async"] {
        let response = app.post(&path, body.clone()).header("Prefer", preference).await;
        response.expect_refusal(409, "async_dispatch_unavailable");
    }
    app.post(format!("{path}?mode=later"), body.clone()).await.expect_refusal(422, "validation_error");
    app.post(&path, body).header("Prefer", "return=minimal").await.expect(200);
    assert_eq!(fact_count(&app, "execution.%").await, 1, "a refused request creates no run");
}

#[tokio::test]
async fn run_continues_after_the_wait_budget() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let builder = TestApp::builder().provider(provider.clone());
    let app = builder.setting("FAIRWAY_SYNC_WAIT", "300ms").start().await;
    let workload = app.active_workload("main").await;
    let accepted = run(&app, &workload).idempotency_key("k").await;
    let body = accepted.expect(202);
    let id = body["execution_id"].clone();
    assert_eq!(body, json!({ "execution_id": id, "state": "queued" }));
    let location = accepted.header("location").unwrap();
    assert_eq!(location, format!("/v1/executions/{}", id.as_str().unwrap()));
    let execution = app.get(location).await.expect(200);
    assert_eq!((&execution["status"], &execution["outcome"]), (&json!("running"), &Value::Null));
    assert_eq!((&execution["queued_result"], &execution["completed_at"]), (&Value::Null, &Value::Null));
    run(&app, &workload).idempotency_key("k").await.expect_refusal(409, "request_in_progress");
    // The evidence of a run can be read while the run is active.
    app.get(format!("{location}/evidence-graph")).await.expect(200);
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    let ended_run = wait_until_ended(&app, &id).await;
    assert_eq!((&ended_run["status"], &ended_run["outcome"]), (&json!("completed"), &json!("success")));
    assert_eq!(ended_run["queued_result"], json!({ "result": "billing", "result_at": ended_run["completed_at"] }));
    let replay = run(&app, &workload).idempotency_key("k").await;
    assert_eq!(replay.expect(200)["output"], "billing");
    assert_eq!(provider.call_count(), 1);
}

#[tokio::test]
async fn run_fails_at_its_deadline() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let builder = TestApp::builder().provider(provider.clone());
    let app = builder.setting("FAIRWAY_EXECUTION_DEADLINE", "300ms").start().await;
    let workload = app.active_workload("main").await;
    let response = run(&app, &workload).await.expect(200);
    assert_eq!((&response["status"], &response["output"]), (&json!("failed"), &Value::Null));
    assert_eq!(response["error"]["code"], "deadline_exceeded");
    let ended_run = wait_until_ended(&app, &response["execution_id"]).await;
    assert_eq!((&ended_run["status"], &ended_run["outcome"]), (&json!("failed"), &json!("timeout")));
    // A model response that arrives after the deadline changes nothing.
    provider.set_behaviour(ProviderBehaviour::Answers("late".to_owned()));
    assert_eq!(wait_until_ended(&app, &response["execution_id"]).await, ended_run);
    assert_eq!(fact_count(&app, "execution.%").await, 1);
}

#[tokio::test]
async fn disconnected_client_does_not_end_its_run() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let workload = app.active_workload("main").await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } }).to_string();
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\nContent-Length: {}\r\n\r\n{body}",
        workload.execute_path(),
        app.address(),
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(app.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    provider.wait_for_calls(1).await;
    drop(stream);
    run(&app, &workload).idempotency_key("k").await.expect_refusal(409, "request_in_progress");
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    let finished = async {
        loop {
            let replay = run(&app, &workload).idempotency_key("k").await;
            if replay.status == 200 {
                return replay;
            }
            replay.expect_refusal(409, "request_in_progress");
        }
    };
    let finished = tokio::time::timeout(std::time::Duration::from_secs(20), finished).await.unwrap();
    assert_eq!(finished.expect(200)["output"], "billing");
    assert_eq!(finished.header("idempotency-replayed"), Some("true"));
    assert_eq!(provider.call_count(), 1);
}

#[tokio::test]
async fn shutdown_waits_for_running_runs() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let workload = app.active_workload("main").await;
    let other_server = TestApp::builder().sharing_storage_of(&app).start().await;
    let pending_run = tokio::spawn(run(&app, &workload).into_future());
    provider.wait_for_calls(1).await;
    let drain = tokio::spawn(app.shut_down_gracefully());
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    let run_result = pending_run.await.unwrap().expect(200);
    assert_eq!(run_result["output"], "billing");
    drain.await.unwrap();
    let ended_run = wait_until_ended(&other_server, &run_result["execution_id"]).await;
    assert_eq!(ended_run["outcome"], "success");
}
