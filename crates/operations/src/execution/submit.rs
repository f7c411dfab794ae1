//! Submission of a run in a separate task, which continues after the client disconnects.
//!
//! Between the commit and the first step, only the task of the submission can start the run. If a disconnect
//! cancelled it, the run would be idle until its lease expires.

use super::{
    engine::RunEngine,
    run::{ActiveRun, InlineRun, RunHandle, accepted_execution},
};
use crate::{Failure, RunRefusal};
use fairway_domain::{
    execution::{
        Acceptance, AdmissionDecision, Execution, ExecutionOutcome, Status,
        ports::{AcceptOutcome, ExpectedRevisions},
        run_metrics_observer::ObservedWorkload,
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

/// Timeout of the search for a run whose accept statement returned no response. It is short because the caller has
/// already waited.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(100);

/// A run to accept, provided that the revisions of its decision are still current.
pub(super) struct Submission {
    /// The run, with the state that this process needs to execute it.
    pub(super) run: ActiveRun,
    /// The parts for execution in this process; `None` for a run that is denied or queued.
    pub(super) inline: Option<InlineRun>,
    /// The revisions on which the decision is based.
    pub(super) expected_revisions: ExpectedRevisions,
    /// The idempotency key of the request, if any.
    pub(super) key: Option<RequestKey>,
}

/// The outcome of a submission.
pub(super) enum SubmitOutcome {
    /// Not accepted: a revision of the decision changed.
    Stale,
    /// Not accepted: another request has used the idempotency key.
    KeyTaken,
    /// Not accepted: the tenant has reached its limit of queued runs.
    QueueFull,
    /// Not accepted: the share link can start no more runs.
    LinkClosed,
    /// The policy denied the run, and the denial is stored.
    Denied(Execution),
    /// The run is queued.
    Queued(Execution),
    /// The run executes in this process.
    Started(RunHandle),
}

impl Submission {
    /// Submits the run in a separate task.
    ///
    /// # Errors
    /// When the store fails, or the outcome of the commit is unknown.
    pub(super) async fn submit(self) -> Result<SubmitOutcome, Failure> {
        let task = tokio::spawn(self.accept_and_begin().in_current_span());
        task.await.map_err(|_| Failure::Inconsistent("the task that submits a run panicked"))?
    }

    async fn accept_and_begin(self) -> Result<SubmitOutcome, Failure> {
        let Self { run: active_run, inline, expected_revisions, key } = self;
        let (engine, scope) = (active_run.engine.clone(), active_run.scope);
        let acceptance = &active_run.acceptance;
        let accepted = match engine.run_store.accept(scope, acceptance, expected_revisions, key.as_ref()).await {
            // The statement may have been committed without a response, so the run is searched in the store.
            Err(CommitError::Store(error)) => {
                let outcome = engine.find_accepted(scope, acceptance.execution_id, error).await;
                outcome.map_err(|failure| submit_failure(scope, acceptance, failure))?
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
            (AdmissionDecision::Deny(_), _) => {
                engine.context.notify_facts();
                let workload = ObservedWorkload {
                    id: acceptance.workload_id,
                    slug: Some(active_run.policy_attributes.workload_slug.as_str()),
                };
                engine.run_metrics_observer.run_ended(workload, Status::Denied, Duration::ZERO);
                SubmitOutcome::Denied(denied_execution(acceptance))
            }
            (
                AdmissionDecision::Queue { .. } | AdmissionDecision::Run { .. } | AdmissionDecision::Script { .. },
                None,
            ) => {
                engine.wakeup_sender.publish(Wakeup::RunQueued);
                SubmitOutcome::Queued(accepted_execution(acceptance, Status::Queued, None))
            }
            (
                AdmissionDecision::Queue { .. } | AdmissionDecision::Run { .. } | AdmissionDecision::Script { .. },
                Some(inline),
            ) => SubmitOutcome::Started(active_run.spawn(inline)),
        })
    }
}

impl RunEngine {
    /// Determines whether an accept statement without a response was committed. If the run is absent, the statement may
    /// still be committed later. The refusal therefore contains the run's identifier.
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

/// Converts the failure of a submission. A script that the store rejects as inconsistent is reported as unavailable.
fn submit_failure(scope: TenantScope, acceptance: &Acceptance, failure: Failure) -> Failure {
    match (&acceptance.admission, failure) {
        (AdmissionDecision::Script { .. }, Failure::Store(error)) if error.fault == StoreFault::Inconsistent => {
            tracing::error!(
                tenant_id = %scope.tenant(),
                execution_id = %acceptance.execution_id,
                error = &error as &dyn std::error::Error,
                "failed to store a script run; refusing the request with 503"
            );
            Failure::Store(StoreError { fault: StoreFault::Unavailable, ..error })
        }
        (_, failure) => failure,
    }
}

fn denied_execution(acceptance: &Acceptance) -> Execution {
    accepted_execution(acceptance, Status::Denied, Some((ExecutionOutcome::Denied, acceptance.started_at)))
}
