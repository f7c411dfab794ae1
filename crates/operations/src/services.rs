//! The dependencies and settings of every operation.

use crate::{
    access::IdentityMode,
    asset::RecordedMismatches,
    cache::{MAX_BYTES, weighted_cache},
    execution::{
        active_runs::ActiveRuns, large_runs::LargeRuns, plan::PlanCache, run_limit::RunSlots, script::ScriptSlots,
    },
    generator::Provisioning,
    knowledge::KnowledgeSettings,
    rate_limit::RateLimitCache,
    release::{ActiveReleaseCache, ContentSummary},
    wakeups::{Wakeups, run_exchange},
};
use fairway_domain::{
    access::{AccessStore, ActorRef, Caller, principal_binding::PrincipalBindingStore},
    asset::{
        artifact_index::ArtifactIndex,
        grant::AssetGrantStore,
        impact::ImpactStore,
        ports::{ArtifactStore, AssetStore},
    },
    audit::{AuditStore, Stamp},
    environment::EnvironmentStore,
    execution::{
        dispatch::DispatchPolicy, http_call::HttpCaller, ports::ExecutionStore, provider::Provider,
        resolve_unknown::ResolutionStore, review::ReviewStore, script::ScriptGateway,
    },
    id::{AssetVersionId, IdSource, NamespaceId, TenantId, WorkspaceId},
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
    wakeup::{Wakeup, WakeupBus},
    workload::ports::WorkloadStore,
};
use moka::sync::Cache;
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;

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

/// Wakes the sequencer when facts are pending. One wakeup covers any number of facts.
#[derive(Debug, Default)]
pub struct SequencerWakeup(Notify);

impl SequencerWakeup {
    /// Reports that facts are pending.
    pub fn notify_facts(&self) {
        self.0.notify_one();
    }

    /// Waits until facts are pending.
    pub async fn wait(&self) {
        self.0.notified().await;
    }
}

/// All operations with their dependencies. Cheap to clone; all clones share the caches.
#[derive(Clone)]
pub struct Services {
    pub(crate) stores: Stores,
    pub(crate) artifacts: Arc<dyn ArtifactStore>,
    pub(crate) provider: Arc<dyn Provider>,
    /// Sends HTTP calls of tools and hooks.
    pub(crate) http_caller: Arc<dyn HttpCaller>,
    /// Runs scripts.
    pub(crate) code_gateway: Arc<dyn ScriptGateway>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) settings: Settings,
    pub(crate) plans: Arc<PlanCache>,
    pub(crate) active_releases: Arc<ActiveReleaseCache>,
    /// The namespace of each workspace. It never changes.
    pub(crate) namespaces: Cache<WorkspaceId, NamespaceId>,
    /// Summaries of version content for the activation checks. A version never changes.
    pub(crate) summaries: Cache<(TenantId, AssetVersionId), Arc<ContentSummary>>,
    /// Artifact mismatches that this process recorded recently.
    pub(crate) mismatches: RecordedMismatches,
    /// Clients that the rate limit refuses at present.
    pub(crate) rate_limits: RateLimitCache,
    pub(crate) sequencer_wakeup: Arc<SequencerWakeup>,
    pub(crate) active_runs: Arc<ActiveRuns>,
    pub(crate) large_runs: Arc<LargeRuns>,
    pub(crate) run_limit: Arc<RunSlots>,
    pub(crate) scripts: Arc<ScriptSlots>,
    pub(crate) wakeups: Arc<Wakeups>,
}

impl Services {
    /// Creates operations over these stores, with empty caches.
    #[must_use]
    pub fn new(
        stores: Stores,
        artifacts: Arc<dyn ArtifactStore>,
        (provider, http_caller, code_gateway): (Arc<dyn Provider>, Arc<dyn HttpCaller>, Arc<dyn ScriptGateway>),
        (clock, ids): (Arc<dyn Clock>, Arc<dyn IdSource>),
        settings: Settings,
    ) -> Self {
        Self {
            stores,
            artifacts,
            provider,
            http_caller,
            code_gateway,
            clock,
            ids,
            settings,
            plans: Arc::new(PlanCache::new()),
            active_releases: Arc::new(ActiveReleaseCache::new()),
            namespaces: weighted_cache(MAX_BYTES.namespaces, |_, _| 0).build(),
            summaries: weighted_cache(MAX_BYTES.summaries, |_, said: &Arc<ContentSummary>| said.bytes()).build(),
            mismatches: RecordedMismatches::new(),
            rate_limits: RateLimitCache::new(),
            sequencer_wakeup: Arc::default(),
            active_runs: Arc::default(),
            large_runs: Arc::default(),
            run_limit: Arc::default(),
            scripts: Arc::default(),
            wakeups: Arc::default(),
        }
    }

    /// Returns the same operations over other connections: caches and wakeups stay shared.
    #[must_use]
    pub fn with_stores(&self, stores: Stores) -> Self {
        Self { stores, ..self.clone() }
    }

    /// The wakeup of the sequencer.
    #[must_use]
    pub fn sequencer_wakeup(&self) -> Arc<SequencerWakeup> {
        Arc::clone(&self.sequencer_wakeup)
    }

    /// Publishes a wakeup to the subscribers in this process and in other processes.
    pub(crate) fn publish_wakeup(&self, signal: Wakeup) {
        self.wakeups.publish(signal, &self.active_runs);
    }

    /// Delivers a wakeup to the subscribers in this process only, for an event that concerns no other process.
    pub(crate) fn deliver_wakeup(&self, signal: Wakeup) {
        self.wakeups.deliver(signal, &self.active_runs);
    }

    /// Exchanges wakeups with the other processes, forever.
    pub async fn exchange_wakeups(&self, line: Arc<dyn WakeupBus>) {
        run_exchange(Arc::clone(&self.wakeups), Arc::clone(&self.active_runs), line).await;
    }

    /// Checks that the artifact store is available.
    ///
    /// # Errors
    /// When the artifact store does not respond.
    pub async fn artifacts_ready(&self) -> Result<(), fairway_domain::asset::ports::ArtifactError> {
        self.artifacts.ready().await
    }

    pub(crate) fn new_id<T: From<uuid::Uuid>>(&self) -> T {
        T::from(self.ids.new_id())
    }

    pub(crate) fn stamp(&self, caller: &Caller) -> Stamp {
        Stamp {
            fact_id: self.new_id(),
            at: self.clock.now(),
            actor: caller.actor.clone(),
            request_id: caller.request_id,
        }
    }
}
