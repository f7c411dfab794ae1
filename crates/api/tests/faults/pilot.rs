//! The rollout pilot as a process: it dies, its database goes away and comes back elsewhere, and each step is taken once.

use crate::{
    process::{Place, until},
    remote::Remote,
};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(30);

/// A release whose rollout advances by itself once one run has ended on `standard`, and the slug of its workload.
async fn rolling(remote: &Remote) -> (Uuid, String) {
    let (workload, slug) = remote.workload().await;
    let config = json!({ "interface_config": {
        "presentation_mode": "form", "input_fields": [{ "name": "ticket", "type": "text" }],
        "rollout_config": { "sample_size": 1 },
    } });
    assert_eq!(remote.patch(&format!("/v1/workloads/{workload}"), &config).await.unwrap().status, 200);
    let release = remote.approved(workload).await;
    let plan = json!({ "lane_sequence": ["standard", "guided"], "soak_duration_minutes": 0, "auto_advance": true });
    let body = json!({ "to_state": "active", "rollout_plan": plan });
    let moved = remote.post(&format!("/v1/releases/{release}/transition"), &body, None).await.unwrap();
    assert_eq!(moved.status, 200, "{moved:?}");
    (release, slug)
}

async fn run(remote: &Remote, slug: &str) {
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let ran = remote.post(&format!("/v1/workloads/by-slug/{slug}/execute"), &body, None).await.unwrap();
    assert_eq!(ran.status, 200, "{ran:?}");
}

async fn lane(remote: &Remote, release: Uuid) -> Value {
    remote.get(&format!("/v1/releases/{release}/rollout")).await.unwrap().body["current_lane"].clone()
}

/// The private PostgreSQL is the server's: a pilot that came first would keep the server out.
#[tokio::test]
async fn a_pilot_starts_no_database() {
    let place = Place::new("embedded");
    let mut server = place.start().await;
    server.terminate();
    assert!(server.ended_within(END).await.success());
    let mut pilot = place.pilot();
    assert!(!pilot.ended_within(END).await.success());
    assert!(pilot.said().contains("no server runs here"), "{}", pilot.said());
    place.start().await;
}

#[tokio::test]
async fn a_pilot_finds_its_database_again_and_goes_on() {
    let place = Place::new("embedded");
    let mut server = place.start().await;
    let mut pilot = place.pilot();
    // One that finds no server when it begins ends at once.
    until("the pilot looks around", PATIENCE, async || pilot.said().contains("looks around")).await;
    server.kill();
    let server = place.start().await;
    let (release, slug) = rolling(&server.remote).await;
    run(&server.remote, &slug).await;
    until("the pilot goes on", PATIENCE, async || lane(&server.remote, release).await == "guided").await;
    pilot.terminate();
    assert!(pilot.ended_within(END).await.success(), "{}", pilot.said());
}

#[tokio::test]
async fn killed_pilots_leave_the_rest_to_others() {
    let place = Place::new("embedded");
    let server = place.start().await;
    let mut releases = Vec::new();
    for _ in 0..3 {
        let (release, slug) = rolling(&server.remote).await;
        run(&server.remote, &slug).await;
        releases.push(release);
    }
    let mut first = place.pilot();
    until("it has begun", PATIENCE, async || lane(&server.remote, releases[0]).await == "guided").await;
    first.kill();
    let others = [place.pilot(), place.pilot()];
    for release in &releases {
        until("somebody went on", PATIENCE, async || lane(&server.remote, *release).await == "guided").await;
        let history = server.remote.get(&format!("/v1/releases/{release}/rollout")).await.unwrap();
        assert_eq!((&history.body["status"], &history.body["current_lane_index"]), (&json!("in_progress"), &json!(1)));
    }
    drop(others);
}
