//! The live stream of the caller's inbox. It is read from the database, so a client can resume it at any process.

use super::inbox::NotificationView;
use crate::{
    caller::UnverifiedClaims,
    compose::Api,
    error::ApiError,
    http::{
        HttpState,
        client_address::client_of,
        event_stream::{HEARTBEAT, KEEP_ALIVE, RETRY_FIELD, UnsentText, encode_event, event_stream, last_event_id},
        request_id_log_and_metrics::request_id_or_new,
        stream_limit::{StreamPermit, StreamSubject},
    },
    openapi::{ErrorBody, ReadRefusals},
};
use actix_web::{HttpRequest, HttpResponse, get, web};
use bytes::Bytes;
use fairway_domain::{client_address::ClientAddress, id::RequestId};
use fairway_operations::{
    access::IdentityClaims,
    notification::stream::{InboxBatch, ProjectionSubscription},
};
use futures_util::stream;
use serde::Serialize;
use std::{convert::Infallible, time::Duration};
use tokio::time::Instant;
use utoipa::ToSchema;

/// Poll interval while no wakeup arrives. Other processes add notifications without a wakeup in this process.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Interval at which unread notifications are counted without a new one, because the person may have read some in
/// another client.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(2);

/// An event of the stream.
#[derive(ToSchema)]
#[schema(as = InboxEvent)]
#[expect(dead_code, reason = "only its description is used")]
struct InboxEventView {
    /// Position in the log, from which the stream resumes.
    id: String,
    /// `unread_count` or `notification`.
    event: String,
    /// Data of the event, as JSON: `{"unread_count": 3}`, or a notification.
    data: String,
}

#[derive(Serialize)]
struct UnreadData {
    unread_count: u64,
}

/// Streams the caller's new notifications.
///
/// A client that resumes first receives the notifications that it missed. The stream sends the number of unread
/// notifications after these, after each batch of new notifications, and after each change by another client.
#[utoipa::path(
    operation_id = "read_inbox_stream",
    tag = "notifications",
    params(("Last-Event-ID" = Option<String>, Header, description = "The number of the last received event: the stream begins after it, or at the present end of the log if the event lies beyond it. An empty value counts as none")),
    responses(
        (
            status = 200,
            description = "Events: `unread_count`, and `notification` for each new notification in the order of the log. \
                The stream ends after some minutes; clients reconnect with `Last-Event-ID`.",
            content_type = "text/event-stream",
            body = InboxEventView
        ),
        (status = 429, description = "Too many streams are open", body = ErrorBody),
        ReadRefusals
    )
)]
#[get("/v1/notifications/inbox/stream")]
pub(crate) async fn read_inbox_stream(
    request: HttpRequest,
    api: web::Data<Api>,
    base: web::Data<HttpState>,
    UnverifiedClaims(claims): UnverifiedClaims,
) -> Result<HttpResponse, ApiError> {
    let last_event = last_event_id(request.headers())?;
    let caller = api.services.identities.resolve_caller(api.mode, &claims, request_id_or_new()).await?;
    // Subscribes before the first read, so that no change between the first read and the first wait is missed.
    let changes = api.services.notifications.subscribe_to_projections(&caller);
    // The id of an event is the position after its notification, and the stream resumes at that position.
    let first_batch = api.services.notifications.open_inbox_stream(&caller, last_event).await?;
    let permit = base.stream_limiter.acquire(StreamSubject::Inbox(caller.tenant, caller.actor.clone()), None)?;
    let address = client_of(&request);
    let text = format!("{RETRY_FIELD}{}", encode(&first_batch)?);
    let state = InboxStream {
        api,
        unsent: UnsentText::reserve(text, address, &base)?,
        base,
        claims,
        request_id: request_id_or_new(),
        address,
        next: first_batch.next,
        has_more: first_batch.has_more,
        unread: first_batch.unread.unwrap_or_default(),
        counted_at: Instant::now(),
        changes,
        opened_at: Instant::now(),
        last_write: Instant::now(),
        _permit: permit,
    };
    let chunks = stream::unfold(state, |mut state| async move {
        let chunk = state.next_chunk().await?;
        Some((Ok::<_, Infallible>(chunk), state))
    });
    Ok(event_stream(chunks))
}

/// State of one open inbox stream.
struct InboxStream {
    api: web::Data<Api>,
    base: web::Data<HttpState>,
    claims: IdentityClaims,
    request_id: RequestId,
    address: ClientAddress,
    /// Position of the first fact that was not read.
    next: u64,
    has_more: bool,
    /// The last number of unread notifications that was sent.
    unread: u64,
    /// Time of the last count of unread notifications.
    counted_at: Instant,
    changes: ProjectionSubscription,
    unsent: UnsentText,
    opened_at: Instant,
    last_write: Instant,
    _permit: StreamPermit,
}

impl InboxStream {
    /// Reads the notifications since the last read. Each read identifies and authorizes the caller again, so revoked
    /// access ends the stream.
    async fn poll(&mut self) -> Result<InboxBatch, ApiError> {
        let services = &self.api.services;
        let caller = services.identities.resolve_caller(self.api.mode, &self.claims, self.request_id).await?;
        let known_unread = (self.counted_at.elapsed() >= RECOUNT_INTERVAL).then_some(self.unread);
        let batch = services.notifications.inbox_since(&caller, self.next, known_unread).await?;
        (self.next, self.has_more) = (batch.next, batch.has_more);
        if known_unread.is_some() || batch.unread.is_some() {
            self.counted_at = Instant::now();
        }
        self.unread = batch.unread.unwrap_or(self.unread);
        Ok(batch)
    }

    /// The next chunk; `None` ends the stream, and the client can reconnect.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.unsent.next_chunk() {
                return Some(chunk);
            }
            if self.base.shutdown.is_announced() || self.opened_at.elapsed() >= self.base.inbox_stream_lifetime {
                return None;
            }
            if !self.has_more {
                self.changes.wait(POLL_INTERVAL).await;
            }
            // On an error the stream ends; the client gets the error response when it reconnects.
            let batch = self.poll().await.ok()?;
            if batch.unread.is_some() {
                self.last_write = Instant::now();
                self.unsent = UnsentText::reserve(encode(&batch).ok()?, self.address, &self.base).ok()?;
            } else if self.last_write.elapsed() >= HEARTBEAT {
                self.last_write = Instant::now();
                return Some(KEEP_ALIVE);
            }
        }
    }
}

/// The encoded events of a batch. Each event's id is the position after its notification.
fn encode(batch: &InboxBatch) -> Result<String, ApiError> {
    let mut text = String::new();
    for notification in &batch.notifications {
        let position = notification.log_index.saturating_add(1);
        text.push_str(&encode_event(&position, "notification", &NotificationView::of(notification))?);
    }
    if let Some(unread_count) = batch.unread {
        text.push_str(&encode_event(&batch.next, "unread_count", &UnreadData { unread_count })?);
    }
    Ok(text)
}
