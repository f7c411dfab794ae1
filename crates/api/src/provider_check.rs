//! `fairway-server providers test`, and the warnings about keys at the start of a server.

use crate::{
    compose::{AdapterError, egress_guard, provider, secret_reader},
    config::{ProviderAccount, ProviderKind, Settings, nearest_name},
};
use fairway_domain::execution::{
    provider::{ProviderError, ProviderFailure},
    provider_check::{AccountToCheck, CheckResult},
};
use fairway_operations::provider_check::{check_account, check_key_readable};

/// The model name in a request to the built-in provider, which has no models.
const LOCAL_MODEL: &str = "rules";

/// Failure to check provider accounts.
#[derive(Debug, thiserror::Error)]
pub enum ProviderCheckError {
    /// The settings contain no provider account.
    #[error(
        "no provider account is configured: add one to `fairway.toml` in this directory, name another file by \
         `--config`, or set `FAIRWAY_PROVIDERS__<ACCOUNT>__<KEY>`"
    )]
    NoAccounts,
    /// No account has the requested name.
    #[error("no provider account `{account}` is configured{hint}")]
    UnknownAccount {
        /// The requested name of an account.
        account: String,
        /// The most similar name, as part of the message; empty if none is similar.
        hint: String,
    },
    /// The adapters that the check needs cannot be created.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
}

/// The results of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// One sentence for each account.
    pub sentences: Vec<String>,
    /// Whether the check of any account failed.
    pub has_failures: bool,
}

/// Sends one request to the named account, or to each configured account. It uses the given model, else the
/// account's `test_model`.
///
/// # Errors
/// When no account has this name, none is configured, or the vault cannot be set up.
pub async fn check_providers(
    settings: &Settings,
    account: Option<&str>,
    model: Option<&str>,
) -> Result<CheckReport, ProviderCheckError> {
    let guard = egress_guard(settings);
    let secrets = secret_reader(settings, &guard)?;
    let mut report = CheckReport::default();
    for account in select_accounts(settings, account)? {
        let target = account_to_check(&account, model);
        let result = match provider(&account, &guard, &secrets) {
            Ok(provider) => check_account(&*secrets, &*provider, &target).await,
            Err(refusal) => CheckResult::Failed(ProviderFailure::caused_by(ProviderError::Unavailable, refusal.code())),
        };
        report.has_failures |= !matches!(result, CheckResult::Answered(_));
        report.sentences.push(target.sentence(&result));
    }
    Ok(report)
}

/// The accounts to check: the named one, or all configured ones.
fn select_accounts(settings: &Settings, name: Option<&str>) -> Result<Vec<ProviderAccount>, ProviderCheckError> {
    let Some(name) = name else {
        if settings.providers.is_empty() {
            return Err(ProviderCheckError::NoAccounts);
        }
        return Ok(settings.providers.clone());
    };
    if let Some(account) = settings.providers.iter().find(|account| account.account_slot == name) {
        return Ok(vec![account.clone()]);
    }
    if name == ProviderAccount::LOCAL {
        return Ok(vec![ProviderAccount::built_in()]);
    }
    let slots = settings.providers.iter().map(|account| account.account_slot.as_str());
    let hint = nearest_name(name, slots.chain([ProviderAccount::LOCAL]));
    let hint = hint.map_or_else(String::new, |slot| format!("; did you mean `{slot}`?"));
    Err(ProviderCheckError::UnknownAccount { account: name.to_owned(), hint })
}

fn account_to_check(account: &ProviderAccount, model: Option<&str>) -> AccountToCheck {
    let (kind, secret_ref, default_model) = match &account.kind {
        ProviderKind::Local => ("local", None, Some(LOCAL_MODEL)),
        ProviderKind::OpenAi(endpoint) => ("openai", endpoint.secret_ref.clone(), None),
        ProviderKind::Anthropic(endpoint) => ("anthropic", endpoint.secret_ref.clone(), None),
    };
    let model = model.or(account.test_model.as_deref()).or(default_model);
    AccountToCheck { account_slot: account.account_slot.clone(), kind, secret_ref, model: model.map(str::to_owned) }
}

/// Logs each account whose key cannot be read. The server starts nevertheless, because it reads keys for each call.
///
/// # Errors
/// When the vault cannot be set up.
pub async fn warn_of_unreadable_keys(settings: &Settings) -> Result<(), AdapterError> {
    let secrets = secret_reader(settings, &egress_guard(settings))?;
    for account in &settings.providers {
        let target = account_to_check(account, None);
        if let (Err(error), Some(reference)) = (check_key_readable(&*secrets, &target).await, &target.secret_ref) {
            tracing::warn!(
                account = account.account_slot,
                secret_ref = %reference,
                code = error.code(),
                "the key of a provider account cannot be read; its calls fail until the key is readable"
            );
        }
    }
    Ok(())
}
