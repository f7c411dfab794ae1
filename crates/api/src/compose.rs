//! The composition root: binds an adapter to each port.

mod adapters;
mod error;

use crate::{
    app::ServedOpenApi,
    config::Settings,
    http::{
        HttpState, authentication::Authenticator, deprecation::DEPRECATIONS, load_shedding::LoadShedder,
        memory_budget::MemoryBudgets, paging::CursorSealKey, shutdown_signal::ShutdownFlag,
        stream_limit::StreamLimiter,
    },
    metrics::Metrics,
    portal::Portal,
    release::active_release_body_cache::ActiveReleaseBodyCache,
    runtime_info::ProviderPlugin,
};
pub use adapters::{AccessStoreDecorator, Adapters};
use adapters::{cli_clients, identity_mode, provider_plugins};
pub(crate) use adapters::{egress_guard, provider, secret_reader};
pub use error::{AdapterError, ComposeError};
use fairway_chunking::TextSplitter;
use fairway_document_fetcher::GuardedFetcher;
use fairway_domain::{
    access::{AccessStore, identity::IdentityProvider, sign_in_provider::SignInProvider},
    clock::Clock,
    execution::dispatch::DispatchPolicy,
    redaction::Redactor,
};
use fairway_operations::{
    Failure, NonStorePorts, Services, Settings as RunSettings, Stores,
    access::IdentityMode,
    execution::{run_recovery, run_review_endings, run_worker},
    knowledge::KnowledgeAdapters,
    notification::{run_backlog_meter, run_notification_sender, run_projector},
    transparency_log::run_tree_builder,
};
use fairway_postgres::{Database, DatabaseOptions, PostgresWakeupBus};
use std::{sync::Arc, time::Duration};
use tokio::{sync::OnceCell, task::JoinSet};

/// Database connections of one worker thread. CPU cores are the bottleneck, so more connections only queue inside
/// PostgreSQL.
const CONNECTIONS_PER_WORKER: usize = 8;
/// Database connections of the background tasks.
const BACKGROUND_CONNECTIONS: usize = 2;

/// Key derivation context for the key that seals the state of sign-ins.
const SIGN_IN_CONTEXT: &str = "fairway 2026-11-27 sign-in state";

/// The state of handlers: the operations, with the stores of this worker thread.
#[derive(Clone)]
pub struct Api {
    pub(crate) services: Services,
    pub(crate) mode: IdentityMode,
    /// Authentication of requests; `None` in local mode.
    pub(crate) authentication: Option<Authenticator>,
    pub(crate) metrics: Metrics,
    pub(crate) load_shedder: LoadShedder,
    /// The provider accounts, without credentials.
    pub(crate) provider_plugins: Arc<[ProviderPlugin]>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Response bodies of active releases, shared by all worker threads.
    pub(crate) active_release_body_cache: ActiveReleaseBodyCache,
    database: Database,
    cursor_seal_key: Arc<OnceCell<CursorSealKey>>,
}

/// The dependencies of the service, and whether each of them is available.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) database: bool,
    pub(crate) artifacts: bool,
    pub(crate) partitions: bool,
}

impl Api {
    /// The key that seals pagination cursors. The database stores the key, so each process accepts the cursors of
    /// all processes. It is read once.
    pub(crate) async fn cursor_seal_key(&self) -> Result<CursorSealKey, Failure> {
        let read_key = async || self.database.cursor_seal_key().await.map(CursorSealKey::new);
        Ok(*self.cursor_seal_key.get_or_try_init(read_key).await?)
    }

    /// The key that seals the state of sign-ins. All processes of the installation derive the same key.
    pub(crate) async fn sign_in_key(&self) -> Result<[u8; 32], Failure> {
        Ok(self.cursor_seal_key().await?.derive(SIGN_IN_CONTEXT))
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

/// The optional background tasks of a server. If a task is off, another process on the same database performs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EnabledBackgroundTasks {
    /// Whether the server executes queued runs.
    pub executes_runs: bool,
    /// Whether the server projects facts to notifications, and delivers them.
    pub sends_notifications: bool,
    /// Whether the server adds sequenced facts to the transparency log, and signs checkpoints.
    pub builds_tree: bool,
    /// Whether the server carries out approved erasures.
    pub erases_texts: bool,
}

impl Default for EnabledBackgroundTasks {
    fn default() -> Self {
        Self { executes_runs: true, sends_notifications: true, builds_tree: true, erases_texts: true }
    }
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
    authentication: Option<Authenticator>,
    clock: Arc<dyn Clock>,
    dispatch: DispatchPolicy,
    metrics: Metrics,
    provider_plugins: Arc<[ProviderPlugin]>,
    active_release_body_cache: ActiveReleaseBodyCache,
    cursor_seal_key: Arc<OnceCell<CursorSealKey>>,
    shutdown: ShutdownFlag,
    /// Data derived from the OpenAPI document.
    pub openapi: ServedOpenApi,
}

/// Converts the server's settings to those of the operations.
fn run_settings(settings: &Settings) -> RunSettings {
    RunSettings {
        sync_wait: settings.sync_wait,
        execution_deadline: settings.execution_deadline,
        lease: settings.worker_lease,
        dispatch: settings.dispatch,
        queue_cap: settings.queue_cap,
        review_deadline: settings.review_deadline,
        generator: settings.generator,
        identity: identity_mode(settings),
        delegating_clients: settings.internal_clients.clone(),
        bootstrap_admins: settings.bootstrap_admins.clone(),
        session_lifetime: settings.session_lifetime,
        operator_hosts: settings.reserved_hosts(),
        public_rate: settings.public_rate,
        redactor: Arc::new(Redactor::new(&settings.national_ids)),
        knowledge: KnowledgeAdapters {
            splitter: Arc::new(TextSplitter),
            fetcher: Arc::new(GuardedFetcher::new(egress_guard(settings))),
            embedding: settings.embedding_model.clone(),
        },
        log_origin: settings.log_origin.clone(),
    }
}

/// Creates the authentication of requests in OIDC mode; `None` in local mode.
fn authentication(
    settings: &Settings,
    provider: Option<Arc<dyn IdentityProvider>>,
    sign_in: Option<Arc<dyn SignInProvider>>,
) -> Result<Option<Authenticator>, ComposeError> {
    let Some(provider) = provider else { return Ok(None) };
    let issuers = settings.issuers.iter().map(|issuer| issuer.config.rules.issuer.clone()).collect();
    let authentication = Authenticator::new(provider, &settings.base_url(), issuers, settings.session_lifetime)?;
    Ok(Some(authentication.with_sign_in(sign_in, cli_clients(settings))))
}

fn stores(database: &Database, access: Option<&AccessStoreDecorator>) -> Stores {
    let shared = Arc::new(database.clone());
    let bindings: Arc<dyn AccessStore> = shared.clone();
    Stores {
        tenants: shared.clone(),
        workspaces: shared.clone(),
        environments: shared.clone(),
        erasures: shared.clone(),
        access: access.map_or_else(|| Arc::clone(&bindings), |decorator| decorator(Arc::clone(&bindings))),
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
        artifact_maintenance: shared.clone(),
        workloads: shared.clone(),
        share_links: shared.clone(),
        connections: shared.clone(),
        connection_tasks: shared.clone(),
        access_requests: shared.clone(),
        use_cases: shared.clone(),
        rate_limits: shared.clone(),
        releases: shared.clone(),
        deployments: shared.clone(),
        release_evidence: shared.clone(),
        serving_releases: shared.clone(),
        recommendations: shared.clone(),
        rollouts: shared.clone(),
        executions: shared.clone(),
        events: shared.clone(),
        usage: shared.clone(),
        runs: shared.clone(),
        leases: shared.clone(),
        reviews: shared.clone(),
        resolutions: shared.clone(),
        audit: shared.clone(),
        inboxes: shared.clone(),
        preferences: shared.clone(),
        destinations: shared.clone(),
        deliveries: shared.clone(),
        notification_backlog: shared.clone(),
        outbox: shared.clone(),
        notification_profiles: shared.clone(),
        announcements: shared.clone(),
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
    pub fn new(settings: &Settings, url: String, adapters: Adapters) -> Result<Self, ComposeError> {
        let result_retention = settings.result_retention;
        let options = DatabaseOptions { url: url.clone(), connections: BACKGROUND_CONNECTIONS, result_retention };
        let background_database = Database::new(&options)?;
        let mode = identity_mode(settings);
        let runs = run_settings(settings);
        let Adapters {
            access_decorator,
            artifacts,
            checkpoint_archive,
            checkpoint_signer,
            witnesses,
            provider,
            http_caller,
            endpoint_probe,
            message_sender,
            code_gateway,
            identity_provider,
            sign_in,
            clock,
            ids,
        } = adapters;
        let authentication = authentication(settings, identity_provider, sign_in)?;
        let metrics = Metrics::new()?;
        let run_metrics_observer = Arc::new(metrics.runs().clone());
        let notification_observer = Arc::new(metrics.notifications().clone());
        let gateways = NonStorePorts {
            artifacts,
            checkpoint_archive,
            checkpoint_signer,
            witnesses,
            provider,
            http_caller,
            endpoint_probe,
            message_sender,
            code_gateway,
            run_metrics_observer,
            notification_observer,
            clock: Arc::clone(&clock),
            ids,
        };
        let services = Services::new(stores(&background_database, access_decorator.as_ref()), gateways, runs);
        Ok(Self {
            url,
            access_decorator,
            services,
            background_database,
            result_retention,
            max_waiting: settings.max_waiting_requests,
            mode,
            authentication,
            clock,
            dispatch: settings.dispatch,
            metrics,
            provider_plugins: provider_plugins(&settings.providers),
            active_release_body_cache: ActiveReleaseBodyCache::new(),
            cursor_seal_key: Arc::default(),
            shutdown: ShutdownFlag::default(),
            openapi: ServedOpenApi::new()?,
        })
    }

    /// The shared data of the middlewares.
    #[must_use]
    pub fn http_state(&self, settings: &Settings) -> HttpState {
        HttpState {
            metrics: self.metrics.clone(),
            site_rules: settings.host_rules(),
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
            inbox_stream_lifetime: settings.inbox_stream_lifetime,
            shutdown: self.shutdown.clone(),
        }
    }

    /// Creates the `Api` of one worker thread. It has database connections of its own and shares everything else.
    ///
    /// # Errors
    /// When the database URL is invalid.
    pub fn worker_thread_api(&self) -> Result<Api, ComposeError> {
        let options = DatabaseOptions {
            url: self.url.clone(),
            connections: CONNECTIONS_PER_WORKER,
            result_retention: self.result_retention,
        };
        let database = Database::new(&options)?;
        self.metrics.watch_statements_in_flight(database.statements_in_flight().clone());
        Ok(Api {
            services: self.services.clone_with_stores(stores(&database, self.access_decorator.as_ref())),
            mode: self.mode,
            authentication: self.authentication.clone(),
            metrics: self.metrics.clone(),
            load_shedder: LoadShedder::new(database.statements_in_flight().clone(), self.max_waiting),
            provider_plugins: Arc::clone(&self.provider_plugins),
            clock: Arc::clone(&self.clock),
            active_release_body_cache: self.active_release_body_cache.clone(),
            database,
            cursor_seal_key: Arc::clone(&self.cursor_seal_key),
        })
    }

    /// Starts the background tasks of a server; dropping the set aborts them.
    ///
    /// # Errors
    /// When the database URL is invalid.
    pub fn start_background_tasks(&self, tasks: EnabledBackgroundTasks) -> Result<JoinSet<()>, ComposeError> {
        let mut background_tasks = self.start_recovery_and_worker(tasks.executes_runs)?;
        let log = Arc::new(self.background_database.clone());
        let builder = self.services.tree_builder(log.clone());
        background_tasks.spawn(fairway_operations::audit::run_sequencer(log, self.services.fact_wakeups()));
        if tasks.sends_notifications {
            let projector = Arc::clone(&self.services.projector);
            background_tasks.spawn(run_projector(projector, self.services.fact_wakeups()));
            background_tasks.spawn(run_notification_sender(Arc::clone(&self.services.notification_sender)));
            background_tasks.spawn(run_backlog_meter(Arc::clone(&self.services.backlog_meter)));
        }
        if tasks.builds_tree {
            background_tasks.spawn(run_tree_builder(builder));
        }
        if tasks.erases_texts {
            background_tasks.spawn(fairway_operations::erasure::run_erasures(Arc::clone(&self.services.erasures)));
        }
        background_tasks.spawn(fairway_operations::release::run_rollback_advisor(Arc::clone(&self.services.releases)));
        background_tasks.spawn(fairway_operations::retention::run_retention(self.services.clone()));
        background_tasks.spawn(run_review_endings(Arc::clone(&self.services.reviews)));
        background_tasks
            .spawn(fairway_operations::connection::run_expiry_notices(Arc::clone(&self.services.connections)));
        background_tasks
            .spawn(fairway_operations::connection::run_connection_checks(Arc::clone(&self.services.connections)));
        Ok(background_tasks)
    }

    /// Starts the background tasks that execute runs, with database connections of their own; dropping the set
    /// aborts them. Without `executes_runs` they only end the runs of dead processes.
    ///
    /// # Errors
    /// When the database URL is invalid.
    pub fn start_recovery_and_worker(&self, executes_runs: bool) -> Result<JoinSet<()>, ComposeError> {
        let mut background_tasks = JoinSet::new();
        let wakeup_bus = Arc::new(PostgresWakeupBus::new(self.url.clone()));
        let services = self.services.clone();
        background_tasks.spawn(async move { services.exchange_wakeups(wakeup_bus).await });
        // Every process ends the script runs of dead processes (recovery). Workers resume all other runs.
        background_tasks.spawn(run_recovery(Arc::clone(&self.services.run_recovery)));
        if self.dispatch.has_workers() && executes_runs {
            let options = DatabaseOptions {
                url: self.url.clone(),
                connections: CONNECTIONS_PER_WORKER,
                result_retention: self.result_retention,
            };
            let database = Database::new(&options)?;
            self.metrics.watch_statements_in_flight(database.statements_in_flight().clone());
            let services = self.services.clone_with_stores(stores(&database, self.access_decorator.as_ref()));
            background_tasks.spawn(run_worker(services.run_worker));
        }
        Ok(background_tasks)
    }

    /// The signal that announces the shutdown to all tasks that send responses.
    #[must_use]
    pub const fn shutdown_flag(&self) -> &ShutdownFlag {
        &self.shutdown
    }

    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The operations over the connections of the background tasks.
    #[must_use]
    pub const fn background_pool_services(&self) -> &Services {
        &self.services
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maximum number of database connections of a pool with this setting.
    fn max_connections(connections: usize) -> usize {
        DatabaseOptions { url: String::new(), connections, result_retention: Duration::ZERO }.max_total_connections()
    }

    #[test]
    fn scaling_manual_states_connection_counts() {
        let manual = include_str!("../../../docs/operations/scaling.md").replace('\n', " ");
        let (worker, tasks, signals) =
            (max_connections(CONNECTIONS_PER_WORKER), max_connections(BACKGROUND_CONNECTIONS), 2);
        for sentence in [
            format!(
                "up to {worker} connections for each processor, {tasks} for its background work, {signals} for signals"
            ),
            format!("and {worker} for the runs that it works on"),
            format!("A worker takes up to {}.", worker + tasks + signals),
        ] {
            assert!(manual.contains(&sentence), "{sentence}");
        }
    }
}
