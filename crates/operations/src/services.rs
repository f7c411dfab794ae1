//! What every operation works with.

use crate::{
    access::IdentityMode,
    asset::RecordedMismatches,
    cache::{MAX_BYTES, weighed},
    execution::{code::Scripts, large_runs::LargeRuns, live::LiveRuns, plan::PlanCache, run_limit::RunLimit},
    generator::Provisioning,
    knowledge::KnowledgeSettings,
    release::{ActiveReleaseCache, Said},
    signal::{Signals, exchange_forever},
    throttle::Refused,
};
use fairway_domain::{
    access::{AccessStore, ActorRef, Caller, principal_binding::PrincipalBindingStore},
    asset::{
        grant::AssetGrantStore,
        impact::ImpactStore,
        ledger::ArtifactLedger,
        ports::{ArtifactStore, AssetStore},
    },
    audit::{AuditStore, Stamp},
    environment::EnvironmentStore,
    execution::{
        code::CodeGateway, dispatch::Dispatch, outward::Outward, ports::ExecutionStore, provider::Provider,
        review::ReviewStore, settle::SettlementStore,
    },
    id::{AssetVersionId, Ids, NamespaceId, TenantId, WorkspaceId},
    idempotency::IdempotencyStore,
    knowledge::ports::KnowledgeStore,
    memory::ports::MemoryStore,
    redaction::Redactor,
    release::ports::ReleaseStore,
    rollout::ports::RolloutStore,
    share_link::ShareLinkStore,
    signal::{Signal, SignalLine},
    tenant::{TenantStore, WorkspaceStore},
    throttle::{Quota, ThrottleStore},
    time::Clock,
    workload::ports::WorkloadStore,
};
use moka::sync::Cache;
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;

/// The stores of one process or of one worker thread.
#[derive(Clone)]
pub struct Stores {
    /// Tenants.
    pub tenants: Arc<dyn TenantStore>,
    /// Workspaces.
    pub workspaces: Arc<dyn WorkspaceStore>,
    /// What environments ask for.
    pub environments: Arc<dyn EnvironmentStore>,
    /// Role bindings.
    pub access: Arc<dyn AccessStore>,
    /// Principal bindings.
    pub principal_bindings: Arc<dyn PrincipalBindingStore>,
    /// Assets and versions.
    pub assets: Arc<dyn AssetStore>,
    /// Grants of assets.
    pub asset_grants: Arc<dyn AssetGrantStore>,
    /// What stands on assets.
    pub impact: Arc<dyn ImpactStore>,
    /// The books on the artifact store.
    pub ledger: Arc<dyn ArtifactLedger>,
    /// Documents of knowledge bases, and the ends of their contracts.
    pub knowledge: Arc<dyn KnowledgeStore>,
    /// Turns of conversations.
    pub memory: Arc<dyn MemoryStore>,
    /// Workloads.
    pub workloads: Arc<dyn WorkloadStore>,
    /// Share links.
    pub share_links: Arc<dyn ShareLinkStore>,
    /// How often clients without a name have asked.
    pub throttle: Arc<dyn ThrottleStore>,
    /// Releases and deployments.
    pub releases: Arc<dyn ReleaseStore>,
    /// Rollouts.
    pub rollouts: Arc<dyn RolloutStore>,
    /// Executions and their evidence.
    pub executions: Arc<dyn ExecutionStore>,
    /// Those that wait for a person.
    pub reviews: Arc<dyn ReviewStore>,
    /// What people say of runs of which nobody knows.
    pub settlements: Arc<dyn SettlementStore>,
    /// The audit log.
    pub audit: Arc<dyn AuditStore>,
    /// Idempotency keys.
    pub idempotency: Arc<dyn IdempotencyStore>,
}

/// What can be set about operations.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a synchronous run may keep its caller waiting.
    pub sync_wait: Duration,
    /// How long a run may take.
    pub execution_deadline: Duration,
    /// How long a run's lease lasts unless renewed.
    pub lease: Duration,
    /// How often one client may come to one public workload.
    pub public_rate: Quota,
    /// Where runs run.
    pub dispatch: Dispatch,
    /// Whether tenants are given a generator.
    pub generator: Provisioning,
    /// How long a person may take to review an answer.
    pub review_deadline: Duration,
    /// Most runs of a tenant that may wait in line.
    pub queue_cap: u32,
    /// How far a claim of identity is believed.
    pub identity: IdentityMode,
    /// Services whose word on behalf of others is taken.
    pub internal_clients: Vec<ActorRef>,
    /// Host names that no tenant may answer to: those of the server and of what it works with.
    pub operator_hosts: Vec<String>,
    /// Masks personal data in the outputs of runs whose policy wants it.
    pub redactor: Arc<Redactor>,
    /// What knowledge bases work with.
    pub knowledge: KnowledgeSettings,
}

/// Tells the sequencer that facts wait. One wake is enough for any number of them.
#[derive(Debug, Default)]
pub struct Wake(Notify);

impl Wake {
    /// Says that facts wait.
    pub fn facts(&self) {
        self.0.notify_one();
    }

    /// Waits until some do.
    pub async fn wait(&self) {
        self.0.notified().await;
    }
}

/// All operations, with what they work with. Cheap to clone; caches are shared by all clones.
#[derive(Clone)]
pub struct Services {
    pub(crate) stores: Stores,
    pub(crate) artifacts: Arc<dyn ArtifactStore>,
    pub(crate) provider: Arc<dyn Provider>,
    /// Calls the addresses of tools and hooks.
    pub(crate) outward: Arc<dyn Outward>,
    /// Runs scripts.
    pub(crate) gateway: Arc<dyn CodeGateway>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) settings: Settings,
    pub(crate) plans: Arc<PlanCache>,
    pub(crate) active: Arc<ActiveReleaseCache>,
    /// A workspace's namespace never changes.
    pub(crate) places: Cache<WorkspaceId, NamespaceId>,
    /// What versions say to the rules of releases. A version never changes.
    pub(crate) said: Cache<(TenantId, AssetVersionId), Arc<Said>>,
    /// Mismatches that were recorded lately.
    pub(crate) mismatches: RecordedMismatches,
    /// Clients that have to wait.
    pub(crate) refused: Refused,
    pub(crate) wake: Arc<Wake>,
    pub(crate) live: Arc<LiveRuns>,
    pub(crate) large_runs: Arc<LargeRuns>,
    pub(crate) run_limit: Arc<RunLimit>,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) signals: Arc<Signals>,
}

impl Services {
    /// Operations over these stores, with fresh caches.
    #[must_use]
    pub fn new(
        stores: Stores,
        artifacts: Arc<dyn ArtifactStore>,
        (provider, outward, gateway): (Arc<dyn Provider>, Arc<dyn Outward>, Arc<dyn CodeGateway>),
        (clock, ids): (Arc<dyn Clock>, Arc<dyn Ids>),
        settings: Settings,
    ) -> Self {
        Self {
            stores,
            artifacts,
            provider,
            outward,
            gateway,
            clock,
            ids,
            settings,
            plans: Arc::new(PlanCache::new()),
            active: Arc::new(ActiveReleaseCache::new()),
            places: weighed(MAX_BYTES.namespaces, |_, _| 0).build(),
            said: weighed(MAX_BYTES.summaries, |_, said: &Arc<Said>| said.bytes()).build(),
            mismatches: RecordedMismatches::new(),
            refused: Refused::new(),
            wake: Arc::default(),
            live: Arc::default(),
            large_runs: Arc::default(),
            run_limit: Arc::default(),
            scripts: Arc::default(),
            signals: Arc::default(),
        }
    }

    /// The same operations over other connections: caches, wake and everything else stay shared.
    #[must_use]
    pub fn over(&self, stores: Stores) -> Self {
        Self { stores, ..self.clone() }
    }

    /// What wakes the sequencer.
    #[must_use]
    pub fn wake(&self) -> Arc<Wake> {
        Arc::clone(&self.wake)
    }

    /// Wakes whoever waits for this, here and in other processes.
    pub(crate) fn signal(&self, signal: Signal) {
        self.signals.give(signal, &self.live);
    }

    /// Wakes whoever waits for this here, where nobody else can.
    pub(crate) fn signal_here(&self, signal: Signal) {
        self.signals.heard(signal, &self.live);
    }

    /// Exchanges signals with the other processes, for ever.
    pub async fn exchange_signals(&self, line: Arc<dyn SignalLine>) {
        exchange_forever(Arc::clone(&self.signals), Arc::clone(&self.live), line).await;
    }

    /// Whether the artifact store answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn artifacts_ready(&self) -> Result<(), fairway_domain::asset::ports::ArtifactError> {
        self.artifacts.ready().await
    }

    pub(crate) fn id<T: From<uuid::Uuid>>(&self) -> T {
        T::from(self.ids.fresh())
    }

    pub(crate) fn stamp(&self, caller: &Caller) -> Stamp {
        Stamp { fact_id: self.id(), at: self.clock.now(), actor: caller.actor.clone(), request_id: caller.request_id }
    }
}
