//! What happens in a run, as it is told: server-sent events, read one by one.

use super::{PATIENCE, Server};
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

/// The header in which a run of `anonymous` gets what it is read by.
const RESULT_TOKEN: &str = "X-Result-Token";

/// The header that says where the events of an answer are read again, and so which run they are of. It is there before any
/// event is: nothing is told of a run that waits in line.
const CONTENT_LOCATION: &str = "Content-Location";

/// How long nothing may come on a connection that tells of a run. A server says something each 3 s, so this one is dead.
const DEAD: Duration = Duration::from_secs(10);

/// Longest event that is read, in bytes: a result of 4 MiB, each byte of it spelled by its number, and room.
const LONGEST: u64 = 32 << 20;

/// One event.
#[derive(Debug, Default)]
pub(crate) struct Event {
    /// Its number.
    pub(crate) id: Option<String>,
    /// Such as `step.started`.
    pub(crate) name: String,
    /// What is said of it.
    pub(crate) data: Value,
}

/// The events of a run, as they come.
pub(crate) struct Events {
    lines: BufReader<BodyReader<'static>>,
    /// The address of who tells them.
    server: String,
}

/// Events that are read beside, so that who waits for the next one can look around meanwhile.
pub(crate) struct Listening(Receiver<Result<Event, Failure>>);

/// What came of listening for a while.
pub(crate) enum Heard {
    /// The next event.
    Event(Event),
    /// Nothing yet.
    Silence,
    /// The stream ended or was cut.
    End,
}

/// Most events that are read before they are asked for.
const AHEAD: usize = 64;

/// Events, and what their answer says besides.
pub(crate) struct Stream {
    pub(crate) events: Events,
    /// The run that they are of.
    pub(crate) run: Option<String>,
    /// What an anonymous run is read by.
    pub(crate) token: Option<String>,
}

/// What a request for events came to.
pub(crate) enum Answered {
    /// Events.
    Events(Stream),
    /// Another answer.
    Value(Value),
    /// There is nothing more to tell.
    Nothing,
}

impl Server {
    /// Posts a body under a key and asks for events.
    pub(crate) fn post_for_events(&self, path: &[&str], key: &str, body: &Value) -> Result<Answered, Failure> {
        let url = self.url(path, &[])?;
        let headers = [("Accept", "text/event-stream"), ("Idempotency-Key", key)];
        self.streamed(self.request(&Method::POST, &url, &headers)?.map(|()| body.to_string()), DEAD)
    }

    /// Posts a body for a place in line, as [`Server::post_once`] does.
    pub(crate) fn post_in_line(&self, path: &[&str], key: &str, body: &Value) -> Result<Value, Failure> {
        self.post_keyed(path, body, key, &[("Prefer", "respond-async")])
    }

    /// The events of a run behind the one that was seen last.
    /// Nothing may come for as long as the patience says, and never for longer than a line that moves says nothing.
    pub(crate) fn follow(
        &self,
        run: &str,
        seen: Option<&str>,
        token: Option<&str>,
        patience: Duration,
    ) -> Result<Answered, Failure> {
        let url = self.url(&["executions", run, "events"], &[])?;
        let mut headers = vec![("Accept", "text/event-stream")];
        headers.extend(seen.map(|seen| ("Last-Event-ID", seen)));
        headers.extend(token.map(|token| (RESULT_TOKEN, token)));
        self.streamed(self.request(&Method::GET, &url, &headers)?, patience)
    }

    /// A run, as whoever holds its token may read it, within the patience.
    pub(crate) fn run(&self, run: &str, token: Option<&str>, patience: Duration) -> Result<Value, Failure> {
        let url = self.url(&["executions", run], &[])?;
        let headers: Vec<_> = token.map(|token| (RESULT_TOKEN, token)).into_iter().collect();
        self.read_soon(self.request(&Method::GET, &url, &headers)?, patience)
    }

    /// A workload, whose form says what inputs mean; none when there is nothing to be seen. Whoever is about to begin a run
    /// waits no longer for it than for a line that is dead.
    pub(crate) fn form(&self, slug: &str) -> Result<Option<Value>, Failure> {
        let url = self.url(&["workloads", "by-slug", slug], &[])?;
        match self.read_soon(self.request(&Method::GET, &url, &[])?, DEAD) {
            Err(Failure::Refused(refusal)) if refusal.status == 404 => Ok(None),
            found => found.map(Some),
        }
    }

    /// An answer that is there within the patience, over a line that says something.
    fn read_soon(&self, request: Request<()>, patience: Duration) -> Result<Value, Failure> {
        let silence = Some(patience.min(DEAD));
        let request = self.agent.configure_request(request).timeout_global(Some(patience.min(PATIENCE)));
        let request = request.timeout_connect(silence).timeout_per_read(silence).build();
        self.read(self.agent.run(request).map_err(|error| self.unreachable(&error))?)
    }

    /// Asks for events, for as long as the connection is alive: who waits for them says when that is over.
    fn streamed<B: ureq::AsSendBody>(&self, request: Request<B>, patience: Duration) -> Result<Answered, Failure> {
        let silence = Some(patience.min(DEAD));
        let request = self.agent.configure_request(request).timeout_global(None);
        let request = request.timeout_connect(silence).timeout_per_read(silence).build();
        self.events_of(self.agent.run(request).map_err(|error| self.unreachable(&error))?)
    }

    fn events_of(&self, answer: Response<Body>) -> Result<Answered, Failure> {
        if answer.status() == StatusCode::NO_CONTENT {
            return Ok(Answered::Nothing);
        }
        let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let is_stream = text(header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/event-stream"));
        if !is_stream || !answer.status().is_success() {
            return Ok(Answered::Value(self.read(answer)?));
        }
        let said = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let token = said(RESULT_TOKEN).map(str::to_owned);
        let run = said(CONTENT_LOCATION).and_then(run_of).map(str::to_owned);
        let lines = BufReader::new(answer.into_body().into_reader());
        Ok(Answered::Events(Stream { events: Events { lines, server: self.address().to_owned() }, run, token }))
    }
}

/// The run whose events are read at an address, whatever stands in front of the path.
fn run_of(address: &str) -> Option<&str> {
    let (_, run) = address.strip_suffix("/events")?.rsplit_once("/executions/")?;
    uuid::Uuid::parse_str(run).is_ok().then_some(run)
}

impl Events {
    /// A line of the event that has so much room left; none when the stream ended or was cut.
    fn line(&mut self, room: &mut u64) -> Result<Option<String>, Failure> {
        let mut line = Vec::new();
        let read = (&mut self.lines).take(*room).read_until(b'\n', &mut line);
        *room = room.saturating_sub(u64::try_from(line.len()).unwrap_or(u64::MAX));
        if *room == 0 {
            let cause = "what is told there of a run has no end".to_owned();
            return Err(Failure::Unfit(format!("{}: {cause}", self.server)));
        }
        // A line without its end was cut, and says nothing for certain.
        let is_whole = read.is_ok() && line.pop() == Some(b'\n');
        Ok(is_whole.then(|| String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned()))
    }

    fn event(&mut self) -> Result<Option<Event>, Failure> {
        let mut event = Event::default();
        let mut data = String::new();
        let mut room = LONGEST;
        while let Some(text) = self.line(&mut room)? {
            if text.is_empty() {
                if event.name.is_empty() {
                    data.clear();
                    room = LONGEST;
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
                // Comments, which keep the line alive, and how long to wait before coming back.
                _ => {}
            }
        }
        Ok(None)
    }
}

impl Events {
    /// Reads on in a thread of their own, which ends with the stream or soon after nobody listens any more.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn listened(self) -> io::Result<Listening> {
        let (told, heard) = sync_channel(AHEAD);
        let read = move || self.map(|event| told.send(event)).take_while(Result::is_ok).for_each(drop);
        thread::Builder::new().spawn(read)?;
        Ok(Listening(heard))
    }
}

impl Listening {
    /// The next event, waited for that long.
    ///
    /// # Errors
    /// When an event is longer than any that Fairway tells.
    pub(crate) fn within(&self, patience: Duration) -> Result<Heard, Failure> {
        match self.0.recv_timeout(patience) {
            Ok(event) => event.map(Heard::Event),
            Err(RecvTimeoutError::Timeout) => Ok(Heard::Silence),
            Err(RecvTimeoutError::Disconnected) => Ok(Heard::End),
        }
    }
}

impl Iterator for Events {
    type Item = Result<Event, Failure>;

    /// The next event; none when the stream ended or was cut, which only its last event tells apart.
    ///
    /// # Errors
    /// When an event is longer than any that Fairway tells.
    fn next(&mut self) -> Option<Result<Event, Failure>> {
        self.event().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_events_says_which_run_they_are_of() {
        let run = "019a0000-0000-7000-8000-000000000001";
        for before in ["", "/behind/a/proxy", "https://fairway.example.org"] {
            assert_eq!(run_of(&format!("{before}/v1/executions/{run}/events")), Some(run), "{before}");
        }
        let known = [format!("/v1/executions/{run}"), "/v1/executions/\u{7}/events".to_owned(), String::new()];
        assert!(known.iter().all(|address| run_of(address).is_none()));
    }
}
