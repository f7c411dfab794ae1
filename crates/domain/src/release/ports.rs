//! The release store port.

use super::{
    Release, StateName,
    lane::{Deployment, DeploymentChange, Lane, LaneHistoryEntry},
    recommendation::EndedRuns,
    review::{Approval, ReviewedRelease},
    rollback::ReleaseEvidenceDocument,
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

/// A release with its deployment, read together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleaseWithDeployment {
    /// The release.
    pub release: Release,
    /// The lane holders of its workload in its environment.
    pub deployment: Deployment,
}

impl ReleaseWithDeployment {
    /// Sets the soak start of the rollout's current lane, as reported by the store.
    #[must_use]
    pub fn with_soak_start(mut self, moment: Option<Timestamp>) -> Self {
        self.release.0.rollout = self.release.0.rollout.map(|rollout| rollout.with_soak_start(moment));
        self
    }
}

/// A release with its tenant, for jobs that span tenants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TenantRelease {
    /// The tenant.
    pub tenant: TenantId,
    /// The release.
    pub release: ReleaseId,
}

/// The filter of a release listing.
#[derive(Clone, Debug, Default)]
pub struct ReleaseFilter {
    /// Releases of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Releases of this workload.
    pub workload: Option<WorkloadId>,
    /// Releases in this environment.
    pub environment: Option<Slug>,
    /// Releases in this state.
    pub state: Option<StateName>,
    /// Releases within the caller's visible scopes; `None` covers the whole tenant.
    pub visible_scopes: Option<VisibleScopes>,
    /// Whether releases of built-in workloads are left out.
    pub excludes_builtin: bool,
}

/// The revisions that a cached deployment view must match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Revisions {
    /// The deployment's revision.
    pub deployment: Revision,
    /// The tenant's access revision.
    pub access: Revision,
}

/// Stores releases, their bindings and their approvals.
#[async_trait]
pub trait ReleaseStore: Send + Sync {
    /// Finds a release with its bindings, verdicts (without notes) and deployment.
    async fn find(&self, scope: TenantScope, id: ReleaseId) -> Result<Option<ReleaseWithDeployment>, StoreError>;
    /// The workspace and workload of a release.
    async fn location(
        &self,
        scope: TenantScope,
        id: ReleaseId,
    ) -> Result<Option<(WorkspaceId, WorkloadId)>, StoreError>;
    /// A page of releases without bindings or verdicts, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &ReleaseFilter,
        page: PageRequest,
    ) -> Result<Page<Release>, StoreError>;
    /// A page of a release's verdicts with notes, newest first.
    async fn approvals(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        page: PageRequest,
    ) -> Result<Page<Approval>, StoreError>;
    /// A verdict on a release, with its note.
    async fn approval(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        approval: ApprovalId,
    ) -> Result<Option<Approval>, StoreError>;
    /// Stores a draft, and an empty deployment if none exists. Stale when the workload is retired.
    async fn commit_draft(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores the newest binding of a draft.
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

/// Stores which releases serve a workload in an environment, on which lanes.
#[async_trait]
pub trait DeploymentStore: Send + Sync {
    /// The lane holders; `None` before the first release in the environment.
    async fn deployment(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
    ) -> Result<Option<Deployment>, StoreError>;
    /// The environments where the lane or a more general one has an active release, in the order of their names.
    async fn environments_serving(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        lane: Lane,
        limit: u32,
    ) -> Result<Vec<Slug>, StoreError>;
    /// The lane history of a workload in an environment, newest first: the newest `limit` entries of each lane.
    async fn lane_history(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
        limit: u32,
    ) -> Result<Vec<LaneHistoryEntry>, StoreError>;
    /// The revisions of a deployment and of the tenant's access rules, in one point read.
    async fn current_revisions(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
    ) -> Result<Option<Revisions>, StoreError>;
    /// Finds an artifact of a release.
    async fn find_artifact(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        artifact: ArtifactId,
    ) -> Result<Option<ReleaseEvidenceDocument>, StoreError>;
    /// A page of a release's artifacts, newest first.
    async fn list_artifacts(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        page: PageRequest,
    ) -> Result<Page<ReleaseEvidenceDocument>, StoreError>;
    /// The number of failures among the newest ended runs of a release.
    async fn ended_runs(&self, scope: TenantScope, release: ReleaseId, newest: u32) -> Result<EndedRuns, StoreError>;
    /// A page of releases that hold lanes, across tenants, in stable order after the given one.
    async fn list_serving(&self, after: Option<TenantRelease>, limit: u32) -> Result<Vec<TenantRelease>, StoreError>;
    /// Stores a lane reassignment: the deployment, the release with its rollout, superseded and reinstated releases,
    /// the history, and the evidence. Returns the soak start of the rollout's current lane, if there is a rollout.
    async fn commit_lane_change(
        &self,
        scope: TenantScope,
        change: DeploymentChange,
        key: Option<&KeyedOutcome>,
    ) -> Result<Option<Timestamp>, CommitError>;
}

/// Stores recommendations of the rollback advisor.
#[async_trait]
pub trait RecommendationStore: Send + Sync {
    /// Claims the periodic recommendation job; true for one process per interval.
    async fn claim_recommendation_job(&self) -> Result<bool, StoreError>;
    /// Stores a changed recommendation.
    async fn commit_recommendation(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError>;
}
