//! What happens in a run, as it is told: server-sent events, read one by one.

use super::Server;
use crate::failure::Failure;
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader},
    time::Duration,
};
use ureq::{
    Body, BodyReader,
    http::{Method, Response, StatusCode, header},
};

/// The header in which a run of `anonymous` gets what it is read by.
const RESULT_TOKEN: &str = "X-Result-Token";

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
}

/// What a request for events came to.
pub(crate) enum Answered {
    /// Events, and what an anonymous run is read by.
    Events(Events, Option<String>),
    /// Another answer.
    Value(Value),
    /// There is nothing more to tell.
    Nothing,
}

impl Server {
    /// Posts a body and asks for events, for so long.
    pub(crate) fn post_for_events(
        &self,
        path: &[&str],
        key: &str,
        body: &Value,
        wait: Duration,
    ) -> Result<Answered, Failure> {
        let url = self.url(path, &[])?;
        let headers = [("Accept", "text/event-stream"), ("Idempotency-Key", key)];
        let request = self.request(&Method::POST, &url, &headers)?.map(|()| body.to_string());
        let request = self.agent.configure_request(request).timeout_global(Some(wait)).build();
        self.events_of(self.agent.run(request).map_err(|error| self.unreachable(&error))?)
    }

    /// Posts a body for a place in line.
    pub(crate) fn post_in_line(&self, path: &[&str], body: &Value) -> Result<Value, Failure> {
        let url = self.url(path, &[])?;
        let key = uuid::Uuid::new_v4().to_string();
        let headers = [("Prefer", "respond-async"), ("Idempotency-Key", key.as_str())];
        let request = self.request(&Method::POST, &url, &headers)?.map(|()| body.to_string());
        Ok(self.read(self.send(&request)?)?.1)
    }

    /// The events of a run behind the one that was seen last, for so long.
    pub(crate) fn follow(
        &self,
        run: &str,
        seen: Option<&str>,
        token: Option<&str>,
        wait: Duration,
    ) -> Result<Answered, Failure> {
        let url = self.url(&["executions", run, "events"], &[])?;
        let mut headers = vec![("Accept", "text/event-stream")];
        headers.extend(seen.map(|seen| ("Last-Event-ID", seen)));
        headers.extend(token.map(|token| (RESULT_TOKEN, token)));
        let request = self.agent.configure_request(self.request(&Method::GET, &url, &headers)?);
        let request = request.timeout_global(Some(wait)).build();
        self.events_of(self.agent.run(request).map_err(|error| self.unreachable(&error))?)
    }

    /// A run, as whoever holds its token may read it.
    pub(crate) fn run(&self, run: &str, token: Option<&str>) -> Result<Value, Failure> {
        let url = self.url(&["executions", run], &[])?;
        let headers: Vec<_> = token.map(|token| (RESULT_TOKEN, token)).into_iter().collect();
        Ok(self.read(self.send(&self.request(&Method::GET, &url, &headers)?)?)?.1)
    }

    fn events_of(&self, answer: Response<Body>) -> Result<Answered, Failure> {
        if answer.status() == StatusCode::NO_CONTENT {
            return Ok(Answered::Nothing);
        }
        let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let is_stream = text(header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/event-stream"));
        if !is_stream || !answer.status().is_success() {
            return Ok(Answered::Value(self.read(answer)?.1));
        }
        let token = answer.headers().get(RESULT_TOKEN).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(Answered::Events(Events { lines: BufReader::new(answer.into_body().into_reader()) }, token))
    }
}

impl Iterator for Events {
    type Item = Event;

    /// The next event; none when the stream ended or was cut, which only the run itself can tell apart.
    fn next(&mut self) -> Option<Event> {
        let mut event = Event::default();
        let mut data = String::new();
        let mut line = String::new();
        loop {
            line.clear();
            if self.lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let text = line.trim_end_matches(['\r', '\n']);
            if text.is_empty() {
                if event.name.is_empty() {
                    data.clear();
                    continue;
                }
                event.data = serde_json::from_str(&data).unwrap_or_default();
                return Some(event);
            }
            let (field, value) = text.split_once(':').unwrap_or((text, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => event.id = Some(value.to_owned()),
                "event" => value.clone_into(&mut event.name),
                "data" => data.push_str(value),
                // Comments, which keep the line alive, and how long to wait before coming back.
                _ => {}
            }
        }
    }
}
