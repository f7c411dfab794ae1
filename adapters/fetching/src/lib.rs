//! Fetches the texts of documents from addresses, through the guard of what leaves.

use async_trait::async_trait;
use fairway_domain::knowledge::ports::{FetchError, Fetcher};
use fairway_egress::{Call, EgressError, Guard, Limits, Method, header};
use std::time::Duration;

/// Longest time that a document may take.
const TIME: Duration = Duration::from_secs(10);
/// What is asked for, and what is taken as text.
const TEXTS: [&str; 4] = ["text/", "application/json", "application/xml", "application/yaml"];

/// Fetches what the guard lets it.
#[derive(Clone, Debug)]
pub struct GuardedFetcher {
    guard: Guard,
}

impl GuardedFetcher {
    /// Fetches where this guard lets requests go.
    #[must_use]
    pub const fn new(guard: Guard) -> Self {
        Self { guard }
    }
}

/// A failure to whoever asked. The log has its cause, without the address: paths of addresses are often secrets.
fn told(error: EgressError) -> FetchError {
    tracing::info!(error = &error as &dyn std::error::Error, "a document was not fetched");
    match error {
        EgressError::Refused(_) => FetchError::Forbidden,
        EgressError::TooLong => FetchError::TooLong,
        EgressError::Unresolved
        | EgressError::Unreachable
        | EgressError::TimedOut
        | EgressError::Redirected
        | EgressError::Encoded
        | EgressError::Broken => FetchError::NoText,
    }
}

#[async_trait]
impl Fetcher for GuardedFetcher {
    async fn fetch(&self, address: &str, most: usize) -> Result<String, FetchError> {
        let endpoint = self.guard.endpoint(address, Limits { time: TIME, body: most }).map_err(told)?;
        let accept = header::HeaderValue::from_static("text/*, application/json;q=0.9");
        let call = Call {
            method: Method::GET,
            path: String::new(),
            headers: header::HeaderMap::from_iter([(header::ACCEPT, accept)]),
            body: Vec::new().into(),
        };
        let answer = endpoint.send(call).await.map_err(told)?;
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.to_ascii_lowercase();
        if !answer.status().is_success() || !TEXTS.iter().any(|text| kind.starts_with(text)) {
            return Err(FetchError::NoText);
        }
        let whole = answer.whole().await.map_err(told)?;
        String::from_utf8(whole.into()).map_err(|_| FetchError::NoText)
    }
}
