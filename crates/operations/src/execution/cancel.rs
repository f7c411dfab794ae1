//! Cancellation of runs. A queued run ends at once; an active run is ended by its worker.

use super::{
    ExecutionDetail,
    end_without_steps::{EndWithoutSteps, RunWithoutSteps},
    execution_reader::Ownership,
};
use crate::{
    Failure, MaybeReplayed, RunRefusal, Settings, Stores,
    access::{Operation, ScopeResolver, authorize},
    commit_context::CommitContext,
    execution::{engine::RunEngine, execution_reader::ExecutionReader, review::Reviews},
    idempotency::{KeyedRequests, MAX_ATTEMPTS, convert_failure_after_commit, keyed_outcome},
    services::{CommonOperations, SharedState},
    wakeups::{WakeupSender, Wakeups},
};
use fairway_domain::{
    access::Caller,
    execution::{
        Execution, RunRef, Status,
        dispatch::{CancelLease, CancelOutcome, LeaseRef},
        ports::{ExecutionReadStore, LeaseStore, StoredRun},
    },
    id::ExecutionId,
    idempotency::{KeyedOutcome, RequestKey},
    policy::Obligation,
    share_link::TokenHash,
    tenant::TenantScope,
    wakeup::Wakeup,
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Time within which the worker must end a cancelled run and store its progress. Afterwards the cancelling process ends
/// the run without this progress.
const CANCEL_GRACE: Duration = Duration::from_millis(700);
/// Poll interval during [`CANCEL_GRACE`].
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Cancels queued and active runs, and runs that await review.
pub struct Cancellations {
    context: CommitContext,
    settings: Arc<Settings>,
    wakeup_sender: WakeupSender,
    wakeups: Arc<Wakeups>,
    execution_store: Arc<dyn ExecutionReadStore>,
    lease_store: Arc<dyn LeaseStore>,
    scope_resolver: Arc<ScopeResolver>,
    keyed_requests: Arc<KeyedRequests>,
    execution_reader: Arc<ExecutionReader>,
    reviews: Arc<Reviews>,
    run_engine: Arc<RunEngine>,
}

impl Cancellations {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        execution_reader: &Arc<ExecutionReader>,
        reviews: &Arc<Reviews>,
        run_engine: &Arc<RunEngine>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            settings: Arc::clone(&shared.settings),
            wakeup_sender: shared.wakeups.clone(),
            wakeups: shared.wakeups.subscriptions(),
            execution_store: Arc::clone(&stores.executions),
            lease_store: Arc::clone(&stores.leases),
            scope_resolver: Arc::clone(&common.scope_resolver),
            keyed_requests: Arc::clone(&common.keyed_requests),
            execution_reader: Arc::clone(execution_reader),
            reviews: Arc::clone(reviews),
            run_engine: Arc::clone(run_engine),
        }
    }
}

impl Cancellations {
    /// Cancels a run. The submitter may do so, and callers that may cancel runs in the workload's scope.
    ///
    /// # Errors
    /// Not found when the caller does not see the run; forbidden when the caller may not cancel it; refused when the
    /// run has ended.
    pub async fn cancel_execution(
        &self,
        caller: &Caller,
        id: ExecutionId,
        token: Option<&TokenHash>,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<ExecutionDetail>, Failure> {
        let scope = TenantScope::for_caller(caller);
        let (StoredRun { execution, .. }, ownership) =
            self.execution_reader.state_with_ownership(caller, id, token, Operation::ReadExecution).await?;
        if ownership == Ownership::Other {
            let position =
                self.scope_resolver.position_of_workload(caller, execution.workspace_id, execution.workload_id).await?;
            authorize::authorize(caller, Operation::CancelExecution, &position)?;
        }
        let outcome = keyed_outcome(key, 200, id.uuid());
        let cancelled = self.keyed_requests.idempotent(
            scope,
            key,
            async || self.cancel_run(scope, caller, &execution, outcome.as_ref()).await,
            // A repeated request finds the cancellation stored, but the run may still be active, so the cancellation is
            // attempted again.
            async |_| match self.cancel_run(scope, caller, &execution, None).await {
                Ok(()) | Err(Failure::Run(RunRefusal::NotCancellable)) => Ok(()),
                Err(failure) => Err(failure),
            },
        );
        let ((), replayed) = cancelled.await?.into_parts();
        let detail = self.execution_reader.execution_detail(caller, id, token).await;
        Ok(replayed.with_value(convert_failure_after_commit(detail, key)?))
    }

    async fn cancel_run(
        &self,
        scope: TenantScope,
        caller: &Caller,
        execution: &Execution,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), Failure> {
        let id = execution.execution_id;
        let lease_ref = LeaseRef { execution_id: id, lease: self.context.ids.new_id() };
        let cancel_lease =
            CancelLease { lease_ref, lease_for: self.settings.lease, deadline_in: self.settings.execution_deadline };
        let (mut current, mut key) = (execution.clone(), key);
        for _ in 0..MAX_ATTEMPTS {
            if current.outcome.is_some() {
                return Err(RunRefusal::NotCancellable.into());
            }
            if current.status == Status::AwaitingReview {
                if self.reviews.cancel_run_under_review(scope, id, caller, key).await? {
                    return Ok(());
                }
                current = self.read_current(scope, id).await?;
                continue;
            }
            match self.lease_store.request_cancel(scope, cancel_lease, &caller.actor, key).await? {
                // The run has ended, or a worker is claiming it: it is no longer queued and has no lease yet.
                CancelOutcome::AlreadyEnded => current = self.read_current(scope, id).await?,
                CancelOutcome::DuplicateKey => return Err(Failure::KeyTaken),
                CancelOutcome::LeaseTaken => {
                    return convert_failure_after_commit(
                        self.end_cancelled(scope, execution, lease_ref, caller).await,
                        key,
                    );
                }
                CancelOutcome::WorkerNotified => {
                    self.wakeup_sender.publish(Wakeup::Recheck(id));
                    let awaiting_review = self.end_notified_run(scope, execution, lease_ref, caller).await;
                    match convert_failure_after_commit(awaiting_review, key)? {
                        Some(awaiting_review) => current = awaiting_review,
                        None => return Ok(()),
                    }
                    key = None;
                }
            }
        }
        Err(Failure::Contended)
    }

    /// Waits until the worker of a cancelled run ends it. If the worker does not end the run in time, this process
    /// takes over the lease and ends it. Returns the run if it awaits review.
    async fn end_notified_run(
        &self,
        scope: TenantScope,
        execution: &Execution,
        lease_ref: LeaseRef,
        caller: &Caller,
    ) -> Result<Option<Execution>, Failure> {
        if self.wait_for_end(scope, lease_ref.execution_id).await? {
            return Ok(None);
        }
        if self.lease_store.take_over_lease(scope, lease_ref).await? {
            return self.end_cancelled(scope, execution, lease_ref, caller).await.map(|()| None);
        }
        // The run has no lease: it has ended or awaits review. The cancellation request remains stored.
        let current = self.read_current(scope, lease_ref.execution_id).await?;
        Ok(Some(current).filter(|current| current.status == Status::AwaitingReview))
    }

    /// Returns the current state of a run, without a large output.
    async fn read_current(&self, scope: TenantScope, id: ExecutionId) -> Result<Execution, Failure> {
        let state = self.execution_store.find_state(scope, id).await?;
        state.map(|state| state.execution).ok_or(Failure::Inconsistent("a run is missing"))
    }

    async fn wait_for_end(&self, scope: TenantScope, id: ExecutionId) -> Result<bool, Failure> {
        let mut subscription = self.wakeups.subscribe(id);
        let deadline = Instant::now() + CANCEL_GRACE;
        loop {
            let state = self.execution_store.find_state(scope, id).await?;
            if state.is_none_or(|state| state.execution.outcome.is_some()) {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            subscription.wait_for_end(POLL_INTERVAL).await;
        }
    }

    async fn end_cancelled(
        &self,
        scope: TenantScope,
        execution: &Execution,
        lease_ref: LeaseRef,
        caller: &Caller,
    ) -> Result<(), Failure> {
        let stored = self.execution_store.evidence(scope, execution.execution_id).await?;
        let record = stored.ok_or(Failure::Inconsistent("a run is missing"))?;
        let obligations = record.decisions.iter().flat_map(|decision| &decision.obligations);
        let must_notify_owner = obligations.into_iter().any(|name| name == Obligation::NotifyOwner.as_str());
        // A worker may have started the run with another release after the caller read it.
        let execution = &record.execution;
        let run = RunRef {
            execution_id: execution.execution_id,
            workload_id: execution.workload_id,
            workspace_id: execution.workspace_id,
            release_id: execution.release_id,
            environment: &execution.environment,
            input_digest: record.input_digest,
        };
        let target = RunWithoutSteps {
            scope,
            run,
            lease: lease_ref.lease,
            workload_slug: Some(&record.chain.workload.slug),
            started_at: execution.started_at,
            decisions: record.decisions.iter().map(Into::into).collect(),
            must_notify_owner,
        };
        let end = EndWithoutSteps::cancelled("cancelled", "the run was cancelled");
        self.run_engine.end_without_steps(target, end, caller.actor.clone(), caller.request_id).await
    }
}
