//! Limits of a connection that the framework cannot enforce. A guard between framework and socket enforces them.
//!
//! **Idle timeout.** The framework bounds the arrival time of the first request of a connection only. The guard closes
//! an idle connection after the time limit for a request head. Each response, and each part that the client reads,
//! restarts the timer.
//!
//! **Minimum throughput.** A client that reads slowly keeps a response in memory. The guard closes a connection whose
//! client is too slow over the whole time that a response waits for the client ([`write_rate`]).
//!
//! **Read-ahead limit.** The framework buffers up to twice 128 KiB of a body ahead of its consumer, and parses
//! pipelined bytes into hundreds of requests. The guard stops reading while no handler awaits the body. It reads
//! nothing after a request until its response exists ([`read_ahead_limit`]).
//!
//! **Error bodies.** The framework responds to malformed HTTP with a bare status, before any code of this crate
//! runs. Examples are a byte that no header allows, two lengths, and an invalid request line. The guard recognises
//! such a response by its missing request id and replaces it with the common error body.
//!
//! **Line endings.** The framework accepts a bare line feed as the end of a line, but a proxy in front may not. The
//! guard refuses any head with a bare line feed and closes the connection. [`Framing`] finds the heads. The
//! response to a TRACE closes the connection as well. The guard reads nothing after a TRACE, because the framework
//! would still serve requests that it had read before that response.
//!
//! **Expectations.** The framework ignores unknown `Expect` values. The guard refuses them like ambiguous framing.

mod head_memory;
mod read_ahead_limit;
mod write_rate;

use super::{
    framing::{Framing, StopReason},
    request_id_log_and_metrics::{DEFAULT_HEADERS, REQUEST_ID},
};
use crate::error::ApiError;
use actix_web::http::StatusCode;
use head_memory::HeadMemory;
use read_ahead_limit::ReadAheadLimit;
use std::{
    cell::{Cell, RefCell},
    fmt::Write as _,
    io,
    mem::MaybeUninit,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};
use write_rate::WriteRate;

/// Maximum length of a response that the framework creates itself, in bytes.
const MAX_FRAMEWORK_RESPONSE: usize = 1024;
/// Maximum bytes of one read.
const READ_BYTES: usize = 8 << 10;
/// Maximum bytes that the guard reads beyond the read-ahead limit.
const READ_AHEAD_BYTES: usize = 256;
/// The bytes that end a head.
const HEAD_END: &[u8; 4] = b"\r\n\r\n";
/// Bytes that the framework refuses at any position of a head or trailer section.
const INVALID_BYTES: &[u8] = b"\r\0";

/// Activity of a connection: whether it serves a request, and the time of its last activity. Clones share state.
#[derive(Clone, Debug)]
pub struct ConnectionActivity(Rc<ActivityState>);

#[derive(Debug)]
struct ActivityState {
    is_serving: Cell<bool>,
    /// Bytes of incomplete request heads.
    head_memory: RefCell<HeadMemory<'static>>,
    /// Limits the bytes that the framework buffers for the current request.
    read_ahead_limit: ReadAheadLimit,
    /// Number of requests that have arrived.
    requests: Cell<u64>,
    last_activity: Cell<Instant>,
}

/// Marks a connection as active while it serves a request.
#[derive(Debug)]
#[must_use = "the connection counts as waiting once this is dropped"]
pub struct ActiveRequestGuard(ConnectionActivity);

impl ConnectionActivity {
    fn new() -> Self {
        Self(Rc::new(ActivityState {
            is_serving: Cell::new(false),
            head_memory: RefCell::default(),
            read_ahead_limit: ReadAheadLimit::default(),
            requests: Cell::new(0),
            last_activity: Cell::new(Instant::now()),
        }))
    }

    /// Marks the start of a request. Its processing time does not count as idle time.
    pub fn start_request(&self) -> ActiveRequestGuard {
        self.0.is_serving.set(true);
        self.0.head_memory.borrow_mut().clear();
        self.0.requests.set(self.0.requests.get().wrapping_add(1));
        ActiveRequestGuard(self.clone())
    }

    /// Lets the connection read further ahead, because the consumer of the current body waits for more bytes.
    pub fn reset_read_ahead(&self) {
        self.0.read_ahead_limit.reset();
    }

    fn touch(&self) {
        self.0.last_activity.set(Instant::now());
    }
}

impl Drop for ActiveRequestGuard {
    fn drop(&mut self) {
        self.0.0.is_serving.set(false);
        self.0.0.read_ahead_limit.response_ready();
        self.0.touch();
    }
}

/// A connection with an idle timeout, read and write limits, and error bodies.
#[derive(Debug)]
pub struct GuardedConnection<S> {
    inner: S,
    activity: ConnectionActivity,
    idle_timeout: Duration,
    timer: Pin<Box<Sleep>>,
    is_closed: bool,
    framing: Framing,
    /// Bytes that follow a request without a response yet.
    read_ahead: Vec<u8>,
    /// Whether the client has closed its side.
    has_ended: bool,
    /// Set when reading has ended: the last bytes that the framework receives. Later bytes of the client are
    /// dropped.
    final_bytes: Option<&'static [u8]>,
    write_rate: WriteRate,
    replacement: Option<Replacement>,
}

/// Bytes that replace a response of the framework.
#[derive(Debug)]
struct Replacement {
    bytes: Vec<u8>,
    written: usize,
    /// Number of bytes of the original response that this replaces.
    replaced_bytes: usize,
}

impl<S> GuardedConnection<S> {
    /// Guards a new connection, and starts its idle timer.
    pub fn new(inner: S, idle_timeout: Duration) -> Self {
        let timer = Box::pin(sleep_until(Instant::now() + idle_timeout));
        Self {
            inner,
            activity: ConnectionActivity::new(),
            idle_timeout,
            timer,
            is_closed: false,
            framing: Framing::default(),
            read_ahead: Vec::new(),
            has_ended: false,
            final_bytes: None,
            write_rate: WriteRate::new(idle_timeout),
            replacement: None,
        }
    }

    /// The activity handle for requests of this connection.
    #[must_use]
    pub fn activity(&self) -> ConnectionActivity {
        self.activity.clone()
    }

    /// Reads a few bytes ahead to detect a closed connection, so that requests of disconnected clients are cancelled.
    fn detect_disconnect(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncRead + Unpin,
    {
        while !self.has_ended && self.read_ahead.len() < READ_AHEAD_BYTES {
            let mut space = [0; READ_AHEAD_BYTES];
            let mut space = ReadBuf::new(&mut space);
            let mut read_buffer = space.take(READ_AHEAD_BYTES.saturating_sub(self.read_ahead.len()));
            ready!(Pin::new(&mut self.inner).poll_read(context, &mut read_buffer))?;
            self.has_ended = read_buffer.filled().is_empty();
            self.read_ahead.extend_from_slice(read_buffer.filled());
        }
        if self.has_ended && self.read_ahead.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Whether the idle timeout has expired. The timer is re-armed lazily when it fires, so a request costs a clock
    /// read and no timer update.
    fn has_timed_out(&mut self, context: &mut Context<'_>) -> bool {
        while !self.is_closed && self.timer.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            let since = if self.activity.0.is_serving.get() { now } else { self.activity.0.last_activity.get() };
            let until = since + self.idle_timeout;
            self.is_closed = until <= now || self.write_rate.is_too_slow(now);
            self.timer.as_mut().reset(until);
        }
        self.is_closed
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedConnection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.has_timed_out(context) {
            // An end of file makes the framework end its work and close the connection.
            return Poll::Ready(Ok(()));
        }
        let filled_before = buffer.filled().len();
        if self.final_bytes.is_none() {
            let this = &mut *self;
            if this.activity.0.read_ahead_limit.is_reached(
                this.framing.messages(),
                this.activity.0.is_serving.get(),
                context,
            ) {
                return this.detect_disconnect(context);
            }
            let mut space = [MaybeUninit::uninit(); READ_BYTES];
            let mut space = ReadBuf::uninit(&mut space);
            let mut read_buffer = space.take(buffer.remaining().min(READ_BYTES));
            if this.read_ahead.is_empty() {
                ready!(Pin::new(&mut this.inner).poll_read(context, &mut read_buffer))?;
            } else {
                let count = this.read_ahead.len().min(read_buffer.remaining());
                read_buffer.put_slice(this.read_ahead.get(..count).unwrap_or_default());
                this.read_ahead.drain(..count);
            }
            let bytes = read_buffer.filled();
            if !this.activity.0.is_serving.get() && this.activity.0.head_memory.borrow_mut().add(bytes.len()) {
                tracing::debug!(
                    "incomplete request heads exceed their memory limit; closing a connection with a long head"
                );
                this.is_closed = true;
                return Poll::Ready(Ok(()));
            }
            let (at, refusal) = match this.framing.advance(bytes) {
                Ok(at) => (at, None),
                Err(StopReason::Refused(at)) => (at, Some(INVALID_BYTES)),
                Err(StopReason::Ended(at)) => (at, Some(&[][..])),
            };
            let (accepted, remaining) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
            buffer.put_slice(accepted);
            this.activity.0.read_ahead_limit.add(accepted.len());
            this.final_bytes = refusal;
            if refusal.is_none() {
                this.read_ahead.splice(..0, remaining.iter().copied());
                return Poll::Ready(Ok(()));
            }
        }
        let final_bytes = self.final_bytes.unwrap_or_default();
        let (accepted, remaining) = final_bytes.split_at(final_bytes.len().min(buffer.remaining()));
        buffer.put_slice(accepted);
        self.final_bytes = Some(remaining);
        if buffer.filled().len() > filled_before {
            return Poll::Ready(Ok(()));
        }
        // Reads and drops the remaining bytes. Closing with unread bytes would reset the connection and lose the
        // error response.
        loop {
            ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
            if buffer.filled().len() == filled_before {
                return Poll::Ready(Ok(()));
            }
            buffer.set_filled(filled_before);
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GuardedConnection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_closed {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if self.replacement.is_none() {
            self.replacement = replace_response(bytes, self.framing.refusal_message());
        }
        let this = &mut *self;
        let Some(replacement) = &mut this.replacement else {
            let written = Pin::new(&mut this.inner).poll_write(context, bytes);
            this.is_closed |= this.write_rate.observe(&written, this.activity.0.requests.get(), Instant::now());
            if this.is_closed || (written.is_pending() && this.has_timed_out(context)) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let written = ready!(written)?;
            this.activity.touch();
            return Poll::Ready(Ok(written));
        };
        while let Some(remaining) =
            replacement.bytes.get(replacement.written..).filter(|remaining| !remaining.is_empty())
        {
            let written = ready!(Pin::new(&mut this.inner).poll_write(context, remaining))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            replacement.written = replacement.written.saturating_add(written);
        }
        let replaced_bytes = replacement.replaced_bytes;
        this.replacement = None;
        this.activity.touch();
        Poll::Ready(Ok(replaced_bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// Builds the replacement of the last response in `bytes` with this message, if the framework created that response.
fn replace_response(bytes: &[u8], refusal: &'static str) -> Option<Replacement> {
    if !bytes.ends_with(HEAD_END) {
        return None;
    }
    let tail_at = bytes.len().saturating_sub(MAX_FRAMEWORK_RESPONSE);
    let tail = bytes.get(tail_at..)?;
    let head_at = tail_at.saturating_add(tail.windows(7).rposition(|window| window == b"HTTP/1.")?);
    let (preceding, head) = bytes.split_at_checked(head_at)?;
    let head = std::str::from_utf8(head).ok()?;
    let status = head.split(' ').nth(1).and_then(|status| StatusCode::from_bytes(status.as_bytes()).ok())?;
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let has_request_id = lines.clone().any(|(name, _)| name.eq_ignore_ascii_case(REQUEST_ID.as_str()));
    if has_request_id || !(status.is_client_error() || status.is_server_error()) {
        return None;
    }
    let date = lines.find(|(name, _)| name.eq_ignore_ascii_case("date")).map(|(_, value)| value.trim());
    let bytes = [preceding, error_response(status, date, refusal).as_bytes()].concat();
    Some(Replacement { bytes, written: 0, replaced_bytes: preceding.len().saturating_add(head.len()) })
}

/// Builds a complete error response that closes its connection.
fn error_response(status: StatusCode, date: Option<&str>, refusal: &'static str) -> String {
    let error = match status {
        StatusCode::REQUEST_TIMEOUT => ApiError::request_timeout(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            ApiError::new(status, "bad_request", "the request's head is too long")
        }
        _ if status.is_client_error() => ApiError::new(status, "bad_request", refusal),
        _ => ApiError::internal(),
    };
    let body = error.body();
    let request_id = body.get("request_id").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    let body = body.to_string();
    tracing::info!(target: "fairway::access", status = status.as_u16(), request_id, "refused a request before routing");
    let mut text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\
         {REQUEST_ID}: {request_id}\r\n",
        body.len()
    );
    for (name, value) in &DEFAULT_HEADERS {
        let value = value.to_str().unwrap_or_default();
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{name}: {value}\r\n");
    }
    if let Some(date) = date {
        let _ = write!(text, "date: {date}\r\n");
    }
    text.push_str("\r\n");
    text.push_str(&body);
    text
}

#[cfg(test)]
mod tests;
