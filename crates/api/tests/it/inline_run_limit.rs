//! A process executes a bounded number of inline runs. Further runs are queued, or refused when there is no queue.

use crate::execution::{run, wait_until_ended};
use fairway_testkit::{ProviderBehaviour, StubProvider, TestApp, app::ActiveWorkload};
use serde_json::Value;

/// Maximum number of inline runs that a process executes for one tenant.
const PER_TENANT: usize = 192;

/// Starts the maximum number of runs. Each run waits for its model.
async fn fill_process(app: &TestApp, workload: &ActiveWorkload, provider: &StubProvider) -> Vec<Value> {
    let start_run =
        |_| async { run(app, workload).header("prefer", "wait=0").await.expect(202)["execution_id"].clone() };
    let runs = futures_util::future::join_all((0..PER_TENANT).map(start_run)).await;
    provider.wait_for_calls(PER_TENANT).await;
    runs
}

#[tokio::test]
async fn queues_runs_beyond_the_limit_of_a_process() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).without_worker().start().await;
    let workload = app.active_workload("asks").await;
    let started_runs = fill_process(&app, &workload, &provider).await;
    let path = |id: &Value| format!("/v1/executions/{}", id.as_str().unwrap());
    let next_run = run(&app, &workload).header("prefer", "wait=0").await.expect(202)["execution_id"].clone();
    assert_eq!(app.get(path(&next_run)).await.expect(200)["status"], "queued");
    for id in &started_runs {
        assert_eq!(app.get(path(id)).await.expect(200)["status"], "running");
    }
    // The end of a run releases its slot.
    app.post(format!("{}/cancel", path(&started_runs[0])), serde_json::json!({})).await.expect(200);
    loop {
        let run = run(&app, &workload).header("prefer", "wait=0").await.expect(202)["execution_id"].clone();
        if app.get(path(&run)).await.expect(200)["status"] == "running" {
            break;
        }
    }
}

#[tokio::test]
async fn refuses_runs_beyond_the_limit_of_a_process_without_a_queue() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).setting("FAIRWAY_DISPATCH", "inline").start().await;
    let workload = app.active_workload("asks").await;
    let keyed = || run(&app, &workload).header("prefer", "wait=0").header("idempotency-key", "one");
    let keyed_run = keyed().await.expect(202)["execution_id"].clone();
    let mut started_runs = vec![keyed_run.clone()];
    loop {
        let response = run(&app, &workload).header("prefer", "wait=0").await;
        if response.status == 503 {
            assert!(response.header("retry-after").is_some());
            break;
        }
        started_runs.push(response.expect(202)["execution_id"].clone());
    }
    assert_eq!(started_runs.len(), PER_TENANT);
    // A replay of an accepted run occupies no slot.
    assert_eq!(keyed().await.expect(409)["detail"]["error"], "request_in_progress");
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    for id in &started_runs {
        assert_eq!(wait_until_ended(&app, id).await["status"], "completed");
    }
    assert_eq!(keyed().await.expect(200)["execution_id"], keyed_run);
    // The slot is released shortly after the end of the run is stored, so the request is repeated.
    while run(&app, &workload).await.status == 503 {}
}
