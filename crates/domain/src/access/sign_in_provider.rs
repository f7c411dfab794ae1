//! The port to identity providers for sign-ins with a browser (OpenID Connect Core 1.0, authorization code flow).

use super::identity::{InvalidToken, VerifiedIdentity};
use crate::{access::session::LogoutTarget, time::Timestamp};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::fmt;

/// An issuer that people can choose for a sign-in with a browser.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignInIssuer {
    /// The issuer identifier (`iss`).
    pub issuer: String,
    /// The name of the issuer that the sign-in page shows.
    pub name: String,
}

/// The random values of one sign-in, which its callback must match. `Debug` output omits them.
#[derive(Clone, PartialEq, Eq)]
pub struct SignInAttempt {
    /// The value that binds the callback to the browser that started the sign-in.
    pub state: String,
    /// The value that binds the ID token to this sign-in.
    pub nonce: String,
    /// The value that binds the authorization code to this sign-in (PKCE, RFC 7636).
    pub pkce_verifier: String,
}

impl fmt::Debug for SignInAttempt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SignInAttempt(…)")
    }
}

/// The tokens of the identity provider that a session stores encrypted. `Debug` output omits them.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct IdentityProviderTokens {
    /// The token that renews the identity, if the provider issued one.
    pub refresh_token: Option<String>,
    /// The ID token, by which the provider recognizes its own session at sign-out.
    pub id_token: String,
}

impl fmt::Debug for IdentityProviderTokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("IdentityProviderTokens(…)")
    }
}

/// A person whose identity the identity provider proved. `Debug` output omits the values.
#[derive(Clone)]
pub struct SignedInPerson {
    /// The verified identity of the person.
    pub identity: VerifiedIdentity,
    /// The display name of the person, if the provider supplied one.
    pub display_name: Option<String>,
    /// The identifier that the provider gave to its own session, if any.
    pub issuer_session: Option<String>,
    /// The tokens of the provider, for the session to store.
    pub tokens: IdentityProviderTokens,
    /// The time at which the provider issued the ID token, by the provider's clock.
    pub issued_at: Option<Timestamp>,
    /// All claims of the ID token and the userinfo response, for the test sign-in of an administrator.
    pub claims: Map<String, Value>,
}

impl fmt::Debug for SignedInPerson {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SignedInPerson").finish_non_exhaustive()
    }
}

/// The response of the provider to a refresh token. The provider may reject the earlier refresh token from now on.
/// Therefore the caller stores the new one before any step that can fail. `Debug` output omits the values.
#[derive(Clone)]
pub struct RenewedTokens {
    /// The tokens to store: the new refresh token, and the earlier ID token, which is verified.
    pub tokens: IdentityProviderTokens,
    /// The new ID token, if the provider issued one. It is not verified yet.
    pub id_token: Option<String>,
    /// The access token for the userinfo endpoint of the provider, which returns the person's claims.
    pub access_token: String,
}

impl fmt::Debug for RenewedTokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("RenewedTokens(…)")
    }
}

/// A logout that an identity provider demands by a verified logout token (OpenID Connect Back-Channel Logout 1.0).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackchannelLogout {
    /// The issuer of the logout token.
    pub issuer: String,
    /// The sessions to end.
    pub target: LogoutTarget,
}

/// The reason why a sign-in failed. No variant contains data of a token or of the provider.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SignInError {
    /// The issuer is not configured for sign-in with a browser.
    #[error("this issuer is not configured for sign-in")]
    UnknownIssuer,
    /// The provider did not respond, or responded with a server error.
    #[error("the identity provider does not answer")]
    Unavailable,
    /// The provider rejected the authorization code, the refresh token or the access token.
    #[error("the identity provider refused the request")]
    Refused,
    /// The discovery document lacks a required address, or another response of the provider is malformed.
    #[error("the identity provider sent an unusable response")]
    Malformed,
    /// The provider rejected the portal's client, or the grants and scopes that the client requested.
    #[error("the identity provider refuses the client of the portal")]
    Client,
    /// The server cannot read the secret of the portal's client.
    #[error("the secret of the sign-in client cannot be read")]
    ClientSecret,
    /// The provider issued a token that is invalid for this reason.
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

    /// The seconds between this server's clock and the validity of the token; `None` for an error that concerns no
    /// token's validity.
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

/// The port that signs people in with the configured identity providers.
#[async_trait]
pub trait SignInProvider: Send + Sync {
    /// The issuers that people can choose for a sign-in, in the order of the configuration.
    fn issuers(&self) -> &[SignInIssuer];

    /// Creates random values for a new sign-in.
    fn new_attempt(&self) -> SignInAttempt;

    /// Builds the address of the provider to which the browser is redirected for the sign-in.
    async fn authorization_url(
        &self,
        issuer: &str,
        redirect_uri: &str,
        attempt: &SignInAttempt,
    ) -> Result<String, SignInError>;

    /// Exchanges the authorization code of a callback for the identity of the person. `named_issuer` is the issuer that
    /// the callback names (RFC 9207). It must equal `issuer`, and it is required if the metadata of the issuer
    /// announces it.
    async fn exchange_code(
        &self,
        issuer: &str,
        redirect_uri: &str,
        attempt: &SignInAttempt,
        code: &str,
        named_issuer: Option<&str>,
    ) -> Result<SignedInPerson, SignInError>;

    /// Exchanges a refresh token for new tokens. Fails with [`SignInError::Refused`] if the provider has ended the
    /// session.
    async fn renew(&self, issuer: &str, tokens: &IdentityProviderTokens) -> Result<RenewedTokens, SignInError>;

    /// Reads the identity of the person again with renewed tokens.
    async fn reread_identity(&self, issuer: &str, renewed: &RenewedTokens) -> Result<SignedInPerson, SignInError>;

    /// Builds the address at which the provider ends its own session; `None` if the provider offers none.
    async fn end_session_url(&self, issuer: &str, id_token: &str, return_to: &str) -> Option<String>;

    /// Verifies a logout token, and returns the sessions that it ends.
    async fn verify_logout(&self, token: &str) -> Result<BackchannelLogout, SignInError>;

    /// Encrypts `plaintext` under `key`; `None` on failure. `purpose` is authenticated, so a ciphertext for one purpose
    /// is invalid for another.
    fn seal(&self, key: &[u8; 32], purpose: &str, plaintext: &[u8]) -> Option<Vec<u8>>;

    /// Decrypts a result of [`Self::seal`]; `None` if it was changed, or encrypted for another purpose or under another
    /// key.
    fn unseal(&self, key: &[u8; 32], purpose: &str, ciphertext: &[u8]) -> Option<Vec<u8>>;
}
