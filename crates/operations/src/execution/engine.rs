//! The engine: drives a run to its end, calls models, tools and hooks for it, and stores its progress.

mod stream_sink;

use super::{large_runs::Reservation, retrieval::RetrievalContext};
use crate::{Services, idempotency::MAX_ATTEMPTS};
use fairway_domain::{
    asset::content::tool::RepeatSafety,
    execution::{
        StepRecord,
        dispatch::LeaseRef,
        progress::{ProgressRecord, RunEvent, StoredAnswer, events_of_step_records},
        provider::{Completion, DeltaListener, EmbeddingCall, ProviderError, ProviderFailure, RouteTarget},
        routing::{Attempt, ModelRequest, ModelResponse, RequestKind},
        run::{History, Interruption, Run, RunEffect},
        tool::{McpError, ToolFailure, ToolRequest, ToolResult, ToolTarget},
    },
    flow::Step,
    knowledge::contract::AccessMode,
    store::CommitError,
    tenant::TenantScope,
    wakeup::Wakeup,
};
use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};
use stream_sink::{StreamPart, StreamSink};
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
pub(super) const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
/// The longest delay between attempts.
pub(super) const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// When a run's progress is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CheckpointPolicy {
    /// Before the next call only, so that a run with one call needs no additional commit. No client follows the run.
    BeforeCalls,
    /// Before the next call with all events so far; the rest with the end. For runs that clients follow or workers
    /// resume.
    WithEvents,
}

/// The stored progress of earlier workers, to be replayed.
#[derive(Clone, Debug, Default)]
pub(super) struct Replay {
    /// Position of the last stored progress record.
    pub(super) last_position: u16,
    /// Stored answers of providers.
    pub(super) answers: VecDeque<StoredAnswer>,
    /// Stored events without model output: a repeated model call produces other output.
    pub(super) events: VecDeque<RunEvent>,
    /// Whether the last event is a part of an incomplete answer.
    is_answer_partial: bool,
}

impl Replay {
    pub(super) fn of(progress: Vec<ProgressRecord>) -> Self {
        let mut replay = Self::default();
        for piece in progress {
            replay.last_position = replay.last_position.max(piece.position);
            replay.answers.extend(piece.answer);
            replay.is_answer_partial =
                piece.events.last().map_or(replay.is_answer_partial, |last| last.kind.is_model_output());
            replay.events.extend(piece.events.into_iter().filter(|event| !event.kind.is_model_output()));
        }
        replay
    }
}

/// Records the progress of one run.
pub(super) struct ProgressRecorder<'s> {
    services: &'s Services,
    scope: TenantScope,
    lease: LeaseRef,
    policy: CheckpointPolicy,
    replay: Replay,
    /// An answer that is not stored yet.
    pending_answer: Option<StoredAnswer>,
    /// Whether the last answer was replayed.
    is_replaying: bool,
    /// The slot for the run's reservation.
    reservation: Option<&'s OnceLock<Arc<Reservation>>>,
}

impl<'s> ProgressRecorder<'s> {
    pub(super) const fn new(
        services: &'s Services,
        scope: TenantScope,
        lease: LeaseRef,
        policy: CheckpointPolicy,
        replay: Replay,
    ) -> Self {
        Self { services, scope, lease, policy, replay, pending_answer: None, is_replaying: false, reservation: None }
    }

    /// The same recorder for a run that may acquire a reservation.
    pub(super) const fn with_reservation(mut self, reservation: &'s OnceLock<Arc<Reservation>>) -> Self {
        self.reservation = Some(reservation);
        self
    }

    /// Acquires a reservation for a run that is about to create large values. The run's deadline bounds the wait.
    async fn reserve(&mut self) -> Result<(), Interruption> {
        self.store_pending_answer().await?;
        let reserved =
            self.services.large_runs.reserve_paused(self.scope).await.map_err(|_| Interruption::DeadlineExceeded)?;
        if let Some(reservation) = self.reservation {
            reservation.get_or_init(|| Arc::new(reserved));
        }
        Ok(())
    }

    /// The events that earlier workers did not store.
    pub(super) fn unstored_events(&mut self, mut events: Vec<RunEvent>) -> Vec<RunEvent> {
        // A resumed run repeats its steps, whose events are stored. Once a step differs, every later event is new.
        let mut repeated = 0;
        for (index, event) in events.iter().enumerate().filter(|(_, event)| !event.kind.is_model_output()) {
            if self.replay.events.front() != Some(event) {
                self.replay.events.clear();
                break;
            }
            self.replay.events.pop_front();
            // Output before a stored event is stored too.
            repeated = index.saturating_add(1);
        }
        events.split_off(repeated)
    }

    /// The next progress record, with these events.
    pub(super) fn next_record(&mut self, events: Vec<RunEvent>) -> ProgressRecord {
        self.replay.last_position = self.replay.last_position.saturating_add(1);
        ProgressRecord { position: self.replay.last_position, answer: self.pending_answer.take(), events }
    }

    /// The remaining progress at the end of a run.
    pub(super) fn last_record(&mut self, events: Vec<RunEvent>) -> Option<ProgressRecord> {
        match self.policy {
            CheckpointPolicy::BeforeCalls => None,
            CheckpointPolicy::WithEvents => {
                let unstored = self.unstored_events(events);
                (!unstored.is_empty()).then(|| ProgressRecord { answer: None, ..self.next_record(unstored) })
            }
        }
    }

    /// The last progress record of a run whose answer awaits review, with the review event. A run without stored
    /// progress stores its step events first, so that event numbers stay the same at the end.
    pub(super) fn review_record(&mut self, last: Option<ProgressRecord>, steps: &[StepRecord]) -> ProgressRecord {
        let mut piece = last.unwrap_or_else(|| {
            let events = if self.replay.last_position == 0 { events_of_step_records(steps) } else { Vec::new() };
            ProgressRecord { answer: None, ..self.next_record(events) }
        });
        piece.events.push(RunEvent::awaiting_review(self.lease.execution_id));
        piece
    }

    /// The stored answer to a step's call.
    fn replayed_answer(&mut self, step: Option<&str>) -> Option<ModelResponse> {
        let first = self.next_replayed(step)?;
        first.into_answer().or_else(|| self.discard_replay())
    }

    /// The next stored answer, if it belongs to this step.
    fn next_replayed(&mut self, step: Option<&str>) -> Option<StoredAnswer> {
        let first = self.replay.answers.pop_front();
        self.is_replaying = first.is_some();
        let first = first?;
        if step == Some(first.step_id.as_str()) { Some(first) } else { self.discard_replay() }
    }

    /// Discards the stored answers: the resumed run took another path.
    fn discard_replay<T>(&mut self) -> Option<T> {
        self.replay.answers.clear();
        self.is_replaying = false;
        None
    }

    /// Calls a tool, unless its result is stored. After a replayed answer without a next one, an earlier call may
    /// have happened. A tool that is not repeatable is then not called.
    async fn call_tool(
        &mut self,
        run: &mut Run<'_>,
        request: &ToolRequest,
        reader: &RetrievalContext<'_>,
    ) -> Result<ToolResult, Interruption> {
        let step = run.awaiting_step().map(|step| step.id.clone());
        let replayed = self.is_replaying;
        if let Some(kept) = self.next_replayed(step.as_deref()).and_then(StoredAnswer::into_tool_result) {
            return Ok(kept);
        }
        let result = if replayed && request.repeat_safety == RepeatSafety::Unsafe {
            Err(ToolFailure::OutcomeUnknown)
        } else {
            // Progress is stored before the call: a worker that resumes the run then knows that the call may have
            // happened.
            self.checkpoint(run).await?;
            match &request.target {
                ToolTarget::Http(call) => self.services.send_call(self.scope, call).await.map_err(ToolFailure::Call),
                ToolTarget::Mcp(call) => match self.services.call_mcp_tool(self.scope, call).await {
                    Err(McpError::Drifted(found)) => {
                        self.services.record_drift(call, found.as_ref(), self.lease.execution_id, reader).await?;
                        Err(ToolFailure::Drifted(found))
                    }
                    Err(McpError::Call(error)) => Err(ToolFailure::Call(error)),
                    Ok(given) => Ok(given),
                },
            }
        };
        self.pending_answer = step.map(|step| StoredAnswer::from_tool_result(&step, &result));
        Ok(result)
    }

    /// Reads the run's conversation. A resumed run has used it for its stored answers already.
    async fn recall(&self, reader: &RetrievalContext<'_>) -> History {
        match self.services.recall(reader).await {
            History::Loaded(decisions, recalled) if !self.replay.answers.is_empty() => {
                History::Reloaded(decisions, recalled)
            }
            recollection @ (History::Loaded(..) | History::Reloaded(..) | History::Unavailable) => recollection,
        }
    }

    /// Calls the model, and stores its output while it is generated.
    async fn call_streaming(&mut self, question: &ModelRequest, step: &Step) -> Result<ModelResponse, Interruption> {
        let (sender, mut parts) = mpsc::unbounded_channel();
        let services = self.services;
        let completion = async move { services.call_routes(question, Some(&StreamSink::new(sender))).await };
        tokio::pin!(completion);
        let restarted_event = || RunEvent::step_started(&step.id, step.kind.as_str());
        let mut events: Vec<RunEvent> =
            mem::take(&mut self.replay.is_answer_partial).then(restarted_event).into_iter().collect();
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
                    (StreamPart::Restart, _) => events.push(restarted_event()),
                    (StreamPart::Text(text), Some(last)) if last.kind.is_model_output() => last.append_delta(&text),
                    (StreamPart::Text(text), _) => events.push(RunEvent::delta(&step.id, &text)),
                }
            }
            {
                let keeping = self.store_progress(mem::take(&mut events));
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

    async fn checkpoint(&mut self, run: &mut Run<'_>) -> Result<(), Interruption> {
        let events = run.take_events();
        let unstored = self.unstored_events(events);
        if self.pending_answer.is_none() && (self.policy == CheckpointPolicy::BeforeCalls || unstored.is_empty()) {
            return Ok(());
        }
        self.store_progress(unstored).await
    }

    /// Stores the last answer before long computation.
    pub(super) async fn store_pending_answer(&mut self) -> Result<(), Interruption> {
        if self.pending_answer.is_none() { Ok(()) } else { self.store_progress(Vec::new()).await }
    }

    /// Stores the next progress record, with retries for the duration of a lease.
    async fn store_progress(&mut self, events: Vec<RunEvent>) -> Result<(), Interruption> {
        let piece = self.next_record(events);
        let until = Instant::now() + self.services.settings.lease;
        let mut pause = MIN_RETRY_DELAY;
        loop {
            match self.services.stores.executions.record_progress(self.scope, self.lease, &piece).await {
                Ok(()) => {
                    self.services.wakeup_sender.publish(Wakeup::RunProgress(self.lease.execution_id));
                    return Ok(());
                }
                Err(CommitError::Store(error)) if Instant::now() + pause < until => {
                    tracing::warn!(
                        execution_id = %self.lease.execution_id,
                        error = &error as &dyn std::error::Error,
                        "failed to store run progress; retrying"
                    );
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_RETRY_DELAY);
                }
                Err(CommitError::Stale) => return Err(Interruption::LeaseLost),
                Err(error) => {
                    tracing::error!(
                        execution_id = %self.lease.execution_id,
                        error = &error as &dyn std::error::Error,
                        "failed to store run progress; leaving the run to recovery"
                    );
                    return Err(Interruption::LeaseLost);
                }
            }
        }
    }
}

/// Drives a run to its end. Dropping the future interrupts the current call; the run keeps its progress so far.
pub(super) async fn run_to_end(
    run: &mut Run<'_>,
    mut turn: RunEffect,
    recorder: &mut ProgressRecorder<'_>,
    reader: &RetrievalContext<'_>,
) -> Option<Interruption> {
    loop {
        let question = match turn {
            RunEffect::CallModel(question) => question,
            RunEffect::CheckContracts => {
                turn = run.on_contract_decisions(
                    recorder.services.contract_decisions_for(reader, AccessMode::Retrieve).await,
                );
                continue;
            }
            RunEffect::LoadHistory => {
                turn = run.on_history(recorder.recall(reader).await);
                continue;
            }
            RunEffect::RetrieveDocuments(lookup) => {
                if let Err(cut) = recorder.checkpoint(run).await {
                    return Some(cut);
                }
                turn = run.on_documents(recorder.services.execute_lookup(reader, &lookup).await);
                continue;
            }
            RunEffect::CallTool(request) => {
                turn = match recorder.call_tool(run, &request, reader).await {
                    Ok(result) => run.on_tool(result),
                    Err(cut) => return Some(cut),
                };
                continue;
            }
            RunEffect::CheckGuardrails(check) => {
                let mut result = recorder.services.check_guardrails_inline(&check);
                if result.is_none() {
                    // The last answer is stored before long computation.
                    if recorder.store_pending_answer().await.is_err() {
                        return Some(Interruption::LeaseLost);
                    }
                    result = recorder.services.check_guardrails(reader.scope, *check).await;
                }
                turn = run.on_guardrail(result);
                continue;
            }
            RunEffect::CheckSchema(check) => {
                if recorder.store_pending_answer().await.is_err() {
                    return Some(Interruption::LeaseLost);
                }
                turn = run.on_schema_check(recorder.services.check_schema(reader.scope, *check).await);
                continue;
            }
            RunEffect::CallHook(call) => {
                if let Err(cut) = recorder.checkpoint(run).await {
                    return Some(cut);
                }
                turn = run.on_hook(recorder.services.call_hook(reader.scope, &call).await);
                continue;
            }
            RunEffect::Reserve => {
                turn = match recorder.reserve().await {
                    Ok(()) => run.on_reservation(),
                    Err(cut) => return Some(cut),
                };
                continue;
            }
            RunEffect::Ended => return None,
        };
        let step = run.awaiting_step();
        let (answer, kept) = match recorder.replayed_answer(step.map(|step| step.id.as_str())) {
            Some(known) => (known, None),
            None => {
                if let Err(cut) = recorder.checkpoint(run).await {
                    return Some(cut);
                }
                let streamed_step =
                    step.filter(|_| question.is_streamable && recorder.policy == CheckpointPolicy::WithEvents);
                let answer = match streamed_step {
                    Some(step) => match recorder.call_streaming(&question, step).await {
                        Ok(answer) => answer,
                        Err(cut) => return Some(cut),
                    },
                    None => recorder.services.call_routes(&question, None).await,
                };
                let kept = step.map(|step| StoredAnswer::from_answer(&step.id, &answer));
                (answer, kept)
            }
        };
        turn = run.on_model(answer);
        // Later steps have no external effects, so the answer is stored before the next call or with the end.
        recorder.pending_answer = kept;
    }
}

impl Services {
    /// Calls the routes in order until one answers or none is left.
    async fn call_routes(&self, question: &ModelRequest, aloud: Option<&StreamSink>) -> ModelResponse {
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut failure = ProviderError::UnknownAccount;
        while let Some(next) = question.next_attempt(&attempts) {
            let Some(call) = question.call(next.route) else { break };
            if !next.delay.is_zero() {
                sleep(self.with_jitter(next.delay)).await;
            }
            let began = Instant::now();
            let answer = match &question.kind {
                RequestKind::Completion => {
                    self.provider.complete(&call, aloud.map(|aloud| aloud as &dyn DeltaListener)).await
                }
                RequestKind::Embedding(text) => self.embed_query(call.route, text).await,
            };
            let attempt =
                |result, retry_after| Attempt { route: next.route, result, retry_after, latency: began.elapsed() };
            match answer {
                Ok(completion) => {
                    attempts.push(attempt(Ok(()), None));
                    let was_told = aloud.is_some_and(|aloud| aloud.has_output.load(Ordering::Relaxed));
                    return ModelResponse { attempts, was_streamed: was_told, completion: Ok(completion) };
                }
                Err(failed) => {
                    failure = failed.error;
                    aloud.inspect(|aloud| aloud.route_failed());
                    attempts.push(attempt(Err(failed.error), failed.retry_after));
                }
            }
        }
        ModelResponse { attempts, was_streamed: false, completion: Err(failure) }
    }

    async fn embed_query(&self, route: RouteTarget, text: &str) -> Result<Completion, ProviderFailure> {
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
    fn with_jitter(&self, pause: Duration) -> Duration {
        let [drawn, ..] = self.context.ids.salt();
        pause + pause.mul_f64(f64::from(drawn) / 512.0)
    }
}

/// Maximum number of decisions on a run before it is left to a later attempt.
pub(super) const MAX_DECISIONS: usize = MAX_ATTEMPTS + 1;
