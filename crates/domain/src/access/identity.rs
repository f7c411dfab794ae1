//! Identities from access tokens: the port that verifies tokens, and the rules for token headers and claims (RFC 9068,
//! RFC 8725).
//!
//! The rules are pure functions that run before the check of the signature. Therefore a malformed token causes neither
//! cryptographic work nor network requests.

mod claims;
mod id_and_logout_token;
mod mapping_verdicts;
mod pinned_identity;
mod unverified_token;

pub use claims::{ClaimRules, ClaimedIdentity};
pub use mapping_verdicts::{MappingOutcome, MappingRule, NameHolder, evaluate_claim_mappings, evaluate_pin_rule};
pub use pinned_identity::{
    IdentityRefusal, IdentityStore, PinnedIdentity, ReplacedFields, group_actor, group_actors, name_to_pin, tenant_slug,
};
pub use unverified_token::{MAX_KEY_ID_BYTES, MAX_TOKEN_BYTES, SignatureAlgorithm, TokenUse, UnverifiedToken};

use crate::{slug::Slug, time::Timestamp};
use async_trait::async_trait;
use std::{fmt, sync::Arc, time::Duration};

/// The port that verifies bearer access tokens.
#[async_trait]
pub trait IdentityProvider: Send + Sync {
    /// Verifies a token and returns the identity that it proves.
    ///
    /// # Errors
    /// [`TokenRefusal::Invalid`] for a token that must not be accepted, and [`TokenRefusal::Unavailable`] while the
    /// issuer's keys cannot be read.
    async fn verify(&self, token: &str) -> Result<Arc<VerifiedIdentity>, TokenRefusal>;
}

/// The identity that a verified token proves. Only `issuer` and `subject` together identify the person or service.
/// `Debug` output omits every value.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifiedIdentity {
    /// The configured issuer, which equals the claim `iss` of the token.
    pub issuer: String,
    /// The claim `sub` of the token, which is unique within the issuer.
    pub subject: String,
    /// Whether the subject is a person or a service.
    pub kind: IdentityKind,
    /// The value of the claim that is configured as name claim, if the token has it.
    pub name: Option<String>,
    /// The groups that the token lists for the subject.
    pub groups: GroupsClaim,
    /// The tenant that the token names, if the configuration has a tenant claim.
    pub tenant: TenantClaim,
    /// The e-mail address, if the issuer states that it verified the address.
    pub email: Option<String>,
    /// The time at which the token expires, without leeway.
    pub expires_at: Timestamp,
    /// The tenant to which the configuration binds all subjects of the issuer, if any.
    pub bound_tenant: Option<Slug>,
}

impl fmt::Debug for VerifiedIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("VerifiedIdentity").finish_non_exhaustive()
    }
}

/// Whether a subject is a person or a service.
#[derive(Clone, PartialEq, Eq)]
pub enum IdentityKind {
    /// The subject is a person.
    Person,
    /// The subject is a client that acts for itself (client credentials grant).
    Service {
        /// The identifier of the client at the issuer.
        client_id: String,
    },
}

/// The groups that a token lists for its subject.
#[derive(Clone, PartialEq, Eq)]
pub enum GroupsClaim {
    /// The token has no groups claim.
    Absent,
    /// The token lists all groups of the subject, in this order.
    Listed(Vec<String>),
    /// The subject has more groups than the token can list. The groups must be read from the issuer, because an empty
    /// list would be wrong.
    Overage {
        /// The claim source of the groups; `None` if the token names none.
        source: Option<DistributedClaimSource>,
    },
}

/// The address at which an issuer offers claims that a token omits (`_claim_sources`, OpenID Connect Core, 5.6.2).
#[derive(Clone, PartialEq, Eq)]
pub struct DistributedClaimSource {
    /// The URL of the claim source.
    pub endpoint: String,
    /// The bearer token that the claim source requires, if any.
    pub access_token: Option<String>,
}

/// The tenant that a token names for its subject.
#[derive(Clone, PartialEq, Eq)]
pub enum TenantClaim {
    /// The configuration names no tenant claim.
    NotConfigured,
    /// The configured tenant claim is absent or not a string.
    Missing {
        /// The name of the configured tenant claim.
        claim: String,
    },
    /// The token names a tenant, which may not exist.
    Named {
        /// The name of the configured tenant claim.
        claim: String,
        /// The value of the claim: the slug of a tenant.
        tenant: String,
    },
}

/// The reason why a token proves no identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenRefusal {
    /// The token must not be accepted. The reason goes to logs, never into responses.
    #[error("the access token is not valid")]
    Invalid(InvalidToken),
    /// The keys of the issuer cannot be read, and no cached key has the token's key identifier.
    #[error("the keys of the token's issuer are not available")]
    Unavailable {
        /// The time until the server tries to fetch the keys again.
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
    /// The token is not a JWS in compact serialization. Such a token has three parts in base64url without padding, and
    /// the first two are JSON objects without duplicate members.
    #[error("the token is not a signed token in compact form")]
    Malformed,
    /// The header has a member that embeds or locates a key, that is critical, or that belongs to encryption.
    #[error("the token's header has a forbidden member")]
    ForbiddenHeader,
    /// The algorithm of the signature is not RS256, PS256, ES256 or EdDSA.
    #[error("the token's algorithm is not allowed")]
    Algorithm,
    /// The header type (`typ`) does not belong to the expected kind of token.
    #[error("the token's type is not that of an access token")]
    Type,
    /// The key identifier (`kid`) is absent, empty, too long or not a string.
    #[error("the token has no usable key identifier")]
    KeyId,
    /// The issuer (`iss`) is absent or not configured.
    #[error("the token's issuer is not configured")]
    Issuer,
    /// The audience (`aud`) of the token does not contain the configured audience.
    #[error("the token is for another audience")]
    Audience,
    /// The only audience of the token is the portal's client, so the token is not an access token for this server.
    #[error("the token is for the portal's client alone")]
    PortalOnly,
    /// A claim shows that the token was issued for another use, such as an ID token, a logout token or a security event
    /// token.
    #[error("the token is for another use")]
    OtherPurpose,
    /// The ID token does not contain the nonce of this sign-in.
    #[error("the ID token belongs to another sign-in: its nonce is missing or differs")]
    Nonce,
    /// The subject (`sub`) is absent, not a string or too long.
    #[error("the token has no usable subject")]
    Subject,
    /// The value of a claim has a wrong type.
    #[error("a claim of the token has a wrong type")]
    ClaimType,
    /// The expiry is absent, or a time in the token is not a number of seconds within the years 1970 to 9999.
    #[error("a time of the token is absent or not a number in range")]
    Time,
    /// The token has expired.
    #[error("the token has expired")]
    Expired {
        /// The time since the expiry by this server's clock, in whole seconds.
        seconds_ago: u64,
    },
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    NotYetValid {
        /// The time until the validity begins by this server's clock, in whole seconds.
        seconds_ahead: u64,
    },
    /// The issuer has no key with the key identifier of the token.
    #[error("the issuer has no such key")]
    UnknownKey,
    /// The key of the issuer belongs to another algorithm than the token's signature.
    #[error("the key is for another algorithm")]
    KeyAlgorithm,
    /// The signature does not match the token and the key.
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

    /// The seconds between this server's clock and the validity of the token, if the token has expired or is not valid
    /// yet. Logs show this number, because clocks that differ are the usual cause.
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
