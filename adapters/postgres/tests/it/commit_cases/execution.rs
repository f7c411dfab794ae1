//! Commits of runs, from acceptance to end.

use super::{Decision, share_link, store};
use crate::fixture::{Fixture, acceptance, claim, ending, fresh, queued, scope};
use fairway_domain::{
    execution::{
        Acceptance,
        dispatch::{LeaseRef, QueuedStart, StartOutcome},
        ports::{AcceptOutcome, ExpectedRevisions, LeaseStore, RunStore},
        progress::ProgressRecord,
    },
    idempotency::KeyedOutcome,
    release::ports::ReleaseWithDeployment,
    store::{CommitError, ConstraintConflict},
    tenant::DEFAULT_TENANT_ID,
    workload::Workload,
};
use fairway_postgres::Database;

pub(super) async fn accept(fixture: &Fixture, run: fn(&ReleaseWithDeployment) -> Acceptance) -> Decision {
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let run = run(&deployed_release);
    let id = workload.workload_id;
    let store = store(fixture);
    Decision::new(async move |key| accepted(&store, &run, revisions, key).await)
        .stale_after(format!("UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{id}'"))
        .stale_after(format!("UPDATE workload SET revision = revision + 1 WHERE workload_id = '{id}'"))
        .stale_after(format!("UPDATE workload SET status = 'suspended' WHERE workload_id = '{id}'"))
        .stale_after(format!(
            "UPDATE tenant SET access_revision = access_revision + 1 WHERE tenant_id = '{DEFAULT_TENANT_ID}'"
        ))
}

/// Converts the outcome of an accept into the error type of other commits.
pub(super) async fn accepted(
    store: &Database,
    run: &Acceptance,
    revisions: ExpectedRevisions,
    key: Option<KeyedOutcome>,
) -> Result<(), CommitError> {
    match store.accept(scope(), run, revisions, key.as_ref().map(|keyed| &keyed.key)).await? {
        AcceptOutcome::Accepted => Ok(()),
        AcceptOutcome::DuplicateKey => Err(CommitError::DuplicateKey),
        AcceptOutcome::Stale => Err(CommitError::Stale),
        AcceptOutcome::QueueFull => panic!("the queue has room"),
        AcceptOutcome::LinkClosed => Err(CommitError::Conflict(ConstraintConflict::ShareLinkClosed)),
    }
}

/// A run that a worker has claimed from the queue.
async fn claimed(fixture: &Fixture) -> (Workload, ReleaseWithDeployment, Acceptance, LeaseRef) {
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let run = queued(&deployed_release);
    accepted(&fixture.store, &run, revisions, None).await.unwrap();
    let claimed_runs = fixture.store.claim(&claim()).await.unwrap();
    let lease =
        claimed_runs.iter().find(|run_of_claim| run_of_claim.execution.execution_id == run.execution_id).unwrap().lease;
    let lease_ref = LeaseRef { execution_id: run.execution_id, lease };
    (workload, deployed_release, run, lease_ref)
}

pub(super) async fn start(fixture: &Fixture) -> Decision {
    let (workload, deployed_release, run, lease_ref) = claimed(fixture).await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let mut acceptance = run;
    acceptance.decision.decision_id = fresh();
    let progress = ProgressRecord { position: 1, ..ProgressRecord::default() };
    let (link, revoke) = share_link::link_and_revocation(fixture, &workload).await;
    let start = QueuedStart {
        acceptance,
        expected_revisions: revisions,
        lease: lease_ref.lease,
        progress,
        share_link: Some(link),
    };
    let (store, id, run) = (store(fixture), workload.workload_id, lease_ref.execution_id);
    Decision::new(async move |_| match store.start(scope(), &start).await? {
        StartOutcome::Started => Ok(()),
        StartOutcome::Stale => Err(CommitError::Stale),
    })
    .stale_after(format!("UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{id}'"))
    .stale_after(format!("UPDATE workload SET revision = revision + 1 WHERE workload_id = '{id}'"))
    .stale_after(format!("UPDATE workload SET status = 'suspended' WHERE workload_id = '{id}'"))
    .stale_after(format!(
        "UPDATE tenant SET access_revision = access_revision + 1 WHERE tenant_id = '{DEFAULT_TENANT_ID}'"
    ))
    .stale_after(revoke)
    .stale_after(format!("UPDATE execution_lease SET token = gen_random_uuid() WHERE execution_id = '{run}'"))
    .stale_after(format!("DELETE FROM execution_lease WHERE execution_id = '{run}'"))
}

pub(super) async fn advance(fixture: &Fixture) -> Decision {
    let (_, _, _, lease_ref) = claimed(fixture).await;
    let progress = ProgressRecord { position: 1, ..ProgressRecord::default() };
    let (store, run) = (store(fixture), lease_ref.execution_id);
    Decision::new(async move |_| store.record_progress(scope(), lease_ref, &progress).await)
        .stale_after(format!("UPDATE execution_lease SET token = gen_random_uuid() WHERE execution_id = '{run}'"))
        .stale_after(format!("DELETE FROM execution_lease WHERE execution_id = '{run}'"))
}

pub(super) async fn finish(fixture: &Fixture) -> Decision {
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let run = acceptance(&deployed_release);
    accepted(&fixture.store, &run, revisions, None).await.unwrap();
    let ending = ending(&run);
    let id = run.execution_id;
    let store = store(fixture);
    Decision::new(async move |_| store.finish(scope(), &ending).await)
        .stale_after(format!("UPDATE execution_lease SET token = gen_random_uuid() WHERE execution_id = '{id}'"))
        .stale_after(format!("DELETE FROM execution_lease WHERE execution_id = '{id}'"))
}
