//! Human review of answers. The verdict of a reviewer or the review deadline ends the run.

use super::{ExecutionDetail, execution_reader::Ownership};
use crate::{
    Failure, MaybeReplayed, Stores,
    access::{Operation, authorize},
    commit_context::CommitContext,
    execution::execution_reader::ExecutionReader,
    idempotency::{KeyedRequests, convert_failure_after_commit, keyed_outcome},
    services::{CommonOperations, SharedState},
    wakeups::WakeupSender,
};
use fairway_domain::{
    access::{ActorRef, Caller, Permission},
    audit::{AuditStore, Stamp},
    evidence::RunEvidence,
    execution::{
        Execution,
        ports::{ExecutionReadStore, StoredRun},
        review::{
            AnswerUnderReview, AnswerVerdict, PendingReview, ReviewDueToEnd, ReviewRefusal, ReviewStore, ReviewedRunEnd,
        },
        run_metrics_observer::{ObservedWorkload, RunMetricsObserver},
    },
    id::ExecutionId,
    idempotency::{KeyedOutcome, RequestKey},
    note::Note,
    store::CommitError,
    tenant::TenantScope,
    wakeup::Wakeup,
};
use std::{sync::Arc, time::Duration};

/// Poll interval for overdue reviews.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Ends runs whose review is overdue or whose workload is stopped, in an endless loop. Several processes may run this
/// task concurrently.
pub async fn run_review_endings(reviews: Arc<Reviews>) {
    loop {
        match reviews.end_reviews_without_verdict().await {
            Ok(0) => tokio::time::sleep(POLL_INTERVAL).await,
            Ok(ended) => tracing::info!(ended, "ended runs whose review was overdue or whose workload was stopped"),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to end runs with an overdue review or a stopped workload; retrying in 1 s"
                );
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }
}

/// Records verdicts on answers, and ends reviews without a verdict.
pub struct Reviews {
    context: CommitContext,
    wakeup_sender: WakeupSender,
    run_metrics_observer: Arc<dyn RunMetricsObserver>,
    audit_store: Arc<dyn AuditStore>,
    execution_store: Arc<dyn ExecutionReadStore>,
    review_store: Arc<dyn ReviewStore>,
    keyed_requests: Arc<KeyedRequests>,
    execution_reader: Arc<ExecutionReader>,
}

impl Reviews {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        execution_reader: &Arc<ExecutionReader>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            wakeup_sender: shared.wakeups.clone(),
            run_metrics_observer: Arc::clone(&shared.run_metrics_observer),
            audit_store: Arc::clone(&stores.audit),
            execution_store: Arc::clone(&stores.executions),
            review_store: Arc::clone(&stores.reviews),
            keyed_requests: Arc::clone(&common.keyed_requests),
            execution_reader: Arc::clone(execution_reader),
        }
    }
}

impl Reviews {
    /// Records a reviewer's verdict on the answer of a run. An approval completes the run. A rejection denies the run
    /// and erases the answer.
    ///
    /// # Errors
    /// Not found when the caller does not see the run; forbidden when the caller may not review runs in its scope or
    /// submitted the run; refused when no review is pending.
    pub async fn review_execution(
        &self,
        caller: &Caller,
        id: ExecutionId,
        verdict: AnswerVerdict,
        note: Option<&Note>,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<ExecutionDetail>, Failure> {
        let (StoredRun { execution, .. }, ownership) =
            self.execution_reader.state_with_ownership(caller, id, None, Operation::ReadExecution).await?;
        let scope = self.authorize_review(caller, &execution, ownership, Operation::ReviewExecution).await?;
        let outcome = keyed_outcome(key, 200, id.uuid());
        let reviewed = self.keyed_requests.idempotent(
            scope,
            key,
            async || self.commit_verdict(scope, caller, id, verdict, note, outcome.as_ref()).await,
            async |_| Ok(()),
        );
        let ((), replayed) = reviewed.await?.into_parts();
        let detail = self.execution_reader.execution_detail(caller, id, None).await;
        Ok(replayed.with_value(convert_failure_after_commit(detail, key)?))
    }

    /// Returns the answer of a run that awaits review, for callers that may review the run.
    ///
    /// # Errors
    /// As [`Self::review_execution`]; not found when no review is pending.
    pub async fn read_answer_under_review(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<AnswerUnderReview, Failure> {
        let (StoredRun { execution, .. }, ownership) =
            self.execution_reader.state_with_ownership(caller, id, None, Operation::ReadExecution).await?;
        let scope = self.authorize_review(caller, &execution, ownership, Operation::ReadReview).await?;
        let record = self.execution_store.evidence(scope, id).await?.ok_or(Failure::NotFound)?;
        let Ok(pending) = PendingReview::require_awaiting_review(&record) else { return Err(Failure::NotFound) };
        pending.authorize_reader(&caller.actor)?;
        self.review_store.find_pending(scope, id).await?.ok_or(Failure::NotFound)
    }

    async fn authorize_review(
        &self,
        caller: &Caller,
        execution: &Execution,
        ownership: Ownership,
        operation: Operation,
    ) -> Result<TenantScope, Failure> {
        let position = self.execution_reader.position_of_run(caller, execution).await?;
        match authorize::authorize(caller, operation, &position) {
            // The caller already sees its own run, so the refusal may name the missing permission.
            Err(Failure::NotFound) if ownership == Ownership::Own => {
                Err(authorize::missing_permission(caller, Permission::ReleaseApprove))
            }
            authorization => authorization,
        }
    }

    async fn commit_verdict(
        &self,
        scope: TenantScope,
        caller: &Caller,
        id: ExecutionId,
        verdict: AnswerVerdict,
        note: Option<&Note>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), Failure> {
        let record = self.execution_store.evidence(scope, id).await?.ok_or(Failure::NotFound)?;
        let pending = PendingReview::require_awaiting_review(&record)?;
        let stamp = self.context.stamp(caller);
        let moment = self.context.moment_at(stamp.at);
        let review_end = match pending.decide(verdict, note, &stamp, moment) {
            Ok(review_end) => review_end,
            Err(refusal) => {
                let fact = pending.self_review_refused_fact(&self.context.stamp(caller));
                self.audit_store.commit_fact(scope, fact).await?;
                self.context.notify_facts();
                return Err(refusal.into());
            }
        };
        // If the commit is stale, a concurrent request ended the review, or the review is overdue.
        if self.end_review(scope, &record, &review_end, key).await? {
            Ok(())
        } else {
            Err(ReviewRefusal::NotPending.into())
        }
    }

    /// Cancels a run that awaits review; returns `false` if the review has already ended.
    pub(super) async fn cancel_run_under_review(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        caller: &Caller,
        key: Option<&KeyedOutcome>,
    ) -> Result<bool, Failure> {
        let record = self.execution_store.evidence(scope, id).await?;
        let record = record.ok_or(Failure::Inconsistent("a run is missing"))?;
        let Ok(pending) = PendingReview::require_awaiting_review(&record) else { return Ok(false) };
        self.end_review(scope, &record, &pending.cancel(&self.context.stamp(caller)), key).await
    }

    /// Ends a batch of runs whose review is overdue or whose workload is stopped; returns the number of ended runs.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn end_reviews_without_verdict(&self) -> Result<usize, Failure> {
        let mut ended = 0;
        for ReviewDueToEnd { scope, execution_id, workload_status } in self.review_store.list_expired().await? {
            let Some(record) = self.execution_store.evidence(scope, execution_id).await? else { continue };
            let Ok(pending) = PendingReview::require_awaiting_review(&record) else { continue };
            let actor = ActorRef::system("review");
            let stamp = Stamp {
                fact_id: self.context.new_id(),
                at: self.context.clock.now(),
                actor,
                request_id: self.context.new_id(),
            };
            let review_end = pending.end_without_verdict(workload_status, &stamp);
            ended += usize::from(self.end_review(scope, &record, &review_end, None).await?);
        }
        Ok(ended)
    }

    /// Commits the end of a review; returns `false` if a concurrent request has ended it.
    async fn end_review(
        &self,
        scope: TenantScope,
        record: &RunEvidence,
        end: &ReviewedRunEnd,
        key: Option<&KeyedOutcome>,
    ) -> Result<bool, Failure> {
        match self.review_store.commit_end(scope, end, key).await {
            Ok(()) => {
                self.context.notify_facts();
                self.wakeup_sender.publish(Wakeup::RunEnded(end.execution_id));
                let run = &record.execution;
                let workload = ObservedWorkload { id: run.workload_id, slug: Some(&record.chain.workload.slug) };
                self.run_metrics_observer.run_ended(
                    workload,
                    end.status,
                    run.started_at.duration_until(end.finished_at),
                );
                Ok(true)
            }
            Err(CommitError::Stale) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
