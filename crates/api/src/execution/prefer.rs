//! The wait mode of a request, from `Prefer` (RFC 7240), `mode` and `Accept`.

use crate::{error::FieldProblem, http::event_stream::EVENT_STREAM};
use actix_web::http::header::{ACCEPT, HeaderMap, HeaderName};
use fairway_operations::execution::WaitMode;
use std::time::Duration;

pub(super) const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The wait mode that headers and query request. Unknown preferences are ignored (RFC 7240).
pub(super) fn wait_mode(headers: &HeaderMap, mode: Option<&str>) -> Result<WaitMode, FieldProblem> {
    let mut wait = None;
    let mut is_queued = match mode {
        Some("async") => true,
        None => false,
        Some(_) => return Err(FieldProblem::invalid("mode")),
    };
    let values = headers.get_all(&PREFER).filter_map(|value| value.to_str().ok());
    for preference in values.flat_map(|value| value.split(',')) {
        // The text after a semicolon contains parameters. It is ignored, because `respond-async` and `wait` have no
        // parameters.
        let preference = preference.split(';').next().unwrap_or_default().trim();
        let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
        let value = value.trim().trim_matches('"');
        if name.trim().eq_ignore_ascii_case("respond-async") && value.is_empty() {
            is_queued = true;
        } else if name.trim().eq_ignore_ascii_case("wait") && wait.is_none() {
            wait = value.parse().ok().map(Duration::from_secs);
        }
    }
    Ok(if is_queued {
        WaitMode::Queued
    } else if accepts_event_stream(headers) {
        WaitMode::Acceptance
    } else {
        WaitMode::End(wait)
    })
}

/// Whether the client accepts an event stream explicitly; wildcards do not count.
fn accepts_event_stream(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_event_stream = parts.next().is_some_and(|range| range.eq_ignore_ascii_case(EVENT_STREAM));
        // A quality of zero means "not acceptable".
        is_event_stream && !parts.any(|part| matches!(part, "q=0" | "q=0." | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    fn parse(prefer: &[&'static str], accept: &'static str, mode: Option<&str>) -> Result<WaitMode, FieldProblem> {
        let mut headers = HeaderMap::new();
        for value in prefer {
            headers.append(PREFER, HeaderValue::from_static(value));
        }
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        wait_mode(&headers, mode)
    }

    #[test]
    fn parses_wait_mode_from_headers_and_query() {
        let seconds = |seconds| WaitMode::End(Some(Duration::from_secs(seconds)));
        for (prefer, accept, mode, expected) in [
            (&[][..], "*/*", None, WaitMode::End(None)),
            (&["wait=2"], "application/json", None, seconds(2)),
            (&["handling=lenient, WAIT=\"3\"; x=1", "wait=4"], "*/*", None, seconds(3)),
            (&["wait=-1"], "*/*", None, WaitMode::End(None)),
            (&["wait=10, Respond-Async"], "*/*", None, WaitMode::Queued),
            (&["respond-async=no"], "*/*", None, WaitMode::End(None)),
            (&[], "*/*", Some("async"), WaitMode::Queued),
            (&[], "application/json;q=0.5, text/event-stream", None, WaitMode::Acceptance),
            (&["respond-async"], "text/event-stream", None, WaitMode::Queued),
            (&[], "text/event-stream; q=0, application/json", None, WaitMode::End(None)),
        ] {
            assert_eq!(parse(prefer, accept, mode).ok(), Some(expected), "{prefer:?} {accept} {mode:?}");
        }
        assert!(parse(&[], "*/*", Some("sync")).is_err());
    }
}
