//! Identities from access tokens: the port that verifies tokens, and the rules for their headers and claims
//! (RFC 9068, RFC 8725).
//!
//! The rules are pure functions. They run before the signature check, so that a malformed token causes neither
//! cryptographic work nor network requests.

mod claims;
mod id_and_logout_token;
mod mapping_verdicts;
mod pinned_identity;
mod unverified_token;

pub use claims::{ClaimRules, ClaimedIdentity};
pub use mapping_verdicts::{MappingRule, MappingVerdict, NameHolder, mapping_verdicts, pin_verdict};
pub use pinned_identity::{
    IdentityRefusal, IdentityStore, PinnedIdentity, ReplacedFields, group_actor, group_actors, name_to_pin, tenant_slug,
};
pub use unverified_token::{MAX_KEY_ID_BYTES, MAX_TOKEN_BYTES, SignatureAlgorithm, TokenUse, UnverifiedToken};

use crate::{slug::Slug, time::Timestamp};
use async_trait::async_trait;
use std::{fmt, sync::Arc, time::Duration};

/// Verifies bearer access tokens.
#[async_trait]
pub trait IdentityProvider: Send + Sync {
    /// The identity of a valid token.
    ///
    /// # Errors
    /// [`TokenRefusal::Invalid`] for a token that must not be accepted, and [`TokenRefusal::Unavailable`] while the
    /// issuer's keys cannot be read.
    async fn verify(&self, token: &str) -> Result<Arc<VerifiedIdentity>, TokenRefusal>;
}

/// The identity that a verified token proves. `issuer` and `subject` together identify the person or service; no
/// other claim does. `Debug` output omits every value.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifiedIdentity {
    /// The configured issuer, which equals the token's `iss`.
    pub issuer: String,
    /// The token's `sub`, unique within the issuer.
    pub subject: String,
    /// A person or a service.
    pub kind: IdentityKind,
    /// The value of the configured name claim.
    pub name: Option<String>,
    /// The groups of the subject.
    pub groups: GroupsClaim,
    /// The tenant that the token names.
    pub tenant: TenantClaim,
    /// The e-mail address, if the issuer states that the address is verified.
    pub email: Option<String>,
    /// When the token expires, without leeway.
    pub expires_at: Timestamp,
    /// The only tenant of the issuer's subjects, if the configuration binds the issuer to one.
    pub bound_tenant: Option<Slug>,
}

impl fmt::Debug for VerifiedIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("VerifiedIdentity").finish_non_exhaustive()
    }
}

/// The kind of a subject.
#[derive(Clone, PartialEq, Eq)]
pub enum IdentityKind {
    /// A person.
    Person,
    /// A client that acts for itself, by the client credentials grant.
    Service {
        /// The client's identifier at the issuer.
        client_id: String,
    },
}

/// The groups claim of a token.
#[derive(Clone, PartialEq, Eq)]
pub enum GroupsClaim {
    /// The token has no groups claim.
    Absent,
    /// All groups of the subject, in the token's order.
    Listed(Vec<String>),
    /// The subject has more groups than a token can contain. They must be read from the issuer; an empty list would
    /// be wrong.
    Overage {
        /// The claim source of the groups, if the token names one.
        source: Option<ClaimSource>,
    },
}

/// The address at which an issuer offers claims that a token omits (`_claim_sources`, OpenID Connect Core 5.6.2).
#[derive(Clone, PartialEq, Eq)]
pub struct ClaimSource {
    /// The address.
    pub endpoint: String,
    /// The bearer token for requests to the address, if the claim source requires one.
    pub access_token: Option<String>,
}

/// The tenant claim of a token.
#[derive(Clone, PartialEq, Eq)]
pub enum TenantClaim {
    /// The configuration names no tenant claim.
    NotConfigured,
    /// The configured claim is absent, or is not a string.
    Missing {
        /// The name of the claim.
        claim: String,
    },
    /// The token names a tenant. The tenant may not exist.
    Named {
        /// The name of the claim.
        claim: String,
        /// The value of the claim, a tenant's slug.
        tenant: String,
    },
}

/// The reason why a token proves no identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenRefusal {
    /// The token must not be accepted. Responses contain no reason; the reason is for logs.
    #[error("the access token is not valid")]
    Invalid(InvalidToken),
    /// The issuer's keys cannot be read, and no known key has the token's key identifier.
    #[error("the keys of the token's issuer are not available")]
    Unavailable {
        /// The time until the keys are fetched again.
        retry_after: Duration,
    },
}

impl From<InvalidToken> for TokenRefusal {
    fn from(reason: InvalidToken) -> Self {
        Self::Invalid(reason)
    }
}

/// The reason why a token is invalid, for logs. No variant contains a value of the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum InvalidToken {
    /// The token has more than [`MAX_TOKEN_BYTES`] bytes.
    #[error("the token is too long")]
    TooLong,
    /// The token is not a JWS in compact serialization: three parts in base64url without padding, of which the first
    /// two are JSON objects without duplicate members.
    #[error("the token is not a signed token in compact form")]
    Malformed,
    /// The header has a member that embeds or locates a key, is critical, or belongs to encryption.
    #[error("the token's header has a forbidden member")]
    ForbiddenHeader,
    /// The algorithm is not RS256, PS256, ES256 or EdDSA.
    #[error("the token's algorithm is not allowed")]
    Algorithm,
    /// The type is not that of an access token.
    #[error("the token's type is not that of an access token")]
    Type,
    /// The key identifier is absent, empty, too long, or not a string.
    #[error("the token has no usable key identifier")]
    KeyId,
    /// The issuer is absent or not configured.
    #[error("the token's issuer is not configured")]
    Issuer,
    /// The audience does not contain the configured audience.
    #[error("the token is for another audience")]
    Audience,
    /// The token's only audience is the portal's client, so it is not an access token for this server.
    #[error("the token is for the portal's client alone")]
    PortalOnly,
    /// A claim shows that the token was issued for another use, for example as an ID token, a logout token or a
    /// security event token.
    #[error("the token is for another use")]
    OtherPurpose,
    /// The ID token does not repeat the nonce of the sign-in.
    #[error("the ID token belongs to another sign-in: its nonce is missing or differs")]
    Nonce,
    /// The subject is absent, not a string, or too long.
    #[error("the token has no usable subject")]
    Subject,
    /// A claim has a value of a wrong type.
    #[error("a claim of the token has a wrong type")]
    ClaimType,
    /// The expiry is absent, or a time is not a number of seconds within the years 1970 to 9999.
    #[error("a time of the token is absent or not a number in range")]
    Time,
    /// The token has expired.
    #[error("the token has expired")]
    Expired {
        /// How long ago, by this server's clock, in whole seconds.
        seconds_ago: u64,
    },
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    NotYetValid {
        /// How far in the future its validity begins, by this server's clock, in whole seconds.
        seconds_ahead: u64,
    },
    /// The issuer has no key with the token's key identifier.
    #[error("the issuer has no such key")]
    UnknownKey,
    /// The key does not belong to the token's algorithm.
    #[error("the key is for another algorithm")]
    KeyAlgorithm,
    /// The signature is wrong.
    #[error("the signature is wrong")]
    Signature,
}

impl InvalidToken {
    /// The stable code of the reason.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::TooLong => "token_too_long",
            Self::Malformed => "token_malformed",
            Self::ForbiddenHeader => "token_header",
            Self::Algorithm => "token_algorithm",
            Self::Type => "token_type",
            Self::KeyId => "token_key_id",
            Self::Issuer => "token_issuer",
            Self::Audience => "token_audience",
            Self::PortalOnly => "token_portal_only",
            Self::OtherPurpose => "token_purpose",
            Self::Nonce => "token_nonce",
            Self::Subject => "token_subject",
            Self::ClaimType => "token_claim_type",
            Self::Time => "token_time",
            Self::Expired { .. } => "token_expired",
            Self::NotYetValid { .. } => "token_not_yet_valid",
            Self::UnknownKey => "token_unknown_key",
            Self::KeyAlgorithm => "token_key_algorithm",
            Self::Signature => "token_signature",
        }
    }

    /// For a token that has expired or is not valid yet: the seconds between this server's clock and the token's
    /// validity. Logs and administrators need this number, because differing clocks are the usual cause.
    #[must_use]
    pub const fn seconds_outside_validity(self) -> Option<u64> {
        match self {
            Self::Expired { seconds_ago: seconds } | Self::NotYetValid { seconds_ahead: seconds } => Some(seconds),
            Self::TooLong
            | Self::Malformed
            | Self::ForbiddenHeader
            | Self::Algorithm
            | Self::Type
            | Self::KeyId
            | Self::Issuer
            | Self::Audience
            | Self::PortalOnly
            | Self::OtherPurpose
            | Self::Nonce
            | Self::Subject
            | Self::ClaimType
            | Self::Time
            | Self::UnknownKey
            | Self::KeyAlgorithm
            | Self::Signature => None,
        }
    }
}
