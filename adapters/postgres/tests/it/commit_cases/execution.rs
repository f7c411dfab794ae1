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
    store::{CommitError, Conflict},
    tenant::DEFAULT_TENANT,
    workload::Workload,
};
use fairway_postgres::Database;

pub(super) async fn accept(stage: &Fixture, run: fn(&ReleaseWithDeployment) -> Acceptance) -> Decision {
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let run = run(&placed);
    let id = workload.workload_id;
    let store = store(stage);
    Decision::new(async move |key| accepted(&store, &run, on, key).await)
        .stale_after(format!("UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{id}'"))
        .stale_after(format!("UPDATE workload SET revision = revision + 1 WHERE workload_id = '{id}'"))
        .stale_after(format!("UPDATE workload SET status = 'suspended' WHERE workload_id = '{id}'"))
        .stale_after(format!(
            "UPDATE tenant SET access_revision = access_revision + 1 WHERE tenant_id = '{DEFAULT_TENANT}'"
        ))
}

/// Converts the outcome of an accept into the error type of other commits.
pub(super) async fn accepted(
    store: &Database,
    run: &Acceptance,
    on: ExpectedRevisions,
    key: Option<KeyedOutcome>,
) -> Result<(), CommitError> {
    match store.accept(scope(), run, on, key.as_ref().map(|keyed| &keyed.key)).await? {
        AcceptOutcome::Accepted => Ok(()),
        AcceptOutcome::DuplicateKey => Err(CommitError::DuplicateKey),
        AcceptOutcome::Stale => Err(CommitError::Stale),
        AcceptOutcome::QueueFull => panic!("the queue has room"),
        AcceptOutcome::LinkClosed => Err(CommitError::Conflict(Conflict::ShareLinkClosed)),
    }
}

/// A run that a worker has claimed from the queue.
async fn claimed(stage: &Fixture) -> (Workload, ReleaseWithDeployment, Acceptance, LeaseRef) {
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let run = queued(&placed);
    accepted(&stage.store, &run, on, None).await.unwrap();
    let taken = stage.store.claim(&claim()).await.unwrap();
    let lease = taken.iter().find(|taken| taken.execution.execution_id == run.execution_id).unwrap().lease;
    let held = LeaseRef { execution_id: run.execution_id, lease };
    (workload, placed, run, held)
}

pub(super) async fn start(stage: &Fixture) -> Decision {
    let (workload, placed, run, held) = claimed(stage).await;
    let on = stage.accepted_on(&workload, &placed).await;
    let mut acceptance = run;
    acceptance.decision.decision_id = fresh();
    let progress = ProgressRecord { position: 1, ..ProgressRecord::default() };
    let (link, revoke) = share_link::link_and_revocation(stage, &workload).await;
    let start = QueuedStart { acceptance, expected_revisions: on, lease: held.lease, progress, share_link: Some(link) };
    let (store, id, run) = (store(stage), workload.workload_id, held.execution_id);
    Decision::new(async move |_| match store.start(scope(), &start).await? {
        StartOutcome::Started => Ok(()),
        StartOutcome::Stale => Err(CommitError::Stale),
    })
    .stale_after(format!("UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{id}'"))
    .stale_after(format!("UPDATE workload SET revision = revision + 1 WHERE workload_id = '{id}'"))
    .stale_after(format!("UPDATE workload SET status = 'suspended' WHERE workload_id = '{id}'"))
    .stale_after(format!(
        "UPDATE tenant SET access_revision = access_revision + 1 WHERE tenant_id = '{DEFAULT_TENANT}'"
    ))
    .stale_after(revoke)
    .stale_after(format!("UPDATE execution_lease SET token = gen_random_uuid() WHERE execution_id = '{run}'"))
    .stale_after(format!("DELETE FROM execution_lease WHERE execution_id = '{run}'"))
}

pub(super) async fn advance(stage: &Fixture) -> Decision {
    let (_, _, _, held) = claimed(stage).await;
    let progress = ProgressRecord { position: 1, ..ProgressRecord::default() };
    let (store, run) = (store(stage), held.execution_id);
    Decision::new(async move |_| store.record_progress(scope(), held, &progress).await)
        .stale_after(format!("UPDATE execution_lease SET token = gen_random_uuid() WHERE execution_id = '{run}'"))
        .stale_after(format!("DELETE FROM execution_lease WHERE execution_id = '{run}'"))
}

pub(super) async fn finish(stage: &Fixture) -> Decision {
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let run = acceptance(&placed);
    accepted(&stage.store, &run, on, None).await.unwrap();
    let ending = ending(&run);
    let id = run.execution_id;
    let store = store(stage);
    Decision::new(async move |_| store.finish(scope(), &ending).await)
        .stale_after(format!("UPDATE execution_lease SET token = gen_random_uuid() WHERE execution_id = '{id}'"))
        .stale_after(format!("DELETE FROM execution_lease WHERE execution_id = '{id}'"))
}
