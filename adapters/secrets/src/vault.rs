//! Reads secrets from a vault that uses version 2 of Vault's key-value engine.

use crate::to_secret;
use fairway_domain::secret::{Secret, SecretError};
use fairway_egress::{
    EgressRequest, EndpointClient, Guard, Method, ResponseLimits, StatusCode, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::Value;
use std::fmt;

/// The path of the engine's default mount.
const MOUNT: &str = "v1/secret/data";
/// The header that contains the access token.
const TOKEN: HeaderName = HeaderName::from_static("x-vault-token");

/// A vault with its access token.
#[derive(Clone)]
pub struct Vault {
    endpoint: EndpointClient,
    token: HeaderValue,
}

impl fmt::Debug for Vault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Vault")
    }
}

/// Reason why the settings of a vault are invalid. No variant contains the address or the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VaultSettingsError {
    /// The address is invalid.
    #[error("the address of the vault must have a form such as https://vault.example:8200")]
    Address,
    /// The token is not a valid header value.
    #[error("the token of the vault has invalid characters")]
    Token,
}

impl VaultSettingsError {
    /// The stable code of the error.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Address => "vault_address",
            Self::Token => "vault_token",
        }
    }
}

impl Vault {
    /// Creates the client of a vault. The operator configured the address, so the guard allows its exact origin.
    ///
    /// # Errors
    /// When the address or the token is invalid.
    pub fn new(guard: &Guard, address: &str, token: &Secret) -> Result<Self, VaultSettingsError> {
        let url = Url::parse(address).map_err(|_| VaultSettingsError::Address)?;
        let guard = guard.clone().with_allowed_origin(&url);
        let endpoint = guard.endpoint(address, ResponseLimits::default()).map_err(|_| VaultSettingsError::Address)?;
        let mut token = HeaderValue::from_str(token.expose()).map_err(|_| VaultSettingsError::Token)?;
        token.set_sensitive(true);
        Ok(Self { endpoint, token })
    }

    /// Reads the value of `key` in the vault's entry at `path`.
    pub(crate) async fn read(&self, path: &str, key: &str) -> Result<Secret, SecretError> {
        let call = EgressRequest {
            method: Method::GET,
            path: format!("{MOUNT}/{path}"),
            headers: HeaderMap::from_iter([(TOKEN, self.token.clone())]),
            body: Default::default(),
        };
        let response = self.endpoint.send(call).await.map_err(|error| unavailable(path, error.code()))?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(SecretError::Missing),
            status => return Err(unavailable(path, status.as_str())),
        }
        let body = response.read_all().await.map_err(|error| unavailable(path, error.code()))?;
        let mut entry: Value = serde_json::from_slice(&body).map_err(|_| SecretError::Malformed)?;
        // The vault returns `null` as data if the latest version of the entry was deleted.
        match entry.pointer_mut("/data/data").and_then(|members| members.get_mut(key)).map(Value::take) {
            None => Err(SecretError::Missing),
            Some(Value::String(text)) => to_secret(text),
            Some(_) => Err(SecretError::Malformed),
        }
    }
}

/// Logs the failure of a read. `path` is part of the secret's reference and is not secret itself.
fn unavailable(path: &str, code: &str) -> SecretError {
    tracing::warn!(path, code, "failed to read a secret from the vault; reporting the secret as unavailable");
    SecretError::Unavailable
}
