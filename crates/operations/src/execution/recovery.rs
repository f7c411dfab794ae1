//! Recovery: ends runs with an expired lease that no worker resumes, so that every accepted run ends.

use super::script::LOST_SCRIPT_END;
use crate::{
    Failure, Settings, Stores, commit_context::CommitContext, execution::active_runs::ActiveRuns,
    services::SharedState, wakeups::WakeupSender,
};
use fairway_domain::{
    access::ActorRef,
    audit::Stamp,
    execution::{
        ExecutionOutcome, FinishRecord, RunError, RunRef, Status,
        ports::{LapsedFilter, LapsedRun, LapsedWork, LeaseStore, RunStore},
        run_metrics_observer::{ObservedWorkload, RunMetricsObserver},
    },
    policy::Obligation,
    store::CommitError,
};
use std::{sync::Arc, time::Duration};

/// Poll interval for expired leases.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Ends runs with an expired lease that no worker resumes, in an endless loop. Several processes may run this task
/// concurrently.
pub async fn run_recovery(recovery: Arc<RunRecovery>) {
    loop {
        match recovery.end_lapsed_runs().await {
            Ok(0) => tokio::time::sleep(POLL_INTERVAL).await,
            Ok(ended) => tracing::info!(ended, "ended runs with an expired lease"),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to end runs with an expired lease; retrying in 2 s"
                );
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }
}

/// Ends runs whose process was lost. At shutdown, it also drains the active runs of its own process.
pub struct RunRecovery {
    context: CommitContext,
    pub(super) active_runs: Arc<ActiveRuns>,
    pub(super) settings: Arc<Settings>,
    pub(super) wakeup_sender: WakeupSender,
    run_metrics_observer: Arc<dyn RunMetricsObserver>,
    run_store: Arc<dyn RunStore>,
    pub(super) lease_store: Arc<dyn LeaseStore>,
}

impl RunRecovery {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            context: shared.context.clone(),
            active_runs: Arc::clone(&shared.active_runs),
            settings: Arc::clone(&shared.settings),
            wakeup_sender: shared.wakeups.clone(),
            run_metrics_observer: Arc::clone(&shared.run_metrics_observer),
            run_store: Arc::clone(&stores.runs),
            lease_store: Arc::clone(&stores.leases),
        }
    }
}

impl RunRecovery {
    /// Ends a batch of runs with an expired lease that no worker resumes; returns the number of ended runs.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn end_lapsed_runs(&self) -> Result<usize, Failure> {
        let lapsed = self.lease_store.claim_lapsed(self.context.ids.new_id(), self.unresumable_runs()).await?;
        let mut ended = 0;
        for run in lapsed {
            let finish_record = self.end_of_lapsed(&run);
            match self.run_store.finish(run.scope, &finish_record).await {
                Ok(()) => {
                    ended += 1;
                    let workload = ObservedWorkload { id: run.execution.workload_id, slug: None };
                    let duration = run.execution.started_at.duration_until(finish_record.finished_at);
                    self.run_metrics_observer.run_ended(workload, finish_record.status, duration);
                }
                // Another process ended the run in the meantime.
                Err(CommitError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if ended > 0 {
            self.context.notify_facts();
        }
        Ok(ended)
    }

    /// Returns which runs no worker resumes: only scripts, or all runs if the installation has no workers.
    fn unresumable_runs(&self) -> LapsedFilter {
        if self.settings.dispatch.has_workers() { LapsedFilter::Scripts } else { LapsedFilter::All }
    }

    fn end_of_lapsed(&self, lapsed: &LapsedRun) -> FinishRecord {
        let (status, outcome, code, message) = if lapsed.work == LapsedWork::Script {
            LOST_SCRIPT_END
        } else if lapsed.cancelled_by.is_some() {
            (Status::Cancelled, ExecutionOutcome::Cancelled, "cancelled", "the run was cancelled")
        } else if lapsed.is_past_deadline {
            (Status::Failed, ExecutionOutcome::Timeout, "deadline_exceeded", "the run exceeded its deadline")
        } else {
            (Status::Failed, ExecutionOutcome::Failure, "interrupted", "the process that executed the run ended")
        };
        let run = &lapsed.execution;
        let run_ref = RunRef {
            execution_id: run.execution_id,
            workload_id: run.workload_id,
            workspace_id: run.workspace_id,
            release_id: run.release_id,
            environment: &run.environment,
            input_digest: lapsed.input_digest,
        };
        let finished_at = self.context.clock.now();
        let actor = lapsed.cancelled_by.clone().unwrap_or_else(|| ActorRef::system("recovery"));
        let stamp = Stamp { fact_id: self.context.new_id(), at: finished_at, actor, request_id: self.context.new_id() };
        let (mut fact, mut fulfilled) = (run_ref.ended_fact(outcome, Some(code), None, &stamp), Vec::new());
        // Of the run's obligations, only the notification of the owner can be fulfilled. The others need the state of
        // the lost process.
        if let Some(owner) = &lapsed.owner_to_notify {
            fact = fact.notifying_owner(owner);
            fulfilled.push((Obligation::NotifyOwner, finished_at));
        }
        FinishRecord {
            execution_id: run.execution_id,
            lease: lapsed.lease,
            status,
            outcome,
            review_timeout: None,
            error: Some(RunError::new(code, message)),
            output: None,
            steps: Vec::new(),
            decisions: Vec::new(),
            artifacts: Vec::new(),
            lineage: Vec::new(),
            fulfilled,
            progress: None,
            writeback: None,
            finished_at,
            fact,
        }
    }
}
