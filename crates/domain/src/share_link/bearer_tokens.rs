//! Bearer tokens of share links and runs. A token is shown once, and only its hash is stored.

use crate::id::TenantId;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use std::fmt;
use uuid::Uuid;

/// The prefix of every share token.
const SHARE_TOKEN_PREFIX: &str = "fws_";
/// The prefix of every result token.
const RESULT_TOKEN_PREFIX: &str = "fwr_";
/// The length of the tenant identifier in a share token, in hexadecimal digits.
const TENANT_HEX_DIGITS: usize = 32;

/// The SHA-256 hash of a token, under which the token is stored and found. A token has 256 random bits, so its hash
/// cannot be inverted and needs no salt.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Creates a hash from its stored bytes.
    #[must_use]
    pub const fn from_hash_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the hash, as stored in rows.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn digest_of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }
}

/// Compares hashes in constant time.
impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        blake3::Hash::from_bytes(self.0) == blake3::Hash::from_bytes(other.0)
    }
}

impl Eq for TokenHash {}

/// Omits the hash. It is not secret, but logs need not contain it.
impl fmt::Debug for TokenHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenHash(…)")
    }
}

/// The token of a share link: `fws_<tenant in hex>_<43 characters of base64url>`. It contains the tenant, because a
/// request with a token may contain no other identification.
#[derive(Clone, PartialEq, Eq)]
pub struct ShareToken {
    tenant: TenantId,
    text: String,
}

impl ShareToken {
    /// Creates a token for a tenant from 32 unpredictable bytes.
    #[must_use]
    pub fn from_random_bytes(tenant: TenantId, random_bytes: [u8; 32]) -> Self {
        Self {
            tenant,
            text: format!("{SHARE_TOKEN_PREFIX}{}_{}", tenant.uuid().simple(), URL_SAFE_NO_PAD.encode(random_bytes)),
        }
    }

    /// Parses a share token; `None` for a text that is not a token in canonical form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (tenant, rest) = text.strip_prefix(SHARE_TOKEN_PREFIX)?.split_at_checked(TENANT_HEX_DIGITS)?;
        let tenant = Uuid::try_parse(tenant).ok()?.into();
        let secret = URL_SAFE_NO_PAD.decode(rest.strip_prefix('_')?).ok()?.try_into().ok()?;
        Some(Self::from_random_bytes(tenant, secret)).filter(|token| token.text == text)
    }

    /// The tenant whose share link the token opens.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The hash under which the token is stored.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash::digest_of(&self.text)
    }

    /// The token in plain text, for the only response that shows it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for ShareToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ShareToken(…)")
    }
}

/// The token with which an anonymous submitter reads the run that it started: `fwr_<43 characters of base64url>`.
#[derive(Clone, PartialEq, Eq)]
pub struct ResultToken(String);

impl ResultToken {
    /// Creates a token from 32 unpredictable bytes.
    #[must_use]
    pub fn from_random_bytes(random_bytes: [u8; 32]) -> Self {
        Self(format!("{RESULT_TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random_bytes)))
    }

    /// The hash of a text that a client sent as a result token. The hash of an invalid token equals no stored hash.
    #[must_use]
    pub fn hash_of(text: &str) -> TokenHash {
        TokenHash::digest_of(text)
    }

    /// The hash under which the token is stored.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash::digest_of(&self.0)
    }

    /// The token in plain text, for the only response that shows it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ResultToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ResultToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT_ID: Uuid = Uuid::from_u128(0x0190_f000_0000_7000_8000_0000_0000_abcd);

    #[test]
    fn token_has_one_canonical_form() {
        let token = ShareToken::from_random_bytes(TENANT_ID.into(), [0xfb; 32]);
        let text = token.reveal();
        assert_eq!(text.len(), 4 + 32 + 1 + 43);
        assert_eq!(ShareToken::parse(text), Some(token.clone()));
        assert_eq!(ShareToken::parse(text).unwrap().tenant(), TenantId::from(TENANT_ID));
        let last = text.len() - 1;
        // The last character encodes only four bits. Characters with the same four bits would decode to the same token,
        // so only one of them is canonical.
        let other_end = format!("{}t", &text[..last]);
        for invalid in [
            "",
            "fws_",
            &text[1..],
            &text[..last],
            &format!("{text}="),
            &format!("{text}A"),
            &format!(" {text}"),
            &format!("{text} "),
            &text.to_uppercase(),
            &text.replacen("fws_", "FWS_", 1),
            &text.replacen("fws_", "fwr_", 1),
            &text.replacen('a', "A", 1),
            &text.replace('-', "+"),
            &other_end,
            &format!("fws_{TENANT_ID}_{}", &text[37..]),
        ] {
            assert_eq!(ShareToken::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn debug_output_hides_tokens() {
        let share = ShareToken::from_random_bytes(TENANT_ID.into(), [7; 32]);
        let result = ResultToken::from_random_bytes([7; 32]);
        let debug_output = format!("{share:?} {result:?} {:?}", share.hash());
        assert_eq!(debug_output, "ShareToken(…) ResultToken(…) TokenHash(…)");
        assert_ne!(share.hash(), result.hash());
        assert_eq!(ResultToken::hash_of(result.reveal()), result.hash());
        assert_eq!(*ShareToken::parse(share.reveal()).unwrap().hash().bytes(), *share.hash().bytes());
    }
}
