//! The composition root: binds an adapter to each port.

use crate::{
    app::OpenApiData,
    config::{AuthMode, GatewaySettings, Issuer, ProviderAccount, ProviderEndpoint, ProviderKind, Settings},
    execution::stream_limit::StreamLimiter,
    http::{
        HttpBase,
        authentication::{Authentication, CliClient},
        deprecation::DEPRECATIONS,
        load_shedding::LoadShedder,
        memory_budget::MemoryBudgets,
        paging::CursorKey,
        shutdown::ShutdownSignal,
    },
    metrics::Metrics,
    portal::Portal,
    runtime_info::ProviderPlugin,
    system_clock_and_ids::{SystemClock, SystemIds},
};
use anyhow::Context as _;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use fairway_artifacts::{Artifacts, CheckpointObjects};
use fairway_chunking::TextSplitter;
use fairway_document_fetcher::GuardedFetcher;
use fairway_domain::{
    access::{AccessStore, identity::IdentityProvider, sign_in::SignInProvider},
    asset::artifact_store::ArtifactStore,
    execution::{dispatch::DispatchPolicy, http_call::HttpCaller, provider::Provider, script::ScriptGateway},
    id::IdSource,
    redaction::Redactor,
    secret::{Secret, SecretReader},
    time::Clock,
    transparency_log::{CheckpointArchive, CheckpointSigner},
};
use fairway_egress::{Allowance, Guard, ServerMode};
use fairway_oidc::{OidcSignIn, SignInConfig, TokenVerifier};
use fairway_operations::{
    Failure, Gateways, Services, Settings as RunSettings, Stores,
    access::IdentityMode,
    execution::{run_recovery, run_review_expiry, run_worker},
    knowledge::KnowledgeSettings,
    notification::run_projector,
    transparency_log::run_tree_builder,
};
use fairway_postgres::{Database, DatabaseOptions, PostgresWakeupBus};
use fairway_providers::{Account, Accounts, Anthropic, Connection, LocalProvider, OpenAi};
use fairway_sandbox::{EmbeddedGateway, HttpGateway};
use fairway_secrets::{CheckpointKey, SecretSigner, SecretSources, Vault};
use fairway_tool_client::ToolClient;
use std::{sync::Arc, time::Duration};
use tokio::{sync::OnceCell, task::JoinSet};

/// Database connections of one worker thread. CPU cores are the bottleneck, so more connections only queue inside
/// PostgreSQL.
const CONNECTIONS_PER_WORKER: usize = 8;
/// Database connections of the background tasks.
const BACKGROUND_CONNECTIONS: usize = 2;

/// Context of the key that seals the state of sign-ins.
const SIGN_IN_CONTEXT: &str = "fairway 2026-11-27 sign-in state";

/// The state of handlers: the operations over the stores of this worker thread.
#[derive(Clone)]
pub struct Api {
    pub(crate) services: Services,
    pub(crate) mode: IdentityMode,
    /// How requests are authenticated; `None` in local mode.
    pub(crate) authentication: Option<Authentication>,
    pub(crate) metrics: Metrics,
    pub(crate) load_shedder: LoadShedder,
    /// The provider accounts, without credentials.
    pub(crate) provider_plugins: Arc<[ProviderPlugin]>,
    database: Database,
    cursor_key: Arc<OnceCell<CursorKey>>,
}

/// The dependencies of the service, and whether each of them is available.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) database: bool,
    pub(crate) artifacts: bool,
    pub(crate) partitions: bool,
}

impl Api {
    /// The key that seals cursors. It is stored in the database, so each process opens the cursors of the others. Read
    /// once.
    pub(crate) async fn cursor_key(&self) -> Result<CursorKey, Failure> {
        let read = async || self.database.cursor_key().await.map(CursorKey::new);
        Ok(*self.cursor_key.get_or_try_init(read).await?)
    }

    /// The key that seals the state of sign-ins. Every process of the installation has the same one.
    pub(crate) async fn sign_in_key(&self) -> Result<[u8; 32], Failure> {
        Ok(self.cursor_key().await?.derive(SIGN_IN_CONTEXT))
    }

    pub(crate) async fn readiness(&self) -> Readiness {
        let (partitions, artifacts) =
            futures_util::join!(self.database.has_partitions_ahead(), self.services.artifacts.ready());
        Readiness {
            database: partitions.is_ok(),
            artifacts: artifacts.is_ok(),
            partitions: partitions.unwrap_or(false),
        }
    }
}

/// Whether a process executes queued runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunWorkers {
    /// The process executes queued runs.
    Enabled,
    /// Other processes execute them.
    Disabled,
}

/// The parts of a process that all worker threads share.
#[derive(Clone)]
pub struct Process {
    url: String,
    access_decorator: Option<AccessStoreDecorator>,
    services: Services,
    background_database: Database,
    result_retention: Duration,
    max_waiting: usize,
    mode: IdentityMode,
    authentication: Option<Authentication>,
    dispatch: DispatchPolicy,
    metrics: Metrics,
    provider_plugins: Arc<[ProviderPlugin]>,
    cursor_key: Arc<OnceCell<CursorKey>>,
    shutdown: ShutdownSignal,
    /// Data derived from the OpenAPI document.
    pub openapi: OpenApiData,
}

/// A decorator around the store of role bindings.
pub type AccessStoreDecorator = Arc<dyn Fn(Arc<dyn AccessStore>) -> Arc<dyn AccessStore> + Send + Sync>;

/// The adapters behind the ports; tests replace them.
#[derive(Clone)]
pub struct Adapters {
    /// Decorates the store of role bindings; `None` outside tests.
    pub access_decorator: Option<AccessStoreDecorator>,
    /// Stores artifacts.
    pub artifacts: Arc<dyn ArtifactStore>,
    /// Keeps published checkpoints outside the database.
    pub checkpoint_archive: Arc<dyn CheckpointArchive>,
    /// Signs checkpoints.
    pub checkpoint_signer: Arc<dyn CheckpointSigner>,
    /// Calls model providers.
    pub provider: Arc<dyn Provider>,
    /// Calls the URLs of tools and hooks.
    pub http_caller: Arc<dyn HttpCaller>,
    /// Executes scripts.
    pub code_gateway: Arc<dyn ScriptGateway>,
    /// Verifies access tokens; `None` in local mode.
    pub identity_provider: Option<Arc<dyn IdentityProvider>>,
    /// Signs people in with browsers; `None` if no issuer is configured for that.
    pub sign_in: Option<Arc<dyn SignInProvider>>,
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// The source of identifiers.
    pub ids: Arc<dyn IdSource>,
}

impl Adapters {
    /// Creates the adapters that the settings select.
    ///
    /// # Errors
    /// When the artifact store, a provider account, the vault or the runtime gateway cannot be set up.
    pub fn of(settings: &Settings) -> anyhow::Result<Self> {
        let guard = egress_guard(settings);
        warn_of_open_ports(&settings.egress_allow);
        let secrets = secrets(settings, &guard).context("failed to set up the sources of secrets")?;
        let mut accounts: Vec<(String, Arc<dyn Provider>)> = Vec::new();
        for account in &settings.providers {
            let provider = provider(account, &guard, &secrets)
                .with_context(|| format!("failed to set up the provider account `{}`", account.account_slot))?;
            accounts.push((account.account_slot.clone(), provider));
        }
        Ok(Self {
            access_decorator: None,
            artifacts: Arc::new(Artifacts::open(&settings.artifacts).context("failed to open the artifact store")?),
            checkpoint_archive: Arc::new(
                CheckpointObjects::open(&settings.facts).context("failed to open the checkpoint archive")?,
            ),
            checkpoint_signer: checkpoint_signer(settings, &secrets),
            provider: Arc::new(Accounts::new(accounts)),
            code_gateway: gateway(settings, &guard)?,
            sign_in: sign_in(settings, &guard, &secrets)?,
            http_caller: Arc::new(ToolClient::new(guard.clone(), secrets)),
            identity_provider: identity_provider(settings, &guard)?,
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
        })
    }
}

/// The signer of checkpoints. Without a configured key, it generates one in the data directory.
fn checkpoint_signer(settings: &Settings, secrets: &Arc<dyn SecretReader>) -> Arc<dyn CheckpointSigner> {
    let current = settings.checkpoint_key.clone().map_or_else(
        || CheckpointKey::GeneratedFile(settings.data_dir.join("checkpoint.key")),
        CheckpointKey::Reference,
    );
    let generate = || Secret::new(BASE64_STANDARD.encode(SystemIds.secret()));
    Arc::new(SecretSigner::new(Arc::clone(secrets), current, settings.checkpoint_previous_key.clone(), generate))
}

/// The runtime gateway: the embedded sandbox, unless the settings name an external gateway.
fn gateway(settings: &Settings, guard: &Guard) -> anyhow::Result<Arc<dyn ScriptGateway>> {
    match &settings.runtime_gateway {
        None => Ok(Arc::new(EmbeddedGateway::new())),
        Some(GatewaySettings { address, token }) => {
            let gateway = HttpGateway::new(guard, address.as_str()).context("failed to set up the runtime gateway")?;
            let gateway = match token {
                Some(token) => {
                    let token = Secret::new(token.expose().to_owned());
                    gateway.with_token(&token).context("failed to set up the runtime gateway")?
                }
                None => gateway,
            };
            Ok(Arc::new(gateway))
        }
    }
}

/// The verifier of access tokens, in OIDC mode.
fn identity_provider(settings: &Settings, guard: &Guard) -> anyhow::Result<Option<Arc<dyn IdentityProvider>>> {
    match settings.auth_mode {
        AuthMode::Local => Ok(None),
        AuthMode::Oidc => {
            let issuers = settings.issuers.iter().map(|issuer| issuer.config.clone()).collect();
            let verifier = TokenVerifier::new(guard, Arc::new(SystemClock), issuers);
            Ok(Some(Arc::new(verifier.context("failed to set up the identity providers")?)))
        }
    }
}

/// The sign-in of browsers, if an issuer has a client for the portal.
fn sign_in(
    settings: &Settings,
    guard: &Guard,
    secrets: &Arc<dyn SecretReader>,
) -> anyhow::Result<Option<Arc<dyn SignInProvider>>> {
    let of_issuer = |issuer: &Issuer| {
        let client = issuer.client.clone()?;
        Some(SignInConfig {
            issuer: issuer.config.clone(),
            name: issuer.name.clone(),
            client_id: client.client_id,
            secret_ref: client.secret_ref,
            scopes: issuer.scopes.clone(),
        })
    };
    let configs: Vec<SignInConfig> = settings.issuers.iter().filter_map(of_issuer).collect();
    if configs.is_empty() {
        return Ok(None);
    }
    let sign_in = OidcSignIn::new(guard, Arc::new(SystemClock), Arc::clone(secrets), configs);
    Ok(Some(Arc::new(sign_in.context("failed to set up the sign-in")?)))
}

/// The client of the command line at the first issuer.
fn cli_client(settings: &Settings) -> Option<CliClient> {
    settings.issuers.first().map(|issuer| CliClient {
        issuer: issuer.config.rules.issuer.clone(),
        client_id: issuer.cli_client_id.clone(),
        scopes: issuer.scopes.clone(),
    })
}

/// The identity mode of the operations.
pub(crate) const fn identity_mode(settings: &Settings) -> IdentityMode {
    match settings.auth_mode {
        AuthMode::Local => IdentityMode::Local,
        AuthMode::Oidc => IdentityMode::Oidc,
    }
}

/// Logs each egress allowance without a port: it also opens databases and consoles on the same host.
fn warn_of_open_ports(allowances: &[Allowance]) {
    for allowance in allowances.iter().filter(|allowance| allowance.port.is_none()) {
        tracing::warn!(
            %allowance,
            setting = "FAIRWAY_EGRESS_ALLOW",
            "egress allowance without `:port` opens every port of its target; name the port"
        );
    }
}

/// The egress guard: the targets that requests of this server may reach.
pub(crate) fn egress_guard(settings: &Settings) -> Guard {
    let mode = match settings.auth_mode {
        AuthMode::Local => ServerMode::Local,
        AuthMode::Oidc => ServerMode::Remote,
    };
    Guard::new(mode, settings.egress_allow.clone())
}

pub(crate) fn secrets(settings: &Settings, guard: &Guard) -> anyhow::Result<Arc<dyn SecretReader>> {
    let vault = settings.vault.as_ref().map(|vault| {
        let token = Secret::new(vault.token.expose().to_owned());
        Vault::new(guard, vault.address.as_str(), &token)
    });
    Ok(Arc::new(SecretSources::new(settings.secrets_dir.clone(), vault.transpose()?)))
}

pub(crate) fn provider(
    account: &ProviderAccount,
    guard: &Guard,
    secrets: &Arc<dyn SecretReader>,
) -> anyhow::Result<Arc<dyn Provider>> {
    let connection = |endpoint: &ProviderEndpoint| {
        let key = endpoint.secret_ref.clone().map(|reference| (Arc::clone(secrets), reference));
        Connection::new(&account.account_slot, guard, &endpoint.base_url, endpoint.timeout, key)
    };
    let provider: Arc<dyn Provider> = match &account.kind {
        ProviderKind::Local => Arc::new(LocalProvider),
        ProviderKind::OpenAi(endpoint) => Arc::new(OpenAi::new(connection(endpoint)?, &endpoint.base_url)),
        ProviderKind::Anthropic(endpoint) => Arc::new(Anthropic::new(connection(endpoint)?, &endpoint.base_url)),
    };
    let account = Account::new(provider)
        .with_residency(account.residency.clone())
        .with_max_calls(account.concurrency)
        .with_prices(account.prices.clone());
    Ok(Arc::new(account))
}

/// The provider accounts that callers can list. The built-in `local` account is included, unless the settings name it.
fn provider_plugins(accounts: &[ProviderAccount]) -> Arc<[ProviderPlugin]> {
    let always = ProviderAccount::LOCAL;
    let is_named = accounts.iter().any(|account| account.account_slot == always);
    let implied = ProviderPlugin { account_slot: always.to_owned(), kind: always };
    (!is_named).then_some(implied).into_iter().chain(accounts.iter().map(provider_plugin)).collect()
}

fn provider_plugin(account: &ProviderAccount) -> ProviderPlugin {
    let kind = match &account.kind {
        ProviderKind::Local => "local",
        ProviderKind::OpenAi(_) => "openai",
        ProviderKind::Anthropic(_) => "anthropic",
    };
    ProviderPlugin { account_slot: account.account_slot.clone(), kind }
}

fn stores(database: &Database, access: Option<&AccessStoreDecorator>) -> Stores {
    let shared = Arc::new(database.clone());
    let bindings: Arc<dyn AccessStore> = shared.clone();
    Stores {
        tenants: shared.clone(),
        workspaces: shared.clone(),
        environments: shared.clone(),
        access: access.map_or_else(|| Arc::clone(&bindings), |layer| layer(Arc::clone(&bindings))),
        principal_bindings: shared.clone(),
        identities: shared.clone(),
        sessions: shared.clone(),
        assets: shared.clone(),
        versions: shared.clone(),
        asset_grants: shared.clone(),
        impact: shared.clone(),
        documents: shared.clone(),
        index_revisions: shared.clone(),
        chunk_search: shared.clone(),
        contract_revocations: shared.clone(),
        memory: shared.clone(),
        artifact_index: shared.clone(),
        workloads: shared.clone(),
        share_links: shared.clone(),
        rate_limits: shared.clone(),
        releases: shared.clone(),
        deployments: shared.clone(),
        recommendations: shared.clone(),
        rollouts: shared.clone(),
        executions: shared.clone(),
        usage: shared.clone(),
        runs: shared.clone(),
        leases: shared.clone(),
        reviews: shared.clone(),
        resolutions: shared.clone(),
        audit: shared.clone(),
        inboxes: shared.clone(),
        preferences: shared.clone(),
        suppressed_decisions: shared.clone(),
        projections: shared.clone(),
        log_trees: shared.clone(),
        idempotency: shared,
    }
}

impl Process {
    /// Builds a process over a migrated database at `url`.
    ///
    /// # Errors
    /// When the database URL is invalid.
    pub fn new(settings: &Settings, url: String, parts: Adapters) -> anyhow::Result<Self> {
        let result_retention = settings.result_retention;
        let options = DatabaseOptions { url: url.clone(), connections: BACKGROUND_CONNECTIONS, result_retention };
        let relays = Database::new(&options)?;
        let mode = identity_mode(settings);
        let runs = RunSettings {
            sync_wait: settings.sync_wait,
            execution_deadline: settings.execution_deadline,
            lease: settings.worker_lease,
            dispatch: settings.dispatch,
            queue_cap: settings.queue_cap,
            review_deadline: settings.review_deadline,
            generator: settings.generator,
            identity: mode,
            delegating_clients: settings.internal_clients.clone(),
            bootstrap_admins: settings.bootstrap_admins.clone(),
            session_lifetime: settings.session_lifetime,
            operator_hosts: settings.operator_hosts(),
            public_rate: settings.public_rate,
            redactor: Arc::new(Redactor::new(&settings.national_ids)),
            knowledge: KnowledgeSettings {
                splitter: Arc::new(TextSplitter),
                fetcher: Arc::new(GuardedFetcher::new(egress_guard(settings))),
                embedding: settings.embedding_model.clone(),
            },
            log_origin: settings.log_origin.clone(),
        };
        let Adapters {
            access_decorator: access,
            artifacts,
            checkpoint_archive,
            checkpoint_signer,
            provider,
            http_caller: outward,
            code_gateway: gateway,
            identity_provider,
            sign_in,
            clock,
            ids,
        } = parts;
        let base_url = settings.base_url();
        let authentication = identity_provider
            .map(|provider| {
                let issuers = settings.issuers.iter().map(|issuer| issuer.config.rules.issuer.clone()).collect();
                let authentication = Authentication::new(provider, &base_url, issuers, settings.session_lifetime)?;
                anyhow::Ok(authentication.with_sign_in(sign_in, cli_client(settings)))
            })
            .transpose()?;
        let metrics = Metrics::new()?;
        let run_observer = Arc::new(metrics.runs().clone());
        let gateways = Gateways {
            artifacts,
            checkpoint_archive,
            checkpoint_signer,
            provider,
            http_caller: outward,
            code_gateway: gateway,
            run_observer,
            clock,
            ids,
        };
        let services = Services::new(stores(&relays, access.as_ref()), gateways, runs);
        Ok(Self {
            url,
            access_decorator: access,
            services,
            background_database: relays,
            result_retention,
            max_waiting: settings.waiting_line,
            mode,
            authentication,
            dispatch: settings.dispatch,
            metrics,
            provider_plugins: provider_plugins(&settings.providers),
            cursor_key: Arc::default(),
            shutdown: ShutdownSignal::default(),
            openapi: OpenApiData::new()?,
        })
    }

    /// The shared data of the middlewares.
    #[must_use]
    pub fn http_base(&self, settings: &Settings) -> HttpBase {
        HttpBase {
            metrics: self.metrics.clone(),
            site_rules: settings.site_rules(),
            public_scheme: settings.scheme(),
            trusted_proxies: settings.trusted_proxies.clone(),
            embed_policy: settings.embed_policy.clone(),
            portal: Portal::embedded(),
            memory_budgets: MemoryBudgets::default(),
            body_timeout: settings.body_timeout,
            known_methods: self.openapi.known_methods.clone(),
            known_queries: self.openapi.known_queries.clone(),
            deprecations: DEPRECATIONS,
            stream_limiter: StreamLimiter::default(),
            shutdown: self.shutdown.clone(),
        }
    }

    /// The `Api` of one worker thread: its own database connections, everything else shared.
    ///
    /// # Errors
    /// When the database URL is invalid.
    pub fn worker_api(&self) -> anyhow::Result<Api> {
        let options = DatabaseOptions {
            url: self.url.clone(),
            connections: CONNECTIONS_PER_WORKER,
            result_retention: self.result_retention,
        };
        let database = Database::new(&options)?;
        self.metrics.watch_database(database.in_flight().clone());
        Ok(Api {
            services: self.services.sharing_caches_over(stores(&database, self.access_decorator.as_ref())),
            mode: self.mode,
            authentication: self.authentication.clone(),
            metrics: self.metrics.clone(),
            load_shedder: LoadShedder::new(database.in_flight().clone(), self.max_waiting),
            provider_plugins: Arc::clone(&self.provider_plugins),
            database,
            cursor_key: Arc::clone(&self.cursor_key),
        })
    }

    /// Starts the background tasks of a server; dropping the set aborts them.
    ///
    /// # Errors
    /// When the database URL is invalid.
    pub fn start_background_tasks(&self, works: RunWorkers) -> anyhow::Result<JoinSet<()>> {
        let mut relays = self.start_worker(works)?;
        let log = Arc::new(self.background_database.clone());
        let builder = self.services.tree_builder(log.clone());
        relays.spawn(fairway_operations::audit::run_sequencer(log, self.services.sequencer_wakeup()));
        let projector = Arc::clone(&self.services.projector);
        relays.spawn(run_projector(projector, self.services.sequencer_wakeup()));
        relays.spawn(run_tree_builder(builder));
        relays.spawn(fairway_operations::release::run_rollback_advisor(Arc::clone(&self.services.releases)));
        relays.spawn(fairway_operations::retention::run_retention(self.services.clone()));
        relays.spawn(run_review_expiry(Arc::clone(&self.services.reviews)));
        Ok(relays)
    }

    /// Starts the background tasks that execute runs, over their own connections; dropping the set aborts them.
    ///
    /// # Errors
    /// When the database URL is invalid.
    pub fn start_worker(&self, works: RunWorkers) -> anyhow::Result<JoinSet<()>> {
        let mut relays = JoinSet::new();
        let line = Arc::new(PostgresWakeupBus::new(self.url.clone()));
        let services = self.services.clone();
        relays.spawn(async move { services.exchange_wakeups(line).await });
        // Recovery ends the scripts of dead processes in every process. Workers resume all other runs.
        relays.spawn(run_recovery(Arc::clone(&self.services.run_recovery)));
        if self.dispatch.has_workers() && works == RunWorkers::Enabled {
            let options = DatabaseOptions {
                url: self.url.clone(),
                connections: CONNECTIONS_PER_WORKER,
                result_retention: self.result_retention,
            };
            let database = Database::new(&options)?;
            self.metrics.watch_database(database.in_flight().clone());
            let services = self.services.sharing_caches_over(stores(&database, self.access_decorator.as_ref()));
            relays.spawn(run_worker(services.run_worker));
        }
        Ok(relays)
    }

    /// The signal that announces the shutdown to all responding tasks.
    #[must_use]
    pub const fn shutdown_signal(&self) -> &ShutdownSignal {
        &self.shutdown
    }

    /// The metrics of this process.
    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The operations over the connections of the background tasks.
    #[must_use]
    pub const fn services(&self) -> &Services {
        &self.services
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maximum connections of a pool with this size.
    fn max_connections(connections: usize) -> usize {
        DatabaseOptions { url: String::new(), connections, result_retention: Duration::ZERO }.max_connections()
    }

    #[test]
    fn scaling_manual_states_connection_counts() {
        let manual = include_str!("../../../docs/operations/scaling.md").replace('\n', " ");
        let (worker, relays, signals) =
            (max_connections(CONNECTIONS_PER_WORKER), max_connections(BACKGROUND_CONNECTIONS), 2);
        for sentence in [
            format!(
                "up to {worker} connections for each processor, {relays} for its background work, {signals} for signals"
            ),
            format!("and {worker} for the runs that it works on"),
            format!("A worker takes up to {}.", worker + relays + signals),
        ] {
            assert!(manual.contains(&sentence), "{sentence}");
        }
    }
}
