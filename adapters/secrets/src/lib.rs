//! Secrets from environment variables, files or a vault, read on each use.
//!
//! References of a tenant are resolved within the tenant's own namespace. `env:NAME` names the variable
//! `FAIRWAY_SECRET_<TENANT>__<NAME>`, `file:name` the file `<folder>/<tenant>/name`, and `vault:path#key` an entry
//! below `<tenant>/` in the vault. References in the server's settings have no such restriction.

mod checkpoint_signer;
mod file;
mod vault;

pub use checkpoint_signer::{CheckpointKeySource, SecretSigner};
pub use vault::{Vault, VaultSettingsError};

use async_trait::async_trait;
use fairway_domain::{
    secret::{Secret, SecretError, SecretReader, SecretRef, ServerSecretRef},
    slug::Slug,
};
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Maximum size of a secret, in bytes. It suffices for a certificate with its private key and chain.
pub(crate) const MAX_SECRET_BYTES: usize = 64 * 1024;
/// Prefix of the environment variables that contain secrets of tenants.
const VARIABLE_PREFIX: &str = "FAIRWAY_SECRET_";

/// The sources of secrets of this server.
#[derive(Clone, Debug)]
pub struct SecretSources {
    /// The folder that contains one folder per tenant.
    pub folder: Option<PathBuf>,
    /// The vault, if one is configured.
    pub vault: Option<Vault>,
    /// Reads an environment variable; replaceable in tests.
    variables: fn(&str) -> Option<OsString>,
}

impl SecretSources {
    /// Creates sources that read the environment variables of this process.
    #[must_use]
    pub fn new(folder: Option<PathBuf>, vault: Option<Vault>) -> Self {
        Self { folder, vault, variables: |name| env::var_os(name) }
    }

    /// Replaces the lookup of environment variables by a function.
    #[must_use]
    pub fn with_variable_lookup(self, variables: fn(&str) -> Option<OsString>) -> Self {
        Self { variables, ..self }
    }

    fn variable(&self, name: &str) -> Result<Secret, SecretError> {
        let value = (self.variables)(name).ok_or(SecretError::Missing)?;
        to_secret(value.into_string().map_err(|_| SecretError::Malformed)?)
    }

    fn vault(&self) -> Result<&Vault, SecretError> {
        self.vault.as_ref().ok_or(SecretError::NotConfigured)
    }
}

#[async_trait]
impl SecretReader for SecretSources {
    async fn read(&self, tenant: &Slug, reference: &SecretRef) -> Result<Secret, SecretError> {
        match reference {
            SecretRef::Env(name) => {
                let tenant = tenant.as_str().to_ascii_uppercase().replace('-', "_");
                self.variable(&format!("{VARIABLE_PREFIX}{tenant}__{name}"))
            }
            SecretRef::File(name) => {
                let folder = self.folder.as_deref().ok_or(SecretError::NotConfigured)?;
                file::read_below(folder, tenant, name).await
            }
            SecretRef::Vault { path, key } => self.vault()?.read(&format!("{tenant}/{path}"), key).await,
        }
    }

    async fn read_server_secret(&self, reference: &ServerSecretRef) -> Result<Secret, SecretError> {
        match reference {
            ServerSecretRef::Env(name) => self.variable(name),
            ServerSecretRef::File(path) => file::read(Path::new(path)).await,
            ServerSecretRef::Vault { path, key } => self.vault()?.read(path, key).await,
        }
    }
}

/// Wraps a value as a secret. Fails if the value is empty or too long.
pub(crate) fn to_secret(value: String) -> Result<Secret, SecretError> {
    // The value is wrapped before the check, so that its memory is also wiped if the check fails.
    let secret = Secret::new(value);
    if secret.expose().is_empty() || secret.expose().len() > MAX_SECRET_BYTES {
        Err(SecretError::Malformed)
    } else {
        Ok(secret)
    }
}
