//! Group commit: concurrent changes of different aggregates share statements. Each change gets its own result.

use crate::{
    commit_guards::key,
    fixture::{Fixture, acceptance, activation, connect, content, content_with_attachments, fresh, scope, stamp},
};
use fairway_domain::{
    asset::{
        AssetVersion, Lifecycle,
        artifact_store::ArtifactPath,
        canonical::Canonical,
        kind::AssetKind,
        ports::{AssetStore, VersionStore},
    },
    execution::ports::RunStore,
    id::ReleaseId,
    release::{
        Release, ReleaseRecord, StateName,
        deployment::{Deployment, DeploymentRecord},
        lane::Lane,
        ports::{DeploymentStore, ReleaseStore},
    },
    store::{CommitError, Revision},
    workload::ports::WorkloadStore,
};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc};
use tokio::task::JoinSet;
use uuid::Uuid;

const MANY: usize = 40;

/// The release as it would be read at another revision.
fn at_revision(release: &Release, revision: Revision) -> Release {
    Release::restore(ReleaseRecord { revision, ..release.clone().into_record() })
}

/// The number of transactions that wrote facts of this kind. `xmin` identifies the transaction of a row.
async fn transactions(fixture: &Fixture, kind: &str) -> i64 {
    fixture.query_number(&format!("SELECT count(DISTINCT xmin::text) FROM fact WHERE kind = '{kind}'")).await
}

async fn facts(fixture: &Fixture, kind: &str) -> i64 {
    fixture
        .query_number(&format!("SELECT count(*) FROM fact JOIN fact_pending USING (fact_id) WHERE kind = '{kind}'"))
        .await
}

/// Of every eight changes, one uses an outdated deployment, two use an outdated release, and one uses a retired
/// workload. These four write nothing, and the other four are committed.
#[tokio::test]
async fn batched_lane_changes_return_independent_results() {
    let fixture = Arc::new(Fixture::new().await);
    let version = fixture.bindable().await;
    let mut approved = Vec::new();
    for _ in 0..MANY {
        approved.push(fixture.approved(&fixture.workload().await, &version).await.release);
    }
    let kind = "release.transitioned";
    let before = (facts(&fixture, kind).await, transactions(&fixture, kind).await);
    let mut tasks = JoinSet::new();
    for release in approved.iter().skip(5).step_by(8) {
        let workload = release.workload_id;
        fixture.run(&format!("UPDATE workload SET status = 'retired' WHERE workload_id = '{workload}'")).await;
    }
    for (number, release) in approved.iter().enumerate() {
        let (fixture, release) = (Arc::clone(&fixture), release.clone());
        tasks.spawn(async move {
            let deployed_release = fixture.current_release(&release).await;
            let mut outdated = deployed_release.clone();
            match number % 8 {
                1 => {
                    let revision = deployed_release.deployment.revision.next();
                    let fields = DeploymentRecord { revision, ..outdated.deployment.into_record() };
                    outdated.deployment = Deployment::restore(fields);
                }
                2 | 6 => {
                    outdated.release = at_revision(&deployed_release.release, deployed_release.release.revision.next())
                }
                _ => {}
            }
            let change = activation(&outdated, Some(Lane::ALL[number % 3]));
            (number, deployed_release, fixture.store.commit_lane_change(scope(), change, None).await)
        });
    }
    let mut committed = 0;
    for (number, before, result) in tasks.join_all().await {
        let now = fixture.current_release(&before.release).await;
        let lane = Lane::ALL[number % 3];
        let history_rows = format!(
            "SELECT count(*) FROM deployment_history WHERE workload_id = '{}' AND lane = '{}' AND to_release_id = '{}'
                AND from_release_id IS NULL AND reason = 'activation' AND actor = 'user:ada'",
            before.release.workload_id,
            lane.as_str(),
            before.release.release_id
        );
        if matches!(number % 4, 1 | 2) {
            assert!(matches!(result, Err(CommitError::Stale)), "{number}: {result:?}");
            assert_eq!((&now.release.state, &now.deployment), (&before.release.state, &before.deployment), "{number}");
            assert_eq!(
                (now.release.revision, fixture.query_number(&history_rows).await),
                (before.release.revision, 0),
                "{number}"
            );
            continue;
        }
        assert!(matches!(result, Ok(None)), "{number}: {result:?}");
        assert_eq!(now.release.state.name(), StateName::Active);
        assert_eq!(
            (now.release.revision, now.deployment.revision),
            (before.release.revision.next(), before.deployment.revision.next())
        );
        for other in Lane::ALL {
            assert_eq!(now.deployment.holder(other), (other == lane).then_some(before.release.release_id));
        }
        assert_eq!(fixture.query_number(&history_rows).await, 1, "{number}");
        committed += 1;
    }
    assert_eq!(facts(&fixture, kind).await - before.0, committed);
    let transactions = transactions(&fixture, kind).await - before.1;
    assert!(transactions < committed / 2, "{committed} lane changes in {transactions} transactions");
}

#[tokio::test]
async fn batched_transitions_return_independent_results() {
    let fixture = Arc::new(Fixture::new().await);
    let version = fixture.bindable().await;
    let mut submitted = Vec::new();
    for _ in 0..MANY {
        submitted.push(fixture.submitted(&fixture.workload().await, &version).await.release);
    }
    let kind = "release.transitioned";
    let before = (facts(&fixture, kind).await, transactions(&fixture, kind).await);
    let mut tasks = JoinSet::new();
    for (number, release) in submitted.iter().enumerate() {
        let (fixture, release) = (Arc::clone(&fixture), release.clone());
        tasks.spawn(async move {
            let deployed_release = fixture.current_release(&release).await;
            // Of every four releases, one gets two transitions at the same revision, and one gets a transition at an
            // outdated revision.
            let repeated_change = (number % 4 == 1)
                .then(|| deployed_release.release.reopen(&deployed_release.deployment, &stamp()).unwrap());
            let decision_base = match number % 4 {
                2 => at_revision(&deployed_release.release, release.revision.next().next()),
                _ => deployed_release.release.clone(),
            };
            let first = decision_base.reopen(&deployed_release.deployment, &stamp()).unwrap();
            let second = async {
                match repeated_change {
                    Some(repeated_change) => {
                        Some(fixture.store.commit_transition(scope(), repeated_change, None).await)
                    }
                    None => None,
                }
            };
            let (first, second) = tokio::join!(fixture.store.commit_transition(scope(), first, None), second);
            (number, release.release_id, first, second)
        });
    }
    let mut committed: BTreeSet<ReleaseId> = BTreeSet::new();
    for (number, id, first, second) in tasks.join_all().await {
        match number % 4 {
            2 => assert!(matches!(first, Err(CommitError::Stale)), "{number}: {first:?}"),
            1 => {
                let results = [first, second.unwrap()];
                assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{number}: {results:?}");
                assert!(
                    results.iter().any(|result| matches!(result, Err(CommitError::Stale))),
                    "{number}: {results:?}"
                );
                committed.insert(id);
            }
            _ => {
                first.unwrap();
                committed.insert(id);
            }
        }
    }
    assert_eq!(committed.len(), MANY / 4 * 3);
    for release in &submitted {
        let now = fixture.current_release(release).await.release;
        let expected = if committed.contains(&release.release_id) { StateName::Draft } else { StateName::ReviewReady };
        assert_eq!((now.state.name(), now.bindings.len()), (expected, 1));
    }
    let after = (facts(&fixture, kind).await, transactions(&fixture, kind).await);
    assert_eq!(after.0 - before.0, 30, "each transition writes one fact");
    assert!(after.1 - before.1 < 20, "{} transactions", after.1 - before.1);
}

/// While a large version waits for a row lock, small versions of other assets are committed, even if they are
/// submitted later.
#[tokio::test]
async fn large_versions_do_not_delay_small_ones() {
    let fixture = Arc::new(Fixture::new().await);
    let locked_asset = fixture.asset(AssetKind::Skill).await;
    let text = "x".repeat(1 << 20);
    let large = Canonical::of(&json!({ "a": text })).unwrap();
    let large = locked_asset.add_version(fresh(), None, large.into(), &stamp()).unwrap();
    let small_asset = fixture.asset(AssetKind::Skill).await;
    let small = small_asset.add_version(fresh(), None, content().into(), &stamp()).unwrap();
    fixture.run(&format!("BEGIN; SELECT 1 FROM asset WHERE asset_id = '{}' FOR UPDATE", locked_asset.asset_id)).await;
    let large_commit = tokio::spawn({
        let fixture = Arc::clone(&fixture);
        async move { fixture.store.commit_version(scope(), large, None).await }
    });
    let waiting_sql =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    while fixture.query_number(waiting_sql).await == 0 {
        assert!(!large_commit.is_finished(), "the large version did not wait for the lock");
    }
    fixture.store.commit_version(scope(), small, None).await.unwrap();
    assert!(!large_commit.is_finished(), "the small version waited for the large one");
    fixture.run("COMMIT").await;
    assert_eq!(large_commit.await.unwrap().unwrap().version_label.as_str(), "v1");
}

/// Without a limit, two large commits of each of two kinds would occupy all four connections.
#[tokio::test]
async fn large_commits_leave_connections_for_small_statements() {
    let fixture = Arc::new(Fixture::with_connections(4).await);
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let locked_asset = fixture.asset(AssetKind::Skill).await;
    let text = "x".repeat(100_000);
    fixture
        .run(&format!(
            "BEGIN; SELECT 1 FROM asset WHERE asset_id = '{}' FOR UPDATE; LOCK TABLE execution_input",
            locked_asset.asset_id
        ))
        .await;
    let mut commits = JoinSet::new();
    for _ in 0..2 {
        let content = Canonical::of(&json!({ "a": text })).unwrap();
        let version = locked_asset.add_version(fresh(), None, content.into(), &stamp()).unwrap();
        let store = Arc::clone(&fixture.store);
        commits.spawn(async move { store.commit_version(scope(), version, None).await.is_ok() });
        let mut run = acceptance(&deployed_release);
        run.inputs.body = json!({ "ticket": text }).to_string().into();
        let store = Arc::clone(&fixture.store);
        commits.spawn(async move { store.accept(scope(), &run, revisions, None).await.is_ok() });
    }
    // A version with an idempotency key is committed in a statement of its own.
    for _ in 0..2 {
        let content = Canonical::of(&json!({ "a": text })).unwrap();
        let version = locked_asset.add_version(fresh(), None, content.into(), &stamp()).unwrap();
        let key = key(Uuid::now_v7());
        let store = Arc::clone(&fixture.store);
        commits.spawn(async move { store.commit_version(scope(), version, Some(&key)).await.is_ok() });
    }
    let waiting_sql =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    // Within a transaction, `pg_stat_activity` does not change after its first read. The owner's connection has a
    // transaction, so another connection observes.
    let observer = connect(&fixture.database.url_for_owner()).await;
    let waiting_statements = async || observer.query_one(waiting_sql, &[]).await.unwrap().get::<_, i64>(0);
    while waiting_statements().await == 0 {
        assert!(commits.try_join_next().is_none(), "large commits must wait for the locks");
    }
    for _ in 0..20 {
        let read = WorkloadStore::find(&*fixture.store, scope(), workload.workload_id).await;
        assert!(read.as_ref().is_ok_and(Option::is_some), "large commits took all connections: {read:?}");
    }
    assert!(waiting_statements().await <= 2, "large commits take at most half of the connections");
    fixture.run("COMMIT").await;
    commits.join_all().await;
}

#[tokio::test]
async fn batched_versions_return_independent_results() {
    let fixture = Arc::new(Fixture::new().await);
    let mut assets = Vec::new();
    for _ in 0..MANY {
        assets.push(fixture.asset(AssetKind::Skill).await);
    }
    fixture.version(&assets[0], Some("v8")).await;
    for asset in assets.iter().skip(3).step_by(4) {
        let archived = asset.transition_to(Lifecycle::Archived, &stamp()).unwrap();
        fixture.store.commit_lifecycle(scope(), archived, None).await.unwrap();
    }
    let kind = "asset_version.created";
    let before = (facts(&fixture, kind).await, transactions(&fixture, kind).await);
    let mut tasks = JoinSet::new();
    for (number, asset) in assets.into_iter().enumerate() {
        let fixture = Arc::clone(&fixture);
        tasks.spawn(async move {
            // Of every four versions, one has attachments and is committed alone. Of every four assets, one is
            // archived.
            let content = if number % 4 == 2 { content_with_attachments() } else { content().into() };
            let change = asset.add_version(fresh(), None, content, &stamp()).unwrap();
            let expected = change.next.clone();
            (number, expected, fixture.store.commit_version(scope(), change, None).await)
        });
    }
    for (number, expected, result) in tasks.join_all().await {
        let id = expected.asset_version_id;
        let found = fixture.store.find_version(scope(), id).await.unwrap().map(|(_, version)| version);
        if number % 4 == 3 {
            assert!(matches!(result, Err(CommitError::Stale)), "{number}: {result:?}");
            assert!(found.is_none());
            continue;
        }
        let version: AssetVersion = result.unwrap();
        assert_eq!(version.version_label.as_str(), if number == 0 { "v9" } else { "v1" });
        assert_eq!(version.canonical, expected.canonical.text());
        assert_eq!(version.artifact_ref, ArtifactPath::of_version(expected.asset_id, id));
        assert_eq!(found.as_ref(), Some(&version));
    }
    let after = (facts(&fixture, kind).await, transactions(&fixture, kind).await);
    assert_eq!(after.0 - before.0, 30, "each version writes one fact");
    assert!(after.1 - before.1 < 26, "{} transactions, of which ten versions run alone", after.1 - before.1);
}
