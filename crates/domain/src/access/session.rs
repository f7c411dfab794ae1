//! Browser sessions. The session cookie contains a secret, and the server stores only its hash.

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, Stamp, Subject},
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

/// The length of a tenant identifier, in hex digits.
const TENANT_HEX_DIGITS: usize = 32;
/// Context strings of the key derivation (BLAKE3) from a session's secret, one for each use.
const CSRF_CONTEXT: &str = "fairway 2026-11-27 session csrf token";
const SEALING_CONTEXT: &str = "fairway 2026-11-27 session sealed tokens";

/// The time limits of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLifetime {
    /// The maximum time between two requests.
    pub idle: Duration,
    /// The maximum time since the sign-in.
    pub total: Duration,
}

/// The maximum age of a session's groups before the server reads them again from the identity provider. The contract
/// permits at most 10 minutes.
pub const MAX_GROUPS_AGE: Duration = Duration::from_secs(9 * 60);
/// A server's exclusive claim to renew a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RenewalClaim {
    /// The session.
    pub session_id: SessionId,
    /// The identifier of the claim.
    pub renewal_id: RenewalId,
}

/// The lifetime of a renewal claim. It exceeds the timeouts of all provider requests of a renewal, so that two
/// servers never use the same refresh token at once.
pub const RENEWAL_LEASE: Duration = Duration::from_secs(90);
/// The minimum time between two records of the use of a session.
pub const USE_RECORD_INTERVAL: Duration = Duration::from_secs(60);

/// The value of a session cookie: `<tenant in hex>_<43 characters of base64url>`. `Debug` output omits it.
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
    /// Creates a token of a tenant from 32 unpredictable bytes.
    #[must_use]
    pub fn from_secret(tenant: TenantId, secret: [u8; 32]) -> Self {
        Self { tenant, text: format!("{}_{}", tenant.uuid().simple(), URL_SAFE_NO_PAD.encode(secret)) }
    }

    /// Parses a cookie; `None` for invalid or non-canonical text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (tenant, encoded_secret) = text.split_at_checked(TENANT_HEX_DIGITS)?;
        let tenant = Uuid::try_parse(tenant).ok()?.into();
        let secret = URL_SAFE_NO_PAD.decode(encoded_secret.strip_prefix('_')?).ok()?.try_into().ok()?;
        Some(Self::from_secret(tenant, secret)).filter(|token| token.text == text)
    }

    /// The tenant in the token.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The hash under which the server stores the session.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash::new(Sha256::digest(&self.text).into())
    }

    /// The plain token, for the cookie.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// The CSRF token, which every state-changing request must repeat in a header. Another site can make a browser
    /// send the cookie, but it cannot read this token.
    #[must_use]
    pub fn csrf_token(&self) -> String {
        URL_SAFE_NO_PAD.encode(blake3::derive_key(CSRF_CONTEXT, self.text.as_bytes()))
    }

    /// Whether `text` is the CSRF token of this session. The comparison takes constant time.
    #[must_use]
    pub fn is_csrf_token(&self, text: &str) -> bool {
        blake3::hash(text.as_bytes()) == blake3::hash(self.csrf_token().as_bytes())
    }

    /// The encryption key for the provider tokens that the server stores with the session.
    #[must_use]
    pub fn sealing_key(&self) -> [u8; 32] {
        blake3::derive_key(SEALING_CONTEXT, self.text.as_bytes())
    }
}

/// A session to create. The store sets the session's times by the database's clock. `Debug` output omits persons and
/// tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct NewSession {
    /// The identifier of the session.
    pub session_id: SessionId,
    /// The pinned identity.
    pub identity_id: IdentityId,
    /// The actor.
    pub actor: ActorRef,
    /// The display name of the person.
    pub display_name: String,
    /// The groups that the identity provider named.
    pub groups: Vec<ActorRef>,
    /// The identity provider's own identifier of the session.
    pub issuer_session: Option<String>,
    /// Tokens of the identity provider, encrypted under [`SessionToken::sealing_key`].
    pub sealed_tokens: Vec<u8>,
}

impl fmt::Debug for NewSession {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("NewSession").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

impl NewSession {
    /// The fact of the sign-in.
    #[must_use]
    pub fn started_fact(&self, stamp: &Stamp) -> Fact {
        let stamp = Stamp { actor: self.actor.clone(), ..stamp.clone() };
        Fact::new(FactKind::SessionStarted, subject(self.session_id), None, &stamp, json!({ "actor": self.actor }))
    }
}

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEnd {
    /// The person signed out.
    SignedOut,
    /// The identity provider ended the session.
    ByProvider,
    /// The identity provider no longer issues tokens for the session.
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

/// A stored session at the time of a read. `Debug` output omits persons and tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSnapshot {
    /// The identifier of the session.
    pub session_id: SessionId,
    /// The actor.
    pub actor: ActorRef,
    /// The issuer of the identity.
    pub issuer: String,
    /// The subject at the issuer.
    pub subject: String,
    /// The display name of the person.
    pub display_name: String,
    /// The groups that the identity provider named.
    pub groups: Vec<ActorRef>,
    /// Encrypted tokens of the identity provider.
    pub sealed_tokens: Vec<u8>,
    /// The end of the session's total lifetime.
    pub expires_at: Timestamp,
    /// Whether the session was ended or has expired.
    pub has_ended: bool,
    /// The time since the last recorded use.
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
    /// Whether the server serves requests of the session.
    #[must_use]
    pub fn is_live(&self, lifetime: SessionLifetime) -> bool {
        // Uses are recorded once per interval, so the last use may be later than recorded by up to one interval.
        !self.has_ended && self.unused_for < lifetime.idle.saturating_add(USE_RECORD_INTERVAL)
    }

    /// The fact of the session's end. Its actor is the person, even if the identity provider ended the session.
    #[must_use]
    pub fn ended_fact(&self, end: SessionEnd, stamp: &Stamp) -> Fact {
        ended_fact(self.session_id, &self.actor, end, stamp)
    }
}

/// The fact of the end of a session. Its actor is the person, even if the identity provider ended the session.
#[must_use]
pub fn ended_fact(session_id: SessionId, actor: &ActorRef, end: SessionEnd, stamp: &Stamp) -> Fact {
    let stamp = Stamp { actor: actor.clone(), ..stamp.clone() };
    Fact::new(FactKind::SessionEnded, subject(session_id), None, &stamp, json!({ "reason_code": end.as_str() }))
}

const fn subject(session_id: SessionId) -> Subject {
    Subject { kind: "session", id: session_id.uuid() }
}

/// The sessions that a logout at the identity provider ends. `Debug` output omits the identifiers.
#[derive(Clone, PartialEq, Eq)]
pub enum LogoutTarget {
    /// One session of the provider (`sid`).
    IssuerSession(String),
    /// Every session of a subject.
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

/// A session that a logout ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveSession {
    /// The tenant.
    pub tenant: TenantId,
    /// The session.
    pub session_id: SessionId,
    /// The actor.
    pub actor: ActorRef,
}

/// Stores sessions.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Reads a session by the hash of its cookie.
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
    /// Records the use of a session, unless a use was recorded within the last [`USE_RECORD_INTERVAL`].
    async fn record_use(&self, scope: TenantScope, session: SessionId) -> Result<(), StoreError>;
    /// Claims the renewal of a session whose groups are older than [`MAX_GROUPS_AGE`], for [`RENEWAL_LEASE`]. Returns
    /// the session's encrypted tokens; `None` if another claim is valid, or the session was renewed or ended
    /// meanwhile.
    async fn claim_renewal(&self, scope: TenantScope, claim: RenewalClaim) -> Result<Option<Vec<u8>>, StoreError>;
    /// Replaces the tokens of a session before the renewal is complete. Does nothing if the session has ended or
    /// another server has claimed it since.
    async fn store_renewed_tokens(
        &self,
        scope: TenantScope,
        claim: RenewalClaim,
        sealed_tokens: &[u8],
    ) -> Result<(), StoreError>;
    /// Replaces a session's groups and tokens with new ones from the identity provider, and ends the claim. Does
    /// nothing if the session has ended or another server has claimed it since.
    async fn renew(
        &self,
        scope: TenantScope,
        claim: RenewalClaim,
        groups: &[ActorRef],
        sealed_tokens: &[u8],
    ) -> Result<(), StoreError>;
    /// Ends a claim whose renewal failed.
    async fn release_renewal(&self, scope: TenantScope, claim: RenewalClaim) -> Result<(), StoreError>;
    /// Ends a session; [`CommitError::Stale`] when it has ended already.
    async fn commit_end(&self, scope: TenantScope, session: SessionId, fact: Fact) -> Result<(), CommitError>;
    /// The sessions that a logout ends, of every tenant.
    async fn list_for_logout(&self, issuer: &str, target: &LogoutTarget) -> Result<Vec<LiveSession>, StoreError>;
    /// Deletes sessions that ended or expired more than a day ago; returns their number.
    async fn delete_expired(&self) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(byte: u8) -> SessionToken {
        SessionToken::from_secret(Uuid::from_u128(7).into(), [byte; 32])
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
