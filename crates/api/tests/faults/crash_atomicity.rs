//! Promise R5 in `docs/security.md`: changes are atomic. A server that crashes during a change leaves the whole change
//! or no part of it. A retry with the same idempotency key has exactly one effect.

use crate::{
    api_client::{ApiClient, Response, WORKSPACE, allow_all_policy},
    artifact_consistency::assert_rows_match_artifacts,
    server_process::{ServerSetup, wait_until},
};
use fairway_testkit::TestDatabase;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_postgres::{Client, Config, NoTls};
use uuid::Uuid;

const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The point of the crash, relative to the commit in the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CrashPoint {
    /// The connection closes during the statement, which is rolled back.
    BeforeCommit,
    /// The statement commits, and the server crashes before it sends its response.
    AfterCommit,
}

/// A change to send, and SQL that locks a row. The change's commit waits for this lock, so that the test can crash
/// the server.
struct ChangeRequest {
    path: String,
    body: Value,
    lock_sql: String,
    /// SQL that counts the complete effects of the change: 0 or 1, and -1 for a partial effect.
    effect_sql: String,
    expected_status: u16,
    /// SQL that counts the facts that the change can write: 0 or 1.
    facts_sql: &'static str,
    keys_sql: &'static str,
    /// The caller; `None` for the local user.
    actor: Option<&'static str>,
}

const DESCRIPTION: &str = "Sort tickets by their urgency.";
/// A caller without the permission to create connections.
const AUTHOR: &str = "user:author";
const FACTS: &str = "SELECT count(*) FROM fact";
const KEYS: &str = "SELECT count(*) FROM idempotency_key";

async fn version_request(remote: &ApiClient) -> ChangeRequest {
    let asset = remote.create_asset("policy_bundle").await;
    ChangeRequest {
        path: format!("/v1/assets/{asset}/versions"),
        body: json!({ "content": allow_all_policy() }),
        lock_sql: format!("SELECT FROM asset WHERE asset_id = '{asset}' FOR UPDATE"),
        effect_sql: format!("SELECT count(*) FROM asset_version WHERE asset_id = '{asset}'"),
        expected_status: 201,
        facts_sql: FACTS,
        keys_sql: KEYS,
        actor: None,
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
        facts_sql: FACTS,
        keys_sql: KEYS,
        actor: None,
    }
}

async fn activation_request(remote: &ApiClient) -> ChangeRequest {
    let (workload, _) = remote.create_workload().await;
    let release = remote.create_approved_release(workload).await;
    ChangeRequest {
        path: format!("/v1/releases/{release}/transition"),
        body: json!({ "to_state": "active" }),
        lock_sql: format!("SELECT FROM deployment WHERE workload_id = '{workload}' FOR UPDATE"),
        // Expected effects: one active release, three lanes with a holder, and three history entries.
        effect_sql: format!(
            "SELECT CASE (SELECT count(*) FROM release WHERE release_id = '{release}' AND state = 'active')
                + (SELECT num_nonnulls(restricted_release_id, guided_release_id, standard_release_id) FROM deployment
                   WHERE workload_id = '{workload}')
                + (SELECT count(*) FROM deployment_history WHERE workload_id = '{workload}')
             WHEN 0 THEN 0 WHEN 7 THEN 1 ELSE -1 END::bigint"
        ),
        expected_status: 200,
        facts_sql: FACTS,
        keys_sql: KEYS,
        actor: None,
    }
}

/// Activates a release, as preparation for the change that crashes.
async fn activate_release(remote: &ApiClient, release: Uuid, body: &Value) {
    let path = format!("/v1/releases/{release}/transition");
    assert_eq!(remote.post(&path, body, None).await.unwrap().status, 200);
}

async fn rollback_request(remote: &ApiClient) -> ChangeRequest {
    let (workload, _) = remote.create_workload().await;
    let (first_release, second_release) =
        (remote.create_approved_release(workload).await, remote.create_approved_release(workload).await);
    for release in [first_release, second_release] {
        activate_release(remote, release, &json!({ "to_state": "active" })).await;
    }
    ChangeRequest {
        path: format!("/v1/releases/{second_release}/rollback"),
        body: json!({ "reason": "It answers in riddles." }),
        lock_sql: format!("SELECT FROM deployment WHERE workload_id = '{workload}' FOR UPDATE"),
        // Expected effects: two release states, three lanes, three history entries and one artifact.
        effect_sql: format!(
            "SELECT CASE (SELECT count(*) FROM release WHERE (release_id, state) IN (('{first_release}', 'active'), ('{second_release}', 'superseded')))
                + (SELECT count(*) FROM deployment, unnest(ARRAY[restricted_release_id, guided_release_id,
                    standard_release_id]) AS holder WHERE workload_id = '{workload}' AND holder = '{first_release}')
                + (SELECT count(*) FROM deployment_history WHERE workload_id = '{workload}' AND reason = 'rollback')
                + (SELECT count(*) FROM release_artifact WHERE release_id = '{second_release}')
             WHEN 0 THEN 0 WHEN 9 THEN 1 ELSE -1 END::bigint"
        ),
        expected_status: 200,
        facts_sql: FACTS,
        keys_sql: KEYS,
        actor: None,
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
        // Expected effects: the rollout index, the soaking lane, its holder and one history entry.
        effect_sql: format!(
            "SELECT CASE (SELECT count(*) FROM release WHERE release_id = '{release}' AND rollout_index = 1)
                + (SELECT count(*) FROM deployment WHERE workload_id = '{workload}' AND soaking_lanes = '{{standard}}')
                + (SELECT count(*) FROM deployment WHERE standard_release_id = '{release}')
                + (SELECT count(*) FROM deployment_history WHERE workload_id = '{workload}' AND reason = 'advance')
             WHEN 0 THEN 0 WHEN 4 THEN 1 ELSE -1 END::bigint"
        ),
        expected_status: 200,
        facts_sql: FACTS,
        keys_sql: KEYS,
        actor: None,
    }
}

/// Binds the author's role in the workspace. Ignores the refusal if the role is already bound.
async fn bind_author(remote: &ApiClient) {
    let body = json!({ "principal": AUTHOR, "role": "author", "scope_kind": "workspace", "scope_ref": WORKSPACE });
    let response = remote.post("/v1/role-bindings", &body, None).await.unwrap();
    assert!(matches!(response.status, 200 | 201 | 409), "{response:?}");
}

/// Creates a draft use case that needs a connection. Returns its id, and a function from a verb to the path of that
/// operation.
async fn create_use_case(remote: &ApiClient) -> (String, impl Fn(&str) -> String) {
    let slug = format!("m{}", Uuid::now_v7().simple());
    let asset = json!({ "slug": slug, "asset_kind": "model_policy", "owner_ref": "team:x", "workspace_id": WORKSPACE });
    let asset = remote.create("/v1/assets", &asset).await.required_id("asset_id");
    let route = json!({
        "route_id": "main", "provider": "local", "model": "rules", "account_slot": "local", "state": "approved",
    });
    let version = json!({ "content": { "provider_route": route } });
    remote.create(&format!("/v1/assets/{asset}/versions"), &version).await;
    let body = json!({
        "source_description": DESCRIPTION,
        "bundle": {
            "name": "Ticket triage", "summary": "Sorts tickets by urgency.",
            "flow": {
                "entry_step": "answer",
                "steps": [
                    {
                        "id": "answer", "type": "llm_call", "model_policy": "{{release.model_policy}}",
                        "inputs": { "prompt": "{{release.prompt_template}}", "ticket": "{{trigger.ticket}}" },
                    },
                    { "id": "done", "type": "return", "output": "{{steps.answer.output}}" },
                ],
            },
            "prompt_template": { "template": "Sort this ticket by urgency: $arg:ticket" },
            "model_policy_ref": slug, "connections": [format!("crm-{asset}")],
        },
    });
    let created = remote.create(&format!("/v1/use-cases?workspace_id={WORKSPACE}"), &body).await;
    let id = created.required_id("use_case_id");
    (id.to_string(), move |verb: &str| format!("/v1/use-cases/{id}/{verb}?workspace_id={WORKSPACE}"))
}

async fn publication_request(remote: &ApiClient) -> ChangeRequest {
    let (use_case, path) = create_use_case(remote).await;
    bind_author(remote).await;
    let slug = format!("ticket-triage-{}", use_case.rsplit_once('-').unwrap().1);
    ChangeRequest {
        actor: Some(AUTHOR),
        path: path("publish"),
        body: json!({}),
        lock_sql: format!("SELECT FROM use_case WHERE use_case_id = '{use_case}' FOR UPDATE"),
        // Expected effects: the status, one access request, the workload, four bindings of the release, the flow and
        // the prompt.
        effect_sql: format!(
            "SELECT CASE (SELECT count(*) FROM use_case WHERE use_case_id = '{use_case}' AND status = 'pending_access')
                + (SELECT count(*) FROM access_request WHERE use_case_id = '{use_case}')
                + (SELECT count(*) FROM workload WHERE slug = '{slug}')
                + (SELECT count(*) FROM release JOIN workload USING (tenant_id, workload_id)
                    JOIN release_binding USING (tenant_id, release_id) WHERE slug = '{slug}')
                + (SELECT count(*) FROM asset JOIN asset_version USING (tenant_id, asset_id)
                   WHERE slug IN ('{slug}-flow', '{slug}-prompt'))
             WHEN 0 THEN 0 WHEN 9 THEN 1 ELSE -1 END::bigint"
        ),
        expected_status: 200,
        facts_sql: FACTS,
        keys_sql: KEYS,
    }
}

async fn refinement_request(remote: &ApiClient) -> ChangeRequest {
    let (use_case, path) = create_use_case(remote).await;
    ChangeRequest {
        path: path("refine"),
        body: json!({
            "description": DESCRIPTION, "refinement_context": [{ "note": "Be brief." }], "idempotency_key": use_case,
        }),
        lock_sql: format!("SELECT FROM use_case WHERE use_case_id = '{use_case}' FOR UPDATE"),
        // Expected effects: the archived predecessor, its successor and the idempotency key.
        effect_sql: format!(
            "SELECT CASE (SELECT count(*) FROM use_case WHERE use_case_id = '{use_case}' AND status = 'archived'
                    AND superseded_by IS NOT NULL)
                + (SELECT count(*) FROM use_case WHERE supersedes = '{use_case}' AND status = 'draft')
                + (SELECT count(*) FROM use_case_refinement WHERE predecessor_id = '{use_case}')
             WHEN 0 THEN 0 WHEN 3 THEN 1 ELSE -1 END::bigint"
        ),
        expected_status: 201,
        // The generator's run writes facts and a key of its own before the commit, so only those of the refinement
        // are counted.
        facts_sql: "SELECT count(*) FROM fact WHERE kind = 'use_case.refined'",
        keys_sql: "SELECT count(*) FROM use_case_refinement",
        actor: None,
    }
}

async fn grant_request(remote: &ApiClient) -> ChangeRequest {
    let (use_case, path) = create_use_case(remote).await;
    bind_author(remote).await;
    remote.acting_as(Some(AUTHOR)).create(&path("publish"), &json!({})).await;
    let response = remote.get(&format!("/v1/access-requests?workspace_id={WORKSPACE}&status=pending")).await.unwrap();
    let request = response.body.as_array().unwrap().iter().find(|request| request["use_case_id"] == use_case.as_str());
    let request = request.unwrap()["access_request_id"].as_str().unwrap().to_owned();
    ChangeRequest {
        path: format!("/v1/access-requests/{request}/grant"),
        body: json!({ "secret_bindings": { "token": "env:CRM_TOKEN" } }),
        lock_sql: format!("SELECT FROM use_case WHERE use_case_id = '{use_case}' FOR UPDATE"),
        // Expected effects: the granted request, its connection, and the use case that the last grant activates.
        effect_sql: format!(
            "SELECT CASE (SELECT count(*) FROM access_request WHERE access_request_id = '{request}' AND status = 'granted')
                + (SELECT count(*) FROM connection JOIN access_request USING (tenant_id, connection_id)
                   WHERE access_request_id = '{request}')
                + (SELECT count(*) FROM use_case WHERE use_case_id = '{use_case}' AND status = 'active')
             WHEN 0 THEN 0 WHEN 3 THEN 1 ELSE -1 END::bigint"
        ),
        expected_status: 200,
        facts_sql: FACTS,
        keys_sql: KEYS,
        actor: None,
    }
}

async fn destination_request(_: &ApiClient) -> ChangeRequest {
    let name = Uuid::now_v7().to_string();
    ChangeRequest {
        path: format!("/v1/notifications/workspaces/{WORKSPACE}/destinations"),
        body: json!({
            "destination_type": "webhook", "display_name": name,
            "redacted_metadata": { "url": "https://hooks.example.org/in" }, "is_enabled": true,
        }),
        lock_sql: format!("SELECT FROM workspace WHERE workspace_id = '{WORKSPACE}' FOR UPDATE"),
        effect_sql: format!("SELECT count(*) FROM notification_destination WHERE display_name = '{name}'"),
        expected_status: 201,
        facts_sql: FACTS,
        keys_sql: KEYS,
        actor: None,
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
    let lock_owner = connect(&database.url_for_owner()).await;
    lock_owner.batch_execute("BEGIN").await.unwrap();
    lock_owner.batch_execute(&attempt.lock_sql).await.unwrap();
    let (remote, path, body, own_key) =
        (server.client.acting_as(attempt.actor), attempt.path.clone(), attempt.body.clone(), key.to_owned());
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
    assert_atomic_with("off", decide).await;
}

async fn assert_atomic_with(generator: &str, decide: impl AsyncFn(&ApiClient) -> ChangeRequest) {
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner()).setting("FAIRWAY_GENERATOR", generator);
    let owner = database.connect_as_owner().await.unwrap();
    for crash_point in [CrashPoint::BeforeCommit, CrashPoint::AfterCommit] {
        let mut server = setup.start().await;
        let attempt = decide(&server.client).await;
        server.kill();
        let key = Uuid::now_v7().to_string();
        let (facts, keys) = (attempt.facts_sql, attempt.keys_sql);
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
            let remote = server.client.acting_as(attempt.actor);
            let response = remote.post(&attempt.path, &attempt.body, Some(&key)).await.unwrap();
            // A replayed refinement responds with 200 instead of 201, because it creates nothing.
            let is_replayed_refinement = response.status == 200 && attempt.keys_sql != KEYS;
            let is_expected = response.status == attempt.expected_status || is_replayed_refinement;
            assert!(is_expected, "{crash_point:?}: {response:?}");
            let expected = first_response.get_or_insert_with(|| response.clone());
            for name in [
                "asset_version_id",
                "version_label",
                "release_id",
                "state",
                "created_at",
                "artifact_id",
                "rollout_state",
                "use_case",
                "workload_id",
                "connection_id",
                "destination_id",
                "status",
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

#[tokio::test]
async fn use_case_publication_is_atomic() {
    assert_atomic(publication_request).await;
}

#[tokio::test]
async fn use_case_refinement_is_atomic() {
    assert_atomic_with("on", refinement_request).await;
}

#[tokio::test]
async fn access_grant_is_atomic() {
    assert_atomic(grant_request).await;
}

#[tokio::test]
async fn destination_creation_is_atomic() {
    assert_atomic(destination_request).await;
}
