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
        lane::{Deployment, DeploymentRecord, Lane},
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
async fn transactions(stage: &Fixture, kind: &str) -> i64 {
    stage.query_number(&format!("SELECT count(DISTINCT xmin::text) FROM fact WHERE kind = '{kind}'")).await
}

async fn facts(stage: &Fixture, kind: &str) -> i64 {
    stage
        .query_number(&format!("SELECT count(*) FROM fact JOIN fact_pending USING (fact_id) WHERE kind = '{kind}'"))
        .await
}

/// Of every eight changes, one uses an outdated deployment, two use an outdated release, and one uses a retired
/// workload. These four write nothing, and the other four are committed.
#[tokio::test]
async fn batched_lane_changes_return_independent_results() {
    let stage = Arc::new(Fixture::new().await);
    let version = stage.bindable().await;
    let mut approved = Vec::new();
    for _ in 0..MANY {
        approved.push(stage.approved(&stage.workload().await, &version).await.release);
    }
    let kind = "release.transitioned";
    let before = (facts(&stage, kind).await, transactions(&stage, kind).await);
    let mut movers = JoinSet::new();
    for release in approved.iter().skip(5).step_by(8) {
        let workload = release.workload_id;
        stage.run(&format!("UPDATE workload SET status = 'retired' WHERE workload_id = '{workload}'")).await;
    }
    for (number, release) in approved.iter().enumerate() {
        let (stage, release) = (Arc::clone(&stage), release.clone());
        movers.spawn(async move {
            let placed = stage.current_release(&release).await;
            let mut outdated = placed.clone();
            match number % 8 {
                1 => {
                    let revision = placed.deployment.revision.next();
                    let fields = DeploymentRecord { revision, ..outdated.deployment.into_record() };
                    outdated.deployment = Deployment::restore(fields);
                }
                2 | 6 => outdated.release = at_revision(&placed.release, placed.release.revision.next()),
                _ => {}
            }
            let change = activation(&outdated, Some(Lane::ALL[number % 3]));
            (number, placed, stage.store.commit_lane_change(scope(), change, None).await)
        });
    }
    let mut moved = 0;
    for (number, before, answer) in movers.join_all().await {
        let now = stage.current_release(&before.release).await;
        let lane = Lane::ALL[number % 3];
        let told = format!(
            "SELECT count(*) FROM deployment_history WHERE workload_id = '{}' AND lane = '{}' AND to_release_id = '{}'
                AND from_release_id IS NULL AND reason = 'activation' AND actor = 'user:ada'",
            before.release.workload_id,
            lane.as_str(),
            before.release.release_id
        );
        if matches!(number % 4, 1 | 2) {
            assert!(matches!(answer, Err(CommitError::Stale)), "{number}: {answer:?}");
            assert_eq!((&now.release.state, &now.deployment), (&before.release.state, &before.deployment), "{number}");
            assert_eq!(
                (now.release.revision, stage.query_number(&told).await),
                (before.release.revision, 0),
                "{number}"
            );
            continue;
        }
        assert!(matches!(answer, Ok(None)), "{number}: {answer:?}");
        assert_eq!(now.release.state.name(), StateName::Active);
        assert_eq!(
            (now.release.revision, now.deployment.revision),
            (before.release.revision.next(), before.deployment.revision.next())
        );
        for other in Lane::ALL {
            assert_eq!(now.deployment.holder(other), (other == lane).then_some(before.release.release_id));
        }
        assert_eq!(stage.query_number(&told).await, 1, "{number}");
        moved += 1;
    }
    assert_eq!(facts(&stage, kind).await - before.0, moved);
    let transactions = transactions(&stage, kind).await - before.1;
    assert!(transactions < moved / 2, "{moved} lane changes in {transactions} transactions");
}

#[tokio::test]
async fn batched_transitions_return_independent_results() {
    let stage = Arc::new(Fixture::new().await);
    let version = stage.bindable().await;
    let mut submitted = Vec::new();
    for _ in 0..MANY {
        submitted.push(stage.submitted(&stage.workload().await, &version).await.release);
    }
    let kind = "release.transitioned";
    let before = (facts(&stage, kind).await, transactions(&stage, kind).await);
    let mut movers = JoinSet::new();
    for (number, release) in submitted.iter().enumerate() {
        let (stage, release) = (Arc::clone(&stage), release.clone());
        movers.spawn(async move {
            let placed = stage.current_release(&release).await;
            // Of every four releases, one gets two transitions at the same revision, and one gets a transition at an
            // outdated revision.
            let twin = (number % 4 == 1).then(|| placed.release.reopen(&placed.deployment, &stamp()).unwrap());
            let seen = match number % 4 {
                2 => at_revision(&placed.release, release.revision.next().next()),
                _ => placed.release.clone(),
            };
            let first = seen.reopen(&placed.deployment, &stamp()).unwrap();
            let second = async {
                match twin {
                    Some(twin) => Some(stage.store.commit_transition(scope(), twin, None).await),
                    None => None,
                }
            };
            let (first, second) = tokio::join!(stage.store.commit_transition(scope(), first, None), second);
            (number, release.release_id, first, second)
        });
    }
    let mut moved: BTreeSet<ReleaseId> = BTreeSet::new();
    for (number, id, first, second) in movers.join_all().await {
        match number % 4 {
            2 => assert!(matches!(first, Err(CommitError::Stale)), "{number}: {first:?}"),
            1 => {
                let both = [first, second.unwrap()];
                assert_eq!(both.iter().filter(|answer| answer.is_ok()).count(), 1, "{number}: {both:?}");
                assert!(both.iter().any(|answer| matches!(answer, Err(CommitError::Stale))), "{number}: {both:?}");
                moved.insert(id);
            }
            _ => {
                first.unwrap();
                moved.insert(id);
            }
        }
    }
    assert_eq!(moved.len(), MANY / 4 * 3);
    for release in &submitted {
        let now = stage.current_release(release).await.release;
        let expected = if moved.contains(&release.release_id) { StateName::Draft } else { StateName::ReviewReady };
        assert_eq!((now.state.name(), now.bindings.len()), (expected, 1));
    }
    let after = (facts(&stage, kind).await, transactions(&stage, kind).await);
    assert_eq!(after.0 - before.0, 30, "each transition writes one fact");
    assert!(after.1 - before.1 < 20, "{} transactions", after.1 - before.1);
}

/// While a large version waits for a row lock, small versions of other assets are committed, even if they are
/// submitted later.
#[tokio::test]
async fn large_versions_do_not_delay_small_ones() {
    let stage = Arc::new(Fixture::new().await);
    let held = stage.asset(AssetKind::Skill).await;
    let text = "x".repeat(1 << 20);
    let heavy = Canonical::of(&json!({ "a": text })).unwrap();
    let heavy = held.add_version(fresh(), None, heavy.into(), &stamp()).unwrap();
    let light_asset = stage.asset(AssetKind::Skill).await;
    let light = light_asset.add_version(fresh(), None, content().into(), &stamp()).unwrap();
    stage.run(&format!("BEGIN; SELECT 1 FROM asset WHERE asset_id = '{}' FOR UPDATE", held.asset_id)).await;
    let making = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move { stage.store.commit_version(scope(), heavy, None).await }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    while stage.query_number(waits).await == 0 {
        assert!(!making.is_finished(), "the large version did not wait for the lock");
    }
    stage.store.commit_version(scope(), light, None).await.unwrap();
    assert!(!making.is_finished(), "the small version waited for the large one");
    stage.run("COMMIT").await;
    assert_eq!(making.await.unwrap().unwrap().version_label.as_str(), "v1");
}

/// Without a limit, two large commits of each of two kinds would occupy all four connections.
#[tokio::test]
async fn large_commits_leave_connections_for_small_statements() {
    let stage = Arc::new(Fixture::with_connections(4).await);
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let held = stage.asset(AssetKind::Skill).await;
    let text = "x".repeat(100_000);
    stage
        .run(&format!(
            "BEGIN; SELECT 1 FROM asset WHERE asset_id = '{}' FOR UPDATE; LOCK TABLE execution_input",
            held.asset_id
        ))
        .await;
    let mut commits = JoinSet::new();
    for _ in 0..2 {
        let content = Canonical::of(&json!({ "a": text })).unwrap();
        let version = held.add_version(fresh(), None, content.into(), &stamp()).unwrap();
        let store = Arc::clone(&stage.store);
        commits.spawn(async move { store.commit_version(scope(), version, None).await.is_ok() });
        let mut run = acceptance(&placed);
        run.inputs.body = json!({ "ticket": text }).to_string().into();
        let store = Arc::clone(&stage.store);
        commits.spawn(async move { store.accept(scope(), &run, on, None).await.is_ok() });
    }
    // A version with an idempotency key is committed in a statement of its own.
    for _ in 0..2 {
        let content = Canonical::of(&json!({ "a": text })).unwrap();
        let version = held.add_version(fresh(), None, content.into(), &stamp()).unwrap();
        let key = key(Uuid::now_v7());
        let store = Arc::clone(&stage.store);
        commits.spawn(async move { store.commit_version(scope(), version, Some(&key)).await.is_ok() });
    }
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    // Within a transaction, `pg_stat_activity` does not change after its first read. The owner's connection has a
    // transaction, so another connection observes.
    let observer = connect(&stage.database.url()).await;
    let waiting = async || observer.query_one(waits, &[]).await.unwrap().get::<_, i64>(0);
    while waiting().await == 0 {
        assert!(commits.try_join_next().is_none(), "large commits must wait for the locks");
    }
    for _ in 0..20 {
        let read = WorkloadStore::find(&*stage.store, scope(), workload.workload_id).await;
        assert!(read.as_ref().is_ok_and(Option::is_some), "large commits took all connections: {read:?}");
    }
    assert!(waiting().await <= 2, "large commits take at most half of the connections");
    stage.run("COMMIT").await;
    commits.join_all().await;
}

#[tokio::test]
async fn batched_versions_return_independent_results() {
    let stage = Arc::new(Fixture::new().await);
    let mut assets = Vec::new();
    for _ in 0..MANY {
        assets.push(stage.asset(AssetKind::Skill).await);
    }
    stage.version(&assets[0], Some("v8")).await;
    for asset in assets.iter().skip(3).step_by(4) {
        let archived = asset.transition_to(Lifecycle::Archived, &stamp()).unwrap();
        stage.store.commit_lifecycle(scope(), archived, None).await.unwrap();
    }
    let kind = "asset_version.created";
    let before = (facts(&stage, kind).await, transactions(&stage, kind).await);
    let mut makers = JoinSet::new();
    for (number, asset) in assets.into_iter().enumerate() {
        let stage = Arc::clone(&stage);
        makers.spawn(async move {
            // Of every four versions, one has attachments and is committed alone. Of every four assets, one is
            // archived.
            let content = if number % 4 == 2 { content_with_attachments() } else { content().into() };
            let change = asset.add_version(fresh(), None, content, &stamp()).unwrap();
            let expected = change.next.clone();
            (number, expected, stage.store.commit_version(scope(), change, None).await)
        });
    }
    for (number, expected, answer) in makers.join_all().await {
        let id = expected.asset_version_id;
        let found = stage.store.find_version(scope(), id).await.unwrap().map(|(_, version)| version);
        if number % 4 == 3 {
            assert!(matches!(answer, Err(CommitError::Stale)), "{number}: {answer:?}");
            assert!(found.is_none());
            continue;
        }
        let made: AssetVersion = answer.unwrap();
        assert_eq!(made.version_label.as_str(), if number == 0 { "v9" } else { "v1" });
        assert_eq!(made.canonical, expected.canonical.text());
        assert_eq!(made.artifact_ref, ArtifactPath::of_version(expected.asset_id, id));
        assert_eq!(found.as_ref(), Some(&made));
    }
    let after = (facts(&stage, kind).await, transactions(&stage, kind).await);
    assert_eq!(after.0 - before.0, 30, "each version writes one fact");
    assert!(after.1 - before.1 < 26, "{} transactions, of which ten versions run alone", after.1 - before.1);
}
