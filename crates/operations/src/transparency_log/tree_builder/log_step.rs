//! A step of the tree builder: extends the tree of one log, and publishes a checkpoint.

use super::{
    super::{
        LogAccessError,
        verified_tiles::VerifiedTileLoader,
        witnesses::{RETRY_DELAY, Witnesses},
    },
    Progress,
};
use crate::services::SharedState;
use fairway_domain::{
    asset::artifact_store::{ArtifactPath, ArtifactStore, ArtifactStoreError},
    id::TenantId,
    store::StoreError,
    tenant::TenantScope,
    transparency_log::{
        ArchiveError, Checkpoint, CheckpointArchive, CheckpointSigner, FullTile, LogOriginBase, NoteSignature,
        PendingLog, SignedNote, SigningError, TreeAdvance, TreeEdge, TreeStore, VerifierKey,
    },
};
use futures_util::future::try_join_all;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::time::Instant;

/// Maximum number of leaves that one step appends, which is 16 tiles.
const MAX_LEAVES: u32 = 4_096;

/// Reason why a step publishes no checkpoint.
#[derive(Debug, thiserror::Error)]
pub(super) enum BuildError {
    /// A store or the signer failed.
    #[error(transparent)]
    Access(#[from] LogAccessError),
    /// The log has fewer facts than a published checkpoint covers. It was truncated or restored from an old backup.
    #[error("the log has {log_size} facts, but a checkpoint over {archived_size} facts was published")]
    Truncated {
        /// The number of sequenced facts.
        log_size: u64,
        /// The size of the published checkpoint.
        archived_size: u64,
    },
    /// The log contradicts a published checkpoint. A fact was changed, or the log was restored and then extended
    /// differently.
    #[error("the log contradicts the published {0}")]
    Forked(&'static str),
    /// The archive contains bytes that are not a checkpoint of this log.
    #[error("the archive holds bytes that are no checkpoint of this log")]
    ForeignCheckpoint,
    /// No valid checkpoint can be created under the configured origin.
    #[error("the checkpoint cannot be signed under its origin")]
    InvalidOrigin,
}

impl BuildError {
    /// The stable code of the error.
    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::Access(error) => error.code(),
            Self::Truncated { .. } => "log_truncated",
            Self::Forked(_) => "log_forked",
            Self::ForeignCheckpoint => "archived_checkpoint_foreign",
            Self::InvalidOrigin => "checkpoint_origin_invalid",
        }
    }
}

impl From<StoreError> for BuildError {
    fn from(error: StoreError) -> Self {
        Self::Access(error.into())
    }
}

impl From<ArtifactStoreError> for BuildError {
    fn from(error: ArtifactStoreError) -> Self {
        Self::Access(error.into())
    }
}

impl From<ArchiveError> for BuildError {
    fn from(error: ArchiveError) -> Self {
        Self::Access(error.into())
    }
}

impl From<SigningError> for BuildError {
    fn from(error: SigningError) -> Self {
        Self::Access(error.into())
    }
}

/// Executes the steps of a builder. Steps of several logs may be active concurrently.
pub(super) struct LogStepper {
    pub(super) tree_store: Arc<dyn TreeStore>,
    pub(super) artifact_store: Arc<dyn ArtifactStore>,
    pub(super) archive: Arc<dyn CheckpointArchive>,
    pub(super) signer: Arc<dyn CheckpointSigner>,
    pub(super) origin: LogOriginBase,
    pub(super) witnesses: Witnesses,
    /// For each tenant, the time at which missing cosignatures of the latest checkpoint are requested again.
    pub(super) cosign_again_at: Mutex<HashMap<TenantId, Instant>>,
}

/// A log that was compared with its archived checkpoints.
struct ComparedLog {
    log: PendingLog,
    /// A published checkpoint that is larger than the tree. The facts of the log must extend the tree to this
    /// checkpoint.
    later_checkpoint: Option<Checkpoint>,
}

impl LogStepper {
    pub(super) fn new(tree_store: Arc<dyn TreeStore>, shared: &SharedState) -> Self {
        Self {
            tree_store,
            artifact_store: Arc::clone(&shared.artifact_store),
            archive: Arc::clone(&shared.checkpoint_archive),
            signer: Arc::clone(&shared.checkpoint_signer),
            origin: shared.settings.log_origin.clone(),
            witnesses: Witnesses::new(
                &shared.witnesses,
                VerifiedTileLoader::new(Arc::clone(&shared.artifact_store), shared.log_tiles.clone()),
            ),
            cosign_again_at: Mutex::default(),
        }
    }

    fn cosign_again_at(&self) -> MutexGuard<'_, HashMap<TenantId, Instant>> {
        self.cosign_again_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a step, and logs its failure.
    pub(super) async fn step_and_log_failure(&self, log: PendingLog, signed_by: &str) -> Progress {
        let (tenant, log_size) = (log.tenant, log.log_size);
        let error = match self.step(log, signed_by).await {
            Ok(progress) => return progress,
            Err(error) => error,
        };
        let (code, source) = (error.code(), &error as &dyn std::error::Error);
        match error {
            BuildError::Truncated { .. } | BuildError::Forked(_) | BuildError::ForeignCheckpoint => tracing::error!(
                tenant_id = %tenant,
                log_size,
                code,
                error = source,
                "audit log contradicts its published checkpoints; publishing no checkpoint of it"
            ),
            BuildError::Access(_) | BuildError::InvalidOrigin => tracing::warn!(
                tenant_id = %tenant,
                log_size,
                code,
                error = source,
                "failed to publish a checkpoint; retrying in 2 s"
            ),
        }
        Progress::UpToDate
    }

    /// Returns the fingerprint of the keys that sign checkpoints.
    pub(super) async fn key_fingerprint(&self) -> Result<String, SigningError> {
        let keys = self.signer.public_keys().await?;
        Ok(keys.iter().flatten().map(|byte| format!("{byte:02x}")).collect())
    }

    pub(super) async fn step(&self, log: PendingLog, signed_by: &str) -> Result<Progress, BuildError> {
        let tenant = log.tenant;
        let scope = TenantScope::for_background_task(tenant);
        let from_size = log.tree.edge.size();
        let is_behind = from_size < log.log_size;
        let waits_until = self.cosign_again_at().get(&tenant).copied();
        if !is_behind && waits_until.is_some_and(|until| Instant::now() < until) {
            return Ok(Progress::UpToDate);
        }
        // Each step includes this comparison, because the database may be restored to an earlier state at any time.
        let Some(ComparedLog { log, later_checkpoint }) = self.compare_with_archive(scope, &log).await? else {
            return Ok(Progress::UpToDate);
        };
        let from_size = log.tree.edge.size();
        let missing = later_checkpoint
            .as_ref()
            .map_or(u64::from(MAX_LEAVES), |checkpoint| checkpoint.size.saturating_sub(from_size));
        let limit = u32::try_from(missing).unwrap_or(MAX_LEAVES).min(MAX_LEAVES);
        let mut edge = log.tree.edge;
        let mut tiles = Vec::new();
        if limit > 0 {
            for leaf in self.tree_store.leaves(scope, from_size, limit).await? {
                tiles.extend(edge.append(leaf));
            }
        }
        self.store_tiles(tenant, tiles).await?;
        let size = edge.size();
        let is_reached = later_checkpoint.as_ref().is_none_or(|checkpoint| checkpoint.size <= size);
        if let Some(later_checkpoint) = later_checkpoint.filter(|checkpoint| checkpoint.size == size)
            && later_checkpoint.root != edge.root()
        {
            return Err(BuildError::Forked("checkpoint"));
        }
        let published = if is_reached { Some(self.publish(scope, &edge).await?) } else { None };
        let (checkpoint, cosigned_by) =
            published.map_or_else(Default::default, |(note, cosigners)| (Some(note), cosigners));
        let is_complete = cosigned_by == self.witnesses.fingerprint();
        let advance = TreeAdvance { from_size, edge, checkpoint, signed_by: format!("{signed_by}{cosigned_by}") };
        if !self.tree_store.advance_tree(scope, advance).await? {
            // Another builder has already advanced the tree.
            return Ok(Progress::Backlog);
        }
        if is_complete {
            self.cosign_again_at().remove(&tenant);
        } else {
            self.cosign_again_at().insert(tenant, Instant::now() + RETRY_DELAY);
        }
        Ok(if size < log.log_size { Progress::Backlog } else { Progress::UpToDate })
    }

    /// Compares a log with its newest archived checkpoint. Returns the log as read after that checkpoint.
    async fn compare_with_archive(
        &self,
        scope: TenantScope,
        log: &PendingLog,
    ) -> Result<Option<ComparedLog>, BuildError> {
        let tenant = log.tenant;
        let published = log.tree.parse_checkpoint();
        let published_size = published.as_ref().map_or(0, |checkpoint| checkpoint.size);
        let newest = self.archive.newest_from(tenant, published_size).await?;
        // The log is read again after the archive. Another builder archives a checkpoint before it commits the tree, so
        // the log that was read before may be older than the checkpoint.
        let Some(log) = self.tree_store.find_log(scope).await? else { return Ok(None) };
        let mut later_checkpoint = None;
        if let Some(newest) = newest {
            let newest = self.parse_archived(tenant, &newest)?;
            let published = log.tree.parse_checkpoint();
            let tree_size = log.tree.edge.size();
            if newest.size > log.log_size {
                return Err(BuildError::Truncated { log_size: log.log_size, archived_size: newest.size });
            }
            let is_contradicted = (newest.size == tree_size && newest.root != log.tree.edge.root())
                || published.is_some_and(|checkpoint| checkpoint.size == newest.size && checkpoint.root != newest.root);
            if is_contradicted {
                return Err(BuildError::Forked("checkpoint"));
            }
            later_checkpoint = (newest.size > tree_size).then_some(newest);
        }
        Ok(Some(ComparedLog { log, later_checkpoint }))
    }

    fn parse_archived(&self, tenant: TenantId, note: &[u8]) -> Result<Checkpoint, BuildError> {
        let note = SignedNote::parse(note).ok();
        let checkpoint = note.and_then(|note| Checkpoint::parse(note.text()).ok());
        checkpoint
            .filter(|checkpoint| checkpoint.origin == self.origin.origin_of_tenant(tenant))
            .ok_or(BuildError::ForeignCheckpoint)
    }

    async fn store_tiles(&self, tenant: TenantId, tiles: Vec<FullTile>) -> Result<(), BuildError> {
        let writes = tiles.into_iter().map(|tile| async move {
            let path = ArtifactPath::of_log_tile(tenant, tile.coordinate);
            match self.artifact_store.put_if_absent(&path, tile.to_bytes()).await {
                Ok(_) => Ok(()),
                Err(ArtifactStoreError::Conflict) => Err(BuildError::Forked("tile")),
                Err(error @ ArtifactStoreError::Unavailable(_)) => Err(error.into()),
            }
        });
        try_join_all(writes).await.map(|_| ())
    }

    /// Signs the checkpoint of a tree, requests the cosignatures of the witnesses, and archives the checkpoint before
    /// it becomes readable. Returns the note, and the fingerprint of the witnesses that cosigned it.
    async fn publish(&self, scope: TenantScope, edge: &TreeEdge) -> Result<(String, String), BuildError> {
        let tenant = scope.tenant();
        let origin = self.origin.origin_of_tenant(tenant);
        let checkpoint = Checkpoint { origin, size: edge.size(), root: edge.root() };
        let text = checkpoint.to_string();
        let mut signatures = Vec::new();
        for (key, signature) in self.signer.sign(text.as_bytes()).await? {
            let key = VerifierKey::new(&checkpoint.origin, &key).ok_or(BuildError::InvalidOrigin)?;
            signatures.push(NoteSignature::new(&key, &signature));
        }
        let note = SignedNote::new(text, signatures).ok_or(BuildError::InvalidOrigin)?;
        let (note, cosigned_by) = self.witnesses.cosign(scope, edge, &checkpoint, note).await;
        let note = note.to_string();
        let archived_note = self.archive.store_if_absent(tenant, checkpoint.size, &note).await?;
        // Another builder may have archived a checkpoint of the same tree with other signatures; so may this builder,
        // with older keys.
        if archived_note == note.as_bytes() || self.parse_archived(tenant, &archived_note)? == checkpoint {
            Ok((note, cosigned_by))
        } else {
            Err(BuildError::Forked("checkpoint"))
        }
    }
}
