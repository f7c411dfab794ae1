//! R5: changes are atomic. A server that crashes during a change leaves the whole change or none of it. A retry with
//! the same key has one effect.

use crate::{
    api_client::{ApiClient, Response, allow_all_policy},
    artifact_consistency::assert_rows_match_artifacts,
    server_process::{ServerSetup, wait_until},
};
use fairway_testkit::TestDatabase;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_postgres::{Client, Config, NoTls};
use uuid::Uuid;

const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The point of the crash, as the database sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CrashPoint {
    /// The connection closes during the statement, which is rolled back.
    BeforeCommit,
    /// The statement commits, and the server crashes before its response.
    AfterCommit,
}

/// A change to send, with a statement that locks a row on which its commit waits.
struct ChangeRequest {
    path: String,
    body: Value,
    lock_sql: String,
    /// SQL that counts the complete effects of the change: 0 or 1, and -1 for a partial effect.
    effect_sql: String,
    expected_status: u16,
}

async fn version_request(remote: &ApiClient) -> ChangeRequest {
    let asset = remote.create_asset("policy_bundle").await;
    ChangeRequest {
        path: format!("/v1/assets/{asset}/versions"),
        body: json!({ "content": allow_all_policy() }),
        lock_sql: format!("SELECT FROM asset WHERE asset_id = '{asset}' FOR UPDATE"),
        effect_sql: format!("SELECT count(*) FROM asset_version WHERE asset_id = '{asset}'"),
        expected_status: 201,
    }
}

async fn draft_request(remote: &ApiClient) -> ChangeRequest {
    let (workload, _) = remote.create_workload().await;
    ChangeRequest {
        path: "/v1/releases".to_owned(),
        body: json!({ "workload_id": workload, "environment": "dev" }),
        lock_sql: format!("SELECT FROM workload WHERE workload_id = '{workload}' FOR UPDATE"),
        effect_sql: format!("SELECT count(*) FROM release WHERE workload_id = '{workload}'"),
        expected_status: 201,
    }
}

async fn activation_request(remote: &ApiClient) -> ChangeRequest {
    let (workload, _) = remote.create_workload().await;
    let release = remote.create_approved_release(workload).await;
    ChangeRequest {
        path: format!("/v1/releases/{release}/transition"),
        body: json!({ "to_state": "active" }),
        lock_sql: format!("SELECT FROM deployment WHERE workload_id = '{workload}' FOR UPDATE"),
        // One active release, three held lanes and three history entries.
        effect_sql: format!(
            "SELECT CASE (SELECT count(*) FROM release WHERE release_id = '{release}' AND state = 'active')
                + (SELECT num_nonnulls(restricted_release_id, guided_release_id, standard_release_id) FROM deployment
                   WHERE workload_id = '{workload}')
                + (SELECT count(*) FROM deployment_history WHERE workload_id = '{workload}')
             WHEN 0 THEN 0 WHEN 7 THEN 1 ELSE -1 END::bigint"
        ),
        expected_status: 200,
    }
}

/// Activates a release before the crash.
async fn activate_release(remote: &ApiClient, release: Uuid, body: &Value) {
    let path = format!("/v1/releases/{release}/transition");
    assert_eq!(remote.post(&path, body, None).await.unwrap().status, 200);
}

async fn rollback_request(remote: &ApiClient) -> ChangeRequest {
    let (workload, _) = remote.create_workload().await;
    let (one, two) = (remote.create_approved_release(workload).await, remote.create_approved_release(workload).await);
    for release in [one, two] {
        activate_release(remote, release, &json!({ "to_state": "active" })).await;
    }
    ChangeRequest {
        path: format!("/v1/releases/{two}/rollback"),
        body: json!({ "reason": "It answers in riddles." }),
        lock_sql: format!("SELECT FROM deployment WHERE workload_id = '{workload}' FOR UPDATE"),
        // Two release states, three lanes, three history entries and one artifact.
        effect_sql: format!(
            "SELECT CASE (SELECT count(*) FROM release WHERE (release_id, state) IN (('{one}', 'active'), ('{two}', 'superseded')))
                + (SELECT count(*) FROM deployment, unnest(ARRAY[restricted_release_id, guided_release_id,
                    standard_release_id]) AS holder WHERE workload_id = '{workload}' AND holder = '{one}')
                + (SELECT count(*) FROM deployment_history WHERE workload_id = '{workload}' AND reason = 'rollback')
                + (SELECT count(*) FROM release_artifact WHERE release_id = '{two}')
             WHEN 0 THEN 0 WHEN 9 THEN 1 ELSE -1 END::bigint"
        ),
        expected_status: 200,
    }
}

async fn advance_request(remote: &ApiClient) -> ChangeRequest {
    let (workload, _) = remote.create_workload().await;
    let release = remote.create_approved_release(workload).await;
    let plan = json!({ "lane_sequence": ["restricted", "standard"], "soak_duration_minutes": 0 });
    activate_release(remote, release, &json!({ "to_state": "active", "rollout_plan": plan })).await;
    ChangeRequest {
        path: format!("/v1/releases/{release}/rollout/advance"),
        body: json!({}),
        lock_sql: format!("SELECT FROM deployment WHERE workload_id = '{workload}' FOR UPDATE"),
        // The rollout index, the soaking lane, its holder and one history entry.
        effect_sql: format!(
            "SELECT CASE (SELECT count(*) FROM release WHERE release_id = '{release}' AND rollout_index = 1)
                + (SELECT count(*) FROM deployment WHERE workload_id = '{workload}' AND soaking_lanes = '{{standard}}')
                + (SELECT count(*) FROM deployment WHERE standard_release_id = '{release}')
                + (SELECT count(*) FROM deployment_history WHERE workload_id = '{workload}' AND reason = 'advance')
             WHEN 0 THEN 0 WHEN 4 THEN 1 ELSE -1 END::bigint"
        ),
        expected_status: 200,
    }
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn connect(url: &str) -> Client {
    let (client, connection) = url.parse::<Config>().unwrap().connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Sends the change, kills the server while the commit waits for the locked row, and releases the lock.
async fn crash_during_commit(
    setup: &ServerSetup,
    database: &TestDatabase,
    attempt: &ChangeRequest,
    key: &str,
    crash: CrashPoint,
) {
    let mut server = setup.start().await;
    let owner = database.connect_as_owner().await.unwrap();
    let lock_owner = connect(&database.url()).await;
    lock_owner.batch_execute("BEGIN").await.unwrap();
    lock_owner.batch_execute(&attempt.lock_sql).await.unwrap();
    let (remote, path, body, own_key) =
        (server.client.clone(), attempt.path.clone(), attempt.body.clone(), key.to_owned());
    let request = tokio::spawn(async move { remote.post(&path, &body, Some(&own_key)).await });
    let waiting_commits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND application_name = 'fairway'";
    wait_until("the commit waits for the lock", STEP_TIMEOUT, async || count(&owner, waiting_commits).await == 1).await;
    server.kill();
    let response = request.await.unwrap();
    assert!(response.is_err(), "the server answered before its commit: {response:?}");
    if crash == CrashPoint::BeforeCommit {
        let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
            AND application_name = 'fairway'";
        owner.query(terminate, &[]).await.unwrap();
    }
    lock_owner.batch_execute("ROLLBACK").await.unwrap();
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'fairway'";
    wait_until("the server's connections end", STEP_TIMEOUT, async || count(&owner, connections).await == 0).await;
}

async fn assert_atomic(decide: impl AsyncFn(&ApiClient) -> ChangeRequest) {
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url());
    let owner = database.connect_as_owner().await.unwrap();
    for crash_point in [CrashPoint::BeforeCommit, CrashPoint::AfterCommit] {
        let mut server = setup.start().await;
        let attempt = decide(&server.client).await;
        server.kill();
        let key = Uuid::now_v7().to_string();
        let (facts, keys) = ("SELECT count(*) FROM fact", "SELECT count(*) FROM idempotency_key");
        let before = (count(&owner, facts).await, count(&owner, keys).await);
        crash_during_commit(&setup, &database, &attempt, &key, crash_point).await;
        let effects = i64::from(crash_point == CrashPoint::AfterCommit);
        assert_eq!(count(&owner, &attempt.effect_sql).await, effects, "{crash_point:?}");
        assert_eq!(count(&owner, facts).await, before.0 + effects, "{crash_point:?}");
        assert_eq!(count(&owner, keys).await, before.1 + effects, "{crash_point:?}");
        assert_rows_match_artifacts(&owner, &setup.artifacts_dir()).await;

        let server = setup.start().await;
        let mut first_response: Option<Response> = None;
        for _ in 0..2 {
            let response = server.client.post(&attempt.path, &attempt.body, Some(&key)).await.unwrap();
            assert_eq!(response.status, attempt.expected_status, "{crash_point:?}: {response:?}");
            let expected = first_response.get_or_insert_with(|| response.clone());
            for name in [
                "asset_version_id",
                "version_label",
                "release_id",
                "state",
                "created_at",
                "artifact_id",
                "rollout_state",
            ] {
                assert_eq!(expected.body.get(name), response.body.get(name), "{crash_point:?}: {name}");
            }
        }
        assert_eq!(count(&owner, &attempt.effect_sql).await, 1, "{crash_point:?}");
        assert_eq!(count(&owner, facts).await, before.0 + 1, "{crash_point:?}");
        assert_rows_match_artifacts(&owner, &setup.artifacts_dir()).await;
    }
}

#[tokio::test]
async fn version_creation_is_atomic() {
    assert_atomic(version_request).await;
}

#[tokio::test]
async fn release_creation_is_atomic() {
    assert_atomic(draft_request).await;
}

#[tokio::test]
async fn release_activation_is_atomic() {
    assert_atomic(activation_request).await;
}

#[tokio::test]
async fn rollback_is_atomic() {
    assert_atomic(rollback_request).await;
}

#[tokio::test]
async fn rollout_advance_is_atomic() {
    assert_atomic(advance_request).await;
}
