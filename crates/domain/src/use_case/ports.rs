//! The store port of use cases.

use super::{Publication, Refinement, UseCase, UseCaseStatus, UseCaseSummary};
use crate::{
    id::{UseCaseId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    store::{Change, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

/// The filter of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UseCaseFilter {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Only use cases in this status.
    pub status: Option<UseCaseStatus>,
    /// Only use cases that wait for access, and whose connections are all usable.
    pub is_activation_ready: bool,
}

/// The key of a refinement, scoped to a workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefinementKey {
    /// The key.
    pub key: String,
    /// The digest of the request.
    pub body_digest: [u8; 32],
}

/// An earlier refinement with a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EarlierRefinement {
    /// The use case that was refined.
    pub predecessor_id: UseCaseId,
    /// The successor.
    pub successor_id: UseCaseId,
    /// The digest of the request.
    pub body_digest: [u8; 32],
}

/// The use case that a workload came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkloadOrigin {
    /// The use case.
    pub use_case_id: UseCaseId,
    /// Its status.
    pub status: UseCaseStatus,
}

/// Stores use cases.
#[async_trait]
pub trait UseCaseStore: Send + Sync {
    /// Finds a use case.
    async fn find(&self, scope: TenantScope, id: UseCaseId) -> Result<Option<UseCase>, StoreError>;
    /// A page of use cases, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: UseCaseFilter,
        page: PageRequest,
    ) -> Result<Page<UseCaseSummary>, StoreError>;
    /// Finds the use case that a workload came from.
    async fn find_by_workload(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
    ) -> Result<Option<WorkloadOrigin>, StoreError>;
    /// Finds the refinement with a key.
    async fn find_refinement(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        key: &str,
    ) -> Result<Option<EarlierRefinement>, StoreError>;
    /// Stores a new use case.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<UseCase>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores another status, and withdraws the pending requests of the use case. Stale when it changed since the
    /// decision.
    async fn commit_transition(
        &self,
        scope: TenantScope,
        change: Change<UseCase>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a publication: the use case, its requests and the pieces that it makes. Stale when the use case changed since
    /// the decision, or a reused asset is no longer active.
    async fn commit_publication(
        &self,
        scope: TenantScope,
        change: Change<Publication>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a refinement with its key. Stale when the use case changed since the decision, or the key was used.
    async fn commit_refinement(
        &self,
        scope: TenantScope,
        change: Change<Refinement>,
        key: &RefinementKey,
    ) -> Result<(), CommitError>;
}
