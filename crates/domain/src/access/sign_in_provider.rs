//! The port to the identity providers that sign people in with a browser, and its values (OpenID Connect Core 1.0,
//! authorization code flow).

use super::identity::{InvalidToken, VerifiedIdentity};
use crate::{access::session::LogoutTarget, time::Timestamp};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::fmt;

/// An issuer that browsers can sign in with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignInIssuer {
    /// The issuer identifier (`iss`).
    pub issuer: String,
    /// The display name of the issuer.
    pub name: String,
}

/// The values of one sign-in that its callback must repeat. `Debug` output omits them.
#[derive(Clone, PartialEq, Eq)]
pub struct SignInAttempt {
    /// Binds the callback to the browser that started the sign-in.
    pub state: String,
    /// Binds the ID token to the sign-in.
    pub nonce: String,
    /// Binds the authorization code to the sign-in (PKCE, RFC 7636).
    pub pkce_verifier: String,
}

impl fmt::Debug for SignInAttempt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SignInAttempt(…)")
    }
}

/// Tokens of the identity provider, which a session stores encrypted. `Debug` output omits them.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ProviderTokens {
    /// The token for the renewal of the identity, if the provider issued one.
    pub refresh_token: Option<String>,
    /// The ID token, which identifies the provider's session at sign-out.
    pub id_token: String,
}

impl fmt::Debug for ProviderTokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ProviderTokens(…)")
    }
}

/// A person whose identity an identity provider proved. `Debug` output omits the values.
#[derive(Clone)]
pub struct SignedInPerson {
    /// The identity.
    pub identity: VerifiedIdentity,
    /// The display name of the person.
    pub display_name: Option<String>,
    /// The provider's own identifier of the session.
    pub issuer_session: Option<String>,
    /// Tokens of the provider.
    pub tokens: ProviderTokens,
    /// When the provider issued the ID token, by its own clock.
    pub issued_at: Option<Timestamp>,
    /// All claims of the ID token and of userinfo, for a test sign-in by an administrator.
    pub claims: Map<String, Value>,
}

impl fmt::Debug for SignedInPerson {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SignedInPerson").finish_non_exhaustive()
    }
}

/// The provider's response to a refresh token. The provider may reject the earlier refresh token from now on, so the
/// caller stores the new one before any step that can fail. `Debug` output omits the values.
#[derive(Clone)]
pub struct RenewedTokens {
    /// The tokens to store: the new refresh token, and the earlier, verified ID token.
    pub tokens: ProviderTokens,
    /// The new ID token, if the provider issued one. It is not verified yet.
    pub id_token: Option<String>,
    /// The access token for the provider's userinfo endpoint, which returns the claims of the person.
    pub access_token: String,
}

impl fmt::Debug for RenewedTokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("RenewedTokens(…)")
    }
}

/// A verified logout of an identity provider (OpenID Connect Back-Channel Logout 1.0).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderLogout {
    /// The issuer.
    pub issuer: String,
    /// The sessions to end.
    pub target: LogoutTarget,
}

/// The reason why a sign-in fails. No variant contains data from a token or from the provider.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SignInError {
    /// The issuer is not configured for sign-in with a browser.
    #[error("this issuer is not configured for sign-in")]
    UnknownIssuer,
    /// The provider does not respond, or responds with a server error.
    #[error("the identity provider does not answer")]
    Unavailable,
    /// The provider refuses the authorization code, the refresh token or the access token.
    #[error("the identity provider refused the request")]
    Refused,
    /// The discovery document lacks a required address, or a response of the provider is malformed.
    #[error("the identity provider sent an unusable response")]
    Malformed,
    /// The provider refuses the portal's client or the grants and scopes that the client requests.
    #[error("the identity provider refuses the client of the portal")]
    Client,
    /// The secret of the client cannot be read.
    #[error("the secret of the sign-in client cannot be read")]
    ClientSecret,
    /// A token of the provider is invalid.
    #[error("the identity provider issued an invalid token: {0}")]
    Token(#[from] InvalidToken),
}

impl SignInError {
    /// The stable code of the error.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownIssuer => "sign_in_unknown_issuer",
            Self::Unavailable => "sign_in_provider_unavailable",
            Self::Refused => "sign_in_refused_by_provider",
            Self::Malformed => "sign_in_unusable_response",
            Self::Client => "sign_in_client_refused",
            Self::ClientSecret => "sign_in_client_secret",
            Self::Token(reason) => reason.code(),
        }
    }

    /// The result of [`InvalidToken::seconds_outside_validity`]; `None` for errors that concern no token.
    #[must_use]
    pub const fn seconds_outside_validity(&self) -> Option<u64> {
        match self {
            Self::Token(reason) => reason.seconds_outside_validity(),
            Self::UnknownIssuer
            | Self::Unavailable
            | Self::Refused
            | Self::Malformed
            | Self::Client
            | Self::ClientSecret => None,
        }
    }
}

/// Signs people in with the configured identity providers.
#[async_trait]
pub trait SignInProvider: Send + Sync {
    /// The issuers that browsers can sign in with, in the order of the configuration.
    fn issuers(&self) -> &[SignInIssuer];

    /// Creates random values for a new sign-in.
    fn new_attempt(&self) -> SignInAttempt;

    /// The provider's address to which the browser is redirected for the sign-in.
    async fn authorization_url(
        &self,
        issuer: &str,
        redirect_uri: &str,
        attempt: &SignInAttempt,
    ) -> Result<String, SignInError>;

    /// Exchanges the code of a callback for the person's identity. `named_issuer` is the issuer that the callback
    /// names (RFC 9207): it must equal `issuer`, and it is required if the issuer's metadata announces this
    /// parameter.
    async fn exchange_code(
        &self,
        issuer: &str,
        redirect_uri: &str,
        attempt: &SignInAttempt,
        code: &str,
        named_issuer: Option<&str>,
    ) -> Result<SignedInPerson, SignInError>;

    /// Exchanges the refresh token for new tokens; [`SignInError::Refused`] when the provider has ended the session.
    async fn renew(&self, issuer: &str, tokens: &ProviderTokens) -> Result<RenewedTokens, SignInError>;

    /// Reads the person's identity again from renewed tokens.
    async fn reread_identity(&self, issuer: &str, renewed: &RenewedTokens) -> Result<SignedInPerson, SignInError>;

    /// The address at which the provider ends its own session; `None` if the provider offers no such address.
    async fn end_session_url(&self, issuer: &str, id_token: &str, return_to: &str) -> Option<String>;

    /// Verifies a logout token.
    async fn verify_logout(&self, token: &str) -> Result<ProviderLogout, SignInError>;

    /// Encrypts `plaintext` under `key`; `None` on failure. `purpose` is authenticated, so that a ciphertext for one
    /// use is invalid for another.
    fn seal(&self, key: &[u8; 32], purpose: &str, plaintext: &[u8]) -> Option<Vec<u8>>;

    /// Decrypts a result of [`Self::seal`]; `None` if it was encrypted for another purpose or key, or was changed.
    fn unseal(&self, key: &[u8; 32], purpose: &str, ciphertext: &[u8]) -> Option<Vec<u8>>;
}
