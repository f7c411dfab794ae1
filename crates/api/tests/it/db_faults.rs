//! Promise R3 in `docs/security.md`: a server applies each request exactly once, although its database connections
//! break before, during and after commits. It never permanently refuses a request whose effect is committed.

mod harness;
mod may_have_happened;

use crate::support::{
    documented_routes::{Route, SIGN_IN_OPERATIONS, routes},
    workspace_fixture::WorkspaceFixture,
};
use fairway_testkit::{
    FaultPoint, FaultProxy, ProxyFault, TestApp,
    app::{Client, Request, Response},
};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::Arc,
    time::{Duration, Instant},
};

/// The probability of a fault for each statement that the server sends, in units of 1/10,000.
const ONE_IN_A_HUNDRED: u64 = 100;

/// The probability of a fault, in the unit of [`ONE_IN_A_HUNDRED`].
const ONE_IN_TWENTY: u64 = 500;

/// Number of attempts after which a refusal counts as permanent.
const MAX_ATTEMPTS: usize = 200;

const RETRY: Duration = Duration::from_millis(20);

/// Time limit for all runs to end. It includes the time until the lease of a lost run expires.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Number of concurrent requests of each kind, so that the server groups their commits.
const CONCURRENT_REQUESTS: usize = 24;

/// Operations that run a workload. For these, the test counts executions instead of rows.
const RUN_OPERATIONS: [&str; 2] = ["execute_workload", "execute_workload_on_lane"];

/// Operations that start a run of the generator. The run writes the same rows as other runs.
const GENERATING_OPERATIONS: [&str; 3] = ["generate_asset_draft", "generate_use_case", "refine_use_case"];

/// The operation that calls a tool, which starts a run.
const TOOL_OPERATION: &str = "call_tool";

/// Cancellation needs an active run, so the row counts never settle. A separate test covers this operation.
const CANCEL_OPERATION: &str = "cancel_execution";

/// Code mode is excluded, because a script is dispatched once and its outcome can be lost. The module `scripts`
/// tests it.
const SCRIPT_OPERATION: &str = "run_code";

/// Tables that background tasks and caches write at any time. Their rows are not counted.
const BACKGROUND_TABLES: &str = "fact_order fact_pending fact_log execution_lease evidence_snapshot chore notification \
    notification_position log_tree";

/// The seeds, and the probability of a fault, of each pass. `FAIRWAY_TEST_SEED` sets the first seed.
fn seeds_and_odds() -> Vec<(u64, u64)> {
    let start = env::var("FAIRWAY_TEST_SEED").map_or(20_260_101, |seed| seed.parse().unwrap());
    let seeds = if fairway_testkit::is_long_form_requested() { 20 } else { 1 };
    let seeds = start..start + seeds;
    seeds.flat_map(|seed| [ONE_IN_A_HUNDRED, ONE_IN_TWENTY].map(|rate| (seed, rate))).collect()
}

/// The number of rows in each table, by table name.
type RowCounts = BTreeMap<String, i64>;

/// Two servers over one database: one with direct connections, and one behind a fault proxy.
struct FaultHarness {
    direct: TestApp,
    proxied: TestApp,
    proxy: Arc<FaultProxy>,
    owner: tokio_postgres::Client,
    count_sql: String,
    fault: ProxyFault,
    /// The status and the added rows of each operation without faults, by operation.
    expected: BTreeMap<String, (u16, RowCounts)>,
    keys: usize,
    /// How often the server behind the proxy responded with each status.
    statuses: BTreeMap<u16, usize>,
}

/// One attempt of a request, with its request identifier.
struct Attempt {
    request_id: String,
    response: Response,
}

/// Every route that reads rows.
fn reading_routes() -> Vec<Route> {
    let reads = |route: &Route| {
        let is_read = route.method == "get" && route.path.starts_with("/v1/");
        is_read && !SIGN_IN_OPERATIONS.contains(&route.operation_id())
    };
    routes().into_iter().filter(reads).collect()
}

/// Every route that changes state, except those that start or cancel runs.
fn changing_routes() -> Vec<Route> {
    let writes = |route: &Route| {
        route.method != "get"
            && !SIGN_IN_OPERATIONS.contains(&route.operation_id())
            && !GENERATING_OPERATIONS.contains(&route.operation_id())
            && !route.is_dry_run()
            && ![RUN_OPERATIONS[0], TOOL_OPERATION, CANCEL_OPERATION, SCRIPT_OPERATION].contains(&route.operation_id())
    };
    routes().into_iter().filter(writes).collect()
}

fn with_key(key: Option<&str>, request: Request) -> Request {
    match key {
        Some(key) => request.idempotency_key(key),
        None => request,
    }
}

/// A request that changes state. Settings are first reset, because an unchanged setting writes nothing.
async fn changing_request(fixture: &WorkspaceFixture<'_>, operation: &str) -> Request {
    let request = fixture.successful_request(operation).await;
    let (first_state, second_state) = match operation {
        "change_tenant_settings" => {
            (json!({ "advanced_notifications_enabled": false }), json!({ "advanced_notifications_enabled": true }))
        }
        "change_environment_settings" => {
            let settings_with = |approvals: u8| {
                json!({
                    "min_approvals": approvals, "allow_self_approval": true, "pin_documents": false,
                })
            };
            (settings_with(1), settings_with(2))
        }
        _ => return request,
    };
    request.clone().json(first_state).await.expect(200);
    request.json(second_state)
}

/// The identifiers of runs in the responses.
fn named_runs(attempts: &[Attempt]) -> BTreeSet<String> {
    let runs = attempts.iter().map(|attempt| attempt.response.json());
    let runs = runs.flat_map(|body| [body["execution_id"].clone(), body["detail"]["execution_id"].clone()]);
    runs.filter_map(|run| run.as_str().map(str::to_owned)).collect()
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "\n{}: {}", self.request_id, self.response)
    }
}

/// A request to a workload whose policy denies every run.
async fn denied_run(fixture: &WorkspaceFixture<'_>) -> Request {
    let deny = json!([{ "id": "no", "condition": "never", "outcome": "allow", "reason_code": "ok" }]);
    let deny = fixture.fixtures.policy_with_rules("deny", deny).await;
    let workload = fixture.fixtures.active_workload_with_policy("denied", deny).await;
    fixture.app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": { "ticket": "x" } }))
}

/// Calls operations whose first call writes additional rows, so that a later call does not. Examples are the namespace
/// of a first workspace and the settings row of an environment.
async fn warm_up(fixture: &WorkspaceFixture<'_>) {
    let first_rows = [
        "create_workspace",
        "change_environment_settings",
        "add_documents",
        "change_preferences",
        "change_workspace_preferences",
        "change_workload_preferences",
        "change_default_profiles",
        "change_notification_profile",
    ];
    for operation in first_rows {
        let response = fixture.successful_request(operation).await.await;
        assert!(response.status < 300, "{response}");
    }
}

/// Sends every operation with random faults. Returns how often each fault point and each response status occurred.
async fn run_all_operations(seed: u64, one_in: u64) -> (BTreeMap<FaultPoint, usize>, BTreeMap<u16, usize>) {
    let mut harness = FaultHarness::start(seed, ProxyFault::Drawn(one_in)).await;
    let direct = Client::clone(&harness.direct);
    let fixture = WorkspaceFixture::create(&direct).await;
    let denied_request = denied_run(&fixture).await;
    warm_up(&fixture).await;
    for route in changing_routes() {
        if route.has_parameter("Idempotency-Key") {
            harness.assert_change(&fixture, route.operation_id(), true).await;
        }
        harness.assert_change(&fixture, route.operation_id(), false).await;
    }
    for operation in RUN_OPERATIONS {
        let request = fixture.successful_request(operation).await;
        harness.assert_run(&request, Some(operation), 200, "").await;
        harness.assert_run(&request, None, 200, "").await;
    }
    harness.assert_run(&denied_request, Some("denied"), 403, "policy_denied").await;
    harness.assert_run(&denied_request, None, 403, "policy_denied").await;
    harness.assert_concurrent_changes(&fixture).await;
    for route in reading_routes() {
        harness.assert_read(&fixture, route.operation_id()).await;
    }
    let mut counts_by_fault = BTreeMap::new();
    for fault in harness.proxy.injected() {
        *counts_by_fault.entry(fault.point).or_default() += 1;
    }
    (counts_by_fault, std::mem::take(&mut harness.statuses))
}

/// Sends each change with each fault point, exactly at the commit of the change.
#[tokio::test]
async fn interrupted_commits_happen_once_or_not_at_all() {
    let mut harness = FaultHarness::start(1, ProxyFault::None).await;
    let direct = Client::clone(&harness.direct);
    let fixture = WorkspaceFixture::create(&direct).await;
    let denied_request = denied_run(&fixture).await;
    warm_up(&fixture).await;
    let changes = changing_routes();
    for fault in [FaultPoint::Before, FaultPoint::After, FaultPoint::Late] {
        harness.fault = ProxyFault::Once("fairway_commit(", fault);
        for route in &changes {
            let keyed = route.has_parameter("Idempotency-Key");
            assert!(
                harness.assert_change(&fixture, route.operation_id(), keyed).await,
                "{fault:?} did not reach a commit of {}",
                route.operation_id()
            );
        }
        for commit in ["INTO execution (", "INTO execution_result ("] {
            harness.fault = ProxyFault::Once(commit, fault);
            let request = fixture.successful_request("execute_workload").await;
            let injected_faults = harness.proxy.injected().len();
            harness.assert_run(&request, Some(&format!("{commit}{fault:?}").replace(' ', "-")), 200, "").await;
            harness.assert_run(&request, None, 200, "").await;
            assert_eq!(harness.proxy.injected().len(), injected_faults + 2, "{fault:?} did not reach {commit}");
        }
        harness.fault = ProxyFault::Once("INTO execution (", fault);
        harness.assert_run(&denied_request, Some(&format!("denied-{fault:?}")), 403, "policy_denied").await;
        harness.assert_run(&denied_request, None, 403, "policy_denied").await;
    }
    let injected_faults = harness.proxy.injected().len();
    println!("{injected_faults} faults, {:?}", harness.statuses);
    assert_eq!(injected_faults, 3 * (changes.len() + 6), "each commit had each fault");
    assert!(harness.statuses[&503] > changes.len(), "faults caused refusals: {:?}", harness.statuses);
}

#[tokio::test]
async fn random_faults_neither_lose_nor_repeat_commits() {
    let (mut total_faults, mut total_statuses) = (BTreeMap::new(), BTreeMap::new());
    for (seed, one_in) in seeds_and_odds() {
        println!("seed {seed}, {one_in} of 10000: FAIRWAY_TEST_SEED={seed} runs it first");
        let started_at = Instant::now();
        let (fault_counts, status_counts) = run_all_operations(seed, one_in).await;
        println!("    {fault_counts:?}, {status_counts:?} after {:.1?}", started_at.elapsed());
        for (fault, times) in fault_counts {
            *total_faults.entry(fault).or_insert(0) += times;
        }
        for (status, times) in status_counts {
            *total_statuses.entry(status).or_insert(0) += times;
        }
    }
    println!("all: {total_faults:?}, {total_statuses:?}");
    assert_eq!(total_faults.len(), 3, "each fault point was injected: {total_faults:?}");
    assert!(total_statuses[&503] > 10, "faults caused refusals: {total_statuses:?}");
}

/// If the database does not return permissions, the server refuses every request, although its caches are warm.
#[tokio::test]
async fn unreadable_permissions_refuse_every_request() {
    let mut harness = FaultHarness::start(1, ProxyFault::None).await;
    let direct = Client::clone(&harness.direct);
    let fixture = WorkspaceFixture::create(&direct).await;
    let is_tested = |route: &Route| {
        let is_exempt = route.operation_id() == CANCEL_OPERATION || SIGN_IN_OPERATIONS.contains(&route.operation_id());
        route.path.starts_with("/v1/") && !is_exempt
    };
    let tested_routes: Vec<Route> = routes().into_iter().filter(is_tested).collect();
    assert!(tested_routes.len() > 40, "{}", tested_routes.len());
    for fault in [ProxyFault::Matching("access_revision"), ProxyFault::Down] {
        for route in &tested_routes {
            let request = fixture.successful_request(route.operation_id()).await;
            // A successful request warms the caches.
            if route.method == "get" {
                assert_eq!(request.clone().to_server(&harness.proxied).await.status, 200, "{}", route.operation_id());
            }
            let rows_before = harness.settled_rows().await;
            harness.proxy.set_fault(fault.clone());
            let response = request.to_server(&harness.proxied).await;
            harness.proxy.set_fault(ProxyFault::None);
            if response.status != 503 {
                panic!("{fault:?}: {response}");
            }
            // A tool call has its own error code for a run whose acceptance is unknown.
            let is_lost =
                route.operation_id() == TOOL_OPERATION && response.json()["detail"].get("execution_id").is_some();
            response.expect_refusal(503, if is_lost { "tool_response_lost" } else { "unavailable" });
            assert_eq!(harness.settled_rows().await, rows_before, "{}", route.operation_id());
            *harness.statuses.entry(response.status).or_default() += 1;
        }
    }
    assert_eq!(harness.statuses, [(503, 2 * tested_routes.len())].into());
}

/// An interrupted cancellation ends the run once. A retry with the same key returns the ended run.
#[tokio::test]
async fn interrupted_cancellation_ends_its_run_once() {
    let harness = FaultHarness::start(1, ProxyFault::None).await;
    let direct = Client::clone(&harness.direct);
    let fixture = WorkspaceFixture::create(&direct).await;
    let mut fault_count = 0;
    for commit in ["SET cancelled_by =", "DELETE FROM execution_lease"] {
        for fault in [FaultPoint::Before, FaultPoint::After, FaultPoint::Late] {
            let request = fixture
                .successful_request(CANCEL_OPERATION)
                .await
                .idempotency_key(&format!("{}-{fault:?}", commit.len()));
            harness.proxy.set_fault(ProxyFault::Once(commit, fault));
            let mut statuses = Vec::new();
            while statuses.last() != Some(&200) {
                let response = request.clone().to_server(&harness.proxied).await;
                assert!(matches!(response.status, 200 | 503), "{response}");
                statuses.push(response.status);
                assert!(statuses.len() < 5, "{commit} {fault:?}: {statuses:?}");
                if response.status == 200 {
                    assert_eq!(response.json()["status"], "cancelled");
                }
            }
            fault_count += 1;
            assert_eq!(harness.proxy.injected().len(), fault_count, "{fault:?} did not reach {commit}");
        }
    }
    harness.proxy.set_fault(ProxyFault::None);
    harness.settled_rows().await;
    let ends_sql = "SELECT count(*) FROM fact WHERE kind = 'execution.ended' AND convert_from(body, 'UTF8') LIKE '%\"cancelled\"%'";
    let end_count: i64 = harness.owner.query_one(ends_sql, &[]).await.unwrap().get(0);
    assert_eq!(usize::try_from(end_count).unwrap(), fault_count);
}
