//! What an endpoint answers to one request.

use serde_json::Value;
use std::fmt::Write as _;

/// What an endpoint answers to one request.
#[derive(Clone, Debug)]
pub struct Script {
    status: Option<u16>,
    headers: Vec<(String, String)>,
    parts: Vec<Part>,
    /// Whether the parts go out as chunks, so that each of them arrives by itself.
    chunked: bool,
    end: End,
}

#[derive(Clone, Debug)]
pub(super) enum Part {
    Text(String),
    Pause,
}

/// How an answer ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// As it should; the connection is good for another request.
    Whole,
    /// The connection is closed before the answer is whole.
    BrokenOff,
    /// The connection is reset.
    Reset,
    /// Nothing more comes, and the connection stays open.
    Hanging,
}

impl Script {
    /// A status, and a text.
    #[must_use]
    pub fn status(status: u16, text: &str) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self {
            status: Some(status),
            headers,
            parts: vec![Part::Text(text.to_owned())],
            chunked: false,
            end: End::Whole,
        }
    }

    /// 200, and a document.
    #[must_use]
    pub fn json(document: &Value) -> Self {
        Self::status(200, &document.to_string())
    }

    /// 302 to somewhere else.
    #[must_use]
    pub fn redirect(target: &str) -> Self {
        Self::status(302, "").header("Location", target)
    }

    /// 200, and server-sent events, each in a chunk of its own. They are written as they are, blank lines included.
    #[must_use]
    pub fn events<T: Into<String>>(events: impl IntoIterator<Item = T>) -> Self {
        let parts = events.into_iter().map(|event| Part::Text(event.into())).collect();
        let headers = vec![("Content-Type".to_owned(), "text/event-stream; charset=utf-8".to_owned())];
        Self { status: Some(200), headers, parts, chunked: true, end: End::Whole }
    }

    /// The connection is reset when the request has been read.
    #[must_use]
    pub fn reset() -> Self {
        Self { status: None, end: End::Reset, parts: Vec::new(), ..Self::status(200, "") }
    }

    /// Nothing is ever answered.
    #[must_use]
    pub fn hang() -> Self {
        Self { status: None, end: End::Hanging, parts: Vec::new(), ..Self::status(200, "") }
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Waits for the test before each part but the first.
    #[must_use]
    pub fn pausing(mut self) -> Self {
        let mut paused = Vec::new();
        for (index, part) in self.parts.drain(..).enumerate() {
            paused.extend((index > 0).then_some(Part::Pause));
            paused.push(part);
        }
        self.parts = paused;
        self
    }

    /// The connection is closed before the answer is whole.
    #[must_use]
    pub fn broken_off(mut self) -> Self {
        self.end = End::BrokenOff;
        self
    }

    /// The connection is reset before the answer is whole.
    #[must_use]
    pub fn reset_half_way(mut self) -> Self {
        self.end = End::Reset;
        self
    }

    /// What was said so far is all that comes, and the connection stays open.
    #[must_use]
    pub fn hanging(mut self) -> Self {
        self.end = End::Hanging;
        self
    }

    pub(super) const fn says_nothing(&self) -> bool {
        self.status.is_none()
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) const fn end(&self) -> End {
        self.end
    }

    pub(super) fn head(&self) -> String {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", self.status.unwrap_or(200));
        for (name, value) in &self.headers {
            // Writing to a text cannot fail.
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if self.chunked {
            head.push_str("Transfer-Encoding: chunked\r\n\r\n");
        } else {
            // What breaks off has promised more.
            let promised = if self.end == End::Whole { self.length() } else { self.length().saturating_add(1) };
            let _ = write!(head, "Content-Length: {promised}\r\n\r\n");
        }
        head
    }

    pub(super) fn framed(&self, text: &str) -> Vec<u8> {
        if self.chunked { format!("{:x}\r\n{text}\r\n", text.len()).into_bytes() } else { text.as_bytes().to_vec() }
    }

    pub(super) const fn closing(&self) -> &'static [u8] {
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
