//! The ports of the transparency log: the stored tree, the archive of checkpoints, the signer, and the witness.

use super::{Checkpoint, NoteSignature, TreeEdge, TreeHash, WitnessKey, WitnessRequest};
use crate::{
    id::{FactId, TenantId, WorkloadId, WorkspaceId},
    store::StoreError,
    tenant::TenantScope,
};
use async_trait::async_trait;
use std::error::Error;
use uuid::Uuid;

/// The stored tree over the audit log of a tenant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TreeState {
    /// The right edge of the tree: the hashes in its partial tiles.
    pub edge: TreeEdge,
    /// The published checkpoint as a signed note; `None` before the first checkpoint. It may cover fewer leaves than
    /// the tree has.
    pub checkpoint: Option<String>,
}

/// A log whose tree or checkpoint does not cover all its facts, or whose checkpoint other keys signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingLog {
    /// The tenant whose facts the log contains.
    pub tenant: TenantId,
    /// The stored tree, with its published checkpoint.
    pub tree: TreeState,
    /// The number of sequenced facts in the log.
    pub log_size: u64,
}

/// The next state of a stored tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeAdvance {
    /// The size of the tree from which the advance was computed. The store refuses the advance if its tree has another
    /// size.
    pub from_size: u64,
    /// The right edge of the tree after the advance.
    pub edge: TreeEdge,
    /// The new checkpoint as a signed note; `None` keeps the published checkpoint.
    pub checkpoint: Option<String>,
    /// The fingerprint of the keys that signed and cosigned the new checkpoint.
    pub signed_by: String,
}

/// A sequenced fact, with the data that its proof and its authorization need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedFact {
    /// The index of the fact in the log, and of its leaf in the tree.
    pub index: u64,
    /// The stored bytes of the fact. The leaf is their hash.
    pub body: Vec<u8>,
    /// The workspace to which the fact belongs, if any.
    pub workspace: Option<WorkspaceId>,
    /// The workload to which the fact belongs, if any.
    pub workload: Option<WorkloadId>,
}

/// An entry of a log as the database stores it, for an audit. It may be damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredEntry {
    /// The index in the log that the database records for the entry.
    pub index: u64,
    /// The stored bytes; `None` if they are missing.
    pub body: Option<Vec<u8>>,
    /// The recorded leaf hash; `None` if it is missing or does not have the length of a hash.
    pub leaf_hash: Option<TreeHash>,
}

/// Stores the trees of all logs.
#[async_trait]
pub trait TreeStore: Send + Sync {
    /// Lists the logs that have facts beyond their tree, or whose checkpoint was signed by other keys than `signed_by`
    /// names. Logs are ordered by tenant, starting after the tenant `after`.
    async fn pending_logs(
        &self,
        signed_by: &str,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<PendingLog>, StoreError>;
    /// Finds the log of a tenant; `None` if the tenant has no log.
    async fn find_log(&self, scope: TenantScope) -> Result<Option<PendingLog>, StoreError>;
    /// Lists the leaf hashes of sequenced facts from the index `start` on, in order and without a gap.
    async fn leaves(&self, scope: TenantScope, start: u64, limit: u32) -> Result<Vec<TreeHash>, StoreError>;
    /// Lists the entries from the index `start` on, in order and with their bytes. The result omits an index without an
    /// entry.
    async fn entries(&self, scope: TenantScope, start: u64, limit: u32) -> Result<Vec<StoredEntry>, StoreError>;
    /// Lists the tenants that have a log, in order, starting after the tenant `after`.
    async fn logged_tenants(&self, after: Option<TenantId>, limit: u32) -> Result<Vec<TenantId>, StoreError>;
    /// Replaces the tree if it still has the size from which the advance was computed. Returns whether it was replaced.
    async fn advance_tree(&self, scope: TenantScope, advance: TreeAdvance) -> Result<bool, StoreError>;
    /// Lists the newest sequenced facts of these kinds about these subjects; the result is ordered by index.
    async fn facts_about(
        &self,
        scope: TenantScope,
        subjects: &[Uuid],
        kinds: &'static [&'static str],
        limit: u32,
    ) -> Result<Vec<LoggedFact>, StoreError>;
    /// Finds a sequenced fact by its identifier.
    async fn find_logged_fact(&self, scope: TenantScope, fact: FactId) -> Result<Option<LoggedFact>, StoreError>;
}

/// The failure of an operation on the checkpoint archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive is unreachable, or does not respond in time.
    #[error("the checkpoint archive is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

/// Stores published checkpoints outside the database. An archived checkpoint is never replaced. The archive therefore
/// reveals that a database was manipulated or restored from an old backup.
#[async_trait]
pub trait CheckpointArchive: Send + Sync {
    /// Archives a checkpoint, unless the archive already has one of this size. Returns the archived bytes, which may be
    /// those of the earlier checkpoint.
    async fn store_if_absent(&self, tenant: TenantId, size: u64, note: &str) -> Result<Vec<u8>, ArchiveError>;
    /// Finds the newest checkpoint that has at least this size.
    async fn newest_from(&self, tenant: TenantId, size: u64) -> Result<Option<Vec<u8>>, ArchiveError>;
    /// Lists the tenants with archived checkpoints, in order. They include tenants that were removed from the database.
    async fn tenants(&self) -> Result<Vec<TenantId>, ArchiveError>;
}

/// The reason why a checkpoint could not be signed.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// A key cannot be read.
    #[error("the checkpoint key cannot be read")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// A key is not the base64 of 32 bytes.
    #[error("the checkpoint key must be base64 of 32 bytes")]
    Malformed,
}

/// Signs checkpoints with one key, or with two keys during a key rotation. The port exposes only public keys and
/// signatures, so a key management service can implement it.
#[async_trait]
pub trait CheckpointSigner: Send + Sync {
    /// The public keys of the log, the current key first.
    async fn public_keys(&self) -> Result<Vec<[u8; 32]>, SigningError>;
    /// Signs a message with each key. Returns each public key with its signature, the current key first.
    async fn sign(&self, message: &[u8]) -> Result<Vec<([u8; 32], [u8; 64])>, SigningError>;
}

/// The response of a witness to a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WitnessResponse {
    /// The witness cosigned the checkpoint, and returned these signature lines. They are not verified yet.
    Cosigned(Vec<NoteSignature>),
    /// The witness last cosigned a tree of this size, which differs from the size in the request.
    SizeMismatch(u64),
}

/// The reason why a witness did not cosign a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    /// The witness is unreachable or does not respond in time, or its response is malformed.
    #[error("the witness is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The witness does not know the log or its key.
    #[error("the witness does not know this log or its key")]
    UnknownLog,
    /// The witness refuses the checkpoint, because it contradicts a checkpoint that the witness cosigned before.
    #[error("the checkpoint contradicts one that the witness cosigned")]
    Contradicted,
}

/// A witness: an independent party that cosigns a checkpoint only if it is consistent with those that the party
/// cosigned before.
#[async_trait]
pub trait Witness: Send + Sync {
    /// The public key of the witness.
    fn key(&self) -> &WitnessKey;
    /// Requests a cosignature of a checkpoint.
    async fn add_checkpoint(&self, request: &WitnessRequest) -> Result<WitnessResponse, WitnessError>;
}

impl TreeState {
    /// Parses the published checkpoint without verifying its signatures; `None` before the first checkpoint.
    #[must_use]
    pub fn parse_checkpoint(&self) -> Option<Checkpoint> {
        let note = super::SignedNote::parse(self.checkpoint.as_deref()?.as_bytes()).ok()?;
        Checkpoint::parse(note.text()).ok()
    }
}
