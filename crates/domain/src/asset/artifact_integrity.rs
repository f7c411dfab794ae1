//! Integrity of stored artifacts. Bytes from the artifact store are accessible only after a comparison with the
//! recorded checksum or content.

use super::{AssetVersion, NewVersion, canonical::Checksum};
use crate::{
    audit::{Fact, FactKind, Stamp, Subject},
    id::{ArtifactId, AssetId, AssetVersionId, ReleaseId, WorkspaceId},
    notification_category::NotificationCategory,
    transparency_log::{FullTile, TileCoordinate, TreeHash},
};
use serde_json::json;
use std::fmt;

/// Bytes as the artifact store returned them. They are accessible only by a comparison, so that no caller uses
/// unverified bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct UnverifiedBytes(Content);

#[derive(Clone, PartialEq, Eq)]
enum Content {
    /// At most the expected number of bytes.
    Whole(Vec<u8>),
    /// More bytes than expected; the store did not read them.
    TooLong,
}

impl UnverifiedBytes {
    /// Wraps bytes that a store returned.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(Content::Whole(bytes))
    }

    /// An object with more bytes than expected. Such an object fails every comparison, so its bytes need not be read.
    #[must_use]
    pub const fn too_long() -> Self {
        Self(Content::TooLong)
    }

    /// Returns the bytes if their BLAKE3 checksum equals the expected one.
    ///
    /// # Errors
    /// Returns [`IntegrityDefect::Different`] for every other checksum.
    pub fn verify(self, expected: &Checksum) -> Result<Vec<u8>, IntegrityDefect> {
        match self.0 {
            Content::Whole(bytes) if Checksum::blake3_of(&bytes) == *expected => Ok(bytes),
            Content::Whole(_) | Content::TooLong => Err(IntegrityDefect::Different),
        }
    }

    /// Returns the tile of a transparency log if the root of its bytes equals `root`, which the log's tree has for
    /// this tile.
    ///
    /// # Errors
    /// Returns [`IntegrityDefect::Different`] for every other content.
    pub fn verify_tile(self, tile: TileCoordinate, root: TreeHash) -> Result<FullTile, IntegrityDefect> {
        match self.0 {
            Content::Whole(bytes) => FullTile::from_bytes(tile, &bytes).filter(|tile| tile.root() == root),
            Content::TooLong => None,
        }
        .ok_or(IntegrityDefect::Different)
    }

    /// Returns the tile that these bytes represent, unverified. Callers may only compare the tile with another, as an
    /// audit does to find where a log differs.
    #[must_use]
    pub fn unverified_tile(self, tile: TileCoordinate) -> Option<FullTile> {
        match self.0 {
            Content::Whole(bytes) => FullTile::from_bytes(tile, &bytes),
            Content::TooLong => None,
        }
    }

    /// Whether these bytes equal the expected bytes.
    #[must_use]
    pub fn is_equal_to(&self, expected: &[u8]) -> bool {
        matches!(&self.0, Content::Whole(bytes) if bytes == expected)
    }
}

impl fmt::Debug for UnverifiedBytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Content::Whole(bytes) => write!(out, "{} unverified bytes", bytes.len()),
            Content::TooLong => out.write_str("more unverified bytes than expected"),
        }
    }
}

/// How a stored artifact fails verification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntegrityDefect {
    /// The store has no object at the path of an existing row. An eventually consistent store may report this
    /// temporarily.
    Missing,
    /// The store has other bytes at the path: truncated, damaged, too many, or those of another object.
    Different,
}

impl IntegrityDefect {
    /// The stable code in facts and log lines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Different => "different",
        }
    }
}

/// The record that an artifact belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArtifactOwner {
    /// Artifact of an asset version.
    Version {
        /// The asset.
        asset_id: AssetId,
        /// The version.
        asset_version_id: AssetVersionId,
    },
    /// Document of a release.
    Release {
        /// The release.
        release_id: ReleaseId,
        /// The document.
        artifact_id: ArtifactId,
    },
}

/// A stored artifact does not match its checksum.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a stored artifact does not match its checksum")]
pub struct IntegrityMismatch {
    /// Record that the artifact belongs to.
    pub owner: ArtifactOwner,
    /// Expected checksum.
    pub expected: Checksum,
    /// Defect.
    pub defect: IntegrityDefect,
}

impl IntegrityMismatch {
    /// Builds the fact of the mismatch. It is an incident, because a damaged artifact can affect runs, and a
    /// compliance finding. It omits the checksum of the stored bytes, which may belong to another tenant's object.
    #[must_use]
    pub fn fact(&self, workspace: WorkspaceId, stamp: &Stamp) -> Fact {
        let (checksum, defect) = (self.expected.as_str(), self.defect.as_str());
        let (kind, subject, detail) = match self.owner {
            ArtifactOwner::Version { asset_id, asset_version_id } => (
                FactKind::IntegrityMismatch,
                Subject { kind: "asset_version", id: asset_version_id.uuid() },
                json!({ "asset_id": asset_id, "checksum": checksum, "defect": defect }),
            ),
            ArtifactOwner::Release { release_id, artifact_id } => (
                FactKind::ReleaseIntegrityMismatch,
                Subject { kind: "release", id: release_id.uuid() },
                json!({ "artifact_id": artifact_id, "checksum": checksum, "defect": defect }),
            ),
        };
        let fact = Fact::new(kind, subject, Some(workspace), stamp, detail);
        fact.with_notification_categories([NotificationCategory::Incidents, NotificationCategory::ComplianceFindings])
    }
}

impl AssetVersion {
    /// Length of the version's artifact in bytes.
    #[must_use]
    pub const fn artifact_len(&self) -> usize {
        self.canonical.len()
    }

    /// Returns the artifact's bytes if they match the version's checksum. `stored` is `None` when the store has no
    /// object at the path.
    ///
    /// # Errors
    /// Returns the mismatch if the artifact is missing or its checksum differs.
    pub fn verify_artifact(&self, stored: Option<UnverifiedBytes>) -> Result<Vec<u8>, IntegrityMismatch> {
        let verified = stored.ok_or(IntegrityDefect::Missing).and_then(|stored| stored.verify(&self.checksum));
        verified.map_err(|defect| IntegrityMismatch {
            owner: ArtifactOwner::Version { asset_id: self.asset_id, asset_version_id: self.asset_version_id },
            expected: self.checksum.clone(),
            defect,
        })
    }
}

impl NewVersion {
    /// The mismatch of a version whose path already contains other bytes.
    #[must_use]
    pub fn path_conflict(&self) -> IntegrityMismatch {
        IntegrityMismatch {
            owner: ArtifactOwner::Version { asset_id: self.asset_id, asset_version_id: self.asset_version_id },
            expected: self.canonical.checksum().clone(),
            defect: IntegrityDefect::Different,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_bytes_only_when_the_checksum_matches() {
        let expected = Checksum::blake3_of(b"{\"a\":1}");
        assert_eq!(UnverifiedBytes::new(b"{\"a\":1}".to_vec()).verify(&expected).unwrap(), b"{\"a\":1}");
        for wrong in ["{\"a\":1} ", "{\"a\":1", "", "{\"a\":2}"] {
            let refused = UnverifiedBytes::new(wrong.as_bytes().to_vec()).verify(&expected);
            assert_eq!(refused, Err(IntegrityDefect::Different), "{wrong}");
        }
    }

    #[test]
    fn rejects_oversized_objects_in_every_comparison() {
        let refused = UnverifiedBytes::too_long().verify(&Checksum::blake3_of(b""));
        assert_eq!(refused, Err(IntegrityDefect::Different));
        assert!(!UnverifiedBytes::too_long().is_equal_to(b""));
        assert!(UnverifiedBytes::new(Vec::new()).is_equal_to(b""));
    }

    #[test]
    fn debug_output_omits_the_bytes() {
        assert_eq!(format!("{:?}", UnverifiedBytes::new(b"canary".to_vec())), "6 unverified bytes");
    }
}
