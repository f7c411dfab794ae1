//! What stores of workloads must do.

use super::{Status, Workload, interface::PresentationMode};
use crate::{
    access::{OwnerRef, rights::Reach},
    id::{WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    search::Words,
    slug::Slug,
    store::{Change, CommitError, Listed, Paging, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

/// Which workloads a list shows.
#[derive(Clone, Debug, Default)]
pub struct WorkloadFilter {
    /// Those in this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Those in this status.
    pub status: Option<Status>,
    /// Those that the caller's grants reach; `None` for all of the tenant.
    pub reach: Option<Reach>,
}

/// Which runtime interfaces a list shows: those of workloads that have one and take executions.
#[derive(Clone, Debug, Default)]
pub struct RuntimeFilter {
    /// Those of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Those of this look.
    pub presentation_mode: Option<PresentationMode>,
    /// Those that this owner answers for.
    pub owner: Option<OwnerRef>,
    /// Those in whose name or description each of these words begins a word.
    pub words: Option<Words>,
    /// Those that the caller's grants reach; `None` for all of the tenant.
    pub reach: Option<Reach>,
}

/// Keeps workloads.
#[async_trait]
pub trait WorkloadStore: Send + Sync {
    /// One workload.
    async fn find(&self, scope: TenantScope, id: WorkloadId) -> Result<Option<Workload>, StoreError>;
    /// One workload by its slug.
    async fn find_by_slug(&self, scope: TenantScope, slug: &Slug) -> Result<Option<Workload>, StoreError>;
    /// A page of workloads with a runtime interface, newest first.
    async fn list_runtime(
        &self,
        scope: TenantScope,
        filter: &RuntimeFilter,
        page: Paging,
    ) -> Result<Listed<Workload>, StoreError>;
    /// A page of workloads, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &WorkloadFilter,
        page: Paging,
    ) -> Result<Listed<Workload>, StoreError>;
    /// Makes a workload.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Workload>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a changed workload.
    async fn commit(&self, scope: TenantScope, change: Change<Workload>) -> Result<(), CommitError>;
}
