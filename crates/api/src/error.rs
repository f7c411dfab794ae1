//! Error responses: one JSON body for every route, with fixed messages.
//!
//! INVARIANT: no message contains values of the request, so no response echoes a secret, a template or another tenant's
//! identifiers. Responses repeat only the names of fields and parameters that the caller sent.

mod access_request_refusal;
mod connection_refusal;
mod erasure_refusal;
mod failure;
mod field_errors;
mod identity_refusal;
mod notification_refusal;
mod use_case_refusal;

use crate::http::request_id_log_and_metrics;
use actix_web::{
    HttpResponse, ResponseError,
    http::{
        StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
};
pub(crate) use field_errors::FieldErrors;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{borrow::Cow, error::Error, fmt};

/// An error response: `{"detail": {"error", "message", …}, "request_id"}`.
#[derive(Debug)]
pub struct ApiError(Box<ErrorResponse>);

#[derive(Debug)]
struct ErrorResponse {
    status: StatusCode,
    code: &'static str,
    message: Cow<'static, str>,
    detail: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// One problem of a body or a query.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FieldProblem {
    /// Path of the field, such as `interface_config.input_fields[0].type`; empty for the whole body.
    pub path: String,
    /// `missing`, `unknown_field`, `invalid`, or the code of a rule.
    pub code: &'static str,
    /// Human-readable message, without the value.
    pub message: Cow<'static, str>,
}

impl FieldProblem {
    /// Creates a problem of a field.
    pub fn new(path: impl Into<String>, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { path: path.into(), code, message: message.into() }
    }

    /// Creates the problem of a value with the wrong type or form.
    pub fn invalid(path: impl Into<String>) -> Self {
        Self::new(path, "invalid", "the value does not have the expected type or form")
    }

    /// Creates the problem of a required field that is absent.
    pub fn missing(path: impl Into<String>) -> Self {
        Self::new(path, "missing", "this field is required")
    }
}

impl From<FieldProblem> for ApiError {
    fn from(problem: FieldProblem) -> Self {
        Self::invalid_field(problem)
    }
}

impl ApiError {
    /// Creates an error response. `message` must be fixed text.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(ErrorResponse { status, code, message: message.into(), detail: Map::new(), headers: Vec::new() }))
    }

    /// Adds a member to `detail`. `error` and `message` cannot be replaced.
    #[must_use]
    pub fn with_detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.detail.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a header to the response.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// Logs the underlying error with its causes. The response does not change.
    #[must_use]
    pub fn log_cause(self, cause: &(dyn Error + 'static)) -> Self {
        let mut chain = cause.to_string();
        let mut source = cause.source();
        while let Some(cause) = source {
            chain = format!("{chain}: {cause}");
            source = cause.source();
        }
        // 503 is the normal response under load or without the database, so it is a warning.
        if self.0.status == StatusCode::SERVICE_UNAVAILABLE {
            tracing::warn!(code = self.0.code, cause = chain, "request failed; sending an error response");
        } else {
            tracing::error!(code = self.0.code, cause = chain, "request failed; sending an error response");
        }
        self
    }

    /// The HTTP status of the response.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.0.status
    }

    pub(crate) fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.0.headers
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// The stable error code of the response, such as `not_found`.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.0.code
    }

    /// 400: the body is not well-formed, unambiguous JSON.
    pub fn malformed_json() -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed_json", "the body is not well-formed JSON")
    }

    /// 400: the request is not valid HTTP.
    pub fn malformed_http() -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", "the request is not valid HTTP")
    }

    /// 409: the state of the resource refuses the request.
    pub fn conflict(code: &'static str, message: &'static str) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// 401: the request proves no identity. `challenge` describes how to prove one.
    pub(crate) fn unauthenticated(challenge: HeaderValue) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", "sign in, or send a valid access token")
            .with_header(header::WWW_AUTHENTICATE, challenge)
    }

    /// 403: a change by a browser session lacks the session's token, so another site may have caused it.
    pub(crate) fn csrf_token_invalid() -> Self {
        let message = "send the `csrf_token` of `GET /v1/session` as `X-CSRF-Token`";
        Self::new(StatusCode::FORBIDDEN, "csrf_token_invalid", message)
    }

    /// 403: the form of a browser session lacks the session's token. `problem` describes the error of the form
    /// field.
    pub(crate) fn csrf_field_invalid(problem: &'static str) -> Self {
        let message = format!("{problem}: send the `csrf_token` of `GET /v1/session` in it");
        Self::new(StatusCode::FORBIDDEN, "csrf_token_invalid", message)
    }

    /// 422: a header occurs more than once, so a proxy and this server could each use another value.
    pub(crate) fn repeated_header(name: &str) -> Self {
        Self::invalid_field(FieldProblem::new(name, "invalid", "this header occurs more than once"))
    }

    /// 403: the caller lacks a permission.
    pub fn forbidden(permission: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "the caller lacks a permission")
            .with_detail("permission", permission)
    }

    /// 403: a browser sent the request on behalf of another site.
    pub fn cross_site_request() -> Self {
        Self::new(StatusCode::FORBIDDEN, "cross_site_request", "cross-site requests are refused")
    }

    /// 404: the resource does not exist or is not visible to the caller.
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "the resource does not exist or is not visible")
    }

    /// 405, with an `Allow` header that lists the methods of the path.
    pub fn method_not_allowed(allowed: Option<HeaderValue>) -> Self {
        let error =
            Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path does not support the method");
        match allowed {
            Some(methods) => error.with_header(header::ALLOW, methods),
            None => error,
        }
    }

    /// 408: the request took too long to arrive.
    pub fn request_timeout() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "the request took too long to arrive")
    }

    /// 412: the resource is not at the revision of `If-Match`.
    pub fn precondition_failed() -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", "the resource has changed since it was read")
    }

    /// 413: the body is longer than the limit of the route.
    pub fn payload_too_large() -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", "the body is too long")
    }

    /// 415: the body is not unencoded JSON in UTF-8.
    pub fn unsupported_media_type() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "the body must be `application/json` in UTF-8, without a content encoding",
        )
    }

    /// 415: the route expects a form, and the body has another media type.
    pub(crate) fn form_expected() -> Self {
        let message = "the body must be a form: `application/x-www-form-urlencoded`";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
    }

    /// 400: the body is not a well-formed form.
    pub(crate) fn malformed_form() -> Self {
        let message = "the body is not a well-formed form, or repeats a field";
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// 421: this server does not serve the host name.
    pub fn misdirected_request() -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "misdirected_request", "this server does not serve this host name")
    }

    /// 422 with all problems of the request.
    pub fn validation(problems: Vec<FieldProblem>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "validation_error", "the request has missing or invalid fields")
            .with_detail("fields", json!(problems))
    }

    /// 422 with the problem of one field or parameter.
    pub fn invalid_field(problem: FieldProblem) -> Self {
        Self::validation(vec![problem])
    }

    /// 500: a defect of the server. The caller adds `log_cause` so that the cause is logged.
    pub fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server failed to answer this request")
    }

    /// 503: a dependency is unavailable.
    pub fn unavailable() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the service is temporarily unavailable")
    }

    /// 503: the response to a change without an idempotency key is lost.
    pub fn response_lost() -> Self {
        let message =
            "the response is temporarily unavailable; the change may have happened, and a repeat may make it again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).with_detail("may_have_happened", true)
    }

    /// 503: a change was sent to the store, and its outcome is unknown.
    pub fn outcome_unknown() -> Self {
        let message = "the service is temporarily unavailable; the change may have happened, and a repeat without the \
                       same idempotency key may make it again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).with_detail("may_have_happened", true)
    }

    /// The JSON body of the response.
    pub(crate) fn body(&self) -> Value {
        let mut detail = self.0.detail.clone();
        detail.insert("error".to_owned(), json!(self.0.code));
        detail.insert("message".to_owned(), json!(self.0.message));
        json!({"detail": detail, "request_id": request_id_log_and_metrics::request_id_or_new()})
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.0.code, self.0.message)
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.0.status
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.0.status);
        for (name, value) in &self.0.headers {
            response.append_header((name, value));
        }
        response.json(self.body())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::body::to_bytes;

    async fn body_of(error: ApiError) -> Value {
        let response = error.error_response();
        assert_eq!(response.headers().get("content-type").unwrap(), "application/json");
        serde_json::from_slice(&to_bytes(response.into_body()).await.unwrap()).unwrap()
    }

    #[actix_web::test]
    async fn error_body_has_detail_and_request_id() {
        let error = ApiError::forbidden("asset.create").with_detail("error", "mine").with_detail("message", "mine");
        let body = body_of(error).await;
        assert_eq!(
            body.get("detail").unwrap(),
            &json!({"error": "forbidden", "message": "the caller lacks a permission", "permission": "asset.create"})
        );
        body.get("request_id").unwrap().as_str().unwrap().parse::<uuid::Uuid>().unwrap();
        assert_eq!(body.as_object().unwrap().len(), 2);
    }

    #[actix_web::test]
    async fn lists_field_problems_in_detail() {
        let body = body_of(ApiError::invalid_field(FieldProblem::missing("a.b[0]"))).await;
        assert_eq!(
            body.pointer("/detail/fields").unwrap(),
            &json!([{"path": "a.b[0]", "code": "missing", "message": "this field is required"}])
        );
    }

    #[test]
    fn error_response_carries_headers() {
        let response = ApiError::method_not_allowed(Some(HeaderValue::from_static("GET"))).error_response();
        assert_eq!(response.headers().get("allow").unwrap(), "GET");
    }
}
