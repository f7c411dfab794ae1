//! Browser sessions. The cookie of a session contains a secret, and the server stores only the hash of the cookie.

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{IdentityId, RenewalId, SessionId, TenantId},
    share_link::TokenHash,
    store::{CommitError, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::{fmt, time::Duration};
use uuid::Uuid;

/// The number of hexadecimal digits of the tenant identifier in a cookie.
const TENANT_HEX_DIGITS: usize = 32;
/// The context strings for BLAKE3 key derivation. Each use of a session's secret has its own string.
const CSRF_CONTEXT: &str = "fairway 2026-11-27 session csrf token";
const SEALING_CONTEXT: &str = "fairway 2026-11-27 session sealed tokens";

/// The configured time limits of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLifetime {
    /// The maximum time between two requests of the session.
    pub idle: Duration,
    /// The maximum time since the sign-in.
    pub total: Duration,
}

/// The maximum age of a session's groups, after which the server reads them again from the identity provider. The
/// contract permits at most 10 minutes.
pub const MAX_GROUPS_AGE: Duration = Duration::from_secs(9 * 60);
/// The exclusive right of one server to renew a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RenewalLease {
    /// The session that the server renews.
    pub session_id: SessionId,
    /// The identifier that distinguishes this claim from later ones.
    pub renewal_id: RenewalId,
}

/// The time for which a renewal claim is valid. It exceeds the timeouts of all provider requests of a renewal, so two
/// servers never use the same refresh token at once.
pub const RENEWAL_LEASE_DURATION: Duration = Duration::from_secs(90);
/// The minimum time between two writes that record the use of a session.
pub const USE_RECORD_INTERVAL: Duration = Duration::from_secs(60);

/// The value of a session cookie: `<tenant in hexadecimal>_<43 characters of base64url>`. `Debug` output omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionToken {
    tenant: TenantId,
    text: String,
}

impl fmt::Debug for SessionToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SessionToken(…)")
    }
}

impl SessionToken {
    /// Creates the token of a new session from 32 unpredictable bytes.
    #[must_use]
    pub fn from_random_bytes(tenant: TenantId, random_bytes: [u8; 32]) -> Self {
        Self { tenant, text: format!("{}_{}", tenant.uuid().simple(), URL_SAFE_NO_PAD.encode(random_bytes)) }
    }

    /// Parses the value of a cookie; `None` for an invalid or non-canonical text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (tenant, encoded_secret) = text.split_at_checked(TENANT_HEX_DIGITS)?;
        let tenant = Uuid::try_parse(tenant).ok()?.into();
        let secret = URL_SAFE_NO_PAD.decode(encoded_secret.strip_prefix('_')?).ok()?.try_into().ok()?;
        Some(Self::from_random_bytes(tenant, secret)).filter(|token| token.text == text)
    }

    /// The tenant that the cookie names.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The hash by which the server finds the session.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash::from_hash_bytes(Sha256::digest(&self.text).into())
    }

    /// The plain value, for the cookie only.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// The CSRF token of the session, which every request that changes state must repeat in a header. Another site can
    /// make a browser send the cookie, but cannot read this token.
    #[must_use]
    pub fn csrf_token(&self) -> String {
        URL_SAFE_NO_PAD.encode(blake3::derive_key(CSRF_CONTEXT, self.text.as_bytes()))
    }

    /// Whether `text` is the CSRF token of this session. The comparison takes constant time.
    #[must_use]
    pub fn is_csrf_token(&self, text: &str) -> bool {
        blake3::hash(text.as_bytes()) == blake3::hash(self.csrf_token().as_bytes())
    }

    /// The key that encrypts the provider tokens that the server stores with the session.
    #[must_use]
    pub fn sealing_key(&self) -> [u8; 32] {
        blake3::derive_key(SEALING_CONTEXT, self.text.as_bytes())
    }
}

/// A session to store. The database's clock determines its times. `Debug` output omits persons and tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct NewSession {
    /// The identifier of the session.
    pub session_id: SessionId,
    /// The pinned identity of the person.
    pub identity_id: IdentityId,
    /// The actor name of the person.
    pub actor: ActorRef,
    /// The display name of the person.
    pub display_name: String,
    /// The groups of the person, as the identity provider listed them.
    pub groups: Vec<ActorRef>,
    /// The identifier that the identity provider gave to the session, if any.
    pub issuer_session: Option<String>,
    /// The tokens of the identity provider, encrypted under [`SessionToken::sealing_key`].
    pub sealed_tokens: Vec<u8>,
}

impl fmt::Debug for NewSession {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("NewSession").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

impl NewSession {
    /// Builds the fact that the person signed in.
    #[must_use]
    pub fn started_fact(&self, stamp: &Stamp) -> Fact {
        let stamp = Stamp { actor: self.actor.clone(), ..stamp.clone() };
        Fact::new(FactKind::SessionStarted, subject(self.session_id), None, &stamp, json!({ "actor": self.actor }))
    }
}

/// The reason why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEnd {
    /// The person signed out.
    SignedOut,
    /// The identity provider demanded the end of the session.
    ByProvider,
    /// The identity provider no longer renews the tokens of the session.
    Refused,
}

impl SessionEnd {
    /// The stable code of the reason.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SignedOut => "signed_out",
            Self::ByProvider => "ended_by_provider",
            Self::Refused => "refused_by_provider",
        }
    }
}

/// A stored session as it was at the time of the read. `Debug` output omits persons and tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSnapshot {
    /// The identifier of the session.
    pub session_id: SessionId,
    /// The actor name of the person.
    pub actor: ActorRef,
    /// The issuer of the person's identity.
    pub issuer: String,
    /// The subject of the person at the issuer.
    pub subject: String,
    /// The display name of the person.
    pub display_name: String,
    /// The groups of the person, as the identity provider listed them.
    pub groups: Vec<ActorRef>,
    /// The tokens of the identity provider, encrypted under [`SessionToken::sealing_key`].
    pub sealed_tokens: Vec<u8>,
    /// The time at which the session expires, regardless of its use.
    pub expires_at: Timestamp,
    /// Whether the session was ended or has expired.
    pub has_ended: bool,
    /// The time since the last use that was recorded.
    pub unused_for: Duration,
    /// The time since the groups were read from the identity provider.
    pub groups_age: Duration,
}

impl fmt::Debug for SessionSnapshot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SessionSnapshot").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

impl SessionSnapshot {
    /// Whether the session may still be used.
    #[must_use]
    pub fn is_live(&self, lifetime: SessionLifetime) -> bool {
        // Uses are recorded at most once in each interval, so the real last use can be up to one interval later.
        !self.has_ended && self.unused_for < lifetime.idle.saturating_add(USE_RECORD_INTERVAL)
    }

    /// Builds the fact that the session ended. Its actor is the person, even if the identity provider ended the
    /// session.
    #[must_use]
    pub fn ended_fact(&self, end: SessionEnd, stamp: &Stamp) -> Fact {
        ended_fact(self.session_id, &self.actor, end, stamp)
    }
}

/// Builds the fact that a session ended. Its actor is the person, even if the identity provider ended the session.
#[must_use]
pub fn ended_fact(session_id: SessionId, actor: &ActorRef, end: SessionEnd, stamp: &Stamp) -> Fact {
    let stamp = Stamp { actor: actor.clone(), ..stamp.clone() };
    Fact::new(FactKind::SessionEnded, subject(session_id), None, &stamp, json!({ "reason_code": end.as_str() }))
}

const fn subject(session_id: SessionId) -> FactSubject {
    FactSubject { kind: "session", id: session_id.uuid() }
}

/// The sessions that a logout token ends. `Debug` output omits the identifiers.
#[derive(Clone, PartialEq, Eq)]
pub enum LogoutTarget {
    /// The session with this identifier of the identity provider (`sid`).
    IssuerSession(String),
    /// Every session of this subject.
    Subject(String),
}

impl fmt::Debug for LogoutTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::IssuerSession(_) => "IssuerSession(…)",
            Self::Subject(_) => "Subject(…)",
        })
    }
}

/// A session that a logout token ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionForLogout {
    /// The tenant to which the session belongs.
    pub tenant: TenantId,
    /// The identifier of the session.
    pub session_id: SessionId,
    /// The actor name of the person.
    pub actor: ActorRef,
}

/// Stores browser sessions.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Finds a session by the hash of its cookie.
    async fn find(&self, scope: TenantScope, hash: &TokenHash) -> Result<Option<SessionSnapshot>, StoreError>;
    /// Stores a new session.
    async fn commit_new(
        &self,
        scope: TenantScope,
        session: &NewSession,
        hash: &TokenHash,
        lifetime: SessionLifetime,
        fact: Fact,
    ) -> Result<(), CommitError>;
    /// Records the use of a session, unless the last record is newer than [`USE_RECORD_INTERVAL`].
    async fn record_use(&self, scope: TenantScope, session: SessionId) -> Result<(), StoreError>;
    /// Claims the renewal of a session whose groups are older than [`MAX_GROUPS_AGE`], for [`RENEWAL_LEASE_DURATION`]. Returns
    /// the encrypted tokens of the session. `None` if another claim is valid, or the session was renewed or ended
    /// meanwhile.
    async fn claim_renewal(&self, scope: TenantScope, claim: RenewalLease) -> Result<Option<Vec<u8>>, StoreError>;
    /// Replaces the tokens of a session while its renewal continues. Does nothing if the session has ended or another
    /// server has claimed the renewal since.
    async fn store_renewed_tokens(
        &self,
        scope: TenantScope,
        claim: RenewalLease,
        sealed_tokens: &[u8],
    ) -> Result<(), StoreError>;
    /// Stores new groups and tokens of a session, and ends the renewal claim. Does nothing if the session has ended or
    /// another server has claimed the renewal since.
    async fn complete_renewal(
        &self,
        scope: TenantScope,
        claim: RenewalLease,
        groups: &[ActorRef],
        sealed_tokens: &[u8],
    ) -> Result<(), StoreError>;
    /// Ends the claim of a renewal that failed.
    async fn release_renewal(&self, scope: TenantScope, claim: RenewalLease) -> Result<(), StoreError>;
    /// Ends a session. Fails with [`CommitError::Stale`] if it has already ended.
    async fn commit_end(&self, scope: TenantScope, session: SessionId, fact: Fact) -> Result<(), CommitError>;
    /// Lists the sessions of all tenants that a logout token ends.
    async fn list_for_logout(&self, issuer: &str, target: &LogoutTarget) -> Result<Vec<SessionForLogout>, StoreError>;
    /// Deletes sessions that ended or expired more than a day ago, and returns their number.
    async fn delete_expired(&self) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(byte: u8) -> SessionToken {
        SessionToken::from_random_bytes(Uuid::from_u128(7).into(), [byte; 32])
    }

    #[test]
    fn tokens_have_one_canonical_form() {
        let token = token(0xab);
        assert_eq!(SessionToken::parse(token.reveal()), Some(token.clone()));
        assert!(token.reveal().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)));
        for text in [
            token.reveal().to_uppercase(),
            format!("{}=", token.reveal()),
            token.reveal()[1..].to_owned(),
            String::new(),
        ] {
            assert_eq!(SessionToken::parse(&text), None, "{text}");
        }
        assert_eq!(format!("{token:?}"), "SessionToken(…)");
    }

    #[test]
    fn derived_secrets_differ_by_session_and_use() {
        let (first, second) = (token(1), token(2));
        assert!(first.is_csrf_token(&first.csrf_token()));
        assert!(
            !first.is_csrf_token(&second.csrf_token())
                && !first.is_csrf_token("")
                && !first.is_csrf_token(first.reveal())
        );
        assert_ne!(first.sealing_key(), second.sealing_key());
        assert_ne!(first.csrf_token(), URL_SAFE_NO_PAD.encode(first.sealing_key()));
        assert!(!first.csrf_token().contains(&first.reveal()[33..]));
    }
}
