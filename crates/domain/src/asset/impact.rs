//! What stands on an asset: the releases that bind a version of it, directly or through other assets whose content
//! refers to it.

use super::{Asset, VersionLabel};
use crate::{
    id::{AssetId, AssetVersionId, NamespaceId, ReleaseId, WorkloadId, WorkspaceId},
    release::StateName,
    slug::Slug,
    store::StoreError,
    tenant::TenantScope,
};
use async_trait::async_trait;

/// What is looked for in references: an asset, at any version or at some.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The asset's slug, which is how contents refer to it.
    pub slug: Slug,
    /// The labels of the versions that count; `None` for any. A reference without a label may come to mean any version,
    /// so it always counts.
    pub labels: Option<Vec<VersionLabel>>,
}

/// A version whose content refers to a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Referrer {
    /// The asset of the version.
    pub asset: Asset,
    /// The version.
    pub asset_version_id: AssetVersionId,
    /// Its label.
    pub version_label: VersionLabel,
    /// The slug that it refers to.
    pub target_slug: Slug,
    /// The label that it refers to, if it names one.
    pub target_label: Option<VersionLabel>,
    /// Where in the content, as a JSON pointer.
    pub pointer: String,
}

/// What is looked for in bindings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound<'a> {
    /// Any version of this asset.
    Asset(AssetId),
    /// One of these versions.
    Versions(&'a [AssetVersionId]),
}

/// A release that binds a version that was looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundRelease {
    /// The release.
    pub release_id: ReleaseId,
    /// Its state.
    pub state: StateName,
    /// Its environment.
    pub environment: Slug,
    /// Its workload.
    pub workload_id: WorkloadId,
    /// That workload's slug.
    pub workload_slug: Slug,
    /// Where the workload is.
    pub workspace_id: WorkspaceId,
    /// That workspace's namespace.
    pub namespace_id: NamespaceId,
    /// The version that it binds.
    pub asset_version_id: AssetVersionId,
    /// That version's label.
    pub version_label: VersionLabel,
}

/// Reads references and bindings backwards.
#[async_trait]
pub trait ImpactStore: Send + Sync {
    /// Versions that refer to one of the targets and are none of those that are known already, newest first, at most
    /// `most`.
    async fn referrers(
        &self,
        scope: TenantScope,
        targets: &[Target],
        known: &[AssetVersionId],
        most: u32,
    ) -> Result<Vec<Referrer>, StoreError>;
    /// Releases that bind what is looked for, newest first, at most `most`; one row for each binding.
    async fn binding_releases(
        &self,
        scope: TenantScope,
        bound: Bound<'_>,
        most: u32,
    ) -> Result<Vec<BoundRelease>, StoreError>;
}
