//! The ports of the stores of releases, deployments and rollback recommendations.

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

/// A release and its deployment, read in one query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleaseWithDeployment {
    /// The release.
    pub release: Release,
    /// The lane holders of the release's workload in its environment.
    pub deployment: Deployment,
}

impl ReleaseWithDeployment {
    /// Sets the start of the current lane's soak to the time that the store reports.
    #[must_use]
    pub fn with_soak_start(mut self, soak_start: Option<Timestamp>) -> Self {
        self.release.0.rollout = self.release.0.rollout.map(|rollout| rollout.with_soak_start(soak_start));
        self
    }
}

/// A release and its tenant, for background tasks that process all tenants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TenantRelease {
    /// The tenant of the release.
    pub tenant: TenantId,
    /// The release.
    pub release: ReleaseId,
}

/// The filter of a list of releases.
#[derive(Clone, Debug, Default)]
pub struct ReleaseFilter {
    /// Include only releases of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Include only releases of this workload.
    pub workload: Option<WorkloadId>,
    /// Include only releases in this environment.
    pub environment: Option<Slug>,
    /// Include only releases in this state.
    pub state: Option<StateName>,
    /// Include only releases within the caller's visible scopes; `None` includes the whole tenant.
    pub visible_scopes: Option<VisibleScopes>,
    /// Whether to exclude releases of built-in workloads.
    pub excludes_builtin: bool,
}

/// The current revisions, with which a cached view of a deployment must agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Revisions {
    /// The revision of the deployment.
    pub deployment: Revision,
    /// The access revision of the tenant.
    pub access: Revision,
}

/// Stores releases, their bindings and their approvals.
#[async_trait]
pub trait ReleaseStore: Send + Sync {
    /// Finds a release with its bindings, verdicts and deployment. The verdicts have no notes.
    async fn find(&self, scope: TenantScope, id: ReleaseId) -> Result<Option<ReleaseWithDeployment>, StoreError>;
    /// Finds the workspace and the workload of a release.
    async fn location(
        &self,
        scope: TenantScope,
        id: ReleaseId,
    ) -> Result<Option<(WorkspaceId, WorkloadId)>, StoreError>;
    /// Lists a page of releases without bindings or verdicts, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &ReleaseFilter,
        page: PageRequest,
    ) -> Result<Page<Release>, StoreError>;
    /// Lists a page of a release's verdicts with their notes, newest first.
    async fn approvals(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        page: PageRequest,
    ) -> Result<Page<ReviewerVerdict>, StoreError>;
    /// Finds a verdict on a release, with its note.
    async fn approval(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        approval: ApprovalId,
    ) -> Result<Option<ReviewerVerdict>, StoreError>;
    /// Stores a draft, and an empty deployment if none exists. Fails with `Stale` if the workload is retired.
    async fn commit_draft(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores the binding that was added to a draft last.
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
    /// Stores a verdict and its effect on the release.
    async fn commit_review(
        &self,
        scope: TenantScope,
        change: Change<ReviewedRelease>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a transition that reassigns no lane.
    async fn commit_transition(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
}

/// Stores which releases serve a workload in an environment on which lanes.
#[async_trait]
pub trait DeploymentStore: Send + Sync {
    /// Finds the lane holders; `None` before the first release in the environment.
    async fn deployment(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
    ) -> Result<Option<Deployment>, StoreError>;
    /// Lists the environments in which the lane or a more general lane has an active release, ordered by name.
    async fn environments_serving(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        lane: Lane,
        limit: u32,
    ) -> Result<Vec<Slug>, StoreError>;
    /// Lists the lane history of a workload in an environment, newest first, with at most `limit` entries for each
    /// lane.
    async fn lane_history(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
        limit: u32,
    ) -> Result<Vec<LaneHistoryEntry>, StoreError>;
    /// Reads the revisions of a deployment and of the tenant's access rules.
    async fn current_revisions(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
    ) -> Result<Option<Revisions>, StoreError>;
    /// Stores a reassignment of lanes: the deployment, the release with its rollout, superseded and reinstated
    /// releases, the history, and the evidence. Returns the start of the current lane's soak if the release has a
    /// rollout.
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
    /// Finds an artifact of a release.
    async fn find_artifact(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        artifact: ArtifactId,
    ) -> Result<Option<ReleaseEvidenceArtifact>, StoreError>;
    /// Lists a page of a release's artifacts, newest first.
    async fn list_artifacts(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        page: PageRequest,
    ) -> Result<Page<ReleaseEvidenceArtifact>, StoreError>;
}

/// Reads the releases that serve and the results of their runs, for rollouts and the rollback advisor.
#[async_trait]
pub trait ServingReleaseStore: Send + Sync {
    /// Counts the runs and the failures among the newest ended runs of a release, at most `newest`.
    async fn ended_runs(&self, scope: TenantScope, release: ReleaseId, newest: u32) -> Result<EndedRuns, StoreError>;
    /// Lists releases of all tenants that hold lanes, in a stable order, starting after the given release.
    async fn list_serving(&self, after: Option<TenantRelease>, limit: u32) -> Result<Vec<TenantRelease>, StoreError>;
}

/// Stores recommendations of the rollback advisor.
#[async_trait]
pub trait RecommendationStore: Send + Sync {
    /// Claims the periodic recommendation job. Only one process per interval receives true.
    async fn claim_recommendation_job(&self) -> Result<bool, StoreError>;
    /// Stores a changed recommendation.
    async fn commit_recommendation(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError>;
}
