//! The progress of a run: replays the stored progress of earlier workers, and records that of this worker.

use super::{super::large_runs::Reservation, RunEngine};
use fairway_domain::{
    execution::{
        StepRecord,
        dispatch::LeaseRef,
        progress::{ProgressRecord, RunEvent, StoredStepResponse, events_of_unstored_steps},
        routing::ModelResponse,
        run::{Interruption, Run},
    },
    store::CommitError,
    tenant::TenantScope,
    wakeup::Wakeup,
};
use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// Delay after the first failed attempt to store something about a run; it doubles with each attempt.
pub(in crate::execution) const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Maximum delay between two attempts to store something about a run.
pub(in crate::execution) const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// When the engine stores the progress of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::execution) enum CheckpointPolicy {
    /// The recorder stores an answer only before the next call or before a long computation. A run with one call and no
    /// long computation therefore needs no additional commit. This policy applies to runs whose events no client reads
    /// and that no worker executes.
    BeforeCalls,
    /// Before the next call, the recorder stores the answer and all events so far; it stores the rest at the end. This
    /// policy applies to runs whose events a client reads or that a worker executes.
    WithEvents,
}

/// The stored progress of earlier workers, which the resumed run replays.
#[derive(Clone, Debug, Default)]
pub(in crate::execution) struct Replay {
    /// Position of the last stored progress record; 0 without one.
    pub(in crate::execution) last_position: u16,
    /// Stored answers of model providers and tools, oldest first.
    pub(in crate::execution) answers: VecDeque<StoredStepResponse>,
    /// Stored events, oldest first. They exclude model output, because a repeated model call generates different
    /// output.
    pub(in crate::execution) events: VecDeque<RunEvent>,
    /// Whether the stored events end within an answer whose generation was interrupted.
    pub(super) is_answer_partial: bool,
}

impl Replay {
    pub(in crate::execution) fn of(progress: Vec<ProgressRecord>) -> Self {
        let mut replay = Self::default();
        for record in progress {
            replay.last_position = replay.last_position.max(record.position);
            replay.answers.extend(record.answer);
            replay.is_answer_partial =
                record.events.last().map_or(replay.is_answer_partial, |last| last.kind.is_model_output());
            replay.events.extend(record.events.into_iter().filter(|event| !event.kind.is_model_output()));
        }
        replay
    }
}

/// Stores the progress of one run, and replays the progress of earlier workers.
pub(in crate::execution) struct ProgressRecorder<'s> {
    pub(super) engine: &'s RunEngine,
    pub(super) scope: TenantScope,
    pub(super) lease: LeaseRef,
    pub(super) policy: CheckpointPolicy,
    pub(super) replay: Replay,
    /// The last model answer while it is not stored.
    pub(super) pending_answer: Option<StoredStepResponse>,
    /// Whether the last answer came from the stored progress.
    pub(super) is_replaying: bool,
    /// Cell that receives the memory reservation when the run acquires one.
    reservation: Option<&'s OnceLock<Arc<Reservation>>>,
}

impl<'s> ProgressRecorder<'s> {
    pub(in crate::execution) const fn new(
        engine: &'s RunEngine,
        scope: TenantScope,
        lease: LeaseRef,
        policy: CheckpointPolicy,
        replay: Replay,
    ) -> Self {
        Self { engine, scope, lease, policy, replay, pending_answer: None, is_replaying: false, reservation: None }
    }

    /// Sets the cell that receives the reservation when the run acquires one.
    pub(in crate::execution) const fn with_reservation(mut self, reservation: &'s OnceLock<Arc<Reservation>>) -> Self {
        self.reservation = Some(reservation);
        self
    }

    /// Acquires a memory reservation for a run that is about to create large values. The deadline of the run limits
    /// the wait.
    pub(super) async fn reserve_run_memory(&mut self) -> Result<(), Interruption> {
        self.store_pending_answer().await?;
        let reserved =
            self.engine.large_runs.reserve_paused(self.scope).await.map_err(|_| Interruption::DeadlineExceeded)?;
        if let Some(reservation) = self.reservation {
            reservation.get_or_init(|| Arc::new(reserved));
        }
        Ok(())
    }

    /// Returns those events that earlier workers have not stored.
    pub(in crate::execution) fn unstored_events(&mut self, mut events: Vec<RunEvent>) -> Vec<RunEvent> {
        // A resumed run repeats its steps, and the events of these steps are already stored. After the first event that
        // differs, every event is new.
        let mut stored_count = 0;
        for (index, event) in events.iter().enumerate().filter(|(_, event)| !event.kind.is_model_output()) {
            if self.replay.events.front() != Some(event) {
                self.replay.events.clear();
                break;
            }
            self.replay.events.pop_front();
            // Model output before a stored event was stored together with that event.
            stored_count = index.saturating_add(1);
        }
        events.split_off(stored_count)
    }

    /// Creates the next progress record with these events and the pending answer.
    pub(in crate::execution) fn next_record(&mut self, events: Vec<RunEvent>) -> ProgressRecord {
        self.replay.last_position = self.replay.last_position.saturating_add(1);
        ProgressRecord { position: self.replay.last_position, answer: self.pending_answer.take(), events }
    }

    /// Returns the progress that remains to be stored at the end of a run.
    pub(in crate::execution) fn last_record(&mut self, events: Vec<RunEvent>) -> Option<ProgressRecord> {
        match self.policy {
            CheckpointPolicy::BeforeCalls => None,
            CheckpointPolicy::WithEvents => {
                let unstored = self.unstored_events(events);
                (!unstored.is_empty()).then(|| ProgressRecord { answer: None, ..self.next_record(unstored) })
            }
        }
    }

    /// Returns the last progress record of a run whose answer awaits review, with the review event. If no progress is
    /// stored yet, the record starts with the events of the steps. Each event then keeps its number when the run ends.
    pub(in crate::execution) fn review_record(
        &mut self,
        last: Option<ProgressRecord>,
        steps: &[StepRecord],
    ) -> ProgressRecord {
        let mut record = last.unwrap_or_else(|| {
            let events = if self.replay.last_position == 0 { events_of_unstored_steps(steps) } else { Vec::new() };
            ProgressRecord { answer: None, ..self.next_record(events) }
        });
        record.events.push(RunEvent::awaiting_review(self.lease.execution_id));
        record
    }

    /// Returns the stored answer to the model call of a step, if the progress contains it.
    pub(super) fn replayed_answer(&mut self, step: Option<&str>) -> Option<ModelResponse> {
        let response = self.take_stored_response(step)?;
        response.into_answer().or_else(|| self.discard_replay())
    }

    /// Returns the next stored answer, if it belongs to this step.
    pub(super) fn take_stored_response(&mut self, step: Option<&str>) -> Option<StoredStepResponse> {
        let response = self.replay.answers.pop_front();
        self.is_replaying = response.is_some();
        let response = response?;
        if step == Some(response.step_id.as_str()) { Some(response) } else { self.discard_replay() }
    }

    /// Discards the remaining stored answers, because the resumed run makes a call that differs from the stored one.
    fn discard_replay<T>(&mut self) -> Option<T> {
        self.replay.answers.clear();
        self.is_replaying = false;
        None
    }

    pub(super) async fn checkpoint(&mut self, run: &mut Run<'_>) -> Result<(), Interruption> {
        let events = run.take_events();
        let unstored = self.unstored_events(events);
        if self.pending_answer.is_none() && (self.policy == CheckpointPolicy::BeforeCalls || unstored.is_empty()) {
            return Ok(());
        }
        self.store_progress(unstored).await
    }

    /// Stores the last answer if it is not stored yet.
    pub(in crate::execution) async fn store_pending_answer(&mut self) -> Result<(), Interruption> {
        if self.pending_answer.is_none() { Ok(()) } else { self.store_progress(Vec::new()).await }
    }

    /// Stores the next progress record. Retries for at most the duration of a lease.
    pub(super) async fn store_progress(&mut self, events: Vec<RunEvent>) -> Result<(), Interruption> {
        let record = self.next_record(events);
        let deadline = Instant::now() + self.engine.settings.lease;
        let (mut pause, mut attempt) = (MIN_RETRY_DELAY, 0_u32);
        loop {
            attempt = attempt.saturating_add(1);
            match self.engine.run_store.record_progress(self.scope, self.lease, &record).await {
                Ok(()) => {
                    self.engine.wakeup_sender.publish(Wakeup::RunProgress(self.lease.execution_id));
                    return Ok(());
                }
                Err(CommitError::Store(error)) if Instant::now() + pause < deadline => {
                    tracing::warn!(
                        tenant_id = %self.scope.tenant(),
                        execution_id = %self.lease.execution_id,
                        attempt,
                        error = &error as &dyn std::error::Error,
                        "failed to store run progress; retrying with backoff"
                    );
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_RETRY_DELAY);
                }
                Err(CommitError::Stale) => return Err(Interruption::LeaseLost),
                Err(error) => {
                    tracing::error!(
                        tenant_id = %self.scope.tenant(),
                        execution_id = %self.lease.execution_id,
                        attempt,
                        error = &error as &dyn std::error::Error,
                        "failed to store run progress; after the lease expires, a worker resumes the run or recovery \
                         ends it"
                    );
                    return Err(Interruption::LeaseLost);
                }
            }
        }
    }
}
