//! Classification of failed calls.

use fairway_domain::execution::provider::{ProviderError, ProviderFailure};
use fairway_egress::{
    EgressError, StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};
use std::time::{Duration, SystemTime};

/// The meaning of an unsuccessful status.
pub(crate) fn of_status(status: StatusCode) -> ProviderError {
    match status {
        StatusCode::REQUEST_TIMEOUT => ProviderError::TimedOut,
        StatusCode::CONFLICT => ProviderError::Unavailable,
        StatusCode::TOO_MANY_REQUESTS => ProviderError::Busy,
        status if status.is_server_error() => ProviderError::Unavailable,
        status if status.is_client_error() => ProviderError::Refused,
        _ => ProviderError::Malformed,
    }
}

/// The meaning of a failure before the head of a response.
pub(crate) const fn of_sending(error: EgressError) -> ProviderError {
    match error {
        EgressError::TimedOut => ProviderError::TimedOut,
        EgressError::Redirected | EgressError::TooLong | EgressError::Encoded => ProviderError::Malformed,
        EgressError::Refused(_) | EgressError::Unresolved | EgressError::Unreachable | EgressError::Incomplete => {
            ProviderError::Unavailable
        }
    }
}

/// The meaning of a failure within a response.
pub(crate) const fn of_reading(error: EgressError) -> ProviderError {
    match error {
        EgressError::TimedOut => ProviderError::TimedOut,
        EgressError::Refused(_)
        | EgressError::Unresolved
        | EgressError::Unreachable
        | EgressError::Redirected
        | EgressError::TooLong
        | EgressError::Encoded
        | EgressError::Incomplete => ProviderError::Malformed,
    }
}

/// A failure with the provider's retry delay (RFC 9110, 10.2.3: seconds, or a date).
pub(crate) fn with_headers(error: ProviderError, headers: &HeaderMap, now: SystemTime) -> ProviderFailure {
    let header = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::trim);
    let retry_after = header.and_then(|text| match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        // A past date means no delay.
        Err(_) => {
            httpdate::parse_http_date(text).ok().map(|moment| moment.duration_since(now).unwrap_or(Duration::ZERO))
        }
    });
    ProviderFailure { error, retry_after }
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
            (401, ProviderError::Refused),
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
            let failure = with_headers(ProviderError::Busy, &headers, now);
            assert_eq!(failure.retry_after, seconds.map(Duration::from_secs), "{text}");
        }
        assert_eq!(with_headers(ProviderError::Busy, &HeaderMap::new(), now), ProviderError::Busy.into());
    }
}
