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
    /// The right edge of the tree.
    pub edge: TreeEdge,
    /// The published checkpoint as a signed note; `None` before the first. It may cover fewer leaves than the
    /// right edge.
    pub checkpoint: Option<String>,
}

/// A log whose tree or checkpoint does not cover all of its facts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingLog {
    /// The tenant of the log.
    pub tenant: TenantId,
    /// The stored tree.
    pub tree: TreeState,
    /// The number of sequenced facts in the log.
    pub log_size: u64,
}

/// An advance of a stored tree to its next state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeAdvance {
    /// The size of the tree from which the advance was computed. The store refuses the advance if its tree has
    /// another size.
    pub from_size: u64,
    /// The right edge after the advance.
    pub edge: TreeEdge,
    /// The new checkpoint as a signed note; `None` keeps the published checkpoint.
    pub checkpoint: Option<String>,
    /// The fingerprint of the keys with which the new checkpoint was signed.
    pub signed_by: String,
}

/// A sequenced fact, with its index in the log and its workspace and workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedFact {
    /// The index of the fact's leaf.
    pub index: u64,
    /// The stored bytes of the fact, whose hash is the leaf.
    pub body: Vec<u8>,
    /// The workspace of the fact, if any.
    pub workspace: Option<WorkspaceId>,
    /// The workload of the fact, if any.
    pub workload: Option<WorkloadId>,
}

/// An entry of a log as the database stores it, possibly damaged, for an audit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredEntry {
    /// The index of the entry.
    pub index: u64,
    /// The stored bytes; `None` if they are missing.
    pub body: Option<Vec<u8>>,
    /// The recorded leaf hash; `None` if the hash is missing or has another length.
    pub leaf_hash: Option<TreeHash>,
}

/// Stores the trees of all logs.
#[async_trait]
pub trait TreeStore: Send + Sync {
    /// Lists the logs with facts beyond their tree, or with a checkpoint that other keys signed. Logs are ordered
    /// by tenant, starting after `after`.
    async fn pending_logs(
        &self,
        signed_by: &str,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<PendingLog>, StoreError>;
    /// Finds the log of a tenant; `None` if the tenant has none.
    async fn find_log(&self, scope: TenantScope) -> Result<Option<PendingLog>, StoreError>;
    /// Lists the leaf hashes of sequenced facts from an index on, in order and without a gap.
    async fn leaves(&self, scope: TenantScope, start: u64, limit: u32) -> Result<Vec<TreeHash>, StoreError>;
    /// Lists the entries from an index on, in order and with their bytes. An index without an entry is absent from
    /// the result.
    async fn entries(&self, scope: TenantScope, start: u64, limit: u32) -> Result<Vec<StoredEntry>, StoreError>;
    /// Lists the tenants that have a log, starting after `after`.
    async fn logged_tenants(&self, after: Option<TenantId>, limit: u32) -> Result<Vec<TenantId>, StoreError>;
    /// Replaces the tree if it still has the size from which the advance was computed. Returns whether the tree
    /// was replaced.
    async fn advance_tree(&self, scope: TenantScope, advance: TreeAdvance) -> Result<bool, StoreError>;
    /// Lists the newest sequenced facts of these kinds about these subjects, ordered by index.
    async fn facts_about(
        &self,
        scope: TenantScope,
        subjects: &[Uuid],
        kinds: &'static [&'static str],
        limit: u32,
    ) -> Result<Vec<LoggedFact>, StoreError>;
    /// Finds a sequenced fact.
    async fn find_logged_fact(&self, scope: TenantScope, fact: FactId) -> Result<Option<LoggedFact>, StoreError>;
}

/// The failure of an operation on the checkpoint archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive is unreachable, or does not respond in time.
    #[error("the checkpoint archive is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

/// Stores published checkpoints outside the database. An archived checkpoint is never replaced. Therefore a
/// database that was manipulated or restored from an old backup contradicts the archive.
#[async_trait]
pub trait CheckpointArchive: Send + Sync {
    /// Archives a checkpoint, unless the archive already has a checkpoint of this size. Returns the archived
    /// bytes, which are then those of the earlier checkpoint.
    async fn store_if_absent(&self, tenant: TenantId, size: u64, note: &str) -> Result<Vec<u8>, ArchiveError>;
    /// Finds the newest checkpoint that has at least this size.
    async fn newest_from(&self, tenant: TenantId, size: u64) -> Result<Option<Vec<u8>>, ArchiveError>;
    /// Lists the tenants with archived checkpoints, in order. The archive also lists tenants that were removed
    /// from the database.
    async fn tenants(&self) -> Result<Vec<TenantId>, ArchiveError>;
}

/// The reason why a checkpoint could not be signed.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// A key cannot be read.
    #[error("the checkpoint key cannot be read")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// A key is not 32 bytes in base64.
    #[error("the checkpoint key must be base64 of 32 bytes")]
    Malformed,
}

/// Signs checkpoints with one key, or with two keys during a key rotation. A key management service can implement
/// this port, because the port exposes only public keys and signatures.
#[async_trait]
pub trait CheckpointSigner: Send + Sync {
    /// The public keys, the current key first.
    async fn public_keys(&self) -> Result<Vec<[u8; 32]>, SigningError>;
    /// Signs bytes with each key. Returns each public key with its signature, the current key first.
    async fn sign(&self, message: &[u8]) -> Result<Vec<([u8; 32], [u8; 64])>, SigningError>;
}

/// The response of a witness to a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WitnessResponse {
    /// The witness cosigned the checkpoint and returned these signature lines, which are not verified yet.
    Cosigned(Vec<NoteSignature>),
    /// The witness cosigned a tree of another size than the request assumes; contains that size.
    SizeMismatch(u64),
}

/// The reason why a witness did not cosign a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    /// The witness is unreachable, does not respond in time, or its response is malformed.
    #[error("the witness is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The witness does not know the log or its key.
    #[error("the witness does not know this log or its key")]
    UnknownLog,
    /// The witness refuses the checkpoint, because it contradicts a checkpoint that the witness cosigned before.
    #[error("the checkpoint contradicts one that the witness cosigned")]
    Contradicted,
}

/// A witness: another party, which cosigns only checkpoints that are consistent with those that it cosigned
/// before.
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
