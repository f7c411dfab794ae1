//! Where releases and deployments are kept.

use super::{
    Release, StateName,
    lane::{Deployment, DeploymentChange, LaneMoved},
    recommendation::EndedRuns,
    review::{Approval, Reviewed},
    rollback::ReleaseArtifact,
};
use crate::{
    access::rights::Reach,
    id::{ApprovalId, ArtifactId, BindingId, ReleaseId, TenantId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    slug::Slug,
    store::{Change, CommitError, Listed, Paging, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;

/// A release with the deployment that it belongs to, read in one go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedRelease {
    /// The release.
    pub release: Release,
    /// Who holds the lanes of its workload in its environment.
    pub deployment: Deployment,
}

impl PlacedRelease {
    /// The same, with the moment at which the present lane of its rollout began to soak, as the store tells it.
    #[must_use]
    pub fn soaking_since(mut self, moment: Option<Timestamp>) -> Self {
        self.release.rollout = self.release.rollout.map(|rollout| rollout.soaking_since(moment));
        self
    }
}

/// A release of some tenant, for those who look after all of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReleaseOfTenant {
    /// The tenant.
    pub tenant: TenantId,
    /// The release.
    pub release: ReleaseId,
}

/// Which releases a list shows.
#[derive(Clone, Debug, Default)]
pub struct ReleaseFilter {
    /// Those of this workspace's workloads.
    pub workspace: Option<WorkspaceId>,
    /// Those of this workload.
    pub workload: Option<WorkloadId>,
    /// Those in this environment.
    pub environment: Option<Slug>,
    /// Those in this state.
    pub state: Option<StateName>,
    /// Those that the caller's grants reach; `None` for all of the tenant.
    pub reach: Option<Reach>,
}

/// The two revisions that a cached view of a deployment must agree with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeploymentPulse {
    /// The deployment's revision.
    pub deployment: Revision,
    /// The tenant's access revision.
    pub access: Revision,
}

/// Keeps releases and deployments.
#[async_trait]
pub trait ReleaseStore: Send + Sync {
    /// One release with its bindings, verdicts (without notes) and deployment.
    async fn find(&self, scope: TenantScope, id: ReleaseId) -> Result<Option<PlacedRelease>, StoreError>;
    /// Where a release belongs: its workload, and that one's workspace.
    async fn home(&self, scope: TenantScope, id: ReleaseId) -> Result<Option<(WorkspaceId, WorkloadId)>, StoreError>;
    /// A page of releases without bindings or verdicts, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &ReleaseFilter,
        page: Paging,
    ) -> Result<Listed<Release>, StoreError>;
    /// A page of the verdicts on a release with their notes, newest first.
    async fn approvals(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        page: Paging,
    ) -> Result<Listed<Approval>, StoreError>;
    /// One verdict on a release with its note.
    async fn approval(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        approval: ApprovalId,
    ) -> Result<Option<Approval>, StoreError>;
    /// Who holds the lanes; `None` before the first release there.
    async fn deployment(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
    ) -> Result<Option<Deployment>, StoreError>;
    /// What happened to the lanes of a workload in an environment, newest first: the newest `most` moves of each lane.
    async fn lane_history(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
        most: u32,
    ) -> Result<Vec<LaneMoved>, StoreError>;
    /// The revisions of a deployment and of the tenant's access rules, in one point read.
    async fn pulse(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
    ) -> Result<Option<DeploymentPulse>, StoreError>;
    /// Stores a draft, and an empty deployment where there is none yet. Stale when the workload is retired.
    async fn commit_new(
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
    /// Takes a binding out of a draft.
    async fn commit_unbinding(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        binding: BindingId,
    ) -> Result<(), CommitError>;
    /// Stores a verdict and what it did to the release.
    async fn commit_review(
        &self,
        scope: TenantScope,
        change: Change<Reviewed>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a move that touches no lane.
    async fn commit_transition(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// One document of a release.
    async fn find_artifact(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        artifact: ArtifactId,
    ) -> Result<Option<ReleaseArtifact>, StoreError>;
    /// A page of a release's documents, newest first.
    async fn list_artifacts(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        page: Paging,
    ) -> Result<Listed<ReleaseArtifact>, StoreError>;
    /// The share of runs that failed, among the newest of a release that have ended.
    async fn ended_runs(&self, scope: TenantScope, release: ReleaseId, newest: u32) -> Result<EndedRuns, StoreError>;
    /// Releases of all tenants that hold lanes: a page of them, in a settled order, those behind `after`.
    async fn serving(&self, after: Option<ReleaseOfTenant>, most: u32) -> Result<Vec<ReleaseOfTenant>, StoreError>;
    /// Whether it is this process's turn to look for advice: every so often it is somebody's.
    async fn claim_advice(&self) -> Result<bool, StoreError>;
    /// Stores that the advice about a release is another one.
    async fn commit_advice(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError>;
    /// Stores a move of lanes: the deployment, the release with its rollout, those it displaces or brings back, the
    /// history, and the document that tells it. Answers when the present lane of the rollout began to soak, if there is
    /// a rollout.
    async fn commit_deployment(
        &self,
        scope: TenantScope,
        change: DeploymentChange,
        key: Option<&KeyedOutcome>,
    ) -> Result<Option<Timestamp>, CommitError>;
}
