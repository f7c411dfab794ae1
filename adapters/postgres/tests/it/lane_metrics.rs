//! Metrics of the runs on a lane, which the rollout controller evaluates.

use crate::fixture::{Fixture, RULE, acceptance, activation, ending, passing_checks, scope, stamp};
use fairway_domain::{
    execution::{
        Acceptance,
        ports::{AcceptOutcome, RunStore},
    },
    release::{activate::LaneSelection, lane::Lane, ports::DeploymentStore, recommendation::EndedRuns},
    rollout::{AdvanceMode, RolloutPlan, ports::RolloutStore},
    workload::Workload,
};

/// Accepts a run on a lane under the current revisions.
async fn accepted_run(
    stage: &Fixture,
    workload: &Workload,
    release: &fairway_domain::release::Release,
    lane: Lane,
) -> Acceptance {
    let placed = stage.current_release(release).await;
    let run = Acceptance { lane, ..acceptance(&placed) };
    let on = stage.accepted_on(workload, &placed).await;
    assert_eq!(stage.store.accept(scope(), &run, on, None).await.unwrap(), AcceptOutcome::Accepted);
    run
}

#[tokio::test]
async fn lane_metrics_count_runs_since_the_lane_was_taken() {
    let stage = Fixture::new().await;
    let workload = stage.workload().await;
    let release = stage.approved(&workload, &stage.bindable().await).await.release;
    let placed = stage.current_release(&release).await;
    stage.store.commit_lane_change(scope(), activation(&placed, Some(Lane::Standard)), None).await.unwrap();
    let record = async || stage.store.soak_status(scope(), release.release_id, 20).await.unwrap();
    assert_eq!(record().await, None, "no rollout is in progress");

    let before = accepted_run(&stage, &workload, &release, Lane::Restricted).await;
    let plan = RolloutPlan::new(&[Lane::Restricted, Lane::Guided], 60, AdvanceMode::Automatic).unwrap();
    let placed = stage.current_release(&release).await;
    let selection = LaneSelection::Planned(plan);
    let change = placed.release.activate(&selection, &placed.deployment, &passing_checks(), RULE, &stamp()).unwrap();
    let began = stage.store.commit_lane_change(scope(), change, None).await.unwrap();
    let started = stage.current_release(&release).await.release;
    assert_eq!(started.rollout.as_ref().unwrap().soak_started_at, began.unwrap());
    let elsewhere = accepted_run(&stage, &workload, &release, Lane::Standard).await;
    let counted = accepted_run(&stage, &workload, &release, Lane::Restricted).await;
    accepted_run(&stage, &workload, &release, Lane::Restricted).await;
    for ended in [&before, &elsewhere] {
        stage.store.finish(scope(), &ending(ended)).await.unwrap();
        assert_eq!(record().await.unwrap().runs, EndedRuns { ended: 0, failed: 0 });
    }
    stage.store.finish(scope(), &ending(&counted)).await.unwrap();
    let seen = record().await.unwrap();
    assert_eq!(seen.runs.ended, 1, "counts ended runs of the lane since its activation only");
    assert!((3_500..=3_600).contains(&seen.soak_seconds_left), "{}", seen.soak_seconds_left);
    assert_eq!(stage.store.list_soaked(None, 10).await.unwrap(), []);
    stage.database.move_clock(3_600).await.unwrap();
    assert_eq!(record().await.unwrap().soak_seconds_left, 0);
    assert_eq!(stage.store.list_soaked(None, 10).await.unwrap().len(), 1);
}
