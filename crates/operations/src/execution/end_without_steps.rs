//! End of a run without step results. Such a run was denied, cancelled or failed before its first step, or its lease
//! was taken over.

use crate::{Failure, execution::engine::RunEngine};
use fairway_domain::{
    access::ActorRef,
    audit::Stamp,
    evidence::{
        RecordedDecision,
        run_records::{DecisionEntry, RunRecords},
    },
    execution::{
        ExecutionOutcome, FinishRecord, RunError, RunRef, Status, run::Interruption,
        run_metrics_observer::ObservedWorkload,
    },
    id::RequestId,
    policy::Obligation,
    store::CommitError,
    tenant::TenantScope,
    time::Timestamp,
    wakeup::Wakeup,
    workload,
};
use uuid::Uuid;

/// Status, outcome and reason of a run that ends without step results.
pub(super) struct EndWithoutSteps {
    pub(super) status: Status,
    pub(super) outcome: ExecutionOutcome,
    pub(super) code: &'static str,
    pub(super) message: &'static str,
    pub(super) decision: Option<RecordedDecision>,
}

impl EndWithoutSteps {
    pub(super) const fn interrupted(interruption: Interruption) -> Self {
        let (status, outcome, code, message) = interruption.ending();
        Self { status, outcome, code, message, decision: None }
    }

    pub(super) const fn failed(code: &'static str, message: &'static str) -> Self {
        Self { status: Status::Failed, outcome: ExecutionOutcome::Failure, code, message, decision: None }
    }

    pub(super) const fn cancelled(code: &'static str, message: &'static str) -> Self {
        Self { status: Status::Cancelled, outcome: ExecutionOutcome::Cancelled, code, message, decision: None }
    }

    pub(super) const fn denied(code: &'static str, message: &'static str) -> Self {
        Self { status: Status::Denied, outcome: ExecutionOutcome::Denied, code, message, decision: None }
    }

    /// Returns the end of a queued run whose workload no longer accepts runs; `None` if the workload does.
    pub(super) const fn for_workload_status(status: workload::WorkloadStatus) -> Option<Self> {
        match status {
            workload::WorkloadStatus::Registered => None,
            workload::WorkloadStatus::Suspended => {
                Some(Self::cancelled("workload_suspended", "the workload was suspended"))
            }
            workload::WorkloadStatus::Retired => Some(Self::cancelled("workload_retired", "the workload was retired")),
        }
    }
}

/// A run that must end without step results, with its lease.
pub(super) struct RunWithoutSteps<'r> {
    pub(super) scope: TenantScope,
    pub(super) run: RunRef<'r>,
    pub(super) lease: Uuid,
    /// The slug of the workload, if it is known.
    pub(super) workload_slug: Option<&'r str>,
    pub(super) started_at: Timestamp,
    /// The decisions on the run that are already stored.
    pub(super) decisions: Vec<DecisionEntry>,
    /// Whether a policy obliges Fairway to notify the owner of the workload.
    pub(super) must_notify_owner: bool,
}

impl RunEngine {
    /// Ends a run without step results. Its only obligation that can still be fulfilled is the notification of the
    /// owner, because the others need the run's state.
    pub(super) async fn end_without_steps(
        &self,
        target: RunWithoutSteps<'_>,
        end: EndWithoutSteps,
        actor: ActorRef,
        request_id: RequestId,
    ) -> Result<(), Failure> {
        let RunWithoutSteps { scope, run, lease, workload_slug, started_at, decisions, must_notify_owner } = target;
        let EndWithoutSteps { status, outcome, code, message, decision } = end;
        let finished_at = self.context.clock.now();
        let stamp = Stamp { fact_id: self.context.new_id(), at: finished_at, actor, request_id };
        let mut fact = match &decision {
            Some(denial) if outcome == ExecutionOutcome::Denied => run.denied_fact(denial, &stamp),
            Some(_) | None => run.ended_fact(outcome, Some(code), None, &stamp),
        };
        let decision_entries = decisions.into_iter().chain(decision.as_ref().map(DecisionEntry::from));
        fact = fact.with_records_digest(&RunRecords::for_commit(decision_entries, &[], &[]));
        let mut fulfilled = Vec::new();
        if must_notify_owner && let Some(workload) = self.workload_store.find(scope, run.workload_id).await? {
            fact = fact.notifying_owner(&workload.owner_ref.to_string());
            fulfilled.push((Obligation::NotifyOwner, finished_at));
        }
        // For a denied run, the decision contains the reason, so the run has no error.
        let error = decision.is_none().then(|| RunError::new(code, message));
        let finish_record = FinishRecord {
            execution_id: run.execution_id,
            lease,
            status,
            outcome,
            review_timeout: None,
            error,
            output: None,
            steps: Vec::new(),
            decisions: decision.into_iter().collect(),
            artifacts: Vec::new(),
            lineage: Vec::new(),
            fulfilled,
            progress: None,
            writeback: None,
            finished_at,
            fact,
        };
        match self.run_store.finish(scope, &finish_record).await {
            Ok(()) => {
                self.context.notify_facts();
                self.wakeup_sender.publish(Wakeup::RunEnded(run.execution_id));
                let workload = ObservedWorkload { id: run.workload_id, slug: workload_slug };
                self.run_metrics_observer.run_ended(workload, status, started_at.duration_until(finished_at));
                Ok(())
            }
            // Another process ended the run in the meantime.
            Err(CommitError::Stale) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
