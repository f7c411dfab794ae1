//! The `Idempotency-Key` header: a repeated request returns the result of the first.

use super::path::decoded_path;
use crate::error::{ApiError, FieldProblem};
use actix_web::{FromRequest, HttpRequest, dev::Payload, http::header::HeaderName};
use fairway_domain::{access::ActorRef, idempotency::RequestKey};
use std::future::{Ready, ready};
use uuid::Uuid;

/// Request header with the idempotency key.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Response header that marks a replayed response.
pub const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Maximum length of a key, in bytes.
const MAX_KEY_BYTES: usize = 255;

/// A key: 1 to 255 visible ASCII characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdempotencyKey(String);

/// Extracts the optional key of a request; 422 if there are several keys or the key is malformed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdempotencyHeader(Option<RoutedKey>);

/// A key with the method and path of its request.
#[derive(Clone, PartialEq, Eq, Debug)]
struct RoutedKey {
    key: IdempotencyKey,
    route: String,
}

impl IdempotencyKey {
    /// Parses a key; `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        (is_visible && (1..=MAX_KEY_BYTES).contains(&text.len())).then(|| Self(text.to_owned()))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl IdempotencyHeader {
    /// The key scoped to its caller and route, for the stores.
    #[must_use]
    pub fn into_request_key(self, caller: &ActorRef, body_digest: impl FnOnce() -> [u8; 32]) -> Option<RequestKey> {
        let RoutedKey { key, route } = self.0?;
        Some(RequestKey { key: key.0, caller: caller.clone(), route, body_digest: body_digest() })
    }
}

impl FromRequest for IdempotencyHeader {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(parse_header(request))
    }
}

/// Combines the digest of a body with the workspace of the query, because the same body for another workspace is a
/// different request.
pub fn digest_in_workspace(body: [u8; 32], workspace: Uuid) -> [u8; 32] {
    *blake3::Hasher::new().update(&body).update(workspace.as_bytes()).finalize().as_bytes()
}

fn parse_header(request: &HttpRequest) -> Result<IdempotencyHeader, ApiError> {
    let mut values = request.headers().get_all(&IDEMPOTENCY_KEY);
    let (first, second) = (values.next(), values.next());
    let Some(first) = first else { return Ok(IdempotencyHeader(None)) };
    let key = first.to_str().ok().and_then(IdempotencyKey::parse).filter(|_| second.is_none());
    let Some(key) = key else {
        let rule = "expected one key of 1 to 255 visible ASCII characters";
        return Err(ApiError::invalid_field(FieldProblem::new("Idempotency-Key", "invalid", rule)));
    };
    // The route includes the identifiers of the path, so one key on two resources counts as two keys. Identifiers match
    // in either case, so the path is lowercased.
    let route = format!("{} {}", request.method(), decoded_path(request).to_ascii_lowercase());
    Ok(IdempotencyHeader(Some(RoutedKey { key, route })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    async fn parse_key(values: &[&str]) -> Result<Option<RequestKey>, &'static str> {
        let mut request = TestRequest::post().uri("/v1/assets?x=1");
        for value in values {
            request = request.append_header((IDEMPOTENCY_KEY, *value));
        }
        let header = IdempotencyHeader::extract(&request.to_http_request()).await;
        let caller = ActorRef::parse("user:ada").unwrap();
        header.map(|header| header.into_request_key(&caller, || [7; 32])).map_err(|refusal| refusal.code())
    }

    #[actix_web::test]
    async fn accepts_one_visible_ascii_key() {
        assert_eq!(parse_key(&[]).await, Ok(None));
        let longest = "k".repeat(MAX_KEY_BYTES);
        for valid in ["a", "!~", &longest] {
            let key = parse_key(&[valid]).await.unwrap().unwrap();
            assert_eq!((key.key.as_str(), key.route.as_str(), key.body_digest), (valid, "POST /v1/assets", [7; 32]));
        }
        let too_long = "k".repeat(MAX_KEY_BYTES + 1);
        for invalid in [&[""][..], &["a b"], &["a\tb"], &["é"], &[&too_long], &["a", "a"]] {
            assert_eq!(parse_key(invalid).await, Err("validation_error"), "{invalid:?}");
        }
    }
}
