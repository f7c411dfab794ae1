//! The port of the artifact store, which stores immutable objects under paths.

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
    pub fn of_evidence(execution: ExecutionId, artifact: ArtifactId, name: &'static str) -> Self {
        Self(format!("{}/{execution}/{artifact}/{name}", Self::EVIDENCE_PREFIX))
    }

    /// Path of a full tile of a tenant's transparency log.
    #[must_use]
    pub fn of_log_tile(tenant: TenantId, tile: TileCoordinate) -> Self {
        Self(format!("{}/{tenant}/tile/{}/{}", Self::LOG_PREFIX, tile.level, tile.index_path()))
    }

    /// Path of the object that contains the identifier of the installation that owns the store.
    #[must_use]
    pub fn of_installation() -> Self {
        Self("installation".to_owned())
    }

    /// Parses a path that [`Self::of_version`] can create; `None` for every other path.
    #[must_use]
    pub fn parse_version(path: &str) -> Option<(AssetId, AssetVersionId)> {
        let (asset, file) = path.strip_prefix(Self::VERSION_PREFIX)?.strip_prefix('/')?.split_once('/')?;
        let version = file.strip_suffix("/content.json")?;
        let ids: (AssetId, AssetVersionId) =
            (Uuid::try_parse(asset).ok()?.into(), Uuid::try_parse(version).ok()?.into());
        // `try_parse` accepts several spellings of an identifier. The comparison accepts only the canonical one.
        (Self::of_version(ids.0, ids.1).as_str() == path).then_some(ids)
    }

    /// Prefix of the paths of all version contents.
    pub const VERSION_PREFIX: &str = "assets";

    /// Prefix of the paths of all evidence documents.
    pub const EVIDENCE_PREFIX: &str = "evidence";

    /// Prefix of the paths of all tiles of transparency logs.
    pub const LOG_PREFIX: &str = "logs";

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

/// Outcome of [`ArtifactStore::put_if_absent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutOutcome {
    /// The store had no object at the path and wrote the bytes.
    Created,
    /// The store already contained the same bytes.
    AlreadyExists,
}

/// Failure of the artifact store. It is logged and never shown to callers.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The store is unreachable or too slow.
    #[error("the artifact store is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The path already contains other bytes, which are immutable.
    #[error("the path already holds other bytes")]
    Conflict,
}

/// An object in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredObject {
    /// Path of the object. It may have a form that no [`ArtifactPath`] has.
    pub path: String,
    /// Time at which the object was stored, by the store's clock.
    pub put_at: Timestamp,
}

/// Incremental listing of the objects in the store.
#[async_trait]
pub trait ObjectListing: Send {
    /// Returns the next objects, at most `limit`; an empty list at the end.
    async fn next(&mut self, limit: usize) -> Result<Vec<StoredObject>, ArtifactError>;
}

/// Store of immutable objects: version contents, evidence documents, tiles of transparency logs, and the identifier of
/// the installation.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// Stores bytes at an unused path; the bytes are durable when the method returns.
    async fn put_if_absent(&self, path: &ArtifactPath, bytes: Vec<u8>) -> Result<PutOutcome, ArtifactError>;
    /// Reads the bytes at a path for the caller to verify; `None` without an object. `expected_len` is the recorded
    /// length in bytes. For a longer object the result is [`UnverifiedBytes::too_long`]; the store reads at most one
    /// byte beyond that length.
    async fn read(&self, path: &ArtifactPath, expected_len: usize) -> Result<Option<UnverifiedBytes>, ArtifactError>;
    /// Lists the objects below a prefix incrementally. The result may contain objects that Fairway did not store.
    fn list(&self, prefix: &'static str) -> Box<dyn ObjectListing + '_>;
    /// Removes an object; succeeds also when the object does not exist. Callers may remove only objects that no row
    /// names.
    async fn remove(&self, path: &ArtifactPath) -> Result<(), ArtifactError>;
    /// Checks that the store responds.
    async fn ready(&self) -> Result<(), ArtifactError>;
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
