//! Where releases and deployments are kept.

use super::{
    Release, StateName,
    lane::{Deployment, DeploymentChange, LaneMoved},
    review::Reviewed,
};
use crate::{
    access::rights::Reach,
    id::{BindingId, ReleaseId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    slug::Slug,
    store::{Change, CommitError, Listed, Paging, Revision, StoreError},
    tenant::TenantScope,
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
    /// One release with its bindings, verdicts and deployment.
    async fn find(&self, scope: TenantScope, id: ReleaseId) -> Result<Option<PlacedRelease>, StoreError>;
    /// A page of releases without bindings or verdicts, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &ReleaseFilter,
        page: Paging,
    ) -> Result<Listed<Release>, StoreError>;
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
    /// Stores a draft, and an empty deployment where there is none yet.
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
    /// Stores a move of lanes: the deployment, the release, those it displaces, the history.
    async fn commit_deployment(
        &self,
        scope: TenantScope,
        change: DeploymentChange,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
}
