//! Resolution of references from content to other assets: by slug, among the assets that are visible from a position.

use crate::{Failure, asset::Assets};
use fairway_domain::{
    access::{Caller, ResourcePosition},
    asset::{Asset, AssetVersion, VersionLabel},
    slug::Slug,
    tenant::TenantScope,
};

/// Reason why a reference does not resolve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResolutionFailure {
    /// The asset or version does not exist, or is hidden from the caller.
    Unknown,
    /// The caller may see the asset, but the asset is not visible from this workspace.
    OtherWorkspace,
}

impl Assets {
    /// Resolves a reference to the version with the label, or to the newest version without a label. The asset must be
    /// visible from `position`. Slugs are unique in the tenant, so the slug may belong to an asset that is not visible.
    /// Only a caller that sees this asset from another workspace receives [`ResolutionFailure::OtherWorkspace`].
    pub(crate) async fn resolve(
        &self,
        caller: &Caller,
        position: &ResourcePosition,
        slug: &Slug,
        label: Option<&VersionLabel>,
    ) -> Result<Result<(Asset, AssetVersion), ResolutionFailure>, Failure> {
        let stored = self.asset_store.find_by_slug(TenantScope::for_caller(caller), slug, label).await?;
        let Some((asset, version)) = stored else { return Ok(Err(ResolutionFailure::Unknown)) };
        if !self.is_visible_in(caller, &asset, position).await? {
            let is_visible_elsewhere = self.sees_asset(caller, &asset, None).await?;
            return Ok(Err(if is_visible_elsewhere {
                ResolutionFailure::OtherWorkspace
            } else {
                ResolutionFailure::Unknown
            }));
        }
        Ok(version.map(|version| (asset, version)).ok_or(ResolutionFailure::Unknown))
    }
}
