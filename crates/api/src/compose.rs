//! The composition root: which adapter stands behind which port.

use crate::{
    app::Documents,
    config::{AuthMode, GatewaySettings, ProviderAccount, ProviderEndpoint, ProviderKind, Settings},
    execution::crowd::Crowd,
    http::{
        HttpBase, admission::Admission, deprecation::DEPRECATIONS, leaving::Leaving, memory::MemoryBudgets,
        paging::CursorKey,
    },
    metrics::Metrics,
    system::{SystemClock, SystemIds},
    tool::ProviderPlugin,
};
use anyhow::Context as _;
use fairway_artifacts::Artifacts;
use fairway_calling::GuardedCaller;
use fairway_domain::{
    access::AccessStore,
    asset::ports::ArtifactStore,
    execution::{code::CodeGateway, dispatch::Dispatch, outward::Outward, provider::Provider},
    id::Ids,
    redaction::Redactor,
    secret::{Secret, Secrets},
    time::Clock,
};
use fairway_egress::{Allowance, Guard, Reach};
use fairway_fetching::GuardedFetcher;
use fairway_operations::{
    Failure, Services, Settings as RunSettings, Stores,
    access::IdentityMode,
    execution::{close_reviews_forever, recover_forever, work_until_stopped},
    knowledge::KnowledgeSettings,
};
use fairway_postgres::{Database, DatabaseOptions, PostgresLine};
use fairway_providers::{Account, Accounts, Anthropic, Connection, Local, OpenAi};
use fairway_sandbox::{Embedded, External};
use fairway_secrets::{Places, Vault};
use fairway_splitting::Splitting;
use std::{sync::Arc, time::Duration};
use tokio::{sync::OnceCell, task::JoinSet};

/// Connections of one worker thread. More of them only queue inside PostgreSQL: the machine's cores are what is short.
const CONNECTIONS_PER_WORKER: usize = 8;
/// Connections of the relays.
const RELAY_CONNECTIONS: usize = 2;

/// What handlers work with: operations over the stores of this worker thread.
#[derive(Clone)]
pub struct Api {
    pub(crate) services: Services,
    pub(crate) mode: IdentityMode,
    pub(crate) metrics: Metrics,
    pub(crate) admission: Admission,
    /// Who can be asked, without what opens it.
    pub(crate) providers: Arc<[ProviderPlugin]>,
    database: Database,
    cursor_key: Arc<OnceCell<CursorKey>>,
}

/// What the service needs, and whether it is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) database: bool,
    pub(crate) artifacts: bool,
    pub(crate) partitions: bool,
}

impl Api {
    /// What cursors are sealed with: the database's, so that all processes open each other's. Read once.
    pub(crate) async fn cursor_key(&self) -> Result<CursorKey, Failure> {
        let read = async || self.database.cursor_key().await.map(CursorKey::new);
        Ok(*self.cursor_key.get_or_try_init(read).await?)
    }

    pub(crate) async fn readiness(&self) -> Readiness {
        let (partitions, artifacts) =
            futures_util::join!(self.database.partitions_reach_far(), self.services.artifacts_ready());
        Readiness {
            database: partitions.is_ok(),
            artifacts: artifacts.is_ok(),
            partitions: partitions.unwrap_or(false),
        }
    }
}

/// Whether a process works on runs that wait in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Works {
    /// It does.
    Yes,
    /// Other processes do.
    No,
}

/// What a process is made of before its workers start.
#[derive(Clone)]
pub struct Process {
    url: String,
    access: Option<AccessLayer>,
    services: Services,
    relays: Database,
    result_retention: Duration,
    waiting_line: usize,
    mode: IdentityMode,
    dispatch: Dispatch,
    metrics: Metrics,
    providers: Arc<[ProviderPlugin]>,
    cursor_key: Arc<OnceCell<CursorKey>>,
    leaving: Leaving,
    /// What is made of the OpenAPI document.
    pub documents: Documents,
}

/// What stands between the operations and the store of role bindings.
pub type AccessLayer = Arc<dyn Fn(Arc<dyn AccessStore>) -> Arc<dyn AccessStore> + Send + Sync>;

/// Parts that tests replace.
#[derive(Clone)]
pub struct Parts {
    /// Which rights the bindings give; nothing outside tests.
    pub access: Option<AccessLayer>,
    /// Where artifacts lie.
    pub artifacts: Arc<dyn ArtifactStore>,
    /// Who answers provider calls.
    pub provider: Arc<dyn Provider>,
    /// Who calls the addresses of tools and hooks.
    pub outward: Arc<dyn Outward>,
    /// Who runs scripts.
    pub gateway: Arc<dyn CodeGateway>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where identifiers come from.
    pub ids: Arc<dyn Ids>,
}

impl Parts {
    /// The parts that the settings name.
    ///
    /// # Errors
    /// When the artifact store or the way to a provider or a vault cannot be set up.
    pub fn of(settings: &Settings) -> anyhow::Result<Self> {
        let guard = guard(settings);
        warn_of_open_ports(&settings.egress_allow);
        let secrets = secrets(settings, &guard).context("the places of secrets")?;
        let mut accounts: Vec<(String, Arc<dyn Provider>)> = Vec::new();
        for account in &settings.providers {
            let provider = provider(account, &guard, &secrets)
                .with_context(|| format!("the provider account `{}`", account.account_slot))?;
            accounts.push((account.account_slot.clone(), provider));
        }
        Ok(Self {
            access: None,
            artifacts: Arc::new(Artifacts::open(&settings.artifacts).context("the artifact store")?),
            provider: Arc::new(Accounts::new(accounts)),
            gateway: gateway(settings, &guard)?,
            outward: Arc::new(GuardedCaller::new(guard, secrets)),
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
        })
    }
}

/// The runtime gateway: this program's own, unless another one is named.
fn gateway(settings: &Settings, guard: &Guard) -> anyhow::Result<Arc<dyn CodeGateway>> {
    match &settings.runtime_gateway {
        None => Ok(Arc::new(Embedded::new())),
        Some(GatewaySettings { address, token }) => {
            let external = External::new(guard, address.as_str()).context("the runtime gateway")?;
            let external = match token {
                Some(token) => {
                    external.opened_by(&Secret::new(token.expose().to_owned())).context("the runtime gateway")?
                }
                None => external,
            };
            Ok(Arc::new(external))
        }
    }
}

/// Logs each allowance that opens every port of its target: databases and consoles listen beside what was meant.
fn warn_of_open_ports(allowances: &[Allowance]) {
    for allowance in allowances.iter().filter(|allowance| allowance.port.is_none()) {
        tracing::warn!(
            %allowance,
            setting = "FAIRWAY_EGRESS_ALLOW",
            "an egress allowance without `:port` opens every port of its target"
        );
    }
}

/// Where requests of this server may go.
fn guard(settings: &Settings) -> Guard {
    let reach = match settings.auth_mode {
        AuthMode::Local => Reach::Local,
    };
    Guard::new(reach, settings.egress_allow.clone())
}

fn secrets(settings: &Settings, guard: &Guard) -> anyhow::Result<Arc<dyn Secrets>> {
    let vault = settings.vault.as_ref().map(|vault| {
        let token = Secret::new(vault.token.expose().to_owned());
        Vault::new(guard, vault.address.as_str(), &token)
    });
    Ok(Arc::new(Places::new(settings.secrets_dir.clone(), vault.transpose()?)))
}

fn provider(account: &ProviderAccount, guard: &Guard, secrets: &Arc<dyn Secrets>) -> anyhow::Result<Arc<dyn Provider>> {
    let connection = |endpoint: &ProviderEndpoint| {
        let key = endpoint.secret_ref.clone().map(|reference| (Arc::clone(secrets), reference));
        Connection::new(guard, &endpoint.base_url, endpoint.timeout, key)
    };
    let provider: Arc<dyn Provider> = match &account.kind {
        ProviderKind::Local => Arc::new(Local),
        ProviderKind::OpenAi(endpoint) => Arc::new(OpenAi::new(connection(endpoint)?, &endpoint.base_url)),
        ProviderKind::Anthropic(endpoint) => Arc::new(Anthropic::new(connection(endpoint)?, &endpoint.base_url)),
    };
    let account = Account::new(provider)
        .residing(account.residency.clone())
        .with_places(account.concurrency)
        .priced(account.prices.clone());
    Ok(Arc::new(account))
}

/// The accounts as callers are told of them. The one that is always there is told of too, unless the settings have it.
fn plugins(accounts: &[ProviderAccount]) -> Arc<[ProviderPlugin]> {
    let always = ProviderAccount::LOCAL;
    let is_named = accounts.iter().any(|account| account.account_slot == always);
    let implied = ProviderPlugin { account_slot: always.to_owned(), kind: always };
    (!is_named).then_some(implied).into_iter().chain(accounts.iter().map(plugin)).collect()
}

fn plugin(account: &ProviderAccount) -> ProviderPlugin {
    let kind = match &account.kind {
        ProviderKind::Local => "local",
        ProviderKind::OpenAi(_) => "openai",
        ProviderKind::Anthropic(_) => "anthropic",
    };
    ProviderPlugin { account_slot: account.account_slot.clone(), kind }
}

fn stores(database: &Database, access: Option<&AccessLayer>) -> Stores {
    let shared = Arc::new(database.clone());
    let bindings: Arc<dyn AccessStore> = shared.clone();
    Stores {
        tenants: shared.clone(),
        workspaces: shared.clone(),
        environments: shared.clone(),
        access: access.map_or_else(|| Arc::clone(&bindings), |layer| layer(Arc::clone(&bindings))),
        principal_bindings: shared.clone(),
        assets: shared.clone(),
        asset_grants: shared.clone(),
        impact: shared.clone(),
        knowledge: shared.clone(),
        memory: shared.clone(),
        ledger: shared.clone(),
        workloads: shared.clone(),
        share_links: shared.clone(),
        throttle: shared.clone(),
        releases: shared.clone(),
        rollouts: shared.clone(),
        executions: shared.clone(),
        reviews: shared.clone(),
        settlements: shared.clone(),
        audit: shared.clone(),
        idempotency: shared,
    }
}

impl Process {
    /// Puts a process together over a migrated database at `url`.
    ///
    /// # Errors
    /// When the address cannot be read.
    pub fn new(settings: &Settings, url: String, parts: Parts) -> anyhow::Result<Self> {
        let result_retention = settings.result_retention;
        let options = DatabaseOptions { url: url.clone(), connections: RELAY_CONNECTIONS, result_retention };
        let relays = Database::new(&options)?;
        let mode = match settings.auth_mode {
            AuthMode::Local => IdentityMode::Local,
        };
        let runs = RunSettings {
            sync_wait: settings.sync_wait,
            execution_deadline: settings.execution_deadline,
            lease: settings.worker_lease,
            dispatch: settings.dispatch,
            queue_cap: settings.queue_cap,
            review_deadline: settings.review_deadline,
            generator: settings.generator,
            identity: mode,
            internal_clients: settings.internal_clients.clone(),
            operator_hosts: settings.operator_hosts(),
            public_rate: settings.public_rate,
            redactor: Arc::new(Redactor::new(&settings.national_ids)),
            knowledge: KnowledgeSettings {
                splitter: Arc::new(Splitting),
                fetcher: Arc::new(GuardedFetcher::new(guard(settings))),
                embedding: settings.embedding_model.clone(),
            },
        };
        let Parts { access, artifacts, provider, outward, gateway, clock, ids } = parts;
        let services = Services::new(
            stores(&relays, access.as_ref()),
            artifacts,
            (provider, outward, gateway),
            (clock, ids),
            runs,
        );
        Ok(Self {
            url,
            access,
            services,
            relays,
            result_retention,
            waiting_line: settings.waiting_line,
            mode,
            dispatch: settings.dispatch,
            metrics: Metrics::new()?,
            providers: plugins(&settings.providers),
            cursor_key: Arc::default(),
            leaving: Leaving::default(),
            documents: Documents::new()?,
        })
    }

    /// What the HTTP base needs.
    #[must_use]
    pub fn base(&self, settings: &Settings) -> HttpBase {
        HttpBase {
            metrics: self.metrics.clone(),
            site_rules: settings.site_rules(),
            public_scheme: settings.public_scheme,
            trusted_proxies: settings.trusted_proxies.clone(),
            embedding: settings.embedding.clone(),
            memory: MemoryBudgets::default(),
            body_timeout: settings.body_timeout,
            known_methods: self.documents.known_methods.clone(),
            known_queries: self.documents.known_queries.clone(),
            deprecations: DEPRECATIONS,
            crowd: Crowd::default(),
            leaving: self.leaving.clone(),
        }
    }

    /// What the handlers of one worker thread need: connections of its own, everything else shared.
    ///
    /// # Errors
    /// When the address cannot be read.
    pub fn worker(&self) -> anyhow::Result<Api> {
        let options = DatabaseOptions {
            url: self.url.clone(),
            connections: CONNECTIONS_PER_WORKER,
            result_retention: self.result_retention,
        };
        let database = Database::new(&options)?;
        self.metrics.watch(database.waiting().clone());
        Ok(Api {
            services: self.services.over(stores(&database, self.access.as_ref())),
            mode: self.mode,
            metrics: self.metrics.clone(),
            admission: Admission::new(database.waiting().clone(), self.waiting_line),
            providers: Arc::clone(&self.providers),
            database,
            cursor_key: Arc::clone(&self.cursor_key),
        })
    }

    /// Starts the relays of a server; they end when the set is dropped.
    ///
    /// # Errors
    /// When the address cannot be read.
    pub fn start_relays(&self, works: Works) -> anyhow::Result<JoinSet<()>> {
        let mut relays = self.start_worker(works)?;
        let log = Arc::new(self.relays.clone());
        relays.spawn(fairway_operations::audit::sequence_forever(log, self.services.wake()));
        relays.spawn(fairway_operations::release::advise_forever(self.services.clone()));
        relays.spawn(fairway_operations::retention::retain_forever(self.services.clone()));
        relays.spawn(close_reviews_forever(self.services.clone()));
        Ok(relays)
    }

    /// Starts what works on runs, over connections of its own; it ends when the set is dropped.
    ///
    /// # Errors
    /// When the address cannot be read.
    pub fn start_worker(&self, works: Works) -> anyhow::Result<JoinSet<()>> {
        let mut relays = JoinSet::new();
        let line = Arc::new(PostgresLine::new(self.url.clone()));
        let services = self.services.clone();
        relays.spawn(async move { services.exchange_signals(line).await });
        // Nobody else ends scripts whose process died; where there are workers, they go on with everything else.
        relays.spawn(recover_forever(self.services.clone()));
        if self.dispatch.has_workers() && works == Works::Yes {
            let options = DatabaseOptions {
                url: self.url.clone(),
                connections: CONNECTIONS_PER_WORKER,
                result_retention: self.result_retention,
            };
            let database = Database::new(&options)?;
            self.metrics.watch(database.waiting().clone());
            relays.spawn(work_until_stopped(self.services.over(stores(&database, self.access.as_ref()))));
        }
        Ok(relays)
    }

    /// Tells everybody who answers that the process is about to end.
    #[must_use]
    pub const fn leaving(&self) -> &Leaving {
        &self.leaving
    }

    /// The operations over the relays' connections.
    #[must_use]
    pub const fn services(&self) -> &Services {
        &self.services
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many connections a database takes that is asked for so many.
    fn most(connections: usize) -> usize {
        DatabaseOptions { url: String::new(), connections, result_retention: Duration::ZERO }.max_connections()
    }

    #[test]
    fn the_manual_says_how_many_connections_a_process_takes() {
        let manual = include_str!("../../../docs/operations/scaling.md").replace('\n', " ");
        let (worker, relays, signals) = (most(CONNECTIONS_PER_WORKER), most(RELAY_CONNECTIONS), 2);
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
