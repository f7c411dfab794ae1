//! The port to the artifact store, which keeps immutable objects under paths.

use super::artifact_integrity::UnverifiedBytes;
use crate::{
    id::{ArtifactId, AssetId, AssetVersionId, ExecutionId, TenantId},
    time::Timestamp,
    transparency_log::TileCoordinate,
};
use async_trait::async_trait;
use serde::{Serialize, Serializer};
use std::{error::Error, fmt};
use uuid::Uuid;

/// A relative path in the artifact store. INVARIANT: only this type builds paths, from identifiers and constants.
/// Therefore a path cannot leave the store or contain a name from outside.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArtifactPath(String);

impl ArtifactPath {
    /// The path of a version's content.
    #[must_use]
    pub fn of_version(asset: AssetId, version: AssetVersionId) -> Self {
        Self(format!("{}/{asset}/{version}/content.json", Self::VERSION_PREFIX))
    }

    /// A path that names an evidence artifact of a run. The database contains the artifact; the artifact store has no
    /// object at this path.
    #[must_use]
    pub fn of_database_evidence(execution: ExecutionId, artifact: ArtifactId, name: &'static str) -> Self {
        Self(format!("{}/{execution}/{artifact}/{name}", Self::EVIDENCE_PREFIX))
    }

    /// The path of a full tile of a tenant's transparency log.
    #[must_use]
    pub fn of_log_tile(tenant: TenantId, tile: TileCoordinate) -> Self {
        Self(format!("{}/{tenant}/tile/{}/{}", Self::LOG_PREFIX, tile.level, tile.index_path()))
    }

    /// The path of the object that names the installation to which the store belongs.
    #[must_use]
    pub fn of_installation() -> Self {
        Self("installation".to_owned())
    }

    /// Parses the path of a version's content; `None` for any other path.
    #[must_use]
    pub fn parse_version(path: &str) -> Option<(AssetId, AssetVersionId)> {
        let (asset, file) = path.strip_prefix(Self::VERSION_PREFIX)?.strip_prefix('/')?.split_once('/')?;
        let version = file.strip_suffix("/content.json")?;
        let ids: (AssetId, AssetVersionId) =
            (Uuid::try_parse(asset).ok()?.into(), Uuid::try_parse(version).ok()?.into());
        // `try_parse` accepts several spellings of an identifier, so the comparison with the canonical path is
        // necessary.
        (Self::of_version(ids.0, ids.1).as_str() == path).then_some(ids)
    }

    /// The prefix of the paths of all version contents.
    pub const VERSION_PREFIX: &str = "assets";

    /// The prefix of the paths of all evidence artifacts.
    pub const EVIDENCE_PREFIX: &str = "evidence";

    /// The prefix of the paths of all tiles of transparency logs.
    pub const LOG_PREFIX: &str = "logs";

    /// The path as text, relative to the root of the store.
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

/// The result of [`ArtifactStore::put_if_absent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutOutcome {
    /// The path was unused, and the store wrote the bytes.
    Created,
    /// The path already had the same bytes.
    AlreadyExists,
}

/// The reason why an operation of the artifact store failed. It goes to logs and never to callers.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactStoreError {
    /// The store could not be reached or did not respond in time.
    #[error("the artifact store is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The path already has other bytes, and stored bytes never change.
    #[error("the path already holds other bytes")]
    Conflict,
}

/// An object in the artifact store, as a list contains it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredObject {
    /// The path of the object. It may have a form that no [`ArtifactPath`] has.
    pub path: String,
    /// The time at which the object was stored, by the store's clock.
    pub put_at: Timestamp,
}

/// A list of the objects in the store, read in portions.
#[async_trait]
pub trait ObjectListing: Send {
    /// Returns the next objects, at most `limit`. An empty list means that there are no more.
    async fn next(&mut self, limit: usize) -> Result<Vec<StoredObject>, ArtifactStoreError>;
}

/// Stores immutable objects: contents of versions, evidence artifacts, tiles of transparency logs, and the identifier
/// of the installation.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// Stores bytes at an unused path. The bytes are durable when the method returns.
    async fn put_if_absent(&self, path: &ArtifactPath, bytes: Vec<u8>) -> Result<PutOutcome, ArtifactStoreError>;
    /// Reads the bytes at a path for verification; `None` if there is no object. `expected_len` is the recorded length
    /// in bytes. For a longer object, the store reads at most one byte more and returns [`UnverifiedBytes::too_long`].
    async fn read(
        &self,
        path: &ArtifactPath,
        expected_len: usize,
    ) -> Result<Option<UnverifiedBytes>, ArtifactStoreError>;
    /// Lists the objects under a prefix in portions. The list can contain objects that Fairway did not store.
    fn list(&self, prefix: &'static str) -> Box<dyn ObjectListing + '_>;
    /// Removes an object, and succeeds if there is none. Callers may only remove objects that no row names.
    async fn remove(&self, path: &ArtifactPath) -> Result<(), ArtifactStoreError>;
    /// Checks that the store responds.
    async fn ready(&self) -> Result<(), ArtifactStoreError>;
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
