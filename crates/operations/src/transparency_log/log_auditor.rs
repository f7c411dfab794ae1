//! Audit of whole logs by an operator, with or without a running server. The audit compares every entry with the newest
//! checkpoint that is stored outside the database.

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

/// Maximum number of entries that one query reads, which is four tiles.
const MAX_ENTRIES: u32 = 1_024;
/// Maximum number of tenants that one query reads.
const MAX_TENANTS: u32 = 500;

/// A defect that an audit of a log found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditFinding {
    /// An entry or the tree has a defect.
    Entry(LogDefect),
    /// The given text is not a checkpoint, or is a checkpoint of another log.
    ForeignCheckpoint,
    /// The checkpoint has no signature by a current key of the log or by a given one.
    UnsignedCheckpoint,
}

/// The result of the audit of a log.
#[derive(Clone, Debug)]
pub struct AuditedLog {
    /// The number of entries that the log has according to the database.
    pub size: u64,
    /// The number of entries that the checkpoint covers; `None` if there is no checkpoint.
    pub covered: Option<u64>,
    /// The first defect that the audit found; `None` if it found none.
    pub finding: Option<AuditFinding>,
}

/// Evidence that an operator provides for an audit.
#[derive(Clone, Debug, Default)]
pub struct LogAuditInputs {
    /// The checkpoint to compare with; `None` for the newest checkpoint in the archive.
    pub checkpoint: Option<Vec<u8>>,
    /// Public keys of the log in addition to the current ones, such as retired keys.
    pub keys: Vec<VerifierKey>,
}

/// Audits whole logs against checkpoints outside the database.
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

    /// Lists the tenants with a log in the database or a checkpoint in the archive.
    ///
    /// # Errors
    /// When a store fails.
    pub async fn tenants(&self) -> Result<BTreeSet<TenantId>, LogAccessError> {
        let mut tenants: BTreeSet<TenantId> = self.archive.tenants().await?.into_iter().collect();
        let mut last_tenant = None;
        loop {
            let page = self.tree_store.logged_tenants(last_tenant, MAX_TENANTS).await?;
            let Some(last) = page.last() else { return Ok(tenants) };
            last_tenant = Some(*last);
            tenants.extend(page);
        }
    }

    /// Audits the log of a tenant.
    ///
    /// # Errors
    /// When a store fails. A log that was read only in part is never reported as free of defects.
    pub async fn audit(&self, tenant: TenantId, evidence: &LogAuditInputs) -> Result<AuditedLog, LogAccessError> {
        let scope = TenantScope::for_background_task(tenant);
        // The checkpoint is read before the log. Otherwise a concurrently archived checkpoint could cover more
        // entries than the log that was read.
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
        let audit = self.check_entries(scope, LogAudit::new(checkpoint), size).await?;
        let finding = audit.finish(size, &edge).map(AuditFinding::Entry);
        Ok(AuditedLog { size, covered, finding })
    }

    /// Audits the first `size` entries, and the full tiles over these entries.
    async fn check_entries(
        &self,
        scope: TenantScope,
        mut audit: LogAudit,
        size: u64,
    ) -> Result<LogAudit, LogAccessError> {
        'entries: while audit.next_index() < size {
            let limit = u32::try_from(size - audit.next_index()).unwrap_or(MAX_ENTRIES).min(MAX_ENTRIES);
            let entries = self.tree_store.entries(scope, audit.next_index(), limit).await?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                if !audit.check_entry(&entry) {
                    break 'entries;
                }
                if let Some(tile) = audit.filled_tile() {
                    audit.compare_tile(self.unverified_tile(scope, tile).await?.as_ref());
                }
            }
        }
        if let Some(tile) = audit.open_tile() {
            audit.compare_tile(self.unverified_tile(scope, tile).await?.as_ref());
        }
        Ok(audit)
    }

    async fn unverified_tile(
        &self,
        scope: TenantScope,
        tile: TileCoordinate,
    ) -> Result<Option<FullTile>, LogAccessError> {
        let path = ArtifactPath::of_log_tile(scope.tenant(), tile);
        let stored = self.artifact_store.read(&path, FullTile::BYTES).await?;
        Ok(stored.and_then(|bytes| bytes.parse_unverified_tile(tile)))
    }

    async fn newest_checkpoint(&self, scope: TenantScope) -> Result<Option<Vec<u8>>, LogAccessError> {
        // The published checkpoint in the database is only the start of the search. If its size is too large, the whole
        // archive is searched.
        let published = self.tree_store.find_log(scope).await?.and_then(|log| log.tree.parse_checkpoint());
        let published_size = published.map_or(0, |checkpoint| checkpoint.size);
        match self.archive.newest_from(scope.tenant(), published_size).await? {
            None if published_size > 0 => Ok(self.archive.newest_from(scope.tenant(), 0).await?),
            newest => Ok(newest),
        }
    }

    async fn read_checkpoint(
        &self,
        tenant: TenantId,
        note: &[u8],
        keys: &[VerifierKey],
    ) -> Result<Result<Checkpoint, AuditFinding>, LogAccessError> {
        let name = self.origin.origin_of_tenant(tenant);
        let note = SignedNote::parse(note).ok();
        let checkpoint = note.as_ref().and_then(|note| Checkpoint::parse(note.text()).ok());
        let own_checkpoint = note.zip(checkpoint).filter(|(_, checkpoint)| checkpoint.origin == name);
        let Some((note, checkpoint)) = own_checkpoint else { return Ok(Err(AuditFinding::ForeignCheckpoint)) };
        let current_keys = self.signer.public_keys().await?;
        let current_keys = current_keys.iter().filter_map(|key| VerifierKey::new(&name, key));
        let given_keys = keys.iter().filter(|key| key.name() == name).cloned();
        let is_signed = given_keys.chain(current_keys).any(|key| note.is_signed_by(&key));
        Ok(if is_signed { Ok(checkpoint) } else { Err(AuditFinding::UnsignedCheckpoint) })
    }
}
