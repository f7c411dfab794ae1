//! The stores, gateways and settings of the operations, and their assembly.

mod shared_state;

pub(crate) use shared_state::{CommonOperations, SharedState};

use crate::{
    SequencerWakeup,
    access::{Authorizer, Identities, IdentityMode, PrincipalBindings, RoleBindings},
    asset::{Artifacts, Assets},
    audit::AuditLog,
    context::OperationContext,
    demo::DemoSeeder,
    environment::Environments,
    execution::{
        active_runs::ActiveRuns, large_runs::LargeRuns, plan::PlanCache, run_limit::RunSlots, script::ScriptSlots,
    },
    flow::Flows,
    generator::Provisioning,
    idempotency::Idempotency,
    knowledge::{KnowledgeBases, KnowledgeSettings},
    memory::Memories,
    rate_limit::RateLimits,
    release::Releases,
    rollout::Rollouts,
    share_link::ShareLinks,
    tenant::Tenants,
    wakeups::{WakeupSender, Wakeups, run_exchange},
    workload::Workloads,
};
use fairway_domain::{
    access::{AccessStore, ActorRef, principal_binding::PrincipalBindingStore},
    asset::{
        artifact_index::ArtifactIndex,
        grant::AssetGrantStore,
        impact::ImpactStore,
        ports::{ArtifactStore, AssetStore},
    },
    audit::AuditStore,
    environment::EnvironmentStore,
    execution::{
        dispatch::DispatchPolicy, http_call::HttpCaller, ports::ExecutionStore, provider::Provider,
        resolve_unknown::ResolutionStore, review::ReviewStore, script::ScriptGateway,
    },
    id::IdSource,
    idempotency::IdempotencyStore,
    knowledge::ports::KnowledgeStore,
    memory::ports::MemoryStore,
    rate_limit::{Quota, RateLimitStore},
    redaction::Redactor,
    release::ports::ReleaseStore,
    rollout::ports::RolloutStore,
    share_link::ShareLinkStore,
    tenant::{TenantStore, WorkspaceStore},
    time::Clock,
    wakeup::WakeupBus,
    workload::ports::WorkloadStore,
};
use std::{sync::Arc, time::Duration};

/// The stores of one process or of one worker thread, as domain ports.
#[derive(Clone)]
pub struct Stores {
    /// Tenants.
    pub tenants: Arc<dyn TenantStore>,
    /// Workspaces.
    pub workspaces: Arc<dyn WorkspaceStore>,
    /// Settings of environments.
    pub environments: Arc<dyn EnvironmentStore>,
    /// Role bindings.
    pub access: Arc<dyn AccessStore>,
    /// Principal bindings.
    pub principal_bindings: Arc<dyn PrincipalBindingStore>,
    /// Assets and versions.
    pub assets: Arc<dyn AssetStore>,
    /// Asset grants.
    pub asset_grants: Arc<dyn AssetGrantStore>,
    /// Which releases, references and workloads depend on an asset.
    pub impact: Arc<dyn ImpactStore>,
    /// The index of the artifact store.
    pub artifact_index: Arc<dyn ArtifactIndex>,
    /// Documents of knowledge bases, and the revocations of access contracts.
    pub knowledge: Arc<dyn KnowledgeStore>,
    /// Conversation turns.
    pub memory: Arc<dyn MemoryStore>,
    /// Workloads.
    pub workloads: Arc<dyn WorkloadStore>,
    /// Share links.
    pub share_links: Arc<dyn ShareLinkStore>,
    /// Rate limit counters of anonymous clients and share links.
    pub rate_limits: Arc<dyn RateLimitStore>,
    /// Releases and deployments.
    pub releases: Arc<dyn ReleaseStore>,
    /// Rollouts.
    pub rollouts: Arc<dyn RolloutStore>,
    /// Executions and their evidence.
    pub executions: Arc<dyn ExecutionStore>,
    /// Runs that wait for a human review.
    pub reviews: Arc<dyn ReviewStore>,
    /// Manual resolutions of runs with an unknown outcome.
    pub resolutions: Arc<dyn ResolutionStore>,
    /// The audit log.
    pub audit: Arc<dyn AuditStore>,
    /// Idempotency keys.
    pub idempotency: Arc<dyn IdempotencyStore>,
}

/// The settings of operations.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a synchronous run may block its caller.
    pub sync_wait: Duration,
    /// How long a run may take in total.
    pub execution_deadline: Duration,
    /// How long a run's lease lasts unless it is renewed.
    pub lease: Duration,
    /// Requests that one client may send to one public workload.
    pub public_rate: Quota,
    /// Where runs execute: in the request's process or on workers.
    pub dispatch: DispatchPolicy,
    /// Whether new tenants get a draft generator.
    pub generator: Provisioning,
    /// How long a reviewer has to review an answer.
    pub review_deadline: Duration,
    /// Maximum number of queued runs of one tenant.
    pub queue_cap: u32,
    /// How identity claims of requests are verified.
    pub identity: IdentityMode,
    /// Services that may act on behalf of other principals.
    pub delegating_clients: Vec<ActorRef>,
    /// Host names that no tenant may claim: those of the server and of its dependencies.
    pub operator_hosts: Vec<String>,
    /// Masks personal data in the outputs of runs whose policy requires it.
    pub redactor: Arc<Redactor>,
    /// Settings of knowledge bases.
    pub knowledge: KnowledgeSettings,
}

/// The ports of an operation besides its stores.
#[derive(Clone)]
pub struct Gateways {
    /// Stores the bytes of artifacts.
    pub artifacts: Arc<dyn ArtifactStore>,
    /// Calls models.
    pub provider: Arc<dyn Provider>,
    /// Sends HTTP calls of tools and hooks.
    pub http_caller: Arc<dyn HttpCaller>,
    /// Runs scripts.
    pub code_gateway: Arc<dyn ScriptGateway>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Creates identifiers.
    pub ids: Arc<dyn IdSource>,
}

/// All operations, one struct per noun. Cheap to clone; all clones share the caches.
#[derive(Clone)]
pub struct Services {
    /// The audit log.
    pub audit_log: Arc<AuditLog>,
    /// Artifacts.
    pub artifacts: Arc<Artifacts>,
    /// Assets, their versions, grants and references.
    pub assets: Arc<Assets>,
    /// The authorization of callers on workspaces and workloads.
    pub(crate) authorizer: Arc<Authorizer>,
    /// The demo.
    pub demo: Arc<DemoSeeder>,
    /// Settings of environments.
    pub environments: Arc<Environments>,
    /// Flows.
    pub flows: Arc<Flows>,
    /// Idempotency keys.
    pub idempotency: Arc<Idempotency>,
    /// Callers.
    pub identities: Arc<Identities>,
    /// Knowledge bases.
    pub knowledge_bases: Arc<KnowledgeBases>,
    /// The memory of conversations.
    pub memories: Arc<Memories>,
    /// Bindings of principals to workloads.
    pub principal_bindings: Arc<PrincipalBindings>,
    /// Rate limits.
    pub rate_limits: Arc<RateLimits>,
    /// Releases and deployments.
    pub releases: Arc<Releases>,
    /// Roles and role bindings.
    pub role_bindings: Arc<RoleBindings>,
    /// Rollouts.
    pub rollouts: Arc<Rollouts>,
    /// Share links.
    pub share_links: Arc<ShareLinks>,
    /// Tenants and workspaces.
    pub tenants: Arc<Tenants>,
    /// Workloads.
    pub workloads: Arc<Workloads>,
    pub(crate) stores: Stores,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) http_caller: Arc<dyn HttpCaller>,
    pub(crate) code_gateway: Arc<dyn ScriptGateway>,
    pub(crate) context: OperationContext,
    pub(crate) settings: Arc<Settings>,
    pub(crate) plans: Arc<PlanCache>,
    pub(crate) active_runs: Arc<ActiveRuns>,
    pub(crate) large_runs: Arc<LargeRuns>,
    pub(crate) run_limit: Arc<RunSlots>,
    pub(crate) scripts: Arc<ScriptSlots>,
    pub(crate) wakeups: Arc<Wakeups>,
    pub(crate) wakeup_sender: WakeupSender,
    pub(crate) shared: SharedState,
}

impl Services {
    /// Creates operations over these stores, with empty caches.
    #[must_use]
    pub fn new(stores: Stores, gateways: Gateways, settings: Settings) -> Self {
        Self::assemble(stores, SharedState::new(gateways, settings))
    }

    /// Returns the same operations over other connections: caches and wakeups stay shared.
    #[must_use]
    pub fn with_stores(&self, stores: Stores) -> Self {
        Self::assemble(stores, self.shared.clone())
    }

    fn assemble(stores: Stores, shared: SharedState) -> Self {
        let common = CommonOperations::new(&stores, &shared);
        let environments = Arc::new(Environments::new(&stores, &shared, &common));
        let workloads = Arc::new(Workloads::new(&stores, &shared, &common));
        let assets = Arc::new(Assets::new(&stores, &shared, &common));
        let flows = Arc::new(Flows::new(&stores, &shared, &common, &assets));
        let knowledge_bases = Arc::new(KnowledgeBases::new(&stores, &shared, &common, &environments, &assets));
        let releases = Releases::new(&stores, &shared, &common, &environments, &workloads, &assets, &knowledge_bases);
        let releases = Arc::new(releases);
        Self {
            audit_log: Arc::new(AuditLog::new(&stores, &common)),
            demo: Arc::new(DemoSeeder::new(&stores, &workloads, &assets, &flows, &releases)),
            memories: Arc::new(Memories::new(&stores, &shared, &common)),
            principal_bindings: Arc::new(PrincipalBindings::new(&stores, &shared, &common, &workloads)),
            role_bindings: Arc::new(RoleBindings::new(&stores, &shared, &common)),
            rollouts: Arc::new(Rollouts::new(&stores, &shared, &common, &workloads, &releases)),
            share_links: Arc::new(ShareLinks::new(&stores, &shared, &common, &workloads)),
            tenants: Arc::new(Tenants::new(&stores, &shared, &common)),
            environments,
            workloads,
            assets,
            flows,
            knowledge_bases,
            releases,
            artifacts: common.artifacts,
            authorizer: common.authorizer,
            idempotency: common.idempotency,
            identities: common.identities,
            rate_limits: common.rate_limits,
            provider: Arc::clone(&shared.provider),
            http_caller: Arc::clone(&shared.http_caller),
            code_gateway: Arc::clone(&shared.code_gateway),
            context: shared.context.clone(),
            settings: Arc::clone(&shared.settings),
            plans: Arc::clone(&shared.plans),
            active_runs: Arc::clone(&shared.active_runs),
            large_runs: Arc::clone(&shared.large_runs),
            run_limit: Arc::clone(&shared.run_limit),
            scripts: Arc::clone(&shared.scripts),
            wakeups: shared.wakeups.subscriptions(),
            wakeup_sender: shared.wakeups.clone(),
            stores,
            shared,
        }
    }

    /// The wakeup of the sequencer.
    #[must_use]
    pub fn sequencer_wakeup(&self) -> Arc<SequencerWakeup> {
        Arc::clone(&self.context.sequencer)
    }

    /// Exchanges wakeups with the other processes, forever.
    pub async fn exchange_wakeups(&self, line: Arc<dyn WakeupBus>) {
        run_exchange(Arc::clone(&self.wakeups), Arc::clone(&self.active_runs), line).await;
    }
}
