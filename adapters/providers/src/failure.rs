//! Classifies failed calls as provider errors.

use fairway_domain::execution::provider::{ProviderError, ProviderFailure};
use fairway_egress::{
    EgressError, StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};
use serde::Deserialize;
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// Classifies an unsuccessful status.
pub(crate) fn of_status(status: StatusCode) -> ProviderError {
    match status {
        StatusCode::REQUEST_TIMEOUT => ProviderError::TimedOut,
        StatusCode::CONFLICT => ProviderError::Unavailable,
        StatusCode::TOO_MANY_REQUESTS => ProviderError::Busy,
        status if status.is_server_error() => ProviderError::Unavailable,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ProviderError::KeyRefused,
        status if status.is_client_error() => ProviderError::Refused,
        _ => ProviderError::Malformed,
    }
}

/// The error in a response body. OpenAI, Anthropic and most compatible servers use this form. A body in another
/// form counts as an empty error.
#[derive(Deserialize, Default)]
struct ErrorBody {
    #[serde(default)]
    error: ErrorDetail,
}

#[derive(Deserialize, Default)]
struct ErrorDetail {
    #[serde(default)]
    code: Value,
    #[serde(default)]
    message: Value,
}

/// Error codes that mean that the server does not offer the model.
const UNKNOWN_MODEL_CODES: [&str; 2] = ["model_not_found", "model_not_available"];
/// Error codes that mean that a content rule of the provider refused the request.
const CONTENT_CODES: [&str; 3] = ["content_filter", "content_policy_violation", "invalid_prompt"];
/// A text by which servers without error codes report a refusal by a content rule.
const CONTENT_TEXT: &str = "content filtering policy";

/// Whether a status has several possible causes, which only the response's body distinguishes.
pub(crate) fn depends_on_body(status: StatusCode) -> bool {
    status == StatusCode::FORBIDDEN || of_status(status) == ProviderError::Refused
}

/// Classifies an error response. The body distinguishes causes and is not stored.
pub(crate) fn of_response(status: StatusCode, body: &[u8], model: &str) -> ProviderError {
    let error = of_status(status);
    if !depends_on_body(status) {
        return error;
    }
    let ErrorDetail { code, message } = serde_json::from_slice::<ErrorBody>(body).unwrap_or_default().error;
    let (code, message) = (code.as_str().unwrap_or_default(), message.as_str().unwrap_or_default());
    // A 404 of a server without these codes names the unknown model in its message. Responses with another status
    // may name the model for other reasons.
    let names_model = status == StatusCode::NOT_FOUND && !model.is_empty() && message.contains(model);
    if UNKNOWN_MODEL_CODES.contains(&code) || names_model {
        ProviderError::UnknownModel
    } else if CONTENT_CODES.contains(&code) || message.contains(CONTENT_TEXT) {
        ProviderError::ContentRefused
    } else {
        error
    }
}

/// Classifies a failure that occurred before the head of the response arrived.
pub(crate) const fn of_sending(error: EgressError) -> ProviderError {
    match error {
        EgressError::TimedOut => ProviderError::TimedOut,
        EgressError::Redirected | EgressError::TooLong | EgressError::Encoded => ProviderError::Malformed,
        EgressError::Refused(_)
        | EgressError::Unresolved
        | EgressError::Unreachable
        | EgressError::Tls
        | EgressError::Incomplete => ProviderError::Unavailable,
    }
}

/// Classifies a failure while the response's body was read.
pub(crate) const fn of_reading(error: EgressError) -> ProviderError {
    match error {
        EgressError::TimedOut => ProviderError::TimedOut,
        EgressError::Refused(_)
        | EgressError::Unresolved
        | EgressError::Unreachable
        | EgressError::Tls
        | EgressError::Redirected
        | EgressError::TooLong
        | EgressError::Encoded
        | EgressError::Incomplete => ProviderError::Malformed,
    }
}

/// Adds the response's status and the provider's retry delay to an error. The delay is a number of seconds or a
/// date (RFC 9110, 10.2.3).
pub(crate) fn with_status_and_retry_delay(
    error: ProviderError,
    status: StatusCode,
    headers: &HeaderMap,
    now: SystemTime,
) -> ProviderFailure {
    let header = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::trim);
    let retry_after = header.and_then(|text| match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        // A date in the past means no delay.
        Err(_) => httpdate::parse_http_date(text).ok().map(|date| date.duration_since(now).unwrap_or(Duration::ZERO)),
    });
    ProviderFailure { error, retry_after, status: Some(status.as_u16()), cause: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_statuses_to_provider_errors() {
        for (status, error) in [
            (408, ProviderError::TimedOut),
            (409, ProviderError::Unavailable),
            (429, ProviderError::Busy),
            (500, ProviderError::Unavailable),
            (503, ProviderError::Unavailable),
            (529, ProviderError::Unavailable),
            (400, ProviderError::Refused),
            (401, ProviderError::KeyRefused),
            (403, ProviderError::KeyRefused),
            (404, ProviderError::Refused),
            (413, ProviderError::Refused),
            (304, ProviderError::Malformed),
        ] {
            assert_eq!(of_status(StatusCode::from_u16(status).unwrap()), error, "{status}");
        }
    }

    #[test]
    fn parses_retry_after_in_both_forms() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (text, seconds) in [
            ("3", Some(3)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:41 GMT", Some(4)),
            ("Sun, 06 Nov 1994 08:49:30 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
            ("1.5", None),
            ("99999999999999999999", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            let failure =
                with_status_and_retry_delay(ProviderError::Busy, StatusCode::TOO_MANY_REQUESTS, &headers, now);
            assert_eq!(failure.retry_after, seconds.map(Duration::from_secs), "{text}");
        }
        let without_header =
            with_status_and_retry_delay(ProviderError::Busy, StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new(), now);
        assert_eq!(without_header, ProviderFailure { status: Some(429), ..ProviderError::Busy.into() });
    }

    #[test]
    fn distinguishes_refusals_by_their_body() {
        let ollama = r#"{"error":{"message":"model \"small\" not found, try pulling it first","type":"api_error"}}"#;
        let anthropic = r#"{"type":"error","error":{"type":"not_found_error","message":"model: small"}}"#;
        let filtered = r#"{"error":{"message":"Output blocked by content filtering policy"}}"#;
        for (status, body, error) in [
            (404, r#"{"error":{"code":"model_not_found","message":"no"}}"#, ProviderError::UnknownModel),
            (403, r#"{"error":{"code":"model_not_found"}}"#, ProviderError::UnknownModel),
            (404, ollama, ProviderError::UnknownModel),
            (404, anthropic, ProviderError::UnknownModel),
            (404, r#"{"error":{"message":"Not Found"}}"#, ProviderError::Refused),
            (404, "<html>small</html>", ProviderError::Refused),
            (400, r#"{"error":{"message":"temperature is not supported by small"}}"#, ProviderError::Refused),
            (400, r#"{"error":{"code":"content_filter"}}"#, ProviderError::ContentRefused),
            (400, filtered, ProviderError::ContentRefused),
            (400, r#"{"error":{"code":400,"message":[]}}"#, ProviderError::Refused),
            (401, r#"{"error":{"code":"model_not_found"}}"#, ProviderError::KeyRefused),
            (503, r#"{"error":{"code":"content_filter"}}"#, ProviderError::Unavailable),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(of_response(status, body.as_bytes(), "small"), error, "{status} {body}");
        }
    }
}
