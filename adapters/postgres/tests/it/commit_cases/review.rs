//! Commits of runs that await a human review, and of their reviews.

use super::{Decision, execution::accepted, store};
use crate::fixture::{Fixture, acceptance, ending, fresh, run_ref, scope, stamp};
use fairway_domain::{
    asset::artifact_store::ArtifactPath,
    evidence::EvidenceArtifact,
    execution::{
        Acceptance, ExecutionOutcome, FinishRecord, Payload, RunError, Status,
        ports::RunStore,
        review::{DeadlineEnforcement, ReviewStore, ReviewedRunEnd},
    },
    policy::Obligation,
};
use serde_json::Map;
use std::time::Duration;

/// The record that ends a run's steps and leaves the run awaiting its review.
fn awaiting_review(run: &Acceptance) -> FinishRecord {
    let ending = ending(run);
    let fact = run_ref(run).review_requested_fact(ending.output.as_ref(), &stamp());
    FinishRecord { status: Status::AwaitingReview, review_timeout: Some(Duration::from_secs(3_600)), fact, ..ending }
}

async fn accepted_run(fixture: &Fixture) -> Acceptance {
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let run = acceptance(&deployed_release);
    accepted(&fixture.store, &run, revisions, None).await.unwrap();
    run
}

/// Ends a run's steps, and requests a review of the run's output.
pub(super) async fn review_request(fixture: &Fixture) -> Decision {
    let run = accepted_run(fixture).await;
    let (ending, id, store) = (awaiting_review(&run), run.execution_id, store(fixture));
    Decision::new(async move |_| store.finish(scope(), &ending).await)
        .stale_after(format!("UPDATE execution_lease SET token = gen_random_uuid() WHERE execution_id = '{id}'"))
        .stale_after(format!("DELETE FROM execution_lease WHERE execution_id = '{id}'"))
}

pub(super) async fn rejected_review(fixture: &Fixture) -> Decision {
    let (decision, id) = review_end(fixture, DeadlineEnforcement::Required).await;
    decision.stale_after(format!("UPDATE execution_review SET lapses_at = fairway_now() WHERE execution_id = '{id}'"))
}

pub(super) async fn expired_review(fixture: &Fixture) -> Decision {
    review_end(fixture, DeadlineEnforcement::NotRequired).await.0
}

async fn review_end(
    fixture: &Fixture,
    deadline_check: DeadlineEnforcement,
) -> (Decision, fairway_domain::id::ExecutionId) {
    let run = accepted_run(fixture).await;
    fixture.store.finish(scope(), &awaiting_review(&run)).await.unwrap();
    let (artifact_id, id, end_stamp) = (fresh(), run.execution_id, stamp());
    let artifact = EvidenceArtifact {
        artifact_id,
        kind: "review",
        storage_ref: ArtifactPath::of_database_evidence(id, artifact_id, "review.json"),
        body: Map::new(),
        payload: Some(Payload { body: r#"{"note":"no"}"#.into(), salt: [4; 16] }),
        created_at: end_stamp.at,
    };
    let end = ReviewedRunEnd {
        execution_id: id,
        status: Status::Denied,
        outcome: ExecutionOutcome::Denied,
        error: Some(RunError::new("review_rejected", "x")),
        artifact: Some(artifact),
        fulfilled: vec![Obligation::HumanReview, Obligation::NotifyOwner],
        deadline_check,
        finished_at: end_stamp.at,
        fact: run_ref(&run).ended_fact(ExecutionOutcome::Denied, None, None, &end_stamp),
    };
    let store = store(fixture);
    let decision = Decision::new(async move |key| store.commit_end(scope(), &end, key.as_ref()).await)
        .stale_after(format!("DELETE FROM execution_review WHERE execution_id = '{id}'"))
        .stale_after(format!("UPDATE execution SET status = 'running' WHERE execution_id = '{id}'"));
    (decision, id)
}
