//! Promise R21 in `docs/security.md`: during a database outage, every request gets an immediate 503. After the outage,
//! no acknowledged data is missing.

use crate::{
    api_client::{ApiClient, Response, ResponseResult, WORKSPACE, allow_all_policy, execute_body},
    crashable_postgres::CrashablePostgres,
    server_process::{Server, wait_until},
};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Time limit within which a request must be refused.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of rounds of requests. In at least one round, all requests must be refused within [`REFUSAL_TIMEOUT`].
const ROUNDS: usize = 3;
/// Time limit from the end of the outage to the first success.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Period over which the server's processor use is measured while the database is down.
const OBSERVATION_TIME: Duration = Duration::from_secs(2);
/// Pause between two requests of a client during the outage.
const REQUEST_INTERVAL: Duration = Duration::from_millis(100);
/// A waiting server uses less than 1/[`PROCESSOR_SHARE_DIVISOR`] of a processor.
const PROCESSOR_SHARE_DIVISOR: u32 = 5;
/// Concurrent requests of each of the six kinds. In total, there are more requests than pooled connections.
const CONCURRENT_PER_KIND: usize = 6;

/// Sends one of six kinds of requests, which `number` selects.
async fn send_request(remote: &ApiClient, number: usize, paths: &Paths) -> ResponseResult {
    match number % 6 {
        0 => remote.post(&paths.execute, &execute_body(), None).await,
        1 => remote.post(&paths.execute, &execute_body(), Some(&Uuid::now_v7().to_string())).await,
        2 => remote.get(&paths.execution).await,
        3 => remote.post(&paths.versions, &json!({ "content": allow_all_policy() }), None).await,
        4 => remote.get("/v1/audit/events?limit=5").await,
        _ => remote.get(&paths.active).await,
    }
}

#[derive(Clone)]
struct Paths {
    execute: String,
    execution: String,
    versions: String,
    active: String,
}

impl Paths {
    /// Creates the resources of the paths.
    async fn create(remote: &ApiClient) -> Self {
        let execute = remote.create_active_workload().await;
        let (workload, _) = remote.create_workload().await;
        let release = remote.create_approved_release(workload).await;
        remote.create(&format!("/v1/releases/{release}/transition"), &json!({ "to_state": "active" })).await;
        let versions = format!("/v1/assets/{}/versions", remote.create_asset("policy_bundle").await);
        let first_response = remote.post(&execute, &execute_body(), None).await.unwrap();
        Self {
            execution: format!("/v1/executions/{}", first_response.execution_id().unwrap()),
            execute,
            versions,
            active: format!("/v1/workloads/{workload}/active-release?environment=dev"),
        }
    }
}

/// Sends 12 requests, two of each kind, one after the other. Each must succeed. Returns the runs in the responses.
async fn assert_all_succeed(server: &Server, paths: &Paths) -> Vec<Uuid> {
    let mut runs = Vec::new();
    for number in 0..12 {
        let response = send_request(&server.client, number, paths).await.unwrap();
        assert!(matches!(response.status, 200 | 201), "{response:?}: {}", server.read_log());
        runs.extend(response.execution_id());
    }
    runs
}

/// Sends all kinds of requests concurrently. Returns each response with its duration.
async fn send_all(remote: &ApiClient, paths: &Paths, at_once: usize) -> Vec<(Duration, Response)> {
    let mut requests = JoinSet::new();
    for number in 0..6 * at_once {
        let (remote, paths) = (remote.clone(), paths.clone());
        requests.spawn(async move {
            let started_at = Instant::now();
            let response = send_request(&remote, number, &paths).await.unwrap();
            (started_at.elapsed(), response)
        });
    }
    requests.join_all().await
}

/// Asserts that all requests of a round are refused within [`REFUSAL_TIMEOUT`]. Other programs on the machine can
/// delay a round, so one of [`ROUNDS`] rounds must be fast enough.
async fn assert_prompt_refusals(remote: &ApiClient, paths: &Paths, concurrent: usize) {
    let mut slowest = Vec::new();
    for _ in 0..ROUNDS {
        let responses = send_all(remote, paths, concurrent).await;
        assert!(!responses.is_empty());
        for (_, response) in &responses {
            assert!(response.is_unavailable_with_retry_after(), "{response:?}");
        }
        let longest = responses.iter().map(|(elapsed, _)| *elapsed).max().unwrap();
        if longest < REFUSAL_TIMEOUT {
            return;
        }
        slowest.push(longest);
    }
    panic!("refusals took longer than {REFUSAL_TIMEOUT:?} in each round: {slowest:?}");
}

async fn assert_all_refused_in_time(remote: &ApiClient, paths: &Paths) {
    assert_prompt_refusals(remote, paths, CONCURRENT_PER_KIND).await;
    let started_at = Instant::now();
    let readiness = remote.get("/readyz").await.unwrap();
    assert_eq!((readiness.status, readiness.body["database"].as_str()), (503, Some("unavailable")));
    assert!(started_at.elapsed() < REFUSAL_TIMEOUT, "{:?}", started_at.elapsed());
    assert_eq!(remote.get("/healthz").await.unwrap().status, 200);
}

/// Background tasks and pools retry with backoff, so the server uses almost no processor time during the outage.
async fn assert_low_processor_use(server: &Server, paths: &Paths) {
    let (started_at, before) = (Instant::now(), server.processor_time());
    let mut interval = tokio::time::interval(REQUEST_INTERVAL);
    let mut number = 0;
    while started_at.elapsed() < OBSERVATION_TIME {
        interval.tick().await;
        let response = send_request(&server.client, number, paths).await.unwrap();
        assert!(response.is_unavailable_with_retry_after(), "{response:?}");
        number += 1;
    }
    let (elapsed, processor_time) = (started_at.elapsed(), server.processor_time() - before);
    assert!(
        processor_time * PROCESSOR_SHARE_DIVISOR < elapsed,
        "used {processor_time:?} of processor time in {elapsed:?} without a database"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_promptly_during_an_outage_and_recovers_promptly() {
    fairway_testkit::install_crypto_provider();
    let mut postgres = CrashablePostgres::new();
    let setup = postgres.create_server_setup().await;
    let server = setup.start().await;
    let remote = &server.client;
    let paths = Paths::create(remote).await;

    for _ in 0..2 {
        let acknowledged = assert_all_succeed(&server, &paths).await;
        postgres.crash();
        assert_all_refused_in_time(remote, &paths).await;
        assert_low_processor_use(&server, &paths).await;
        postgres.start();
        let started_at = Instant::now();
        wait_until("the first request succeeds", RECOVERY_TIMEOUT, async || {
            let response = remote.post(&paths.execute, &execute_body(), None).await.unwrap();
            assert!(response.status == 200 || response.is_unavailable_with_retry_after(), "{response:?}");
            response.status == 200
        })
        .await;
        assert!(started_at.elapsed() < RECOVERY_TIMEOUT);
        wait_until("the server is ready", RECOVERY_TIMEOUT, async || {
            remote.get("/readyz").await.unwrap().status == 200
        })
        .await;
        assert_all_succeed(&server, &paths).await;
        for execution in acknowledged {
            let found = remote.get(&format!("/v1/executions/{execution}")).await.unwrap();
            assert_eq!((found.status, found.body["outcome"].as_str()), (200, Some("success")), "{found:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_promptly_while_the_database_hangs() {
    fairway_testkit::install_crypto_provider();
    let postgres = CrashablePostgres::new();
    let setup = postgres.create_server_setup().await;
    let server = setup.start().await;
    let remote = &server.client;
    let paths = Paths::create(remote).await;
    assert_all_succeed(&server, &paths).await;

    let frozen = postgres.pause();
    // There are more requests than fit into one batch, so some requests wait behind others.
    assert_prompt_refusals(remote, &paths, 6 * CONCURRENT_PER_KIND).await;
    drop(frozen);
    wait_until("the server is ready", RECOVERY_TIMEOUT, async || remote.get("/readyz").await.unwrap().status == 200)
        .await;
    assert_all_succeed(&server, &paths).await;
}

/// Clients that create assets one after the other.
const CREATORS: usize = 10;
/// Time during which PostgreSQL does not respond; longer than the server's statement timeout.
const PAUSE: Duration = Duration::from_millis(3_500);
/// Time of normal service before and after each fault.
const CALM: Duration = Duration::from_millis(300);

/// Maximum number of rounds of faults. The test stops at the first round that interrupts a commit.
const MAX_FAULT_ROUNDS: usize = 10;

/// State that the test shares with the clients that create assets.
#[derive(Default)]
struct Creations {
    is_over: AtomicBool,
    /// Number of refusals that report `may_have_happened`.
    reported_count: AtomicUsize,
}

/// Creates assets without idempotency keys until the test ends. Returns the slug of each refused creation, and
/// whether the refusal reports `may_have_happened`.
async fn create_assets(remote: ApiClient, creations: Arc<Creations>) -> Vec<(String, bool)> {
    let mut refusals = Vec::new();
    while !creations.is_over.load(Ordering::Relaxed) {
        let slug = format!("a{}", Uuid::now_v7().simple());
        let body = json!({
            "slug": slug, "asset_kind": "skill", "owner_ref": "team:x", "workspace_id": WORKSPACE,
        });
        let response = remote.post("/v1/assets", &body, None).await.unwrap();
        if response.status != 201 {
            assert!(response.is_unavailable_with_retry_after(), "{response:?}");
            let is_named = response.body.pointer("/detail/may_have_happened") == Some(&json!(true));
            creations.reported_count.fetch_add(usize::from(is_named), Ordering::Relaxed);
            refusals.push((slug, is_named));
        }
    }
    refusals
}

/// PostgreSQL hangs and its connections are terminated while clients create assets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_creations_say_whether_they_may_have_happened() {
    fairway_testkit::install_crypto_provider();
    let postgres = CrashablePostgres::new();
    let setup = postgres.create_server_setup().await;
    let server = setup.start().await;
    let superuser = postgres.connect_as_superuser("fairway").await;
    let creations = Arc::new(Creations::default());
    let mut creators = JoinSet::new();
    for _ in 0..CREATORS {
        creators.spawn(create_assets(server.client.clone(), Arc::clone(&creations)));
    }
    for _ in 0..MAX_FAULT_ROUNDS {
        tokio::time::sleep(CALM).await;
        let paused_processes = postgres.pause();
        tokio::time::sleep(PAUSE).await;
        drop(paused_processes);
        for _ in 0..10 {
            tokio::time::sleep(CALM / 10).await;
            let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'fairway' ORDER BY state_change DESC LIMIT 2";
            superuser.query(terminate, &[]).await.unwrap();
        }
        tokio::time::sleep(CALM).await;
        // The faults of a round may interrupt only reads. Then another round follows.
        if creations.reported_count.load(Ordering::Relaxed) > 0 {
            break;
        }
    }
    creations.is_over.store(true, Ordering::Relaxed);
    let refusals = creators.join_all().await.concat();
    wait_until("abandoned statements end", RECOVERY_TIMEOUT, async || {
        let active = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()";
        superuser.query_one(active, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    let plain_refusals: Vec<&str> =
        refusals.iter().filter(|(_, may_have_happened)| !may_have_happened).map(|(slug, _)| slug.as_str()).collect();
    let unnamed = superuser.query("SELECT slug FROM asset WHERE slug = ANY($1)", &[&plain_refusals]).await.unwrap();
    assert!(refusals.len() > plain_refusals.len(), "no fault met a commit: {refusals:?}");
    assert!(
        unnamed.is_empty(),
        "{} of {} refused creations exist, and are not reported",
        unnamed.len(),
        refusals.len()
    );
}
