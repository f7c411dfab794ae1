//! Provider accounts: the `[[providers]]` tables of the file and the variables of the environment.

use super::{
    checked_table::{TableContext, invalid, tables},
    provider_variable::ProviderVariables,
    raw_settings::{ConfigError, SettingOrigin},
};
use fairway_domain::{asset::content::has_jurisdiction_code_form, secret::ServerSecretRef};
use fairway_providers::ModelPrice;
use std::{fmt, time::Duration};
use toml::{Table, Value};
use url::Url;

/// The keys that the settings of an account may contain.
const KEYS: [&str; 9] =
    ["account_slot", "kind", "residency", "base_url", "secret_ref", "timeout", "concurrency", "test_model", "prices"];
/// The keys for provider kinds that are called over the network.
const REMOTE_KEYS: [&str; 3] = ["base_url", "secret_ref", "timeout"];
const PRICE_KEYS: [&str; 3] = ["model", "input_micros_per_million", "output_micros_per_million"];
/// Default time limit of a call.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum of the `concurrency` setting.
const MAX_CONCURRENCY: usize = 100_000;

/// A configured provider account that model routes can name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderAccount {
    /// Name by which model routes refer to the account.
    pub account_slot: String,
    /// Protocol of the provider, and its endpoint.
    pub kind: ProviderKind,
    /// Jurisdiction of the data, for routing rules.
    pub residency: Option<String>,
    /// Maximum number of concurrent calls with this account.
    pub concurrency: Option<usize>,
    /// The model that `fairway-server providers test` calls.
    pub test_model: Option<String>,
    /// Token prices of the account's models.
    pub prices: Vec<ModelPrice>,
    /// Source of the configuration; `Environment` if a variable sets any key of the account.
    pub origin: SettingOrigin,
}

impl ProviderAccount {
    /// Name and kind of the built-in account.
    pub(crate) const LOCAL: &str = "local";

    /// The built-in account, which exists without configuration.
    pub(crate) fn built_in() -> Self {
        Self {
            account_slot: Self::LOCAL.to_owned(),
            kind: ProviderKind::Local,
            residency: None,
            concurrency: None,
            test_model: None,
            prices: Vec::new(),
            origin: SettingOrigin::Default,
        }
    }
}

/// The protocol of a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProviderKind {
    /// The built-in deterministic provider.
    Local,
    /// An endpoint with the OpenAI protocol.
    OpenAi(ProviderEndpoint),
    /// An endpoint with the Anthropic protocol.
    Anthropic(ProviderEndpoint),
}

/// The endpoint of an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderEndpoint {
    /// Base URL of the provider's API.
    pub base_url: Url,
    /// Reference to the secret with the API key.
    pub secret_ref: Option<ServerSecretRef>,
    /// Time limit of one call to the provider.
    pub timeout: Duration,
}

impl ProviderAccount {
    /// Parses all accounts. A variable replaces the key of the account in the file, or adds an account.
    pub(super) fn read_all(file: Option<&Value>, variables: &ProviderVariables) -> Result<Vec<Self>, ConfigError> {
        let mut accounts: Vec<Self> = Vec::new();
        let file_tables = file.map_or_else(|| Ok(Vec::new()), |value| tables("providers", value, "[[providers]]"))?;
        for (table_path, table) in &file_tables {
            let slot = table.get("account_slot").and_then(Value::as_str);
            let account =
                Self::read(&TableContext::new(table_path, table, &KEYS), slot.and_then(|slot| variables.of(slot)))?;
            if accounts.iter().any(|other| other.account_slot == account.account_slot) {
                return Err(invalid(&format!("{table_path}.account_slot"), "must be unique"));
            }
            accounts.push(account);
        }
        for slot in variables.slots() {
            if !accounts.iter().any(|account| account.account_slot == slot) {
                let table = Table::from_iter([("account_slot".to_owned(), Value::String(slot.to_owned()))]);
                accounts.push(Self::read(&TableContext::new("", &table, &KEYS), variables.of(slot))?);
            }
        }
        Ok(accounts)
    }

    /// Parses an account of the file, with the keys that environment variables set.
    fn read(account: &TableContext<'_>, variables: Option<&Table>) -> Result<Self, ConfigError> {
        account.check_keys()?;
        let account_slot = account.required("account_slot")?;
        let Some(variables) = variables else { return Self::parse(account_slot, account, SettingOrigin::File) };
        let mut table = account.table.clone();
        table.extend(variables.clone());
        let slot = account_slot.clone();
        let context =
            TableContext { path: account.path, table: &table, keys: account.keys, variables: Some((&slot, variables)) };
        Self::parse(account_slot, &context, SettingOrigin::Environment)
    }

    fn parse(account_slot: String, context: &TableContext<'_>, origin: SettingOrigin) -> Result<Self, ConfigError> {
        let kind = match context.required("kind")?.as_str() {
            "local" => {
                if let Some(key) = REMOTE_KEYS.into_iter().find(|key| context.table.contains_key(*key)) {
                    return Err(context.invalid(key, "must not be set for a `local` account"));
                }
                ProviderKind::Local
            }
            "openai" => ProviderKind::OpenAi(ProviderEndpoint::read(context)?),
            "anthropic" => ProviderKind::Anthropic(ProviderEndpoint::read(context)?),
            _ => return Err(context.invalid("kind", "must be `openai`, `anthropic` or `local`")),
        };
        let concurrency = match context.table.get("concurrency") {
            None => None,
            Some(value) => {
                let calls = value.as_integer().and_then(|calls| usize::try_from(calls).ok());
                let calls = calls.filter(|calls| (1..=MAX_CONCURRENCY).contains(calls));
                let rule = format!("must be a number of calls from 1 to {MAX_CONCURRENCY}");
                Some(calls.ok_or_else(|| context.invalid("concurrency", &rule))?)
            }
        };
        let residency = context.text("residency")?;
        if !residency.as_deref().is_none_or(has_jurisdiction_code_form) {
            let rule = "must be a country (ISO 3166), such as `de`, a part of one, such as `de-by`, or `eu`";
            return Err(context.invalid("residency", rule));
        }
        Ok(Self {
            account_slot,
            kind,
            residency,
            concurrency,
            test_model: context.text("test_model")?,
            prices: prices(context)?,
            origin,
        })
    }
}

impl fmt::Display for ProviderAccount {
    /// Formats the account as one line without credentials.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: ", self.account_slot)?;
        match &self.kind {
            ProviderKind::Local => out.write_str("local")?,
            ProviderKind::OpenAi(endpoint) => write!(out, "openai {endpoint}")?,
            ProviderKind::Anthropic(endpoint) => write!(out, "anthropic {endpoint}")?,
        }
        if let Some(residency) = &self.residency {
            write!(out, ", residency {residency}")?;
        }
        if let Some(concurrency) = self.concurrency {
            write!(out, ", concurrency {concurrency}")?;
        }
        if let Some(model) = &self.test_model {
            write!(out, ", test model {model}")?;
        }
        if !self.prices.is_empty() {
            let models: Vec<&str> = self.prices.iter().map(|price| price.model.as_str()).collect();
            write!(out, ", prices of {}", models.join(" "))?;
        }
        Ok(())
    }
}

impl fmt::Display for ProviderEndpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the origin is shown, because paths of provider URLs often contain secrets.
        let origin = self.base_url.origin().ascii_serialization();
        write!(out, "{origin}, timeout {} s", self.timeout.as_secs_f64())?;
        match &self.secret_ref {
            Some(reference) => write!(out, ", secret {reference}"),
            None => out.write_str(", no secret"),
        }
    }
}

impl ProviderEndpoint {
    fn read(context: &TableContext<'_>) -> Result<Self, ConfigError> {
        let rule = "must be an address such as https://api.example/v1, without credentials, query or fragment";
        let base_url = Url::parse(&context.required("base_url")?).ok().filter(|url| {
            let is_bare = url.username().is_empty() && url.password().is_none();
            let is_base = url.query().is_none() && url.fragment().is_none();
            matches!(url.scheme(), "http" | "https") && url.has_host() && is_bare && is_base
        });
        let secret_ref = context.text("secret_ref")?.map(|text| ServerSecretRef::parse(&text)).transpose();
        let timeout = match context.table.get("timeout") {
            None => DEFAULT_TIMEOUT,
            // A number without a unit means seconds.
            Some(Value::Integer(seconds)) => context.duration(&format!("{seconds}s"))?,
            Some(Value::String(text)) => context.duration(text)?,
            Some(_) => context.duration("")?,
        };
        Ok(Self {
            base_url: base_url.ok_or_else(|| context.invalid("base_url", rule))?,
            secret_ref: secret_ref.map_err(|_| {
                context.invalid(
                    "secret_ref",
                    "must be `env:NAME`, `file:path` or `vault:path#key`, and never the key itself",
                )
            })?,
            timeout,
        })
    }
}

fn prices(account: &TableContext<'_>) -> Result<Vec<ModelPrice>, ConfigError> {
    let Some(value) = account.table.get("prices") else { return Ok(Vec::new()) };
    let mut prices: Vec<ModelPrice> = Vec::new();
    for (name, table) in tables(&format!("{}.prices", account.path), value, "[[providers.prices]]")? {
        let context = TableContext::new(&name, table, &PRICE_KEYS);
        context.check_keys()?;
        let amount = |key: &str| {
            let amount = table.get(key).and_then(Value::as_integer).and_then(|amount| u64::try_from(amount).ok());
            amount.ok_or_else(|| context.invalid(key, "must be a number of millionths, 0 or more"))
        };
        let price = ModelPrice {
            model: context.required("model")?,
            input: amount("input_micros_per_million")?,
            output: amount("output_micros_per_million")?,
        };
        if prices.iter().any(|other| other.model == price.model) {
            return Err(context.invalid("model", "must be unique"));
        }
        prices.push(price);
    }
    Ok(prices)
}
