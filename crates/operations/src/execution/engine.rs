//! The engine: drives a run to its end, calls models, tools and hooks for it, and stores its progress.

mod stream_sink;

use super::{documents::Reader, large_runs::Reservation};
use crate::{Services, once::ATTEMPTS};
use fairway_domain::{
    asset::content::tool::RepeatSafety,
    execution::{
        StepRecord,
        dispatch::Held,
        progress::{StoredAnswer, Progress, RunEvent, events_of_step_records},
        provider::{Completion, EmbeddingCall, DeltaListener, ProviderError, ProviderFailure, RoutePoint},
        routing::{Answer, Attempt, Question, Wanted},
        run::{Cut, History, Run, Turn},
        tool::{McpError, ToolTarget, ToolFailure, ToolRequest, ToolResult},
    },
    flow::Step,
    knowledge::contract::AccessMode,
    signal::Wakeup,
    store::CommitError,
    tenant::TenantScope,
};
use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};
use stream_sink::{StreamSink, Part};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

/// Maximum number of stream parts that one commit stores.
const MAX_PARTS_PER_COMMIT: usize = 1_024;
/// Number of answer events that are stored after the short pause; later ones wait for the long pause. A run has room
/// for thirty thousand.
const SHORT_PAUSES: u32 = 200;
const SHORT_PAUSE: Duration = Duration::from_millis(20);
const LONG_PAUSE: Duration = Duration::from_millis(100);

/// The first delay between attempts to store; it doubles each time.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest delay between attempts.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// When a run's progress is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CheckpointPolicy {
    /// Before the next call only, so that a run with one call needs no additional commit. No client follows the run.
    BeforeAsking,
    /// Before the next call with all events so far; the rest with the end. For runs that clients follow or workers
    /// resume.
    Telling,
}

/// The stored progress of earlier workers, to be replayed.
#[derive(Clone, Debug, Default)]
pub(super) struct Came {
    /// Position of the last stored progress record.
    pub(super) pieces: u16,
    /// Stored answers of providers.
    pub(super) answers: VecDeque<StoredAnswer>,
    /// Stored events without model output: a repeated model call produces other output.
    pub(super) told: VecDeque<RunEvent>,
    /// Whether the last event is a part of an incomplete answer.
    broke_off: bool,
}

impl Came {
    pub(super) fn of(progress: Vec<Progress>) -> Self {
        let mut replay = Self::default();
        for piece in progress {
            replay.pieces = replay.pieces.max(piece.position);
            replay.answers.extend(piece.answer);
            replay.broke_off = piece.events.last().map_or(replay.broke_off, |last| last.kind.is_answer());
            replay.told.extend(piece.events.into_iter().filter(|event| !event.kind.is_answer()));
        }
        replay
    }
}

/// Records the progress of one run.
pub(super) struct ProgressRecorder<'s> {
    services: &'s Services,
    scope: TenantScope,
    held: Held,
    keeping: CheckpointPolicy,
    came: Came,
    /// An answer that is not stored yet.
    answer: Option<StoredAnswer>,
    /// Whether the last answer was replayed.
    replays: bool,
    /// The slot for the run's reservation.
    reservation: Option<&'s OnceLock<Arc<Reservation>>>,
}

impl<'s> ProgressRecorder<'s> {
    pub(super) const fn new(
        services: &'s Services,
        (scope, held): (TenantScope, Held),
        keeping: CheckpointPolicy,
        came: Came,
    ) -> Self {
        Self { services, scope, held, keeping, came, answer: None, replays: false, reservation: None }
    }

    /// The same recorder for a run that may acquire a reservation.
    pub(super) const fn with_reservation(mut self, reservation: &'s OnceLock<Arc<Reservation>>) -> Self {
        self.reservation = Some(reservation);
        self
    }

    /// Acquires a reservation for a run that is about to create large values. The run's deadline bounds the wait.
    async fn reserve(&mut self) -> Result<(), Cut> {
        self.store_pending_answer().await?;
        let reserved = self.services.large_runs.reserve_paused(self.scope).await.map_err(|_| Cut::Overdue)?;
        if let Some(reservation) = self.reservation {
            reservation.get_or_init(|| Arc::new(reserved));
        }
        Ok(())
    }

    /// The events that earlier workers did not store.
    pub(super) fn news(&mut self, mut events: Vec<RunEvent>) -> Vec<RunEvent> {
        // A resumed run repeats its steps, whose events are stored. Once a step differs, every later event is new.
        let mut repeated = 0;
        for (index, event) in events.iter().enumerate().filter(|(_, event)| !event.kind.is_answer()) {
            if self.came.told.front() != Some(event) {
                self.came.told.clear();
                break;
            }
            self.came.told.pop_front();
            // Output before a stored event is stored too.
            repeated = index.saturating_add(1);
        }
        events.split_off(repeated)
    }

    /// The next progress record, with these events.
    pub(super) fn piece(&mut self, events: Vec<RunEvent>) -> Progress {
        self.came.pieces = self.came.pieces.saturating_add(1);
        Progress { position: self.came.pieces, answer: self.answer.take(), events }
    }

    /// The remaining progress at the end of a run.
    pub(super) fn last_record(&mut self, events: Vec<RunEvent>) -> Option<Progress> {
        match self.keeping {
            CheckpointPolicy::BeforeAsking => None,
            CheckpointPolicy::Telling => {
                let unstored = self.news(events);
                (!unstored.is_empty()).then(|| Progress { answer: None, ..self.piece(unstored) })
            }
        }
    }

    /// The last progress record of a run whose answer awaits review, with the review event. A run without stored
    /// progress stores its step events first, so that event numbers stay the same at the end.
    pub(super) fn review_record(&mut self, last: Option<Progress>, steps: &[StepRecord]) -> Progress {
        let mut piece = last.unwrap_or_else(|| {
            let events = if self.came.pieces == 0 { events_of_step_records(steps) } else { Vec::new() };
            Progress { answer: None, ..self.piece(events) }
        });
        piece.events.push(RunEvent::awaiting_review(self.held.execution_id));
        piece
    }

    /// The stored answer to a step's call.
    fn known(&mut self, step: Option<&str>) -> Option<Answer> {
        let first = self.next_replayed(step)?;
        first.answer().or_else(|| self.discard_replay())
    }

    /// The next stored answer, if it belongs to this step.
    fn next_replayed(&mut self, step: Option<&str>) -> Option<StoredAnswer> {
        let first = self.came.answers.pop_front();
        self.replays = first.is_some();
        let first = first?;
        if step == Some(first.step_id.as_str()) { Some(first) } else { self.discard_replay() }
    }

    /// Discards the stored answers: the resumed run took another path.
    fn discard_replay<T>(&mut self) -> Option<T> {
        self.came.answers.clear();
        self.replays = false;
        None
    }

    /// Calls a tool, unless its result is stored. After a replayed answer without a next one, an earlier call may
    /// have happened. A tool that is not repeatable is then not called.
    async fn call_tool(
        &mut self,
        run: &mut Run<'_>,
        request: &ToolRequest,
        reader: &Reader<'_>,
    ) -> Result<ToolResult, Cut> {
        let step = run.asking().map(|step| step.id.clone());
        let replayed = self.replays;
        if let Some(kept) = self.next_replayed(step.as_deref()).and_then(StoredAnswer::tool) {
            return Ok(kept);
        }
        let result = if replayed && request.repeat == RepeatSafety::Unsafe {
            Err(ToolFailure::OutcomeUnknown)
        } else {
            // Progress is stored before the call: a worker that resumes the run then knows that the call may have
            // happened.
            self.checkpoint(run).await?;
            match &request.call {
                ToolTarget::Address(call) => {
                    self.services.send_call(self.scope, call).await.map_err(ToolFailure::Call)
                }
                ToolTarget::Server(call) => match self.services.use_tool(self.scope, call).await {
                    Err(McpError::Drifted(found)) => {
                        self.services.record_drift(call, found.as_ref(), (self.held.execution_id, reader)).await?;
                        Err(ToolFailure::Drifted(found))
                    }
                    Err(McpError::Call(error)) => Err(ToolFailure::Call(error)),
                    Ok(given) => Ok(given),
                },
            }
        };
        self.answer = step.map(|step| StoredAnswer::of_tool(&step, &result));
        Ok(result)
    }

    /// Reads the run's conversation. A resumed run has used it for its stored answers already.
    async fn recall(&self, reader: &Reader<'_>) -> History {
        match self.services.recall(reader).await {
            History::Read(decisions, recalled) if !self.came.answers.is_empty() => {
                History::ReadAgain(decisions, recalled)
            }
            recollection @ (History::Read(..) | History::ReadAgain(..) | History::Unavailable) => {
                recollection
            }
        }
    }

    /// Calls the model, and stores its output while it is generated.
    async fn call_streaming(&mut self, question: &Question, step: &Step) -> Result<Answer, Cut> {
        let (sender, mut parts) = mpsc::unbounded_channel();
        let services = self.services;
        let completion = async move { services.ask(question, Some(&StreamSink::over(sender))).await };
        tokio::pin!(completion);
        let restarted_event = || RunEvent::step_started(&step.id, step.kind.as_str());
        let mut events: Vec<RunEvent> = mem::take(&mut self.came.broke_off).then(restarted_event).into_iter().collect();
        let (mut answer, mut gathered, mut stored) = (None, Vec::new(), 0_u32);
        loop {
            let received = tokio::select! {
                received = parts.recv_many(&mut gathered, MAX_PARTS_PER_COMMIT) => received,
                done = &mut completion, if answer.is_none() => {
                    answer = Some(done);
                    continue;
                }
            };
            if received == 0 {
                break;
            }
            for part in gathered.drain(..) {
                match (part, events.last_mut()) {
                    (Part::Again, _) => events.push(restarted_event()),
                    (Part::Said(text), Some(last)) if last.kind.is_answer() => last.goes_on(&text),
                    (Part::Said(text), _) => events.push(RunEvent::delta(&step.id, &text)),
                }
            }
            {
                let keeping = self.keep(mem::take(&mut events));
                tokio::pin!(keeping);
                loop {
                    tokio::select! {
                        kept = &mut keeping => break kept?,
                        done = &mut completion, if answer.is_none() => answer = Some(done),
                    }
                }
            }
            stored = stored.saturating_add(1);
            // Parts that arrive during the pause share a commit.
            if answer.is_none() {
                let pause = sleep(if stored < SHORT_PAUSES { SHORT_PAUSE } else { LONG_PAUSE });
                tokio::select! {
                    done = &mut completion => answer = Some(done),
                    () = pause => {}
                }
            }
        }
        match answer {
            Some(answer) => Ok(answer),
            None => Ok(completion.await),
        }
    }

    async fn checkpoint(&mut self, run: &mut Run<'_>) -> Result<(), Cut> {
        let events = run.take_events();
        let unstored = self.news(events);
        if self.answer.is_none() && (self.keeping == CheckpointPolicy::BeforeAsking || unstored.is_empty()) {
            return Ok(());
        }
        self.keep(unstored).await
    }

    /// Stores the last answer before long computation.
    pub(super) async fn store_pending_answer(&mut self) -> Result<(), Cut> {
        if self.answer.is_none() { Ok(()) } else { self.keep(Vec::new()).await }
    }

    /// Stores the next progress record, with retries for the duration of a lease.
    async fn keep(&mut self, events: Vec<RunEvent>) -> Result<(), Cut> {
        let piece = self.piece(events);
        let until = Instant::now() + self.services.settings.lease;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.services.stores.executions.advance(self.scope, self.held, &piece).await {
                Ok(()) => {
                    self.services.signal(Wakeup::Progress(self.held.execution_id));
                    return Ok(());
                }
                Err(CommitError::Store(error)) if Instant::now() + pause < until => {
                    tracing::warn!(
                        execution_id = %self.held.execution_id,
                        error = &error as &dyn std::error::Error,
                        "failed to store run progress; retrying"
                    );
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(CommitError::Stale) => return Err(Cut::LeaseLost),
                Err(error) => {
                    tracing::error!(
                        execution_id = %self.held.execution_id,
                        error = &error as &dyn std::error::Error,
                        "failed to store run progress; leaving the run to recovery"
                    );
                    return Err(Cut::LeaseLost);
                }
            }
        }
    }
}

/// Drives a run to its end. Dropping the future interrupts the current call; the run keeps its progress so far.
pub(super) async fn run_to_end(
    run: &mut Run<'_>,
    mut turn: Turn,
    recorder: &mut ProgressRecorder<'_>,
    reader: &Reader<'_>,
) -> Option<Cut> {
    loop {
        let question = match turn {
            Turn::Ask(question) => question,
            Turn::Check => {
                turn = run.checked(recorder.services.contract_decisions_for(reader, AccessMode::Retrieve).await);
                continue;
            }
            Turn::Recall => {
                turn = run.recalled(recorder.recall(reader).await);
                continue;
            }
            Turn::LookUp(lookup) => {
                if let Err(cut) = recorder.checkpoint(run).await {
                    return Some(cut);
                }
                turn = run.on_documents(recorder.services.look_up(reader, &lookup).await);
                continue;
            }
            Turn::CallTool(request) => {
                turn = match recorder.call_tool(run, &request, reader).await {
                    Ok(result) => run.called(result),
                    Err(cut) => return Some(cut),
                };
                continue;
            }
            Turn::Look(check) => {
                let mut result = recorder.services.look_briefly(&check);
                if result.is_none() {
                    // The last answer is stored before long computation.
                    if recorder.store_pending_answer().await.is_err() {
                        return Some(Cut::LeaseLost);
                    }
                    result = recorder.services.look(reader.scope, *check).await;
                }
                turn = run.looked(result);
                continue;
            }
            Turn::CheckSchema(check) => {
                if recorder.store_pending_answer().await.is_err() {
                    return Some(Cut::LeaseLost);
                }
                turn = run.on_schema_check(recorder.services.check_schema(reader.scope, *check).await);
                continue;
            }
            Turn::Hook(call) => {
                if let Err(cut) = recorder.checkpoint(run).await {
                    return Some(cut);
                }
                turn = run.hooked(recorder.services.call_hook(reader.scope, &call).await);
                continue;
            }
            Turn::Reserve => {
                turn = match recorder.reserve().await {
                    Ok(()) => run.reserved(),
                    Err(cut) => return Some(cut),
                };
                continue;
            }
            Turn::Ended => return None,
        };
        let step = run.asking();
        let (answer, kept) = match recorder.known(step.map(|step| step.id.as_str())) {
            Some(known) => (known, None),
            None => {
                if let Err(cut) = recorder.checkpoint(run).await {
                    return Some(cut);
                }
                let streamed_step = step.filter(|_| question.is_shown && recorder.keeping == CheckpointPolicy::Telling);
                let answer = match streamed_step {
                    Some(step) => match recorder.call_streaming(&question, step).await {
                        Ok(answer) => answer,
                        Err(cut) => return Some(cut),
                    },
                    None => recorder.services.ask(&question, None).await,
                };
                let kept = step.map(|step| StoredAnswer::of(&step.id, &answer));
                (answer, kept)
            }
        };
        turn = run.answered(answer);
        // Later steps have no external effects, so the answer is stored before the next call or with the end.
        recorder.answer = kept;
    }
}

impl Services {
    /// Calls the routes in order until one answers or none is left.
    async fn ask(&self, question: &Question, aloud: Option<&StreamSink>) -> Answer {
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut failure = ProviderError::UnknownAccount;
        while let Some(next) = question.next(&attempts) {
            let Some(call) = question.call(next.route) else { break };
            if !next.pause.is_zero() {
                sleep(self.jittered(next.pause)).await;
            }
            let began = Instant::now();
            let answer = match &question.wanted {
                Wanted::Words => self.provider.complete(&call, aloud.map(|aloud| aloud as &dyn DeltaListener)).await,
                Wanted::Vector(text) => self.vector(call.route, text).await,
            };
            let attempt =
                |result, retry_after| Attempt { route: next.route, result, retry_after, latency: began.elapsed() };
            match answer {
                Ok(completion) => {
                    attempts.push(attempt(Ok(()), None));
                    let was_told = aloud.is_some_and(|aloud| aloud.said.load(Ordering::Relaxed));
                    return Answer { attempts, was_told, completion: Ok(completion) };
                }
                Err(failed) => {
                    failure = failed.error;
                    aloud.inspect(|aloud| aloud.broke_off());
                    attempts.push(attempt(Err(failed.error), failed.retry_after));
                }
            }
        }
        Answer { attempts, was_told: false, completion: Err(failure) }
    }

    async fn vector(&self, route: RoutePoint, text: &str) -> Result<Completion, ProviderFailure> {
        let made = self.provider.embed(&EmbeddingCall { route, texts: vec![text.to_owned()] }).await?;
        match <[Vec<f32>; 1]>::try_from(made.vectors) {
            // JSON has no non-finite numbers.
            Ok([vector]) if !vector.is_empty() && vector.iter().all(|part| part.is_finite()) => Ok(Completion {
                vector,
                tokens_in: made.tokens_in,
                cost_micros: made.cost_micros,
                ..Completion::default()
            }),
            Ok(_) | Err(_) => Err(ProviderError::Malformed.into()),
        }
    }

    /// The delay extended by up to half, so that concurrent failures do not retry together.
    fn jittered(&self, pause: Duration) -> Duration {
        let [drawn, ..] = self.ids.salt();
        pause + pause.mul_f64(f64::from(drawn) / 512.0)
    }
}

/// Maximum number of decisions on a run before it is left to a later attempt.
pub(super) const MAX_DECISIONS: usize = ATTEMPTS + 1;
