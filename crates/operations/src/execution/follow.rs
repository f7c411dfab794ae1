//! Following runs: waiting for their end, and telling what happens in them from what is stored.

use super::evidence::Own;
use crate::{Failure, Services, access::Operation, signal::Following};
use fairway_domain::{
    access::Caller,
    execution::{
        Execution,
        progress::{RunEvent, told_afterwards},
    },
    id::ExecutionId,
    share_link::TokenHash,
    tenant::TenantScope,
};
use std::time::Duration;
use tokio::time::Instant;

/// How often a run is looked at by whoever waits for its end, when nobody tells of it.
const EVERY: Duration = Duration::from_millis(250);

/// What happened in a run.
#[derive(Clone, Debug)]
pub struct Told {
    /// What happened so far, the first first: the run's beginning, then what was stored of its steps.
    pub events: Vec<RunEvent>,
    /// The run, with its answer for its submitter alone.
    pub execution: Execution,
}

impl Told {
    /// Whether nothing more comes.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.execution.outcome.is_some()
    }
}

impl Services {
    /// Waits for the end of a run, but not longer than this. The answer is the run as it stands then.
    pub(super) async fn end_of(&self, scope: TenantScope, queued: Execution, at_most: Duration) -> Execution {
        let until = Instant::now() + at_most;
        let mut following = self.signals.follow(queued.execution_id);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return queued;
            }
            // It was stored a moment ago, and nobody has begun it yet.
            following.ended(left.min(EVERY)).await;
            if let Ok(Some(found)) = self.stores.executions.find(scope, queued.execution_id).await
                && found.outcome.is_some()
            {
                return found;
            }
        }
    }

    /// Says when something of a run is stored.
    #[must_use]
    pub fn follow(&self, id: ExecutionId) -> Following {
        self.signals.follow(id)
    }

    /// What happened in a run, to its submitter or to others who may see executions there; these are not told what models
    /// say.
    ///
    /// # Errors
    /// Not found when the caller may not see it.
    pub async fn told_of(&self, caller: &Caller, id: ExecutionId, token: Option<&TokenHash>) -> Result<Told, Failure> {
        let scope = TenantScope::of(caller);
        // First how the run stands, then what was told: what is stored with its end is not missed.
        let (execution, own) = self.read_as(caller, id, token, Operation::ReadExecutionEvents).await?;
        let mut told = self.stores.executions.events(scope, id).await?;
        if told.is_empty() && execution.outcome.is_some() {
            told = told_afterwards(&self.stores.executions.steps(scope, id).await?);
        }
        if own == Own::No {
            // A place is kept for what is not told, so that the others have the same numbers for everybody.
            told.iter_mut().filter(|event| event.kind.is_answer()).for_each(RunEvent::withhold);
        }
        let began = std::iter::once(RunEvent::started(&execution));
        let events = began.chain(told).collect();
        Ok(Told { events, execution })
    }
}
