//! The check of provider accounts: reads their keys, and asks each one a question.

use fairway_domain::{
    execution::{
        provider::{Provider, ProviderError, ProviderFailure},
        provider_check::{CheckResult, CheckedAccount},
    },
    secret::{SecretError, SecretReader},
};
use std::time::Instant;

/// Reads an account's key; an account without a reference needs none.
///
/// # Errors
/// When the key cannot be read.
pub async fn read_key(secrets: &dyn SecretReader, account: &CheckedAccount) -> Result<(), SecretError> {
    match &account.secret_ref {
        Some(reference) => secrets.read_server_secret(reference).await.map(drop),
        None => Ok(()),
    }
}

/// Asks an account one question. A missing key is reported before a missing model, because it also fails all runs.
pub async fn check_account(
    secrets: &dyn SecretReader,
    provider: &dyn Provider,
    account: &CheckedAccount,
) -> CheckResult {
    if let Err(error) = read_key(secrets, account).await {
        return CheckResult::Failed(ProviderFailure::caused_by(ProviderError::Unavailable, error.code()));
    }
    let Some(model) = &account.model else { return CheckResult::NoModel };
    let began = Instant::now();
    match provider.complete(&account.call(model), None).await {
        Ok(_) => CheckResult::Answered(began.elapsed()),
        Err(failure) => CheckResult::Failed(failure),
    }
}
