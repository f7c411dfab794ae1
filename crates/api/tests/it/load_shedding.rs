//! Load shedding: requests beyond the queue limit are refused immediately, and queued requests are served.

use fairway_testkit::TestApp;
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// The value of a metrics counter.
async fn counter(app: &TestApp, name: &str) -> u64 {
    let metrics = app.get("/metrics").await.text();
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    value.parse().unwrap()
}

/// The number of requests refused because of load.
async fn count_load_refusal(app: &TestApp) -> u64 {
    counter(app, "fairway_http_refused_for_load_total").await
}

#[tokio::test]
async fn sheds_load_when_the_admission_queue_stalls() {
    let app = TestApp::builder().setting("FAIRWAY_WAITING_LINE", "4").start().await;
    let other_tenant = app.fixtures().tenant("elsewhere").await;
    let run = app.active_workload("main").await.execute_path();
    app.get("/v1/assets").await.expect(200);
    let owner = app.database().connect_as_owner().await.unwrap();
    // This lock blocks reads of assets, for less time than the statement timeout.
    owner.batch_execute("BEGIN; LOCK TABLE asset IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let mut flooding_requests = JoinSet::new();
    for _ in 0..200 {
        flooding_requests.spawn(app.get("/v1/assets").into_future());
    }
    for _ in 0..40 {
        let response = flooding_requests.join_next().await.unwrap().unwrap();
        response.expect_refusal(503, "unavailable");
        assert_eq!(response.header("retry-after"), Some("1"), "{response}");
    }
    // Load shedding refuses these requests at once. Queued requests that time out after a second are not counted here.
    assert!(count_load_refusal(&app).await >= 40);
    // A burst of refusals exceeds the rate of immediate refusals, so some are delayed. A slow machine may spread a
    // burst over time, so the burst is repeated.
    let started_at = Instant::now();
    while counter(&app, "fairway_http_delayed_refusals_total").await == 0 {
        assert!(started_at.elapsed() < Duration::from_secs(60), "no refusal was delayed");
        let burst_requests: JoinSet<_> = (0..100).map(|_| app.get("/v1/assets").into_future()).collect();
        burst_requests.join_all().await;
    }
    // The load continues until the lock is released, whatever the speed of the machine.
    let is_over = Arc::new(AtomicBool::new(false));
    let mut steady_clients = JoinSet::new();
    for _ in 0..12 {
        let (is_over, request) = (Arc::clone(&is_over), app.get("/v1/assets"));
        steady_clients.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                assert!([200, 503].contains(&request.clone().await.status));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    // Another tenant sends few requests, which do not access the locked table. They are served.
    let other_settings = format!("/v1/tenants/{other_tenant}/settings");
    for _ in 0..10 {
        app.get(&other_settings).in_tenant(&other_tenant).await.expect(200);
    }
    // Runs share the queue with all other requests.
    let inputs = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let mut runs = JoinSet::new();
    for _ in 0..40 {
        runs.spawn(app.post(&run, inputs.clone()).into_future());
    }
    let responses = runs.join_all().await;
    assert!(responses.iter().any(|response| response.status == 503), "{responses:?}");
    assert!(responses.iter().all(|response| [200, 503].contains(&response.status)));
    // The liveness probe bypasses the queue.
    app.get("/healthz").await.expect(200);
    assert!(count_load_refusal(&app).await >= 40);
    owner.batch_execute("ROLLBACK").await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    steady_clients.join_all().await;
    while let Some(response) = flooding_requests.join_next().await {
        // Each request is served, or refused by its timeout.
        assert!([200, 503].contains(&response.unwrap().status));
    }
    // After the lock is released, the server recovers within seconds.
    let started_at = Instant::now();
    while app.get("/v1/assets").await.status != 200 {
        assert!(started_at.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let body = json!({ "slug": "after", "asset_kind": "skill", "owner_ref": "team:a" });
    app.post("/v1/assets", body).await.expect(201);
}
