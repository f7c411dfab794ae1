//! The port of the rollout store.

use super::SoakStatus;
use crate::{
    id::ReleaseId,
    release::{Release, ports::TenantRelease},
    store::{Change, CommitError, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

/// Reads the soak status of rollouts and stores holds. The deployment store commits the lane reassignments.
#[async_trait]
pub trait RolloutStore: Send + Sync {
    /// Reads the soak status of a release's current lane: the remaining soak by the clock of the database, and at
    /// most `newest` runs since its start. `None` if no rollout is in progress.
    async fn soak_status(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        newest: u32,
    ) -> Result<Option<SoakStatus>, StoreError>;
    /// Lists releases of all tenants with automatic rollouts whose current lane has completed its soak, in a
    /// stable order, starting after the given release.
    async fn list_soaked(&self, after: Option<TenantRelease>, limit: u32) -> Result<Vec<TenantRelease>, StoreError>;
    /// Stores that the rollout controller holds, with the reason.
    async fn commit_hold(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError>;
}
