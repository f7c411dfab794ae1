//! A commit locks the rows of a table in the order of their identifiers. The order of a batch's items and of the rows
//! in other tables does not matter.

use crate::{
    executions::accepted,
    fixture::{Fixture, activation, ending, scope, stamp},
};
use fairway_domain::{
    execution::{FinishRecord, ports::RunStore},
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

fn activate(
    fixture: Arc<Fixture>,
    deployed_release: ReleaseWithDeployment,
) -> BoxFuture<'static, Result<(), CommitError>> {
    Box::pin(async move {
        let change = activation(&deployed_release, Some(Lane::Guided));
        fixture.store.commit_lane_change(scope(), change, None).await.map(|_| ())
    })
}

fn reopen(
    fixture: Arc<Fixture>,
    deployed_release: ReleaseWithDeployment,
) -> BoxFuture<'static, Result<(), CommitError>> {
    Box::pin(async move {
        let change = deployed_release.release.reopen(&deployed_release.deployment, &stamp()).unwrap();
        fixture.store.commit_transition(scope(), change, None).await
    })
}

fn id(deployed_release: &ReleaseWithDeployment) -> Uuid {
    deployed_release.release.release_id.uuid()
}

/// Locks a release in a transaction, which `client` leaves open.
async fn lock(client: &Client, release: Uuid) {
    let sql = format!("BEGIN; SELECT FROM release WHERE release_id = '{release}' FOR UPDATE");
    client.batch_execute(&sql).await.unwrap();
}

/// Waits until this number of statements wait for a lock.
pub(crate) async fn wait_for_lock_waits(fixture: &Fixture, expected: i64) {
    for _ in 0..3_000 {
        if fixture.query_number(WAITING).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} statements wait for a lock instead of {expected}", fixture.query_number(WAITING).await);
}

/// The number of releases that no transaction has locked.
async fn unlocked(fixture: &Fixture, releases: &[ReleaseWithDeployment]) -> i64 {
    let ids: Vec<String> = releases.iter().map(|deployed_release| format!("'{}'", id(deployed_release))).collect();
    let sql = format!(
        "SELECT count(*) FROM (SELECT FROM release WHERE release_id IN ({}) FOR UPDATE SKIP LOCKED) AS free",
        ids.join(", ")
    );
    fixture.query_number(&sql).await
}

/// Commits one batch of `releases`. Another transaction has locked the release with the lowest identifier. Asserts
/// that the batch locks no other release while it waits for that one.
async fn assert_lowest_release_is_locked_first(
    fixture: Arc<Fixture>,
    first: ReleaseWithDeployment,
    releases: Vec<ReleaseWithDeployment>,
    commit: Commit,
) {
    let (first_lock, lowest_lock) =
        (fixture.database.connect_as_owner().await.unwrap(), fixture.database.connect_as_owner().await.unwrap());
    // Only one batch runs at a time. All items that arrive while the first batch waits form the next batch.
    lock(&first_lock, id(&first)).await;
    let first_commit: JoinHandle<_> = tokio::spawn(commit(Arc::clone(&fixture), first));
    wait_for_lock_waits(&fixture, 1).await;
    lock(&lowest_lock, releases.iter().map(id).min().unwrap()).await;
    let mut batch = JoinSet::new();
    for deployed_release in &releases {
        batch.spawn(commit(Arc::clone(&fixture), deployed_release.clone()));
    }
    wait_for_lock_waits(&fixture, 1).await;
    first_lock.batch_execute("COMMIT").await.unwrap();
    first_commit.await.unwrap().unwrap();
    wait_for_lock_waits(&fixture, 1).await;
    assert_eq!(unlocked(&fixture, &releases).await, i64::try_from(releases.len()).unwrap() - 1);
    lowest_lock.batch_execute("COMMIT").await.unwrap();
    for result in batch.join_all().await {
        result.unwrap();
    }
}

/// The workloads, and therefore the deployments, have the opposite order of the releases.
#[tokio::test]
async fn lane_changes_lock_releases_by_identifier() {
    let fixture = Arc::new(Fixture::new().await);
    let version = fixture.bindable().await;
    let first = fixture.approved(&fixture.workload().await, &version).await;
    let mut workloads = Vec::new();
    for _ in 0..4 {
        workloads.push(fixture.workload().await);
    }
    workloads.sort_by_key(|workload| std::cmp::Reverse(workload.workload_id.uuid()));
    let mut releases = Vec::new();
    for workload in &workloads {
        releases.push(fixture.approved(workload, &version).await);
    }
    assert!(releases.is_sorted_by_key(id));
    assert_lowest_release_is_locked_first(fixture, first, releases, activate).await;
}

/// The items arrive in the opposite order of their identifiers.
#[tokio::test]
async fn transitions_lock_releases_by_identifier() {
    let fixture = Arc::new(Fixture::new().await);
    let version = fixture.bindable().await;
    let first = fixture.submitted(&fixture.workload().await, &version).await;
    let mut releases = Vec::new();
    for _ in 0..4 {
        releases.push(fixture.submitted(&fixture.workload().await, &version).await);
    }
    releases.sort_by_key(|deployed_release| std::cmp::Reverse(id(deployed_release)));
    assert_lowest_release_is_locked_first(fixture, first, releases, reopen).await;
}

/// The ends arrive in the opposite order of their runs.
#[tokio::test]
async fn ends_lock_leases_in_the_order_of_their_runs() {
    let fixture = Arc::new(Fixture::new().await);
    let mut ends = Vec::new();
    for _ in 0..5 {
        ends.push(ending(&accepted(&fixture).await));
    }
    let lock_lease = async |end: &FinishRecord| {
        let client = fixture.database.connect_as_owner().await.unwrap();
        let lock = format!("BEGIN; SELECT FROM execution_lease WHERE execution_id = '{}' FOR UPDATE", end.execution_id);
        client.batch_execute(&lock).await.unwrap();
        client
    };
    let finish = |end: FinishRecord| {
        let fixture = Arc::clone(&fixture);
        async move { fixture.store.finish(scope(), &end).await }
    };
    ends.sort_by_key(|end| std::cmp::Reverse(end.execution_id));
    let first = ends.remove(0);
    // Only one batch runs at a time. All items that arrive while the first batch waits form the next batch.
    let (first_lock, lowest_lock) = (lock_lease(&first).await, lock_lease(&ends[3]).await);
    let first_end = tokio::spawn(finish(first));
    wait_for_lock_waits(&fixture, 1).await;
    let mut batch = JoinSet::new();
    for end in ends {
        batch.spawn(finish(end));
    }
    wait_for_lock_waits(&fixture, 1).await;
    first_lock.batch_execute("COMMIT").await.unwrap();
    first_end.await.unwrap().unwrap();
    wait_for_lock_waits(&fixture, 1).await;
    let unlocked = "SELECT count(*) FROM (SELECT FROM execution_lease FOR UPDATE SKIP LOCKED) AS free";
    assert_eq!(fixture.query_number(unlocked).await, 3);
    lowest_lock.batch_execute("COMMIT").await.unwrap();
    for result in batch.join_all().await {
        result.unwrap();
    }
}

/// The activation of the later release also changes the earlier one, which holds the lane.
#[tokio::test]
async fn activation_locks_the_displaced_release_by_identifier() {
    let fixture = Arc::new(Fixture::new().await);
    let (workload, version) = (fixture.workload().await, fixture.bindable().await);
    let holder = fixture.approved(&workload, &version).await;
    activate(Arc::clone(&fixture), holder.clone()).await.unwrap();
    let successor = fixture.approved(&workload, &version).await;
    assert!(id(&holder) < id(&successor));
    let holder_lock = fixture.database.connect_as_owner().await.unwrap();
    lock(&holder_lock, id(&holder)).await;
    let activation: JoinHandle<_> = tokio::spawn(activate(Arc::clone(&fixture), successor.clone()));
    wait_for_lock_waits(&fixture, 1).await;
    assert_eq!(unlocked(&fixture, &[holder, successor]).await, 1);
    holder_lock.batch_execute("COMMIT").await.unwrap();
    activation.await.unwrap().unwrap();
}

/// A recommendation of a rollback changes the rows of releases that waiting lane changes displace. It changes none of the
/// conditions of these lane changes, so all of them commit.
#[tokio::test]
async fn lane_changes_commit_after_recommendations_about_displaced_releases() {
    let fixture = Arc::new(Fixture::new().await);
    let adviser = fixture.database.connect_as_owner().await.unwrap();
    adviser.batch_execute("BEGIN").await.unwrap();
    let mut changes = Vec::new();
    for _ in 0..3 {
        let (workload, displaced) = fixture.active().await;
        let next = fixture.approved(&workload, &fixture.bindable().await).await;
        let change = activation(&next, None);
        assert_eq!(change.superseded, [displaced.release.release_id]);
        let advise = format!("UPDATE release SET rollback_advised = true WHERE release_id = '{}'", id(&displaced));
        adviser.batch_execute(&advise).await.unwrap();
        changes.push(change);
    }
    let mut commits = JoinSet::new();
    for change in changes {
        let store = Arc::clone(&fixture.store);
        commits.spawn(async move { store.commit_lane_change(scope(), change, None).await });
    }
    wait_for_lock_waits(&fixture, 1).await;
    adviser.batch_execute("COMMIT").await.unwrap();
    for result in commits.join_all().await {
        result.unwrap();
    }
}
