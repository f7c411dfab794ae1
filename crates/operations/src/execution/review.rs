//! Reviews of answers: a person's verdict ends a run that waits for one, and so does the time that it had.

use super::{ReadExecution, evidence::Own};
use crate::{
    Done, Failure, Services,
    access::{Operation, gate},
    once::keyed,
};
use fairway_domain::{
    access::{ActorRef, Caller, Permission},
    audit::Stamp,
    execution::{
        Execution,
        ports::RunState,
        review::{AwaitingAnswer, Overdue, PendingReview, ReviewEnd, ReviewRefusal, Verdict},
    },
    id::ExecutionId,
    idempotency::{KeyedOutcome, RequestKey},
    signal::Signal,
    store::CommitError,
    tenant::TenantScope,
};
use std::time::Duration;

/// How often it is looked for runs that waited long enough.
const EVERY: Duration = Duration::from_secs(1);

/// Ends runs that waited for a person long enough, or whose workload takes none any more, for ever. Any number of
/// processes may do it at once.
pub async fn close_reviews_forever(services: Services) {
    loop {
        match services.close_reviews().await {
            Ok(0) => tokio::time::sleep(EVERY).await,
            Ok(ended) => tracing::info!(ended, "runs that waited for a person were ended"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "runs that wait could not be ended");
                tokio::time::sleep(EVERY).await;
            }
        }
    }
}

impl Services {
    /// Takes a person's verdict on the answer of a run: approved, the run has completed with it; rejected, it is denied,
    /// and the answer is erased.
    ///
    /// # Errors
    /// Not found when the caller does not see the run; when it may give no verdicts there, or the run is its own; when the
    /// run does not wait for one.
    pub async fn review_execution(
        &self,
        caller: &Caller,
        id: ExecutionId,
        (verdict, note): (Verdict, Option<&str>),
        key: Option<&RequestKey>,
    ) -> Result<Done<ReadExecution>, Failure> {
        let (RunState { execution, .. }, own) = self.state_as(caller, id, None, Operation::ReadExecution).await?;
        let scope = self.enter_review(caller, (&execution, own), Operation::ReviewExecution).await?;
        let outcome = keyed(key, 200, id.uuid());
        let done = self.once(
            scope,
            key,
            async || self.judge((scope, caller), id, (verdict, note), outcome.as_ref()).await,
            async |_| Ok(()),
        );
        let ((), replayed) = done.await?.apart();
        Ok(replayed.with(self.execution_detail(caller, id, None).await?))
    }

    /// The answer of a run that waits, to whoever may give a verdict on it.
    ///
    /// # Errors
    /// As for the verdict; not found where nothing waits for one.
    pub async fn awaiting_review(&self, caller: &Caller, id: ExecutionId) -> Result<AwaitingAnswer, Failure> {
        let (RunState { execution, .. }, own) = self.state_as(caller, id, None, Operation::ReadExecution).await?;
        let scope = self.enter_review(caller, (&execution, own), Operation::ReadReview).await?;
        let record = self.stores.executions.evidence(scope, id).await?.ok_or(Failure::NotFound)?;
        let Ok(pending) = PendingReview::of(&record) else { return Err(Failure::NotFound) };
        pending.show_to(&caller.actor)?;
        self.stores.reviews.awaiting(scope, id).await?.ok_or(Failure::NotFound)
    }

    async fn enter_review(
        &self,
        caller: &Caller,
        (execution, own): (&Execution, Own),
        operation: Operation,
    ) -> Result<TenantScope, Failure> {
        let place = self.place_of_run(caller, execution).await?;
        match gate::enter(caller, operation, &place) {
            // It sees its own run, so it is told what is missing.
            Err(Failure::NotFound) if own == Own::Yes => Err(gate::refused(caller, Permission::ReleaseApprove)),
            entered => entered,
        }
    }

    async fn judge(
        &self,
        (scope, caller): (TenantScope, &Caller),
        id: ExecutionId,
        said: (Verdict, Option<&str>),
        key: Option<&KeyedOutcome>,
    ) -> Result<(), Failure> {
        let record = self.stores.executions.evidence(scope, id).await?.ok_or(Failure::NotFound)?;
        let pending = PendingReview::of(&record)?;
        let end = match pending.judge(said, &self.stamp(caller), self.ids.as_ref()) {
            Ok(end) => end,
            Err(refusal) => {
                let fact = pending.self_review_refused(&self.stamp(caller));
                self.stores.audit.commit_alone(scope, fact).await?;
                self.wake.facts();
                return Err(refusal.into());
            }
        };
        // Somebody else was faster, or the time is over.
        if self.end_review(scope, &end, key).await? { Ok(()) } else { Err(ReviewRefusal::NotPending.into()) }
    }

    /// Stops a run that waits for a person; whether it still waited.
    pub(super) async fn cancel_review(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        caller: &Caller,
        key: Option<&KeyedOutcome>,
    ) -> Result<bool, Failure> {
        let record = self.stores.executions.evidence(scope, id).await?;
        let record = record.ok_or(Failure::Corrupt("a run that is gone"))?;
        let Ok(pending) = PendingReview::of(&record) else { return Ok(false) };
        self.end_review(scope, &pending.cancel(&self.stamp(caller)), key).await
    }

    /// Ends a few runs that waited long enough; answers how many.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn close_reviews(&self) -> Result<usize, Failure> {
        let mut ended = 0;
        for Overdue { scope, execution_id, workload } in self.stores.reviews.overdue().await? {
            let Some(record) = self.stores.executions.evidence(scope, execution_id).await? else { continue };
            let Ok(pending) = PendingReview::of(&record) else { continue };
            let actor = ActorRef::system("review");
            let stamp = Stamp { fact_id: self.id(), at: self.clock.now(), actor, request_id: self.id() };
            ended += usize::from(self.end_review(scope, &pending.lapse(workload, &stamp), None).await?);
        }
        Ok(ended)
    }

    /// Whether this is how it ended: somebody else may have been faster.
    async fn end_review(
        &self,
        scope: TenantScope,
        end: &ReviewEnd,
        key: Option<&KeyedOutcome>,
    ) -> Result<bool, Failure> {
        match self.stores.reviews.commit_end(scope, end, key).await {
            Ok(()) => {
                self.wake.facts();
                self.signal(Signal::Ended(end.execution_id));
                Ok(true)
            }
            Err(CommitError::Stale) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
