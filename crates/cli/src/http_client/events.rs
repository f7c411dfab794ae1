//! Reads the events of runs and of the inbox as server-sent events.

use super::{REQUEST_TIMEOUT, ServerClient};
use crate::failure::Failure;
use serde_json::Value;
use std::{
    io::{self, BufRead as _, BufReader, Read as _},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};
use ureq::{
    Body, BodyReader,
    http::{Method, Request, Response, StatusCode, header},
};

/// The response header with the result token of an anonymous run.
const RESULT_TOKEN_HEADER: &str = "X-Result-Token";

/// The response header with the URL of the run's events, which contains the run's id. It arrives before the first
/// event; a queued run has no events yet.
const CONTENT_LOCATION_HEADER: &str = "Content-Location";

/// Time without data after which a connection counts as dead. The server sends a keep-alive every 3 s.
const DEAD_CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of an event in bytes. A result has up to 4 MiB, and escaping makes each byte up to 6 bytes long.
const MAX_EVENT_BYTES: u64 = 32 << 20;

/// One server-sent event.
#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    /// The event's name, such as `step.started`.
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// The event stream of a run.
pub(crate) struct Events {
    lines: BufReader<BodyReader<'static>>,
    server: String,
}

/// Events that a background thread reads, so that the consumer can wait with a timeout.
pub(crate) struct EventReceiver(Receiver<Result<Event, Failure>>);

/// The result of one timed receive.
pub(crate) enum StreamItem {
    /// The next event.
    Event(Event),
    /// No event arrived within the timeout.
    Silence,
    /// The stream ended or the connection was lost.
    End,
}

/// Maximum number of buffered events.
const MAX_BUFFERED_EVENTS: usize = 64;

/// An event stream with the headers of its response.
pub(crate) struct EventStream {
    pub(crate) events: Events,
    /// The id of the run, if a header of the response contains it.
    pub(crate) run: Option<String>,
    /// The result token of an anonymous run.
    pub(crate) token: Option<String>,
}

/// The response to a request for events.
pub(crate) enum EventResponse {
    /// A stream of events.
    Events(EventStream),
    /// A complete JSON body instead of events.
    Value(Value),
    /// No further events: the server responded with 204.
    Nothing,
}

impl ServerClient {
    /// Posts a body under an idempotency key and requests an event stream.
    pub(crate) fn post_for_events(&self, path: &[&str], key: &str, body: &Value) -> Result<EventResponse, Failure> {
        let url = self.url(path, &[])?;
        let headers = [("Accept", "text/event-stream"), ("Idempotency-Key", key)];
        self.open_stream(
            self.request(&Method::POST, &url, &headers)?.map(|()| body.to_string()),
            DEAD_CONNECTION_TIMEOUT,
        )
    }

    /// Submits a queued run, with retries as in [`ServerClient::post_with_key`].
    pub(crate) fn post_queued_run(&self, path: &[&str], key: &str, body: &Value) -> Result<Value, Failure> {
        self.post_with_headers((path, &[]), body, key, &[("Prefer", "respond-async")])
    }

    /// Reads the events of a run that follow the last received event. The connection times out without data for
    /// `timeout`, or for [`DEAD_CONNECTION_TIMEOUT`] if that is shorter.
    pub(crate) fn follow_run_events(
        &self,
        run: &str,
        last_event_id: Option<&str>,
        token: Option<&str>,
        timeout: Duration,
    ) -> Result<EventResponse, Failure> {
        let url = self.url(&["executions", run, "events"], &[])?;
        let mut headers = vec![("Accept", "text/event-stream")];
        headers.extend(last_event_id.map(|last_event_id| ("Last-Event-ID", last_event_id)));
        headers.extend(token.map(|token| (RESULT_TOKEN_HEADER, token)));
        self.open_stream(self.request(&Method::GET, &url, &headers)?, timeout)
    }

    /// Reads the caller's notifications that follow the last received event.
    pub(crate) fn follow_inbox(&self, last_event_id: Option<&str>) -> Result<EventResponse, Failure> {
        let url = self.url(&["notifications", "inbox", "stream"], &[])?;
        let mut headers = vec![("Accept", "text/event-stream")];
        headers.extend(last_event_id.map(|last_event_id| ("Last-Event-ID", last_event_id)));
        self.open_stream(self.request(&Method::GET, &url, &headers)?, DEAD_CONNECTION_TIMEOUT)
    }

    /// Reads a run, with a result token if there is one, within the timeout.
    pub(crate) fn get_run(&self, run: &str, token: Option<&str>, timeout: Duration) -> Result<Value, Failure> {
        let url = self.url(&["executions", run], &[])?;
        let headers: Vec<_> = token.map(|token| (RESULT_TOKEN_HEADER, token)).into_iter().collect();
        self.read_with_timeout(self.request(&Method::GET, &url, &headers)?, timeout)
    }

    /// Reads a workload, whose form determines the types of inputs; `None` if the response is 404. The timeout is
    /// short, because the request delays the start of a run.
    pub(crate) fn workload_form(&self, slug: &str) -> Result<Option<Value>, Failure> {
        let url = self.url(&["workloads", "by-slug", slug], &[])?;
        match self.read_with_timeout(self.request(&Method::GET, &url, &[])?, DEAD_CONNECTION_TIMEOUT) {
            Err(Failure::Refused(refusal)) if refusal.status == 404 => Ok(None),
            found => found.map(Some),
        }
    }

    /// Reads a response within a total timeout, and with [`DEAD_CONNECTION_TIMEOUT`] for pauses in the data.
    fn read_with_timeout(&self, request: Request<()>, timeout: Duration) -> Result<Value, Failure> {
        let read_timeout = Some(timeout.min(DEAD_CONNECTION_TIMEOUT));
        let request = self.agent.configure_request(request).timeout_global(Some(timeout.min(REQUEST_TIMEOUT)));
        let request = request.timeout_connect(read_timeout).timeout_per_read(read_timeout).build();
        self.read(self.agent.run(request).map_err(|error| self.unreachable(&error))?)
    }

    /// Opens an event stream without a total timeout, because the consumer limits the wait.
    fn open_stream<B: ureq::AsSendBody>(
        &self,
        request: Request<B>,
        timeout: Duration,
    ) -> Result<EventResponse, Failure> {
        let read_timeout = Some(timeout.min(DEAD_CONNECTION_TIMEOUT));
        let request = self.agent.configure_request(request).timeout_global(None);
        let request = request.timeout_connect(read_timeout).timeout_per_read(read_timeout).build();
        self.event_response(self.agent.run(request).map_err(|error| self.unreachable(&error))?)
    }

    fn event_response(&self, response: Response<Body>) -> Result<EventResponse, Failure> {
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(EventResponse::Nothing);
        }
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let is_stream = text(header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/event-stream"));
        if !is_stream || !response.status().is_success() {
            return Ok(EventResponse::Value(self.read(response)?));
        }
        let header_text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let token = header_text(RESULT_TOKEN_HEADER).map(str::to_owned);
        let run = header_text(CONTENT_LOCATION_HEADER).and_then(run_id).map(str::to_owned);
        let lines = BufReader::new(response.into_body().into_reader());
        Ok(EventResponse::Events(EventStream {
            events: Events { lines, server: self.address().to_owned() },
            run,
            token,
        }))
    }
}

/// The run's id in the URL of an event stream. The URL may have any prefix, such as the path of a proxy.
fn run_id(address: &str) -> Option<&str> {
    let (_, run) = address.strip_suffix("/events")?.rsplit_once("/executions/")?;
    uuid::Uuid::parse_str(run).is_ok().then_some(run)
}

impl Events {
    /// Reads a line of the current event within the remaining bytes. Returns `None` when the stream ended or the
    /// connection was lost.
    fn read_line(&mut self, remaining_bytes: &mut u64) -> Result<Option<String>, Failure> {
        let mut line = Vec::new();
        let read = (&mut self.lines).take(*remaining_bytes).read_until(b'\n', &mut line);
        *remaining_bytes = remaining_bytes.saturating_sub(u64::try_from(line.len()).unwrap_or(u64::MAX));
        if *remaining_bytes == 0 {
            let cause = "an event exceeds the size limit".to_owned();
            return Err(Failure::Failed(format!("{}: {cause}", self.server)));
        }
        // A line without a line break was truncated, so its content is unreliable.
        let is_complete = read.is_ok() && line.pop() == Some(b'\n');
        Ok(is_complete.then(|| String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned()))
    }

    fn read_event(&mut self) -> Result<Option<Event>, Failure> {
        let mut event = Event::default();
        let mut data = String::new();
        let mut remaining_bytes = MAX_EVENT_BYTES;
        while let Some(text) = self.read_line(&mut remaining_bytes)? {
            if text.is_empty() {
                if event.name.is_empty() {
                    data.clear();
                    remaining_bytes = MAX_EVENT_BYTES;
                    continue;
                }
                event.data = serde_json::from_str(&data).unwrap_or_default();
                return Ok(Some(event));
            }
            let (field, value) = text.split_once(':').unwrap_or((&text, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => event.id = Some(value.to_owned()),
                "event" => value.clone_into(&mut event.name),
                "data" => data.push_str(value),
                // Ignores comments, which keep the connection alive, and retry times.
                _ => {}
            }
        }
        Ok(None)
    }
}

impl Events {
    /// Reads events in a background thread. The thread ends with the stream, or at the first event after the receiver
    /// is dropped.
    ///
    /// # Errors
    /// When the thread cannot be spawned.
    pub(crate) fn read_in_background(self) -> io::Result<EventReceiver> {
        let (sender, receiver) = sync_channel(MAX_BUFFERED_EVENTS);
        let read = move || self.map(|event| sender.send(event)).take_while(Result::is_ok).for_each(drop);
        thread::Builder::new().spawn(read)?;
        Ok(EventReceiver(receiver))
    }
}

impl EventReceiver {
    /// The next event within a timeout.
    ///
    /// # Errors
    /// When an event exceeds the size limit.
    pub(crate) fn recv_timeout(&self, timeout: Duration) -> Result<StreamItem, Failure> {
        match self.0.recv_timeout(timeout) {
            Ok(event) => event.map(StreamItem::Event),
            Err(RecvTimeoutError::Timeout) => Ok(StreamItem::Silence),
            Err(RecvTimeoutError::Disconnected) => Ok(StreamItem::End),
        }
    }
}

impl Iterator for Events {
    type Item = Result<Event, Failure>;

    /// The next event; `None` when the stream ended or the connection was lost. Only the run's final event shows
    /// that the stream is complete.
    ///
    /// # Errors
    /// When an event exceeds the size limit.
    fn next(&mut self) -> Option<Result<Event, Failure>> {
        self.read_event().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extracts_run_id_from_the_events_address() {
        let run = "019a0000-0000-7000-8000-000000000001";
        for prefix in ["", "/behind/a/proxy", "https://fairway.example.org"] {
            assert_eq!(run_id(&format!("{prefix}/v1/executions/{run}/events")), Some(run), "{prefix}");
        }
        let malformed = [format!("/v1/executions/{run}"), "/v1/executions/\u{7}/events".to_owned(), String::new()];
        assert!(malformed.iter().all(|address| run_id(address).is_none()));
    }
}
