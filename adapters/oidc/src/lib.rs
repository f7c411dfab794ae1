//! OpenID Connect: verification of access tokens with the issuers' published keys, and sign-in of people.
//!
//! The claim `iss` of a token selects the issuer, and the header `kid` then selects a key of that issuer. The rules
//! for header and claims are in `fairway_domain::access::identity`. They are checked before the key lookup, so that
//! a token that violates them causes no fetch.

mod config;
mod issuer_fetcher;
mod key_cache;
mod key_set;
mod sealing;
mod sign_in;
mod token_cache;

pub use config::{IssuerConfig, IssuerConfigError};
pub use key_set::KeySetError;
pub use sign_in::{OidcSignIn, SignInConfig};

use async_trait::async_trait;
use fairway_domain::{
    access::identity::{
        ClaimRules, IdentityProvider, InvalidToken, MAX_TOKEN_BYTES, TokenRefusal, UnverifiedToken, VerifiedIdentity,
    },
    clock::Clock,
};
use fairway_egress::Guard;
use issuer_fetcher::IssuerFetcher;
use key_cache::KeyCache;
use std::{fmt, sync::Arc};
use token_cache::TokenCache;

/// Verifies the access tokens of the configured issuers.
pub struct TokenVerifier {
    issuers: Vec<Arc<Issuer>>,
    cache: TokenCache,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for TokenVerifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuers: Vec<&str> = self.issuers.iter().map(|issuer| issuer.rules.issuer.as_str()).collect();
        formatter.debug_struct("TokenVerifier").field("issuers", &issuers).finish_non_exhaustive()
    }
}

/// A configured issuer with its keys.
struct Issuer {
    rules: ClaimRules,
    keys: Arc<KeyCache>,
}

impl TokenVerifier {
    /// Creates a verifier for these issuers. It reads their certificate files now, and fetches their keys when the
    /// first token arrives.
    ///
    /// # Errors
    /// When the configuration of an issuer is invalid.
    pub fn new(guard: &Guard, clock: Arc<dyn Clock>, issuers: Vec<IssuerConfig>) -> Result<Self, IssuerConfigError> {
        let mut accepted: Vec<Arc<Issuer>> = Vec::new();
        for config in issuers {
            config.check()?;
            if accepted.iter().any(|issuer| issuer.rules.issuer == config.rules.issuer) {
                return Err(IssuerConfigError::DuplicateIssuer);
            }
            let source = IssuerFetcher::new(guard, &config)?;
            accepted.push(Arc::new(Issuer { rules: config.rules, keys: KeyCache::new(source, Arc::clone(&clock)) }));
        }
        if accepted.is_empty() {
            return Err(IssuerConfigError::NoIssuer);
        }
        Ok(Self { issuers: accepted, cache: TokenCache::new(), clock })
    }

    /// The keys of an issuer. Token verification and sign-in share them, so that an unknown key identifier causes
    /// one fetch for both.
    fn keys_of(&self, issuer: &str) -> Option<Arc<KeyCache>> {
        self.issuer(Some(issuer)).ok().map(|issuer| Arc::clone(&issuer.keys))
    }

    /// The issuer with exactly this identifier.
    fn issuer(&self, claimed: Option<&str>) -> Result<&Arc<Issuer>, InvalidToken> {
        let issuer = self.issuers.iter().find(|issuer| Some(issuer.rules.issuer.as_str()) == claimed);
        issuer.ok_or(InvalidToken::Issuer)
    }

    /// The cached identity of a token, if it was verified within the last minute with a key that the issuer still
    /// publishes.
    async fn cached(&self, key: &blake3::Hash) -> Option<Arc<VerifiedIdentity>> {
        let entry = self.cache.get(key, self.clock.now())?;
        let issuer = self.issuer(Some(&entry.identity.issuer)).ok()?;
        let keys = issuer.keys.current().await?;
        Arc::ptr_eq(&keys, &entry.keys).then_some(entry.identity)
    }
}

#[async_trait]
impl IdentityProvider for TokenVerifier {
    async fn verify(&self, token: &str) -> Result<Arc<VerifiedIdentity>, TokenRefusal> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(InvalidToken::TooLong.into());
        }
        let cache_key = blake3::hash(token.as_bytes());
        if let Some(identity) = self.cached(&cache_key).await {
            return Ok(identity);
        }
        let token = UnverifiedToken::parse_access_token(token)?;
        let issuer = self.issuer(token.issuer())?;
        // Checked before the key lookup, because an expired or foreign token must not cause a fetch.
        let _ = issuer.rules.check_access_token(&token, self.clock.now())?;
        let keys = issuer.keys.key_set_containing(token.key_id()).await?;
        keys.verify(&token)?;
        // Checked again, because the token may have expired while keys were fetched.
        let now = self.clock.now();
        let identity = Arc::new(issuer.rules.check_access_token(&token, now)?.assume_signature_verified());
        self.cache.insert(cache_key, Arc::clone(&identity), keys, now);
        Ok(identity)
    }
}
