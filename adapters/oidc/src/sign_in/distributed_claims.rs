//! Reads groups that a token refers to but does not list: distributed claims (OpenID Connect Core 5.6.2).

use super::{bearer, discovery::IssuerEndpoints};
use fairway_domain::{
    access::{identity::DistributedClaimSource, sign_in_provider::SignInError},
    json,
};
use fairway_egress::{
    EgressRequest, Method,
    header::{self, HeaderMap, HeaderValue},
};
use serde_json::{Map, Value};

/// Reads the claims from a claim source; `None` if the source does not return them, so that the groups stay
/// unknown.
///
/// The request contains only the token that the claim names for this source. The access token of the sign-in is for
/// the provider alone.
pub(super) async fn read_claims(
    addresses: &IssuerEndpoints,
    source: &DistributedClaimSource,
) -> Result<Option<Map<String, Value>>, SignInError> {
    let issuer = addresses.issuer();
    let Some(url) = addresses.checked_url(&source.endpoint) else {
        tracing::warn!(
            issuer,
            "the provider's URL for the groups of a person is invalid or does not use TLS; refusing the sign-in or \
             ending the session"
        );
        return Ok(None);
    };
    let mut headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/json"))]);
    if let Some(token) = &source.access_token {
        headers.insert(header::AUTHORIZATION, bearer(token)?);
    }
    let request = EgressRequest { method: Method::GET, path: String::new(), headers, body: Default::default() };
    let (status, body) = addresses.send(&url, request).await?;
    let claims = json::read(&body).ok().filter(|_| status == 200);
    match (status, claims) {
        (_, Some(Value::Object(claims))) => Ok(Some(claims)),
        (500.., _) => Err(SignInError::Unavailable),
        (status, _) => {
            tracing::warn!(
                issuer,
                status,
                "claim source did not return a JSON object with status 200; refusing the sign-in or ending the session"
            );
            Ok(None)
        }
    }
}
