//! Run plans: the compiled contents of a release, built once and shared by its runs.

mod builder;

use crate::{
    Failure, Settings, Stores,
    asset::Assets,
    cache::{CACHE_BYTE_LIMITS, PendingLoads, weighted_cache, workload_with_deployment_bytes},
    commit_context::CommitContext,
    release::Releases,
    services::SharedState,
};
use fairway_domain::{
    asset::{AssetVersion, kind::AssetKind},
    evidence::{EvidenceSnapshot, SnapshotDigest},
    execution::{
        plan::{RunPlan, SourceVersion},
        ports::{RunStore, WorkloadWithDeployment},
        provider::Provider,
    },
    id::{ReleaseId, TenantId, WorkloadId},
    release::ports::ReleaseStore,
    slug::Slug,
    store::Revision,
    tenant::TenantScope,
    workload::Workload,
};
use moka::sync::Cache;
use std::sync::Arc;

/// Estimated memory of a plan per byte of its source text. Compiled patterns and schemas are counted separately,
/// because their memory does not depend on the size of their text.
const TEXT_FACTOR: usize = 4;
/// Memory of a plan without content, expressed in bytes of source text.
pub(crate) const EMPTY_PLAN_TEXT_BYTES: usize = 1_024;
/// Approximate heap memory of a slug, in bytes.
const SLUG_BYTES: usize = 48;

/// The cached plan of a release. The bindings of a release that held a lane never change, because it cannot return to
/// draft. The cache key includes the workload's revision, because the evidence contains the workload's owner and slug.
/// It also includes the deployment's revision, because the evidence contains the approvals.
#[derive(Debug)]
pub struct CachedPlan {
    /// The compiled contents of the release.
    pub plan: RunPlan,
    /// The governance chain of the release; it is already stored.
    pub snapshot: EvidenceSnapshot,
    /// Estimated memory of the plan, in bytes.
    bytes: usize,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct PlanKey {
    tenant: TenantId,
    release: ReleaseId,
    workload: Revision,
    deployment: Revision,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct WorkloadCacheKey {
    pub(crate) tenant: TenantId,
    pub(crate) slug: Slug,
    pub(crate) environment: Slug,
}

/// Cached state that runs use without a database read. The accept statement verifies the revisions of this state, and
/// stores nothing if a revision changed.
#[derive(Debug)]
pub struct ExecutionCache {
    plans: Cache<PlanKey, Arc<CachedPlan>>,
    plans_in_flight: PendingLoads<PlanKey, Arc<CachedPlan>>,
    pub(crate) workloads_by_slug: Cache<WorkloadCacheKey, Arc<WorkloadWithDeployment>>,
    pub(crate) workloads_by_id: Cache<(TenantId, WorkloadId, Slug), Arc<WorkloadWithDeployment>>,
}

impl ExecutionCache {
    pub(crate) fn new() -> Self {
        Self {
            plans: weighted_cache(CACHE_BYTE_LIMITS.plans, |_: &PlanKey, plan: &Arc<CachedPlan>| plan.bytes).build(),
            plans_in_flight: PendingLoads::new(),
            workloads_by_slug: weighted_cache(
                CACHE_BYTE_LIMITS.entries,
                |_: &WorkloadCacheKey, entry: &Arc<WorkloadWithDeployment>| {
                    SLUG_BYTES.saturating_mul(2).saturating_add(workload_with_deployment_bytes(entry))
                },
            )
            .build(),
            workloads_by_id: weighted_cache(
                CACHE_BYTE_LIMITS.entries,
                |_: &(TenantId, WorkloadId, Slug), entry: &Arc<WorkloadWithDeployment>| {
                    SLUG_BYTES.saturating_add(workload_with_deployment_bytes(entry))
                },
            )
            .build(),
        }
    }

    /// Caches a workload with its deployment after the request of an authorized caller. An entry without a deployment
    /// is not cached, because callers can invent names of environments.
    pub(crate) fn cache_workload(&self, key: WorkloadCacheKey, entry: &Arc<WorkloadWithDeployment>) {
        if entry.deployment.is_some() {
            self.workloads_by_slug.insert(key, Arc::clone(entry));
        }
    }
}

/// Builds and caches run plans.
pub struct RunPlans {
    pub(super) context: CommitContext,
    plans: Arc<ExecutionCache>,
    settings: Arc<Settings>,
    provider: Arc<dyn Provider>,
    run_store: Arc<dyn RunStore>,
    release_store: Arc<dyn ReleaseStore>,
    assets: Arc<Assets>,
    releases: Arc<Releases>,
}

impl RunPlans {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, assets: &Arc<Assets>, releases: &Arc<Releases>) -> Self {
        Self {
            context: shared.context.clone(),
            plans: Arc::clone(&shared.plans),
            settings: Arc::clone(&shared.settings),
            provider: Arc::clone(&shared.provider),
            run_store: Arc::clone(&stores.runs),
            release_store: Arc::clone(&stores.releases),
            assets: Arc::clone(assets),
            releases: Arc::clone(releases),
        }
    }
}

impl RunPlans {
    /// Returns the plan of a release from the cache, or builds it.
    pub(crate) async fn plan(
        &self,
        scope: TenantScope,
        workload: &Workload,
        release: ReleaseId,
        deployment: Revision,
    ) -> Result<Arc<CachedPlan>, Failure> {
        let key = PlanKey { tenant: scope.tenant(), release, workload: workload.revision, deployment };
        if let Some(plan) = self.plans.plans.get(&key) {
            return Ok(plan);
        }
        // The future is boxed to keep its size out of most calls, which find a cached plan.
        let build = Box::pin(self.build_current_plan(scope, workload, release, key.clone()));
        self.plans.plans_in_flight.get_or_compute(key.clone(), build).await
    }

    /// Builds and caches the plan of a release on a lane.
    async fn build_current_plan(
        &self,
        scope: TenantScope,
        workload: &Workload,
        release: ReleaseId,
        key: PlanKey,
    ) -> Result<Arc<CachedPlan>, Failure> {
        let release_with_deployment =
            self.release_store.find(scope, release).await?.ok_or(Failure::Inconsistent("no such release"))?;
        if !release_with_deployment.release.state.can_hold_lanes() {
            // The release lost its lane after the cached deployment was read. The accept statement would fail, so the
            // caller decides again at once.
            return Err(Failure::Contended);
        }
        let plan = Arc::new(self.build(scope, workload, &release_with_deployment.release).await?);
        self.run_store.store_evidence_snapshot(scope, &plan.snapshot).await?;
        self.plans.plans.insert(key, Arc::clone(&plan));
        Ok(plan)
    }

    /// Returns the plan of a started run, with the snapshot that was stored at its start. The release may have lost its
    /// lane since then.
    pub(crate) async fn plan_of_started(
        &self,
        scope: TenantScope,
        workload: &Workload,
        release: ReleaseId,
        snapshot: SnapshotDigest,
    ) -> Result<Arc<CachedPlan>, Failure> {
        let release_with_deployment =
            self.release_store.find(scope, release).await?.ok_or(Failure::Inconsistent("no such release"))?;
        let mut plan = Box::pin(self.build(scope, workload, &release_with_deployment.release)).await?;
        plan.snapshot.digest = snapshot;
        Ok(Arc::new(plan))
    }
}

/// Whether runs read the content of bindings of this kind, so that plans must contain it.
pub(crate) const fn is_read_by_runs(kind: AssetKind) -> bool {
    matches!(
        kind,
        AssetKind::PolicyBundle
            | AssetKind::OrchestrationFlow
            | AssetKind::PromptTemplate
            | AssetKind::ModelPolicy
            | AssetKind::ModelConfig
            | AssetKind::SovereigntyProfile
            | AssetKind::KnowledgeBase
            | AssetKind::Memory
            | AssetKind::ToolDefinition
            | AssetKind::GuardrailConfig
            | AssetKind::HookDefinition
            | AssetKind::SandboxProfile
    )
}

/// Returns the reference to a version, as the evidence of runs contains it.
pub(crate) fn source_version(slug: &Slug, version: &AssetVersion) -> SourceVersion {
    SourceVersion {
        reference: format!("{slug}@{}", version.version_label),
        checksum: version.checksum.clone(),
        size_bytes: u64::try_from(version.canonical.len()).unwrap_or(u64::MAX),
    }
}

/// Estimates the memory of a plan from the bytes of its text and of its compiled parts.
pub(crate) const fn plan_bytes(text: usize, compiled: usize) -> usize {
    text.saturating_mul(TEXT_FACTOR).saturating_add(compiled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_size_adds_compiled_bytes_and_saturates() {
        assert_eq!(plan_bytes(1_000, 0), 4_000);
        assert_eq!(plan_bytes(1_000, 1 << 20), 4_000 + (1 << 20));
        assert_eq!(plan_bytes(usize::MAX, 1), usize::MAX, "the estimate saturates");
    }
}
