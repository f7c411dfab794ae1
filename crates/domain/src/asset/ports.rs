//! Where assets, their versions and their artifacts are kept.

use super::{Asset, AssetVersion, Lifecycle, NewVersion, VersionLabel, kind::AssetKind};
use crate::{
    access::rights::Reach,
    id::{AssetId, AssetVersionId, ExecutionId, WorkspaceId},
    idempotency::KeyedOutcome,
    slug::Slug,
    store::{Change, CommitError, Paging, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;
use serde::{Serialize, Serializer};
use std::{error::Error, fmt};

/// A relative path in the artifact store. INVARIANT: made here alone, of identifiers and fixed words, so it can
/// neither climb out of the store nor carry a name from outside.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArtifactPath(String);

impl ArtifactPath {
    /// Where a version's content lies.
    #[must_use]
    pub fn of_version(asset: AssetId, version: AssetVersionId) -> Self {
        Self(format!("assets/{asset}/{version}/content.json"))
    }

    /// Where a document of a run lies.
    #[must_use]
    pub fn of_evidence(execution: ExecutionId, artifact: crate::id::ArtifactId, name: &'static str) -> Self {
        Self(format!("evidence/{execution}/{artifact}/{name}"))
    }

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

/// Keeps bytes that never change.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// Stores bytes where nothing lies yet; durable once it answers.
    async fn put_if_absent(&self, path: &ArtifactPath, bytes: Vec<u8>) -> Result<Put, ArtifactError>;
    /// The bytes at a path.
    async fn read(&self, path: &ArtifactPath) -> Result<Option<Vec<u8>>, ArtifactError>;
    /// Whether the store answers at all.
    async fn ready(&self) -> Result<(), ArtifactError>;
}

/// Which assets a list shows.
#[derive(Clone, Debug, Default)]
pub struct AssetFilter {
    /// Those seen from this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Those of this kind.
    pub kind: Option<AssetKind>,
    /// Those in this state.
    pub lifecycle: Option<Lifecycle>,
    /// Those that the caller's grants reach; `None` for all of the tenant.
    pub reach: Option<Reach>,
}

/// Keeps assets and versions.
#[async_trait]
pub trait AssetStore: Send + Sync {
    /// One asset.
    async fn find(&self, scope: TenantScope, id: AssetId) -> Result<Option<Asset>, StoreError>;
    /// A page of assets, newest first, with their number.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &AssetFilter,
        page: Paging,
    ) -> Result<(Vec<Asset>, u64), StoreError>;
    /// Makes an asset.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
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
    /// A page of an asset's versions, newest first, with their number.
    async fn list_versions(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: Paging,
    ) -> Result<(Vec<AssetVersion>, u64), StoreError>;
    /// Whether a version of the model policy made after this one suspends or retires the route.
    async fn withdraws_route_after(
        &self,
        scope: TenantScope,
        asset: AssetId,
        version: AssetVersionId,
        route_id: &str,
    ) -> Result<bool, StoreError>;
    /// The asset of a slug, with its version of that label, or with its newest where none is named.
    async fn find_by_slug(
        &self,
        scope: TenantScope,
        slug: &Slug,
        label: Option<&VersionLabel>,
    ) -> Result<Option<(Asset, Option<AssetVersion>)>, StoreError>;
    /// The text that a version was made from, where one was kept (a flow's YAML).
    async fn source_text(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<String>, StoreError>;
}
