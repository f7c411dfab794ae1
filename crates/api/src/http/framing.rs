//! Tracks the message framing of a connection to find every request head.
//!
//! The framework accepts a bare line feed as a line end in a head; proxies in front may not. If two parsers
//! disagree about the end of a head, one of them sees a request that the other does not see (request smuggling).
//! The tracker therefore refuses every head and trailer section with a bare line feed. To find later heads, it
//! computes the end of each body by RFC 9112 section 6.
//!
//! INVARIANT: for each head that the framework accepts, the tracker follows the same framing or refuses the head. A
//! head that the framework refuses closes the connection, so its framing does not matter. The tests compare the tracker
//! with the framework's codec.

use std::mem;

/// Longest request target that the framework parses, in bytes.
const MAX_TARGET_BYTES: usize = u16::MAX as usize - 1;
/// Bytes of a request line after its target: a space, the version and the carriage return.
const VERSION_BYTES: usize = " HTTP/1.1\r".len();
/// Stored bytes of a line: longer than any valid line that affects the framing.
const MAX_STORED_BYTES: usize = 64;

/// Reason why the framework must read no further. Offsets are relative to the bytes of the last call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StopReason {
    /// A head or trailer section contains a bare line feed, or a head frames its body ambiguously or has an unsupported
    /// expectation. The offset is the start of the message; 0 if it began in an earlier call.
    Refused(usize),
    /// The last message of the connection ended at this offset.
    Ended(usize),
}

/// Framing state of a connection.
#[derive(Debug, Default)]
pub(super) struct Framing {
    state: State,
    /// Whether the current message is the last one: a TRACE closes its connection.
    closes_connection: bool,
    /// Number of completely read messages.
    messages: u64,
    /// The message for a refusal of the current head, if a more specific one than that for invalid HTTP exists.
    refusal: Option<&'static str>,
    #[cfg(test)]
    heads: usize,
}

#[derive(Debug)]
enum State {
    Head(Head),
    /// A body, with the number of remaining bytes.
    Body(u64),
    Chunks(ChunkState),
    /// The framework reads no further head, because of an upgrade or a body that it refuses.
    Opaque,
    /// The last message has ended.
    Ended,
}

impl Default for State {
    fn default() -> Self {
        Self::Head(Head::default())
    }
}

/// The properties of a head that determine the framing of its message.
#[derive(Debug, Default)]
struct Head {
    line: Line,
    has_begun: bool,
    is_connect: bool,
    is_trace: bool,
    content_length: Option<u64>,
    is_chunked: bool,
    is_upgrade: bool,
    refusal: Option<&'static str>,
}

/// The state after a head, if it has a body.
struct BodyState(Option<State>);

/// The first bytes of a line, its length and its last byte.
#[derive(Debug)]
struct Line {
    bytes: [u8; MAX_STORED_BYTES],
    length: usize,
    last: u8,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; MAX_STORED_BYTES], length: 0, last: 0 }
    }
}

/// Parser state of a chunked body (RFC 9112 section 7.1), with the size of the current chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChunkState {
    SizeBegins,
    Size(u64),
    Blank(u64),
    Extension(u64),
    SizeEnds(u64),
    Data(u64),
    DataCarriageReturn,
    DataLineFeed,
    TrailerBegins,
    Trailer,
    TrailerLineFeed,
    LastLineFeed,
}

/// Transition after a byte of a chunked body.
enum ChunkTransition {
    Next(ChunkState),
    Ended,
    /// The framework closes the connection.
    Broken,
    /// A bare line feed, which the framework would accept.
    Refused,
}

impl Framing {
    pub(super) const fn messages(&self) -> u64 {
        self.messages
    }

    /// The message for a refusal of the last head.
    pub(super) fn refusal_message(&self) -> &'static str {
        self.refusal.unwrap_or("the request is not valid HTTP")
    }

    /// Processes bytes up to the end of a message at most. Returns the number of processed bytes.
    ///
    /// # Errors
    /// At the first refused message, and after the last message. The tracker must not be used afterwards.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<usize, StopReason> {
        let mut remaining = bytes;
        let messages = self.messages;
        // Start of the current message: 0 if it began in an earlier call.
        let mut message_at = 0;
        while !remaining.is_empty() {
            if matches!(self.state, State::Ended) {
                return Err(StopReason::Ended(bytes.len().saturating_sub(remaining.len())));
            }
            match self.process_part(remaining) {
                Some(consumed) => {
                    remaining = remaining.get(consumed..).unwrap_or_default();
                    if self.messages != messages {
                        break;
                    }
                    if matches!(&self.state, State::Head(head) if !head.has_begun && head.line.length == 0) {
                        message_at = bytes.len().saturating_sub(remaining.len());
                    }
                }
                None => return Err(StopReason::Refused(message_at)),
            }
        }
        Ok(bytes.len().saturating_sub(remaining.len()))
    }

    /// Records the end of a message, and returns the next state.
    fn end_message(&mut self) -> State {
        self.messages = self.messages.wrapping_add(1);
        if self.closes_connection { State::Ended } else { State::default() }
    }

    /// Processes bytes of the current part of a message. Returns their number; `None` if the part is refused.
    fn process_part(&mut self, remaining: &[u8]) -> Option<usize> {
        match &mut self.state {
            State::Opaque | State::Ended => Some(remaining.len()),
            State::Body(bytes_left) => {
                let consumed = usize::try_from(*bytes_left).unwrap_or(usize::MAX).min(remaining.len());
                *bytes_left = bytes_left.saturating_sub(u64::try_from(consumed).unwrap_or(u64::MAX));
                if *bytes_left == 0 {
                    self.state = self.end_message();
                }
                Some(consumed)
            }
            State::Chunks(ChunkState::Data(bytes_left)) => {
                let consumed = usize::try_from(*bytes_left).unwrap_or(usize::MAX).min(remaining.len());
                let bytes_left = bytes_left.saturating_sub(u64::try_from(consumed).unwrap_or(u64::MAX));
                let next = if bytes_left == 0 { ChunkState::DataCarriageReturn } else { ChunkState::Data(bytes_left) };
                self.state = State::Chunks(next);
                Some(consumed)
            }
            State::Chunks(chunks) => {
                self.state = match chunks.transition(*remaining.first()?) {
                    ChunkTransition::Next(next) => State::Chunks(next),
                    ChunkTransition::Ended => self.end_message(),
                    ChunkTransition::Broken => State::Opaque,
                    ChunkTransition::Refused => return None,
                };
                Some(1)
            }
            State::Head(head) => {
                let Some(end) = remaining.iter().position(|byte| *byte == b'\n') else {
                    head.line.push(remaining);
                    return Some(remaining.len());
                };
                head.line.push(remaining.get(..end).unwrap_or_default());
                let line_result = head.end_line();
                self.refusal = head.refusal;
                if let Some(BodyState(body)) = line_result? {
                    self.closes_connection = head.is_trace;
                    self.state = match body {
                        Some(body) => body,
                        None => self.end_message(),
                    };
                    #[cfg(test)]
                    {
                        self.heads += 1;
                    }
                }
                Some(end.saturating_add(1))
            }
        }
    }
}

impl Head {
    /// Ends a line. After the last line of the head, it returns the state of the body. `None` if the head is
    /// refused.
    fn end_line(&mut self) -> Option<Option<BodyState>> {
        let line = mem::take(&mut self.line);
        if line.last != b'\r' {
            return None;
        }
        let is_empty = line.length == 1;
        if is_empty && !self.has_begun {
            // Empty lines before a request are ignored (RFC 9112 section 2.2).
            return Some(None);
        }
        if is_empty {
            return self.body().map(Some);
        }
        if self.has_begun {
            self.read_field(&line)?;
        } else {
            self.has_begun = true;
            if line.target_bytes() > MAX_TARGET_BYTES {
                self.refusal = Some("the request line is too long");
            }
            self.is_connect = line.text().starts_with(b"CONNECT ");
            self.is_trace = line.text().starts_with(b"TRACE ");
        }
        Some(None)
    }

    /// Records the effect of a header field on the framing; `None` if the field is ambiguous.
    fn read_field(&mut self, line: &Line) -> Option<()> {
        let text = line.text();
        let Some(colon) = text.iter().position(|byte| *byte == b':') else { return Some(()) };
        let (name, value) = text.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let name_is = |expected_name: &str| name.eq_ignore_ascii_case(expected_name.as_bytes());
        if name_is("expect") && (line.is_truncated() || !value.eq_ignore_ascii_case(b"100-continue")) {
            self.refusal = Some("the server supports no expectation except `100-continue`");
            return None;
        }
        if (name_is("content-length") || name_is("transfer-encoding") || name_is("upgrade")) && line.is_truncated() {
            return None;
        }
        if name_is("content-length") {
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()?;
            return self.content_length.replace(length).is_none().then_some(());
        }
        if name_is("transfer-encoding") {
            let is_first = !mem::replace(&mut self.is_chunked, true);
            return (is_first && value.eq_ignore_ascii_case(b"chunked")).then_some(());
        }
        self.is_upgrade |= name_is("upgrade") && value.eq_ignore_ascii_case(b"websocket");
        Some(())
    }

    /// The state after the head; `None` if the framing of the body is ambiguous.
    fn body(&self) -> Option<BodyState> {
        let body = match (self.is_chunked, self.content_length) {
            (true, Some(_)) => return None,
            (true, None) => Some(State::Chunks(ChunkState::SizeBegins)),
            (false, _) if self.is_upgrade => Some(State::Opaque),
            (false, Some(length)) if length > 0 => Some(State::Body(length)),
            (false, Some(_) | None) if self.is_connect => Some(State::Opaque),
            (false, Some(_) | None) => None,
        };
        Some(BodyState(body))
    }
}

impl Line {
    fn push(&mut self, bytes: &[u8]) {
        let free_bytes = self.bytes.get_mut(self.length..).unwrap_or_default();
        for (slot, byte) in free_bytes.iter_mut().zip(bytes) {
            *slot = *byte;
        }
        self.length = self.length.saturating_add(bytes.len());
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    /// The stored bytes of the line, without the final carriage return.
    fn text(&self) -> &[u8] {
        self.bytes.get(..self.length.saturating_sub(1).min(MAX_STORED_BYTES)).unwrap_or_default()
    }

    /// Length of the target, if this is a request line.
    fn target_bytes(&self) -> usize {
        let method = self.text().iter().position(|byte| *byte == b' ').map_or(0, |at| at.saturating_add(1));
        self.length.saturating_sub(method).saturating_sub(VERSION_BYTES)
    }

    const fn is_truncated(&self) -> bool {
        self.length > MAX_STORED_BYTES
    }
}

impl ChunkState {
    /// The transition for a byte. [`Framing::process_part`] skips the data bytes.
    fn transition(self, byte: u8) -> ChunkTransition {
        match (self, byte) {
            (Self::SizeBegins, _) => {
                hex_digit(byte).map_or(ChunkTransition::Broken, |digit| ChunkTransition::Next(Self::Size(digit)))
            }
            (Self::Size(size) | Self::Blank(size), b' ' | b'\t') => ChunkTransition::Next(Self::Blank(size)),
            (Self::Size(size) | Self::Blank(size), b';') => ChunkTransition::Next(Self::Extension(size)),
            (Self::Size(size) | Self::Blank(size) | Self::Extension(size), b'\r') => {
                ChunkTransition::Next(Self::SizeEnds(size))
            }
            (Self::Size(size), _) => {
                let next = hex_digit(byte).and_then(|digit| size.checked_mul(16)?.checked_add(digit));
                next.map_or(ChunkTransition::Broken, |size| ChunkTransition::Next(Self::Size(size)))
            }
            (Self::Extension(_), 0x00..=0x08 | 0x0a..=0x1f | 0x7f) => ChunkTransition::Broken,
            (Self::Extension(size), _) => ChunkTransition::Next(Self::Extension(size)),
            (Self::SizeEnds(0), b'\n') => ChunkTransition::Next(Self::TrailerBegins),
            (Self::SizeEnds(size), b'\n') => ChunkTransition::Next(Self::Data(size)),
            (Self::DataCarriageReturn, b'\r') => ChunkTransition::Next(Self::DataLineFeed),
            (Self::DataLineFeed, b'\n') => ChunkTransition::Next(Self::SizeBegins),
            (Self::TrailerBegins, b'\r') => ChunkTransition::Next(Self::LastLineFeed),
            (Self::LastLineFeed, b'\n') => ChunkTransition::Ended,
            (Self::TrailerBegins | Self::Trailer, b'\n') => ChunkTransition::Refused,
            (Self::Trailer, b'\r') => ChunkTransition::Next(Self::TrailerLineFeed),
            (Self::TrailerBegins | Self::Trailer, _) => ChunkTransition::Next(Self::Trailer),
            (Self::TrailerLineFeed, b'\n') => ChunkTransition::Next(Self::TrailerBegins),
            (
                Self::Blank(_)
                | Self::SizeEnds(_)
                | Self::Data(_)
                | Self::DataCarriageReturn
                | Self::DataLineFeed
                | Self::TrailerLineFeed
                | Self::LastLineFeed,
                _,
            ) => ChunkTransition::Broken,
        }
    }
}

fn hex_digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

#[cfg(test)]
mod tests;
