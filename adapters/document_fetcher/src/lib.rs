//! Fetches document texts over HTTP, through the egress guard.

use async_trait::async_trait;
use fairway_domain::knowledge::ports::{DocumentFetcher, FetchError};
use fairway_egress::{EgressError, EgressRequest, Guard, Method, ResponseLimits, header};
use std::time::Duration;

/// Timeout of fetching one document.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Prefixes of the accepted content types.
const TEXT_TYPES: [&str; 4] = ["text/", "application/json", "application/xml", "application/yaml"];

/// A fetcher that sends requests through the egress guard.
#[derive(Clone, Debug)]
pub struct GuardedFetcher {
    guard: Guard,
}

impl GuardedFetcher {
    /// Creates a fetcher that sends its requests through `guard`.
    #[must_use]
    pub const fn new(guard: Guard) -> Self {
        Self { guard }
    }
}

/// Converts a failure for the caller. The log records its cause without the address, whose path often contains a
/// secret.
fn fetch_error(error: EgressError) -> FetchError {
    tracing::info!(error = &error as &dyn std::error::Error, "failed to fetch a document; failing its ingest");
    match error {
        EgressError::Refused(_) => FetchError::Forbidden,
        EgressError::TooLong => FetchError::TooLong,
        EgressError::Unresolved
        | EgressError::Unreachable
        | EgressError::Tls
        | EgressError::TimedOut
        | EgressError::Redirected
        | EgressError::Encoded
        | EgressError::Incomplete => FetchError::NoText,
    }
}

#[async_trait]
impl DocumentFetcher for GuardedFetcher {
    async fn fetch(&self, address: &str, max_bytes: usize) -> Result<String, FetchError> {
        let endpoint = self
            .guard
            .endpoint(address, ResponseLimits { timeout: TIMEOUT, max_body: max_bytes })
            .map_err(fetch_error)?;
        let accept = header::HeaderValue::from_static("text/*, application/json;q=0.9");
        let call = EgressRequest {
            method: Method::GET,
            path: String::new(),
            headers: header::HeaderMap::from_iter([(header::ACCEPT, accept)]),
            body: Vec::new().into(),
        };
        let response = endpoint.send(call).await.map_err(fetch_error)?;
        let content_type =
            response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let content_type = content_type.to_ascii_lowercase();
        if !response.status().is_success() || !TEXT_TYPES.iter().any(|text| content_type.starts_with(text)) {
            return Err(FetchError::NoText);
        }
        let body = response.read_all().await.map_err(fetch_error)?;
        String::from_utf8(body.into()).map_err(|_| FetchError::NoText)
    }
}
