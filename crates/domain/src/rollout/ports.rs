//! The rollout store port.

use super::SoakStatus;
use crate::{
    id::ReleaseId,
    release::{Release, ports::TenantRelease},
    store::{Change, CommitError, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

/// Reads soak status and stores holds. Lane reassignments are committed with the deployment.
#[async_trait]
pub trait RolloutStore: Send + Sync {
    /// The soak status of a release's current rollout lane: its soak by the database's clock, and its `newest` runs
    /// since. `None` when no rollout is in progress.
    async fn soak_status(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        newest: u32,
    ) -> Result<Option<SoakStatus>, StoreError>;
    /// A page of releases with automatic rollouts whose lane has soaked, across tenants, in stable order after the
    /// given one.
    async fn list_soaked(&self, after: Option<TenantRelease>, limit: u32) -> Result<Vec<TenantRelease>, StoreError>;
    /// Stores a hold with its reason.
    async fn commit_hold(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError>;
}
