//! The part of `fairway-server config check` that reads what the settings name: files and secrets of issuers.

use crate::{
    compose::{AdapterError, egress_guard, secrets},
    config::{Issuer, PortalClient, Settings},
    system_clock_and_ids::SystemClock,
};
use fairway_domain::secret::SecretReader;
use fairway_egress::Guard;
use fairway_oidc::TokenVerifier;
use std::sync::Arc;

/// One sentence for each file and each secret of an issuer that the server could not use. No request is sent, except to
/// the vault for a secret there.
///
/// # Errors
/// When the vault cannot be set up.
pub async fn find_unusable_files_and_secrets(settings: &Settings) -> Result<Vec<String>, AdapterError> {
    let guard = egress_guard(settings);
    let secrets = secrets(settings, &guard)?;
    let mut problems = Vec::new();
    for issuer in &settings.issuers {
        problems.extend(unusable_authorities(issuer, &guard));
        problems.extend(unreadable_secret(issuer, &*secrets).await);
    }
    Ok(problems)
}

/// The verifier reads the certificates of an issuer, as at the start of a server.
fn unusable_authorities(issuer: &Issuer, guard: &Guard) -> Option<String> {
    let refusal = TokenVerifier::new(guard, Arc::new(SystemClock), vec![issuer.config.clone()]).err()?;
    Some(format!("`{}.{}`: {refusal}", issuer.path, refusal.field()))
}

async fn unreadable_secret(issuer: &Issuer, secrets: &dyn SecretReader) -> Option<String> {
    let Some(PortalClient { secret_ref: Some(reference), .. }) = &issuer.client else { return None };
    let error = secrets.read_server_secret(reference).await.err()?;
    Some(format!("`{}.client_secret_ref` names `{reference}`: {error}", issuer.path))
}
