//! Where assets, their versions and their artifacts are kept.

use super::{Asset, AssetVersion, Lifecycle, NewVersion, VersionLabel, integrity::UnverifiedBytes, kind::AssetKind};
use crate::{
    access::{ActorRef, rights::Reach},
    id::{AssetId, AssetVersionId, ExecutionId, NamespaceId, ReleaseId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    release::StateName,
    slug::Slug,
    store::{Change, CommitError, Listed, Paging, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;
use serde::{Serialize, Serializer};
use std::{error::Error, fmt};
use uuid::Uuid;

/// A relative path in the artifact store. INVARIANT: made here alone, of identifiers and fixed words, so it can
/// neither climb out of the store nor carry a name from outside.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArtifactPath(String);

impl ArtifactPath {
    /// Where a version's content lies.
    #[must_use]
    pub fn of_version(asset: AssetId, version: AssetVersionId) -> Self {
        Self(format!("{}/{asset}/{version}/content.json", Self::VERSIONS))
    }

    /// Where a document of a run lies.
    #[must_use]
    pub fn of_evidence(execution: ExecutionId, artifact: crate::id::ArtifactId, name: &'static str) -> Self {
        Self(format!("{}/{execution}/{artifact}/{name}", Self::EVIDENCE))
    }

    /// Where an installation says that the store is its own.
    #[must_use]
    pub fn of_owner() -> Self {
        Self("installation".to_owned())
    }

    /// The version whose content lies at a path like those of [`Self::of_version`]; `None` for every other path.
    #[must_use]
    pub fn version_at(path: &str) -> Option<(AssetId, AssetVersionId)> {
        let (asset, rest) = path.strip_prefix(Self::VERSIONS)?.strip_prefix('/')?.split_once('/')?;
        let version = rest.strip_suffix("/content.json")?;
        let ids: (AssetId, AssetVersionId) =
            (Uuid::try_parse(asset).ok()?.into(), Uuid::try_parse(version).ok()?.into());
        // Only the one spelling that we write ourselves.
        (Self::of_version(ids.0, ids.1).as_str() == path).then_some(ids)
    }

    /// Below this all contents of versions lie.
    pub const VERSIONS: &str = "assets";

    /// Below this all documents of runs lie.
    pub const EVIDENCE: &str = "evidence";

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ArtifactPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Serialize for ArtifactPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// What a put found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// Nothing was there; now the bytes are.
    Created,
    /// The very same bytes were there already.
    AlreadyThere,
}

/// The artifact store could not answer. Opaque: it is logged, never shown.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The store is away or too slow.
    #[error("the artifact store is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// Other bytes lie at a path whose bytes never change.
    #[error("other bytes lie at this path")]
    Conflict,
}

/// Something that lies in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredObject {
    /// Where.
    pub path: String,
    /// When it was put there, by the store's clock.
    pub put_at: Timestamp,
}

/// A walk through what lies in the store.
#[async_trait]
pub trait ArtifactWalk: Send {
    /// The next objects, at most `most` of them; none at the end.
    async fn next(&mut self, most: usize) -> Result<Vec<StoredObject>, ArtifactError>;
}

/// Keeps bytes that never change.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// Stores bytes where nothing lies yet; durable once it answers.
    async fn put_if_absent(&self, path: &ArtifactPath, bytes: Vec<u8>) -> Result<Put, ArtifactError>;
    /// The bytes at a path, for the caller to verify; `None` where nothing lies. `expected_len` is the recorded number of
    /// bytes: an object with more of them is [`UnverifiedBytes::too_long`], and the store reads at most one byte beyond.
    async fn read(&self, path: &ArtifactPath, expected_len: usize) -> Result<Option<UnverifiedBytes>, ArtifactError>;
    /// What lies below a prefix, in portions; `None` at the end. Objects that are not ours may be among them.
    fn walk(&self, prefix: &'static str) -> Box<dyn ArtifactWalk + '_>;
    /// Takes bytes away; whether they were there does not matter. Only for what no row names.
    async fn remove(&self, path: &ArtifactPath) -> Result<(), ArtifactError>;
    /// Whether the store answers at all.
    async fn ready(&self) -> Result<(), ArtifactError>;
}

/// Whose eyes a list of assets is seen through.
#[derive(Clone, Debug)]
pub enum AssetSight {
    /// Those of somebody who may view the whole tenant.
    Tenant,
    /// Those of somebody who stands in a workspace.
    From {
        /// The namespace of that workspace: all its assets are seen.
        namespace: NamespaceId,
        /// The workspace, if the viewer may see what is granted to it.
        workspace: Option<WorkspaceId>,
        /// Who looks: what is granted to them is seen besides.
        principals: Vec<ActorRef>,
    },
    /// Those of somebody who may view some namespaces and workspaces.
    Within {
        /// Which.
        reach: Reach,
        /// Who looks: what is granted to them is seen besides.
        principals: Vec<ActorRef>,
    },
}

/// Which assets a list shows.
#[derive(Clone, Debug)]
pub struct AssetFilter {
    /// Those that are seen.
    pub sight: AssetSight,
    /// Those of this kind.
    pub kind: Option<AssetKind>,
    /// Those in this state.
    pub lifecycle: Option<Lifecycle>,
}

/// A release that is not over and binds a version of an asset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockingRelease {
    /// The release.
    pub release_id: ReleaseId,
    /// Its state.
    pub state: StateName,
    /// Its workload.
    pub workload_id: WorkloadId,
    /// Where that workload is.
    pub workspace_id: WorkspaceId,
    /// That workspace's namespace.
    pub namespace_id: NamespaceId,
    /// Its environment.
    pub environment: Slug,
}

/// Keeps assets and versions.
#[async_trait]
pub trait AssetStore: Send + Sync {
    /// One asset.
    async fn find(&self, scope: TenantScope, id: AssetId) -> Result<Option<Asset>, StoreError>;
    /// A page of assets, newest first.
    async fn list(&self, scope: TenantScope, filter: &AssetFilter, page: Paging) -> Result<Listed<Asset>, StoreError>;
    /// Makes an asset.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores another state of an asset's life. Archiving conflicts with `AssetInUse` while a release that is not over
    /// binds a version of it, also one that is bound at the same moment.
    async fn commit_move(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Releases that keep the asset from being archived, newest first, at most `limit`.
    async fn blocking_releases(
        &self,
        scope: TenantScope,
        id: AssetId,
        limit: u32,
    ) -> Result<Vec<BlockingRelease>, StoreError>;
    /// Adds a version and answers with it, label included. Stale when the asset takes no versions any more.
    async fn commit_version(
        &self,
        scope: TenantScope,
        change: Change<NewVersion>,
        key: Option<&KeyedOutcome>,
    ) -> Result<AssetVersion, CommitError>;
    /// Makes an asset with its first version, and answers with the version.
    async fn commit_flow(
        &self,
        scope: TenantScope,
        change: Change<(Asset, NewVersion)>,
        key: Option<&KeyedOutcome>,
    ) -> Result<AssetVersion, CommitError>;
    /// One version, with its asset.
    async fn find_version(
        &self,
        scope: TenantScope,
        id: AssetVersionId,
    ) -> Result<Option<(Asset, AssetVersion)>, StoreError>;
    /// A page of an asset's versions, newest first: in the order of their commits, whatever the clocks said that made
    /// their identifiers. It may be shorter than its limit and go on all the same: versions can be large, and a page is
    /// bounded by their length too.
    async fn list_versions(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: Paging,
    ) -> Result<Listed<AssetVersion>, StoreError>;
    /// Whether the model policy is active, and no version of it that was committed after this one suspends or retires the
    /// route.
    async fn route_stands(
        &self,
        scope: TenantScope,
        asset: AssetId,
        version: AssetVersionId,
        route_id: &str,
    ) -> Result<bool, StoreError>;
    /// The identifier of the asset of a slug.
    async fn find_id(&self, scope: TenantScope, slug: &Slug) -> Result<Option<AssetId>, StoreError>;
    /// The asset of a slug, with its version of that label, or with the one that was committed last where none is named.
    async fn find_by_slug(
        &self,
        scope: TenantScope,
        slug: &Slug,
        label: Option<&VersionLabel>,
    ) -> Result<Option<(Asset, Option<AssetVersion>)>, StoreError>;
    /// Whether a version's content refers to anything, as was noted when it was made.
    async fn refers(&self, scope: TenantScope, version: AssetVersionId) -> Result<bool, StoreError>;
    /// The text that a version was made from, where one was kept (a flow's YAML).
    async fn source_text(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<String>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_our_own_spelling_name_versions() {
        let (asset, version) = (Uuid::from_u128(10).into(), Uuid::from_u128(0xb).into());
        let path = ArtifactPath::of_version(asset, version);
        assert_eq!(ArtifactPath::version_at(path.as_str()), Some((asset, version)));
        for other in [
            path.as_str().to_uppercase(),
            path.as_str().replace("content.json", "other.json"),
            path.as_str().replace('-', ""),
            format!("x/{path}"),
            format!("{path}/x"),
            "assets".to_owned(),
            String::new(),
        ] {
            assert_eq!(ArtifactPath::version_at(&other), None, "{other}");
        }
    }
}
