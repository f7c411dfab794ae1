//! Stopping runs: those that wait in line at once, those under way by telling whoever works on them.

use super::{ReadExecution, evidence::Own};
use crate::{
    Done, Failure, RunRefusal, Services,
    access::{Operation, gate},
    once::{ATTEMPTS, keyed},
};
use fairway_domain::{
    access::{ActorRef, Caller},
    audit::Stamp,
    evidence::RecordedDecision,
    execution::{
        Ending, Execution, Outcome, RunError, RunRef, Status,
        dispatch::{Held, Stopping, Taken},
        ports::RunState,
    },
    id::{ExecutionId, RequestId},
    idempotency::{KeyedOutcome, RequestKey},
    policy::Obligation,
    share_link::TokenHash,
    signal::Signal,
    store::CommitError,
    tenant::TenantScope,
};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How long whoever works on a run is given to end it with all that it found out. Then it is ended for it.
const GRACE: Duration = Duration::from_millis(700);
/// How often it is looked meanwhile.
const LOOK: Duration = Duration::from_millis(100);

impl Services {
    /// Stops a run: its submitter may, and whoever may stop runs where the workload is.
    ///
    /// # Errors
    /// Not found when the caller does not see the run; when it sees it and may not stop it; when it has ended.
    pub async fn cancel_execution(
        &self,
        caller: &Caller,
        (id, token): (ExecutionId, Option<&TokenHash>),
        key: Option<&RequestKey>,
    ) -> Result<Done<ReadExecution>, Failure> {
        let scope = TenantScope::of(caller);
        let (RunState { execution, .. }, own) = self.state_as(caller, id, token, Operation::ReadExecution).await?;
        if own == Own::No {
            let place = self.place_of_workload(caller, execution.workspace_id, execution.workload_id).await?;
            gate::enter(caller, Operation::CancelExecution, &place)?;
        }
        let outcome = keyed(key, 200, id.uuid());
        let done = self.once(
            scope,
            key,
            async || self.stop(scope, caller, &execution, outcome.as_ref()).await,
            // The word was given, and perhaps no more than that.
            async |_| match self.stop(scope, caller, &execution, None).await {
                Ok(()) | Err(Failure::Run(RunRefusal::NotCancellable)) => Ok(()),
                Err(failure) => Err(failure),
            },
        );
        let ((), replayed) = done.await?.apart();
        let ended = self.execution_detail(caller, id, token).await?;
        Ok(replayed.with(ended))
    }

    async fn stop(
        &self,
        scope: TenantScope,
        caller: &Caller,
        execution: &Execution,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), Failure> {
        let id = execution.execution_id;
        let held = Held { execution_id: id, lease: self.ids.fresh() };
        let taken = Taken { held, lease_for: self.settings.lease, deadline_in: self.settings.execution_deadline };
        let (mut now, mut key) = (execution.clone(), key);
        for _ in 0..ATTEMPTS {
            if now.outcome.is_some() {
                return Err(RunRefusal::NotCancellable.into());
            }
            if now.status == Status::AwaitingReview {
                if self.cancel_review(scope, id, caller, key).await? {
                    return Ok(());
                }
                now = self.present(scope, id).await?;
                continue;
            }
            match self.stores.executions.stop(scope, taken, &caller.actor, key).await? {
                // A worker may take it at this very moment, and then it is in line no more and under no lease yet.
                Stopping::Over => now = self.present(scope, id).await?,
                Stopping::KeyTaken => return Err(Failure::KeyTaken),
                Stopping::Taken => return self.end_cancelled(scope, execution, held, caller).await,
                Stopping::Told => {
                    self.signal(Signal::Look(id));
                    if self.has_ended(scope, id).await? {
                        return Ok(());
                    }
                    if self.stores.executions.take_over(scope, held).await? {
                        return self.end_cancelled(scope, execution, held, caller).await;
                    }
                    // Nobody works on it any more: it has ended, or a person is to look at its answer. The word is kept.
                    now = self.present(scope, id).await?;
                    if now.status != Status::AwaitingReview {
                        return Ok(());
                    }
                    key = None;
                }
            }
        }
        Err(Failure::Contended)
    }

    /// The run as it stands, without a large output.
    async fn present(&self, scope: TenantScope, id: ExecutionId) -> Result<Execution, Failure> {
        let state = self.stores.executions.state(scope, id).await?;
        state.map(|state| state.execution).ok_or(Failure::Corrupt("a run that is gone"))
    }

    async fn has_ended(&self, scope: TenantScope, id: ExecutionId) -> Result<bool, Failure> {
        let mut following = self.signals.follow(id);
        let until = Instant::now() + GRACE;
        loop {
            let state = self.stores.executions.state(scope, id).await?;
            if state.is_none_or(|state| state.execution.outcome.is_some()) {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            following.ended(LOOK).await;
        }
    }

    async fn end_cancelled(
        &self,
        scope: TenantScope,
        execution: &Execution,
        held: Held,
        caller: &Caller,
    ) -> Result<(), Failure> {
        let found = self.stores.executions.evidence(scope, execution.execution_id).await?;
        let record = found.ok_or(Failure::Corrupt("a run that is gone"))?;
        let imposed = record.decisions.iter().flat_map(|decision| &decision.obligations);
        let owes = imposed.into_iter().any(|name| name == Obligation::NotifyOwner.as_str());
        let named = RunRef {
            execution_id: execution.execution_id,
            workload_id: execution.workload_id,
            workspace_id: execution.workspace_id,
            release_id: execution.release_id,
            environment: &execution.environment,
            input_digest: record.input_digest,
        };
        self.end_without_steps(
            (scope, named, held.lease),
            (Status::Cancelled, Outcome::Cancelled, "cancelled", "the run was cancelled"),
            (None, owes),
            (caller.actor.clone(), caller.request_id),
        )
        .await
    }

    /// Ends a run of which nobody knows what its steps did, if it had any. Of what it owed, its owner is told: that needs
    /// nothing that went away.
    pub(super) async fn end_without_steps(
        &self,
        (scope, run, lease): (TenantScope, RunRef<'_>, Uuid),
        (status, outcome, code, message): (Status, Outcome, &str, &str),
        (decision, owes_owner): (Option<RecordedDecision>, bool),
        (actor, request_id): (ActorRef, RequestId),
    ) -> Result<(), Failure> {
        let finished_at = self.clock.now();
        let stamp = Stamp { fact_id: self.id(), at: finished_at, actor, request_id };
        let mut fact = match &decision {
            Some(denial) if outcome == Outcome::Denied => run.denied(denial, &stamp),
            Some(_) | None => run.ended(outcome, Some(code), None, &stamp),
        };
        let mut fulfilled = Vec::new();
        if owes_owner && let Some(workload) = self.stores.workloads.find(scope, run.workload_id).await? {
            fact = fact.notifying(&workload.owner_ref.to_string());
            fulfilled.push((Obligation::NotifyOwner, finished_at));
        }
        // A decision says by itself why it refused.
        let error = decision.is_none().then(|| RunError::new(code, message));
        let ending = Ending {
            execution_id: run.execution_id,
            lease,
            status,
            outcome,
            review_within: None,
            error,
            output: None,
            steps: Vec::new(),
            decisions: decision.into_iter().collect(),
            artifacts: Vec::new(),
            lineage: Vec::new(),
            fulfilled,
            progress: None,
            memory: None,
            finished_at,
            fact,
        };
        match self.stores.executions.finish(scope, &ending).await {
            Ok(()) => {
                self.wake.facts();
                self.signal(Signal::Ended(run.execution_id));
                Ok(())
            }
            // Somebody else was faster.
            Err(CommitError::Stale) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
