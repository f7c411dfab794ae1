//! Differences between two versions of an asset.

use crate::{
    Failure,
    access::Operation,
    asset::Assets,
    blocking::{ProcessorPermit, ProcessorWait, permit_failure},
};
use fairway_domain::{
    access::Caller,
    asset::{
        AssetVersion,
        diff::{VersionDiff, diff},
    },
    id::{AssetId, AssetVersionId, WorkspaceId},
    tenant::TenantScope,
};
use fairway_fair_queue::AcquireError;
use fairway_memory_limit::admit;
use serde_json::Value;
use std::time::Duration;

/// Peak memory of comparing two contents of 4 MiB each, in bytes.
const DIFF_BYTES: usize = 32 << 20;
/// Maximum time for which a comparison waits for this memory.
const DIFF_WAIT: Duration = Duration::from_secs(5);

impl Assets {
    /// Returns the changes from one version of an asset to another.
    ///
    /// # Errors
    /// Not found when the caller does not see the asset from that workspace, or a version belongs to another asset.
    pub async fn diff_asset_versions(
        &self,
        caller: &Caller,
        asset: AssetId,
        from_workspace: WorkspaceId,
        base: AssetVersionId,
        changed: AssetVersionId,
    ) -> Result<VersionDiff, Failure> {
        let (scope, _) = self.authorize_asset_from(caller, Operation::DiffAssetVersions, asset, from_workspace).await?;
        let processor = ProcessorPermit::acquire(scope, ProcessorWait::Request).await?;
        let _memory = admit(DIFF_BYTES, DIFF_WAIT).await.map_err(|_| permit_failure(AcquireError::TimedOut))?;
        let base = self.version_of(scope, asset, base).await?;
        let changed = self.version_of(scope, asset, changed).await?;
        let compare = move || Ok::<_, serde_json::Error>(diff(parse_content(base)?, parse_content(changed)?));
        processor.run(compare).await?.map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))
    }

    pub(super) async fn version_of(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: AssetVersionId,
    ) -> Result<AssetVersion, Failure> {
        let stored = self.version_store.find_version(scope, id).await?;
        stored.filter(|(parent, _)| parent.asset_id == asset).map(|(_, version)| version).ok_or(Failure::NotFound)
    }
}

/// Parses the content of a version and drops its text, so that two large texts do not occupy memory during the
/// comparison.
fn parse_content(version: AssetVersion) -> Result<Value, serde_json::Error> {
    version.content()
}
