//! The stores, gateways and settings of the operations, and the assembly of all operations.

mod shared_state;

pub(crate) use shared_state::{CommonOperations, SharedState};

use crate::{
    FactWakeups,
    access::{
        AccessExplanations, Identities, IdentityMode, IdentityResolver, PrincipalBindings, RoleBindings, Sessions,
        TestSignIns,
    },
    access_request::AccessRequests,
    anonymous_rate_limit::RateLimits,
    asset::{Artifacts, Assets},
    audit::AuditLog,
    connection::Connections,
    demo::DemoSeeder,
    environment::Environments,
    erasure::Erasures,
    evidence_bundle::EvidenceBundles,
    execution::{
        Cancellations, Citations, ExecutionReader, Executions, Reviews, RunRecovery, RunWorker, UnknownOutcomes,
        UsageReports, engine::RunEngine, plan::RunPlans,
    },
    flow::Flows,
    generator::{DraftGenerator, ProvisioningMode},
    idempotency::KeyedRequests,
    knowledge::{KnowledgeBases, KnowledgeSettings},
    memory::Memories,
    notification::{BacklogMeter, NotificationSender, Notifications, Projector},
    release::Releases,
    rollout::Rollouts,
    share_link::ShareLinks,
    tenant::Tenants,
    transparency_log::{LogAuditor, TransparencyLogs, TreeBuilder},
    use_case::UseCases,
    wakeups::run_exchange,
    workload::Workloads,
    workspace::Workspaces,
};
use fairway_domain::{
    access::{
        AccessStore, ActorRef,
        identity::IdentityStore,
        principal_binding::PrincipalBindingStore,
        session::{SessionLifetime, SessionStore},
    },
    access_request::AccessRequestStore,
    anonymous_rate_limit::{Quota, RateLimitStore},
    asset::{
        artifact_maintenance::ArtifactMaintenanceStore,
        artifact_store::ArtifactStore,
        grant::AssetGrantStore,
        impact::ImpactStore,
        ports::{AssetStore, VersionStore},
    },
    audit::AuditStore,
    clock::Clock,
    connection::{ConnectionStore, ConnectionTaskStore, probe::EndpointProbe},
    environment::{EnvironmentStore, is_production},
    erasure::ErasureStore,
    execution::{
        dispatch::DispatchPolicy,
        http_call::HttpCaller,
        observer::RunEndObserver,
        ports::{EventStore, ExecutionStore, LeaseStore, RunStore},
        provider::Provider,
        resolve_unknown::ResolutionStore,
        review::ReviewStore,
        script::ScriptGateway,
        usage::UsageStore,
    },
    id::IdSource,
    idempotency::IdempotencyStore,
    knowledge::ports::{ChunkSearch, ContractRevocationStore, DocumentStore, IndexRevisionStore},
    memory::ports::MemoryStore,
    notification::{
        backlog::{BacklogStore, NotificationObserver},
        message::MessageSender,
        ports::{
            AnnouncementStore, DeliveryStore, DestinationStore, InboxStore, OutboxStore, PreferenceStore, ProfileStore,
            ProjectionStore, SuppressedDecisionStore,
        },
    },
    redaction::Redactor,
    release::ports::{DeploymentStore, RecommendationStore, ReleaseEvidenceStore, ReleaseStore, ServingReleaseStore},
    rollout::ports::RolloutStore,
    share_link::ShareLinkStore,
    slug::Slug,
    tenant::{TenantStore, WorkspaceStore},
    transparency_log::{CheckpointArchive, CheckpointSigner, LogOriginBase, TreeStore, Witness},
    use_case::ports::UseCaseStore,
    wakeup::WakeupBus,
    workload::ports::WorkloadStore,
};
use std::{sync::Arc, time::Duration};

/// The stores of one process or one worker thread, as ports of the domain.
#[derive(Clone)]
pub struct Stores {
    /// Tenants.
    pub tenants: Arc<dyn TenantStore>,
    /// Workspaces.
    pub workspaces: Arc<dyn WorkspaceStore>,
    /// Settings of environments.
    pub environments: Arc<dyn EnvironmentStore>,
    /// Erasures of actors' texts.
    pub erasures: Arc<dyn ErasureStore>,
    /// Role bindings.
    pub access: Arc<dyn AccessStore>,
    /// Principal bindings.
    pub principal_bindings: Arc<dyn PrincipalBindingStore>,
    /// Assets.
    pub assets: Arc<dyn AssetStore>,
    /// Versions of assets.
    pub versions: Arc<dyn VersionStore>,
    /// Asset grants.
    pub asset_grants: Arc<dyn AssetGrantStore>,
    /// Releases, references and workloads that depend on an asset.
    pub impact: Arc<dyn ImpactStore>,
    /// Versions and objects that maintenance of the artifact store compares.
    pub artifact_maintenance: Arc<dyn ArtifactMaintenanceStore>,
    /// Documents and chunks of knowledge bases.
    pub documents: Arc<dyn DocumentStore>,
    /// Revisions of the indexes of knowledge bases.
    pub index_revisions: Arc<dyn IndexRevisionStore>,
    /// Text and vector search of chunks.
    pub chunk_search: Arc<dyn ChunkSearch>,
    /// Revocations of access contracts.
    pub contract_revocations: Arc<dyn ContractRevocationStore>,
    /// Pinned identities.
    pub identities: Arc<dyn IdentityStore>,
    /// Browser sessions.
    pub sessions: Arc<dyn SessionStore>,
    /// Conversation turns.
    pub memory: Arc<dyn MemoryStore>,
    /// Workloads.
    pub workloads: Arc<dyn WorkloadStore>,
    /// Share links.
    pub share_links: Arc<dyn ShareLinkStore>,
    /// Rate limit counters of anonymous clients and share links.
    pub rate_limits: Arc<dyn RateLimitStore>,
    /// Connections.
    pub connections: Arc<dyn ConnectionStore>,
    /// Connections for which a background task has work.
    pub connection_tasks: Arc<dyn ConnectionTaskStore>,
    /// Access requests.
    pub access_requests: Arc<dyn AccessRequestStore>,
    /// Use cases.
    pub use_cases: Arc<dyn UseCaseStore>,
    /// Releases, their bindings and approvals.
    pub releases: Arc<dyn ReleaseStore>,
    /// Deployments.
    pub deployments: Arc<dyn DeploymentStore>,
    /// Evidence of releases.
    pub release_evidence: Arc<dyn ReleaseEvidenceStore>,
    /// Serving releases and the results of their runs.
    pub serving_releases: Arc<dyn ServingReleaseStore>,
    /// Recommendations of the rollback advisor.
    pub recommendations: Arc<dyn RecommendationStore>,
    /// Rollouts.
    pub rollouts: Arc<dyn RolloutStore>,
    /// Executions and their evidence.
    pub executions: Arc<dyn ExecutionStore>,
    /// Stored progress and events of executions.
    pub events: Arc<dyn EventStore>,
    /// Totals of ended runs for usage reports.
    pub usage: Arc<dyn UsageStore>,
    /// Acceptance, start and finish of runs.
    pub runs: Arc<dyn RunStore>,
    /// Leases of runs.
    pub leases: Arc<dyn LeaseStore>,
    /// Runs that wait for a human review.
    pub reviews: Arc<dyn ReviewStore>,
    /// Manual resolutions of runs with an unknown outcome.
    pub resolutions: Arc<dyn ResolutionStore>,
    /// The audit log.
    pub audit: Arc<dyn AuditStore>,
    /// Inboxes.
    pub inboxes: Arc<dyn InboxStore>,
    /// Notification preferences.
    pub preferences: Arc<dyn PreferenceStore>,
    /// Destinations of notifications.
    pub destinations: Arc<dyn DestinationStore>,
    /// Deliveries, for their lists and manual retries.
    pub deliveries: Arc<dyn DeliveryStore>,
    /// The backlog of notifications, for metrics.
    pub notification_backlog: Arc<dyn BacklogStore>,
    /// The outbox of deliveries, for senders.
    pub outbox: Arc<dyn OutboxStore>,
    /// Notification profiles of people.
    pub notification_profiles: Arc<dyn ProfileStore>,
    /// Announcements.
    pub announcements: Arc<dyn AnnouncementStore>,
    /// Records of suppressed notifications.
    pub suppressed_decisions: Arc<dyn SuppressedDecisionStore>,
    /// The projection of facts into notifications.
    pub projections: Arc<dyn ProjectionStore>,
    /// The Merkle trees over the audit logs.
    pub log_trees: Arc<dyn TreeStore>,
    /// Idempotency keys.
    pub idempotency: Arc<dyn IdempotencyStore>,
}

/// Settings of the operations.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum time for which a synchronous run blocks its caller.
    pub sync_wait: Duration,
    /// Maximum total time of a run.
    pub execution_deadline: Duration,
    /// Duration of a run's lease, unless the lease is renewed.
    pub lease: Duration,
    /// Rate limit of one client for requests to one public workload.
    pub public_rate: Quota,
    /// Where runs execute: in the process of the request, or on workers.
    pub dispatch: DispatchPolicy,
    /// Whether new tenants receive a draft generator.
    pub generator: ProvisioningMode,
    /// Time within which a reviewer must review an answer.
    pub review_deadline: Duration,
    /// Maximum number of queued runs of one tenant.
    pub queue_cap: u32,
    /// How the identity claims of requests are verified.
    pub identity: IdentityMode,
    /// Lifetime of browser sessions.
    pub session_lifetime: SessionLifetime,
    /// Services of the default tenant that may act on behalf of other principals.
    pub delegating_clients: Vec<ActorRef>,
    /// Bootstrap administrators: principals of the default tenant that administer the platform without a role
    /// binding.
    pub bootstrap_admins: Vec<ActorRef>,
    /// Host names that no tenant may claim: those of the server's machine and of several services that the server uses.
    pub operator_hosts: Vec<String>,
    /// Masks personal data in the outputs of runs whose policy requires it.
    pub redactor: Arc<Redactor>,
    /// Settings of knowledge bases.
    pub knowledge: KnowledgeSettings,
    /// The name prefix of this installation's transparency logs.
    pub log_origin: LogOriginBase,
}

impl Settings {
    /// Whether releases of this environment must not use the local provider, which generates answers without a model.
    /// The environment `production` of a server with verified identities serves real users.
    pub(crate) fn refuses_local_provider(&self, environment: &Slug) -> bool {
        self.identity == IdentityMode::Oidc && is_production(environment)
    }
}

/// The ports of the operations other than stores.
#[derive(Clone)]
pub struct Gateways {
    /// Stores the bytes of artifacts.
    pub artifacts: Arc<dyn ArtifactStore>,
    /// Calls models.
    pub provider: Arc<dyn Provider>,
    /// Sends HTTP calls of tools and hooks.
    pub http_caller: Arc<dyn HttpCaller>,
    /// Checks endpoints of connections.
    pub endpoint_probe: Arc<dyn EndpointProbe>,
    /// Sends notifications outside the inbox.
    pub message_sender: Arc<dyn MessageSender>,
    /// Executes scripts.
    pub code_gateway: Arc<dyn ScriptGateway>,
    /// Stores the checkpoints of transparency logs outside the database.
    pub checkpoint_archive: Arc<dyn CheckpointArchive>,
    /// Signs checkpoints.
    pub checkpoint_signer: Arc<dyn CheckpointSigner>,
    /// Witnesses that cosign checkpoints; none by default.
    pub witnesses: Vec<Arc<dyn Witness>>,
    /// Counts the ends of runs for metrics.
    pub run_end_observer: Arc<dyn RunEndObserver>,
    /// Counts deliveries of notifications for metrics.
    pub notification_observer: Arc<dyn NotificationObserver>,
    /// Returns the current time.
    pub clock: Arc<dyn Clock>,
    /// Creates identifiers, salts and secrets.
    pub ids: Arc<dyn IdSource>,
}

/// All operations, grouped in one struct per noun. Clones are cheap and share the caches.
#[derive(Clone)]
pub struct Services {
    /// The audit log.
    pub audit_log: Arc<AuditLog>,
    /// Maintenance of artifacts.
    pub artifacts: Arc<Artifacts>,
    /// Assets, their versions, grants and references.
    pub assets: Arc<Assets>,
    /// Creation of the demo data.
    pub demo: Arc<DemoSeeder>,
    /// Settings of environments.
    pub environments: Arc<Environments>,
    /// Erasures of actors' texts.
    pub erasures: Arc<Erasures>,
    /// Cancellation of runs.
    pub cancellations: Arc<Cancellations>,
    /// Citations of results.
    pub citations: Arc<Citations>,
    /// Evidence bundles of runs.
    pub evidence_bundles: Arc<EvidenceBundles>,
    /// Acceptance and start of runs.
    pub executions: Arc<Executions>,
    /// Reading of executions, their events and their evidence.
    pub execution_reader: Arc<ExecutionReader>,
    /// Generation of drafts.
    pub draft_generator: Arc<DraftGenerator>,
    /// Human reviews of runs.
    pub reviews: Arc<Reviews>,
    /// Recovery and drain of runs.
    pub run_recovery: Arc<RunRecovery>,
    /// Execution of queued runs.
    pub run_worker: Arc<RunWorker>,
    /// Resolution of runs with an unknown outcome.
    pub unknown_outcomes: Arc<UnknownOutcomes>,
    /// Usage reports.
    pub usage_reports: Arc<UsageReports>,
    /// Flows.
    pub flows: Arc<Flows>,
    /// Execution of requests with idempotency keys.
    pub keyed_requests: Arc<KeyedRequests>,
    /// Identification of callers.
    pub identities: Arc<Identities>,
    /// Conversion of verified identities into claims of callers.
    pub identity_resolver: Arc<IdentityResolver>,
    /// Browser sessions.
    pub sessions: Arc<Sessions>,
    /// Test sign-ins.
    pub test_sign_ins: Arc<TestSignIns>,
    /// Knowledge bases.
    pub knowledge_bases: Arc<KnowledgeBases>,
    /// Conversation memory.
    pub memories: Arc<Memories>,
    /// Inboxes and notification preferences.
    pub notifications: Arc<Notifications>,
    /// The projector of facts into notifications.
    pub projector: Arc<Projector>,
    /// Measurement of the notification backlog.
    pub backlog_meter: Arc<BacklogMeter>,
    /// The sender of notifications outside the inbox.
    pub notification_sender: Arc<NotificationSender>,
    /// Bindings of principals to workloads.
    pub principal_bindings: Arc<PrincipalBindings>,
    /// Rate limits.
    pub rate_limits: Arc<RateLimits>,
    /// Releases and deployments.
    pub releases: Arc<Releases>,
    /// Roles and role bindings.
    pub role_bindings: Arc<RoleBindings>,
    /// Explanations of access.
    pub access_explanations: Arc<AccessExplanations>,
    /// Rollouts.
    pub rollouts: Arc<Rollouts>,
    /// Share links.
    pub share_links: Arc<ShareLinks>,
    /// Connections.
    pub connections: Arc<Connections>,
    /// Access requests.
    pub access_requests: Arc<AccessRequests>,
    /// Use cases.
    pub use_cases: Arc<UseCases>,
    /// Tenants.
    pub tenants: Arc<Tenants>,
    /// Transparency logs: checkpoints, proofs and tiles.
    pub transparency_logs: Arc<TransparencyLogs>,
    /// Audits of whole transparency logs by operators.
    pub log_auditor: Arc<LogAuditor>,
    /// Workloads.
    pub workloads: Arc<Workloads>,
    /// Workspaces.
    pub workspaces: Arc<Workspaces>,
    shared: SharedState,
}

impl Services {
    /// Creates the operations with these stores, and with empty caches.
    #[must_use]
    pub fn new(stores: Stores, gateways: Gateways, settings: Settings) -> Self {
        Self::assemble(stores, SharedState::new(gateways, settings))
    }

    /// Returns the same operations with other stores, such as those of another thread. Caches and wakeups are shared.
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
        let execution_reader = Arc::new(ExecutionReader::new(&stores, &shared, &common));
        let identity_resolver = Arc::new(IdentityResolver::new(&stores, &shared));
        let transparency_logs = Arc::new(TransparencyLogs::new(&stores, &shared, &common));
        let run_plans = Arc::new(RunPlans::new(&stores, &shared, &assets, &releases));
        let run_engine = Arc::new(RunEngine::new(&stores, &shared, &knowledge_bases));
        let reviews = Arc::new(Reviews::new(&stores, &shared, &common, &execution_reader));
        let executions =
            Arc::new(Executions::new(&stores, &shared, &common, &execution_reader, &run_engine, &run_plans));
        let draft_generator = Arc::new(DraftGenerator::new(&stores, &shared, &common, &assets, &executions, &releases));
        let cancellations = Cancellations::new(&stores, &shared, &common, &execution_reader, &reviews, &run_engine);
        let connections = Arc::new(Connections::new(&stores, &shared, &common));
        Self {
            access_requests: Arc::new(AccessRequests::new(&stores, &shared, &common)),
            erasures: Arc::new(Erasures::new(&stores, &shared, &common)),
            use_cases: Arc::new(UseCases::new(&stores, &shared, &common, &assets, &draft_generator)),
            connections,
            cancellations: Arc::new(cancellations),
            citations: Arc::new(Citations::new(&stores, &knowledge_bases)),
            draft_generator,
            run_recovery: Arc::new(RunRecovery::new(&stores, &shared)),
            run_worker: Arc::new(RunWorker::new(&stores, &shared, &common, &run_engine, &run_plans)),
            unknown_outcomes: Arc::new(UnknownOutcomes::new(&stores, &shared, &common, &execution_reader)),
            usage_reports: Arc::new(UsageReports::new(&stores, &shared, &common)),
            evidence_bundles: Arc::new(EvidenceBundles::new(&stores, &releases, &execution_reader, &transparency_logs)),
            transparency_logs,
            execution_reader,
            executions,
            reviews,
            audit_log: Arc::new(AuditLog::new(&stores, &common)),
            log_auditor: Arc::new(LogAuditor::new(&stores, &shared)),
            demo: Arc::new(DemoSeeder::new(&stores, &workloads, &assets, &flows, &releases, &knowledge_bases)),
            memories: Arc::new(Memories::new(&stores, &shared, &common)),
            notifications: Arc::new(Notifications::new(&stores, &shared, &common, &workloads)),
            projector: Arc::new(Projector::new(&stores, &shared)),
            backlog_meter: Arc::new(BacklogMeter::new(&stores, &shared)),
            notification_sender: Arc::new(NotificationSender::new(&stores, &shared)),
            principal_bindings: Arc::new(PrincipalBindings::new(&stores, &shared, &common, &workloads)),
            sessions: Arc::new(Sessions::new(&stores, &shared, &identity_resolver)),
            test_sign_ins: Arc::new(TestSignIns::new(&stores, &shared, &common.identities, &identity_resolver)),
            identity_resolver,
            role_bindings: Arc::new(RoleBindings::new(&stores, &shared, &common)),
            access_explanations: Arc::new(AccessExplanations::new(&stores, &shared.settings, &common)),
            rollouts: Arc::new(Rollouts::new(&stores, &shared, &common, &workloads, &releases)),
            share_links: Arc::new(ShareLinks::new(&stores, &shared, &common, &workloads)),
            tenants: Arc::new(Tenants::new(&stores, &shared, &common)),
            workspaces: Arc::new(Workspaces::new(&stores, &shared, &common)),
            environments,
            workloads,
            assets,
            flows,
            knowledge_bases,
            releases,
            artifacts: common.artifacts,
            keyed_requests: common.keyed_requests,
            identities: common.identities,
            rate_limits: common.rate_limits,
            shared,
        }
    }

    /// Returns the wakeups of the sequencer and the projector.
    #[must_use]
    pub fn fact_wakeups(&self) -> Arc<FactWakeups> {
        Arc::clone(&self.shared.context.fact_wakeups)
    }

    /// Creates a builder of the transparency logs with a store of their trees.
    #[must_use]
    pub fn tree_builder(&self, log_trees: Arc<dyn TreeStore>) -> TreeBuilder {
        TreeBuilder::new(log_trees, &self.shared)
    }

    /// Exchanges wakeups with other processes in an endless loop.
    pub async fn exchange_wakeups(&self, bus: Arc<dyn WakeupBus>) {
        run_exchange(self.shared.wakeups.subscriptions(), Arc::clone(&self.shared.active_runs), bus).await;
    }
}
