//! The soak status of a rollout, which the rollout controller evaluates.

use crate::fixture::{Fixture, RULE, acceptance, activation, ending, passing_checks, scope, stamp};
use fairway_domain::{
    execution::{
        Acceptance,
        ports::{AcceptOutcome, RunStore},
    },
    release::{
        activate::LaneSelection,
        lane::Lane,
        ports::{DeploymentStore, ReleaseWithDeployment},
        recommendation::EndedRuns,
    },
    rollout::{AdvanceMode, HoldReason, RolloutPlan, ports::RolloutStore},
    workload::Workload,
};

/// Accepts a run on a lane under the current revisions.
async fn accepted_run(
    fixture: &Fixture,
    workload: &Workload,
    release: &fairway_domain::release::Release,
    lane: Lane,
) -> Acceptance {
    let deployed_release = fixture.current_release(release).await;
    let run = Acceptance { lane, ..acceptance(&deployed_release) };
    let revisions = fixture.expected_revisions(workload, &deployed_release).await;
    assert_eq!(fixture.store.accept(scope(), &run, revisions, None).await.unwrap(), AcceptOutcome::Accepted);
    run
}

#[tokio::test]
async fn soak_status_counts_runs_since_the_lane_was_taken() {
    let fixture = Fixture::new().await;
    let workload = fixture.workload().await;
    let release = fixture.approved(&workload, &fixture.bindable().await).await.release;
    let deployed_release = fixture.current_release(&release).await;
    fixture.store.commit_lane_change(scope(), activation(&deployed_release, Some(Lane::Standard)), None).await.unwrap();
    let soak_status = async || fixture.store.soak_status(scope(), release.release_id, 20).await.unwrap();
    assert_eq!(soak_status().await, None, "no rollout is in progress");

    let earlier_run = accepted_run(&fixture, &workload, &release, Lane::Restricted).await;
    let plan = RolloutPlan::new(&[Lane::Restricted, Lane::Guided], 60, AdvanceMode::Automatic).unwrap();
    let deployed_release = fixture.current_release(&release).await;
    let selection = LaneSelection::Planned(plan);
    let change = deployed_release
        .release
        .activate(&selection, &deployed_release.deployment, &passing_checks(), RULE, &stamp())
        .unwrap();
    let soak_start = fixture.store.commit_lane_change(scope(), change, None).await.unwrap();
    let started = fixture.current_release(&release).await.release;
    assert_eq!(started.rollout.as_ref().unwrap().soak_started_at, soak_start.unwrap());
    let other_lane_run = accepted_run(&fixture, &workload, &release, Lane::Standard).await;
    let counted_run = accepted_run(&fixture, &workload, &release, Lane::Restricted).await;
    accepted_run(&fixture, &workload, &release, Lane::Restricted).await;
    for run in [&earlier_run, &other_lane_run] {
        fixture.store.finish(scope(), &ending(run)).await.unwrap();
        assert_eq!(soak_status().await.unwrap().runs, EndedRuns { ended: 0, failed: 0 });
    }
    fixture.store.finish(scope(), &ending(&counted_run)).await.unwrap();
    let status = soak_status().await.unwrap();
    assert_eq!(status.runs.ended, 1, "counts ended runs of the lane since its activation only");
    assert!((3_500..=3_600).contains(&status.soak_seconds_left), "{}", status.soak_seconds_left);
    assert_eq!(fixture.store.list_soaked(None, 10).await.unwrap(), []);
    fixture.database.set_clock_offset(3_600).await.unwrap();
    assert_eq!(soak_status().await.unwrap().soak_seconds_left, 0);
    assert_eq!(fixture.store.list_soaked(None, 10).await.unwrap().len(), 1);
}

/// The rollout controller records a hold between the decision and the commit of a lane change. The hold stays.
#[tokio::test]
async fn lane_changes_keep_the_holds_of_a_rollout_stage() {
    let fixture = Fixture::new().await;
    let workload = fixture.workload().await;
    let approved = fixture.approved(&workload, &fixture.bindable().await).await;
    let plan = RolloutPlan::new(&[Lane::Restricted, Lane::Guided], 60, AdvanceMode::Automatic).unwrap();
    let activate = |deployed: &ReleaseWithDeployment, selection: LaneSelection| {
        deployed.release.activate(&selection, &deployed.deployment, &passing_checks(), RULE, &stamp()).unwrap()
    };
    let start = activate(&approved, LaneSelection::Planned(plan));
    fixture.store.commit_lane_change(scope(), start, None).await.unwrap();
    let started = fixture.current_release(&approved.release).await;
    let change = activate(&started, LaneSelection::One(Lane::Standard));
    let hold = started.release.record_hold(HoldReason::TooFewRuns, &stamp()).unwrap();
    fixture.store.commit_hold(scope(), hold).await.unwrap();
    fixture.store.commit_lane_change(scope(), change, None).await.unwrap();
    let rollout = fixture.current_release(&approved.release).await.release.rollout.clone().unwrap();
    assert_eq!(rollout.hold_reasons, [HoldReason::TooFewRuns]);
}
