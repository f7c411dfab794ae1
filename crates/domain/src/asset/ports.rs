//! Storage ports of assets, versions and artifacts.

use super::{Asset, AssetVersion, Lifecycle, NewVersion, VersionLabel, integrity::UnverifiedBytes, kind::AssetKind};
use crate::{
    access::{ActorRef, rights::VisibleScopes},
    id::{AssetId, AssetVersionId, ExecutionId, NamespaceId, ReleaseId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    release::StateName,
    slug::Slug,
    store::{Change, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;
use serde::{Serialize, Serializer};
use std::{error::Error, fmt};
use uuid::Uuid;

/// Relative path in the artifact store. INVARIANT: only this type builds paths, from identifiers and constants. A path
/// therefore cannot escape the store or contain an external name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArtifactPath(String);

impl ArtifactPath {
    /// Path of a version's content.
    #[must_use]
    pub fn of_version(asset: AssetId, version: AssetVersionId) -> Self {
        Self(format!("{}/{asset}/{version}/content.json", Self::VERSION_PREFIX))
    }

    /// Path of an evidence document of a run.
    #[must_use]
    pub fn of_evidence(execution: ExecutionId, artifact: crate::id::ArtifactId, name: &'static str) -> Self {
        Self(format!("{}/{execution}/{artifact}/{name}", Self::EVIDENCE_PREFIX))
    }

    /// Path of the object that names the owning installation.
    #[must_use]
    pub fn of_installation() -> Self {
        Self("installation".to_owned())
    }

    /// Parses a path of the form that [`Self::of_version`] writes; `None` for every other path.
    #[must_use]
    pub fn parse_version(path: &str) -> Option<(AssetId, AssetVersionId)> {
        let (asset, rest) = path.strip_prefix(Self::VERSION_PREFIX)?.strip_prefix('/')?.split_once('/')?;
        let version = rest.strip_suffix("/content.json")?;
        let ids: (AssetId, AssetVersionId) =
            (Uuid::try_parse(asset).ok()?.into(), Uuid::try_parse(version).ok()?.into());
        // Accepts only the canonical spelling, because `try_parse` accepts several.
        (Self::of_version(ids.0, ids.1).as_str() == path).then_some(ids)
    }

    /// Prefix of all version content.
    pub const VERSION_PREFIX: &str = "assets";

    /// Prefix of all evidence documents.
    pub const EVIDENCE_PREFIX: &str = "evidence";

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

/// Outcome of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutOutcome {
    /// The store had no object at the path and wrote the bytes.
    Created,
    /// The store already held the same bytes.
    AlreadyExists,
}

/// Failure of the artifact store. Logged, never shown to callers.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The store is unreachable or too slow.
    #[error("the artifact store is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The path holds other bytes, and stored bytes are immutable.
    #[error("the path already holds other bytes")]
    Conflict,
}

/// An object in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredObject {
    /// Path.
    pub path: String,
    /// Time of the put by the store's clock.
    pub put_at: Timestamp,
}

/// Incremental listing of the objects in the store.
#[async_trait]
pub trait ObjectListing: Send {
    /// Returns the next objects, at most `limit`; an empty list at the end.
    async fn next(&mut self, limit: usize) -> Result<Vec<StoredObject>, ArtifactError>;
}

/// Store of immutable bytes.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// Stores bytes at an unused path; the bytes are durable when it returns.
    async fn put_if_absent(&self, path: &ArtifactPath, bytes: Vec<u8>) -> Result<PutOutcome, ArtifactError>;
    /// Reads the bytes at a path for the caller to verify; `None` without an object. `expected_len` is the recorded
    /// length in bytes. A longer object returns [`UnverifiedBytes::too_long`]; the store reads at most one byte beyond.
    async fn read(&self, path: &ArtifactPath, expected_len: usize) -> Result<Option<UnverifiedBytes>, ArtifactError>;
    /// Lists the objects below a prefix in portions. Foreign objects may be among them.
    fn list(&self, prefix: &'static str) -> Box<dyn ObjectListing + '_>;
    /// Removes an object; succeeds also when it does not exist. Only for objects that no row names.
    async fn remove(&self, path: &ArtifactPath) -> Result<(), ArtifactError>;
    /// Checks that the store responds.
    async fn ready(&self) -> Result<(), ArtifactError>;
}

/// Visibility scope of a list of assets.
#[derive(Clone, Debug)]
pub enum AssetVisibility {
    /// All assets of the tenant.
    Tenant,
    /// Assets visible from one workspace.
    FromWorkspace {
        /// Namespace of that workspace; all its assets are visible.
        namespace: NamespaceId,
        /// The workspace, if the viewer may see assets granted to it.
        workspace: Option<WorkspaceId>,
        /// The viewer's principals; assets granted to them are visible too.
        principals: Vec<ActorRef>,
    },
    /// Assets of some namespaces and workspaces.
    InScopes {
        /// Visible namespaces and workspaces.
        scopes: VisibleScopes,
        /// The viewer's principals; assets granted to them are visible too.
        principals: Vec<ActorRef>,
    },
}

/// Filter of an asset list.
#[derive(Clone, Debug)]
pub struct AssetFilter {
    /// Visibility scope.
    pub visibility: AssetVisibility,
    /// Only this kind.
    pub kind: Option<AssetKind>,
    /// Only this lifecycle state.
    pub lifecycle: Option<Lifecycle>,
}

/// A live release that binds a version of an asset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockingRelease {
    /// Identifier.
    pub release_id: ReleaseId,
    /// State.
    pub state: StateName,
    /// Workload.
    pub workload_id: WorkloadId,
    /// Workspace of the workload.
    pub workspace_id: WorkspaceId,
    /// Namespace of that workspace.
    pub namespace_id: NamespaceId,
    /// Environment.
    pub environment: Slug,
}

/// Stores assets and their lifecycle.
#[async_trait]
pub trait AssetStore: Send + Sync {
    /// Finds one asset.
    async fn find(&self, scope: TenantScope, id: AssetId) -> Result<Option<Asset>, StoreError>;
    /// Lists assets, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &AssetFilter,
        page: PageRequest,
    ) -> Result<Page<Asset>, StoreError>;
    /// Creates an asset.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores another lifecycle state of an asset. Archiving conflicts with `AssetInUse` while a live release binds one
    /// of its versions; the statement also sees bindings committed concurrently.
    async fn commit_lifecycle(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Releases that prevent archiving of the asset, newest first, at most `limit`.
    async fn blocking_releases(
        &self,
        scope: TenantScope,
        id: AssetId,
        limit: u32,
    ) -> Result<Vec<BlockingRelease>, StoreError>;
    /// Finds the identifier of an asset by slug.
    async fn find_id(&self, scope: TenantScope, slug: &Slug) -> Result<Option<AssetId>, StoreError>;
    /// Finds an asset by slug, with the version of that label, or with the last committed version without a label.
    async fn find_by_slug(
        &self,
        scope: TenantScope,
        slug: &Slug,
        label: Option<&VersionLabel>,
    ) -> Result<Option<(Asset, Option<AssetVersion>)>, StoreError>;
}

/// Stores the versions of assets.
#[async_trait]
pub trait VersionStore: Send + Sync {
    /// Stores a version and returns it with its label. Stale when the asset no longer accepts versions.
    async fn commit_version(
        &self,
        scope: TenantScope,
        change: Change<NewVersion>,
        key: Option<&KeyedOutcome>,
    ) -> Result<AssetVersion, CommitError>;
    /// Creates an asset with its first version, and returns the version.
    async fn commit_flow(
        &self,
        scope: TenantScope,
        change: Change<(Asset, NewVersion)>,
        key: Option<&KeyedOutcome>,
    ) -> Result<AssetVersion, CommitError>;
    /// Finds one version with its asset.
    async fn find_version(
        &self,
        scope: TenantScope,
        id: AssetVersionId,
    ) -> Result<Option<(Asset, AssetVersion)>, StoreError>;
    /// Lists an asset's versions in reverse commit order, regardless of the clocks in their identifiers. The page
    /// length in bytes is bounded too, because versions can be large: a page may be shorter than its limit and still
    /// have a successor.
    async fn list_versions(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: PageRequest,
    ) -> Result<Page<AssetVersion>, StoreError>;
    /// Whether the model policy is active and no version committed after this one suspends or retires the route.
    async fn is_route_effective(
        &self,
        scope: TenantScope,
        asset: AssetId,
        version: AssetVersionId,
        route_id: &str,
    ) -> Result<bool, StoreError>;
    /// Whether the recorded references of a version are not empty.
    async fn has_references(&self, scope: TenantScope, version: AssetVersionId) -> Result<bool, StoreError>;
    /// The stored source text of a version, if any (a flow's YAML).
    async fn source_text(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<String>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_only_canonical_version_paths() {
        let (asset, version) = (Uuid::from_u128(10).into(), Uuid::from_u128(0xb).into());
        let path = ArtifactPath::of_version(asset, version);
        assert_eq!(ArtifactPath::parse_version(path.as_str()), Some((asset, version)));
        for other in [
            path.as_str().to_uppercase(),
            path.as_str().replace("content.json", "other.json"),
            path.as_str().replace('-', ""),
            format!("x/{path}"),
            format!("{path}/x"),
            "assets".to_owned(),
            String::new(),
        ] {
            assert_eq!(ArtifactPath::parse_version(&other), None, "{other}");
        }
    }
}
