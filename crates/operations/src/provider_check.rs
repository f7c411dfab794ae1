//! Check of the configured provider accounts: reads the key of each account, and sends a request to it.

use fairway_domain::{
    execution::{
        provider::{Provider, ProviderError, ProviderFailure},
        provider_check::{AccountToCheck, CheckResult},
    },
    secret::{SecretError, SecretReader},
};
use std::time::Instant;

/// Checks that the key of an account can be read. An account without a secret reference needs no key.
///
/// # Errors
/// When the key cannot be read.
pub async fn check_key_readable(secrets: &dyn SecretReader, account: &AccountToCheck) -> Result<(), SecretError> {
    match &account.secret_ref {
        Some(reference) => secrets.read_server_secret(reference).await.map(drop),
        None => Ok(()),
    }
}

/// Checks an account: reads its key, and sends one request to its model. A missing key is reported before a missing
/// model, because without the key all runs fail too.
pub async fn check_account(
    secrets: &dyn SecretReader,
    provider: &dyn Provider,
    account: &AccountToCheck,
) -> CheckResult {
    if let Err(error) = check_key_readable(secrets, account).await {
        return CheckResult::Failed(ProviderFailure::caused_by(ProviderError::Unavailable, error.code()));
    }
    let Some(model) = &account.model else { return CheckResult::NoModel };
    let started_at = Instant::now();
    match provider.complete(&account.provider_check_call(model), None).await {
        Ok(_) => CheckResult::Answered(started_at.elapsed()),
        Err(failure) => CheckResult::Failed(failure),
    }
}
