//! The stores, gateways and settings of the operations, and the assembly of all operations.

mod shared_state;

pub(crate) use shared_state::{CommonOperations, SharedState};

use crate::{
    FactWakeups,
    access::{
        AccessExplanations, CallerResolver, IdentityMode, IdentityResolver, PrincipalBindings, RoleBindings, Sessions,
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
    knowledge::{KnowledgeAdapters, KnowledgeBases},
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
    connection::{ConnectionStore, ConnectionTaskStore, probe::EndpointProber},
    environment::{EnvironmentStore, is_production},
    erasure::ErasureStore,
    execution::{
        dispatch::DispatchPolicy,
        http_call::HttpCaller,
        ports::{EventStore, ExecutionReadStore, LeaseStore, RunStore},
        provider::Provider,
        resolve_unknown::ResolutionStore,
        review::ReviewStore,
        run_metrics_observer::RunMetricsObserver,
        script::ScriptGateway,
        usage::UsageStore,
    },
    id::IdSource,
    idempotency::IdempotencyStore,
    knowledge::ports::{ChunkSearch, ContractRevocationStore, DocumentStore, IndexRevisionStore},
    memory::ports::MemoryStore,
    notification::{
        backlog::{BacklogStore, NotificationMetricsObserver},
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
    /// Stores tenants and their settings.
    pub tenants: Arc<dyn TenantStore>,
    /// Stores workspaces and their namespaces.
    pub workspaces: Arc<dyn WorkspaceStore>,
    /// Stores the settings of environments.
    pub environments: Arc<dyn EnvironmentStore>,
    /// Stores requests to erase an actor's texts, and executes approved ones.
    pub erasures: Arc<dyn ErasureStore>,
    /// Stores role bindings, and resolves scopes to resource positions.
    pub access: Arc<dyn AccessStore>,
    /// Stores bindings of principals to workloads.
    pub principal_bindings: Arc<dyn PrincipalBindingStore>,
    /// Stores assets, and finds them by slug.
    pub assets: Arc<dyn AssetStore>,
    /// Stores the versions of assets.
    pub versions: Arc<dyn VersionStore>,
    /// Stores grants of assets to principals and workspaces.
    pub asset_grants: Arc<dyn AssetGrantStore>,
    /// Finds the releases, references and workloads that depend on an asset.
    pub impact: Arc<dyn ImpactStore>,
    /// Lists the versions that maintenance compares with the artifact store.
    pub artifact_maintenance: Arc<dyn ArtifactMaintenanceStore>,
    /// Stores the documents and chunks of knowledge bases.
    pub documents: Arc<dyn DocumentStore>,
    /// Reads the index revisions of knowledge bases, and the pins of releases.
    pub index_revisions: Arc<dyn IndexRevisionStore>,
    /// Searches chunks by text and by vectors.
    pub chunk_search: Arc<dyn ChunkSearch>,
    /// Stores revocations of access contracts.
    pub contract_revocations: Arc<dyn ContractRevocationStore>,
    /// Stores pinned identities.
    pub identities: Arc<dyn IdentityStore>,
    /// Stores browser sessions.
    pub sessions: Arc<dyn SessionStore>,
    /// Reads, erases and expires the turns of conversations.
    pub memory: Arc<dyn MemoryStore>,
    /// Stores workloads, and lists those with a runtime interface.
    pub workloads: Arc<dyn WorkloadStore>,
    /// Stores share links and result tokens.
    pub share_links: Arc<dyn ShareLinkStore>,
    /// Counts the requests of anonymous clients and share link holders for rate limits.
    pub rate_limits: Arc<dyn RateLimitStore>,
    /// Stores connections and the results of their checks.
    pub connections: Arc<dyn ConnectionStore>,
    /// Lists the connections that are due for a check or an expiry notice, and stores the notices.
    pub connection_tasks: Arc<dyn ConnectionTaskStore>,
    /// Stores access requests of use cases.
    pub access_requests: Arc<dyn AccessRequestStore>,
    /// Stores use cases and their plans.
    pub use_cases: Arc<dyn UseCaseStore>,
    /// Stores releases with their bindings and verdicts.
    pub releases: Arc<dyn ReleaseStore>,
    /// Stores deployments: the lane holders of a workload in an environment, and their history.
    pub deployments: Arc<dyn DeploymentStore>,
    /// Reads the stored documents of releases.
    pub release_evidence: Arc<dyn ReleaseEvidenceStore>,
    /// Lists serving releases, and reads the results of their latest runs.
    pub serving_releases: Arc<dyn ServingReleaseStore>,
    /// Claims evaluations for the rollback advisor, and stores its recommendations.
    pub recommendations: Arc<dyn RecommendationStore>,
    /// Reads the soaks of rollouts, and commits hold reasons.
    pub rollouts: Arc<dyn RolloutStore>,
    /// Reads executions and their evidence.
    pub executions: Arc<dyn ExecutionReadStore>,
    /// Reads the stored progress and events of runs.
    pub events: Arc<dyn EventStore>,
    /// Reads the totals of ended runs for usage reports.
    pub usage: Arc<dyn UsageStore>,
    /// Commits the acceptance, start, progress and end of runs.
    pub runs: Arc<dyn RunStore>,
    /// Claims queued runs, renews and releases leases, and stores requests to cancel.
    pub leases: Arc<dyn LeaseStore>,
    /// Finds runs that await a human review, and commits the ends of reviews.
    pub reviews: Arc<dyn ReviewStore>,
    /// Stores people's decisions about runs with an unknown outcome.
    pub resolutions: Arc<dyn ResolutionStore>,
    /// Reads the audit log, and commits facts that belong to no other change.
    pub audit: Arc<dyn AuditStore>,
    /// Stores the notifications of each recipient.
    pub inboxes: Arc<dyn InboxStore>,
    /// Stores notification preferences.
    pub preferences: Arc<dyn PreferenceStore>,
    /// Stores the destinations of notifications.
    pub destinations: Arc<dyn DestinationStore>,
    /// Lists deliveries, and schedules manual retries.
    pub deliveries: Arc<dyn DeliveryStore>,
    /// Measures the backlog of notifications for metrics.
    pub notification_backlog: Arc<dyn BacklogStore>,
    /// Lets senders claim deliveries, and stores the outcomes of their attempts.
    pub outbox: Arc<dyn OutboxStore>,
    /// Stores the notification profiles of people.
    pub notification_profiles: Arc<dyn ProfileStore>,
    /// Stores announcements and the audiences to which they were sent.
    pub announcements: Arc<dyn AnnouncementStore>,
    /// Lists the records of suppressed notifications.
    pub suppressed_decisions: Arc<dyn SuppressedDecisionStore>,
    /// Reads sequenced facts, and commits the notifications that the projector derives from them.
    pub projections: Arc<dyn ProjectionStore>,
    /// Stores the Merkle trees over the audit logs.
    pub log_trees: Arc<dyn TreeStore>,
    /// Stores idempotency keys and their outcomes.
    pub idempotency: Arc<dyn IdempotencyStore>,
}

/// Settings of the installation that operations read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum time for which a synchronous run blocks its caller.
    pub sync_wait: Duration,
    /// Maximum total time of a run.
    pub execution_deadline: Duration,
    /// Duration of a run's lease, if it is not renewed.
    pub lease: Duration,
    /// Rate limit of one client for requests to one public workload.
    pub public_rate: Quota,
    /// Where runs execute: in the process that accepts them, or in workers.
    pub dispatch: DispatchPolicy,
    /// Whether the server provisions a draft generator for each tenant.
    pub generator: ProvisioningMode,
    /// Time within which a reviewer must review an answer.
    pub review_deadline: Duration,
    /// Maximum number of queued runs of one tenant.
    pub queue_cap: u32,
    /// How the identity claims of requests are verified.
    pub identity: IdentityMode,
    /// Lifetime of browser sessions.
    pub session_lifetime: SessionLifetime,
    /// Services of the default tenant that may submit runs on behalf of other principals.
    pub delegating_clients: Vec<ActorRef>,
    /// Bootstrap administrators: principals of the default tenant that administer the platform without a role
    /// binding.
    pub bootstrap_admins: Vec<ActorRef>,
    /// Host names that no tenant may claim, because they belong to the server's machine or to services that the server
    /// uses.
    pub operator_hosts: Vec<String>,
    /// Masks personal data in the outputs of runs whose policy requires it.
    pub redactor: Arc<Redactor>,
    /// Settings of knowledge bases.
    pub knowledge: KnowledgeAdapters,
    /// The prefix of the origin names of this installation's transparency logs.
    pub log_origin: LogOriginBase,
}

impl Settings {
    /// Whether releases in this environment must not use the local provider, which generates answers without a model.
    /// This applies to the environment `production` of a server with verified identities, because it serves real users.
    pub(crate) fn refuses_local_provider(&self, environment: &Slug) -> bool {
        self.identity == IdentityMode::Oidc && is_production(environment)
    }
}

/// The ports of the operations other than stores.
#[derive(Clone)]
pub struct NonStorePorts {
    /// Stores the contents of versions and full log tiles outside the database.
    pub artifacts: Arc<dyn ArtifactStore>,
    /// Calls language and embedding models.
    pub provider: Arc<dyn Provider>,
    /// Sends HTTP calls of tools and hooks.
    pub http_caller: Arc<dyn HttpCaller>,
    /// Checks whether the endpoints of connections respond.
    pub endpoint_probe: Arc<dyn EndpointProber>,
    /// Sends notifications outside the inbox.
    pub message_sender: Arc<dyn MessageSender>,
    /// Executes scripts in a sandbox.
    pub code_gateway: Arc<dyn ScriptGateway>,
    /// Stores the checkpoints of transparency logs outside the database.
    pub checkpoint_archive: Arc<dyn CheckpointArchive>,
    /// Signs the checkpoints of transparency logs.
    pub checkpoint_signer: Arc<dyn CheckpointSigner>,
    /// Witnesses that cosign checkpoints; none by default.
    pub witnesses: Vec<Arc<dyn Witness>>,
    /// Counts the runs whose ends this process stores, for metrics.
    pub run_metrics_observer: Arc<dyn RunMetricsObserver>,
    /// Counts deliveries of notifications for metrics.
    pub notification_observer: Arc<dyn NotificationMetricsObserver>,
    /// Returns the current time.
    pub clock: Arc<dyn Clock>,
    /// Creates random and time-ordered identifiers, salts and secrets.
    pub ids: Arc<dyn IdSource>,
}

/// All operations, grouped in one struct for each noun. Clones are cheap and share the caches.
#[derive(Clone)]
pub struct Services {
    /// Lists the events of the audit log.
    pub audit_log: Arc<AuditLog>,
    /// Verifies artifacts, and collects unreferenced ones.
    pub artifacts: Arc<Artifacts>,
    /// Operations on assets, their versions, grants and references.
    pub assets: Arc<Assets>,
    /// Creates the demo data.
    pub demo: Arc<DemoSeeder>,
    /// Reads and changes the settings of environments.
    pub environments: Arc<Environments>,
    /// Requests, decides and executes erasures of actors' texts.
    pub erasures: Arc<Erasures>,
    /// Cancels runs.
    pub cancellations: Arc<Cancellations>,
    /// Reads the citations of results.
    pub citations: Arc<Citations>,
    /// Creates signed evidence bundles of runs and releases.
    pub evidence_bundles: Arc<EvidenceBundles>,
    /// Accepts and starts runs for requests.
    pub executions: Arc<Executions>,
    /// Reads executions, their events and their evidence.
    pub execution_reader: Arc<ExecutionReader>,
    /// Generates drafts of content.
    pub draft_generator: Arc<DraftGenerator>,
    /// Records verdicts on answers, and ends overdue reviews.
    pub reviews: Arc<Reviews>,
    /// Ends runs whose process was lost, and drains active runs at shutdown.
    pub run_recovery: Arc<RunRecovery>,
    /// Executes queued runs, and resumes runs with an expired lease.
    pub run_worker: Arc<RunWorker>,
    /// Records people's decisions about runs with an unknown outcome.
    pub unknown_outcomes: Arc<UnknownOutcomes>,
    /// Creates usage reports.
    pub usage_reports: Arc<UsageReports>,
    /// Creates, validates and reads flows from YAML.
    pub flows: Arc<Flows>,
    /// Executes each request with an idempotency key once.
    pub keyed_requests: Arc<KeyedRequests>,
    /// Resolves identity claims to callers.
    pub identities: Arc<CallerResolver>,
    /// Converts verified identities into claims, and pins their names.
    pub identity_resolver: Arc<IdentityResolver>,
    /// Starts, finds, renews and ends browser sessions.
    pub sessions: Arc<Sessions>,
    /// Reports the effect that a sign-in would have.
    pub test_sign_ins: Arc<TestSignIns>,
    /// Operations on knowledge bases: ingest, retrieval, re-embedding, revocation.
    pub knowledge_bases: Arc<KnowledgeBases>,
    /// Reads and erases conversation memory.
    pub memories: Arc<Memories>,
    /// Operations on inboxes, preferences, destinations and deliveries of notifications.
    pub notifications: Arc<Notifications>,
    /// Writes the notifications of sequenced facts.
    pub projector: Arc<Projector>,
    /// Measures the backlog of notifications for metrics.
    pub backlog_meter: Arc<BacklogMeter>,
    /// Sends notifications to destinations and people outside the inbox.
    pub notification_sender: Arc<NotificationSender>,
    /// Lists, sets and deletes bindings of principals to workloads.
    pub principal_bindings: Arc<PrincipalBindings>,
    /// Counts requests against the rate limits of anonymous clients.
    pub rate_limits: Arc<RateLimits>,
    /// Drafts, reviews, activates and rolls back releases.
    pub releases: Arc<Releases>,
    /// Grants and revokes roles.
    pub role_bindings: Arc<RoleBindings>,
    /// Explains which role bindings allow an operation.
    pub access_explanations: Arc<AccessExplanations>,
    /// Advances and reads rollouts.
    pub rollouts: Arc<Rollouts>,
    /// Operations on share links, and their verification.
    pub share_links: Arc<ShareLinks>,
    /// Creates, changes, deletes and checks connections.
    pub connections: Arc<Connections>,
    /// Lists, grants and denies access requests.
    pub access_requests: Arc<AccessRequests>,
    /// Generates, creates, refines and publishes use cases.
    pub use_cases: Arc<UseCases>,
    /// Creates tenants, and changes their settings.
    pub tenants: Arc<Tenants>,
    /// Reads checkpoints, proofs and tiles of transparency logs.
    pub transparency_logs: Arc<TransparencyLogs>,
    /// Audits whole transparency logs for operators.
    pub log_auditor: Arc<LogAuditor>,
    /// Creates and changes workloads, and reads their runtime interfaces.
    pub workloads: Arc<Workloads>,
    /// Creates, reads and lists workspaces.
    pub workspaces: Arc<Workspaces>,
    shared: SharedState,
}

impl Services {
    /// Creates the operations with these stores, and with empty caches.
    #[must_use]
    pub fn new(stores: Stores, gateways: NonStorePorts, settings: Settings) -> Self {
        Self::assemble(stores, SharedState::new(gateways, settings))
    }

    /// Returns the same operations with other stores, for example those of another worker thread. The new instance
    /// shares caches and wakeups with this one.
    #[must_use]
    pub fn clone_with_stores(&self, stores: Stores) -> Self {
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

    /// Returns the wakeups of the sequencer and the projector of this process.
    #[must_use]
    pub fn fact_wakeups(&self) -> Arc<FactWakeups> {
        Arc::clone(&self.shared.context.fact_wakeups)
    }

    /// Creates a builder of the transparency logs that stores their trees in `log_trees`.
    #[must_use]
    pub fn tree_builder(&self, log_trees: Arc<dyn TreeStore>) -> TreeBuilder {
        TreeBuilder::new(log_trees, &self.shared)
    }

    /// Exchanges wakeups with other processes in an endless loop.
    pub async fn exchange_wakeups(&self, bus: Arc<dyn WakeupBus>) {
        run_exchange(self.shared.wakeups.subscriptions(), Arc::clone(&self.shared.active_runs), bus).await;
    }
}
