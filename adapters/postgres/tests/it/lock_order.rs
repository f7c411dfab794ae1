//! A batch locks rows of a table in the order of their identifiers, whatever the order of its items and of rows in
//! other tables.

use crate::fixture::{Fixture, activation, scope, stamp};
use fairway_domain::{
    release::{
        lane::Lane,
        ports::{DeploymentStore, ReleaseStore, ReleaseWithDeployment},
    },
    store::CommitError,
};
use futures_util::future::BoxFuture;
use std::{sync::Arc, time::Duration};
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::Client;
use uuid::Uuid;

const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// A function that commits a change of one release, as an item of a batch.
type Commit = fn(Arc<Fixture>, ReleaseWithDeployment) -> BoxFuture<'static, Result<(), CommitError>>;

fn activate(stage: Arc<Fixture>, placed: ReleaseWithDeployment) -> BoxFuture<'static, Result<(), CommitError>> {
    Box::pin(async move {
        let change = activation(&placed, Some(Lane::Guided));
        stage.store.commit_lane_change(scope(), change, None).await.map(|_| ())
    })
}

fn reopen(stage: Arc<Fixture>, placed: ReleaseWithDeployment) -> BoxFuture<'static, Result<(), CommitError>> {
    Box::pin(async move {
        let change = placed.release.reopen(&placed.deployment, &stamp()).unwrap();
        stage.store.commit_transition(scope(), change, None).await
    })
}

fn id(placed: &ReleaseWithDeployment) -> Uuid {
    placed.release.release_id.uuid()
}

/// Locks a release in a transaction, which `client` leaves open.
async fn lock(client: &Client, release: Uuid) {
    let sql = format!("BEGIN; SELECT FROM release WHERE release_id = '{release}' FOR UPDATE");
    client.batch_execute(&sql).await.unwrap();
}

async fn wait_for_lock_waits(stage: &Fixture, expected: i64) {
    for _ in 0..3_000 {
        if stage.query_number(WAITING).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} statements wait for a lock instead of {expected}", stage.query_number(WAITING).await);
}

/// The number of releases that no transaction has locked.
async fn unlocked(stage: &Fixture, releases: &[ReleaseWithDeployment]) -> i64 {
    let ids: Vec<String> = releases.iter().map(|placed| format!("'{}'", id(placed))).collect();
    let sql = format!(
        "SELECT count(*) FROM (SELECT FROM release WHERE release_id IN ({}) FOR UPDATE SKIP LOCKED) AS free",
        ids.join(", ")
    );
    stage.query_number(&sql).await
}

/// Commits one batch of `releases`. Another transaction has locked the release with the lowest identifier. Asserts
/// that the batch locks no other release while it waits for that one.
async fn assert_lowest_release_is_locked_first(
    stage: Arc<Fixture>,
    first: ReleaseWithDeployment,
    releases: Vec<ReleaseWithDeployment>,
    commit: Commit,
) {
    let (before, lowest) =
        (stage.database.connect_as_owner().await.unwrap(), stage.database.connect_as_owner().await.unwrap());
    // Only one batch runs at a time. All items that arrive while the first batch waits form the next batch.
    lock(&before, id(&first)).await;
    let running: JoinHandle<_> = tokio::spawn(commit(Arc::clone(&stage), first));
    wait_for_lock_waits(&stage, 1).await;
    lock(&lowest, releases.iter().map(id).min().unwrap()).await;
    let mut batch = JoinSet::new();
    for placed in &releases {
        batch.spawn(commit(Arc::clone(&stage), placed.clone()));
    }
    wait_for_lock_waits(&stage, 1).await;
    before.batch_execute("COMMIT").await.unwrap();
    running.await.unwrap().unwrap();
    wait_for_lock_waits(&stage, 1).await;
    assert_eq!(unlocked(&stage, &releases).await, i64::try_from(releases.len()).unwrap() - 1);
    lowest.batch_execute("COMMIT").await.unwrap();
    for result in batch.join_all().await {
        result.unwrap();
    }
}

/// The workloads, and therefore the deployments, have the opposite order of the releases.
#[tokio::test]
async fn lane_changes_lock_releases_by_identifier() {
    let stage = Arc::new(Fixture::new().await);
    let version = stage.bindable().await;
    let first = stage.approved(&stage.workload().await, &version).await;
    let mut workloads = Vec::new();
    for _ in 0..4 {
        workloads.push(stage.workload().await);
    }
    workloads.sort_by_key(|workload| std::cmp::Reverse(workload.workload_id.uuid()));
    let mut releases = Vec::new();
    for workload in &workloads {
        releases.push(stage.approved(workload, &version).await);
    }
    assert!(releases.is_sorted_by_key(id));
    assert_lowest_release_is_locked_first(stage, first, releases, activate).await;
}

/// The items arrive in the opposite order of their identifiers.
#[tokio::test]
async fn transitions_lock_releases_by_identifier() {
    let stage = Arc::new(Fixture::new().await);
    let version = stage.bindable().await;
    let first = stage.submitted(&stage.workload().await, &version).await;
    let mut releases = Vec::new();
    for _ in 0..4 {
        releases.push(stage.submitted(&stage.workload().await, &version).await);
    }
    releases.sort_by_key(|placed| std::cmp::Reverse(id(placed)));
    assert_lowest_release_is_locked_first(stage, first, releases, reopen).await;
}
