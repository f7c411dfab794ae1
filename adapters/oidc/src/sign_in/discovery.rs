//! Discovers the addresses of an issuer's sign-in endpoints from its discovery document.

use crate::{
    config::is_loopback,
    issuer_fetcher::{IssuerFetcher, MAX_DOCUMENT_BYTES},
};
use fairway_domain::{access::sign_in_provider::SignInError, json};
use fairway_egress::{EgressRequest, ResponseLimits};
use serde_json::Value;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;
use url::Url;

/// How long the addresses are used before the document is read again.
const LIFETIME: Duration = Duration::from_secs(60 * 60);
/// Minimum time between a failed read of the document and the next read.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Maximum time of a request. It is short, because a person waits for the request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The addresses of an issuer's sign-in endpoints.
#[derive(Clone, Debug)]
pub(super) struct DiscoveredAddresses {
    pub(super) authorization: Url,
    pub(super) token: Url,
    pub(super) userinfo: Option<Url>,
    pub(super) end_session: Option<Url>,
    /// Whether the issuer adds its identifier to every callback (RFC 9207).
    pub(super) names_issuer: bool,
}

/// Reads the addresses, and sends requests to them.
pub(super) struct IssuerEndpoints {
    source: IssuerFetcher,
    cached: Mutex<CachedAddresses>,
}

/// The last result of reading the discovery document.
#[derive(Default)]
struct CachedAddresses {
    addresses: Option<Arc<DiscoveredAddresses>>,
    /// The earliest time of the next read of the document.
    next_read: Option<Instant>,
}

impl IssuerEndpoints {
    pub(super) fn new(source: IssuerFetcher) -> Self {
        Self { source, cached: Mutex::default() }
    }

    /// Returns the addresses. Concurrent sign-ins share one read and its result. After a failed read, the previous
    /// addresses stay in use. If there are none, sign-ins fail immediately until the next read.
    pub(super) async fn get(&self) -> Result<Arc<DiscoveredAddresses>, SignInError> {
        let mut cached = self.cached.lock().await;
        if cached.next_read.is_none_or(|due| due <= Instant::now()) {
            let result = self.read().await;
            let wait = if result.is_ok() { LIFETIME } else { RETRY_DELAY };
            cached.next_read = Some(Instant::now() + wait);
            cached.addresses = result.ok().or_else(|| cached.addresses.take());
        }
        cached.addresses.clone().ok_or(SignInError::Unavailable)
    }

    async fn read(&self) -> Result<Arc<DiscoveredAddresses>, SignInError> {
        let document = self.source.fetch_discovery().await.map_err(|error| {
            tracing::warn!(
                issuer = self.source.issuer(),
                code = error.code(),
                "failed to read the discovery document; using the document of an earlier read, or failing sign-ins and \
                 session renewals if there is none"
            );
            SignInError::Unavailable
        })?;
        let addresses = parse(&document, self.source.url());
        if addresses.is_err() {
            let issuer = self.source.issuer();
            tracing::warn!(
                issuer,
                "the discovery document is malformed, lacks an endpoint for sign-in, or names an endpoint without TLS; \
                 using the document of an earlier read, or failing sign-ins and session renewals if there is none"
            );
        }
        Ok(Arc::new(addresses?))
    }

    /// The identifier of the issuer, for logs.
    pub(super) fn issuer(&self) -> &str {
        self.source.issuer()
    }

    /// Parses an address that a token contains; `None` if it is less protected than the issuer's address.
    pub(super) fn checked_url(&self, text: &str) -> Option<Url> {
        Url::parse(text).ok().filter(|url| is_protected(url, self.source.url()))
    }

    /// Sends a request to one of the issuer's addresses. Returns the status and the body of the response.
    pub(super) async fn send(&self, url: &Url, request: EgressRequest) -> Result<(u16, Vec<u8>), SignInError> {
        let limits = ResponseLimits { timeout: TIMEOUT, max_body: MAX_DOCUMENT_BYTES };
        let endpoint = self.source.guard().endpoint(url.as_str(), limits).map_err(|_| SignInError::Malformed)?;
        let send = async {
            let response = endpoint.send(request).await?;
            let status = response.status().as_u16();
            Ok::<_, fairway_egress::EgressError>((status, response.read_all().await?.to_vec()))
        };
        send.await.map_err(|error| {
            tracing::warn!(
                issuer = self.source.issuer(),
                code = error.code(),
                "failed to reach the identity provider; failing the sign-in or the session renewal"
            );
            SignInError::Unavailable
        })
    }
}

fn parse(document: &[u8], issuer: &Url) -> Result<DiscoveredAddresses, SignInError> {
    let document = json::read(document).map_err(|_| SignInError::Malformed)?;
    let address = |name: &str| match document.get(name).and_then(Value::as_str) {
        None => Ok(None),
        Some(text) => {
            let url = Url::parse(text).ok().filter(|url| is_protected(url, issuer));
            url.map(Some).ok_or(SignInError::Malformed)
        }
    };
    Ok(DiscoveredAddresses {
        authorization: address("authorization_endpoint")?.ok_or(SignInError::Malformed)?,
        token: address("token_endpoint")?.ok_or(SignInError::Malformed)?,
        userinfo: address("userinfo_endpoint")?,
        end_session: address("end_session_endpoint")?,
        names_issuer: document.get("authorization_response_iss_parameter_supported") == Some(&Value::Bool(true)),
    })
}

/// Whether an address is at least as protected as the issuer's address (`https`, or `http` on loopback).
fn is_protected(url: &Url, issuer: &Url) -> bool {
    match url.scheme() {
        "https" => true,
        "http" => issuer.scheme() == "http" && is_loopback(url),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_as_protected_as_the_issuer() {
        let is_accepted = |issuer: &str, token: &str| {
            let document =
                serde_json::json!({"authorization_endpoint": format!("{issuer}/auth"), "token_endpoint": token});
            parse(document.to_string().as_bytes(), &Url::parse(issuer).unwrap()).is_ok()
        };
        assert!(is_accepted("https://idp.example", "https://other.example/token"));
        assert!(!is_accepted("https://idp.example", "http://idp.example/token"));
        assert!(!is_accepted("https://idp.example", "http://127.0.0.1/token"));
        assert!(is_accepted("http://127.0.0.1:1", "http://127.0.0.1:2/token"));
        assert!(!is_accepted("http://127.0.0.1:1", "javascript:alert(1)"));
        assert!(!is_accepted("http://127.0.0.1:1", "/token"));
    }
}
