//! Posts requests to receivers, and interprets their responses.

use crate::{GuardedSender, RESPONSE_REST_TIMEOUT, TIMEOUT};
use fairway_domain::{
    id::DeliveryId,
    notification::{
        delivery::{DeliveryError, MAX_DELIVERY_RETRY_DELAY},
        message::SendFailure,
    },
    time::Timestamp,
};
use fairway_egress::{
    EgressError, EgressRequest, EndpointClient, Method, ResponseLimits,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER},
};
use serde_json::Value;
use std::time::Duration;

/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// The headers and the body of a request.
pub(crate) struct Request {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn json(body: &Value) -> Self {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        Self { headers, body: body.to_string().into_bytes() }
    }
}

impl GuardedSender {
    /// The endpoint of an address. Endpoints are cached to reuse their connections; the guard checks each new
    /// connection.
    fn endpoint(&self, address: &str) -> Result<EndpointClient, EgressError> {
        if let Some(endpoint) = self.endpoints.get(address) {
            return Ok(endpoint);
        }
        let limits = ResponseLimits { timeout: TIMEOUT, max_body: MAX_RESPONSE_BYTES };
        let endpoint = self.guard.endpoint(address, limits)?;
        self.endpoints.insert(address.to_owned(), endpoint.clone());
        Ok(endpoint)
    }

    /// Posts a request. Returns the status if the receiver accepted it. The body of the response is read, so that
    /// the connection can be reused, and then discarded.
    pub(crate) async fn post(
        &self,
        delivery: DeliveryId,
        address: &str,
        request: Request,
    ) -> Result<Option<u16>, SendFailure> {
        let Request { headers, body } = request;
        let endpoint = self.endpoint(address).map_err(|error| failure(delivery, error))?;
        let call = EgressRequest { method: Method::POST, path: String::new(), headers, body: body.into() };
        let response = endpoint.send(call).await.map_err(|error| failure(delivery, error))?;
        let status = response.status().as_u16();
        let retry_after = retry_after(response.headers(), self.clock.now());
        // A failure to read the rest of the body is ignored, because the status already determines the outcome.
        let _ = tokio::time::timeout(RESPONSE_REST_TIMEOUT, response.read_all()).await;
        match DeliveryError::of_status(status) {
            None => Ok(Some(status)),
            Some(error) => Err(SendFailure { error, status: Some(status), retry_after }),
        }
    }
}

/// The delay that the receiver's `Retry-After` header requests, as seconds or a date (RFC 9110, 10.2.3). At most
/// [`MAX_DELIVERY_RETRY_DELAY`].
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that exceeds the range of `u64` means a long delay; it is not a malformed header.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)).min(MAX_DELIVERY_RETRY_DELAY));
    }
    let retry_at = httpdate::parse_http_date(text).ok()?;
    Some(retry_at.duration_since(now.to_datetime().into()).ok()?.min(MAX_DELIVERY_RETRY_DELAY))
}

/// Converts a failure. The log records its cause without the address, whose path often contains a secret.
pub(crate) fn failure(delivery: DeliveryId, error: EgressError) -> SendFailure {
    tracing::info!(
        delivery_id = %delivery,
        error = &error as &dyn std::error::Error,
        "failed to send a message to its receiver; failing this attempt to send"
    );
    SendFailure::without_response(match error {
        EgressError::Refused(_) => DeliveryError::AddressRefused,
        EgressError::Unresolved | EgressError::Unreachable | EgressError::Tls | EgressError::Incomplete => {
            DeliveryError::ConnectionFailed
        }
        EgressError::TimedOut => DeliveryError::TimedOut,
        EgressError::Redirected => DeliveryError::Redirected,
        EgressError::TooLong | EgressError::Encoded => DeliveryError::ReceiverFailed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_ask_for_seconds_or_a_date() {
        let now = Timestamp::parse("2026-11-27T07:00:00Z").unwrap();
        let delay = |text: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            retry_after(&headers, now).map(|delay| delay.as_secs())
        };
        assert_eq!((delay("120"), delay("Fri, 27 Nov 2026 07:01:00 GMT")), (Some(120), Some(60)));
        for huge in ["18446744073709551615", "99999999999999999999999999", "Sat, 27 Nov 2027 07:01:00 GMT"] {
            assert_eq!(delay(huge), Some(MAX_DELIVERY_RETRY_DELAY.as_secs()), "{huge}");
        }
        for meaningless in ["", "soon", "-1", "Fri, 27 Nov 2026 06:59:00 GMT"] {
            assert_eq!(delay(meaningless), None, "{meaningless}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
