//! Access, ID and logout tokens in JWS compact serialization (RFC 7515), before their signature is verified.

use super::InvalidToken;
use crate::json;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};
use std::fmt;

/// The maximum length of a token, in bytes.
pub const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// The maximum length of a key identifier (`kid`), in bytes.
pub const MAX_KEY_ID_BYTES: usize = 255;

/// Header members that embed or locate a key, demand extensions, or belong to encryption. If a verifier followed such a
/// member, the sender could choose the key (RFC 8725, 3.10).
const FORBIDDEN_HEADERS: [&str; 13] =
    ["jwk", "jku", "x5u", "x5c", "crit", "b64", "enc", "zip", "epk", "apu", "apv", "p2s", "p2c"];

/// The accepted signature algorithms (RFC 7518, RFC 8037). HMAC is not accepted, because an attacker could use the
/// public key as its secret. `none` is not accepted, because such a token has no signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignatureAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl SignatureAlgorithm {
    /// The algorithm that a header names with exactly this `alg` value; `None` for any other.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "RS256" => Some(Self::Rs256),
            "PS256" => Some(Self::Ps256),
            "ES256" => Some(Self::Es256),
            "EdDSA" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

/// A well-formed token with an allowed header. Its content is unproven. `Debug` output omits every value.
pub struct UnverifiedToken<'t> {
    algorithm: SignatureAlgorithm,
    key_id: String,
    claims: Map<String, Value>,
    signed_bytes: &'t [u8],
    signature: Vec<u8>,
}

impl fmt::Debug for UnverifiedToken<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("UnverifiedToken").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// The use for which a token is issued. A token for one use is never accepted for another (RFC 8725, 3.12).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenUse {
    /// An access token for this server (RFC 9068).
    AccessToken,
    /// An ID token for the portal (OpenID Connect Core, 2).
    IdToken,
    /// A logout token for the portal (OpenID Connect Back-Channel Logout, 2.4).
    LogoutToken,
}

impl TokenUse {
    /// The accepted values of the header member `typ`, in lower case. Older issuers always send `JWT`; for them, the
    /// claims distinguish the uses.
    const fn types(self) -> &'static [&'static str] {
        match self {
            Self::AccessToken => &["at+jwt", "application/at+jwt", "jwt"],
            Self::IdToken => &["jwt"],
            Self::LogoutToken => &["logout+jwt", "application/logout+jwt", "jwt"],
        }
    }

    /// Whether the value of `typ` is accepted. The comparison ignores case, and the prefix `application/` is optional
    /// (RFC 7515, 4.1.9).
    fn allows(self, value: &Value) -> bool {
        value.as_str().is_some_and(|text| self.types().iter().any(|allowed| text.eq_ignore_ascii_case(allowed)))
    }
}

impl<'t> UnverifiedToken<'t> {
    /// Decodes an access token and checks its header.
    ///
    /// # Errors
    /// When the token is too long or malformed, or its header is not allowed.
    pub fn parse_access_token(token: &'t str) -> Result<Self, InvalidToken> {
        Self::parse_as(token, TokenUse::AccessToken)
    }

    /// Decodes a token for one use and checks its header.
    ///
    /// # Errors
    /// When the token is too long or malformed, or its header is not allowed for the use.
    pub fn parse_as(token: &'t str, token_use: TokenUse) -> Result<Self, InvalidToken> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(InvalidToken::TooLong);
        }
        let (signed_text, signature) = token.rsplit_once('.').ok_or(InvalidToken::Malformed)?;
        let (header, claims) = signed_text.split_once('.').ok_or(InvalidToken::Malformed)?;
        let header = decode_object(header)?;
        if FORBIDDEN_HEADERS.iter().any(|name| header.contains_key(*name)) {
            return Err(InvalidToken::ForbiddenHeader);
        }
        let algorithm = header.get("alg").and_then(Value::as_str).and_then(SignatureAlgorithm::parse);
        let algorithm = algorithm.ok_or(InvalidToken::Algorithm)?;
        if !header.get("typ").is_none_or(|kind| token_use.allows(kind)) {
            return Err(InvalidToken::Type);
        }
        let key_id = header.get("kid").and_then(Value::as_str);
        let key_id = key_id.filter(|id| (1..=MAX_KEY_ID_BYTES).contains(&id.len())).ok_or(InvalidToken::KeyId)?;
        let signature = decode(signature).filter(|bytes| !bytes.is_empty()).ok_or(InvalidToken::Malformed)?;
        Ok(Self {
            algorithm,
            key_id: key_id.to_owned(),
            claims: decode_object(claims)?,
            signed_bytes: signed_text.as_bytes(),
            signature,
        })
    }

    /// The algorithm by which the token is signed.
    #[must_use]
    pub const fn algorithm(&self) -> SignatureAlgorithm {
        self.algorithm
    }

    /// The identifier of the signing key. It is unique only within the key set of the issuer.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// The issuer that the token claims, which selects the key set.
    #[must_use]
    pub fn issuer(&self) -> Option<&str> {
        self.claims.get("iss").and_then(Value::as_str)
    }

    /// The bytes that the signature covers.
    #[must_use]
    pub const fn signed_bytes(&self) -> &[u8] {
        self.signed_bytes
    }

    /// The bytes of the signature.
    #[must_use]
    pub fn signature(&self) -> &[u8] {
        &self.signature
    }

    /// All claims of the token. The caller must have verified the signature.
    #[must_use]
    pub fn into_claims(self) -> Map<String, Value> {
        self.claims
    }

    /// A token that consists of claims only. With it, the rules for claims apply to unsigned responses too, such as
    /// userinfo.
    pub(super) const fn of_claims(claims: Map<String, Value>) -> UnverifiedToken<'static> {
        UnverifiedToken {
            algorithm: SignatureAlgorithm::EdDsa,
            key_id: String::new(),
            claims,
            signed_bytes: &[],
            signature: Vec::new(),
        }
    }

    pub(super) fn claim(&self, name: &str) -> Option<&Value> {
        self.claims.get(name)
    }
}

/// Decodes base64url without padding. It refuses non-canonical encodings.
fn decode(part: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(part).ok()
}

fn decode_object(part: &str) -> Result<Map<String, Value>, InvalidToken> {
    let bytes = decode(part).ok_or(InvalidToken::Malformed)?;
    // The strict parser refuses duplicate members, because another parser could read a different value.
    match json::read(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | Err(_) => {
            Err(InvalidToken::Malformed)
        }
    }
}

#[cfg(test)]
mod tests;
