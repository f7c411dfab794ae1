//! The settings of a server: defaults, overridden by `fairway.toml`, overridden by the environment.
//!
//! Loading is a pure function of the file's text and the variables, so tests need neither a file nor an
//! environment. An unknown key or variable is an error that suggests the nearest known one, because an ignored
//! setting would fail silently.

mod checked_table;
mod dependent_settings;
mod issuer;
mod parsers;
mod provider;
mod provider_variable;
mod raw_settings;
mod setting;

pub use issuer::{Issuer, PortalClient};
pub use parsers::{LogFormat, TextWithCredential};
pub use provider::{ProviderAccount, ProviderEndpoint, ProviderKind};
pub(crate) use raw_settings::nearest_name;
pub use raw_settings::{ConfigError, SettingOrigin};
pub use setting::{SETTINGS, Setting};

use crate::{
    embeddable_page::EmbedPolicy,
    http::{
        client_address::TrustedProxies,
        site_guard::{HostName, HostRules, Scheme},
    },
};
use fairway_artifacts::Location;
use fairway_domain::{
    access::{ActorRef, session::SessionLifetime},
    anonymous_rate_limit::Quota,
    execution::dispatch::DispatchPolicy,
    knowledge::retrieval::EmbeddingModel,
    redaction::NationalId,
    secret::ServerSecretRef,
    transparency_log::{LogOriginBase, WitnessKey},
};
use fairway_egress::Allowance;
use fairway_operations::generator::ProvisioningMode;
use raw_settings::RawSettings;
use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};
use url::Url;

/// All settings of a process, validated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address that the server listens on.
    pub bind: SocketAddr,
    /// Address at which a worker process serves its metrics.
    pub worker_metrics_bind: Option<SocketAddr>,
    /// Directory of the server's own files.
    pub data_dir: PathBuf,
    /// DatabaseLocation that the service reads and writes.
    pub database: DatabaseLocation,
    /// The database under its owner role, for migrations; defaults to `database`.
    pub migrate_database: DatabaseLocation,
    /// Location of the artifact store.
    pub artifacts: Location,
    /// Location of the published checkpoints, outside the database.
    pub checkpoint_archive: Location,
    /// Identity of this installation's transparency logs.
    pub log_origin: LogOriginBase,
    /// Reference of the key that signs checkpoints; `None` for a generated file in the data directory.
    pub checkpoint_key: Option<ServerSecretRef>,
    /// Reference of the previous key, which also signs checkpoints during a key rotation.
    pub checkpoint_previous_key: Option<ServerSecretRef>,
    /// The witnesses that cosign checkpoints, each with its address.
    pub witnesses: Vec<(WitnessKey, Url)>,
    /// How the server authenticates callers.
    pub auth_mode: AuthMode,
    /// The identity providers of OIDC mode.
    pub issuers: Vec<Issuer>,
    /// How long browser sessions are valid, in OIDC mode.
    pub session_lifetime: SessionLifetime,
    /// Principals of the default tenant that administer the platform without a role binding, in OIDC mode.
    pub bootstrap_admins: Vec<ActorRef>,
    /// The address under which browsers and clients reach the server; `None` for the bind address.
    pub public_url: Option<Url>,
    /// Additional host names, next to the loopback names and, in OIDC mode, the host of the public address.
    pub allowed_hosts: Vec<HostName>,
    /// Whether local mode may be reached through a proxy.
    pub local_mode_exposure: LocalModeExposure,
    /// The scheme of the server's URL in browsers: `https` behind a proxy that terminates TLS.
    pub public_scheme: Scheme,
    /// Time limit for a request head to arrive.
    pub header_timeout: Duration,
    /// Time limit for a request body to arrive.
    pub body_timeout: Duration,
    /// Maximum requests of a worker thread that wait for PostgreSQL in a standing queue.
    pub max_waiting_requests: usize,
    /// Resident memory limit of a server or worker process, in bytes.
    pub memory_limit: usize,
    /// Services that may act on behalf of others.
    pub internal_clients: Vec<ActorRef>,
    /// Time that a synchronous request waits for its run.
    pub sync_wait: Duration,
    /// Dispatch mode: which processes execute runs.
    pub dispatch: DispatchPolicy,
    /// Maximum queued runs of a tenant.
    pub queue_cap: u32,
    /// Time limit of a run.
    pub execution_deadline: Duration,
    /// Whether the server provisions a generator for tenants.
    pub generator: ProvisioningMode,
    /// Time limit for the human review of a result.
    pub review_deadline: Duration,
    /// Lease duration of a worker; another worker takes over its runs after expiry.
    pub worker_lease: Duration,
    /// Schemes of national identifiers that output redaction masks.
    pub national_ids: Vec<NationalId>,
    /// The model that embeds texts for vector search.
    pub embedding_model: EmbeddingModel,
    /// Time after which an inbox stream ends.
    pub inbox_stream_lifetime: Duration,
    /// Retention of results and payloads after the end of a run.
    pub result_retention: Duration,
    /// Rate limit of one client on one public workload.
    pub public_rate: Quota,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: TrustedProxies,
    /// The workloads with an embeddable page, and the origins that may embed it.
    pub embed_policy: EmbedPolicy,
    /// Egress targets that are allowed in addition to the public internet.
    pub egress_allow: Vec<Allowance>,
    /// Directory with one subdirectory of secrets for each tenant.
    pub secrets_dir: Option<PathBuf>,
    /// The mail server; without one, e-mails are not delivered.
    pub mail: Option<MailSettings>,
    /// The vault that stores secrets.
    pub vault: Option<VaultSettings>,
    /// The runtime gateway; `None` for the embedded one.
    pub runtime_gateway: Option<GatewaySettings>,
    /// Log filter and format.
    pub log: LogSettings,
    /// Whether traces are exported to a collector.
    pub export_traces: bool,
    /// The configured provider accounts. The built-in account `local` needs no configuration.
    pub providers: Vec<ProviderAccount>,
    rendered: Vec<RenderedSetting>,
}

/// Location of a PostgreSQL database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DatabaseLocation {
    /// PostgreSQL server that Fairway starts and stops itself, with its files in the data directory.
    Embedded,
    /// A server at this URL, which may contain a password.
    Url(TextWithCredential),
}

impl DatabaseLocation {
    /// The host names in the URL.
    fn hosts(&self) -> Vec<String> {
        match self {
            Self::Embedded => Vec::new(),
            Self::Url(url) => url.hosts(),
        }
    }
}

/// How the server authenticates callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthMode {
    /// The server trusts the identity header of every client on its loopback address.
    Local,
    /// Identity providers sign the claims of every client.
    Oidc,
}

/// Whether the operator accepts that a proxy forwards requests of other machines to local mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalModeExposure {
    /// The server does not start with settings for a proxy.
    Refused,
    /// Settings for a proxy are accepted. The server logs a warning each minute.
    Accepted,
}

/// Settings of the mail server for notifications.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MailSettings {
    /// URL of the mail server, which may contain a password.
    pub url: TextWithCredential,
    /// Sender address of all e-mails.
    pub from: String,
}

/// The vault that stores secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VaultSettings {
    /// Base URL of the vault.
    pub address: Url,
    /// Access token for the vault.
    pub token: TextWithCredential,
}

/// An external runtime gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewaySettings {
    /// Base URL of the gateway.
    pub address: Url,
    /// Access token, if the gateway requires one.
    pub token: Option<TextWithCredential>,
}

/// Log filter and format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// Directives of `tracing-subscriber`, such as `info,fairway_postgres=debug`.
    pub filter: String,
    /// Format of a log line.
    pub format: LogFormat,
}

/// A setting as `config check` prints it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenderedSetting {
    /// Key of the setting in `fairway.toml`.
    pub key: &'static str,
    /// Environment variable that overrides the key.
    pub variable: &'static str,
    /// The effective value, without secrets.
    pub value: String,
    /// Source of the value: default, file or environment.
    pub origin: SettingOrigin,
}

impl Settings {
    /// Loads the settings from the text of `fairway.toml`, if there is one, and from the environment.
    ///
    /// # Errors
    /// The first unknown key or variable, the first invalid value, or the first conflict between settings.
    pub fn load(
        file: Option<&str>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let (settings, contradictions) = Self::load_with_conflicts(file, environment)?;
        contradictions.into_iter().next().map_or(Ok(settings), Err)
    }

    /// Loads the settings like [`Self::load`], but also returns the contradictions between them.
    ///
    /// # Errors
    /// The first unknown key or variable, or the first invalid value.
    pub fn load_with_conflicts(
        file: Option<&str>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        let raw = RawSettings::collect(file, environment)?;
        let settings = Self::read(&raw)?;
        let mut contradictions: Vec<ConfigError> = settings.check_conflicts().err().into_iter().collect();
        contradictions.extend(Issuer::contradictions(&settings.issuers));
        contradictions.extend(dependent_settings::session_contradiction(settings.session_lifetime, &raw));
        let rendered = SETTINGS.iter().map(|setting| settings.render(setting, &raw)).collect();
        Ok((Self { rendered, ..settings }, contradictions))
    }

    /// Parses each setting. `rendered` stays empty.
    fn read(raw: &RawSettings) -> Result<Self, ConfigError> {
        let bind = raw.read(&setting::BIND, parsers::address)?;
        let data_dir = raw.read(&setting::DATA_DIR, parsers::directory)?;
        let database = raw.read(&setting::DATABASE_URL, parsers::database)?;
        Ok(Self {
            bind,
            worker_metrics_bind: raw.read_optional(&setting::WORKER_METRICS_BIND, parsers::address)?,
            migrate_database: raw
                .read_optional(&setting::MIGRATE_DATABASE_URL, parsers::database)?
                .unwrap_or_else(|| database.clone()),
            database,
            artifacts: raw
                .read_optional(&setting::ARTIFACTS_URL, parsers::store_location)?
                .unwrap_or_else(|| Location::Directory(data_dir.join("artifacts"))),
            checkpoint_archive: raw
                .read_optional(&setting::FACTS_URL, parsers::store_location)?
                .unwrap_or_else(|| Location::Directory(data_dir.join("facts"))),
            log_origin: raw.read(&setting::LOG_ORIGIN, parsers::log_origin)?,
            checkpoint_key: raw.read_optional(&setting::CHECKPOINT_KEY_REF, parsers::server_secret)?,
            checkpoint_previous_key: raw
                .read_optional(&setting::CHECKPOINT_PREVIOUS_KEY_REF, parsers::server_secret)?,
            witnesses: raw.read(&setting::WITNESSES, parsers::witnesses)?,
            data_dir,
            auth_mode: raw.read(&setting::AUTH_MODE, parsers::auth_mode)?,
            issuers: raw.issuers()?,
            session_lifetime: dependent_settings::session_lifetime(raw)?,
            bootstrap_admins: raw.read(&setting::BOOTSTRAP_ADMINS, parsers::principals)?,
            public_url: raw.read_optional(&setting::PUBLIC_URL, parsers::public_url)?,
            allowed_hosts: raw.read(&setting::ALLOWED_HOSTS, parsers::hosts)?,
            local_mode_exposure: raw.read(&setting::LOCAL_MODE_EXPOSED, parsers::local_mode_exposure)?,
            public_scheme: raw.read(&setting::PUBLIC_SCHEME, parsers::scheme)?,
            header_timeout: raw.read(&setting::HEADER_TIMEOUT, parsers::duration)?,
            body_timeout: raw.read(&setting::BODY_TIMEOUT, parsers::duration)?,
            max_waiting_requests: raw.read(&setting::MAX_DATABASE_WAITERS, parsers::max_waiting_requests)?,
            memory_limit: raw.read(&setting::MEMORY_LIMIT, parsers::memory_limit)?,
            internal_clients: raw.read(&setting::INTERNAL_CLIENTS, parsers::internal_clients)?,
            sync_wait: raw.read(&setting::SYNC_WAIT, parsers::duration)?,
            dispatch: raw.read(&setting::DISPATCH, parsers::dispatch)?,
            queue_cap: raw.read(&setting::QUEUE_CAP, parsers::queue_cap)?,
            execution_deadline: raw.read(&setting::EXECUTION_DEADLINE, parsers::duration)?,
            generator: raw.read(&setting::GENERATOR, parsers::generator_provisioning)?,
            review_deadline: raw.read(&setting::REVIEW_DEADLINE, parsers::duration)?,
            worker_lease: raw.read(&setting::WORKER_LEASE, parsers::duration)?,
            national_ids: raw.read(&setting::NATIONAL_IDS, parsers::national_ids)?,
            embedding_model: dependent_settings::embedding_model(raw)?,
            inbox_stream_lifetime: raw.read(&setting::INBOX_STREAM_LIFETIME, parsers::duration)?,
            result_retention: raw.read(&setting::RESULT_RETENTION, parsers::duration)?,
            public_rate: dependent_settings::public_rate(raw)?,
            trusted_proxies: raw.read(&setting::TRUSTED_PROXIES, parsers::trusted_proxies)?,
            embed_policy: EmbedPolicy::new(
                raw.read(&setting::EMBED_ROOT_SLUGS, parsers::slugs)?,
                raw.read(&setting::EMBED_ANCESTORS, parsers::frame_ancestors)?,
            ),
            egress_allow: raw.read(&setting::EGRESS_ALLOW, parsers::allowances)?,
            secrets_dir: raw.read_optional(&setting::SECRETS_DIR, parsers::directory)?,
            mail: dependent_settings::mail(raw)?,
            vault: dependent_settings::vault(raw)?,
            runtime_gateway: dependent_settings::gateway(raw)?,
            log: dependent_settings::log(raw)?,
            export_traces: raw.exports_traces(),
            providers: raw.providers()?,
            rendered: Vec::new(),
        })
    }

    /// Every setting with its value and origin, without secrets.
    #[must_use]
    pub fn describe(&self) -> &[RenderedSetting] {
        &self.rendered
    }

    /// The host names that the server serves.
    #[must_use]
    pub fn host_rules(&self) -> HostRules {
        match self.auth_mode {
            AuthMode::Local => HostRules::LoopbackAnd(self.allowed_hosts.clone()),
            // The list excludes other names, because DNS rebinding lets a page of another site reach this server
            // under that site's name.
            AuthMode::Oidc => {
                let own_hosts = self.public_url.as_ref().and_then(HostName::of_url);
                let own_hosts = own_hosts.into_iter().chain(HostName::of_address(self.bind.ip()));
                HostRules::LoopbackAndProbes(own_hosts.chain(self.allowed_hosts.iter().cloned()).collect())
            }
        }
    }

    /// The scheme of the server's pages in browsers.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        match &self.public_url {
            Some(url) if url.scheme() == "https" => Scheme::Https,
            Some(_) => Scheme::Http,
            None => self.public_scheme,
        }
    }

    /// The address with which every absolute URL of a response begins, without a slash at the end. It never comes
    /// from a request's `Host`, which the client chooses.
    #[must_use]
    pub fn base_url(&self) -> String {
        let Some(url) = &self.public_url else { return format!("http://{}", self.bind) };
        url.as_str().trim_end_matches('/').to_owned()
    }

    /// The host names of this machine, databases, buckets, the vault, the runtime gateway and provider accounts, in
    /// lower case. Tenants may not claim them. The hosts of other settings, such as issuers, witnesses, the mail server
    /// and the public address, are not included.
    #[must_use]
    pub fn reserved_hosts(&self) -> Vec<String> {
        let databases = [&self.database, &self.migrate_database].into_iter().flat_map(DatabaseLocation::hosts);
        let endpoint_of = |location: &Location| match location {
            Location::Bucket(bucket) => bucket.endpoint.as_deref().and_then(|endpoint| Url::parse(endpoint).ok()),
            Location::Directory(_) => None,
        };
        let (artifacts, checkpoint_archive) = (endpoint_of(&self.artifacts), endpoint_of(&self.checkpoint_archive));
        let addresses = [
            self.vault.as_ref().map(|vault| &vault.address),
            self.runtime_gateway.as_ref().map(|gateway| &gateway.address),
            artifacts.as_ref(),
            checkpoint_archive.as_ref(),
        ];
        let accounts = self.providers.iter().filter_map(|account| match &account.kind {
            ProviderKind::OpenAi(endpoint) | ProviderKind::Anthropic(endpoint) => Some(&endpoint.base_url),
            ProviderKind::Local => None,
        });
        let url_hosts = addresses.into_iter().flatten().chain(accounts).filter_map(Url::host_str).map(str::to_owned);
        let mut hosts: Vec<String> =
            nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).into_iter().collect();
        hosts.extend(databases.chain(url_hosts));
        hosts.iter_mut().for_each(|host| host.make_ascii_lowercase());
        hosts
    }

    /// Refuses contradictory combinations of settings.
    fn check_conflicts(&self) -> Result<(), ConfigError> {
        if self.database == DatabaseLocation::Embedded && self.migrate_database != DatabaseLocation::Embedded {
            return Err(ConfigError::OwnerWithoutDatabase);
        }
        match self.auth_mode {
            AuthMode::Oidc => self.check_oidc_conflicts(),
            AuthMode::Local if !self.issuers.is_empty() => Err(ConfigError::IssuerInLocalMode { key: "oidc.issuer" }),
            AuthMode::Local if !self.bootstrap_admins.is_empty() => {
                Err(ConfigError::IssuerInLocalMode { key: setting::BOOTSTRAP_ADMINS.key })
            }
            // Local mode trusts every caller, so only this machine may reach it.
            AuthMode::Local if !self.bind.ip().is_loopback() => Err(ConfigError::LocalModeBindAddress),
            AuthMode::Local if self.worker_metrics_bind.is_some_and(|bind| !bind.ip().is_loopback()) => {
                Err(ConfigError::WorkerMetricsExposed)
            }
            AuthMode::Local => match (self.proxy_setting(), self.local_mode_exposure) {
                (Some(setting), LocalModeExposure::Refused) => {
                    Err(ConfigError::LocalModeBehindProxy { key: setting.key, variable: setting.variable })
                }
                (Some(_), LocalModeExposure::Accepted)
                | (None, LocalModeExposure::Refused | LocalModeExposure::Accepted) => Ok(()),
            },
        }
    }

    fn check_oidc_conflicts(&self) -> Result<(), ConfigError> {
        if self.issuers.is_empty() {
            return Err(ConfigError::NoIssuer);
        }
        let Some(url) = &self.public_url else {
            return if self.bind.ip().is_loopback() { Ok(()) } else { Err(ConfigError::NoPublicUrl) };
        };
        let is_loopback = url.host_str().and_then(HostName::parse).is_some_and(|host| host.is_loopback());
        if url.scheme() == "http" && !is_loopback { Err(ConfigError::PlainPublicUrl) } else { Ok(()) }
    }

    /// The first configured setting that only a server behind a proxy needs.
    fn proxy_setting(&self) -> Option<&'static Setting> {
        let proxy_settings = [
            (&setting::TRUSTED_PROXIES, self.trusted_proxies != TrustedProxies::default()),
            (&setting::ALLOWED_HOSTS, !self.allowed_hosts.is_empty()),
            (&setting::PUBLIC_SCHEME, self.public_scheme != Scheme::Http),
        ];
        proxy_settings.into_iter().find_map(|(setting, is_set)| is_set.then_some(setting))
    }

    /// Renders a setting. Values that derive from other settings are shown as derived.
    fn render(&self, setting: &'static Setting, raw: &RawSettings) -> RenderedSetting {
        let (value, origin) = raw.display_text(setting);
        let value = match setting.key {
            key if key == setting::ARTIFACTS_URL.key => render_location(&self.artifacts, origin),
            key if key == setting::FACTS_URL.key => render_location(&self.checkpoint_archive, origin),
            key if key == setting::MIGRATE_DATABASE_URL.key => self.migrate_database.to_string(),
            key if key == setting::DATABASE_URL.key => self.database.to_string(),
            // Only the origin is shown, because path and query of a vault URL may contain a secret.
            key if key == setting::VAULT_ADDR.key => {
                self.vault.as_ref().map(|vault| vault.address.origin().ascii_serialization()).unwrap_or_default()
            }
            key if key == setting::RUNTIME_GATEWAY_URL.key => {
                let gateway = self.runtime_gateway.as_ref();
                gateway.map_or_else(|| "embedded".to_owned(), |gateway| gateway.address.origin().ascii_serialization())
            }
            _ => value,
        };
        RenderedSetting { key: setting.key, variable: setting.variable, value, origin }
    }
}

/// Renders a location without its path, which may contain a secret.
fn render_location(location: &Location, origin: SettingOrigin) -> String {
    match location {
        // A directory that derives from the data directory is shown, because the data directory is shown too.
        Location::Directory(_) if origin == SettingOrigin::Default => location.to_string(),
        Location::Directory(_) => "file://".to_owned(),
        Location::Bucket(bucket) => format!("s3://{}", bucket.bucket),
    }
}

#[cfg(test)]
mod tests;
