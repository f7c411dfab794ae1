//! The store port of use cases.

use super::{Publication, RefinedUseCase, UseCase, UseCaseStatus, UseCaseSummary};
use crate::{
    id::{UseCaseId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    store::{Change, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

/// The filter of a list of use cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UseCaseFilter {
    /// Only use cases of this workspace.
    pub workspace: WorkspaceId,
    /// Only use cases with this status.
    pub status: Option<UseCaseStatus>,
    /// Only use cases that await access although all their connections are usable now.
    pub is_activation_ready: bool,
}

/// The idempotency key of a refinement, unique within its workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefinementKey {
    /// The key that the client chose.
    pub key: String,
    /// The digest of the request body. A repeated key with another body is a conflict.
    pub body_digest: [u8; 32],
}

/// An earlier refinement that used a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefinementWithSameKey {
    /// The use case that was refined.
    pub predecessor_id: UseCaseId,
    /// The use case that refines it.
    pub successor_id: UseCaseId,
    /// The digest of the request body.
    pub body_digest: [u8; 32],
}

/// The use case whose publication created a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkloadOrigin {
    /// The use case that created the workload.
    pub use_case_id: UseCaseId,
    /// The current status of that use case.
    pub status: UseCaseStatus,
}

/// Stores use cases, their publications and their refinements.
#[async_trait]
pub trait UseCaseStore: Send + Sync {
    /// Finds a use case by its identifier; `None` if the tenant does not have it.
    async fn find(&self, scope: TenantScope, id: UseCaseId) -> Result<Option<UseCase>, StoreError>;
    /// Lists a page of use cases, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: UseCaseFilter,
        page: PageRequest,
    ) -> Result<Page<UseCaseSummary>, StoreError>;
    /// Finds the use case whose publication created the workload.
    async fn find_by_workload(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
    ) -> Result<Option<WorkloadOrigin>, StoreError>;
    /// Finds the refinement in the workspace that used a key.
    async fn find_refinement(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        key: &str,
    ) -> Result<Option<RefinementWithSameKey>, StoreError>;
    /// Stores a new use case as a draft.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<UseCase>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a changed status, and withdraws the pending access requests of the use case. Fails with `Stale` if the
    /// use case changed since the decision.
    async fn commit_transition(
        &self,
        scope: TenantScope,
        change: Change<UseCase>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a publication: the use case, its access requests and the created resources. Fails with `Stale` if the use
    /// case changed since the decision, or a reused asset is no longer active.
    async fn commit_publication(
        &self,
        scope: TenantScope,
        change: Change<Publication>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a refinement with its key. Fails with `Stale` if the use case changed since the decision, or the key was
    /// used.
    async fn commit_refinement(
        &self,
        scope: TenantScope,
        change: Change<RefinedUseCase>,
        key: &RefinementKey,
    ) -> Result<(), CommitError>;
}
