//! Comparing two versions.

use crate::{Failure, Services, access::Operation, aside::aside};
use fairway_domain::{
    access::Caller,
    asset::{
        AssetVersion,
        diff::{VersionDiff, diff},
    },
    id::{AssetId, AssetVersionId, WorkspaceId},
    tenant::TenantScope,
};
use serde_json::Value;

impl Services {
    /// What changed from one version of an asset to another.
    ///
    /// # Errors
    /// Not found when the caller does not see the asset from there, or one of the versions is not of it.
    pub async fn diff_asset_versions(
        &self,
        caller: &Caller,
        (asset, from): (AssetId, WorkspaceId),
        (one, other): (AssetVersionId, AssetVersionId),
    ) -> Result<VersionDiff, Failure> {
        let (scope, _) = self.asset_from(caller, Operation::DiffAssetVersions, asset, from).await?;
        // One after the other, so that never more than one of the two texts lies beside what was read.
        let one = self.content_of(scope, asset, one).await?;
        let other = self.content_of(scope, asset, other).await?;
        aside(move || diff(one, other)).await
    }

    async fn content_of(&self, scope: TenantScope, asset: AssetId, id: AssetVersionId) -> Result<Value, Failure> {
        let version = self.version_of(scope, asset, id).await?;
        aside(move || version.content()).await?.map_err(|_| Failure::Corrupt("a version that is no JSON"))
    }

    pub(super) async fn version_of(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: AssetVersionId,
    ) -> Result<AssetVersion, Failure> {
        let found = self.stores.assets.find_version(scope, id).await?;
        found.filter(|(parent, _)| parent.asset_id == asset).map(|(_, version)| version).ok_or(Failure::NotFound)
    }
}
