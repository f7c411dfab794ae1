//! Promise R9 in `docs/security.md`: servers with a projector and a sender of notifications are killed or stopped while
//! they deliver. The messages that the receiver recorded must be complete, and unique except for repeated attempts.

use crate::{
    api_client::ApiClient,
    server_process::{Server, ServerSetup, wait_until},
};
use fairway_testkit::{RecordedRequest, ScriptedEndpoint, ScriptedResponse, TestDatabase, is_long_form_requested};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio_postgres::Client;
use uuid::Uuid;

/// Number of facts that the test causes between two kills.
const FACTS_PER_ROUND: usize = 15;
/// Seconds after which every lease has expired.
const LEASE_SECONDS: i64 = 61;
/// Time limit, after the last fault, until all deliveries are sent.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for the shutdown of a server.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
const ON_LOOPBACK: (&str, &str) = ("FAIRWAY_EGRESS_ALLOW", "127.0.0.0/8");

async fn query_number(owner: &Client, sql: &str) -> i64 {
    owner.query_one(sql, &[]).await.unwrap().get(0)
}

/// Creates a webhook destination, which the local user selects for incidents, and a workload. Returns the workload's
/// path.
async fn prepare(client: &ApiClient, receiver: &ScriptedEndpoint) -> String {
    let hook = json!({
        "destination_type": "webhook", "display_name": "hook", "redacted_metadata": { "url": receiver.url("/in") },
        "is_enabled": true,
    });
    client.create("/v1/notifications/organization/destinations", &hook).await;
    let preferences = json!([{ "category": "incidents", "channel": "webhook", "enabled": true }]);
    assert_eq!(client.put("/v1/notifications/preferences", &preferences).await.unwrap().status, 200);
    let (workload, _) = client.create_workload().await;
    format!("/v1/workloads/{workload}")
}

/// Suspends the workload, which counts as an incident and causes a notification.
async fn suspend(client: &ApiClient, workload: &str) {
    for status in ["registered", "suspended"] {
        let response = client.patch(workload, &json!({ "status": status })).await.unwrap();
        assert_eq!(response.status, 200, "{response:?}");
    }
}

/// The received messages by identifier. Fails if a repeated message differs from the first one.
fn bodies_by_delivery(requests: &[RecordedRequest]) -> BTreeMap<String, Vec<u8>> {
    let mut bodies_by_id = BTreeMap::new();
    for request in requests {
        let id = request.header("webhook-id").unwrap().to_owned();
        let first_body = bodies_by_id.entry(id).or_insert_with(|| request.body.clone());
        assert_eq!(*first_body, request.body, "all attempts send the same message");
    }
    bodies_by_id
}

const RUNNING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()";

const UNSENT: &str = "SELECT (SELECT count(*) FROM notification_delivery WHERE status <> 'sent')
    + (SELECT count(*) FROM fact_pending)
    + (SELECT count(*) FROM fact_log JOIN notification_position USING (tenant_id) WHERE size > position)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_lose_no_notification_and_repeat_only_what_was_in_progress() {
    let database = TestDatabase::create().await.unwrap();
    let owner = database.connect_as_owner().await.unwrap();
    let receiver = ScriptedEndpoint::start().await;
    receiver.respond_with(ScriptedResponse::status(204, ""));
    let first_setup = ServerSetup::new(&database.url_for_owner()).setting(ON_LOOPBACK.0, ON_LOOPBACK.1);
    let second_setup = ServerSetup::sharing_storage_of(&first_setup).setting(ON_LOOPBACK.0, ON_LOOPBACK.1);
    let setups = [first_setup, second_setup];
    let mut servers: [Server; 2] = [setups[0].start().await, setups[1].start().await];
    let workload = prepare(&servers[0].client, &receiver).await;
    let rounds = if is_long_form_requested() { 60 } else { 6 };
    let mut in_progress = 0;
    for round in 0..rounds {
        let (killed_index, surviving_index) = (round % 2, (round + 1) % 2);
        for _ in 0..FACTS_PER_ROUND {
            suspend(&servers[surviving_index].client, &workload).await;
        }
        servers[killed_index].kill();
        // Pauses the surviving server, so that no server claims deliveries while the test counts the claimed ones.
        servers[surviving_index].pause();
        // A claim that the server sent before the pause may still commit, so the test waits for the end of all
        // statements.
        wait_until("no statement runs", RECOVERY_TIMEOUT, async || query_number(&owner, RUNNING).await == 0).await;
        let claimed = "SELECT count(*) FROM notification_delivery WHERE status = 'claimed'";
        in_progress += query_number(&owner, claimed).await;
        database.set_clock_offset(LEASE_SECONDS * i64::try_from(round + 1).unwrap()).await.unwrap();
        servers[surviving_index].resume();
        servers[killed_index] = setups[killed_index].start().await;
    }
    wait_until("every delivery is sent", RECOVERY_TIMEOUT, async || query_number(&owner, UNSENT).await == 0).await;
    let requests = receiver.requests();
    let delivered_ids: BTreeSet<Uuid> = bodies_by_delivery(&requests).keys().map(|id| id.parse().unwrap()).collect();
    let facts = "SELECT count(*) FROM fact WHERE kind = 'workload.changed'
        AND position('\"categories\"' IN convert_from(body, 'UTF8')) > 0";
    assert_eq!(
        i64::try_from(delivered_ids.len()).unwrap(),
        query_number(&owner, facts).await,
        "one message for each fact"
    );
    assert_eq!(delivered_ids.len(), rounds * FACTS_PER_ROUND);
    let repeated = i64::try_from(requests.len() - delivered_ids.len()).unwrap();
    assert!(repeated <= in_progress, "{repeated} repetitions, {in_progress} in progress at the kills");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_server_releases_unsent_deliveries() {
    let database = TestDatabase::create().await.unwrap();
    let owner = database.connect_as_owner().await.unwrap();
    let receiver = ScriptedEndpoint::start().await;
    receiver.respond_with(ScriptedResponse::hang());
    let setup = ServerSetup::new(&database.url_for_owner()).setting(ON_LOOPBACK.0, ON_LOOPBACK.1);
    let mut server = setup.start().await;
    let workload = prepare(&server.client, &receiver).await;
    suspend(&server.client, &workload).await;
    receiver.wait_for_requests(1).await;
    server.terminate();
    assert!(server.wait_for_exit(SHUTDOWN_TIMEOUT).await.success());
    let released_sql = "SELECT count(*) FROM notification_delivery WHERE status = 'pending' AND claim_id IS NULL";
    assert_eq!(query_number(&owner, released_sql).await, 1, "{}", server.read_log());
    // On a busy machine, the attempt may already have timed out. Expired leases make the delivery due in either case.
    database.set_clock_offset(LEASE_SECONDS).await.unwrap();
    receiver.respond_with(ScriptedResponse::status(204, ""));
    let _server = setup.start().await;
    wait_until("the delivery is sent", RECOVERY_TIMEOUT, async || query_number(&owner, UNSENT).await == 0).await;
    assert_eq!(bodies_by_delivery(&receiver.requests()).len(), 1);
}
