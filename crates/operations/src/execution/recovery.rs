//! Runs whose process died: whoever finds their lease lapsed ends them, so that every accepted run has an end.

use super::code::LOST;
use crate::{Failure, Services};
use fairway_domain::{
    access::ActorRef,
    audit::Stamp,
    execution::{
        Ending, Outcome, RunError, RunRef, Status,
        dispatch::Held,
        ports::{Doing, Lapsed, LapsedRun},
    },
    policy::Obligation,
    signal::Signal,
    store::CommitError,
};
use std::time::Duration;
use tokio::time::Instant;

/// How often lapsed leases are looked for.
const EVERY: Duration = Duration::from_secs(2);
/// How often it is looked whether the last runs have ended.
const LOOK: Duration = Duration::from_millis(20);

/// Ends runs whose lease lapsed, for ever. Any number of processes may do it at once.
pub async fn recover_forever(services: Services) {
    loop {
        match services.recover().await {
            Ok(0) => tokio::time::sleep(EVERY).await,
            Ok(ended) => tracing::info!(ended, "runs of a process that went away were ended"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "lapsed runs could not be ended");
                tokio::time::sleep(EVERY).await;
            }
        }
    }
}

impl Services {
    /// Ends a few runs whose lease lapsed; answers how many.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn recover(&self) -> Result<usize, Failure> {
        let lapsed = self.stores.executions.take_lapsed(self.ids.fresh(), self.whose()).await?;
        let mut ended = 0;
        for run in lapsed {
            match self.stores.executions.finish(run.scope, &self.interrupted(&run)).await {
                Ok(()) => ended += 1,
                // Somebody else was faster.
                Err(CommitError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if ended > 0 {
            self.wake.facts();
        }
        Ok(ended)
    }

    /// Whose runs nobody goes on with.
    const fn whose(&self) -> Lapsed {
        if self.settings.dispatch.has_workers() { Lapsed::Scripts } else { Lapsed::All }
    }

    /// Takes no more runs out of the line, and gives what this process works on some time to end.
    pub async fn let_runs_end(&self, at_most: Duration) {
        self.live.close();
        let until = Instant::now() + at_most;
        while !self.live.is_idle() && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Hands back what this process still works on when it stops: the leases lapse at once. Where there are workers, one of
    /// them goes on with the runs, else they are ended.
    ///
    /// # Errors
    /// When the store does not answer; then the leases lapse by themselves.
    pub async fn hand_back(&self) -> Result<usize, Failure> {
        let held = self.live.take_all();
        for (scope, id, lease) in &held {
            self.stores.executions.hand_back(*scope, Held { execution_id: *id, lease: *lease }).await?;
        }
        if self.settings.dispatch.has_workers() {
            self.signal(Signal::Work);
        }
        let mut ended = 0;
        while !held.is_empty() {
            match self.recover().await? {
                0 => break,
                some => ended += some,
            }
        }
        // Where there are workers they go on with the others.
        Ok(if self.settings.dispatch.has_workers() { held.len() } else { ended })
    }

    fn interrupted(&self, lapsed: &LapsedRun) -> Ending {
        let (status, outcome, code, message) = if lapsed.doing == Doing::Script {
            LOST
        } else if lapsed.cancelled_by.is_some() {
            (Status::Cancelled, Outcome::Cancelled, "cancelled", "the run was cancelled")
        } else if lapsed.overdue {
            (Status::Failed, Outcome::Timeout, "deadline_exceeded", "the run took longer than a run may")
        } else {
            (Status::Failed, Outcome::Failure, "interrupted", "the process that ran this went away")
        };
        let run = &lapsed.execution;
        let named = RunRef {
            execution_id: run.execution_id,
            workload_id: run.workload_id,
            workspace_id: run.workspace_id,
            release_id: run.release_id,
            environment: &run.environment,
            input_digest: lapsed.input_digest,
        };
        let finished_at = self.clock.now();
        let actor = lapsed.cancelled_by.clone().unwrap_or_else(|| ActorRef::system("recovery"));
        let stamp = Stamp { fact_id: self.id(), at: finished_at, actor, request_id: self.id() };
        let (mut fact, mut fulfilled) = (named.ended(outcome, Some(code), None, &stamp), Vec::new());
        // Of what the run owed this alone needs nothing that went away with its process.
        if let Some(owner) = &lapsed.tells_owner {
            fact = fact.notifying(owner);
            fulfilled.push((Obligation::NotifyOwner, finished_at));
        }
        Ending {
            execution_id: run.execution_id,
            lease: lapsed.lease,
            status,
            outcome,
            review_within: None,
            error: Some(RunError::new(code, message)),
            output: None,
            steps: Vec::new(),
            decisions: Vec::new(),
            artifacts: Vec::new(),
            lineage: Vec::new(),
            fulfilled,
            progress: None,
            memory: None,
            finished_at,
            fact,
        }
    }
}
