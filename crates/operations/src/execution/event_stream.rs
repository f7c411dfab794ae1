//! Event streams of runs: waiting for the end of a run, and reading its stored events.

use super::execution_reader::Ownership;
use crate::{Failure, access::Operation, execution::execution_reader::ExecutionReader, wakeups::RunSubscription};
use fairway_domain::{
    access::Caller,
    client_address::ClientAddress,
    execution::{
        Execution, Status,
        ports::{EventPage, StoredRun},
        progress::{RunEvent, events_of_stored_steps},
    },
    id::ExecutionId,
    share_link::{TokenHash, is_guest},
    tenant::TenantScope,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Interval at which a wait for the end of a run reads its state, if no wakeup arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum delay between two polls.
const RECHECK_DELAY: Duration = Duration::from_millis(25);

/// The number of the first event of a run.
const FIRST_EVENT: usize = 1;

/// One page of the events of a run, with the state of the run.
#[derive(Clone, Debug)]
pub struct EventBatch {
    /// The events with their numbers, oldest first. The first event is the start of the run; the events of its steps
    /// follow.
    pub events: Vec<(usize, RunEvent)>,
    /// The number of the last event that was read.
    pub last: usize,
    /// Whether the store contains further events after this page.
    pub has_more: bool,
    /// The run; only the submitter sees its output. A large output is included only in the last page.
    pub execution: Execution,
}

impl EventBatch {
    /// Whether the run has ended and its last event was read.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.execution.outcome.is_some() && !self.has_more
    }

    /// Whether the run awaits a review, which may take days, before its next event.
    #[must_use]
    pub const fn next_event_awaits_review(&self) -> bool {
        matches!(self.execution.status, Status::AwaitingReview) && !self.has_more
    }
}

/// Position of a reader in the stored events of a run; the default is the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EventCursor {
    /// Position of the last progress record that was read.
    position: u16,
    /// Number of events up to and including that record.
    events: usize,
}

impl ExecutionReader {
    /// Waits for the end of a run, at most for the given time. Returns the state of the run as last read.
    pub(super) async fn wait_for_end_of(&self, scope: TenantScope, queued: Execution, max_wait: Duration) -> Execution {
        let deadline = Instant::now() + max_wait;
        let mut subscription = self.wakeups.subscribe(queued.execution_id);
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return queued;
            }
            // The run was stored a moment ago and cannot have ended. The loop therefore waits before its first read.
            subscription.wait_for_end(remaining.min(POLL_INTERVAL)).await;
            if let Ok(Some(execution)) = self.execution_store.find(scope, queued.execution_id).await
                && !execution.is_active()
            {
                return execution;
            }
            // Limits the rate of polls after wakeups, and while the store does not respond.
            sleep(remaining.min(RECHECK_DELAY)).await;
        }
    }

    /// Subscribes to the wakeups of a run about new events and its end.
    #[must_use]
    pub fn subscribe_wakeups(&self, id: ExecutionId) -> RunSubscription {
        self.wakeups.subscribe(id)
    }

    /// Returns the next page of a run's events, for its submitter and for callers that may view executions in its
    /// scope. Only the submitter receives model output, and only until the output is erased.
    ///
    /// # Errors
    /// Not found when the caller may not see the run.
    pub async fn read_events(
        &self,
        caller: &Caller,
        id: ExecutionId,
        token: Option<&TokenHash>,
        cursor: &mut EventCursor,
    ) -> Result<EventBatch, Failure> {
        let scope = TenantScope::for_caller(caller);
        // The state is read before the events. Otherwise events that are stored together with the end could be missed.
        let state = self.execution_store.find_state(scope, id).await?.ok_or(Failure::NotFound)?;
        let StoredRun { mut execution, is_output_omitted } = state;
        let ownership = self.authorize_run_access(caller, &execution, token, Operation::ReadExecutionEvents).await?;
        if ownership == Ownership::Other {
            execution.output = None;
        }
        if execution.status == Status::Queued {
            return Ok(EventBatch { events: Vec::new(), last: cursor.events, has_more: false, execution });
        }
        let EventPage { records, has_more } = self.event_store.events(scope, id, cursor.position).await?;
        let last_position = records.last().map_or(cursor.position, |last| last.position);
        let mut run_events: Vec<RunEvent> = records.into_iter().flat_map(|record| record.events).collect();
        if last_position == 0 && execution.outcome.is_some() {
            run_events = events_of_stored_steps(&self.event_store.steps(scope, id).await?);
        }
        if ownership == Ownership::Other {
            // A withheld event retains its number, so that all callers see the same numbers.
            run_events.iter_mut().filter(|event| event.kind.is_model_output()).for_each(RunEvent::withhold_delta);
        }
        let mut events = Vec::with_capacity(run_events.len().saturating_add(1));
        // A run that ended in the queue has no start event. The first number remains reserved for it, so that event
        // numbers agree with those of other runs.
        let has_start_event = !(run_events.is_empty() && last_position == 0 && execution.outcome.is_some());
        if cursor.events == 0 && has_start_event {
            events.push((FIRST_EVENT, RunEvent::started(&execution)));
        }
        let previous_last = cursor.events.max(FIRST_EVENT);
        let last = previous_last.saturating_add(run_events.len());
        events.extend((previous_last.saturating_add(1)..).zip(run_events));
        *cursor = EventCursor { position: last_position, events: last };
        let mut batch = EventBatch { events, last, has_more, execution };
        if ownership == Ownership::Own && is_output_omitted && batch.is_complete() {
            // Only the last page contains a large output, so that it is read once.
            let stored = self.execution_store.find(scope, id).await?;
            batch.execution.output = stored.and_then(|stored| stored.output);
        }
        Ok(batch)
    }

    /// Counts a guest's request about a run of a public workload against the rate limit.
    ///
    /// # Errors
    /// Not found when the caller may not see the run; throttled when the caller exceeds the rate limit.
    pub async fn enforce_guest_rate_limit(
        &self,
        caller: &Caller,
        id: ExecutionId,
        token: Option<&TokenHash>,
        address: ClientAddress,
    ) -> Result<(), Failure> {
        if !is_guest(caller.actor.kind()) {
            return Ok(());
        }
        // A refused request is not counted, because a throttled response would reveal that the run exists.
        let scope = TenantScope::for_caller(caller);
        let state = self.execution_store.find_state(scope, id).await?.ok_or(Failure::NotFound)?;
        let execution = state.execution;
        self.authorize_run_access(caller, &execution, token, Operation::ReadExecution).await?;
        let Some(workload) = self.workload_store.find(scope, execution.workload_id).await? else { return Ok(()) };
        self.rate_limits.count_workload_request(caller, &workload, Some(address)).await
    }
}
