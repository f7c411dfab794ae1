//! Following runs: waiting for their end, and telling what happens in them from what is stored.

use super::evidence::Own;
use crate::{Failure, Services, access::Operation, signal::Following};
use fairway_domain::{
    access::Caller,
    execution::{
        Execution, Status,
        ports::{EventPage, RunState},
        progress::{RunEvent, told_afterwards},
    },
    id::ExecutionId,
    share_link::{TokenHash, is_guest},
    tenant::TenantScope,
    throttle::ClientAddress,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often a run is looked at by whoever waits for its end, when nobody tells of it.
const EVERY: Duration = Duration::from_millis(250);
/// Between two looks that found no end.
const PAUSE: Duration = Duration::from_millis(25);

/// The number of a run's beginning.
const BEGINNING: usize = 1;

/// What happened in a run since somebody heard of it last.
#[derive(Clone, Debug)]
pub struct Told {
    /// What happened, by number, the first first: the run's beginning, then what was stored of its steps.
    pub events: Vec<(usize, RunEvent)>,
    /// The number of the last event that there is.
    pub last: usize,
    /// Whether more is stored already.
    pub has_more: bool,
    /// The run, with its answer for its submitter alone. A large answer comes with the last of the events.
    pub execution: Execution,
}

impl Told {
    /// Whether nothing more comes.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.execution.outcome.is_some() && !self.has_more
    }

    /// Whether nothing comes for as long as a person does not review the answer, which may take days.
    #[must_use]
    pub const fn awaits_review(&self) -> bool {
        matches!(self.execution.status, Status::AwaitingReview) && !self.has_more
    }
}

/// How much somebody heard of a run, so that nothing is read twice.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Heard {
    /// The last piece of what was stored.
    piece: u16,
    /// Events up to its end.
    events: usize,
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
                && !found.is_under_way()
            {
                return found;
            }
            // Who was told of the end is not kept waiting for it any more, also while the store does not answer.
            sleep(left.min(PAUSE)).await;
        }
    }

    /// Says when something of a run is stored.
    #[must_use]
    pub fn follow(&self, id: ExecutionId) -> Following {
        self.signals.follow(id)
    }

    /// What happened in a run since the last time, a page at a time, to its submitter or to others who may see executions
    /// there; these are not told what models say, and nobody is once the answer is not kept any more.
    ///
    /// # Errors
    /// Not found when the caller may not see it.
    pub async fn told_of(
        &self,
        caller: &Caller,
        (id, token): (ExecutionId, Option<&TokenHash>),
        heard: &mut Heard,
    ) -> Result<Told, Failure> {
        let scope = TenantScope::of(caller);
        // First how the run stands, then what was told: what is stored with its end is not missed.
        let state = self.stores.executions.state(scope, id).await?.ok_or(Failure::NotFound)?;
        let RunState { mut execution, is_output_left_out } = state;
        let own = self.enter_as(caller, &execution, token, Operation::ReadExecutionEvents).await?;
        if own == Own::No {
            execution.output = None;
        }
        if execution.status == Status::Queued {
            return Ok(Told { events: Vec::new(), last: heard.events, has_more: false, execution });
        }
        let EventPage { pieces, has_more } = self.stores.executions.events(scope, id, heard.piece).await?;
        let piece = pieces.last().map_or(heard.piece, |last| last.position);
        let mut told: Vec<RunEvent> = pieces.into_iter().flat_map(|piece| piece.events).collect();
        if piece == 0 && execution.outcome.is_some() {
            told = told_afterwards(&self.stores.executions.steps(scope, id).await?);
        }
        if own == Own::No {
            // A place is kept for what is not told, so that the others have the same numbers for everybody.
            told.iter_mut().filter(|event| event.kind.is_answer()).for_each(RunEvent::withhold);
        }
        let mut events = Vec::with_capacity(told.len().saturating_add(1));
        // A run that came to its end in line never began. The place of its beginning is kept for the same reason.
        let began = !(told.is_empty() && piece == 0 && execution.outcome.is_some());
        if heard.events == 0 && began {
            events.push((BEGINNING, RunEvent::started(&execution)));
        }
        let before = heard.events.max(BEGINNING);
        let last = before.saturating_add(told.len());
        events.extend((before.saturating_add(1)..).zip(told));
        *heard = Heard { piece, events: last };
        let mut told = Told { events, last, has_more, execution };
        if own == Own::Yes && is_output_left_out && told.is_over() {
            // Each page would carry it otherwise.
            let found = self.stores.executions.find(scope, id).await?;
            told.execution.output = found.and_then(|found| found.output);
        }
        Ok(told)
    }

    /// Counts that somebody without a name asks about a run, as a request to its workload where that is public.
    ///
    /// # Errors
    /// Not found when the caller may not see it; when it asks too often.
    pub async fn count_visit_to_run(
        &self,
        caller: &Caller,
        (id, token): (ExecutionId, Option<&TokenHash>),
        address: ClientAddress,
    ) -> Result<(), Failure> {
        if !is_guest(caller.actor.kind()) {
            return Ok(());
        }
        // What is refused is not counted: whether there is such a run is nobody's business.
        let scope = TenantScope::of(caller);
        let state = self.stores.executions.state(scope, id).await?.ok_or(Failure::NotFound)?;
        let execution = state.execution;
        self.enter_as(caller, &execution, token, Operation::ReadExecution).await?;
        let Some(workload) = self.stores.workloads.find(scope, execution.workload_id).await? else { return Ok(()) };
        self.count_visit(scope, &workload, Some(address)).await
    }
}
