//! Storage ports of assets and versions.

use super::{Asset, AssetVersion, Lifecycle, NewVersion, VersionLabel, kind::AssetKind};
use crate::{
    access::{ActorRef, rights::VisibleScopes},
    id::{AssetId, AssetVersionId, NamespaceId, ReleaseId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    release::StateName,
    slug::Slug,
    store::{Change, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

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

/// A release that binds a version of an asset and is neither superseded nor retired. It prevents archiving of the
/// asset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockingRelease {
    /// Identifier.
    pub release_id: ReleaseId,
    /// State.
    pub state: StateName,
    /// Workload.
    pub workload_id: WorkloadId,
    /// Slug of the workload.
    pub workload_slug: Slug,
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
    /// Active assets of a kind that a workspace owns, newest first, at most `limit`. Built-in assets are excluded.
    async fn list_owned_active(
        &self,
        scope: TenantScope,
        namespace: NamespaceId,
        workspace: WorkspaceId,
        kind: AssetKind,
        limit: u32,
    ) -> Result<Vec<Asset>, StoreError>;
    /// Creates an asset.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a new lifecycle state of an asset. Archiving fails with the conflict `AssetInUse` while a
    /// [`BlockingRelease`] exists. The statement also detects bindings that are committed concurrently.
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
    /// Finds an asset by slug, with the version that has the label. If `label` is `None`, the version is the last
    /// committed one.
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
    /// Stores a version and returns it with its label; [`CommitError::Stale`] when the asset no longer accepts
    /// versions.
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
    /// Lists an asset's versions in reverse commit order, regardless of the times in their identifiers. The size of a
    /// page in bytes is bounded too, because versions can be large. A page may therefore have fewer entries than its
    /// limit although another page follows.
    async fn list_versions(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: PageRequest,
    ) -> Result<Page<AssetVersion>, StoreError>;
    /// Whether the model policy is active, and no version that was committed after `version` suspends or retires the
    /// route.
    async fn is_route_effective(
        &self,
        scope: TenantScope,
        asset: AssetId,
        version: AssetVersionId,
        route_id: &str,
    ) -> Result<bool, StoreError>;
    /// Whether any references of the version are recorded.
    async fn has_references(&self, scope: TenantScope, version: AssetVersionId) -> Result<bool, StoreError>;
    /// The stored source text of a version, if any (a flow's YAML).
    async fn source_text(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<String>, StoreError>;
}
