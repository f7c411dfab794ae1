//! The books on what lies in the artifact store: which rows there are for what is stored, and what is stored for
//! which row.

use super::ports::StoredObject;
use crate::{
    id::{AssetVersionId, TenantId},
    store::StoreError,
    tenant::TenantScope,
};
use async_trait::async_trait;
use uuid::Uuid;

/// A version's name in the books, over all tenants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BookedVersion {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The version.
    pub asset_version_id: AssetVersionId,
}

/// A version's row exactly as it is stored, believed in nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionRow {
    /// The asset that it names.
    pub asset_id: Uuid,
    /// What it says the content is.
    pub content: String,
    /// Where it says the artifact lies.
    pub artifact_ref: String,
    /// What it says the checksum is.
    pub checksum: String,
}

/// The books, for relays and commands that look after all tenants.
#[async_trait]
pub trait ArtifactLedger: Send + Sync {
    /// Versions behind this one in the order of the books, at most `most`.
    async fn versions(&self, behind: Option<BookedVersion>, most: u32) -> Result<Vec<BookedVersion>, StoreError>;
    /// A version's row; `None` when there is none.
    async fn row(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<VersionRow>, StoreError>;
    /// The identifier of this installation: the same for every process over one database, and for its restored copy.
    async fn installation(&self) -> Result<Uuid, StoreError>;
    /// Those of the objects at paths of versions that no row names, and that were put there more than a day ago by the
    /// database's clock. Only they may be taken away: a younger one may belong to a request that has not committed.
    async fn orphans(&self, objects: Vec<StoredObject>) -> Result<Vec<StoredObject>, StoreError>;
    /// Claims the next sweep; `false` while another one is recent. One process in all gets `true`.
    async fn claim_sweep(&self) -> Result<bool, StoreError>;
}
