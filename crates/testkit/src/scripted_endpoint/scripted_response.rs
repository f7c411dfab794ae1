//! The scripted response of the test endpoint to one request.

use serde_json::Value;
use std::fmt::Write as _;

/// A scripted response, with the faults that its delivery simulates.
#[derive(Clone, Debug)]
pub struct ScriptedResponse {
    status: Option<u16>,
    headers: Vec<(String, String)>,
    parts: Vec<Part>,
    /// Whether each part is sent as a separate HTTP chunk, so that the parts arrive separately.
    chunked: bool,
    /// Whether the response waits for a release before its head.
    has_initial_pause: bool,
    end: ResponseEnd,
}

#[derive(Clone, Debug)]
pub(super) enum Part {
    Text(String),
    Pause,
}

/// How the delivery of a response ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResponseEnd {
    /// The response is complete, and the connection accepts another request.
    Complete,
    /// The connection closes before the response is complete.
    Truncated,
    /// The connection is reset.
    Reset,
    /// No more data follows, and the connection stays open.
    Open,
}

impl ScriptedResponse {
    /// A response with a status and a text.
    #[must_use]
    pub fn status(status: u16, text: &str) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self {
            status: Some(status),
            headers,
            parts: vec![Part::Text(text.to_owned())],
            chunked: false,
            has_initial_pause: false,
            end: ResponseEnd::Complete,
        }
    }

    /// A 200 response with a JSON document.
    #[must_use]
    pub fn json(document: &Value) -> Self {
        Self::status(200, &document.to_string())
    }

    /// A 302 redirect.
    #[must_use]
    pub fn redirect(target: &str) -> Self {
        Self::status(302, "").header("Location", target)
    }

    /// A 200 response with server-sent events. Each event is one HTTP chunk, sent unchanged with its blank lines.
    #[must_use]
    pub fn events<T: Into<String>>(events: impl IntoIterator<Item = T>) -> Self {
        let parts = events.into_iter().map(|event| Part::Text(event.into())).collect();
        let headers = vec![("Content-Type".to_owned(), "text/event-stream; charset=utf-8".to_owned())];
        Self { status: Some(200), headers, parts, chunked: true, has_initial_pause: false, end: ResponseEnd::Complete }
    }

    /// Resets the connection after the request.
    #[must_use]
    pub fn reset() -> Self {
        Self { status: None, end: ResponseEnd::Reset, parts: Vec::new(), ..Self::status(200, "") }
    }

    /// Sends no response and keeps the connection open.
    #[must_use]
    pub fn hang() -> Self {
        Self { status: None, end: ResponseEnd::Open, parts: Vec::new(), ..Self::status(200, "") }
    }

    /// Sets a header, and replaces an existing header of the same name.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Waits for [`ScriptedEndpoint::release_pauses`](super::ScriptedEndpoint::release_pauses) before each part except
    /// the first.
    #[must_use]
    pub fn with_pauses(mut self) -> Self {
        let mut parts = Vec::new();
        for (index, part) in self.parts.drain(..).enumerate() {
            parts.extend((index > 0).then_some(Part::Pause));
            parts.push(part);
        }
        self.parts = parts;
        self
    }

    /// Waits for [`ScriptedEndpoint::release_pauses`](super::ScriptedEndpoint::release_pauses) before the first byte.
    #[must_use]
    pub const fn with_initial_pause(mut self) -> Self {
        self.has_initial_pause = true;
        self
    }

    /// Closes the connection before the response is complete.
    #[must_use]
    pub fn truncated(mut self) -> Self {
        self.end = ResponseEnd::Truncated;
        self
    }

    /// Resets the connection before the response is complete.
    #[must_use]
    pub fn reset_before_end(mut self) -> Self {
        self.end = ResponseEnd::Reset;
        self
    }

    /// Keeps the connection open after the last part, without completing the response.
    #[must_use]
    pub fn hanging_at_end(mut self) -> Self {
        self.end = ResponseEnd::Open;
        self
    }

    pub(super) const fn has_no_response(&self) -> bool {
        self.status.is_none()
    }

    pub(super) const fn has_initial_pause(&self) -> bool {
        self.has_initial_pause
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) const fn end(&self) -> ResponseEnd {
        self.end
    }

    pub(super) fn head(&self) -> String {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", self.status.unwrap_or(200));
        for (name, value) in &self.headers {
            // Writing to a string cannot fail.
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if self.chunked {
            head.push_str("Transfer-Encoding: chunked\r\n\r\n");
        } else {
            // A truncated response announces more bytes than it sends.
            let content_length =
                if self.end == ResponseEnd::Complete { self.length() } else { self.length().saturating_add(1) };
            let _ = write!(head, "Content-Length: {content_length}\r\n\r\n");
        }
        head
    }

    pub(super) fn frame(&self, text: &str) -> Vec<u8> {
        if self.chunked { format!("{:x}\r\n{text}\r\n", text.len()).into_bytes() } else { text.as_bytes().to_vec() }
    }

    pub(super) const fn terminator(&self) -> &'static [u8] {
        if self.chunked { b"0\r\n\r\n" } else { b"" }
    }

    fn length(&self) -> usize {
        let length = |part: &Part| match part {
            Part::Text(text) => text.len(),
            Part::Pause => 0,
        };
        self.parts.iter().map(length).sum()
    }
}
