//! What happens in a run, as server-sent events: told from what is stored, so that a stream that was cut goes on where it
//! was, at whichever process it is asked for.

use super::{ExecutionResult, preference::EVENT_STREAM};
use crate::{
    caller::{RESULT_TOKEN, Visitor, result_token},
    compose::Api,
    document::{ErrorBody, ReadRefusals, TokenParams},
    error::{ApiError, FieldProblem},
    http::{HttpBase, idempotency::IDEMPOTENCY_REPLAYED, leaving::Leaving, path::PathId, request_context::request_id},
};
use actix_web::{
    HttpRequest, HttpResponse, get,
    http::header::{HeaderMap, HeaderName, HeaderValue},
    web,
};
use bytes::Bytes;
use fairway_domain::{
    execution::Status,
    id::{ExecutionId, RequestId},
    share_link::{ResultToken, TokenHash},
};
use fairway_operations::{
    execution::{Answer as Run, Following, Told},
    share_link::Arrival,
};
use futures_util::stream;
use std::{convert::Infallible, time::Duration};
use tokio::time::Instant;
use utoipa::ToSchema;

/// Where a client says which event it saw last.
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Tells proxies that a part of an answer is not to be kept back until there is more of it.
const UNBUFFERED: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");
/// How long nothing is said at most: a connection on which nothing moves is given up, here and by proxies.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// How often a run is looked at when nobody tells of it.
const EVERY: Duration = Duration::from_secs(1);
/// How long a client waits before it comes back, in milliseconds.
const RETRY: &str = "retry: 1000\n\n";

/// One event, as the fields of a stream spell it.
#[derive(ToSchema)]
#[schema(as = ExecutionEvent)]
#[expect(dead_code, reason = "only its description is used")]
struct EventView {
    /// Its number, from 1.
    id: String,
    /// `execution.started`, `step.started`, `output.delta`, `step.completed`, `execution.completed` or `execution.failed`.
    event: String,
    /// What is to be said of it, as JSON.
    data: String,
}

/// The events of a run so far, and those that come, until its end.
#[utoipa::path(
    operation_id = "read_execution_events",
    tag = "executions",
    params(
        ("execution_id" = uuid::Uuid, Path, description = "The run"),
        TokenParams,
        ("X-Result-Token" = Option<String>, Header, description = "What a run of `anonymous` is followed by"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was seen: the stream begins behind it"),
    ),
    responses(
        (
            status = 200,
            description = "Events: `execution.started`, `step.started`, `output.delta` and `step.completed` as often as there \
                are any, and last `execution.completed` or `execution.failed` with the result. They are numbered from 1.",
            content_type = "text/event-stream",
            body = EventView
        ),
        (status = 429, description = "You try too many share tokens", body = ErrorBody),
        ReadRefusals
    )
)]
#[get("/v1/executions/{execution_id}/events")]
pub(crate) async fn read_execution_events(
    request: HttpRequest,
    api: web::Data<Api>,
    base: web::Data<HttpBase>,
    Visitor(arrival): Visitor,
    execution: PathId<ExecutionId>,
) -> Result<HttpResponse, ApiError> {
    let seen = last_seen(request.headers())?;
    let token = result_token(request.headers())?;
    streamed(&api, &base, Followed { arrival, token, id: *execution }, seen).await
}

/// Who follows which run.
pub(super) struct Followed {
    pub(super) arrival: Arrival,
    /// The hash of the result token that was brought.
    pub(super) token: Option<TokenHash>,
    pub(super) id: ExecutionId,
}

/// The number of the event that a client saw last.
pub(super) fn last_seen(headers: &HeaderMap) -> Result<usize, ApiError> {
    let Some(value) = headers.get(&LAST_EVENT_ID) else { return Ok(0) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| FieldProblem::new("Last-Event-ID", "invalid", "events are numbered").into())
}

/// The events of a run that was accepted for whoever follows it. What else would read it is told in a header.
pub(super) async fn followed(
    api: &web::Data<Api>,
    base: &web::Data<HttpBase>,
    run: &Run,
    arrival: Arrival,
) -> Result<HttpResponse, ApiError> {
    let token = run.result_token.as_ref().map(ResultToken::hash);
    let followed = Followed { arrival, token, id: run.execution.execution_id };
    let mut answer = streamed(api, base, followed, 0).await?;
    if run.replayed {
        answer.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    let shown = run.result_token.as_ref().and_then(|token| HeaderValue::from_str(token.reveal()).ok());
    if let Some(shown) = shown {
        answer.headers_mut().insert(RESULT_TOKEN, shown);
    }
    Ok(answer)
}

/// A stream of what happens in a run. What refuses the first look is an answer of its own.
pub(super) async fn streamed(
    api: &web::Data<Api>,
    base: &web::Data<HttpBase>,
    followed: Followed,
    seen: usize,
) -> Result<HttpResponse, ApiError> {
    let mut telling = Telling {
        following: api.services.follow(followed.id),
        api: api.clone(),
        leaving: base.leaving.clone(),
        followed,
        request_id: request_id(),
        told: seen,
        said_at: Instant::now(),
        over: false,
    };
    let first = telling.look().await?;
    let first = format!("{RETRY}{}", telling.text(&first)?);
    let rest = stream::unfold(telling, |mut telling| async move {
        let text = telling.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), telling))
    });
    let first = stream::once(async move { Ok(Bytes::from(first)) });
    Ok(HttpResponse::Ok()
        .content_type(EVENT_STREAM)
        .insert_header(UNBUFFERED)
        .streaming(futures_util::StreamExt::chain(first, rest)))
}

/// One client that is told of one run.
struct Telling {
    api: web::Data<Api>,
    leaving: Leaving,
    following: Following,
    followed: Followed,
    request_id: RequestId,
    /// Events that it has seen.
    told: usize,
    said_at: Instant,
    over: bool,
}

impl Telling {
    /// How the run stands, as the caller may see it now: who lost the right to is told no more.
    async fn look(&self) -> Result<Told, ApiError> {
        let Followed { arrival, token, id } = &self.followed;
        let services = &self.api.services;
        let visit = services.receive(arrival.clone()).await?;
        let caller = services.identify(self.api.mode, &visit.claims, self.request_id).await?;
        Ok(services.told_of(&caller, *id, token.as_ref()).await?)
    }

    /// The next part. `None`: the stream ends, and whoever wants more comes back.
    async fn next(&mut self) -> Option<String> {
        loop {
            if self.over || self.leaving.is_announced() {
                return None;
            }
            self.following.changed(EVERY).await;
            let text = match self.look().await {
                Ok(told) => self.text(&told).ok()?,
                // Whoever comes back is told why by an answer of its own.
                Err(_) => return None,
            };
            if !text.is_empty() {
                self.said_at = Instant::now();
                return Some(text);
            }
            if self.said_at.elapsed() >= HEARTBEAT {
                self.said_at = Instant::now();
                return Some(":\n\n".to_owned());
            }
        }
    }

    /// What the client has not seen.
    fn text(&mut self, told: &Told) -> Result<String, ApiError> {
        let mut text = String::new();
        let events = if told.execution.status == Status::Queued { &[][..] } else { &told.events[..] };
        for (number, event) in (1_usize..).zip(events).skip(self.told) {
            text.push_str(&written(number, event.kind.as_str(), &serde_json::Value::Object(event.data.clone())));
            self.told = number;
        }
        if told.is_over() {
            let number = told.events.len().saturating_add(1);
            if self.told < number {
                let result = ExecutionResult::of(&told.execution)?;
                let data = serde_json::to_value(&result).map_err(|error| ApiError::internal().caused_by(&error))?;
                let completed = told.execution.status == Status::Completed;
                let kind = if completed { "execution.completed" } else { "execution.failed" };
                text.push_str(&written(number, kind, &data));
                self.told = number;
            }
            self.over = true;
        }
        Ok(text)
    }
}

/// One event. JSON has no line breaks of its own, so the data is one line.
fn written(number: usize, kind: &str, data: &serde_json::Value) -> String {
    format!("id: {number}\nevent: {kind}\ndata: {data}\n\n")
}
