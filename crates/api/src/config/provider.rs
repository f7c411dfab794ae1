//! Provider accounts: `[[providers]]` in the file.

use super::reading::{ConfigError, nearest};
use toml::{Table, Value};

/// The keys of an account. The last two belong to kinds that are asked over a network.
const KEYS: [&str; 5] = ["account_slot", "kind", "residency", "base_url", "secret_ref"];

/// One configured endpoint that model routes can name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderAccount {
    /// The name that routes use.
    pub account_slot: String,
    /// What speaks there.
    pub kind: ProviderKind,
    /// Where the data stays, as routing rules compare it.
    pub residency: Option<String>,
}

/// What speaks at an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProviderKind {
    /// The built-in deterministic provider.
    Local,
}

impl ProviderAccount {
    /// Reads the whole list.
    pub(super) fn read_all(value: &Value) -> Result<Vec<Self>, ConfigError> {
        let list = value.as_array().ok_or_else(|| invalid("providers", "must be a list of tables: `[[providers]]`"))?;
        let mut accounts: Vec<Self> = Vec::new();
        for (index, item) in list.iter().enumerate() {
            let place = format!("providers[{index}]");
            let table = item.as_table().ok_or_else(|| invalid(&place, "must be a table: `[[providers]]`"))?;
            let account = Self::read(&place, table)?;
            if accounts.iter().any(|other| other.account_slot == account.account_slot) {
                return Err(invalid(&format!("{place}.account_slot"), "must be there once"));
            }
            accounts.push(account);
        }
        Ok(accounts)
    }

    fn read(place: &str, table: &Table) -> Result<Self, ConfigError> {
        if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let nearest = nearest(unknown, KEYS.into_iter()).map(|key| format!("{place}.{key}"));
            return Err(ConfigError::UnknownKey { key: format!("{place}.{unknown}"), nearest });
        }
        let text = |key: &str| match table.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(invalid(&format!("{place}.{key}"), "must be a text that is not empty")),
        };
        let required = |key: &str| text(key)?.ok_or_else(|| invalid(&format!("{place}.{key}"), "must be set"));
        let kind = match required("kind")?.as_str() {
            "local" => ProviderKind::Local,
            "openai" | "anthropic" => {
                return Err(invalid(&format!("{place}.kind"), "must be `local`: this version asks no others"));
            }
            _ => return Err(invalid(&format!("{place}.kind"), "must be `local`")),
        };
        for key in ["base_url", "secret_ref"] {
            if table.contains_key(key) {
                return Err(invalid(&format!("{place}.{key}"), "must not be set for a `local` account"));
            }
        }
        Ok(Self { account_slot: required("account_slot")?, kind, residency: text("residency")? })
    }
}

fn invalid(name: &str, rule: &str) -> ConfigError {
    ConfigError::Invalid { name: name.to_owned(), rule: rule.to_owned(), value: None }
}
