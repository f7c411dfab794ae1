//! Submission of a run in a task of its own, which continues after the client disconnects.
//!
//! Between the commit and the first step, only the request knows of the run. A cancelled request would leave it idle
//! until its lease expires.

use super::{
    engine::RunEngine,
    run::{ActiveRun, InlineRun, RunHandle, accepted_execution},
};
use crate::{Failure, RunRefusal};
use fairway_domain::{
    execution::{
        Acceptance, Admission, Execution, ExecutionOutcome, Status,
        observer::ObservedWorkload,
        ports::{AcceptOutcome, ExpectedRevisions},
    },
    id::ExecutionId,
    idempotency::RequestKey,
    store::{CommitError, StoreError, StoreFault},
    tenant::TenantScope,
    wakeup::Wakeup,
};
use std::time::Duration;
use tokio::time::timeout;
use tracing::Instrument as _;

/// Timeout of the lookup of a run whose accept statement got no response: the caller has already waited.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(100);

/// A run to accept if the revisions of its decision still hold.
pub(super) struct Submission {
    /// The run with its state in this process.
    pub(super) run: ActiveRun,
    /// The execution in this process, if the run is admitted to it.
    pub(super) inline: Option<InlineRun>,
    /// The revisions of the decision.
    pub(super) expected_revisions: ExpectedRevisions,
    /// The idempotency key of the request.
    pub(super) key: Option<RequestKey>,
}

/// The outcome of a submission.
pub(super) enum SubmitOutcome {
    /// Not accepted: a revision of the decision changed.
    Stale,
    /// Not accepted: another request took the key.
    KeyTaken,
    /// Not accepted: the tenant has reached its limit of queued runs.
    QueueFull,
    /// Not accepted: the share link starts no more runs.
    LinkClosed,
    /// The policy denied the run, and the denial is stored.
    Denied(Execution),
    /// The run is queued.
    Queued(Execution),
    /// The run executes in this process.
    Started(RunHandle),
}

impl Submission {
    /// Submits the run in a task of its own.
    ///
    /// # Errors
    /// When the store fails, or the outcome of the commit is unknown.
    pub(super) async fn submit(self) -> Result<SubmitOutcome, Failure> {
        let receiving = tokio::spawn(self.accept_and_begin().in_current_span());
        receiving.await.map_err(|_| Failure::Inconsistent("the task that submits a run panicked"))?
    }

    async fn accept_and_begin(self) -> Result<SubmitOutcome, Failure> {
        let Self { run: running, inline, expected_revisions: on, key } = self;
        let (engine, scope) = (running.engine.clone(), running.scope);
        let acceptance = &running.acceptance;
        let accepted = match engine.run_store.accept(scope, acceptance, on, key.as_ref()).await {
            // The statement may be committed although no response arrived, so the run is looked up.
            Err(CommitError::Store(error)) => {
                let found = engine.find_accepted(scope, acceptance.execution_id, error).await;
                found.map_err(|failure| submit_failure(&acceptance.admission, failure))?
            }
            accepted => accepted?,
        };
        match accepted {
            AcceptOutcome::Stale => return Ok(SubmitOutcome::Stale),
            AcceptOutcome::DuplicateKey => return Ok(SubmitOutcome::KeyTaken),
            AcceptOutcome::QueueFull => return Ok(SubmitOutcome::QueueFull),
            AcceptOutcome::LinkClosed => return Ok(SubmitOutcome::LinkClosed),
            AcceptOutcome::Accepted => {}
        }
        Ok(match (&acceptance.admission, inline) {
            (Admission::Deny(_), _) => {
                engine.context.notify_facts();
                let workload =
                    ObservedWorkload { id: acceptance.workload_id, slug: Some(running.facts.workload_slug.as_str()) };
                engine.run_observer.run_ended(workload, Status::Denied, Duration::ZERO);
                SubmitOutcome::Denied(denied_execution(acceptance))
            }
            (Admission::Queue { .. } | Admission::Run { .. } | Admission::Script { .. }, None) => {
                engine.wakeup_sender.publish(Wakeup::RunQueued);
                SubmitOutcome::Queued(accepted_execution(acceptance, Status::Queued, None))
            }
            (Admission::Queue { .. } | Admission::Run { .. } | Admission::Script { .. }, Some(inline)) => {
                SubmitOutcome::Started(running.spawn(inline))
            }
        })
    }
}

impl RunEngine {
    /// Determines whether a statement without a response accepted the run. An absent run may still be committed, so
    /// the refusal names its identifier.
    pub(super) async fn find_accepted(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        error: StoreError,
    ) -> Result<AcceptOutcome, Failure> {
        match (timeout(LOOKUP_TIMEOUT, self.execution_store.find(scope, id)).await, error.fault) {
            (Ok(Ok(Some(_))), _) => Ok(AcceptOutcome::Accepted),
            (Ok(Ok(None)), StoreFault::Inconsistent) => Err(Failure::Store(error)),
            (Ok(Ok(None) | Err(_)) | Err(_), StoreFault::Unavailable | StoreFault::OutcomeUnknown)
            | (Ok(Err(_)) | Err(_), StoreFault::Inconsistent) => {
                tracing::warn!(
                    tenant_id = %scope.tenant(),
                    execution_id = %id,
                    error = &error as &dyn std::error::Error,
                    "failed to determine whether a run was accepted; refusing the request"
                );
                Err(RunRefusal::AcceptanceUnknown(id).into())
            }
        }
    }
}

/// The failure of a submission. A script that the store rejects for any reason is reported as unavailable.
fn submit_failure(admission: &Admission, failure: Failure) -> Failure {
    match (admission, failure) {
        (Admission::Script { .. }, Failure::Store(error)) if error.fault == StoreFault::Inconsistent => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "failed to store a script run; refusing it as unavailable"
            );
            Failure::Store(StoreError { fault: StoreFault::Unavailable, ..error })
        }
        (_, failure) => failure,
    }
}

fn denied_execution(acceptance: &Acceptance) -> Execution {
    accepted_execution(acceptance, Status::Denied, Some((ExecutionOutcome::Denied, acceptance.started_at)))
}
