//! Index of the artifact store: compares stored objects with the rows that name them.

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

/// A version's row as stored, unvalidated.
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

/// Index of artifacts, for background tasks and commands that work across tenants.
#[async_trait]
pub trait ArtifactIndex: Send + Sync {
    /// Versions after this key in key order, at most `limit`.
    async fn versions_after(&self, after: Option<VersionKey>, limit: u32) -> Result<Vec<VersionKey>, StoreError>;
    /// Reads a version's row; `None` when it does not exist.
    async fn find_row(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<VersionRow>, StoreError>;
    /// Identifier of this installation, equal for every process on one database and for its restored copy.
    async fn installation_id(&self) -> Result<Uuid, StoreError>;
    /// The objects at version paths that no row names and that were put more than a day ago by the database's clock.
    /// Only these may be removed: a newer object may belong to a request that has not committed.
    async fn find_orphans(&self, objects: Vec<StoredObject>) -> Result<Vec<StoredObject>, StoreError>;
    /// Claims the next sweep; `false` while another claim is recent. Only one process gets `true`.
    async fn claim_sweep(&self) -> Result<bool, StoreError>;
}
