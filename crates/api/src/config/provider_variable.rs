//! Provider accounts of the environment: `FAIRWAY_PROVIDERS__<ACCOUNT>__<KEY>`.
//!
//! `<ACCOUNT>` is the account slot in capitals, with `_` in place of `-`. A variable replaces one key of an account
//! in the file, or defines an account that the file lacks.

use super::raw_settings::{ConfigError, nearest_name};
use std::{collections::BTreeMap, ffi::OsString};
use toml::{Table, Value};

/// Prefix of the variables of accounts.
const PREFIX: &str = "FAIRWAY_PROVIDERS__";
/// Prefix of names that are treated as variables of accounts, so that a misspelled name gets a precise error.
pub(super) const NEAR_PREFIX: &str = "FAIRWAY_PROVIDER";
/// The keys that a variable can set. Prices are tables and belong in the file.
const KEYS: [&str; 7] = ["kind", "base_url", "secret_ref", "residency", "timeout", "concurrency", "test_model"];

/// The keys of accounts in the environment, by slot.
#[derive(Default)]
pub(super) struct ProviderVariables(BTreeMap<String, Table>);

impl ProviderVariables {
    /// Adds an environment variable that sets one key of one account.
    ///
    /// # Errors
    /// When the name does not have the documented form, the key is unknown, or the value is not UTF-8.
    pub(super) fn add(&mut self, name: &str, value: OsString) -> Result<(), ConfigError> {
        let unknown = |nearest| ConfigError::UnknownVariable { name: name.to_owned(), nearest };
        let Some((account, key)) = name.strip_prefix(PREFIX).and_then(|suffix| suffix.split_once("__")) else {
            return Err(unknown(Some(variable_name("<account>", "<key>"))));
        };
        let Some(slot) = slot_of(account) else {
            return Err(unknown(Some(variable_name("<account>", "<key>"))));
        };
        let Some(field) = KEYS.into_iter().find(|field| field.to_ascii_uppercase() == key) else {
            return Err(unknown(
                nearest_name(&key.to_ascii_lowercase(), KEYS.into_iter()).map(|key| variable_name(&slot, &key)),
            ));
        };
        let text = value.into_string().map_err(|_| ConfigError::Invalid {
            name: name.to_owned(),
            rule: "must be UTF-8".to_owned(),
            value: None,
        })?;
        // The file contains numbers for these two keys. A text that is not a number is kept, and the rule of the
        // key refuses it.
        let number = text.parse().ok().filter(|_| matches!(field, "timeout" | "concurrency"));
        let value = number.map_or(Value::String(text), Value::Integer);
        self.0.entry(slot).or_default().insert(field.to_owned(), value);
        Ok(())
    }

    /// The keys that variables set for an account.
    pub(super) fn of(&self, slot: &str) -> Option<&Table> {
        self.0.get(slot)
    }

    /// The slots of all accounts.
    pub(super) fn slots(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// The name of the environment variable that sets a key of an account.
pub(super) fn variable_name(slot: &str, key: &str) -> String {
    format!("{PREFIX}{}__{}", slot.to_ascii_uppercase().replace('-', "_"), key.to_ascii_uppercase())
}

/// The slot for an account's name in a variable. The name consists of words of capitals and digits, separated by
/// single underscores.
fn slot_of(account: &str) -> Option<String> {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    account.split('_').all(is_word).then(|| account.to_ascii_lowercase().replace('_', "-"))
}
