//! The outermost middleware: an id, a span, a log line and a count for every request, and no answer without the
//! common headers, whatever happens inside.
//!
//! A client's `X-Request-Id` is kept where it is a hyphenated UUID, because ours are UUIDs and stand in audit entries.
//! Any other well-formed id (1 to 128 of `A-Z a-z 0-9 . _ -`) goes to the log beside the one that is made instead, and
//! anything else is ignored. The query string is never logged: it may carry a share token.

use crate::{
    caller::is_guest,
    error::ApiError,
    http::{HttpBase, connection::Line, deprecation::Deprecation, leaving::SaidLeaving},
    metrics::{Method, RequestFacts},
    telemetry,
};
use actix_web::{
    Error, HttpMessage as _, HttpRequest, HttpResponse, ResponseError as _,
    body::{BoxBody, MessageBody},
    dev::{Payload, ServiceRequest, ServiceResponse},
    error::InternalError,
    http::{
        self, ConnectionType, StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    middleware::Next,
    web,
};
use fairway_domain::id::RequestId;
use fairway_postgres::with_time_waited;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use opentelemetry::trace::TraceId;
use std::{
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};
use tracing::{Instrument as _, Span, field::Empty};
use uuid::Uuid;

/// The header that carries a request's id in and out.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// How long the answer took, and how much of it was waiting for PostgreSQL, in milliseconds (W3C Server Timing). Refusals and
/// answers to guests go without it: the time of the database tells whether something exists that the caller may not see.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// When to try again what could not be answered for the moment, in seconds, unless the answer knows better.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");
/// Longest path that is logged, in bytes. Paths arrive percent-encoded, so they hold no control characters.
const LOGGED_PATH: usize = 256;
/// What stands for the route of a path that is none of ours, so that metrics have no label of a stranger's choice.
const UNMATCHED: &str = "unmatched";

/// Headers of every answer, unless the handler chose its own.
pub(super) const DEFAULT_HEADERS: [(HeaderName, HeaderValue); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'")),
];

/// Where pages for people are that come with their own scripts and styles.
const PAGES: &str = "/docs/";
/// Those pages load what this server has, and nothing else. Their library sets styles by attribute.
const PAGES_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);

tokio::task_local! {
    static CURRENT: RequestId;
}

/// The id of the request that this task answers; a fresh one outside of requests. Tasks that a handler spawns are
/// outside: hand the id over.
pub fn request_id() -> RequestId {
    CURRENT.try_with(|id| *id).unwrap_or_else(|_| Uuid::now_v7().into())
}

/// The middleware; wrap it last, so that it is outermost.
///
/// # Errors
/// None of its own: an error is returned where the inside panicked or failed before a route, and is a whole answer.
pub async fn request_context<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    // Tests of parts have no connection.
    let line = request.conn_data::<Line>().cloned();
    let _serving = line.as_ref().map(Line::serve);
    if let Some(line) = line {
        open_window_for_body(&mut request, line);
    }
    let arrival = Arrival::of(&mut request);
    let id = arrival.request_id;
    let span = arrival.span.clone();
    // A panic in a handler ends that request alone. The service is shared by nothing but its own atomics and pools.
    let inside = CURRENT.scope(id, AssertUnwindSafe(next.call(request)).catch_unwind().instrument(span));
    let (inside, waited) = with_time_waited(inside).await;
    CURRENT.sync_scope(id, || match inside {
        Ok(Ok(answer)) => Ok(arrival.finish(answer.map_into_boxed_body(), waited)),
        Ok(Err(failure)) => Err(arrival.finish_without_route(as_ours(failure.error_response()), waited)),
        Err(_panic) => {
            arrival.span.in_scope(|| tracing::error!("a handler panicked"));
            Err(arrival.finish_without_route(ApiError::internal().error_response(), waited))
        }
    })
}

/// Lets the connection read on whenever whoever reads the body waits for more of it.
fn open_window_for_body(request: &mut ServiceRequest, line: Line) {
    let mut payload = request.take_payload();
    if matches!(payload, Payload::None) {
        return;
    }
    let body = stream::poll_fn(move |context| {
        let part = payload.poll_next_unpin(context);
        if part.is_pending() {
            line.await_body();
        }
        part
    });
    request.set_payload(Payload::Stream { payload: Box::pin(body) });
}

/// Marks an answer that says that there is too much to do. It is counted and not told line by line: while there is most of it
/// to do, it has to be cheap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedForLoad;

/// What is known of a request before it is answered.
struct Arrival {
    request_id: RequestId,
    client_request_id: Option<String>,
    trace_id: Option<TraceId>,
    method: Method,
    path: String,
    span: Span,
    began: Instant,
    /// Whether the caller has an identity, so that it may know how long the service took.
    is_named: bool,
    /// Whether the connection ends with the answer, whatever the answer is.
    ends_connection: bool,
    base: Option<web::Data<HttpBase>>,
}

impl Arrival {
    fn of(request: &mut ServiceRequest) -> Self {
        let (request_id, foreign) = identify(request.headers());
        let method = Method::of(request.method());
        let path = request.path().chars().take(LOGGED_PATH).collect();
        let span = span_of(request_id, foreign, method);
        let trace_id = telemetry::adopt_parent(&span, request.headers());
        let client_request_id = foreign.map(str::to_owned);
        let is_named = !is_guest(request.request());
        // A TRACE probes what stands in between (threats, T5).
        let ends_connection = request.method() == http::Method::TRACE;
        // Whoever answers GET answers HEAD; the connection leaves the body out.
        if request.method() == http::Method::HEAD {
            request.head_mut().method = http::Method::GET;
        }
        let base = request.app_data::<web::Data<HttpBase>>().cloned();
        let began = Instant::now();
        Self { request_id, client_request_id, trace_id, method, path, span, began, is_named, ends_connection, base }
    }

    fn finish(&self, answer: ServiceResponse<BoxBody>, waited: Duration) -> ServiceResponse<BoxBody> {
        let (request, answer) = answer.into_parts();
        let route = route_of(&request);
        let mut answer = self.complete(as_ours(answer), &route, waited);
        let deprecations = self.base.as_ref().map_or(&[][..], |base| base.deprecations);
        if let Some(deprecation) = Deprecation::of(deprecations, request.method(), &route) {
            deprecation.announce(answer.headers_mut());
        }
        ServiceResponse::new(request, answer)
    }

    /// For answers that lost their request on the way.
    fn finish_without_route(&self, answer: HttpResponse, waited: Duration) -> Error {
        let answer = self.complete(answer, UNMATCHED, waited);
        InternalError::from_response("answered", answer).into()
    }

    fn complete(&self, mut answer: HttpResponse, route: &str, waited: Duration) -> HttpResponse {
        let elapsed = self.began.elapsed();
        let status = answer.status();
        let is_refusal = status.is_client_error() || status.is_server_error();
        let later = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        let headers = answer.headers_mut();
        if later && !headers.contains_key(header::RETRY_AFTER) {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if self.path.starts_with(PAGES) {
            headers.insert(header::CONTENT_SECURITY_POLICY, PAGES_POLICY);
        }
        for (name, value) in DEFAULT_HEADERS {
            if !headers.contains_key(&name) {
                headers.insert(name, value);
            }
        }
        if let Ok(id) = HeaderValue::from_str(&self.request_id.to_string()) {
            headers.insert(REQUEST_ID, id);
        }
        if self.is_named && !is_refusal {
            let timing = format!("total;dur={:.2}, db;dur={:.2}", milliseconds(elapsed), milliseconds(waited));
            if let Ok(timing) = HeaderValue::from_str(&timing) {
                headers.insert(SERVER_TIMING, timing);
            }
        }
        let said = answer.extensions().get::<SaidLeaving>().map(|said| said.0);
        if self.ends_connection
            || said.unwrap_or_else(|| self.base.as_ref().is_some_and(|base| base.leaving.is_announced()))
        {
            answer.head_mut().set_connection_type(ConnectionType::Close);
        }
        let refused = answer.extensions().get::<RefusedForLoad>().is_some();
        self.report(answer.status(), route, elapsed);
        if !refused {
            self.tell(answer.status(), route, elapsed);
        }
        answer
    }

    fn report(&self, status: StatusCode, route: &str, elapsed: Duration) {
        if telemetry::is_exporting() {
            telemetry::name(&self.span, format!("{} {route}", self.method.as_str()), status.is_server_error());
            self.span.record("http.route", route);
            self.span.record("http.response.status_code", status.as_u16());
        }
        if let Some(base) = &self.base {
            base.metrics.request(&RequestFacts { method: self.method, route, status: status.as_u16(), elapsed });
        }
    }

    fn tell(&self, status: StatusCode, route: &str, elapsed: Duration) {
        // Outside the span, whose fields the formatter would have to read back: the line names the request itself.
        tracing::info!(
            target: "fairway::access",
            parent: None,
            request_id = %self.request_id,
            client_request_id = self.client_request_id,
            trace_id = self.trace_id.map(tracing::field::display),
            method = self.method.as_str(),
            path = self.path,
            route,
            status = status.as_u16(),
            milliseconds = milliseconds(elapsed),
            "answered"
        );
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The highest level, so that a log of warnings alone still tells which request they belong to.
fn span_of(request_id: RequestId, foreign: Option<&str>, method: Method) -> Span {
    if !telemetry::is_exporting() {
        return tracing::error_span!(
            "http.request",
            request_id = %request_id,
            client_request_id = foreign,
            trace_id = Empty,
        );
    }
    tracing::error_span!(
        "http.request",
        otel.name = method.as_str(),
        otel.kind = "server",
        http.request.method = method.as_str(),
        http.route = Empty,
        http.response.status_code = Empty,
        request_id = %request_id,
        client_request_id = foreign,
        trace_id = Empty,
    )
}

/// The request's id, and what the client called it where that is no UUID.
fn identify(headers: &HeaderMap) -> (RequestId, Option<&str>) {
    let mut sent = headers.get_all(&REQUEST_ID);
    let only = match (sent.next(), sent.next()) {
        (Some(only), None) => only.to_str().ok(),
        (Some(_), Some(_)) | (None, _) => None,
    };
    match only {
        Some(text) => match (text.len() == 36, Uuid::try_parse(text)) {
            (true, Ok(id)) => (id.into(), None),
            (true | false, Ok(_) | Err(_)) => (Uuid::now_v7().into(), Some(text).filter(|text| well_formed(text))),
        },
        None => (Uuid::now_v7().into(), None),
    }
}

fn well_formed(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=128).contains(&text.len()) && text.bytes().all(plain)
}

/// The pattern of the route that answered.
fn route_of(request: &HttpRequest) -> String {
    request.match_pattern().unwrap_or_else(|| UNMATCHED.to_owned())
}

/// Gives refusals that the framework itself made (they have no body, or plain text) the body of ours.
fn as_ours(answer: HttpResponse) -> HttpResponse {
    let status = answer.status();
    let refused = status.is_client_error() || status.is_server_error();
    let plain = match answer.headers().get(header::CONTENT_TYPE) {
        Some(kind) => kind.as_bytes().starts_with(b"text/plain"),
        None => true,
    };
    if !refused || !plain {
        return answer;
    }
    let allow = answer.headers().get(header::ALLOW).cloned();
    let ours = match status {
        StatusCode::NOT_FOUND => ApiError::not_found(),
        StatusCode::METHOD_NOT_ALLOWED => ApiError::method_not_allowed(allow),
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::payload_too_large(),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ApiError::unsupported_media_type(),
        StatusCode::REQUEST_TIMEOUT => ApiError::request_timeout(),
        StatusCode::SERVICE_UNAVAILABLE => ApiError::unavailable(),
        _ if status.is_client_error() => ApiError::new(status, "bad_request", "the request cannot be answered"),
        _ => ApiError::internal(),
    };
    ours.error_response()
}

#[cfg(test)]
mod tests;
