//! The ports that store releases, deployments and rollback recommendations.

use super::{
    Release, StateName,
    deployment::{Deployment, DeploymentChange},
    lane::{Lane, LaneHistoryEntry},
    recommendation::EndedRuns,
    review::{ReviewedRelease, ReviewerVerdict},
    rollback::ReleaseEvidenceArtifact,
};
use crate::{
    access::rights::VisibleScopes,
    id::{ApprovalId, ArtifactId, BindingId, ReleaseId, TenantId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    slug::Slug,
    store::{Change, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;

/// A release and the deployment of its workload, read in one query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleaseWithDeployment {
    /// The release as it is stored.
    pub release: Release,
    /// The lane holders of the release's workload in its environment.
    pub deployment: Deployment,
}

impl ReleaseWithDeployment {
    /// Sets the time at which the current lane's soak started, as the store measured it.
    #[must_use]
    pub fn with_soak_start(mut self, soak_start: Option<Timestamp>) -> Self {
        self.release.0.rollout = self.release.0.rollout.map(|rollout| rollout.with_soak_start(soak_start));
        self
    }
}

/// A release with its tenant, for background tasks that cover all tenants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TenantReleaseKey {
    /// The tenant to which the release belongs.
    pub tenant: TenantId,
    /// The identifier of the release.
    pub release: ReleaseId,
}

/// The conditions of a list of releases. A release must meet all that are set.
#[derive(Clone, Debug, Default)]
pub struct ReleaseFilter {
    /// Only releases of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only releases of this workload.
    pub workload: Option<WorkloadId>,
    /// Only releases in this environment.
    pub environment: Option<Slug>,
    /// Only releases in this state.
    pub state: Option<StateName>,
    /// Only releases within these scopes, which the caller may see; `None` covers the whole tenant.
    pub visible_scopes: Option<VisibleScopes>,
    /// Whether the list omits releases of built-in workloads.
    pub excludes_builtin: bool,
}

/// The current revisions of a deployment and of access. A cached view is valid while both are unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeploymentAccessRevisions {
    /// The revision of the deployment.
    pub deployment: Revision,
    /// The access revision of the tenant.
    pub access: Revision,
}

/// Stores releases with their bindings and verdicts.
#[async_trait]
pub trait ReleaseStore: Send + Sync {
    /// Finds a release with its bindings, its verdicts without notes, and its deployment.
    async fn find(&self, scope: TenantScope, id: ReleaseId) -> Result<Option<ReleaseWithDeployment>, StoreError>;
    /// Finds the workspace and the workload of a release.
    async fn location(
        &self,
        scope: TenantScope,
        id: ReleaseId,
    ) -> Result<Option<(WorkspaceId, WorkloadId)>, StoreError>;
    /// Lists one page of releases without bindings and verdicts, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &ReleaseFilter,
        page: PageRequest,
    ) -> Result<Page<Release>, StoreError>;
    /// Lists one page of the verdicts on a release with their notes, newest first.
    async fn approvals(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        page: PageRequest,
    ) -> Result<Page<ReviewerVerdict>, StoreError>;
    /// Finds one verdict on a release, with its note.
    async fn approval(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        approval: ApprovalId,
    ) -> Result<Option<ReviewerVerdict>, StoreError>;
    /// Stores a draft, and an empty deployment if the environment has none. Fails with `Stale` if the workload is
    /// retired.
    async fn commit_draft(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores the newest binding of a draft. Fails with `Stale` if the release has changed, or if the bound asset is not
    /// active.
    async fn commit_binding(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Removes a binding from a draft.
    async fn commit_binding_removal(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        binding: BindingId,
    ) -> Result<(), CommitError>;
    /// Stores a verdict, and the state of the release after it.
    async fn commit_review(
        &self,
        scope: TenantScope,
        change: Change<ReviewedRelease>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a transition of a release that reassigns no lane. Fails with `Stale` if the release has changed, or if the
    /// transition freezes references to an asset that is not active.
    async fn commit_transition(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
}

/// Stores which release holds which lane of a workload in an environment.
#[async_trait]
pub trait DeploymentStore: Send + Sync {
    /// Finds the lane holders of a workload; `None` if the environment has had no release.
    async fn deployment(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
    ) -> Result<Option<Deployment>, StoreError>;
    /// Lists the environments in which a release holds this lane or a more general one, ordered by name.
    async fn environments_serving(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        lane: Lane,
        limit: u32,
    ) -> Result<Vec<Slug>, StoreError>;
    /// Lists the reassignments of lanes in an environment, newest first, with at most `limit` entries for each lane.
    async fn lane_history(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
        limit: u32,
    ) -> Result<Vec<LaneHistoryEntry>, StoreError>;
    /// Reads the revision of a deployment and the access revision of the tenant.
    async fn current_revisions(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
    ) -> Result<Option<DeploymentAccessRevisions>, StoreError>;
    /// Stores a reassignment of lanes: the deployment, the release with its rollout, superseded and reinstated
    /// releases, the lane history and the evidence. If the release has a rollout, returns the time at which the current
    /// lane's soak started. Fails with `Stale` if the deployment or one of the releases has changed, or if a
    /// lane is assigned to a release of a retired workload.
    async fn commit_lane_change(
        &self,
        scope: TenantScope,
        change: DeploymentChange,
        key: Option<&KeyedOutcome>,
    ) -> Result<Option<Timestamp>, CommitError>;
}

/// Reads the evidence artifacts of releases.
#[async_trait]
pub trait ReleaseEvidenceStore: Send + Sync {
    /// Finds one evidence artifact of a release.
    async fn find_artifact(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        artifact: ArtifactId,
    ) -> Result<Option<ReleaseEvidenceArtifact>, StoreError>;
    /// Lists one page of a release's evidence artifacts, newest first.
    async fn list_artifacts(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        page: PageRequest,
    ) -> Result<Page<ReleaseEvidenceArtifact>, StoreError>;
}

/// Reads the releases that hold lanes and the results of their runs, for rollouts and rollback recommendations.
#[async_trait]
pub trait ServingReleaseStore: Send + Sync {
    /// Counts the newest ended runs of a release, at most `newest`, and the failures among them.
    async fn ended_runs(&self, scope: TenantScope, release: ReleaseId, newest: u32) -> Result<EndedRuns, StoreError>;
    /// Lists releases of all tenants that hold lanes, in a stable order from the release `after`.
    async fn list_serving(
        &self,
        after: Option<TenantReleaseKey>,
        limit: u32,
    ) -> Result<Vec<TenantReleaseKey>, StoreError>;
}

/// Stores rollback recommendations.
#[async_trait]
pub trait RecommendationStore: Send + Sync {
    /// Claims the scheduled job of the recommendations. Only one process receives `true` in each interval.
    async fn claim_recommendation_job(&self) -> Result<bool, StoreError>;
    /// Stores a recommendation that changed.
    async fn commit_recommendation(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError>;
}
