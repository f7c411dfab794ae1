//! The store port of workloads.

use super::{Workload, WorkloadStatus, interface::PresentationMode};
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

/// The filter of a list of workloads.
#[derive(Clone, Debug, Default)]
pub struct WorkloadFilter {
    /// Only workloads of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only workloads with this status.
    pub status: Option<WorkloadStatus>,
    /// Only workloads within the scopes that the caller sees; `None` for the whole tenant.
    pub visible_scopes: Option<VisibleScopes>,
}

/// The filter of a list of runtime interfaces: workloads that accept runs and have an interface.
#[derive(Clone, Debug, Default)]
pub struct RuntimeInterfaceFilter {
    /// Only interfaces of workloads in this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only interfaces with this presentation mode.
    pub presentation_mode: Option<PresentationMode>,
    /// Only interfaces of workloads with this owner.
    pub owner: Option<OwnerRef>,
    /// Only interfaces that match each of these words: the name or description contains a word that starts with it.
    pub words: Option<WordSet>,
    /// Only interfaces within the scopes that the caller sees; `None` for the whole tenant.
    pub visible_scopes: Option<VisibleScopes>,
}

/// Stores workloads with their interface configurations.
#[async_trait]
pub trait WorkloadStore: Send + Sync {
    /// Finds a workload by its identifier; `None` if the tenant does not have it.
    async fn find(&self, scope: TenantScope, id: WorkloadId) -> Result<Option<Workload>, StoreError>;
    /// Finds a workload by its slug; `None` if the tenant does not have it.
    async fn find_by_slug(&self, scope: TenantScope, slug: &Slug) -> Result<Option<Workload>, StoreError>;
    /// Lists the environments in which a release of the workload holds a lane, ordered by name.
    async fn serving_environments(&self, scope: TenantScope, workload: WorkloadId) -> Result<Vec<Slug>, StoreError>;
    /// Lists a page of workloads with a runtime interface, newest first.
    async fn list_runtime(
        &self,
        scope: TenantScope,
        filter: &RuntimeInterfaceFilter,
        page: PageRequest,
    ) -> Result<Page<Workload>, StoreError>;
    /// Lists a page of workloads, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &WorkloadFilter,
        page: PageRequest,
    ) -> Result<Page<Workload>, StoreError>;
    /// Stores a new workload; [`CommitError::Conflict`] when its slug is taken.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Workload>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a changed workload; [`CommitError::Stale`] when the workload changed since the decision.
    async fn commit_change(&self, scope: TenantScope, change: Change<Workload>) -> Result<(), CommitError>;
}
