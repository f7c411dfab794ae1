//! Tables of the configuration file whose keys are checked: provider accounts and issuers.

use super::{
    parsers,
    provider_variable::variable_name,
    raw_settings::{ConfigError, nearest_name},
};
use std::time::Duration;
use toml::{Table, Value};

/// A table with its path in the file.
pub(super) struct TableContext<'a> {
    pub(super) path: &'a str,
    pub(super) table: &'a Table,
    pub(super) keys: &'a [&'static str],
    /// Only for a provider account: its slot, and the keys that environment variables set.
    pub(super) variables: Option<(&'a str, &'a Table)>,
}

impl<'a> TableContext<'a> {
    pub(super) const fn new(path: &'a str, table: &'a Table, keys: &'a [&'static str]) -> Self {
        Self { path, table, keys, variables: None }
    }

    pub(super) fn check_keys(&self) -> Result<(), ConfigError> {
        let Some(unknown) = self.table.keys().find(|key| !self.keys.contains(&key.as_str())) else { return Ok(()) };
        let nearest = nearest_name(unknown, self.keys.iter().copied()).map(|key| format!("{}.{key}", self.path));
        Err(ConfigError::UnknownKey { key: format!("{}.{unknown}", self.path), nearest })
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>, ConfigError> {
        match self.table.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(self.invalid(key, "must be a non-empty text")),
        }
    }

    pub(super) fn required(&self, key: &str) -> Result<String, ConfigError> {
        self.text(key)?.ok_or_else(|| self.invalid(key, "must be set"))
    }

    pub(super) fn duration(&self, text: &str) -> Result<Duration, ConfigError> {
        parsers::duration(text).map_err(|rule| self.invalid("timeout", &rule))
    }

    /// Creates the error for an invalid key. It names the environment variable if a variable sets the key, or if
    /// the file does not contain the account.
    pub(super) fn invalid(&self, key: &str, rule: &str) -> ConfigError {
        match self.variables {
            Some((slot, set)) if self.path.is_empty() || set.contains_key(key) => {
                invalid(&variable_name(slot, key), rule)
            }
            Some(_) | None => invalid(&format!("{}.{key}", self.path), rule),
        }
    }
}

/// The tables of a list, each with its path.
pub(super) fn tables<'a>(name: &str, value: &'a Value, header: &str) -> Result<Vec<(String, &'a Table)>, ConfigError> {
    let list = value.as_array().ok_or_else(|| invalid(name, &format!("must be a list of tables: `{header}`")))?;
    let table = |(index, item): (usize, &'a Value)| {
        let path = format!("{name}[{index}]");
        match item.as_table() {
            Some(table) => Ok((path, table)),
            None => Err(invalid(&path, &format!("must be a table: `{header}`"))),
        }
    };
    list.iter().enumerate().map(table).collect()
}

pub(super) fn invalid(name: &str, rule: &str) -> ConfigError {
    ConfigError::Invalid { name: name.to_owned(), rule: rule.to_owned(), value: None }
}
