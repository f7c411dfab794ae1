//! The rollout controller as a separate process. It takes each step exactly once, even if the controller is killed
//! or its database moves to another port.

use crate::{
    api_client::ApiClient,
    server_process::{ServerSetup, wait_until},
};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

const STEP_TIMEOUT: Duration = Duration::from_secs(60);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates a release whose rollout advances automatically after one run on the lane `standard`. Returns the release
/// and the slug of its workload.
async fn start_rollout(remote: &ApiClient) -> (Uuid, String) {
    let (workload, slug) = remote.create_workload().await;
    let config = json!({ "interface_config": {
        "presentation_mode": "form", "input_fields": [{ "name": "ticket", "type": "text" }],
        "rollout_config": { "sample_size": 1 },
    } });
    assert_eq!(remote.patch(&format!("/v1/workloads/{workload}"), &config).await.unwrap().status, 200);
    let release = remote.create_approved_release(workload).await;
    let plan = json!({ "lane_sequence": ["standard", "guided"], "soak_duration_minutes": 0, "auto_advance": true });
    let body = json!({ "to_state": "active", "rollout_plan": plan });
    let activated = remote.post(&format!("/v1/releases/{release}/transition"), &body, None).await.unwrap();
    assert_eq!(activated.status, 200, "{activated:?}");
    (release, slug)
}

async fn execute_run(remote: &ApiClient, slug: &str) {
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let response = remote.post(&format!("/v1/workloads/by-slug/{slug}/execute"), &body, None).await.unwrap();
    assert_eq!(response.status, 200, "{response:?}");
}

async fn current_lane(remote: &ApiClient, release: Uuid) -> Value {
    remote.get(&format!("/v1/releases/{release}/rollout")).await.unwrap().body["current_lane"].clone()
}

/// The server owns the managed PostgreSQL. A rollout controller that started PostgreSQL would prevent the server
/// from starting.
#[tokio::test]
async fn rollout_controller_never_starts_the_database() {
    let setup = ServerSetup::new("embedded");
    let mut server = setup.start().await;
    server.terminate();
    assert!(server.wait_for_exit(SHUTDOWN_TIMEOUT).await.success());
    let mut controller = setup.spawn_rollout_controller();
    assert!(!controller.wait_for_exit(SHUTDOWN_TIMEOUT).await.success());
    assert!(controller.read_log().contains("no server runs here"), "{}", controller.read_log());
    setup.start().await;
}

#[tokio::test]
async fn rollout_controller_reconnects_to_a_restarted_database() {
    let setup = ServerSetup::new("embedded");
    let mut server = setup.start().await;
    let mut controller = setup.spawn_rollout_controller();
    // A rollout controller that starts without a server exits. The test therefore waits for its start before it
    // kills the server.
    wait_until("the rollout controller started", STEP_TIMEOUT, async || {
        controller.read_log().contains("rollout controller started")
    })
    .await;
    server.kill();
    let server = setup.start().await;
    let (release, slug) = start_rollout(&server.client).await;
    execute_run(&server.client, &slug).await;
    wait_until("the rollout controller advances the rollout", STEP_TIMEOUT, async || {
        current_lane(&server.client, release).await == "guided"
    })
    .await;
    controller.terminate();
    assert!(controller.wait_for_exit(SHUTDOWN_TIMEOUT).await.success(), "{}", controller.read_log());
}

#[tokio::test]
async fn other_rollout_controllers_continue_after_a_kill() {
    let setup = ServerSetup::new("embedded");
    let server = setup.start().await;
    let mut releases = Vec::new();
    for _ in 0..3 {
        let (release, slug) = start_rollout(&server.client).await;
        execute_run(&server.client, &slug).await;
        releases.push(release);
    }
    let mut first_controller = setup.spawn_rollout_controller();
    wait_until("the first rollout advanced", STEP_TIMEOUT, async || {
        current_lane(&server.client, releases[0]).await == "guided"
    })
    .await;
    first_controller.kill();
    let other_controllers = [setup.spawn_rollout_controller(), setup.spawn_rollout_controller()];
    for release in &releases {
        wait_until("another rollout controller advances the rollout", STEP_TIMEOUT, async || {
            current_lane(&server.client, *release).await == "guided"
        })
        .await;
        let rollout = server.client.get(&format!("/v1/releases/{release}/rollout")).await.unwrap();
        assert_eq!((&rollout.body["status"], &rollout.body["current_lane_index"]), (&json!("in_progress"), &json!(1)));
    }
    drop(other_controllers);
}
