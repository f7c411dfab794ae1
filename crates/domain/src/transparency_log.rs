//! The transparency log: the Merkle tree over the audit log of a tenant, with proofs, tiles and signed checkpoints.
//!
//! RFC 6962, section 2.1, defines the tree, with SHA-256. Tiles, checkpoints and signatures have the formats of the
//! C2SP specifications `tlog-tiles`, `tlog-checkpoint` and `signed-note`, so that third-party tools can verify them.

mod checkpoint;
mod cosignature;
mod log_audit;
mod merkle;
mod ports;
mod proof_plan;
mod signed_note;
mod tile;
mod tree_edge;

pub use checkpoint::{Checkpoint, CheckpointRefusal, LogOriginBase, LogOriginRefusal};
pub use cosignature::{WitnessKey, WitnessRequest, cosigned_message};
pub use log_audit::{LogAudit, LogDefect, LogDefectCause};
pub use merkle::{ConsistencyClaim, InclusionClaim, TreeHash, node_hash};
pub use ports::{
    ArchiveError, CheckpointArchive, CheckpointSigner, LoggedFact, PendingLog, SigningError, StoredEntry, TreeAdvance,
    TreeState, TreeStore, Witness, WitnessError, WitnessResponse,
};
pub use proof_plan::{ProofPlan, TileReader};
pub use signed_note::{NoteRefusal, NoteSignature, NoteSigningKey, SignedNote, VerifierKey, VerifierKeyRefusal};
pub use tile::{FullTile, TILE_HASHES, TileCoordinate, TileRefusal, TileRequest};
pub use tree_edge::TreeEdge;

#[cfg(test)]
mod tests;
