//! The audit of whole logs by an operator, with or without a running server: every entry against the newest checkpoint
//! that was kept outside the database.

use super::LogAccessError;
use crate::{Stores, services::SharedState};
use fairway_domain::{
    asset::artifact_store::{ArtifactPath, ArtifactStore},
    id::TenantId,
    tenant::TenantScope,
    transparency_log::{
        Checkpoint, CheckpointArchive, CheckpointSigner, FullTile, LogAudit, LogDefect, LogOriginBase, PendingLog,
        SignedNote, TileCoordinate, TreeEdge, TreeStore, VerifierKey,
    },
};
use std::{collections::BTreeSet, sync::Arc};

/// Entries that one read returns: four tiles.
const MAX_ENTRIES: u32 = 1_024;
/// Tenants that one read returns.
const MAX_TENANTS: u32 = 500;

/// What is wrong with a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditFinding {
    /// An entry.
    Entry(LogDefect),
    /// The checkpoint has another form or another origin.
    ForeignCheckpoint,
    /// No given or present key of the log signed the checkpoint.
    UnsignedCheckpoint,
}

/// The result of the audit of a log.
#[derive(Clone, Debug)]
pub struct AuditedLog {
    /// The number of entries that the database claims.
    pub size: u64,
    /// The number of entries that the checkpoint covers; `None` without a checkpoint outside.
    pub covered: Option<u64>,
    /// The first defect.
    pub finding: Option<AuditFinding>,
}

/// What an operator brings to an audit.
#[derive(Clone, Debug, Default)]
pub struct AuditEvidence {
    /// A checkpoint to compare with instead of the newest one in the archive.
    pub checkpoint: Option<Vec<u8>>,
    /// Public keys of the log in addition to the present ones, such as retired ones.
    pub keys: Vec<VerifierKey>,
}

/// Audits whole logs.
pub struct LogAuditor {
    tree_store: Arc<dyn TreeStore>,
    artifact_store: Arc<dyn ArtifactStore>,
    archive: Arc<dyn CheckpointArchive>,
    signer: Arc<dyn CheckpointSigner>,
    origin: LogOriginBase,
}

impl LogAuditor {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            tree_store: Arc::clone(&stores.log_trees),
            artifact_store: Arc::clone(&shared.artifact_store),
            archive: Arc::clone(&shared.checkpoint_archive),
            signer: Arc::clone(&shared.checkpoint_signer),
            origin: shared.settings.log_origin.clone(),
        }
    }

    /// The tenants with a log in the database or a checkpoint in the archive.
    ///
    /// # Errors
    /// When a store fails.
    pub async fn tenants(&self) -> Result<BTreeSet<TenantId>, LogAccessError> {
        let mut tenants: BTreeSet<TenantId> = self.archive.tenants().await?.into_iter().collect();
        let mut after = None;
        loop {
            let page = self.tree_store.logged_tenants(after, MAX_TENANTS).await?;
            let Some(last) = page.last() else { return Ok(tenants) };
            after = Some(*last);
            tenants.extend(page);
        }
    }

    /// Audits the log of a tenant.
    ///
    /// # Errors
    /// When a store fails; a log that was not read to its end never counts as whole.
    pub async fn audit(&self, tenant: TenantId, evidence: &AuditEvidence) -> Result<AuditedLog, LogAccessError> {
        let scope = TenantScope::for_background_task(tenant);
        // Read before the log, because no archived checkpoint covers more entries than the log has.
        let note = match &evidence.checkpoint {
            Some(note) => Some(note.clone()),
            None => self.newest_checkpoint(scope).await?,
        };
        let (size, edge) = match self.tree_store.find_log(scope).await? {
            Some(PendingLog { log_size, tree, .. }) => (log_size, tree.edge),
            None => (0, TreeEdge::default()),
        };
        let checkpoint = match note {
            None => None,
            Some(note) => match self.read_checkpoint(tenant, &note, &evidence.keys).await? {
                Ok(checkpoint) => Some(checkpoint),
                Err(finding) => return Ok(AuditedLog { size, covered: None, finding: Some(finding) }),
            },
        };
        let covered = checkpoint.as_ref().map(|checkpoint| checkpoint.size);
        let audit = self.walk(scope, LogAudit::new(checkpoint), size).await?;
        let finding = audit.finish(size, &edge).map(AuditFinding::Entry);
        Ok(AuditedLog { size, covered, finding })
    }

    /// Reads all entries up to that size, and the full tiles over them.
    async fn walk(&self, scope: TenantScope, mut audit: LogAudit, size: u64) -> Result<LogAudit, LogAccessError> {
        'walk: while audit.next_index() < size {
            let missing = u32::try_from(size - audit.next_index()).unwrap_or(MAX_ENTRIES).min(MAX_ENTRIES);
            let entries = self.tree_store.entries(scope, audit.next_index(), missing).await?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                if !audit.check_entry(&entry) {
                    break 'walk;
                }
                if let Some(tile) = audit.filled_tile() {
                    audit.compare_tile(self.claimed_tile(scope, tile).await?.as_ref());
                }
            }
        }
        if let Some(tile) = audit.open_tile() {
            audit.compare_tile(self.claimed_tile(scope, tile).await?.as_ref());
        }
        Ok(audit)
    }

    async fn claimed_tile(&self, scope: TenantScope, tile: TileCoordinate) -> Result<Option<FullTile>, LogAccessError> {
        let path = ArtifactPath::of_log_tile(scope.tenant(), tile);
        let stored = self.artifact_store.read(&path, FullTile::BYTES).await?;
        Ok(stored.and_then(|bytes| bytes.claimed_tile(tile)))
    }

    async fn newest_checkpoint(&self, scope: TenantScope) -> Result<Option<Vec<u8>>, LogAccessError> {
        // The published one only shortens the search: a row that claims too much must not hide the archive.
        let published = self.tree_store.find_log(scope).await?.and_then(|log| log.tree.parse_checkpoint());
        let from = published.map_or(0, |checkpoint| checkpoint.size);
        match self.archive.newest_from(scope.tenant(), from).await? {
            None if from > 0 => Ok(self.archive.newest_from(scope.tenant(), 0).await?),
            newest => Ok(newest),
        }
    }

    async fn read_checkpoint(
        &self,
        tenant: TenantId,
        note: &[u8],
        keys: &[VerifierKey],
    ) -> Result<Result<Checkpoint, AuditFinding>, LogAccessError> {
        let name = self.origin.of_tenant(tenant);
        let note = SignedNote::parse(note).ok();
        let checkpoint = note.as_ref().and_then(|note| Checkpoint::parse(note.text()).ok());
        let own = note.zip(checkpoint).filter(|(_, checkpoint)| checkpoint.origin == name);
        let Some((note, checkpoint)) = own else { return Ok(Err(AuditFinding::ForeignCheckpoint)) };
        let present = self.signer.public_keys().await?;
        let present = present.iter().filter_map(|key| VerifierKey::new(&name, key));
        let given = keys.iter().filter(|key| key.name() == name).cloned();
        let is_signed = given.chain(present).any(|key| note.is_signed_by(&key));
        Ok(if is_signed { Ok(checkpoint) } else { Err(AuditFinding::UnsignedCheckpoint) })
    }
}
