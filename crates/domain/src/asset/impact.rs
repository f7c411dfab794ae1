//! Impact analysis: the releases that bind a version of an asset, directly or through referring assets.

use super::{Asset, VersionLabel};
use crate::{
    id::{AssetId, AssetVersionId, NamespaceId, ReleaseId, WorkloadId, WorkspaceId},
    release::StateName,
    slug::Slug,
    store::StoreError,
    tenant::TenantScope,
};
use async_trait::async_trait;

/// A reference target: an asset at any version, or at some of its versions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReferenceTarget {
    /// Slug of the asset, as references name it.
    pub slug: Slug,
    /// Labels of the versions to find; `None` for all. A reference without a label may resolve to any version, so it
    /// always matches.
    pub labels: Option<Vec<VersionLabel>>,
}

/// A version whose content refers to a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Referrer {
    /// Asset of the referring version.
    pub asset: Asset,
    /// Referring version.
    pub asset_version_id: AssetVersionId,
    /// Label of the referring version.
    pub version_label: VersionLabel,
    /// Slug that the reference names.
    pub target_slug: Slug,
    /// Label that the reference names, if any.
    pub target_label: Option<VersionLabel>,
    /// JSON pointer to the reference.
    pub pointer: String,
}

/// The versions for which a reverse lookup searches. A release matches if it binds at least one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindingTarget<'a> {
    /// Any version of this asset.
    Asset(AssetId),
    /// These versions.
    Versions(&'a [AssetVersionId]),
}

/// A release that binds a matching version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundRelease {
    /// Identifier.
    pub release_id: ReleaseId,
    /// State.
    pub state: StateName,
    /// Environment.
    pub environment: Slug,
    /// Workload.
    pub workload_id: WorkloadId,
    /// Slug of the workload.
    pub workload_slug: Slug,
    /// Workspace of the workload.
    pub workspace_id: WorkspaceId,
    /// Namespace of that workspace.
    pub namespace_id: NamespaceId,
    /// Bound version.
    pub asset_version_id: AssetVersionId,
    /// Label of the bound version.
    pub version_label: VersionLabel,
}

/// Reverse lookups of references and bindings.
#[async_trait]
pub trait ImpactStore: Send + Sync {
    /// Versions that refer to one of the targets and are not in `excluded`, newest first, at most `limit`.
    async fn referrers(
        &self,
        scope: TenantScope,
        targets: &[ReferenceTarget],
        excluded: &[AssetVersionId],
        limit: u32,
    ) -> Result<Vec<Referrer>, StoreError>;
    /// Releases that bind a matching version, newest first, at most `limit`; one row for each binding.
    async fn binding_releases(
        &self,
        scope: TenantScope,
        target: BindingTarget<'_>,
        limit: u32,
    ) -> Result<Vec<BoundRelease>, StoreError>;
}
