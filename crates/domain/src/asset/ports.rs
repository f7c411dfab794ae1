//! The ports that store assets and their versions.

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

/// The assets that a list may contain, because the caller sees them.
#[derive(Clone, Debug)]
pub enum AssetVisibility {
    /// The caller sees all assets of the tenant.
    Tenant,
    /// The caller sees the assets that one workspace sees.
    FromWorkspace {
        /// The namespace of the workspace, all of whose assets are visible.
        namespace: NamespaceId,
        /// The workspace, if the caller may see the assets that are granted to it.
        workspace: Option<WorkspaceId>,
        /// The principals of the caller, which see the assets that are granted to them.
        principals: Vec<ActorRef>,
    },
    /// The caller sees the assets of several namespaces and workspaces.
    InScopes {
        /// The namespaces and workspaces whose assets are visible.
        scopes: VisibleScopes,
        /// The principals of the caller, which see the assets that are granted to them.
        principals: Vec<ActorRef>,
    },
}

/// The conditions of a list of assets. An asset must meet all that are set.
#[derive(Clone, Debug)]
pub struct AssetFilter {
    /// Only assets that the caller sees.
    pub visibility: AssetVisibility,
    /// Only assets of this kind.
    pub kind: Option<AssetKind>,
    /// Only assets in this lifecycle state.
    pub lifecycle: Option<Lifecycle>,
}

/// A release that prevents the archiving of an asset, because it binds a version of the asset and is neither superseded
/// nor retired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockingRelease {
    /// The identifier of the release.
    pub release_id: ReleaseId,
    /// The state of the release.
    pub state: StateName,
    /// The workload that the release serves.
    pub workload_id: WorkloadId,
    /// Slug of the workload.
    pub workload_slug: Slug,
    /// The workspace of the workload.
    pub workspace_id: WorkspaceId,
    /// The namespace of that workspace.
    pub namespace_id: NamespaceId,
    /// The environment of the release.
    pub environment: Slug,
}

/// Stores assets and their lifecycle states.
#[async_trait]
pub trait AssetStore: Send + Sync {
    /// Finds one asset by its identifier.
    async fn find(&self, scope: TenantScope, id: AssetId) -> Result<Option<Asset>, StoreError>;
    /// Lists one page of assets, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &AssetFilter,
        page: PageRequest,
    ) -> Result<Page<Asset>, StoreError>;
    /// Lists active assets of one kind that a workspace owns, newest first, at most `limit`. Built-in assets are left
    /// out.
    async fn list_owned_active(
        &self,
        scope: TenantScope,
        namespace: NamespaceId,
        workspace: WorkspaceId,
        kind: AssetKind,
        limit: u32,
    ) -> Result<Vec<Asset>, StoreError>;
    /// Stores a new asset.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a new lifecycle state of an asset. Archiving fails with the conflict `AssetInUse` while a
    /// [`BlockingRelease`] exists, even if its binding is committed at the same time.
    async fn commit_lifecycle(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Lists releases that prevent the archiving of the asset, newest first, at most `limit`.
    async fn blocking_releases(
        &self,
        scope: TenantScope,
        id: AssetId,
        limit: u32,
    ) -> Result<Vec<BlockingRelease>, StoreError>;
    /// Finds the identifier of the asset with this slug.
    async fn find_id(&self, scope: TenantScope, slug: &Slug) -> Result<Option<AssetId>, StoreError>;
    /// Finds an asset by its slug, with the version that has this label. If `label` is `None`, the version is the last
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
    /// Stores a version, and returns it with its label. Fails with [`CommitError::Stale`] if the asset no longer
    /// accepts versions.
    async fn commit_version(
        &self,
        scope: TenantScope,
        change: Change<NewVersion>,
        key: Option<&KeyedOutcome>,
    ) -> Result<AssetVersion, CommitError>;
    /// Stores a new asset with its first version, and returns that version.
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
    /// Lists one page of an asset's versions, last committed first, regardless of the times in their identifiers. The
    /// size of a page in bytes is bounded too, because versions can be large. Therefore a page can have fewer entries
    /// than its limit although another page follows.
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
    /// Whether the store has recorded references of the version.
    async fn has_references(&self, scope: TenantScope, version: AssetVersionId) -> Result<bool, StoreError>;
    /// Reads the source text of a version, if one is stored (the YAML of a flow).
    async fn source_text(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<String>, StoreError>;
}
