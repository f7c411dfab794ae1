//! The state of a sign-in between two pages. It is a sealed cookie, so that the server stores nothing for
//! unauthenticated clients.

use super::{SIGN_IN_PATH, host_cookie, sign_in_test_page::TEST_PATH};
use actix_web::{
    HttpRequest,
    cookie::{Cookie, time::Duration as CookieDuration},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fairway_domain::{
    access::sign_in_provider::{SignInAttempt, SignInProvider},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Name of the cookie with the state of a sign-in.
pub(super) const COOKIE: &str = "__Host-fairway-sign-in";
/// Time for a person to sign in at the provider.
const LIFETIME: Duration = Duration::from_secs(600);
/// The purpose under which the state is encrypted.
const PURPOSE: &str = "sign-in state";

/// A sign-in that waits for its callback.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingSignIn {
    state: String,
    nonce: String,
    pkce_verifier: String,
    /// The issuer at which the person signs in.
    pub(super) issuer: String,
    /// The page to show after the sign-in.
    pub(super) return_to: String,
    expires_at: Timestamp,
    /// Whether an administrator tests the sign-in, which creates no session.
    #[serde(default)]
    pub(super) is_test: bool,
}

impl PendingSignIn {
    pub(super) fn new(attempt: SignInAttempt, issuer: String, return_to: String, now: Timestamp) -> Self {
        let SignInAttempt { state, nonce, pkce_verifier } = attempt;
        Self { state, nonce, pkce_verifier, issuer, return_to, expires_at: now.plus(LIFETIME), is_test: false }
    }

    /// A sign-in that an administrator tests.
    pub(super) fn test(attempt: SignInAttempt, issuer: String, now: Timestamp) -> Self {
        Self { is_test: true, ..Self::new(attempt, issuer, String::new(), now) }
    }

    /// Seals the state into a cookie; `None` if sealing fails.
    pub(super) fn to_cookie(&self, provider: &dyn SignInProvider, key: &[u8; 32]) -> Option<Cookie<'static>> {
        let sealed = provider.seal(key, PURPOSE, &serde_json::to_vec(self).ok()?)?;
        let lifetime = CookieDuration::seconds(i64::try_from(LIFETIME.as_secs()).ok()?);
        Some(host_cookie(COOKIE, URL_SAFE_NO_PAD.encode(sealed), lifetime))
    }

    /// The sign-in in the cookie of a browser, even if it has expired; `None` without a valid cookie.
    pub(super) fn of_request(request: &HttpRequest, provider: &dyn SignInProvider, key: &[u8; 32]) -> Option<Self> {
        let sealed = URL_SAFE_NO_PAD.decode(request.cookie(COOKIE)?.value()).ok()?;
        let plaintext = provider.unseal(key, PURPOSE, &sealed)?;
        serde_json::from_slice(&plaintext).ok()
    }

    /// Path for another attempt. After a failed test it leads to another test, which creates no session.
    pub(super) fn retry_path(&self, provider: &dyn SignInProvider) -> String {
        let issuer = provider.issuers().iter().position(|issuer| issuer.issuer == self.issuer);
        match issuer {
            Some(index) if self.is_test => format!("{TEST_PATH}?issuer={index}"),
            None if self.is_test => TEST_PATH.to_owned(),
            Some(_) | None => SIGN_IN_PATH.to_owned(),
        }
    }

    /// Whether the sign-in is within its time limit. A browser may keep the cookie for longer.
    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }

    /// Whether a callback belongs to this sign-in. It must repeat the state; an issuer that it names must be the
    /// chosen one (RFC 9207).
    pub(super) fn is_answered_by(&self, state: Option<&str>, issuer: Option<&str>) -> bool {
        // The comparison of BLAKE3 hashes takes constant time.
        let matches = state.is_some_and(|state| blake3::hash(state.as_bytes()) == blake3::hash(self.state.as_bytes()));
        matches && issuer.is_none_or(|issuer| issuer == self.issuer)
    }

    /// The values that are exchanged for tokens, together with the code of the callback.
    pub(super) fn attempt(&self) -> SignInAttempt {
        SignInAttempt {
            state: self.state.clone(),
            nonce: self.nonce.clone(),
            pkce_verifier: self.pkce_verifier.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_after_ten_minutes() {
        let started_at = Timestamp::parse("2026-11-28T10:00:00Z").unwrap();
        let attempt = || SignInAttempt { state: "s".into(), nonce: "n".into(), pkce_verifier: "p".into() };
        for pending in [
            PendingSignIn::new(attempt(), "https://idp.example".into(), "/".into(), started_at),
            PendingSignIn::test(attempt(), "https://idp.example".into(), started_at),
        ] {
            // The form in which the sealed cookie stores the state.
            let stored = serde_json::to_vec(&pending).unwrap();
            let pending: PendingSignIn = serde_json::from_slice(&stored).unwrap();
            assert!(pending.is_open(Timestamp::parse("2026-11-28T10:09:59.999999Z").unwrap()));
            assert!(!pending.is_open(Timestamp::parse("2026-11-28T10:10:00Z").unwrap()));
        }
    }
}
