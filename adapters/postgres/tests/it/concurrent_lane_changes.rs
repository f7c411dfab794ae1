//! Lanes: each has one holder under concurrent changes, and a contiguous history.

use crate::fixture::{Fixture, activation, scope, stamp};
use fairway_domain::{
    release::{Release, State, lane::Lane, ports::DeploymentStore},
    store::CommitError,
    workload::Workload,
};
use std::{collections::BTreeSet, sync::Arc};
use tokio::task::JoinSet;
use uuid::Uuid;

const MOVERS: usize = 6;
const ROUNDS: usize = 6;

async fn approved(fixture: &Fixture, workload: &Workload) -> Vec<Release> {
    let version = fixture.bindable().await;
    let mut releases = Vec::new();
    for _ in 0..MOVERS {
        releases.push(fixture.approved(workload, &version).await.release);
    }
    releases
}

/// Asserts that each lane's history is one path that ends at the lane's holder, and that exactly the holders are
/// active.
async fn assert_invariants(fixture: &Fixture, workload: &Workload) {
    let id = workload.workload_id;
    let sql = format!(
        "SELECT lane, revision, from_release_id, to_release_id FROM deployment_history
         WHERE workload_id = '{id}' ORDER BY revision"
    );
    let rows = fixture.owner.query(&sql, &[]).await.unwrap();
    let deployment =
        fixture.store.deployment(scope(), workload.workload_id, &crate::fixture::environment()).await.unwrap();
    let deployment = deployment.unwrap();
    let mut revisions = BTreeSet::new();
    for lane in Lane::ALL {
        let mut holder: Option<Uuid> = None;
        for row in rows.iter().filter(|row| row.get::<_, &str>("lane") == lane.as_str()) {
            assert_eq!(row.get::<_, Option<Uuid>>("from_release_id"), holder, "{lane:?}");
            holder = row.get("to_release_id");
            revisions.insert(row.get::<_, i64>("revision"));
        }
        assert_eq!(deployment.holder(lane).map(|id| id.uuid()), holder, "{lane:?}");
    }
    let expected: BTreeSet<i64> = (2..=deployment.revision.get()).collect();
    assert_eq!(revisions, expected, "the history has one entry for each revision");
    let holders: BTreeSet<Uuid> =
        Lane::ALL.into_iter().filter_map(|lane| deployment.holder(lane)).map(|id| id.uuid()).collect();
    let sql = format!("SELECT release_id FROM release WHERE workload_id = '{id}' AND state = 'active'");
    let active = fixture.owner.query(&sql, &[]).await.unwrap();
    assert_eq!(active.iter().map(|row| row.get(0)).collect::<BTreeSet<Uuid>>(), holders);
}

#[tokio::test]
async fn one_of_concurrent_changes_on_one_revision_commits() {
    let fixture = Fixture::new().await;
    let workload = fixture.workload().await;
    let mut changes = Vec::new();
    for release in approved(&fixture, &workload).await {
        changes.push(activation(&fixture.current_release(&release).await, None));
    }
    let mut tasks = JoinSet::new();
    for change in changes {
        let store = Arc::clone(&fixture.store);
        tasks.spawn(async move { store.commit_lane_change(scope(), change, None).await });
    }
    let results = tasks.join_all().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let stale = results.iter().filter(|result| matches!(result, Err(CommitError::Stale))).count();
    assert_eq!(stale, MOVERS - 1, "{results:?}");
    assert_invariants(&fixture, &workload).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_lane_changes_keep_one_holder_and_a_contiguous_history() {
    let fixture = Arc::new(Fixture::new().await);
    let workload = fixture.workload().await;
    let releases = approved(&fixture, &workload).await;
    let mut tasks = JoinSet::new();
    for (number, release) in releases.into_iter().enumerate() {
        let fixture = Arc::clone(&fixture);
        tasks.spawn(async move {
            let mut committed = 0;
            for round in 0..ROUNDS {
                let deployed_release = fixture.current_release(&release).await;
                let lane = Lane::ALL[(number + round) % 3];
                let change = match deployed_release.release.state {
                    State::Approved { .. } | State::Active { .. } if round + 1 < ROUNDS => {
                        if deployed_release.deployment.holder(lane) == Some(release.release_id) {
                            continue;
                        }
                        activation(&deployed_release, Some(lane))
                    }
                    State::Draft
                    | State::ReviewReady { .. }
                    | State::Approved { .. }
                    | State::Active { .. }
                    | State::Superseded { .. } => {
                        deployed_release.release.retire(&deployed_release.deployment, &stamp()).unwrap()
                    }
                    State::Retired { .. } => break,
                };
                match fixture.store.commit_lane_change(scope(), change, None).await {
                    Ok(_) => committed += 1,
                    Err(CommitError::Stale) => {}
                    Err(error) => panic!("concurrent lane changes wait for each other and never fail: {error:?}"),
                }
            }
            committed
        });
    }
    let committed: usize = tasks.join_all().await.into_iter().sum();
    assert!(committed >= ROUNDS, "{committed} lane changes were committed");
    assert_invariants(&fixture, &workload).await;
}
