//! Checks the files and secrets of issuers that the settings name, for `fairway-server config check`.

use crate::{
    compose::{AdapterError, egress_guard, secret_reader},
    config::{Issuer, PortalClient, Settings},
    system_clock_and_ids::SystemClock,
};
use fairway_domain::secret::SecretReader;
use fairway_egress::Guard;
use fairway_oidc::TokenVerifier;
use std::sync::Arc;

/// Returns one sentence for each file and each secret of an issuer that the server cannot use. It sends no request,
/// except to the vault to read a secret.
///
/// # Errors
/// When the vault cannot be set up.
pub async fn find_unusable_files_and_secrets(settings: &Settings) -> Result<Vec<String>, AdapterError> {
    let guard = egress_guard(settings);
    let secrets = secret_reader(settings, &guard)?;
    let mut problems = Vec::new();
    for issuer in &settings.issuers {
        problems.extend(unusable_authorities(issuer, &guard));
        problems.extend(unreadable_secret(issuer, &*secrets).await);
    }
    Ok(problems)
}

/// The problem of an issuer's certificate file. `TokenVerifier::new` reads the file, as it does when a server
/// starts.
fn unusable_authorities(issuer: &Issuer, guard: &Guard) -> Option<String> {
    let refusal = TokenVerifier::new(guard, Arc::new(SystemClock), vec![issuer.config.clone()]).err()?;
    Some(format!("`{}.{}`: {refusal}", issuer.path, refusal.field()))
}

async fn unreadable_secret(issuer: &Issuer, secrets: &dyn SecretReader) -> Option<String> {
    let Some(PortalClient { secret_ref: Some(reference), .. }) = &issuer.client else { return None };
    let error = secrets.read_server_secret(reference).await.err()?;
    Some(format!("`{}.client_secret_ref` names `{reference}`: {error}", issuer.path))
}
