//! Integrity of stored artifacts: bytes from the artifact store can be read only after a comparison with a recorded
//! checksum or content.

use super::{AssetVersion, NewVersion, canonical::Checksum};
use crate::{
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{ArtifactId, AssetId, AssetVersionId, ReleaseId, WorkspaceId},
    notification_category::NotificationCategory,
    transparency_log::{FullTile, TileCoordinate, TreeHash},
};
use serde_json::json;
use std::fmt;

/// Bytes as the artifact store returned them. Only a comparison gives access to them, so that no caller uses unverified
/// bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct UnverifiedBytes(Content);

#[derive(Clone, PartialEq, Eq)]
enum Content {
    /// The object has at most the expected number of bytes.
    Whole(Vec<u8>),
    /// The object has more bytes than expected, and the store did not read them.
    TooLong,
}

impl UnverifiedBytes {
    /// Wraps the bytes that a store returned.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(Content::Whole(bytes))
    }

    /// Represents an object with more bytes than expected. Every comparison with it fails, so the store need not read
    /// it.
    #[must_use]
    pub const fn too_long() -> Self {
        Self(Content::TooLong)
    }

    /// Returns the bytes if their BLAKE3 checksum is the expected one.
    ///
    /// # Errors
    /// Returns [`IntegrityDefect::Different`] for every other checksum.
    pub fn verify(self, expected: &Checksum) -> Result<Vec<u8>, IntegrityDefect> {
        match self.0 {
            Content::Whole(bytes) if Checksum::blake3_of(&bytes) == *expected => Ok(bytes),
            Content::Whole(_) | Content::TooLong => Err(IntegrityDefect::Different),
        }
    }

    /// Parses the bytes as a tile of a transparency log. Returns the tile if its root is `root`, the root that the
    /// log's tree has at this position.
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

    /// Parses the bytes as a tile without verification. Callers may only compare the tile with another one, as an audit
    /// does to find the first difference of two logs.
    #[must_use]
    pub fn parse_unverified_tile(self, tile: TileCoordinate) -> Option<FullTile> {
        match self.0 {
            Content::Whole(bytes) => FullTile::from_bytes(tile, &bytes),
            Content::TooLong => None,
        }
    }

    /// Whether the object has exactly these bytes.
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

/// The reason why a stored artifact fails its verification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntegrityDefect {
    /// The store has no object at a path that a row names. An eventually consistent store can report this temporarily.
    Missing,
    /// The store has other bytes at the path: too few, too many, damaged ones, or those of another object.
    Different,
}

impl IntegrityDefect {
    /// The stable code of the defect, which facts and log lines contain.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Different => "different",
        }
    }
}

/// The asset version or the release document to which an artifact belongs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArtifactOwner {
    /// The artifact is the content of an asset version.
    Version {
        /// The asset to which the version belongs.
        asset_id: AssetId,
        /// The version whose content the artifact is.
        asset_version_id: AssetVersionId,
    },
    /// The artifact is a document of a release.
    Release {
        /// The release that the document is about.
        release_id: ReleaseId,
        /// The identifier of the document.
        artifact_id: ArtifactId,
    },
}

/// A stored artifact is missing or does not match its checksum.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a stored artifact does not match its checksum")]
pub struct IntegrityMismatch {
    /// The version or document to which the artifact belongs.
    pub owner: ArtifactOwner,
    /// The checksum that the row of the artifact records.
    pub expected: Checksum,
    /// The reason why the verification failed.
    pub defect: IntegrityDefect,
}

impl IntegrityMismatch {
    /// Builds the fact of the mismatch. The fact is an incident, because a damaged artifact can affect runs, and it is
    /// a compliance finding. It omits the checksum of the stored bytes, because they may belong to an object of another
    /// tenant.
    #[must_use]
    pub fn fact(&self, workspace: WorkspaceId, stamp: &Stamp) -> Fact {
        let (checksum, defect) = (self.expected.as_str(), self.defect.as_str());
        let (kind, subject, detail) = match self.owner {
            ArtifactOwner::Version { asset_id, asset_version_id } => (
                FactKind::IntegrityMismatch,
                FactSubject { kind: "asset_version", id: asset_version_id.uuid() },
                json!({ "asset_id": asset_id, "checksum": checksum, "defect": defect }),
            ),
            ArtifactOwner::Release { release_id, artifact_id } => (
                FactKind::ReleaseIntegrityMismatch,
                FactSubject { kind: "release", id: release_id.uuid() },
                json!({ "artifact_id": artifact_id, "checksum": checksum, "defect": defect }),
            ),
        };
        let fact = Fact::new(kind, subject, Some(workspace), stamp, detail);
        fact.with_notification_categories([NotificationCategory::Incidents, NotificationCategory::ComplianceFindings])
    }
}

impl AssetVersion {
    /// The length of the version's artifact, in bytes.
    #[must_use]
    pub const fn artifact_len(&self) -> usize {
        self.canonical.len()
    }

    /// Returns the bytes of the artifact if they match the checksum of the version. `stored` is `None` if the store has
    /// no object at the path.
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
    /// The mismatch that a store reports when the path of a new version already has other bytes.
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
