//! The background task that folds sequenced facts into the tree of each log, and publishes checkpoints.
//!
//! A step writes in this order: full tiles, the checkpoint in the archive, the tree in the database. The facts of a log
//! have one order, so each step is a function of the log. A builder that dies between two writes has written what the
//! next builder writes again, and two concurrent builders write the same bytes or prefixes of each other. No step holds a
//! lock, and nothing waits for a step: a lost step is refused by the size of the stored tree.

use super::{
    tiles::TileLoader,
    witnesses::{RETRY_DELAY, Witnesses},
};
use crate::services::SharedState;
use fairway_domain::{
    asset::artifact_store::{ArtifactError, ArtifactPath, ArtifactStore},
    id::TenantId,
    store::StoreError,
    tenant::TenantScope,
    transparency_log::{
        ArchiveError, Checkpoint, CheckpointArchive, CheckpointSigner, FullTile, LogOrigin, NoteSignature, PendingLog,
        SignedNote, SigningError, TreeAdvance, TreeEdge, TreeStore, VerifierKey,
    },
};
use futures_util::future::try_join_all;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Maximum number of leaves that one step appends: 16 tiles.
const MAX_LEAVES: u32 = 4_096;
/// Logs that one read returns.
const MAX_LOGS: u32 = 50;
/// Interval between passes. A checkpoint is at most this and the duration of a pass behind its log.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(2);
/// Delay between passes while logs are longer than a step, so that a long backlog leaves time for requests.
const BACKLOG_DELAY: Duration = Duration::from_millis(25);

/// Why a log is not published.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The artifact store failed.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The checkpoint archive failed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The signer failed.
    #[error(transparent)]
    Signing(#[from] SigningError),
    /// The log has fewer facts than a checkpoint that was published: it was cut or restored from an old backup.
    #[error("the log has {log_size} facts, but a checkpoint over {archived_size} facts was published")]
    Truncated {
        /// The number of sequenced facts.
        log_size: u64,
        /// The size of the published checkpoint.
        archived_size: u64,
    },
    /// The log contradicts what was published: a fact was changed, or the log was restored and written again.
    #[error("the log contradicts the published {0}")]
    Forked(&'static str),
    /// The archive holds bytes that are no checkpoint of this log.
    #[error("the archive holds bytes that are no checkpoint of this log")]
    ForeignCheckpoint,
    /// The settings give the checkpoint no valid name or text.
    #[error("the checkpoint cannot be signed under its origin")]
    InvalidOrigin,
}

/// Builds the trees of all logs. Any number of processes may run one.
pub struct TreeBuilder {
    tree_store: Arc<dyn TreeStore>,
    artifact_store: Arc<dyn ArtifactStore>,
    archive: Arc<dyn CheckpointArchive>,
    signer: Arc<dyn CheckpointSigner>,
    origin: LogOrigin,
    witnesses: Witnesses,
    /// When the witnesses that miss in the latest checkpoint of a log are asked again.
    cosign_again_at: HashMap<TenantId, Instant>,
}

/// A log that was compared with the archive.
struct ComparedLog {
    log: PendingLog,
    /// A published checkpoint that the tree has not reached. The log must lead to it.
    ahead: Option<Checkpoint>,
}

/// Builds trees, forever.
pub async fn run_tree_builder(mut builder: TreeBuilder) {
    loop {
        let delay = match builder.build_once().await {
            Ok(Progress::Backlog) => BACKLOG_DELAY,
            Ok(Progress::UpToDate) => PUBLISH_INTERVAL,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to list logs for checkpoints; retrying in 2 s"
                );
                PUBLISH_INTERVAL
            }
        };
        tokio::time::sleep(delay).await;
    }
}

/// Whether logs have more facts than a pass appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Some have.
    Backlog,
    /// None has, apart from logs that failed.
    UpToDate,
}

impl TreeBuilder {
    pub(crate) fn new(tree_store: Arc<dyn TreeStore>, shared: &SharedState) -> Self {
        Self {
            tree_store,
            artifact_store: Arc::clone(&shared.artifact_store),
            archive: Arc::clone(&shared.checkpoint_archive),
            signer: Arc::clone(&shared.checkpoint_signer),
            origin: shared.settings.log_origin.clone(),
            witnesses: Witnesses::new(
                &shared.witnesses,
                TileLoader::new(Arc::clone(&shared.artifact_store), shared.log_tiles.clone()),
            ),
            cosign_again_at: HashMap::new(),
        }
    }

    /// Takes one step in each log that is behind. The failure of one log does not stop the others.
    ///
    /// # Errors
    /// When the logs or the public keys cannot be read.
    pub async fn build_once(&mut self) -> Result<Progress, BuildError> {
        let signed_by = self.key_fingerprint().await?;
        self.witnesses.begin_pass();
        let complete = format!("{signed_by}{}", self.witnesses.fingerprint());
        let (mut after, mut progress) = (None, Progress::UpToDate);
        loop {
            let logs = self.tree_store.pending_logs(&complete, after, MAX_LOGS).await?;
            let Some(last) = logs.last() else { return Ok(progress) };
            after = Some(last.tenant);
            for log in logs {
                let (tenant, log_size) = (log.tenant, log.log_size);
                match self.step(log, &signed_by).await {
                    Ok(Progress::Backlog) => progress = Progress::Backlog,
                    Ok(Progress::UpToDate) => {}
                    Err(
                        error @ (BuildError::Truncated { .. } | BuildError::Forked(_) | BuildError::ForeignCheckpoint),
                    ) => {
                        tracing::error!(
                            tenant_id = %tenant,
                            log_size,
                            error = &error as &dyn std::error::Error,
                            "audit log contradicts its published checkpoints; publishing no checkpoint of it"
                        );
                    }
                    Err(error) => tracing::warn!(
                        tenant_id = %tenant,
                        log_size,
                        error = &error as &dyn std::error::Error,
                        "failed to publish a checkpoint; retrying in 2 s"
                    ),
                }
            }
        }
    }

    async fn key_fingerprint(&self) -> Result<String, SigningError> {
        let keys = self.signer.public_keys().await?;
        Ok(keys.iter().flatten().map(|byte| format!("{byte:02x}")).collect())
    }

    async fn step(&mut self, log: PendingLog, signed_by: &str) -> Result<Progress, BuildError> {
        let tenant = log.tenant;
        let scope = TenantScope::for_background_task(tenant);
        let from_size = log.tree.edge.size();
        let is_behind = from_size < log.log_size;
        if !is_behind && self.cosign_again_at.get(&tenant).is_some_and(|at| Instant::now() < *at) {
            return Ok(Progress::UpToDate);
        }
        // In each step: the database may have been restored to any earlier state, also to the last one of this builder.
        let Some(ComparedLog { log, ahead }) = self.compare_with_archive(scope, &log).await? else {
            return Ok(Progress::UpToDate);
        };
        let from_size = log.tree.edge.size();
        let missing = ahead.as_ref().map_or(u64::from(MAX_LEAVES), |ahead| ahead.size.saturating_sub(from_size));
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
        let is_reached = ahead.as_ref().is_none_or(|ahead| ahead.size <= size);
        if let Some(ahead) = ahead.filter(|ahead| ahead.size == size)
            && ahead.root != edge.root()
        {
            return Err(BuildError::Forked("checkpoint"));
        }
        let published = if is_reached { Some(self.publish(scope, &edge).await?) } else { None };
        let (checkpoint, cosigned_by) = published.map_or_else(Default::default, |(note, by)| (Some(note), by));
        let is_complete = cosigned_by == self.witnesses.fingerprint();
        let advance = TreeAdvance { from_size, edge, checkpoint, signed_by: format!("{signed_by}{cosigned_by}") };
        if !self.tree_store.advance_tree(scope, advance).await? {
            // Another builder was faster.
            return Ok(Progress::Backlog);
        }
        if is_complete {
            self.cosign_again_at.remove(&tenant);
        } else {
            self.cosign_again_at.insert(tenant, Instant::now() + RETRY_DELAY);
        }
        Ok(if size < log.log_size { Progress::Backlog } else { Progress::UpToDate })
    }

    /// Compares a log with what was published of it. Returns the log as it is after the comparison.
    async fn compare_with_archive(
        &self,
        scope: TenantScope,
        log: &PendingLog,
    ) -> Result<Option<ComparedLog>, BuildError> {
        let tenant = log.tenant;
        let published = log.tree.parse_checkpoint();
        let from = published.as_ref().map_or(0, |checkpoint| checkpoint.size);
        let newest = self.archive.newest_from(tenant, from).await?;
        // Read again after the archive: another builder archives a checkpoint before it commits the tree.
        let Some(log) = self.tree_store.find_log(scope).await? else { return Ok(None) };
        let mut ahead = None;
        if let Some(newest) = newest {
            let newest = self.parse_archived(tenant, &newest)?;
            let published = log.tree.parse_checkpoint();
            let tree_size = log.tree.edge.size();
            if newest.size > log.log_size {
                return Err(BuildError::Truncated { log_size: log.log_size, archived_size: newest.size });
            }
            let is_contradicted = (newest.size == tree_size && newest.root != log.tree.edge.root())
                || published.is_some_and(|own| own.size == newest.size && own.root != newest.root);
            if is_contradicted {
                return Err(BuildError::Forked("checkpoint"));
            }
            ahead = (newest.size > tree_size).then_some(newest);
        }
        Ok(Some(ComparedLog { log, ahead }))
    }

    fn parse_archived(&self, tenant: TenantId, note: &[u8]) -> Result<Checkpoint, BuildError> {
        let note = SignedNote::parse(note).ok();
        let checkpoint = note.and_then(|note| Checkpoint::parse(note.text()).ok());
        checkpoint
            .filter(|checkpoint| checkpoint.origin == self.origin.of_tenant(tenant))
            .ok_or(BuildError::ForeignCheckpoint)
    }

    async fn store_tiles(&self, tenant: TenantId, tiles: Vec<FullTile>) -> Result<(), BuildError> {
        let puts = tiles.into_iter().map(|tile| async move {
            let path = ArtifactPath::of_log_tile(tenant, tile.coordinate);
            match self.artifact_store.put_if_absent(&path, tile.to_bytes()).await {
                Ok(_) => Ok(()),
                Err(ArtifactError::Conflict) => Err(BuildError::Forked("tile")),
                Err(error @ ArtifactError::Unavailable(_)) => Err(BuildError::Artifact(error)),
            }
        });
        try_join_all(puts).await.map(|_| ())
    }

    /// Signs the checkpoint of a tree, asks the witnesses to cosign it, and keeps it in the archive before anybody else can
    /// read it. Returns the note, and the fingerprint of the witnesses that cosigned it.
    async fn publish(&mut self, scope: TenantScope, edge: &TreeEdge) -> Result<(String, String), BuildError> {
        let tenant = scope.tenant();
        let origin = self.origin.of_tenant(tenant);
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
        let kept = self.archive.keep(tenant, checkpoint.size, &note).await?;
        // Another builder, or this one under older keys, may have published the same tree.
        if kept == note.as_bytes() || self.parse_archived(tenant, &kept)? == checkpoint {
            Ok((note, cosigned_by))
        } else {
            Err(BuildError::Forked("checkpoint"))
        }
    }
}

#[cfg(test)]
mod tests;
