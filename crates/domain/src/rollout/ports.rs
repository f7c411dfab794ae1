//! Where rollouts are looked at.

use super::LaneRecord;
use crate::{
    id::ReleaseId,
    release::{Release, ports::ReleaseOfTenant},
    store::{Change, CommitError, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

/// Looks at rollouts, and keeps what was said of them. What moves a lane is committed with the deployment.
#[async_trait]
pub trait RolloutStore: Send + Sync {
    /// What the lane of a release's rollout in progress has seen: its soak by the database's clock, and its `newest`
    /// runs since. None where no rollout is in progress.
    async fn lane_record(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        newest: u32,
    ) -> Result<Option<LaneRecord>, StoreError>;
    /// Releases of all tenants whose rollout advances by itself and whose lane has soaked: a page of them, in a settled
    /// order, those behind `after`.
    async fn soaked(&self, after: Option<ReleaseOfTenant>, most: u32) -> Result<Vec<ReleaseOfTenant>, StoreError>;
    /// Stores that the pilot holds, and why.
    async fn commit_hold(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError>;
}
