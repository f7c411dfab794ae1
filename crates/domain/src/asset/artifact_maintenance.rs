//! The port to the database for maintenance of the artifact store. Background tasks compare the stored objects with the
//! rows that name them.

use super::artifact_store::StoredObject;
use crate::{
    id::{AssetVersionId, TenantId},
    store::StoreError,
    tenant::TenantScope,
};
use async_trait::async_trait;
use uuid::Uuid;

/// The key of an asset version among the versions of all tenants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VersionKey {
    /// The tenant to which the version belongs.
    pub tenant_id: TenantId,
    /// The identifier of the version.
    pub asset_version_id: AssetVersionId,
}

/// The row of an asset version, before any validation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionRow {
    /// The asset identifier that the row contains.
    pub asset_id: Uuid,
    /// The canonical content that the row contains.
    pub content: String,
    /// The artifact path that the row contains.
    pub artifact_ref: String,
    /// The checksum that the row contains.
    pub checksum: String,
}

/// Reads the rows that name artifacts, for background tasks and commands that cover all tenants.
#[async_trait]
pub trait ArtifactMaintenanceStore: Send + Sync {
    /// Lists the keys of versions in order, starting after the key `after`. The list has at most `limit` keys.
    async fn versions_after(&self, after: Option<VersionKey>, limit: u32) -> Result<Vec<VersionKey>, StoreError>;
    /// Reads the row of a version; `None` if there is none.
    async fn find_row(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<VersionRow>, StoreError>;
    /// The identifier of this installation. All processes on one database have the same one, and so do restored copies
    /// of that database.
    async fn installation_id(&self) -> Result<Uuid, StoreError>;
    /// Selects the orphans among `objects`. An orphan is an object at the path of a version that no row names, stored
    /// more than a day ago by the database's clock. Only orphans may be removed, because a newer object may belong to a
    /// request that has not committed yet.
    async fn find_orphans(&self, objects: Vec<StoredObject>) -> Result<Vec<StoredObject>, StoreError>;
    /// Claims the next removal of orphans, so that one process at a time removes them. Returns `false` while a recent
    /// claim exists.
    async fn claim_sweep(&self) -> Result<bool, StoreError>;
}
