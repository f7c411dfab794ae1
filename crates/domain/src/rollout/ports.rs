//! The port of the rollout store.

use super::SoakStatus;
use crate::{
    id::ReleaseId,
    release::{Release, ports::TenantReleaseKey},
    store::{Change, CommitError, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

/// Reads the soaks of rollouts, and stores the hold reasons of the controller. Advances change lanes, so the deployment
/// store commits them.
#[async_trait]
pub trait RolloutStore: Send + Sync {
    /// Reads the soak of a release's current lane: the remaining time by the clock of the database, and at most
    /// `newest` runs since its start. `None` if no rollout of the release is in progress.
    async fn soak_status(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        newest: u32,
    ) -> Result<Option<SoakStatus>, StoreError>;
    /// Lists the releases of all tenants with an automatic rollout whose soak has ended, in a stable order, starting
    /// after the given release.
    async fn list_soaked(
        &self,
        after: Option<TenantReleaseKey>,
        limit: u32,
    ) -> Result<Vec<TenantReleaseKey>, StoreError>;
    /// Stores that the rollout controller holds a rollout, with the reason.
    async fn commit_hold(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError>;
}
