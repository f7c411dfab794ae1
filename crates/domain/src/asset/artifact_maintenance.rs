//! Port of the database queries for maintenance of the artifact store. Background tasks compare stored objects with
//! the rows that name them.

use super::artifact_store::StoredObject;
use crate::{
    id::{AssetVersionId, TenantId},
    store::StoreError,
    tenant::TenantScope,
};
use async_trait::async_trait;
use uuid::Uuid;

/// Key of a version across all tenants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VersionKey {
    /// Tenant.
    pub tenant_id: TenantId,
    /// Version.
    pub asset_version_id: AssetVersionId,
}

/// A version's row as it is stored, before validation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionRow {
    /// Asset identifier in the row.
    pub asset_id: Uuid,
    /// Content in the row.
    pub content: String,
    /// Artifact path in the row.
    pub artifact_ref: String,
    /// Checksum in the row.
    pub checksum: String,
}

/// Store of the rows that name artifacts, for background tasks and commands that work across tenants.
#[async_trait]
pub trait ArtifactMaintenanceStore: Send + Sync {
    /// Keys of at most `limit` versions after the key `after`, in key order.
    async fn versions_after(&self, after: Option<VersionKey>, limit: u32) -> Result<Vec<VersionKey>, StoreError>;
    /// Reads a version's row; `None` when it does not exist.
    async fn find_row(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<VersionRow>, StoreError>;
    /// Identifier of this installation. All processes on one database and on its restored copies have the same
    /// identifier.
    async fn installation_id(&self) -> Result<Uuid, StoreError>;
    /// Returns the orphans among `objects`: objects at a version path that no row names, stored more than a day ago
    /// by the database's clock. Only these may be removed, because a newer object may belong to a request that has
    /// not committed.
    async fn find_orphans(&self, objects: Vec<StoredObject>) -> Result<Vec<StoredObject>, StoreError>;
    /// Claims the next sweep of orphaned objects, so that one process at a time sweeps. Returns `false` while a
    /// recent claim exists.
    async fn claim_sweep(&self) -> Result<bool, StoreError>;
}
