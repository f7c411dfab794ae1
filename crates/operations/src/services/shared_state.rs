//! State that the operations of one process share.

use crate::{
    NonStorePorts, Settings, Stores,
    access::{CallerResolver, IdentityClaims, PinCache, ScopeResolver, SessionRenewals},
    anonymous_rate_limit::{RateLimitCache, RateLimits},
    asset::{Artifacts, RecordedMismatches},
    cache::{CACHE_BYTE_LIMITS, caller_bytes, claims_bytes, weighted_cache},
    commit_context::CommitContext,
    execution::{
        active_runs::ActiveRuns, inline_run_slots::InlineRunSlots, large_runs::LargeRuns, plan::ExecutionCache,
        script::ScriptSlots,
    },
    idempotency::KeyedRequests,
    notification::inbox_wakeups::InboxWakeups,
    release::EvaluatedContent,
    transparency_log::{TileCache, new_tile_cache},
    wakeups::WakeupSender,
};
use fairway_domain::{
    access::Caller,
    asset::artifact_store::ArtifactStore,
    connection::probe::EndpointProber,
    execution::{
        http_call::HttpCaller, provider::Provider, run_metrics_observer::RunMetricsObserver, script::ScriptGateway,
    },
    id::{AssetVersionId, NamespaceId, TenantId, WorkspaceId},
    notification::{backlog::NotificationMetricsObserver, message::MessageSender},
    transparency_log::{CheckpointArchive, CheckpointSigner, Witness},
};
use moka::sync::Cache;
use std::sync::Arc;
use tokio::sync::Notify;

/// Ports without a database connection, settings, caches, and the active runs of the process. Clones share all of it.
#[derive(Clone)]
pub(crate) struct SharedState {
    pub(crate) artifact_store: Arc<dyn ArtifactStore>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) http_caller: Arc<dyn HttpCaller>,
    pub(crate) endpoint_probe: Arc<dyn EndpointProber>,
    pub(crate) message_sender: Arc<dyn MessageSender>,
    pub(crate) code_gateway: Arc<dyn ScriptGateway>,
    pub(crate) run_metrics_observer: Arc<dyn RunMetricsObserver>,
    pub(crate) notification_observer: Arc<dyn NotificationMetricsObserver>,
    pub(crate) checkpoint_archive: Arc<dyn CheckpointArchive>,
    pub(crate) checkpoint_signer: Arc<dyn CheckpointSigner>,
    pub(crate) witnesses: Vec<Arc<dyn Witness>>,
    /// Cache of verified full tiles of transparency logs; a full tile never changes.
    pub(crate) log_tiles: TileCache,
    pub(crate) context: CommitContext,
    pub(crate) settings: Arc<Settings>,
    pub(crate) plans: Arc<ExecutionCache>,
    /// Cache of callers by their claims. The accept statement verifies the access revision of a cached caller.
    pub(crate) callers: Cache<IdentityClaims, Arc<Caller>>,
    /// Cache of the namespace of each workspace, which never changes.
    pub(crate) namespaces: Cache<WorkspaceId, NamespaceId>,
    /// Cache of content summaries for the activation checks; a version never changes.
    pub(crate) summaries: Cache<(TenantId, AssetVersionId), Arc<EvaluatedContent>>,
    /// Artifacts whose mismatch this process recorded recently.
    pub(crate) mismatches: RecordedMismatches,
    pub(crate) pins: PinCache,
    /// Renewals of browser sessions that are in progress.
    pub(crate) session_renewals: Arc<SessionRenewals>,
    /// Cached refusals of clients that currently exceed the rate limit.
    pub(crate) refusals: RateLimitCache,
    pub(crate) active_runs: Arc<ActiveRuns>,
    pub(crate) large_runs: Arc<LargeRuns>,
    pub(crate) run_limit: Arc<InlineRunSlots>,
    pub(crate) scripts: Arc<ScriptSlots>,
    pub(crate) wakeups: WakeupSender,
    /// Wakes the notification sender of this process after a projection.
    pub(crate) outbox_wakeup: Arc<Notify>,
    /// Wakes the inbox streams of this process after a projection.
    pub(crate) inbox_wakeups: Arc<InboxWakeups>,
}

impl SharedState {
    /// Creates the state of a new process, with empty caches and without active runs.
    pub(crate) fn new(gateways: NonStorePorts, settings: Settings) -> Self {
        let active_runs = Arc::<ActiveRuns>::default();
        Self {
            artifact_store: gateways.artifacts,
            provider: gateways.provider,
            http_caller: gateways.http_caller,
            endpoint_probe: gateways.endpoint_probe,
            message_sender: gateways.message_sender,
            outbox_wakeup: Arc::default(),
            inbox_wakeups: Arc::default(),
            code_gateway: gateways.code_gateway,
            run_metrics_observer: gateways.run_metrics_observer,
            notification_observer: gateways.notification_observer,
            checkpoint_archive: gateways.checkpoint_archive,
            checkpoint_signer: gateways.checkpoint_signer,
            witnesses: gateways.witnesses,
            log_tiles: new_tile_cache(),
            context: CommitContext::new(gateways.clock, gateways.ids),
            settings: Arc::new(settings),
            plans: Arc::new(ExecutionCache::new()),
            callers: weighted_cache(CACHE_BYTE_LIMITS.callers, |claims: &IdentityClaims, caller: &Arc<Caller>| {
                claims_bytes(claims).saturating_add(caller_bytes(caller))
            })
            .build(),
            namespaces: weighted_cache(CACHE_BYTE_LIMITS.namespaces, |_, _| 0).build(),
            summaries: weighted_cache(CACHE_BYTE_LIMITS.summaries, |_, summary: &Arc<EvaluatedContent>| {
                summary.bytes()
            })
            .build(),
            mismatches: RecordedMismatches::new(),
            pins: PinCache::new(),
            session_renewals: Arc::new(SessionRenewals::new()),
            refusals: RateLimitCache::new(),
            wakeups: WakeupSender::new(Arc::clone(&active_runs)),
            active_runs,
            large_runs: Arc::default(),
            run_limit: Arc::default(),
            scripts: Arc::default(),
        }
    }
}

/// Operations on which most other operations depend, created once for each [`crate::Services`].
pub(crate) struct CommonOperations {
    pub(crate) artifacts: Arc<Artifacts>,
    pub(crate) scope_resolver: Arc<ScopeResolver>,
    pub(crate) keyed_requests: Arc<KeyedRequests>,
    pub(crate) identities: Arc<CallerResolver>,
    pub(crate) rate_limits: Arc<RateLimits>,
}

impl CommonOperations {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            artifacts: Arc::new(Artifacts::new(stores, shared)),
            scope_resolver: Arc::new(ScopeResolver::new(stores, shared)),
            keyed_requests: Arc::new(KeyedRequests::new(stores, shared)),
            identities: Arc::new(CallerResolver::new(stores, shared)),
            rate_limits: Arc::new(RateLimits::new(stores, shared)),
        }
    }
}
