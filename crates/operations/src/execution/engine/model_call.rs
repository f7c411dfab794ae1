//! Calls of models: tries the routes of a request in order, and stores streamed output during generation.

use super::{
    ProgressRecorder, RunEngine,
    progress::CheckpointPolicy,
    stream_sink::{StreamPart, StreamSink},
};
use fairway_domain::{
    execution::{
        progress::{RunEvent, StoredStepResponse},
        provider::{Completion, DeltaListener, EmbeddingCall, ProviderError, ProviderFailure, RouteTarget},
        routing::{Attempt, ModelRequest, ModelResponse, RequestKind},
        run::{Interruption, Run},
    },
    flow::Step,
    id::ExecutionId,
    tenant::TenantScope,
};
use std::{borrow::Cow, mem, sync::atomic::Ordering, time::Duration};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

/// Maximum number of parts of a streamed answer that one commit stores.
const MAX_PARTS_PER_COMMIT: usize = 1_024;
/// Number of commits of streamed output that are followed by the short pause; the long pause follows each later commit.
/// The long pause keeps a run within its limit of 30,000 events.
const SHORT_PAUSES: u32 = 200;
const SHORT_PAUSE: Duration = Duration::from_millis(20);
const LONG_PAUSE: Duration = Duration::from_millis(100);

impl ProgressRecorder<'_> {
    const fn run_ref(&self) -> RunRef {
        RunRef { scope: self.scope, execution_id: self.lease.execution_id }
    }

    /// Returns the model's answer: the one in the stored progress, or that of a new call.
    pub(super) async fn call_model(
        &mut self,
        run: &mut Run<'_>,
        request: &ModelRequest,
    ) -> Result<ModelResponse, Interruption> {
        let step = run.awaiting_step();
        if let Some(stored_response) = self.replayed_answer(step.map(|step| step.id.as_str())) {
            self.pending_answer = None;
            return Ok(stored_response);
        }
        self.checkpoint(run).await?;
        let streamed_step = step.filter(|_| request.is_streamable && self.policy == CheckpointPolicy::WithEvents);
        let answer = match streamed_step {
            Some(step) => self.call_streaming(request, step).await?,
            None => self.engine.call_routes(self.run_ref(), request, None).await,
        };
        // The run has no external effect before its next call. The answer can therefore be stored before that call, or
        // with the end of the run.
        self.pending_answer = step.map(|step| StoredStepResponse::from_answer(&step.id, &answer));
        Ok(answer)
    }

    /// Calls the model, and stores its output in parts during generation.
    async fn call_streaming(&mut self, request: &ModelRequest, step: &Step) -> Result<ModelResponse, Interruption> {
        let (sender, mut parts) = mpsc::unbounded_channel();
        let engine = self.engine;
        let run = self.run_ref();
        let completion = async move { engine.call_routes(run, request, Some(&StreamSink::new(sender))).await };
        tokio::pin!(completion);
        let restarted_event = || RunEvent::step_started(&step.id, step.kind.as_str());
        let mut events: Vec<RunEvent> =
            mem::take(&mut self.replay.is_answer_partial).then(restarted_event).into_iter().collect();
        let (mut answer, mut received_parts, mut commit_count) = (None, Vec::new(), 0_u32);
        loop {
            let part_count = tokio::select! {
                part_count = parts.recv_many(&mut received_parts, MAX_PARTS_PER_COMMIT) => part_count,
                response = &mut completion, if answer.is_none() => {
                    answer = Some(response);
                    continue;
                }
            };
            if part_count == 0 {
                break;
            }
            for part in received_parts.drain(..) {
                match (part, events.last_mut()) {
                    (StreamPart::Restart, _) => events.push(restarted_event()),
                    (StreamPart::Text(text), Some(last)) if last.kind.is_model_output() => last.append_delta(&text),
                    (StreamPart::Text(text), _) => events.push(RunEvent::delta(&step.id, &text)),
                }
            }
            {
                let commit = self.store_progress(mem::take(&mut events));
                tokio::pin!(commit);
                loop {
                    tokio::select! {
                        outcome = &mut commit => break outcome?,
                        response = &mut completion, if answer.is_none() => answer = Some(response),
                    }
                }
            }
            commit_count = commit_count.saturating_add(1);
            // All parts that arrive during the pause are stored by one commit.
            if answer.is_none() {
                let pause = sleep(if commit_count < SHORT_PAUSES { SHORT_PAUSE } else { LONG_PAUSE });
                tokio::select! {
                    response = &mut completion => answer = Some(response),
                    () = pause => {}
                }
            }
        }
        match answer {
            Some(answer) => Ok(answer),
            None => Ok(completion.await),
        }
    }
}

/// Identifies the run of a model call in log entries.
#[derive(Clone, Copy)]
struct RunRef {
    scope: TenantScope,
    execution_id: ExecutionId,
}

/// Logs a failed call without the content of its request or response.
fn log_failure(run: RunRef, routes: &[RouteTarget], route: usize, failure: ProviderFailure) {
    let Some(target) = routes.get(route) else { return };
    tracing::warn!(
        tenant_id = %run.scope.tenant(),
        execution_id = %run.execution_id,
        route_id = target.route_id,
        account = target.account_slot,
        model = target.model,
        code = failure.error.code(),
        status = failure.status,
        cause = failure.cause,
        "a model call failed; the run repeats the call, tries its next route, or fails the step"
    );
}

impl RunEngine {
    /// Calls the routes in order until one returns an answer or no route is left.
    async fn call_routes(&self, run: RunRef, request: &ModelRequest, sink: Option<&StreamSink>) -> ModelResponse {
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut failure = ProviderError::UnknownAccount;
        while let Some(next_attempt) = request.next_attempt(&attempts) {
            let Some(call) = request.provider_call_on_route(next_attempt.route) else { break };
            if !next_attempt.delay.is_zero() {
                sleep(self.add_jitter(next_attempt.delay)).await;
            }
            let started_at = Instant::now();
            let response = match &request.kind {
                RequestKind::Completion => {
                    self.provider.complete(&call, sink.map(|sink| sink as &dyn DeltaListener)).await
                }
                RequestKind::Embedding(text) => self.embed_query(call.route, text).await,
            };
            let latency = started_at.elapsed();
            match response {
                Ok(completion) => {
                    let (route, result) = (next_attempt.route, Ok(()));
                    attempts.push(Attempt { route, result, status: None, cause: None, retry_after: None, latency });
                    let was_streamed = sink.is_some_and(|sink| sink.has_output.load(Ordering::Relaxed));
                    return ModelResponse { attempts, was_streamed, completion: Ok(completion) };
                }
                Err(provider_failure) => {
                    failure = provider_failure.error;
                    sink.inspect(|sink| sink.record_route_failure());
                    log_failure(run, &request.routes, next_attempt.route, provider_failure);
                    let ProviderFailure { error, retry_after, status, cause } = provider_failure;
                    let (route, result, cause) = (next_attempt.route, Err(error), cause.map(Cow::Borrowed));
                    attempts.push(Attempt { route, result, status, cause, retry_after, latency });
                }
            }
        }
        ModelResponse { attempts, was_streamed: false, completion: Err(failure) }
    }

    async fn embed_query(&self, route: RouteTarget, text: &str) -> Result<Completion, ProviderFailure> {
        let embedding = self.provider.embed(&EmbeddingCall { route, texts: vec![text.to_owned()] }).await?;
        match <[Vec<f32>; 1]>::try_from(embedding.vectors) {
            // JSON cannot represent non-finite numbers, so such a vector could not be stored.
            Ok([vector]) if !vector.is_empty() && vector.iter().all(|component| component.is_finite()) => {
                Ok(Completion {
                    vector,
                    tokens_in: embedding.tokens_in,
                    cost_micros: embedding.cost_micros,
                    ..Completion::default()
                })
            }
            Ok(_) | Err(_) => Err(ProviderError::Malformed.into()),
        }
    }

    /// Extends the delay by up to a half, so that calls that failed together do not retry together.
    fn add_jitter(&self, delay: Duration) -> Duration {
        let [random_byte, ..] = self.context.ids.salt();
        delay + delay.mul_f64(f64::from(random_byte) / 512.0)
    }
}
