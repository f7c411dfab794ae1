//! Secrets in a vault that speaks the second version of Vault's key-value engine.

use crate::secret;
use fairway_domain::secret::{Secret, SecretError};
use fairway_egress::{
    Call, Endpoint, Guard, Limits, Method, StatusCode, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::Value;
use std::fmt;

/// Where the engine is mounted, as everybody has it who did not say otherwise.
const MOUNT: &str = "v1/secret/data";
/// Carries the token.
const TOKEN: HeaderName = HeaderName::from_static("x-vault-token");

/// A vault, and the token that opens it.
#[derive(Clone)]
pub struct Vault {
    endpoint: Endpoint,
    token: HeaderValue,
}

impl fmt::Debug for Vault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Vault")
    }
}

/// Why a vault cannot be spoken to at all. Nothing here repeats the address or the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VaultError {
    /// The address is none.
    #[error("the vault's address must be one such as https://vault.example:8200")]
    Address,
    /// The token cannot stand in a header.
    #[error("the vault's token has characters that no token has")]
    Token,
}

impl VaultError {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Address => "vault_address",
            Self::Token => "vault_token",
        }
    }
}

impl Vault {
    /// A vault at this address. Whoever runs the server named it, so the guard lets requests to exactly it through.
    ///
    /// # Errors
    /// When address or token are none.
    pub fn new(guard: &Guard, address: &str, token: &Secret) -> Result<Self, VaultError> {
        let url = Url::parse(address).map_err(|_| VaultError::Address)?;
        let guard = guard.clone().also_allowing(&url);
        let endpoint = guard.endpoint(address, Limits::default()).map_err(|_| VaultError::Address)?;
        let mut token = HeaderValue::from_str(token.expose()).map_err(|_| VaultError::Token)?;
        token.set_sensitive(true);
        Ok(Self { endpoint, token })
    }

    /// A member of the entry at a path.
    pub(crate) async fn read(&self, path: &str, key: &str) -> Result<Secret, SecretError> {
        let call = Call {
            method: Method::GET,
            path: format!("{MOUNT}/{path}"),
            headers: HeaderMap::from_iter([(TOKEN, self.token.clone())]),
            body: Default::default(),
        };
        let answer = self.endpoint.send(call).await.map_err(|error| unavailable(error.code()))?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(SecretError::Missing),
            status => return Err(unavailable(status.as_str())),
        }
        let body = answer.whole().await.map_err(|error| unavailable(error.code()))?;
        let mut entry: Value = serde_json::from_slice(&body).map_err(|_| SecretError::Malformed)?;
        // `null` where the entry's last version was deleted.
        match entry.pointer_mut("/data/data").and_then(|members| members.get_mut(key)).map(Value::take) {
            None => Err(SecretError::Missing),
            Some(Value::String(text)) => secret(text),
            Some(_) => Err(SecretError::Malformed),
        }
    }
}

fn unavailable(why: &str) -> SecretError {
    tracing::warn!(why, "the vault gives no secrets");
    SecretError::Unavailable
}
