//! What lies between the socket and the framework. Three things cannot be had above it.
//!
//! **Patience.** The framework bounds how long the first request of a connection may take to arrive, and no later one.
//! So a connection on which nothing is served is cut when nothing has happened for as long as a client may take to
//! begin and to finish a request's head; each answer, and each part of one that the client takes, begins that time
//! anew.
//!
//! **A least throughput.** A client that takes a byte now and then keeps an answer in memory for as long as it likes. So a
//! connection is cut whose client is too slow over the whole time that an answer waits for it ([`write_rate`]).
//!
//! **A receive window.** The framework reads up to 128 KiB ahead of whoever consumes a body, twice over, and makes hundreds of
//! requests of what a client pipelines. So a connection reads no further while nobody asks for more of a body, and nothing behind
//! a request before its answer is made ([`receive_window`]).
//!
//! **One body.** What is no HTTP at all (a byte that no header may hold, two lengths, a request line of nonsense) is
//! answered by the framework itself, before any of our code is asked, with a bare status. Such an answer is recognised
//! as it is written, by the request id that it lacks, and gets the body that every refusal has.
//!
//! **Whole ends of lines.** The framework takes a line feed alone for the end of a line, which others in front of it may not. A
//! connection on which any head does so is told that this is no request, and ends. [`Framing`] finds the heads. Nothing behind a
//! TRACE is read either: the framework would still serve requests that it read before the answer that ends the connection.

mod receive_window;
mod unread;
mod write_rate;

use super::{
    framing::{Framing, Stop},
    request_context::{DEFAULT_HEADERS, REQUEST_ID},
};
use crate::error::ApiError;
use actix_web::http::StatusCode;
use receive_window::ReceiveWindow;
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
use unread::Unread;
use write_rate::WriteRate;

/// What a whole answer of the framework's own is never longer than, in bytes.
const SHORT: usize = 1024;
/// Bytes that are read at once, at most.
const READ: usize = 8 << 10;
/// Bytes that are read while the framework must not have more, at most.
const AHEAD: usize = 256;
/// What ends a head.
const END: &[u8; 4] = b"\r\n\r\n";
/// What the framework refuses, wherever in a head or trailer section it stands.
const NO_REQUEST: &[u8] = b"\r\0";

/// Whether something is being served on a connection, and when something last happened on it. Clones are one.
#[derive(Clone, Debug)]
pub struct Line(Rc<LineState>);

#[derive(Debug)]
struct LineState {
    serving: Cell<bool>,
    /// Bytes of requests that have not begun.
    unread: RefCell<Unread<'static>>,
    /// Bytes that the framework holds for the present request.
    window: ReceiveWindow,
    /// Requests that have arrived.
    requests: Cell<u64>,
    moved: Cell<Instant>,
}

/// Holds a connection while a request of it is served.
#[derive(Debug)]
#[must_use = "the connection counts as waiting once this is dropped"]
pub struct Serving(Line);

impl Line {
    fn new() -> Self {
        Self(Rc::new(LineState {
            serving: Cell::new(false),
            unread: RefCell::default(),
            window: ReceiveWindow::default(),
            requests: Cell::new(0),
            moved: Cell::new(Instant::now()),
        }))
    }

    /// A request has arrived; the time that it takes is the service's own.
    pub fn serve(&self) -> Serving {
        self.0.serving.set(true);
        self.0.unread.borrow_mut().clear();
        self.0.requests.set(self.0.requests.get().wrapping_add(1));
        Serving(self.clone())
    }

    /// Whoever reads the body of the present request waits for more of it.
    pub fn await_body(&self) {
        self.0.window.open();
    }

    fn moves(&self) {
        self.0.moved.set(Instant::now());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.0.serving.set(false);
        self.0.0.window.answer();
        self.0.moves();
    }
}

/// A connection that is cut when its client does nothing, and on which every refusal has a body.
#[derive(Debug)]
pub struct Guarded<S> {
    inner: S,
    line: Line,
    patience: Duration,
    timer: Pin<Box<Sleep>>,
    cut: bool,
    framing: Framing,
    /// Bytes behind a request whose answer is not made, and whether the client sends no more.
    ahead: Vec<u8>,
    has_ended: bool,
    /// Once the framework is to read no further: what it still reads instead. What the client sends from then on is dropped.
    refusal: Option<&'static [u8]>,
    write_rate: WriteRate,
    replacement: Option<Replacement>,
}

/// What is written instead of what the framework asked for.
#[derive(Debug)]
struct Replacement {
    bytes: Vec<u8>,
    written: usize,
    /// How many of the framework's bytes this stands for.
    instead_of: usize,
}

impl<S> Guarded<S> {
    /// Guards a connection that has just been made.
    pub fn new(inner: S, patience: Duration) -> Self {
        let timer = Box::pin(sleep_until(Instant::now() + patience));
        Self {
            inner,
            line: Line::new(),
            patience,
            timer,
            cut: false,
            framing: Framing::default(),
            ahead: Vec::new(),
            has_ended: false,
            refusal: None,
            write_rate: WriteRate::new(patience),
            replacement: None,
        }
    }

    /// What requests of this connection tell how they stand.
    #[must_use]
    pub fn line(&self) -> Line {
        self.line.clone()
    }

    /// Reads a little of what must wait, because the end of the connection shows behind it: a client that has gone is waited for
    /// by nobody.
    fn watch_for_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncRead + Unpin,
    {
        while !self.has_ended && self.ahead.len() < AHEAD {
            let mut space = [0; AHEAD];
            let mut space = ReadBuf::new(&mut space);
            let mut read = space.take(AHEAD.saturating_sub(self.ahead.len()));
            ready!(Pin::new(&mut self.inner).poll_read(context, &mut read))?;
            self.has_ended = read.filled().is_empty();
            self.ahead.extend_from_slice(read.filled());
        }
        if self.has_ended && self.ahead.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Whether the client's time is over. The timer follows what happens at a distance, so that a request costs the
    /// reading of a clock and not the setting of an alarm.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        while !self.cut && self.timer.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            let since = if self.line.0.serving.get() { now } else { self.line.0.moved.get() };
            let until = since + self.patience;
            self.cut = until <= now || self.write_rate.is_too_slow(now);
            self.timer.as_mut().reset(until);
        }
        self.cut
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_over(context) {
            // To the framework the client has gone: it ends what it was doing and closes the connection.
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        if self.refusal.is_none() {
            let this = &mut *self;
            let state = (this.framing.messages(), this.line.0.serving.get());
            if this.line.0.window.is_closed(state, context) {
                return this.watch_for_end(context);
            }
            let mut space = [MaybeUninit::uninit(); READ];
            let mut space = ReadBuf::uninit(&mut space);
            let mut read = space.take(buffer.remaining().min(READ));
            if this.ahead.is_empty() {
                ready!(Pin::new(&mut this.inner).poll_read(context, &mut read))?;
            } else {
                let many = this.ahead.len().min(read.remaining());
                read.put_slice(this.ahead.get(..many).unwrap_or_default());
                this.ahead.drain(..many);
            }
            let read = read.filled();
            if !this.line.0.serving.get() && this.line.0.unread.borrow_mut().add(read.len()) {
                tracing::debug!("unfinished request heads hold too much memory; closing a connection with a long one");
                this.cut = true;
                return Poll::Ready(Ok(()));
            }
            let (at, refusal) = match this.framing.follow(read) {
                Ok(at) => (at, None),
                Err(Stop::Refused(at)) => (at, Some(NO_REQUEST)),
                Err(Stop::Ended(at)) => (at, Some(&[][..])),
            };
            let (now, later) = read.split_at_checked(at).unwrap_or((read, &[]));
            buffer.put_slice(now);
            this.line.0.window.add(now.len());
            this.refusal = refusal;
            if refusal.is_none() {
                this.ahead.splice(..0, later.iter().copied());
                return Poll::Ready(Ok(()));
            }
        }
        let rest = self.refusal.unwrap_or_default();
        let (now, later) = rest.split_at(rest.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.refusal = Some(later);
        if buffer.filled().len() > before {
            return Poll::Ready(Ok(()));
        }
        // What a closed connection leaves unread would reset it, and the refusal would be lost with it.
        loop {
            ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
            if buffer.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
            buffer.set_filled(before);
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.cut {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if self.replacement.is_none() {
            self.replacement = replaced(bytes);
        }
        let this = &mut *self;
        let Some(replacement) = &mut this.replacement else {
            let written = Pin::new(&mut this.inner).poll_write(context, bytes);
            this.cut |= this.write_rate.observe(&written, this.line.0.requests.get(), Instant::now());
            if this.cut || (written.is_pending() && this.is_over(context)) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let written = ready!(written)?;
            this.line.moves();
            return Poll::Ready(Ok(written));
        };
        while let Some(rest) = replacement.bytes.get(replacement.written..).filter(|rest| !rest.is_empty()) {
            let written = ready!(Pin::new(&mut this.inner).poll_write(context, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            replacement.written = replacement.written.saturating_add(written);
        }
        let instead_of = replacement.instead_of;
        this.replacement = None;
        this.line.moves();
        Poll::Ready(Ok(instead_of))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// The bytes to write instead, where the last answer among these is one of the framework's own.
fn replaced(bytes: &[u8]) -> Option<Replacement> {
    if !bytes.ends_with(END) {
        return None;
    }
    let tail_at = bytes.len().saturating_sub(SHORT);
    let tail = bytes.get(tail_at..)?;
    let head_at = tail_at.saturating_add(tail.windows(7).rposition(|window| window == b"HTTP/1.")?);
    let (before, head) = bytes.split_at_checked(head_at)?;
    let head = std::str::from_utf8(head).ok()?;
    let status = head.split(' ').nth(1).and_then(|status| StatusCode::from_bytes(status.as_bytes()).ok())?;
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let ours = lines.clone().any(|(name, _)| name.eq_ignore_ascii_case(REQUEST_ID.as_str()));
    if ours || !(status.is_client_error() || status.is_server_error()) {
        return None;
    }
    let date = lines.find(|(name, _)| name.eq_ignore_ascii_case("date")).map(|(_, value)| value.trim());
    let bytes = [before, answer(status, date).as_bytes()].concat();
    Some(Replacement { bytes, written: 0, instead_of: before.len().saturating_add(head.len()) })
}

/// A whole answer that ends its connection.
fn answer(status: StatusCode, date: Option<&str>) -> String {
    let refusal = match status {
        StatusCode::REQUEST_TIMEOUT => ApiError::request_timeout(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            ApiError::new(status, "bad_request", "the request's head is too long")
        }
        _ if status.is_client_error() => ApiError::new(status, "bad_request", "this is no request in HTTP"),
        _ => ApiError::internal(),
    };
    let body = refusal.body();
    let request_id = body.get("request_id").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    let body = body.to_string();
    tracing::info!(target: "fairway::access", status = status.as_u16(), request_id, "answered what is no request");
    let mut text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\
         {REQUEST_ID}: {request_id}\r\n",
        body.len()
    );
    for (name, value) in &DEFAULT_HEADERS {
        let value = value.to_str().unwrap_or_default();
        // Writing to a text does not fail.
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
