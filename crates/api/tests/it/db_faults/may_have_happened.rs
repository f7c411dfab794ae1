//! A refused change reports `may_have_happened` if and only if the server sent its commit.

use super::{
    CANCEL_OPERATION, CONCURRENT_REQUESTS, FaultHarness, changing_request, changing_routes, harness::added_rows,
    reading_routes, warm_up, with_key,
};
use crate::support::workspace_fixture::WorkspaceFixture;
use fairway_testkit::{
    FaultPoint, ProxyFault,
    app::{Client, Request, Response},
};
use futures_util::future::join_all;
use serde_json::{Value, json};

/// A text that the commit statement of every change contains.
const COMMIT: &str = "fairway_commit(";

/// A text of the statement that requests a cancellation.
const CANCEL: &str = "SET cancelled_by =";

/// A text of the statement that commits a group of asset versions.
const VERSION_BATCH: &str = "FOR NO KEY UPDATE OF asset";

/// Maximum rounds of concurrent requests. At least one round must produce a group commit.
const MAX_ROUNDS: usize = 20;

/// Operations on different resources. Each has a commit statement of its own.
const SINGLE_COMMITS: [&str; 6] = [
    "create_asset",
    "create_workload",
    "create_release",
    "create_role_binding",
    "bind_version",
    "change_environment_settings",
];

/// Whether a response is a 503 that reports `may_have_happened`.
fn is_named(response: &Response) -> bool {
    let detail = response.expect_refusal(503, "unavailable");
    assert!(response.header("retry-after").is_some(), "{response}");
    let may_have_happened = detail.get("may_have_happened");
    assert!(may_have_happened.is_none_or(|value| *value == Value::Bool(true)), "{response}");
    may_have_happened.is_some()
}

/// Sends a request once, with the configured fault. Returns the response, and whether the change is committed.
async fn send_once(harness: &FaultHarness, request: Request) -> (Response, bool) {
    let (rows_before, faults_before) = (harness.settled_rows().await, harness.proxy.injected().len());
    harness.proxy.set_fault(harness.fault.clone());
    let response = request.to_server(&harness.proxied).await;
    harness.proxy.set_fault(ProxyFault::None);
    assert!(harness.proxy.injected().len() > faults_before, "{:?} was not injected: {response}", harness.fault);
    (response, !added_rows(&rows_before, &harness.settled_rows().await).is_empty())
}

#[tokio::test]
async fn sent_commits_without_a_response_report_may_have_happened() {
    let mut harness = FaultHarness::start(1, ProxyFault::None).await;
    let direct = Client::clone(&harness.direct);
    let fixture = WorkspaceFixture::create(&direct).await;
    warm_up(&fixture).await;
    for fault in [FaultPoint::After, FaultPoint::Late, FaultPoint::Withheld] {
        harness.fault = ProxyFault::Once(COMMIT, fault);
        for operation in SINGLE_COMMITS {
            for key in [None, Some(format!("{operation}-{fault:?}"))] {
                let request = with_key(
                    key.as_deref().filter(|_| operation != "change_environment_settings"),
                    changing_request(&fixture, operation).await,
                );
                let (response, has_changed) = send_once(&harness, request).await;
                assert!(has_changed, "{fault:?}: {operation} is committed: {response}");
                assert!(is_named(&response), "{fault:?}: {operation} is committed, and not named: {response}");
            }
        }
    }
}

#[tokio::test]
async fn unsent_commits_do_not_report_may_have_happened() {
    let mut harness = FaultHarness::start(1, ProxyFault::None).await;
    let direct = Client::clone(&harness.direct);
    let fixture = WorkspaceFixture::create(&direct).await;
    warm_up(&fixture).await;
    // The connection breaks while it prepares the commit statement, because this server has not prepared any of
    // these statements yet.
    harness.fault = ProxyFault::Matching(COMMIT);
    for operation in SINGLE_COMMITS {
        let request = changing_request(&fixture, operation).await;
        let (response, has_changed) = send_once(&harness, request).await;
        assert!(!has_changed && !is_named(&response), "{operation} was not sent: {response}");
    }
}

/// After the commit of each change, all reads fail. The server must report `may_have_happened`.
#[tokio::test]
async fn failed_reads_after_a_commit_report_may_have_happened() {
    let harness = FaultHarness::start(1, ProxyFault::None).await;
    let direct = Client::clone(&harness.direct);
    let fixture = WorkspaceFixture::create(&direct).await;
    warm_up(&fixture).await;
    let mut unnamed = Vec::new();
    for route in changing_routes() {
        let request = changing_request(&fixture, route.operation_id()).await;
        let rows_before = harness.settled_rows().await;
        harness.proxy.set_fault(ProxyFault::DownAfter(COMMIT));
        let response = request.to_server(&harness.proxied).await;
        harness.proxy.set_fault(ProxyFault::None);
        assert!(harness.settled_rows().await != rows_before, "{} is committed: {response}", route.operation_id());
        if response.status >= 300 && !is_named(&response) {
            unnamed.push(format!("{}: {response}", route.operation_id()));
        }
    }
    assert!(unnamed.is_empty(), "committed, and not named: {unnamed:#?}");
    // The server commits the cancellation request before the run ends.
    for fault in [ProxyFault::DownAfter(CANCEL), ProxyFault::Once(CANCEL, FaultPoint::Withheld)] {
        let request = fixture.successful_request(CANCEL_OPERATION).await;
        harness.proxy.set_fault(fault);
        let response = request.to_server(&harness.proxied).await;
        harness.proxy.set_fault(ProxyFault::None);
        assert!(
            response.status == 200 || is_named(&response),
            "the cancellation is committed, and not named: {response}"
        );
    }
}

/// Creates versions concurrently until the fault hits a group commit. Returns one pair for each refusal of all rounds:
/// whether it reports `may_have_happened`, and whether its version exists. The fault can also hit the commit of one
/// version, because both commits have the same statement; then another round follows.
async fn refused_versions(
    harness: &FaultHarness,
    fixture: &WorkspaceFixture<'_>,
    fault: &ProxyFault,
) -> Vec<(bool, bool)> {
    let mut assets = Vec::new();
    for _ in 0..CONCURRENT_REQUESTS {
        let asset = fixture.successful_request("create_asset").await.await.expect(201);
        assets.push(asset["asset_id"].as_str().unwrap().to_owned());
    }
    let mut refusals = Vec::new();
    for round in 0..MAX_ROUNDS {
        let refusals_before = refusals.len();
        let request = |asset: &String| {
            let content = json!({ "content": { "system_prompt": format!("Round {round}") } });
            harness.direct.post(format!("/v1/assets/{asset}/versions"), content).to_server(&harness.proxied)
        };
        harness.proxy.set_fault(fault.clone());
        let responses = join_all(assets.iter().map(|asset| async { request(asset).await })).await;
        harness.proxy.set_fault(ProxyFault::None);
        harness.settled_rows().await;
        for (asset, response) in assets.iter().zip(&responses) {
            let sql = "SELECT count(*) FROM asset_version WHERE asset_id::text = $1 AND content LIKE $2";
            let row = harness.owner.query_one(sql, &[asset, &format!("%Round {round}\"%")]).await.unwrap();
            let exists = row.get::<_, i64>(0) == 1;
            match response.status {
                201 => assert!(exists, "{response}"),
                _ => refusals.push((is_named(response), exists)),
            }
        }
        if refusals.len() > refusals_before + 1 {
            return refusals;
        }
    }
    panic!("no group commit in {MAX_ROUNDS} rounds");
}

#[tokio::test]
async fn group_commits_report_may_have_happened_if_they_were_sent() {
    let harness = FaultHarness::start(1, ProxyFault::None).await;
    let direct = Client::clone(&harness.direct);
    let fixture = WorkspaceFixture::create(&direct).await;
    let unsent = refused_versions(&harness, &fixture, &ProxyFault::Matching(VERSION_BATCH)).await;
    assert!(unsent.len() > 1, "the batch was refused: {unsent:?}");
    assert!(unsent.iter().all(|refusal| *refusal == (false, false)), "(named, exists): {unsent:?}");
    for fault in [FaultPoint::After, FaultPoint::Late, FaultPoint::Withheld] {
        let refusals = refused_versions(&harness, &fixture, &ProxyFault::Once(VERSION_BATCH, fault)).await;
        assert!(refusals.len() > 1, "{fault:?} refused the batch: {refusals:?}");
        // Requests that wait behind the statement with the withheld response are refused before their own statement
        // is sent.
        assert!(
            refusals.iter().all(|(is_named, exists)| is_named == exists),
            "{fault:?}, (named, exists): {refusals:?}"
        );
        assert!(refusals.contains(&(true, true)), "{fault:?}, (named, exists): {refusals:?}");
    }
}

#[tokio::test]
async fn refused_reads_do_not_report_may_have_happened() {
    let harness = FaultHarness::start(1, ProxyFault::None).await;
    let direct = Client::clone(&harness.direct);
    let fixture = WorkspaceFixture::create(&direct).await;
    for route in reading_routes() {
        let request = fixture.successful_request(route.operation_id()).await;
        harness.proxy.set_fault(ProxyFault::Matching(""));
        let response = request.to_server(&harness.proxied).await;
        harness.proxy.set_fault(ProxyFault::None);
        assert!(!is_named(&response), "{response}");
    }
}
