//! What happens in a run, as server-sent events: told from what is stored, so that a stream that was cut goes on where it
//! was, at whichever process it is asked for.

use super::{ExecutionResult, crowd::Seat, preference::EVENT_STREAM, visitor};
use crate::{
    caller::{RESULT_TOKEN, Visitor, result_token},
    compose::Api,
    document::{ErrorBody, ReadRefusals, TokenParams},
    error::{ApiError, FieldProblem},
    http::{
        HttpBase, answer_memory::PORTION, idempotency::IDEMPOTENCY_REPLAYED, memory::Reservation, path::PathId,
        request_context::request_id,
    },
};
use actix_web::{
    HttpRequest, HttpResponse, get,
    http::header::{CONTENT_LOCATION, HeaderMap, HeaderName, HeaderValue},
    web,
};
use bytes::Bytes;
use fairway_domain::{
    execution::Status,
    id::{ExecutionId, RequestId},
    share_link::{ResultToken, TokenHash, is_guest},
    throttle::ClientAddress,
};
use fairway_memory_limit::try_admit;
use fairway_operations::{
    execution::{Answer as Run, Following, Heard, Told},
    share_link::Arrival,
};
use futures_util::stream;
use serde::Serialize;
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
    /// `execution.started`, `step.started`, `output.delta`, `step.completed`, `execution.awaiting_review`,
    /// `execution.completed` or `execution.failed`.
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
                are any, and last `execution.completed` or `execution.failed` with the result. They are numbered from 1; \
                a run that ended before it began has no first. Where a person has to review the answer, the stream says \
                `execution.awaiting_review` and closes; after the verdict it can be read to its end.",
            content_type = "text/event-stream",
            body = EventView
        ),
        (
            status = 204,
            description = "The last event was seen already: nothing more comes, or nothing before a person has reviewed \
                the answer"
        ),
        (
            status = 429,
            description = "You try too many share tokens, ask about runs of a public workload too often, or too many streams \
                are open",
            body = ErrorBody
        ),
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
    visitor(&api, arrival.clone(), (*execution, token.as_ref())).await?;
    streamed(&api, &base, Followed { arrival, token, id: *execution }, seen).await
}

/// Who follows which run.
pub(super) struct Followed {
    pub(super) arrival: Arrival,
    /// The hash of the result token that was brought.
    pub(super) token: Option<TokenHash>,
    pub(super) id: ExecutionId,
}

/// The number of the event that a client saw last. An empty value counts as none: clients send it after an event without a
/// number (WHATWG HTML, 9.2.4).
pub(super) fn last_seen(headers: &HeaderMap) -> Result<usize, ApiError> {
    let text = headers.get(&LAST_EVENT_ID).map(|value| value.to_str().map(str::trim));
    let number = match text {
        None | Some(Ok("")) => Some(0),
        Some(Ok(text)) => text.parse().ok(),
        Some(Err(_)) => None,
    };
    number.ok_or_else(|| FieldProblem::new("Last-Event-ID", "invalid", "events are numbered").into())
}

/// The events of a run that was accepted for whoever follows it. Where they are read again is told in a header, and what else
/// that takes: a run that stands in line says nothing yet, and its client may be cut off before it does. `None`: it cannot be
/// followed now.
pub(super) async fn followed(
    api: &web::Data<Api>,
    base: &web::Data<HttpBase>,
    run: &Run,
    arrival: Arrival,
) -> Option<HttpResponse> {
    let token = run.result_token.as_ref().map(ResultToken::hash);
    let id = run.execution.execution_id;
    let followed = Followed { arrival, token, id };
    let mut answer = match streamed(api, base, followed, 0).await {
        Ok(answer) => answer,
        Err(refusal) => {
            tracing::info!(code = refusal.code(), "a run was accepted that cannot be followed");
            return None;
        }
    };
    if let Ok(events) = HeaderValue::from_str(&format!("/v1/executions/{id}/events")) {
        answer.headers_mut().insert(CONTENT_LOCATION, events);
    }
    if run.replayed {
        answer.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    let shown = run.result_token.as_ref().and_then(|token| HeaderValue::from_str(token.reveal()).ok());
    if let Some(shown) = shown {
        answer.headers_mut().insert(RESULT_TOKEN, shown);
    }
    Some(answer)
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
        base: base.clone(),
        followed,
        request_id: request_id(),
        heard: Heard::default(),
        seen,
        seat: None,
        unsent: Unsent::default(),
        said_at: Instant::now(),
        has_more: true,
        over: false,
    };
    let mut first = String::new();
    // What the client has seen is passed over, page by page.
    while first.is_empty() && telling.has_more {
        let (told, follower) = telling.look().await?;
        first = telling.text(&told)?;
        if telling.over && first.is_empty() {
            // To anything else a client would come back, and hear the same silence again (WHATWG HTML, 9.2.3).
            return Ok(HttpResponse::NoContent().finish());
        }
        // The events of a run that ended wait for the client as well.
        if telling.seat.is_none() {
            telling.seat = Some(base.crowd.enter(telling.followed.id, follower.guest())?);
        }
        if !telling.has_more || !first.is_empty() {
            telling.unsent = Unsent::hold(format!("{RETRY}{first}"), follower.address, base)?;
        }
    }
    let portions = stream::unfold(telling, |mut telling| async move {
        let portion = telling.next().await?;
        Some((Ok::<_, Infallible>(portion), telling))
    });
    Ok(HttpResponse::Ok().content_type(EVENT_STREAM).insert_header(UNBUFFERED).streaming(portions))
}

/// One client that is told of one run.
struct Telling {
    api: web::Data<Api>,
    base: web::Data<HttpBase>,
    following: Following,
    followed: Followed,
    request_id: RequestId,
    heard: Heard,
    /// The number of the last event that it has seen.
    seen: usize,
    /// Its place among the open streams.
    seat: Option<Seat>,
    unsent: Unsent,
    said_at: Instant,
    /// Whether more is stored already.
    has_more: bool,
    over: bool,
}

/// Who follows a run, as it was identified last.
struct Follower {
    address: ClientAddress,
    is_guest: bool,
}

impl Follower {
    /// The client of a caller without a name.
    fn guest(&self) -> Option<ClientAddress> {
        self.is_guest.then_some(self.address)
    }
}

/// Text that the client has not taken yet. More than a portion counts in the budget of answers until then.
#[derive(Default)]
struct Unsent {
    text: Bytes,
    held: Option<Reservation>,
}

impl Unsent {
    /// # Errors
    /// When a large text finds no room.
    fn hold(text: String, client: ClientAddress, base: &HttpBase) -> Result<Self, ApiError> {
        let is_large = text.len() > PORTION;
        if is_large && try_admit(0).is_err() {
            return Err(ApiError::unavailable());
        }
        let reserve = || base.memory.answer(client, text.len()).map_err(|_| ApiError::unavailable());
        let held = is_large.then(reserve).transpose()?;
        Ok(Self { text: Bytes::from(text), held })
    }

    /// What is to be sent next. It is asked for when the client took the portion before.
    fn portion(&mut self) -> Option<Bytes> {
        if self.text.is_empty() {
            self.held = None;
            return None;
        }
        Some(self.text.split_to(self.text.len().min(PORTION)))
    }
}

impl Telling {
    /// What happened since the last look, as the caller may see it now: who lost the right to is told no more.
    async fn look(&mut self) -> Result<(Told, Follower), ApiError> {
        let Followed { arrival, token, id } = &self.followed;
        let services = &self.api.services;
        let visit = services.receive(arrival.clone()).await?;
        let caller = services.identify(self.api.mode, &visit.claims, self.request_id).await?;
        let told = services.told_of(&caller, (*id, token.as_ref()), &mut self.heard).await?;
        self.has_more = told.has_more;
        Ok((told, Follower { address: visit.address, is_guest: is_guest(caller.actor.kind()) }))
    }

    /// The next portion. `None`: the stream ends, and whoever wants more comes back.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(portion) = self.unsent.portion() {
                return Some(portion);
            }
            if self.over || self.base.leaving.is_announced() {
                return None;
            }
            if !self.has_more {
                self.following.changed(EVERY).await;
            }
            // Whoever comes back is told why by an answer of its own.
            let (told, follower) = self.look().await.ok()?;
            let text = self.text(&told).ok()?;
            if !text.is_empty() {
                self.said_at = Instant::now();
                self.unsent = Unsent::hold(text, follower.address, &self.base).ok()?;
            } else if self.said_at.elapsed() >= HEARTBEAT {
                self.said_at = Instant::now();
                return Some(Bytes::from_static(b":\n\n"));
            }
        }
    }

    /// What the client has not seen.
    fn text(&mut self, told: &Told) -> Result<String, ApiError> {
        let mut text = String::new();
        for (number, event) in &told.events {
            if *number > self.seen {
                text.push_str(&written(*number, event.kind.as_str(), &event.data)?);
                self.seen = *number;
            }
        }
        if told.is_over() {
            let number = told.last.saturating_add(1);
            if self.seen < number {
                let completed = told.execution.status == Status::Completed;
                let kind = if completed { "execution.completed" } else { "execution.failed" };
                text.push_str(&written(number, kind, &ExecutionResult::of(&told.execution)?)?);
                self.seen = number;
            }
        }
        // A review may take days, and a stream that tells nothing holds a place among the open ones.
        self.over = told.is_over() || told.awaits_review();
        Ok(text)
    }
}

/// One event. JSON has no line breaks of its own, so the data is one line.
fn written(number: usize, kind: &str, data: &impl Serialize) -> Result<String, ApiError> {
    let data = serde_json::to_string(data).map_err(|error| ApiError::internal().caused_by(&error))?;
    Ok(format!("id: {number}\nevent: {kind}\ndata: {data}\n\n"))
}
