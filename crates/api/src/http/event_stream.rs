//! Server-sent events (WHATWG HTML, section 9.2): encoding, resumption, and responses that are written at the pace of
//! the client.

use crate::{
    error::{ApiError, FieldProblem},
    http::{HttpState, memory_budget::Reservation, response_memory::CHUNK_BYTES},
};
use actix_web::{
    HttpResponse,
    http::header::{HeaderMap, HeaderName},
};
use bytes::Bytes;
use fairway_domain::client_address::ClientAddress;
use fairway_memory_limit::try_admit;
use futures_util::Stream;
use serde::Serialize;
use std::{convert::Infallible, fmt::Display, time::Duration};

/// The media type of server-sent events.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";
/// Request header with the id of the last event that the client received.
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Disables response buffering in proxies.
const NO_BUFFERING: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");
/// Maximum time without data on a stream, because the server and proxies close idle connections.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(3);
/// A comment of the stream format, which clients ignore. It prevents idle timeouts.
pub(crate) const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");
/// Reconnect delay of clients, in milliseconds.
pub(crate) const RETRY_FIELD: &str = "retry: 1000\n\n";

/// The maximum length of an event's number, in digits. Every such number fits into 64 bits.
const MAX_NUMBER: usize = 19;

/// The number of the last event that the client received. Clients send an empty value after an event without an id
/// (WHATWG HTML, 9.2.4), so an empty value counts as absent.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let text = headers.get(&LAST_EVENT_ID).map(|value| value.to_str().map(str::trim));
    let number = match text {
        None | Some(Ok("")) => Some(None),
        Some(Ok(text)) if text.len() <= MAX_NUMBER && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().ok().map(Some)
        }
        Some(Ok(_) | Err(_)) => None,
    };
    number.ok_or_else(|| FieldProblem::new("Last-Event-ID", "invalid", "must be the number of an event").into())
}

/// Encodes an event. Compact JSON contains no line breaks, so the data is one line.
pub(crate) fn encode_event(number: &impl Display, kind: &str, data: &impl Serialize) -> Result<String, ApiError> {
    let data = serde_json::to_string(data).map_err(|error| ApiError::internal().log_cause(&error))?;
    Ok(format!("id: {number}\nevent: {kind}\ndata: {data}\n\n"))
}

/// Builds the HTTP response that streams these chunks.
pub(crate) fn event_stream(chunks: impl Stream<Item = Result<Bytes, Infallible>> + 'static) -> HttpResponse {
    HttpResponse::Ok().content_type(EVENT_STREAM).insert_header(NO_BUFFERING).streaming(chunks)
}

/// Text that the client has not read yet. Texts longer than a chunk count towards the response budget.
#[derive(Default)]
pub(crate) struct UnsentText {
    text: Bytes,
    reservation: Option<Reservation>,
}

impl UnsentText {
    /// Stores a text until the client has read it, and reserves memory for a large text.
    ///
    /// # Errors
    /// When the response budget has no memory for a large text.
    pub(crate) fn reserve(text: String, client: ClientAddress, base: &HttpState) -> Result<Self, ApiError> {
        let is_large = text.len() > CHUNK_BYTES;
        if is_large && try_admit(0).is_err() {
            return Err(ApiError::unavailable());
        }
        let reserve = || base.memory_budgets.reserve_response(client, text.len()).map_err(|_| ApiError::unavailable());
        let reservation = is_large.then(reserve).transpose()?;
        Ok(Self { text: Bytes::from(text), reservation })
    }

    /// The next chunk. The framework polls it after the client has read the previous one.
    pub(crate) fn next_chunk(&mut self) -> Option<Bytes> {
        if self.text.is_empty() {
            self.reservation = None;
            return None;
        }
        Some(self.text.split_to(self.text.len().min(CHUNK_BYTES)))
    }
}
