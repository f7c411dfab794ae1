//! The settings of a server: defaults, then `fairway.toml`, then the environment.
//!
//! Reading is a pure function of the file's text and the variables, so that tests need neither. What is misspelled is
//! an error that names the nearest known setting, because a setting that silently does nothing is worse than none.

mod provider;
mod reading;
mod setting;
mod value;

pub use provider::{ProviderAccount, ProviderEndpoint, ProviderKind};
pub use reading::{ConfigError, Origin};
pub use setting::{SETTINGS, Setting};
pub use value::{LogFormat, Secret};

use crate::{
    embed::Embedding,
    http::{
        client_address::TrustedProxies,
        site_guard::{HostName, Scheme, SiteRules},
    },
};
use fairway_artifacts::Location;
use fairway_domain::{
    access::ActorRef, execution::dispatch::Dispatch, knowledge::retrieval::EmbeddingModel, redaction::NationalId,
    throttle::Quota,
};
use fairway_egress::Allowance;
use fairway_operations::generator::Provisioning;
use reading::Raw;
use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};
use url::Url;

/// Everything that can be set, read and checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the server listens.
    pub bind: SocketAddr,
    /// Where the server keeps its own files.
    pub data_dir: PathBuf,
    /// The database of the service.
    pub database: Database,
    /// The database as its owner sees it, for migrations; the same unless it is set.
    pub migrate_database: Database,
    /// Where artifacts lie.
    pub artifacts: Location,
    /// How callers are told apart.
    pub auth_mode: AuthMode,
    /// Host names that local mode answers to beside the loopback ones.
    pub allowed_hosts: Vec<HostName>,
    /// Whether local mode may be reached through a proxy.
    pub local_mode_exposure: LocalModeExposure,
    /// The scheme under which browsers know the server: `https` behind a proxy that speaks TLS.
    pub public_scheme: Scheme,
    /// How long a request's head may take to arrive.
    pub header_timeout: Duration,
    /// How long a request's body may take to arrive.
    pub body_timeout: Duration,
    /// How many requests of a worker thread may wait for PostgreSQL while the line does not get shorter.
    pub waiting_line: usize,
    /// Bytes of resident memory that a server or worker process may take.
    pub memory_limit: usize,
    /// Services whose word on behalf of others is taken.
    pub internal_clients: Vec<ActorRef>,
    /// How long a synchronous request waits for its execution.
    pub sync_wait: Duration,
    /// Where runs run.
    pub dispatch: Dispatch,
    /// How many runs of a tenant may wait for a worker.
    pub queue_cap: u32,
    /// How long an execution may run.
    pub execution_deadline: Duration,
    /// Whether tenants are given a generator.
    pub generator: Provisioning,
    /// How long a person may take to review the answer of an execution.
    pub review_deadline: Duration,
    /// How long a worker may be silent before its work is given to another.
    pub worker_lease: Duration,
    /// Schemes of national identifiers that are masked where a policy wants outputs redacted.
    pub national_ids: Vec<NationalId>,
    /// Who turns texts into vectors, for knowledge bases that are searched by meaning.
    pub embedding_model: EmbeddingModel,
    /// How long the answers of runs are shown after their end, and what people and models said is kept.
    pub result_retention: Duration,
    /// How often one client may come to one public workload.
    pub public_rate: Quota,
    /// Proxies whose word on where a request comes from is taken.
    pub trusted_proxies: TrustedProxies,
    /// Which workloads have a page at the root, and who may frame it.
    pub embedding: Embedding,
    /// Where requests may go beside the public internet.
    pub egress_allow: Vec<Allowance>,
    /// The folder with a folder of secrets for each tenant.
    pub secrets_dir: Option<PathBuf>,
    /// The vault that keeps secrets.
    pub vault: Option<VaultSettings>,
    /// The runtime gateway; `None` for the embedded one.
    pub runtime_gateway: Option<GatewaySettings>,
    /// What is logged, and how.
    pub log: LogSettings,
    /// Whether traces go to a collector.
    pub export_traces: bool,
    /// The configured provider accounts. `local` is there without being configured.
    pub providers: Vec<ProviderAccount>,
    shown: Vec<Shown>,
}

/// Which database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Database {
    /// A private PostgreSQL in the data directory.
    Embedded,
    /// A server at this address, which may hold a password.
    Url(Secret),
}

impl Database {
    /// The host names in its address.
    fn hosts(&self) -> Vec<String> {
        match self {
            Self::Embedded => Vec::new(),
            Self::Url(url) => url.hosts(),
        }
    }
}

/// How callers are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthMode {
    /// Everybody who reaches the server's loopback address says who they are.
    Local,
}

/// Whether the operator accepts that a proxy forwards requests of other machines to local mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalModeExposure {
    /// Settings that serve a proxy stop the start.
    Refused,
    /// They are accepted. The server logs a warning each minute.
    Accepted,
}

/// A vault that keeps secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VaultSettings {
    /// Its address.
    pub address: Url,
    /// What opens it.
    pub token: Secret,
}

/// A runtime gateway of somebody else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewaySettings {
    /// Its address.
    pub address: Url,
    /// What opens it, where it is not open to everybody who reaches it.
    pub token: Option<Secret>,
}

/// What is logged, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// Directives of `tracing-subscriber`, such as `info,fairway_postgres=debug`.
    pub filter: String,
    /// The form of a line.
    pub format: LogFormat,
}

/// One setting as `config check` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Its key in the file.
    pub key: &'static str,
    /// Its variable.
    pub variable: &'static str,
    /// Its value, with secrets left out.
    pub value: String,
    /// Where the value comes from.
    pub origin: Origin,
}

impl Settings {
    /// Reads the settings from the text of `fairway.toml`, if there is one, and from the environment.
    ///
    /// # Errors
    /// For the first unknown key or variable, or the first value that is wrong or does not fit the others.
    pub fn load(
        file: Option<&str>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let raw = Raw::gather(file, environment)?;
        let bind = raw.read(&setting::BIND, value::address)?;
        let data_dir = raw.read(&setting::DATA_DIR, value::directory)?;
        let database = raw.read(&setting::DATABASE_URL, value::database)?;
        let settings = Self {
            bind,
            migrate_database: raw
                .read_set(&setting::MIGRATE_DATABASE_URL, value::database)?
                .unwrap_or_else(|| database.clone()),
            database,
            artifacts: raw
                .read_set(&setting::ARTIFACTS_URL, value::artifacts)?
                .unwrap_or_else(|| Location::Directory(data_dir.join("artifacts"))),
            data_dir,
            auth_mode: raw.read(&setting::AUTH_MODE, value::auth_mode)?,
            allowed_hosts: raw.read(&setting::ALLOWED_HOSTS, value::hosts)?,
            local_mode_exposure: raw.read(&setting::LOCAL_MODE_EXPOSED, value::exposure)?,
            public_scheme: raw.read(&setting::PUBLIC_SCHEME, value::scheme)?,
            header_timeout: raw.read(&setting::HEADER_TIMEOUT, value::duration)?,
            body_timeout: raw.read(&setting::BODY_TIMEOUT, value::duration)?,
            waiting_line: raw.read(&setting::WAITING_LINE, value::line)?,
            memory_limit: raw.read(&setting::MEMORY_LIMIT, value::memory_limit)?,
            internal_clients: raw.read(&setting::INTERNAL_CLIENTS, value::services)?,
            sync_wait: raw.read(&setting::SYNC_WAIT, value::duration)?,
            dispatch: raw.read(&setting::DISPATCH, value::dispatch)?,
            queue_cap: raw.read(&setting::QUEUE_CAP, value::queue_cap)?,
            execution_deadline: raw.read(&setting::EXECUTION_DEADLINE, value::duration)?,
            generator: raw.read(&setting::GENERATOR, value::provisioning)?,
            review_deadline: raw.read(&setting::REVIEW_DEADLINE, value::duration)?,
            worker_lease: raw.read(&setting::WORKER_LEASE, value::duration)?,
            national_ids: raw.read(&setting::NATIONAL_IDS, value::national_ids)?,
            embedding_model: EmbeddingModel {
                account: raw.read(&setting::EMBEDDING_ACCOUNT, value::name)?,
                model: raw.read(&setting::EMBEDDING_MODEL, value::name)?,
            },
            result_retention: raw.read(&setting::RESULT_RETENTION, value::duration)?,
            public_rate: Quota {
                per_minute: raw.read(&setting::PUBLIC_RATE_PER_MINUTE, value::rate)?,
                burst: raw.read(&setting::PUBLIC_RATE_BURST, value::rate)?,
            },
            trusted_proxies: raw.read(&setting::TRUSTED_PROXIES, value::networks)?,
            embedding: Embedding::new(
                raw.read(&setting::EMBED_ROOT_SLUGS, value::slugs)?,
                raw.read(&setting::EMBED_ANCESTORS, value::ancestors)?,
            ),
            egress_allow: raw.read(&setting::EGRESS_ALLOW, value::allowances)?,
            secrets_dir: raw.read_set(&setting::SECRETS_DIR, value::directory)?,
            vault: vault(&raw)?,
            runtime_gateway: gateway(&raw)?,
            log: LogSettings {
                filter: raw.read(&setting::LOG, value::log_filter)?,
                format: raw.read(&setting::LOG_FORMAT, value::log_format)?,
            },
            export_traces: raw.exports_traces(),
            providers: raw.providers()?,
            shown: Vec::new(),
        };
        settings.fit()?;
        let shown = SETTINGS.iter().map(|setting| settings.show(setting, &raw)).collect();
        Ok(Self { shown, ..settings })
    }

    /// Every setting with its value and origin, secrets left out.
    #[must_use]
    pub fn describe(&self) -> &[Shown] {
        &self.shown
    }

    /// Which hosts the server answers.
    #[must_use]
    pub fn site_rules(&self) -> SiteRules {
        match self.auth_mode {
            AuthMode::Local => SiteRules::LoopbackAnd(self.allowed_hosts.clone()),
        }
    }

    /// The host names of this machine and of all addresses in the settings, in lower case. No tenant may answer to them.
    #[must_use]
    pub fn operator_hosts(&self) -> Vec<String> {
        let databases = [&self.database, &self.migrate_database].into_iter().flat_map(Database::hosts);
        let artifacts = match &self.artifacts {
            Location::Bucket(bucket) => bucket.endpoint.as_deref().and_then(|endpoint| Url::parse(endpoint).ok()),
            Location::Directory(_) => None,
        };
        let addresses = [
            self.vault.as_ref().map(|vault| &vault.address),
            self.runtime_gateway.as_ref().map(|gateway| &gateway.address),
            artifacts.as_ref(),
        ];
        let accounts = self.providers.iter().filter_map(|account| match &account.kind {
            ProviderKind::OpenAi(endpoint) | ProviderKind::Anthropic(endpoint) => Some(&endpoint.base_url),
            ProviderKind::Local => None,
        });
        let named = addresses.into_iter().flatten().chain(accounts).filter_map(Url::host_str).map(str::to_owned);
        let mut hosts: Vec<String> =
            nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).into_iter().collect();
        hosts.extend(databases.chain(named));
        hosts.iter_mut().for_each(|host| host.make_ascii_lowercase());
        hosts
    }

    /// What settings ask of one another.
    fn fit(&self) -> Result<(), ConfigError> {
        if self.database == Database::Embedded && self.migrate_database != Database::Embedded {
            return Err(ConfigError::OwnerWithoutDatabase);
        }
        match self.auth_mode {
            // Local mode believes whatever a caller says, so nobody but this machine may reach it.
            AuthMode::Local if !self.bind.ip().is_loopback() => Err(ConfigError::LocalModeExposed),
            AuthMode::Local => match (self.proxy_setting(), self.local_mode_exposure) {
                (Some(setting), LocalModeExposure::Refused) => {
                    Err(ConfigError::LocalModeBehindProxy { key: setting.key, variable: setting.variable })
                }
                (Some(_), LocalModeExposure::Accepted)
                | (None, LocalModeExposure::Refused | LocalModeExposure::Accepted) => Ok(()),
            },
        }
    }

    /// The first setting that only a proxy in front of the server needs.
    fn proxy_setting(&self) -> Option<&'static Setting> {
        let serves_proxy = [
            (&setting::TRUSTED_PROXIES, self.trusted_proxies != TrustedProxies::default()),
            (&setting::ALLOWED_HOSTS, !self.allowed_hosts.is_empty()),
            (&setting::PUBLIC_SCHEME, self.public_scheme != Scheme::Http),
        ];
        serves_proxy.into_iter().find_map(|(setting, is_set)| is_set.then_some(setting))
    }

    /// Values that follow from other settings are shown as they came out.
    fn show(&self, setting: &'static Setting, raw: &Raw) -> Shown {
        let (value, origin) = raw.shown(setting);
        let value = match setting.key {
            key if key == setting::ARTIFACTS_URL.key => match &self.artifacts {
                // A directory that follows from the data directory is shown as that one is.
                Location::Directory(_) if origin == Origin::Default => self.artifacts.to_string(),
                Location::Directory(_) => "file://".to_owned(),
                Location::Bucket(bucket) => format!("s3://{}", bucket.bucket),
            },
            key if key == setting::MIGRATE_DATABASE_URL.key => self.migrate_database.to_string(),
            key if key == setting::DATABASE_URL.key => self.database.to_string(),
            // Paths and queries of such addresses are often secrets.
            key if key == setting::VAULT_ADDR.key => {
                self.vault.as_ref().map(|vault| vault.address.origin().ascii_serialization()).unwrap_or_default()
            }
            key if key == setting::RUNTIME_GATEWAY_URL.key => {
                let gateway = self.runtime_gateway.as_ref();
                gateway.map_or_else(|| "embedded".to_owned(), |gateway| gateway.address.origin().ascii_serialization())
            }
            _ => value,
        };
        Shown { key: setting.key, variable: setting.variable, value, origin }
    }
}

/// The vault, if there is one. Without a token nobody could ask it anything.
fn vault(raw: &Raw) -> Result<Option<VaultSettings>, ConfigError> {
    let address = raw.read_set(&setting::VAULT_ADDR, value::web_address)?;
    let token = raw.read_set(&setting::VAULT_TOKEN, value::token)?;
    match (address, token) {
        (Some(address), Some(token)) => Ok(Some(VaultSettings { address, token })),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(ConfigError::HalfAVault),
    }
}

/// The runtime gateway, if it is not the embedded one, which no token opens.
fn gateway(raw: &Raw) -> Result<Option<GatewaySettings>, ConfigError> {
    let address = raw.read(&setting::RUNTIME_GATEWAY_URL, value::gateway)?;
    let token = raw.read_set(&setting::RUNTIME_GATEWAY_TOKEN, value::bearer)?;
    match (address, token) {
        (Some(address), token) => Ok(Some(GatewaySettings { address, token })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(ConfigError::TokenWithoutGateway),
    }
}

#[cfg(test)]
mod tests;
