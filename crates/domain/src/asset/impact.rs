//! Impact analysis: the releases that bind a version of an asset, directly or through assets that reference it.

use super::{Asset, VersionLabel};
use crate::{
    id::{AssetId, AssetVersionId, NamespaceId, ReleaseId, WorkloadId, WorkspaceId},
    release::StateName,
    slug::Slug,
    store::StoreError,
    tenant::TenantScope,
};
use async_trait::async_trait;

/// An asset whose references are searched: any version of it, or some versions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReferenceTarget {
    /// The slug by which references name the asset.
    pub slug: Slug,
    /// The labels of the searched versions; `None` for all versions. A reference without a label always matches,
    /// because it can resolve to any version.
    pub labels: Option<Vec<VersionLabel>>,
}

/// A version whose content contains a matching reference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Referrer {
    /// The asset to which the referring version belongs.
    pub asset: Asset,
    /// The identifier of the referring version.
    pub asset_version_id: AssetVersionId,
    /// The label of the referring version.
    pub version_label: VersionLabel,
    /// The slug in the reference.
    pub target_slug: Slug,
    /// The version label in the reference, if it has one.
    pub target_label: Option<VersionLabel>,
    /// The JSON pointer to the reference within the content.
    pub pointer: String,
}

/// The versions whose releases are searched. A release matches if it binds at least one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindingTarget<'a> {
    /// All versions of this asset.
    Asset(AssetId),
    /// Exactly these versions.
    Versions(&'a [AssetVersionId]),
}

/// A release that binds one of the searched versions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindingRelease {
    /// The identifier of the release.
    pub release_id: ReleaseId,
    /// The state of the release.
    pub state: StateName,
    /// The environment of the release.
    pub environment: Slug,
    /// The workload that the release serves.
    pub workload_id: WorkloadId,
    /// Slug of the workload.
    pub workload_slug: Slug,
    /// The workspace of the workload.
    pub workspace_id: WorkspaceId,
    /// The namespace of that workspace.
    pub namespace_id: NamespaceId,
    /// The version that the release binds.
    pub asset_version_id: AssetVersionId,
    /// Label of the bound version.
    pub version_label: VersionLabel,
}

/// Finds the versions and releases that depend on an asset.
#[async_trait]
pub trait ImpactStore: Send + Sync {
    /// Lists versions that refer to one of the targets and are not in `excluded`, newest first, at most `limit`.
    async fn referrers(
        &self,
        scope: TenantScope,
        targets: &[ReferenceTarget],
        excluded: &[AssetVersionId],
        limit: u32,
    ) -> Result<Vec<Referrer>, StoreError>;
    /// Lists releases that bind a searched version, newest first, at most `limit` rows. Each binding is one row.
    async fn binding_releases(
        &self,
        scope: TenantScope,
        target: BindingTarget<'_>,
        limit: u32,
    ) -> Result<Vec<BindingRelease>, StoreError>;
}
