//! Collects the raw values of settings from file and environment, and refuses unknown names.

use super::{
    issuer::{ISSUERS_KEY, Issuer},
    provider::ProviderAccount,
    provider_variable::{self, ProviderVariables},
    setting::{IGNORED_PREFIXES, SETTINGS, Setting},
};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt::{self, Write as _},
};
use toml::{Table, Value};

/// Prefixes of the project's environment variables.
const PREFIXES: [&str; 2] = ["FAIRWAY_", "SERVICE_EMBED"];
/// Key of the provider accounts; `FAIRWAY_PROVIDERS__<ACCOUNT>__<KEY>` are their variables.
const PROVIDERS_KEY: &str = "providers";
/// OpenTelemetry variable with the address of the trace collector. If it is set, the process exports traces.
const COLLECTOR_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Minimum Jaro-Winkler similarity for a suggestion, between 0 and 1.
const MIN_SIMILARITY: f64 = 0.7;

/// Errors of the settings. They never contain values of secret settings.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is not valid TOML.
    #[error("the configuration file is not valid TOML at line {line}: {problem}")]
    Syntax {
        /// Number of the line with the error, starting at 1.
        line: usize,
        /// The parser's message, without the text.
        problem: String,
    },
    /// The file has an unknown key.
    #[error("unknown key `{key}` in the configuration file{}", nearest_hint(.nearest))]
    UnknownKey {
        /// The unknown key, with the path of its table.
        key: String,
        /// The most similar known name, which the message suggests.
        nearest: Option<String>,
    },
    /// The environment has an unknown variable with a prefix of the project.
    #[error("unknown variable `{name}`{}", nearest_hint(.nearest))]
    UnknownVariable {
        /// Name of the unknown environment variable.
        name: String,
        /// The most similar known name, which the message suggests.
        nearest: Option<String>,
    },
    /// The value of a setting is invalid.
    #[error("`{name}` {rule}{}", value_hint(.value))]
    Invalid {
        /// Name of the variable, or of the key in the file.
        name: String,
        /// The rule that the value breaks. In the message, it follows the name.
        rule: String,
        /// The value, unless the setting is secret.
        value: Option<String>,
    },
    /// The bind address exposes the metrics of a worker to other machines.
    #[error("`auth.mode` is `local`: bind `worker_metrics_bind` to a loopback address such as 127.0.0.1:9091")]
    WorkerMetricsExposed,
    /// The bind address exposes local mode to other machines.
    #[error("`auth.mode` is `local`, which trusts every caller: bind to a loopback address such as 127.0.0.1:8080")]
    LocalModeBindAddress,
    /// A setting puts local mode behind a proxy, whose forwarded requests it would trust.
    #[error(
        "`{key}` (`{variable}`) puts local mode behind a proxy, and local mode trusts every caller: set \
         `FAIRWAY_LOCAL_MODE_EXPOSED=i-understand` to serve forwarded requests as `anonymous`"
    )]
    LocalModeBehindProxy {
        /// Key of the setting in `fairway.toml`.
        key: &'static str,
        /// Environment variable of the setting.
        variable: &'static str,
    },
    /// OIDC mode has no identity provider.
    #[error("`auth.mode` is `oidc`: set `oidc.issuer` (`FAIRWAY_OIDC_ISSUER`), or add an `[[issuers]]` table")]
    NoIssuer,
    /// A setting of OIDC mode is set in local mode, which would ignore it.
    #[error("`{key}` requires `auth.mode` to be `oidc` (`FAIRWAY_AUTH_MODE=oidc`)")]
    IssuerInLocalMode {
        /// Key of the setting in `fairway.toml`.
        key: &'static str,
    },
    /// The server is reachable from other machines, and its public address is not set.
    #[error("`public_url` (`FAIRWAY_PUBLIC_URL`) is required unless the server binds to a loopback address")]
    NoPublicUrl,
    /// The public address uses plain HTTP, but sign-in cookies need HTTPS, except on loopback.
    #[error("`public_url` (`FAIRWAY_PUBLIC_URL`) must use https, except on a loopback address")]
    PlainPublicUrl,
    /// Only one of vault URL and vault token is set.
    #[error("`vault.addr` and `vault.token` must be set together")]
    IncompleteVault,
    /// Only one of mail server and sender is set.
    #[error("`mail.smtp_url` and `mail.from` must be set together")]
    IncompleteMail,
    /// A gateway token is set without an external gateway.
    #[error("`runtime_gateway_token` requires `runtime_gateway_url`: the embedded gateway takes no token")]
    TokenWithoutGateway,
    /// An owner URL is set, but Fairway manages the database itself.
    #[error("`migrate_database_url` requires `database_url`")]
    OwnerWithoutDatabase,
}

fn nearest_hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

fn value_hint(value: &Option<String>) -> String {
    value.as_ref().map_or_else(String::new, |value| format!(" (it is `{value}`)"))
}

impl ConfigError {
    /// The stable error code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "config_syntax",
            Self::UnknownKey { .. } => "config_unknown_key",
            Self::UnknownVariable { .. } => "config_unknown_variable",
            Self::Invalid { .. } => "config_invalid",
            Self::LocalModeBindAddress => "config_local_mode_exposed",
            Self::WorkerMetricsExposed => "config_worker_metrics_exposed",
            Self::LocalModeBehindProxy { .. } => "config_local_mode_behind_proxy",
            Self::NoIssuer => "config_no_issuer",
            Self::IssuerInLocalMode { .. } => "config_issuer_in_local_mode",
            Self::NoPublicUrl => "config_no_public_url",
            Self::PlainPublicUrl => "config_plain_public_url",
            Self::IncompleteVault => "config_half_a_vault",
            Self::IncompleteMail => "config_incomplete_mail",
            Self::TokenWithoutGateway => "config_token_without_gateway",
            Self::OwnerWithoutDatabase => "config_owner_without_database",
        }
    }
}

/// The source from which a setting got its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingOrigin {
    /// The setting has its default value.
    Default,
    /// The configuration file sets the value.
    File,
    /// An environment variable sets the value.
    Environment,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
        })
    }
}

/// The raw texts of all settings.
pub(super) struct RawSettings {
    file: BTreeMap<&'static str, String>,
    environment: BTreeMap<&'static str, String>,
    providers: Option<Value>,
    issuers: Option<Value>,
    provider_variables: ProviderVariables,
    has_collector: bool,
}

impl RawSettings {
    /// Collects the texts from the file and the environment.
    pub(super) fn collect(
        file: Option<&str>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut raw = Self {
            file: BTreeMap::new(),
            environment: BTreeMap::new(),
            providers: None,
            issuers: None,
            provider_variables: ProviderVariables::default(),
            has_collector: false,
        };
        if let Some(text) = file {
            raw.add_table("", text.parse::<Table>().map_err(|failure| syntax_error(text, &failure))?)?;
        }
        for (name, value) in environment {
            raw.add_variable(&name.to_string_lossy(), value)?;
        }
        Ok(raw)
    }

    /// Parses the value of a setting, or its default.
    pub(super) fn read<T>(
        &self,
        setting: &Setting,
        reader: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        let (text, origin) = self.text(setting);
        reader(text).map_err(|rule| invalid(setting, origin, text, rule))
    }

    /// Parses the value of a setting without a default; an empty value counts as unset.
    pub(super) fn read_optional<T>(
        &self,
        setting: &Setting,
        reader: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let (text, _) = self.text(setting);
        if text.is_empty() { Ok(None) } else { self.read(setting, reader).map(Some) }
    }

    /// The provider accounts of the file and the environment.
    pub(super) fn providers(&self) -> Result<Vec<ProviderAccount>, ConfigError> {
        ProviderAccount::read_all(self.providers.as_ref(), &self.provider_variables)
    }

    /// The identity providers of the settings and the file.
    pub(super) fn issuers(&self) -> Result<Vec<Issuer>, ConfigError> {
        Issuer::read_all(self, self.issuers.as_ref())
    }

    /// Whether the file or the environment sets a value.
    pub(super) fn is_set(&self, setting: &Setting) -> bool {
        self.environment.contains_key(setting.key) || self.file.contains_key(setting.key)
    }

    /// Whether the standard OpenTelemetry variable names a collector.
    pub(super) const fn exports_traces(&self) -> bool {
        self.has_collector
    }

    /// The text of a setting for display; empty for a secret.
    pub(super) fn display_text(&self, setting: &Setting) -> (String, SettingOrigin) {
        let (text, origin) = self.text(setting);
        (if setting.is_secret { String::new() } else { text.to_owned() }, origin)
    }

    fn text(&self, setting: &Setting) -> (&str, SettingOrigin) {
        if let Some(text) = self.environment.get(setting.key) {
            return (text, SettingOrigin::Environment);
        }
        self.file.get(setting.key).map_or((setting.default, SettingOrigin::Default), |text| (text, SettingOrigin::File))
    }

    fn add_table(&mut self, prefix: &str, table: Table) -> Result<(), ConfigError> {
        for (name, value) in table {
            let key = format!("{prefix}{name}");
            let key_prefix = format!("{key}.");
            let setting = SETTINGS.iter().find(|setting| setting.key == key);
            match (setting, value) {
                (Some(setting), value) => {
                    let text = text_of(value).ok_or_else(|| unsupported_type(&key))?;
                    self.file.insert(setting.key, text);
                }
                (None, accounts) if key == PROVIDERS_KEY => self.providers = Some(accounts),
                (None, issuers) if key == ISSUERS_KEY => self.issuers = Some(issuers),
                (None, Value::Table(inner)) if SETTINGS.iter().any(|setting| setting.key.starts_with(&key_prefix)) => {
                    self.add_table(&key_prefix, inner)?;
                }
                (None, _) => {
                    let keys = SETTINGS.iter().map(|setting| setting.key).chain([PROVIDERS_KEY, ISSUERS_KEY]);
                    return Err(ConfigError::UnknownKey { nearest: nearest_name(&key, keys), key });
                }
            }
        }
        Ok(())
    }

    fn add_variable(&mut self, name: &str, value: OsString) -> Result<(), ConfigError> {
        if name == COLLECTOR_VARIABLE {
            self.has_collector = !value.is_empty();
        }
        // Some settings use variables of other programs, such as `VAULT_ADDR`. Other variables of those programs, such
        // as `VAULT_NAMESPACE`, are ignored.
        let is_relevant = PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || SETTINGS.iter().any(|setting| setting.variable == name);
        if !is_relevant || IGNORED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            return Ok(());
        }
        if name.starts_with(provider_variable::NEAR_PREFIX) {
            return self.provider_variables.add(name, value);
        }
        let Some(setting) = SETTINGS.iter().find(|setting| setting.variable == name) else {
            let names = SETTINGS.iter().map(|setting| setting.variable);
            return Err(ConfigError::UnknownVariable { nearest: nearest_name(name, names), name: name.to_owned() });
        };
        let text = value.into_string().map_err(|_| ConfigError::Invalid {
            name: name.to_owned(),
            rule: "must be UTF-8".to_owned(),
            value: None,
        })?;
        self.environment.insert(setting.key, text);
        Ok(())
    }
}

fn invalid(setting: &Setting, origin: SettingOrigin, text: &str, rule: String) -> ConfigError {
    let name = match origin {
        SettingOrigin::Environment => setting.variable,
        SettingOrigin::File | SettingOrigin::Default => setting.key,
    };
    let value = (!setting.is_secret).then(|| text.to_owned());
    ConfigError::Invalid { name: name.to_owned(), rule, value }
}

fn unsupported_type(key: &str) -> ConfigError {
    let rule = "must be a text, a number, or a list of texts".to_owned();
    ConfigError::Invalid { name: key.to_owned(), rule, value: None }
}

/// Converts a value of the file to the text format of variables: lists are comma-separated.
fn text_of(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(flag) => Some(flag.to_string()),
        Value::Array(items) => {
            let mut list = String::new();
            for (index, item) in items.into_iter().enumerate() {
                let Value::String(text) = item else { return None };
                let separator = if index == 0 { "" } else { "," };
                write!(list, "{separator}{text}").ok()?;
            }
            Some(list)
        }
        Value::Float(_) | Value::Datetime(_) | Value::Table(_) => None,
    }
}

/// Converts an error of the TOML parser. It uses the short message, because the full message quotes the line, which
/// may contain a password.
fn syntax_error(text: &str, failure: &toml::de::Error) -> ConfigError {
    let start = failure.span().map_or(0, |span| span.start);
    let line_breaks = text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    ConfigError::Syntax { line: line_breaks.saturating_add(1), problem: failure.message().to_owned() }
}

/// The most similar known name; `None` if all names differ too much.
pub(crate) fn nearest_name<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    names
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(left, _), (right, _)| left.total_cmp(right))
        .map(|(_, candidate)| candidate.to_owned())
}
