//! Fairness: requests of one caller succeed while another caller has many slow list requests.

use fairway_domain::tenant::DEFAULT_TENANT_ID;
use fairway_testkit::{TestApp, app::Request};
use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::task::JoinSet;

/// Number of concurrent list requests of one caller. It is much larger than the number of database connections.
const CONCURRENT_LISTS: usize = 40;

/// Starts a server without load shedding, so that database connections are the only scarce resource.
async fn server_without_load_shedding() -> TestApp {
    TestApp::builder().setting("FAIRWAY_WAITING_LINE", "1000").start().await
}

/// Blocks many list requests of one caller on a locked table, and asserts that requests of the other caller succeed.
/// Blocked requests are repeated until the end, so the outcome does not depend on the machine's speed.
async fn assert_served_during_blocked_lists(
    app: &TestApp,
    table: &str,
    large_list: Request,
    other_requests: &[Request],
) {
    for request in other_requests {
        request.clone().await.expect(200);
    }
    large_list.clone().await.expect(200);
    let owner = app.database().connect_as_owner().await.unwrap();
    owner.batch_execute(&format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut flooding_requests = JoinSet::new();
    for _ in 0..CONCURRENT_LISTS {
        let (is_over, request) = (Arc::clone(&is_over), large_list.clone());
        flooding_requests.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                request.clone().await.expect_refusal(503, "unavailable");
            }
        });
    }
    for _ in 0..8 {
        // Waits until a blocked statement occupies a connection.
        while blocked_statements(app).await == 0 {
            tokio::task::yield_now().await;
        }
        for request in other_requests {
            let response = request.clone().await;
            assert_eq!(response.status, 200, "during {CONCURRENT_LISTS} lists of another caller: {response}");
        }
    }
    is_over.store(true, Ordering::Relaxed);
    flooding_requests.join_all().await;
    owner.batch_execute("ROLLBACK").await.unwrap();
    large_list.await.expect(200);
}

/// The number of database statements that wait for a lock.
async fn blocked_statements(app: &TestApp) -> i64 {
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    owner.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn serves_lists_during_many_lists_of_another_caller() {
    let app = server_without_load_shedding().await;
    let [large_list, other_list] = [("/v1/assets?limit=200", "user:ada"), ("/v1/workloads?limit=1", "user:bob")]
        .map(|(path, actor)| app.get(path).as_actor(actor));
    assert_served_during_blocked_lists(&app, "asset", large_list.clone(), slice::from_ref(&other_list)).await;
    // Repeats the requests with an explicit tenant.
    let tenant = DEFAULT_TENANT_ID.to_string();
    assert_served_during_blocked_lists(&app, "asset", large_list.in_tenant(&tenant), &[other_list.in_tenant(&tenant)])
        .await;
}

#[tokio::test]
async fn serves_point_reads_during_many_run_lists() {
    let app = server_without_load_shedding().await;
    let workload = app.active_workload("main").await;
    let large_list = app.get("/v1/executions?limit=200").as_actor("user:ada");
    let other_requests = [app.get(format!("/v1/workloads/{}", workload.workload_id)), app.get("/v1/workloads?limit=1")];
    assert_served_during_blocked_lists(
        &app,
        "execution",
        large_list,
        &other_requests.map(|request| request.as_actor("user:bob")),
    )
    .await;
}
