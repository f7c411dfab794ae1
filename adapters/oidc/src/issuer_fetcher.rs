//! Fetches the keys of an issuer: first its discovery document (OpenID Connect Discovery 1.0), then the key set
//! that the document names.

use crate::{
    config::{IssuerConfig, IssuerConfigError, is_loopback},
    key_set::{KeySet, KeySetError},
};
use fairway_domain::json;
use fairway_egress::{
    Authorities, EgressError, EgressRequest, EndpointClient, Guard, Method, ResponseLimits, StatusCode, Url,
    header::{self, HeaderMap, HeaderValue},
};
use serde_json::Value;
use std::{fs, time::Duration};

/// The path of the discovery document below the issuer.
const DISCOVERY_PATH: &str = ".well-known/openid-configuration";
/// Maximum size of the discovery document and of the key set, in bytes.
pub(crate) const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
/// Maximum time of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time for fetching both documents together.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason why the keys of an issuer could not be fetched. No variant contains a part of the documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The egress guard refused the request, or no complete response arrived.
    #[error("the request failed: {0}")]
    Egress(#[from] EgressError),
    /// The response has a status other than 200.
    #[error("the response has an error status")]
    Status,
    /// The discovery document is not a JSON object with an issuer and the address of a key set.
    #[error("the discovery document is malformed")]
    Discovery,
    /// The discovery document belongs to another issuer (RFC 8414, 3.3).
    #[error("the discovery document names another issuer")]
    OtherIssuer,
    /// The address of the key set is invalid, or less protected than the address of the issuer.
    #[error("the address of the key set is not allowed")]
    KeySetAddress,
    /// The key set is malformed or has no usable key.
    #[error("{0}")]
    Keys(#[from] KeySetError),
    /// The documents did not arrive within the timeout.
    #[error("the documents did not arrive in time")]
    TimedOut,
}

impl FetchError {
    /// The stable code of the reason.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Egress(error) => error.code(),
            Self::Status => "oidc_fetch_status",
            Self::Discovery => "oidc_discovery_malformed",
            Self::OtherIssuer => "oidc_discovery_issuer",
            Self::KeySetAddress => "oidc_keys_address",
            Self::Keys(error) => error.code(),
            Self::TimedOut => "oidc_fetch_timeout",
        }
    }
}

/// The addresses at which an issuer publishes its keys.
pub(crate) struct IssuerFetcher {
    issuer: String,
    url: Url,
    guard: Guard,
    discovery: EndpointClient,
}

impl IssuerFetcher {
    /// Creates the source of a configured issuer. The operator configured the issuer's origin, so the guard allows
    /// it. A key set at another origin must pass the guard.
    pub(crate) fn new(guard: &Guard, config: &IssuerConfig) -> Result<Self, IssuerConfigError> {
        let url = config.address()?;
        let mut guard = guard.clone().with_allowed_origin(&url).with_connect_timeout(CONNECT_TIMEOUT);
        if let Some(path) = &config.ca_file {
            let pem = fs::read(path).map_err(|_| IssuerConfigError::CaFile)?;
            guard = guard
                .with_only_authorities(Authorities::from_pem(&pem).map_err(|_| IssuerConfigError::CaCertificates)?);
        }
        let discovery = guard.endpoint(url.as_str(), limits()).map_err(|_| IssuerConfigError::Issuer)?;
        Ok(Self { issuer: config.rules.issuer.clone(), url, guard, discovery })
    }

    /// The guard that allows the issuer's origin.
    pub(crate) const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The address of the issuer.
    pub(crate) const fn url(&self) -> &Url {
        &self.url
    }

    /// Fetches the discovery document, and checks that it names exactly this issuer.
    pub(crate) async fn fetch_discovery(&self) -> Result<Vec<u8>, FetchError> {
        let document = tokio::time::timeout(FETCH_TIMEOUT, get(&self.discovery, DISCOVERY_PATH));
        let document = document.await.map_err(|_| FetchError::TimedOut)??;
        let members = json::read(&document).map_err(|_| FetchError::Discovery)?;
        match members.get("issuer").and_then(Value::as_str) {
            Some(issuer) if issuer == self.issuer => Ok(document),
            Some(_) => Err(FetchError::OtherIssuer),
            None => Err(FetchError::Discovery),
        }
    }

    /// The identifier of the issuer, for logs.
    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Fetches the discovery document, and then the keys.
    pub(crate) async fn fetch(&self) -> Result<KeySet, FetchError> {
        tokio::time::timeout(FETCH_TIMEOUT, self.fetch_both()).await.map_err(|_| FetchError::TimedOut)?
    }

    async fn fetch_both(&self) -> Result<KeySet, FetchError> {
        let document = get(&self.discovery, DISCOVERY_PATH).await?;
        let address = key_set_address(&document, &self.issuer, &self.url)?;
        let endpoint = self.guard.endpoint(address.as_str(), limits())?;
        Ok(KeySet::parse(&get(&endpoint, "").await?)?)
    }
}

const fn limits() -> ResponseLimits {
    ResponseLimits { timeout: FETCH_TIMEOUT, max_body: MAX_DOCUMENT_BYTES }
}

async fn get(endpoint: &EndpointClient, path: &str) -> Result<Vec<u8>, FetchError> {
    let accept = (header::ACCEPT, HeaderValue::from_static("application/json"));
    let headers = HeaderMap::from_iter([accept]);
    let request = EgressRequest { method: Method::GET, path: path.to_owned(), headers, body: Default::default() };
    let response = endpoint.send(request).await?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status);
    }
    Ok(response.read_all().await?.into())
}

/// Reads the address of the key set from the discovery document of an issuer.
fn key_set_address(document: &[u8], issuer: &str, issuer_url: &Url) -> Result<Url, FetchError> {
    let document = json::read(document).map_err(|_| FetchError::Discovery)?;
    let member = |name: &str| document.get(name).and_then(Value::as_str).ok_or(FetchError::Discovery);
    if member("issuer")? != issuer {
        return Err(FetchError::OtherIssuer);
    }
    let url = Url::parse(member("jwks_uri")?).map_err(|_| FetchError::KeySetAddress)?;
    match url.scheme() {
        "https" => Ok(url),
        // Keys over plain HTTP can be replaced in transit, so plain HTTP is accepted from a loopback issuer only.
        "http" if issuer_url.scheme() == "http" && is_loopback(&url) => Ok(url),
        _ => Err(FetchError::KeySetAddress),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(issuer: &str, document: &str) -> Result<Url, FetchError> {
        key_set_address(document.as_bytes(), issuer, &Url::parse(issuer).unwrap())
    }

    fn document(issuer: &str, keys: &str) -> String {
        format!(r#"{{"issuer":"{issuer}","jwks_uri":"{keys}"}}"#)
    }

    #[test]
    fn key_sets_are_at_least_as_protected_as_their_issuer() {
        let (remote, local) = ("https://idp.example/realm", "http://127.0.0.1:8080");
        for (issuer, keys, is_allowed) in [
            (remote, "https://idp.example/keys", true),
            (remote, "https://keys.example/keys?realm=a", true),
            (remote, "http://idp.example/keys", false),
            (remote, "http://127.0.0.1/keys", false),
            (remote, "file:///etc/passwd", false),
            (remote, "/keys", false),
            (local, "http://127.0.0.1:8081/keys", true),
            (local, "https://keys.example/keys", true),
            (local, "http://10.0.0.1/keys", false),
        ] {
            let expected = if is_allowed { Ok(Url::parse(keys).unwrap()) } else { Err(FetchError::KeySetAddress) };
            assert_eq!(address(issuer, &document(issuer, keys)), expected, "{issuer} {keys}");
        }
    }

    #[test]
    fn discovery_documents_name_exactly_their_issuer() {
        let issuer = "https://idp.example/realm";
        for other in ["https://idp.example/realm/", "https://idp.example", "https://IDP.example/realm", ""] {
            let result = address(issuer, &document(other, "https://idp.example/keys"));
            assert_eq!(result, Err(FetchError::OtherIssuer), "{other}");
        }
        for malformed in [
            "",
            "<html></html>",
            "[]",
            "null",
            r#"{"issuer":"https://idp.example/realm"}"#,
            r#"{"jwks_uri":"https://idp.example/keys"}"#,
            r#"{"issuer":["https://idp.example/realm"],"jwks_uri":"https://idp.example/keys"}"#,
            r#"{"issuer":"https://idp.example/realm","jwks_uri":7}"#,
            r#"{"issuer":"x","issuer":"https://idp.example/realm","jwks_uri":"https://idp.example/keys"}"#,
        ] {
            assert_eq!(address(issuer, malformed), Err(FetchError::Discovery), "{malformed}");
        }
    }
}
