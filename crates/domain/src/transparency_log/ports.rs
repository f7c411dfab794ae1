//! Ports of the transparency log: the stored tree, the archive of checkpoints, and the signer.

use super::{Checkpoint, NoteSignature, TreeEdge, TreeHash, WitnessKey, WitnessRequest};
use crate::{
    id::{FactId, TenantId, WorkloadId, WorkspaceId},
    store::StoreError,
    tenant::TenantScope,
};
use async_trait::async_trait;
use std::error::Error;
use uuid::Uuid;

/// The stored tree of a tenant's log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TreeState {
    /// The right edge.
    pub edge: TreeEdge,
    /// The published checkpoint as a signed note, which may cover fewer leaves than the edge; `None` before the first.
    pub checkpoint: Option<String>,
}

/// A log whose checkpoint is behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingLog {
    /// The tenant.
    pub tenant: TenantId,
    /// The tree so far.
    pub tree: TreeState,
    /// The number of sequenced facts.
    pub log_size: u64,
}

/// The next state of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeAdvance {
    /// The size of the tree that the advance was computed from. Another size in the store refuses the advance.
    pub from_size: u64,
    /// The right edge afterwards.
    pub edge: TreeEdge,
    /// The new checkpoint as a signed note; `None` keeps the old one.
    pub checkpoint: Option<String>,
    /// The fingerprint of the keys that signed the new checkpoint.
    pub signed_by: String,
}

/// A sequenced fact with its position in the log and its scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedFact {
    /// The index of the leaf.
    pub index: u64,
    /// The stored bytes of the fact, which the leaf is the hash of.
    pub body: Vec<u8>,
    /// The workspace, if any.
    pub workspace: Option<WorkspaceId>,
    /// The workload, if any.
    pub workload: Option<WorkloadId>,
}

/// An entry of a log as the database holds it, for an audit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredEntry {
    /// The index in the log.
    pub index: u64,
    /// The stored bytes; `None` if they are missing.
    pub body: Option<Vec<u8>>,
    /// The recorded hash; `None` if it is missing or has another length.
    pub leaf_hash: Option<TreeHash>,
}

/// Stores the trees of all logs.
#[async_trait]
pub trait TreeStore: Send + Sync {
    /// Logs with facts beyond their tree, or whose checkpoint other keys signed, by tenant after `after`.
    async fn pending_logs(
        &self,
        signed_by: &str,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<PendingLog>, StoreError>;
    /// One log; `None` for a tenant without a log.
    async fn find_log(&self, scope: TenantScope) -> Result<Option<PendingLog>, StoreError>;
    /// The leaf hashes of sequenced facts from an index, in order and without a gap.
    async fn leaves(&self, scope: TenantScope, from: u64, limit: u32) -> Result<Vec<TreeHash>, StoreError>;
    /// The entries from an index, in order, with their bytes. An index without an entry is left out.
    async fn entries(&self, scope: TenantScope, from: u64, limit: u32) -> Result<Vec<StoredEntry>, StoreError>;
    /// The tenants with a log, after `after`.
    async fn logged_tenants(&self, after: Option<TenantId>, limit: u32) -> Result<Vec<TenantId>, StoreError>;
    /// Replaces the tree if it still has the size that the advance was computed from; whether it did.
    async fn advance_tree(&self, scope: TenantScope, advance: TreeAdvance) -> Result<bool, StoreError>;
    /// The newest sequenced facts of these kinds about these subjects, by index.
    async fn facts_about(
        &self,
        scope: TenantScope,
        subjects: &[Uuid],
        kinds: &'static [&'static str],
        limit: u32,
    ) -> Result<Vec<LoggedFact>, StoreError>;
    /// A sequenced fact.
    async fn find_logged_fact(&self, scope: TenantScope, fact: FactId) -> Result<Option<LoggedFact>, StoreError>;
}

/// Failure of the checkpoint archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive is unreachable or too slow.
    #[error("the checkpoint archive is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

/// Keeps published checkpoints outside the database. An archived checkpoint is never replaced, so a database that was
/// changed or restored from an old backup contradicts it.
#[async_trait]
pub trait CheckpointArchive: Send + Sync {
    /// Keeps a checkpoint unless the archive has one of that size; returns the kept bytes, which may be others.
    async fn keep(&self, tenant: TenantId, size: u64, note: &str) -> Result<Vec<u8>, ArchiveError>;
    /// The newest checkpoint with at least that size.
    async fn newest_from(&self, tenant: TenantId, size: u64) -> Result<Option<Vec<u8>>, ArchiveError>;
    /// The tenants with archived checkpoints, in order. The database cannot hide them.
    async fn tenants(&self) -> Result<Vec<TenantId>, ArchiveError>;
}

/// The signer has no key or is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// A key cannot be read.
    #[error("the checkpoint key cannot be read")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// A key is not 32 bytes in base64.
    #[error("the checkpoint key must be base64 of 32 bytes")]
    Malformed,
}

/// Signs checkpoints with one key, or with two while keys are rotated. A key management service fits the port: it
/// reveals public keys and signatures only.
#[async_trait]
pub trait CheckpointSigner: Send + Sync {
    /// The public keys, the current one first.
    async fn public_keys(&self) -> Result<Vec<[u8; 32]>, SigningError>;
    /// Signs bytes with each key; the keys with their signatures, the current one first.
    async fn sign(&self, message: &[u8]) -> Result<Vec<([u8; 32], [u8; 64])>, SigningError>;
}

/// What a witness answers to a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WitnessResponse {
    /// Its signature lines; none of them is verified.
    Cosigned(Vec<NoteSignature>),
    /// The size of the tree that it cosigned last, which is not the one of the request.
    KnowsSize(u64),
}

/// A witness did not cosign a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    /// It is unreachable, too slow, or its response has another form.
    #[error("the witness is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// It does not know the log or its key.
    #[error("the witness does not know this log or its key")]
    UnknownLog,
    /// It refuses the checkpoint, because it contradicts one that it cosigned.
    #[error("the checkpoint contradicts one that the witness cosigned")]
    Contradicted,
}

/// A witness: another party that cosigns checkpoints which are consistent with those that it cosigned before.
#[async_trait]
pub trait Witness: Send + Sync {
    /// Its public key.
    fn key(&self) -> &WitnessKey;
    /// Asks for a cosignature.
    async fn add_checkpoint(&self, request: &WitnessRequest) -> Result<WitnessResponse, WitnessError>;
}

impl TreeState {
    /// The published checkpoint, without a verification of its signatures; `None` before the first.
    #[must_use]
    pub fn parse_checkpoint(&self) -> Option<Checkpoint> {
        let note = super::SignedNote::parse(self.checkpoint.as_deref()?.as_bytes()).ok()?;
        Checkpoint::parse(note.text()).ok()
    }
}
