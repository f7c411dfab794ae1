//! Middleware that gives every request an id, a span, a log line and metrics, and every response common headers.
//!
//! A client's `X-Request-Id` is kept if it is a hyphenated UUID, because audit entries store request ids as UUIDs. Any
//! other well-formed id (1 to 128 of `A-Z a-z 0-9 . _ -`) is logged next to a generated one; a malformed id is ignored.
//! The query string is never logged, because it may carry a share token.

use crate::{
    caller::is_guest,
    error::ApiError,
    http::{
        HttpState, connection_guard::ConnectionActivity, deprecation::Deprecation, shutdown_signal::ShutdownStateInBody,
    },
    metrics::{CompletedRequest, Method},
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
use fairway_postgres::with_wait_time;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use opentelemetry::trace::TraceId;
use std::{
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};
use tracing::{Instrument as _, Span, field::Empty};
use uuid::Uuid;

/// Request and response header with the request id.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Header with the total time and the database wait in milliseconds (W3C Server Timing). Refusals and responses to
/// guests omit it: database time reveals whether a hidden resource exists.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// Default `Retry-After` of 429 and 503, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");
/// Maximum length of a logged path, in bytes. Paths are percent-encoded, so they contain no control characters.
const MAX_LOGGED_PATH: usize = 256;
/// Route label of unmatched paths, so that clients cannot choose metric labels.
const UNMATCHED: &str = "unmatched";

/// Headers of every response, unless the handler sets its own.
pub(super) const DEFAULT_HEADERS: [(HeaderName, HeaderValue); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'")),
];

/// Path prefix of the documentation pages, which have scripts and styles.
const DOCS_PREFIX: &str = "/docs/";
/// Content security policy of the documentation pages. It allows only resources of this server, and the inline
/// styles that the pages' library sets.
const DOCS_CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);

tokio::task_local! {
    static CURRENT: RequestId;
}

/// The id of the request that this task handles; a new id outside of requests. A spawned task counts as outside, so
/// pass the id to it explicitly.
pub fn request_id_or_new() -> RequestId {
    CURRENT.try_with(|id| *id).unwrap_or_else(|_| Uuid::now_v7().into())
}

/// Gives the request an id and a span, and records it in the log and in the metrics. Wrap this middleware last, because
/// the last wrapper is the outermost.
///
/// # Errors
/// When the inner service panicked or failed before a route. The error contains a complete response.
pub async fn identify_and_record_request<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    // Only requests of unit tests lack connection data.
    let connection = request.conn_data::<ConnectionActivity>().cloned();
    let _serving = connection.as_ref().map(ConnectionActivity::start_request);
    if let Some(connection) = connection {
        reset_read_ahead_for_body(&mut request, connection);
    }
    let record = RequestRecord::start(&mut request);
    let id = record.request_id;
    let span = record.span.clone();
    // A panic in a handler ends only its request. This is safe, because requests share only atomics and connection
    // pools.
    let future = CURRENT.scope(id, AssertUnwindSafe(next.call(request)).catch_unwind().instrument(span));
    let (result, database_wait) = with_wait_time(future).await;
    CURRENT.sync_scope(id, || match result {
        Ok(Ok(response)) => Ok(record.finish(response.map_into_boxed_body(), database_wait)),
        Ok(Err(failure)) => Err(record.finish_without_route(with_error_body(failure.error_response()))),
        Err(_panic) => {
            record.span.in_scope(|| tracing::error!("request handler panicked; responding 500"));
            Err(record.finish_without_route(ApiError::internal().error_response()))
        }
    })
}

/// Resets the read-ahead of the connection whenever the consumer of the body waits for more bytes.
fn reset_read_ahead_for_body(request: &mut ServiceRequest, connection: ConnectionActivity) {
    let mut payload = request.take_payload();
    if matches!(payload, Payload::None) {
        return;
    }
    let body = stream::poll_fn(move |context| {
        let part = payload.poll_next_unpin(context);
        if part.is_pending() {
            connection.reset_read_ahead();
        }
        part
    });
    request.set_payload(Payload::Stream { payload: Box::pin(body) });
}

/// Marks a response of load shedding. It is counted in metrics but not logged, because refusals must be cheap under
/// load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadRefusalMarker;

/// Data of a request that the middleware collects before it calls the inner service.
struct RequestRecord {
    request_id: RequestId,
    client_request_id: Option<String>,
    trace_id: Option<TraceId>,
    method: Method,
    path: String,
    span: Span,
    started_at: Instant,
    /// Whether the connection must close after the response.
    closes_connection: bool,
    base: Option<web::Data<HttpState>>,
}

impl RequestRecord {
    fn start(request: &mut ServiceRequest) -> Self {
        let (request_id, client_id) = resolve_request_id(request.headers());
        let method = Method::of(request.method());
        let path = request.path().chars().take(MAX_LOGGED_PATH).collect();
        let span = create_span(request_id, client_id, method);
        let trace_id = telemetry::adopt_parent(&span, request.headers());
        let client_request_id = client_id.map(str::to_owned);
        // A client can use TRACE to probe intermediaries (threat T5 in `docs/security.md`).
        let closes_connection = request.method() == http::Method::TRACE;
        // Routes handle HEAD as GET; the connection omits the body.
        if request.method() == http::Method::HEAD {
            request.head_mut().method = http::Method::GET;
        }
        let base = request.app_data::<web::Data<HttpState>>().cloned();
        let started_at = Instant::now();
        Self { request_id, client_request_id, trace_id, method, path, span, started_at, closes_connection, base }
    }

    fn finish(&self, response: ServiceResponse<BoxBody>, database_wait: Duration) -> ServiceResponse<BoxBody> {
        let (request, response) = response.into_parts();
        let route = route_pattern(&request);
        // Guests do not see the database wait. The check comes here, because the inner middlewares identify the
        // caller.
        let visible_wait = (!is_guest(&request)).then_some(database_wait);
        let mut response = self.complete(with_error_body(response), &route, visible_wait);
        let deprecations = self.base.as_ref().map_or(&[][..], |base| base.deprecations);
        if let Some(deprecation) = Deprecation::find(deprecations, request.method(), &route) {
            deprecation.add_headers(response.headers_mut());
        }
        ServiceResponse::new(request, response)
    }

    /// Completes a response whose request, and therefore route, is no longer available.
    fn finish_without_route(&self, response: HttpResponse) -> Error {
        let response = self.complete(response, UNMATCHED, None);
        InternalError::from_response("response complete", response).into()
    }

    fn complete(&self, mut response: HttpResponse, route: &str, visible_wait: Option<Duration>) -> HttpResponse {
        let elapsed = self.started_at.elapsed();
        let status = response.status();
        let is_refusal = status.is_client_error() || status.is_server_error();
        let is_retryable = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        let headers = response.headers_mut();
        if is_retryable && !headers.contains_key(header::RETRY_AFTER) {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if self.path.starts_with(DOCS_PREFIX) {
            headers.insert(header::CONTENT_SECURITY_POLICY, DOCS_CONTENT_SECURITY_POLICY);
        }
        for (name, value) in DEFAULT_HEADERS {
            if !headers.contains_key(&name) {
                headers.insert(name, value);
            }
        }
        if let Ok(id) = HeaderValue::from_str(&self.request_id.to_string()) {
            headers.insert(REQUEST_ID, id);
        }
        if let Some(wait) = visible_wait
            && !is_refusal
        {
            let timing = format!("total;dur={:.2}, db;dur={:.2}", milliseconds(elapsed), milliseconds(wait));
            if let Ok(timing) = HeaderValue::from_str(&timing) {
                headers.insert(SERVER_TIMING, timing);
            }
        }
        let reported = response.extensions().get::<ShutdownStateInBody>().map(|reported| reported.0);
        if self.closes_connection
            || reported.unwrap_or_else(|| self.base.as_ref().is_some_and(|base| base.shutdown.is_announced()))
        {
            response.head_mut().set_connection_type(ConnectionType::Close);
        }
        let is_shed = response.extensions().get::<LoadRefusalMarker>().is_some();
        self.record_metrics(response.status(), route, elapsed);
        if !is_shed {
            self.log_access(response.status(), route, elapsed);
        }
        response
    }

    fn record_metrics(&self, status: StatusCode, route: &str, elapsed: Duration) {
        if telemetry::is_exporting() {
            telemetry::set_span_name_and_status(
                &self.span,
                format!("{} {route}", self.method.as_str()),
                status.is_server_error(),
            );
            self.span.record("http.route", route);
            self.span.record("http.response.status_code", status.as_u16());
        }
        if let Some(base) = &self.base {
            base.metrics.count_request(&CompletedRequest {
                method: self.method,
                route,
                status: status.as_u16(),
                elapsed,
            });
        }
    }

    fn log_access(&self, status: StatusCode, route: &str, elapsed: Duration) {
        // The event is outside the span. It has the request's fields itself, so the formatter need not read the span.
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
            "request completed"
        );
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Creates the span at the level of errors, so that a log of warnings still contains the request id.
fn create_span(request_id: RequestId, client_id: Option<&str>, method: Method) -> Span {
    if !telemetry::is_exporting() {
        return tracing::error_span!(
            "http.request",
            request_id = %request_id,
            client_request_id = client_id,
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
        client_request_id = client_id,
        trace_id = Empty,
    )
}

/// The request id, and the client's id if it is not a UUID.
fn resolve_request_id(headers: &HeaderMap) -> (RequestId, Option<&str>) {
    let mut values = headers.get_all(&REQUEST_ID);
    let text = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        (Some(_), Some(_)) | (None, _) => None,
    };
    match text {
        Some(text) => match (text.len() == 36, Uuid::try_parse(text)) {
            (true, Ok(id)) => (id.into(), None),
            (true | false, Ok(_) | Err(_)) => (Uuid::now_v7().into(), Some(text).filter(|text| is_well_formed(text))),
        },
        None => (Uuid::now_v7().into(), None),
    }
}

fn is_well_formed(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=128).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// The pattern of the matched route, or [`UNMATCHED`].
fn route_pattern(request: &HttpRequest) -> String {
    request.match_pattern().unwrap_or_else(|| UNMATCHED.to_owned())
}

/// Replaces an error response of the framework, which has no body or plain text, with the common error body.
fn with_error_body(response: HttpResponse) -> HttpResponse {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let is_plain = match response.headers().get(header::CONTENT_TYPE) {
        Some(kind) => kind.as_bytes().starts_with(b"text/plain"),
        None => true,
    };
    if !is_error || !is_plain {
        return response;
    }
    let allow = response.headers().get(header::ALLOW).cloned();
    let error = match status {
        StatusCode::NOT_FOUND => ApiError::not_found(),
        StatusCode::METHOD_NOT_ALLOWED => ApiError::method_not_allowed(allow),
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::payload_too_large(),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ApiError::unsupported_media_type(),
        StatusCode::REQUEST_TIMEOUT => ApiError::request_timeout(),
        StatusCode::SERVICE_UNAVAILABLE => ApiError::unavailable(),
        _ if status.is_client_error() => ApiError::new(status, "bad_request", "the request is invalid"),
        _ => ApiError::internal(),
    };
    error.error_response()
}

#[cfg(test)]
mod tests;
