//! Server-sent events of a run. They are read from the database, so a client can resume an interrupted stream at
//! any process.

use super::{ExecutionResult, identify_runtime_caller};
use crate::{
    caller::{RESULT_TOKEN, RuntimeClient, result_token_hash},
    compose::Api,
    error::ApiError,
    http::{
        HttpState,
        event_stream::{HEARTBEAT, KEEP_ALIVE, RETRY_FIELD, UnsentText, encode_event, event_stream, last_event_id},
        idempotency::IDEMPOTENCY_REPLAYED,
        path::PathId,
        request_id_log_and_metrics::request_id_or_new,
        stream_limit::{StreamPermit, StreamSubject},
    },
    openapi::{ErrorBody, ReadRefusals, ShareTokenParams},
};
use actix_web::{
    HttpRequest, HttpResponse, get,
    http::header::{CONTENT_LOCATION, HeaderValue},
    web,
};
use bytes::Bytes;
use fairway_domain::{
    client_address::ClientAddress,
    execution::Status,
    id::{ExecutionId, RequestId},
    share_link::{ResultToken, TokenHash, is_guest},
};
use fairway_operations::{
    execution::{EventBatch, EventCursor, ExecuteResponse as Run, RunSubscription},
    share_link::RuntimeRequest,
};
use futures_util::stream;
use std::{convert::Infallible, time::Duration};
use tokio::time::Instant;
use utoipa::ToSchema;

/// Interval at which a stream polls its run while no wakeup arrives.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// An event in the stream of a run.
#[derive(ToSchema)]
#[schema(as = ExecutionEvent)]
#[expect(dead_code, reason = "only its description is used")]
struct EventView {
    /// Number of the event, from 1.
    id: String,
    /// `execution.started`, `step.started`, `output.delta`, `step.completed`, `execution.awaiting_review`,
    /// `execution.completed` or `execution.failed`.
    event: String,
    /// Data of the event, as JSON.
    data: String,
}

/// Streams the past and future events of a run until its end.
#[utoipa::path(
    operation_id = "read_execution_events",
    tag = "executions",
    params(
        ("execution_id" = uuid::Uuid, Path, description = "The run"),
        ShareTokenParams,
        ("X-Result-Token" = Option<String>, Header, description = "The result token of a run of `anonymous`"),
        (
            "Last-Event-ID" = Option<String>, Header,
            description = "The number of the last received event: the stream begins after it. An empty value counts \
                as none"
        ),
    ),
    responses(
        (
            status = 200,
            description = "Events: `execution.started`, then any number of `step.started`, `output.delta` and \
                `step.completed`, and last `execution.completed` or `execution.failed` with the result. Events are \
                numbered from 1; a run that ended before its start has no `execution.started`. If the result awaits a \
                human review, the stream sends `execution.awaiting_review` and closes; after the verdict it can be \
                read to its end.",
            content_type = "text/event-stream",
            body = EventView
        ),
        (
            status = 204,
            description = "There are no events after `Last-Event-ID`: the run has ended, or its result awaits a human \
                review"
        ),
        (
            status = 429,
            description = "Too many attempts with share tokens, the rate limit of a public workload is exceeded, or \
                too many streams are open",
            body = ErrorBody
        ),
        ReadRefusals
    )
)]
#[get("/v1/executions/{execution_id}/events")]
pub(crate) async fn read_execution_events(
    request: HttpRequest,
    api: web::Data<Api>,
    base: web::Data<HttpState>,
    RuntimeClient(runtime_request): RuntimeClient,
    execution: PathId<ExecutionId>,
) -> Result<HttpResponse, ApiError> {
    let last_seen = usize::try_from(last_event_id(request.headers())?.unwrap_or(0)).unwrap_or(usize::MAX);
    let token = result_token_hash(request.headers())?;
    identify_runtime_caller(&api, runtime_request.clone(), *execution, token.as_ref()).await?;
    open_stream(&api, &base, StreamTarget { runtime_request, token, id: *execution }, last_seen).await
}

/// A run, and the client that reads its event stream.
pub(super) struct StreamTarget {
    pub(super) runtime_request: RuntimeRequest,
    /// The hash of the client's result token.
    pub(super) token: Option<TokenHash>,
    pub(super) id: ExecutionId,
}

/// The event stream of an accepted run; `None` if it cannot be opened now. Headers contain the URL of the events and
/// the result token, because a client can lose the connection before the first event.
pub(super) async fn stream_accepted_run(
    api: &web::Data<Api>,
    base: &web::Data<HttpState>,
    run: &Run,
    runtime_request: RuntimeRequest,
) -> Option<HttpResponse> {
    let token = run.result_token.as_ref().map(ResultToken::hash);
    let id = run.execution.execution_id;
    let target = StreamTarget { runtime_request, token, id };
    let mut response = match open_stream(api, base, target, 0).await {
        Ok(response) => response,
        Err(refusal) => {
            tracing::info!(
                execution_id = %id,
                code = refusal.code(),
                "failed to open the event stream; responding without it"
            );
            return None;
        }
    };
    if let Ok(events_url) = HeaderValue::from_str(&format!("/v1/executions/{id}/events")) {
        response.headers_mut().insert(CONTENT_LOCATION, events_url);
    }
    if run.replayed {
        response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    let token_header = run.result_token.as_ref().and_then(|token| HeaderValue::from_str(token.reveal()).ok());
    if let Some(token_header) = token_header {
        response.headers_mut().insert(RESULT_TOKEN, token_header);
    }
    Some(response)
}

/// Opens the event stream of a run. Errors of the first read become an error response.
pub(super) async fn open_stream(
    api: &web::Data<Api>,
    base: &web::Data<HttpState>,
    target: StreamTarget,
    last_seen: usize,
) -> Result<HttpResponse, ApiError> {
    let mut state = EventStream {
        wakeups: api.services.execution_reader.subscribe_wakeups(target.id),
        api: api.clone(),
        base: base.clone(),
        target,
        request_id: request_id_or_new(),
        cursor: EventCursor::default(),
        last_sent: last_seen,
        permit: None,
        unsent: UnsentText::default(),
        last_write: Instant::now(),
        has_more: true,
        has_ended: false,
    };
    let mut first_events = String::new();
    // Skips the events that the client has already received, page by page.
    while first_events.is_empty() && state.has_more {
        let (batch, client) = state.poll_events().await?;
        first_events = state.encode_new_events(&batch)?;
        if state.has_ended && first_events.is_empty() {
            // Only a 204 stops the client from reconnecting (WHATWG HTML, section 9.2.3).
            return Ok(HttpResponse::NoContent().finish());
        }
        // Streams of ended runs need a permit as well, because the events for a slow client stay in memory.
        if state.permit.is_none() {
            state.permit =
                Some(base.stream_limiter.acquire(StreamSubject::Run(state.target.id), client.guest_address())?);
        }
        if !state.has_more || !first_events.is_empty() {
            state.unsent = UnsentText::reserve(format!("{RETRY_FIELD}{first_events}"), client.address, base)?;
        }
    }
    let chunks = stream::unfold(state, |mut state| async move {
        let chunk = state.next_chunk().await?;
        Some((Ok::<_, Infallible>(chunk), state))
    });
    Ok(event_stream(chunks))
}

/// State of one open event stream.
struct EventStream {
    api: web::Data<Api>,
    base: web::Data<HttpState>,
    wakeups: RunSubscription,
    target: StreamTarget,
    request_id: RequestId,
    cursor: EventCursor,
    /// Number of the last sent event.
    last_sent: usize,
    /// The permit for this stream; `None` until the first read.
    permit: Option<StreamPermit>,
    unsent: UnsentText,
    last_write: Instant,
    /// Whether further events are already stored.
    has_more: bool,
    has_ended: bool,
}

/// The client of a stream, as identified at the last read.
struct StreamClient {
    address: ClientAddress,
    is_guest: bool,
}

impl StreamClient {
    /// The address of a guest, whose streams are limited per address; `None` for other callers.
    fn guest_address(&self) -> Option<ClientAddress> {
        self.is_guest.then_some(self.address)
    }
}

impl EventStream {
    /// Reads the events since the last read. Each read identifies and authorizes the caller again, so revoked access
    /// ends the stream.
    async fn poll_events(&mut self) -> Result<(EventBatch, StreamClient), ApiError> {
        let StreamTarget { runtime_request, token, id } = &self.target;
        let services = &self.api.services;
        let runtime_caller = services.share_links.resolve_runtime_caller(runtime_request.clone()).await?;
        let caller = services.identities.resolve_caller(self.api.mode, &runtime_caller.claims, self.request_id).await?;
        let batch = services.execution_reader.read_events(&caller, *id, token.as_ref(), &mut self.cursor).await?;
        self.has_more = batch.has_more;
        Ok((batch, StreamClient { address: runtime_caller.address, is_guest: is_guest(caller.actor.kind()) }))
    }

    /// The next chunk of the stream. `None` ends the stream; the client can reconnect.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.unsent.next_chunk() {
                return Some(chunk);
            }
            if self.has_ended || self.base.shutdown.is_announced() {
                return None;
            }
            if !self.has_more {
                self.wakeups.wait_for_change(POLL_INTERVAL).await;
            }
            // On an error the stream ends; the client gets the error response when it reconnects.
            let (batch, client) = self.poll_events().await.ok()?;
            let text = self.encode_new_events(&batch).ok()?;
            if !text.is_empty() {
                self.last_write = Instant::now();
                self.unsent = UnsentText::reserve(text, client.address, &self.base).ok()?;
            } else if self.last_write.elapsed() >= HEARTBEAT {
                self.last_write = Instant::now();
                return Some(KEEP_ALIVE);
            }
        }
    }

    /// The encoded events that the client has not received.
    fn encode_new_events(&mut self, batch: &EventBatch) -> Result<String, ApiError> {
        let mut text = String::new();
        for (number, event) in &batch.events {
            if *number > self.last_sent {
                text.push_str(&encode_event(number, event.kind.as_str(), &event.data)?);
                self.last_sent = *number;
            }
        }
        if batch.is_complete() {
            let number = batch.last.saturating_add(1);
            if self.last_sent < number {
                let completed = batch.execution.status == Status::Completed;
                let kind = if completed { "execution.completed" } else { "execution.failed" };
                text.push_str(&encode_event(&number, kind, &ExecutionResult::of(&batch.execution)?)?);
                self.last_sent = number;
            }
        }
        // A review may take days, so the stream ends and releases its permit.
        self.has_ended = batch.is_complete() || batch.next_event_awaits_review();
        Ok(text)
    }
}
