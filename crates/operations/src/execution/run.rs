//! From acceptance to the one end: the run's task, its heartbeat, its deadline, and storing how it ended.

use super::{engine::run_to_end, plan::KeptPlan};
use crate::{Services, aside::aside};
use fairway_domain::{
    audit::Stamp,
    execution::{
        Acceptance, Ending, Execution, Outcome, Payload, RunRef, Status,
        plan::RunFacts,
        ports::LeaseState,
        run::{Closed, Cut, Ended, Outside, Run, Subject},
    },
    id::RequestId,
    policy::{Obligation, PolicyDecision},
    store::CommitError,
    tenant::TenantScope,
    time::Timestamp,
};
use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};
use tracing::Instrument as _;
use uuid::Uuid;

/// The first pause before an end is stored again; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Bytes that are looked through on the thread that serves: some milliseconds.
const SHORT_WORK: usize = 16 << 10;

/// A run that was accepted and has a lease.
pub(super) struct Running {
    pub(super) services: Services,
    pub(super) scope: TenantScope,
    pub(super) plan: Arc<KeptPlan>,
    pub(super) facts: RunFacts,
    pub(super) lease: Uuid,
    pub(super) decision: PolicyDecision,
    pub(super) acceptance: Acceptance,
    pub(super) inputs: Map<String, Value>,
    pub(super) input_digest: [u8; 32],
    pub(super) request_id: RequestId,
}

impl Running {
    /// Runs in a task of its own, so that a client that goes away does not end it, and waits for the end within the
    /// wait budget; beyond, the answer is the run as it stands and the run goes on.
    pub(super) async fn wait(self) -> Execution {
        self.services.live.enter(self.scope, self.acceptance.execution_id, self.lease);
        let budget = self.services.settings.sync_wait;
        let under_way = as_accepted(&self.acceptance, Status::Queued, None);
        match tokio::time::timeout(budget, tokio::spawn(self.run().in_current_span())).await {
            Ok(Ok(Some(execution))) => execution,
            Ok(Ok(None) | Err(_)) | Err(_) => under_way,
        }
    }

    /// Runs to the end and stores it. `None` when the end could not be stored: then nobody may be told of it.
    async fn run(self) -> Option<Execution> {
        let ended = self.to_end().await;
        let finished_at = self.services.clock.now();
        let ending = self.ending(ended, finished_at);
        let stored = self.store(&ending).await;
        self.services.live.leave(self.acceptance.execution_id);
        stored.then(|| self.as_ended(&ending))
    }

    async fn to_end(&self) -> Ended {
        let services = &self.services;
        let outside = Outside {
            clock: services.clock.as_ref(),
            ids: services.ids.as_ref(),
            redactor: &services.settings.redactor,
        };
        let accepted = &self.acceptance;
        let subject = Subject {
            execution_id: accepted.execution_id,
            plan: &self.plan.plan,
            facts: &self.facts,
            inputs: &self.inputs,
            sent: &accepted.inputs,
            sent_digest: self.input_digest,
        };
        let mut run = Run::new(subject, self.decision.clone(), outside);
        let going = run_to_end(&mut run, services.provider.as_ref());
        let cut = tokio::select! {
            in_time = tokio::time::timeout(services.settings.execution_deadline, going) => {
                in_time.err().map(|_| Cut::Overdue)
            }
            cut = self.keep_lease() => Some(cut),
        };
        self.fulfil(run.close(cut)).await
    }

    /// Fulfils what the run owes. Where that is long work it is done beside the threads that serve, under the lease; if it
    /// does not come to its end, or somebody else has the run by then, there is no answer.
    async fn fulfil(&self, closed: Closed) -> Ended {
        let services = &self.services;
        if closed.work() <= SHORT_WORK {
            let outside = Outside {
                clock: services.clock.as_ref(),
                ids: services.ids.as_ref(),
                redactor: &services.settings.redactor,
            };
            return closed.fulfil(outside);
        }
        let unfulfilled = closed.unfulfilled();
        let (clock, ids) = (Arc::clone(&services.clock), Arc::clone(&services.ids));
        let redactor = Arc::clone(&services.settings.redactor);
        let work =
            aside(move || closed.fulfil(Outside { clock: clock.as_ref(), ids: ids.as_ref(), redactor: &redactor }));
        tokio::select! {
            done = work => done.unwrap_or(unfulfilled),
            _ = self.keep_lease() => unfulfilled,
        }
    }

    /// Prolongs the lease at a third of its time. Comes back only when the run has to stop.
    async fn keep_lease(&self) -> Cut {
        let beat = self.services.settings.lease / 3;
        loop {
            tokio::time::sleep(beat).await;
            let id = self.acceptance.execution_id;
            match self.services.stores.executions.renew(self.scope, id, self.lease).await {
                Ok(LeaseState::Held) => {}
                Ok(LeaseState::Lost) => return Cut::LeaseLost,
                Ok(LeaseState::WorkloadStopped) => return Cut::Suspended,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a lease could not be prolonged");
                }
            }
        }
    }

    fn ending(&self, ended: Ended, finished_at: Timestamp) -> Ending {
        let output = ended.output.map(|(output, metadata)| Payload {
            body: json!({ "output": output, "metadata": metadata }).to_string(),
            salt: self.services.ids.salt(),
        });
        let accepted = &self.acceptance;
        let run = RunRef {
            execution_id: accepted.execution_id,
            workload_id: accepted.workload_id,
            workspace_id: accepted.workspace_id,
            release_id: accepted.release_id,
            environment: &accepted.environment,
            input_digest: self.input_digest,
        };
        let stamp = Stamp {
            fact_id: self.services.id(),
            at: finished_at,
            actor: accepted.submitter.clone(),
            request_id: self.request_id,
        };
        let mut fact = match (ended.outcome, ended.decisions.last()) {
            (Outcome::Denied, Some(decision)) => run.denied(decision, &stamp),
            (outcome, _) => {
                let code = ended.error.as_ref().map(|error| error.code.as_str());
                run.ended(outcome, code, output.as_ref(), &stamp)
            }
        };
        if ended.fulfilled.iter().any(|(obligation, _)| *obligation == Obligation::NotifyOwner) {
            fact = fact.notifying(&self.facts.owner_ref);
        }
        Ending {
            execution_id: accepted.execution_id,
            lease: self.lease,
            status: ended.status,
            outcome: ended.outcome,
            error: ended.error,
            output,
            steps: ended.steps,
            decisions: ended.decisions,
            artifacts: ended.artifacts,
            lineage: ended.lineage,
            fulfilled: ended.fulfilled,
            finished_at,
            fact,
        }
    }

    /// Stores the end, again and again while the lease could last: the work is done, only the telling is left.
    async fn store(&self, ending: &Ending) -> bool {
        let stores = &self.services.stores.executions;
        let until = tokio::time::Instant::now() + self.services.settings.lease;
        let mut pause = FIRST_PAUSE;
        loop {
            match stores.finish(self.scope, ending).await {
                Ok(()) => {
                    self.services.wake.facts();
                    return true;
                }
                // No lease: an earlier try was stored after all, or somebody else ended the run.
                Err(CommitError::Stale) => return self.is_stored(ending).await,
                Err(CommitError::Store(error)) if tokio::time::Instant::now() + pause < until => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a run's end could not be stored yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "a run's end could not be stored");
                    return false;
                }
            }
        }
    }

    async fn is_stored(&self, ending: &Ending) -> bool {
        let found = self.services.stores.executions.find(self.scope, ending.execution_id).await;
        found.is_ok_and(|found| found.is_some_and(|found| found.finished_at == Some(ending.finished_at)))
    }

    fn as_ended(&self, ending: &Ending) -> Execution {
        let mut execution = as_accepted(&self.acceptance, ending.status, Some((ending.outcome, ending.finished_at)));
        execution.error.clone_from(&ending.error);
        execution.output = ending.output.as_ref().map(|output| output.body.clone());
        if let (Outcome::Denied, Some(decision)) = (ending.outcome, ending.decisions.last()) {
            execution.reason_code.clone_from(&decision.reason_code);
        }
        execution
    }
}

/// The run that an acceptance started, in a given state.
pub(super) fn as_accepted(acceptance: &Acceptance, status: Status, end: Option<(Outcome, Timestamp)>) -> Execution {
    Execution {
        execution_id: acceptance.execution_id,
        workload_id: acceptance.workload_id,
        workspace_id: acceptance.workspace_id,
        release_id: acceptance.release_id,
        environment: acceptance.environment.clone(),
        lane: acceptance.lane,
        submitter: acceptance.submitter.clone(),
        status,
        outcome: end.map(|(outcome, _)| outcome),
        error: None,
        output: None,
        reason_code: acceptance.decision.reason_code.clone(),
        started_at: acceptance.started_at,
        finished_at: end.map(|(_, at)| at),
    }
}
