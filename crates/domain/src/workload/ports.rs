//! The workload store port.

use super::{Status, Workload, interface::PresentationMode};
use crate::{
    access::{OwnerRef, rights::VisibleScopes},
    id::{WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    search_words::WordSet,
    slug::Slug,
    store::{Change, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

/// The filter of a workload listing.
#[derive(Clone, Debug, Default)]
pub struct WorkloadFilter {
    /// Workloads of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Workloads with this status.
    pub status: Option<Status>,
    /// Workloads within the caller's visible scopes; `None` covers the whole tenant.
    pub visible_scopes: Option<VisibleScopes>,
}

/// The filter of a runtime interface listing, which covers executable workloads with an interface.
#[derive(Clone, Debug, Default)]
pub struct RuntimeFilter {
    /// Interfaces of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Interfaces with this presentation mode.
    pub presentation_mode: Option<PresentationMode>,
    /// Interfaces of this owner.
    pub owner: Option<OwnerRef>,
    /// Interfaces whose name or description has a word starting with each of these words.
    pub words: Option<WordSet>,
    /// Interfaces within the caller's visible scopes; `None` covers the whole tenant.
    pub visible_scopes: Option<VisibleScopes>,
}

/// Stores workloads.
#[async_trait]
pub trait WorkloadStore: Send + Sync {
    /// Finds a workload.
    async fn find(&self, scope: TenantScope, id: WorkloadId) -> Result<Option<Workload>, StoreError>;
    /// Finds a workload by slug.
    async fn find_by_slug(&self, scope: TenantScope, slug: &Slug) -> Result<Option<Workload>, StoreError>;
    /// The environments in which a release of the workload holds a lane, by name.
    async fn serving_environments(&self, scope: TenantScope, workload: WorkloadId) -> Result<Vec<Slug>, StoreError>;
    /// A page of workloads with a runtime interface, newest first.
    async fn list_runtime(
        &self,
        scope: TenantScope,
        filter: &RuntimeFilter,
        page: PageRequest,
    ) -> Result<Page<Workload>, StoreError>;
    /// A page of workloads, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &WorkloadFilter,
        page: PageRequest,
    ) -> Result<Page<Workload>, StoreError>;
    /// Stores a new workload.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Workload>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a changed workload.
    async fn commit_change(&self, scope: TenantScope, change: Change<Workload>) -> Result<(), CommitError>;
}
