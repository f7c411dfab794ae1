//! Requests to witnesses to cosign new checkpoints.

use super::{tree_builder::MAX_STEPS, verified_tiles::VerifiedTileLoader};
use fairway_domain::{
    id::TenantId,
    tenant::TenantScope,
    transparency_log::{
        Checkpoint, NoteSignature, ProofPlan, SignedNote, TreeEdge, Witness, WitnessError, WitnessRequest,
        WitnessResponse,
    },
};
use futures_util::future::join_all;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, timeout};

/// Maximum time for the cosignature of one witness, including a second request. A checkpoint may lag its log by at most
/// five seconds, of which the interval between passes takes two.
const COSIGN_TIMEOUT: Duration = Duration::from_secs(1);
/// Time budget for all cosignatures of a pass, summed over its steps: two seconds for each concurrent step. A log that
/// finds the budget used up is cosigned in a later pass. Witnesses can therefore delay a pass only by a bounded time,
/// regardless of the number of logs.
const PASS_BUDGET: Duration = Duration::from_secs(2 * MAX_STEPS as u64);
/// Time for which a failed witness receives no further request. If the witness is unavailable, this applies to all
/// logs; otherwise only to the log that it did not cosign.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(30);

/// The witnesses that cosign the checkpoints of all logs.
pub(super) struct Witnesses {
    known_witnesses: Vec<KnownWitness>,
    tile_loader: VerifiedTileLoader,
    /// Remaining part of [`PASS_BUDGET`] in the current pass.
    remaining_budget: Mutex<Duration>,
}

/// A witness, with the state that this process remembers about it. Steps of several logs share this state.
struct KnownWitness {
    witness: Arc<dyn Witness>,
    memory: Mutex<WitnessMemory>,
}

/// State of a witness that this process remembers.
#[derive(Default)]
struct WitnessMemory {
    /// For each log, the size of the tree that the witness cosigned last.
    sizes: HashMap<TenantId, u64>,
    /// Time before which the witness receives no request, because it was unavailable.
    waits_until: Option<Instant>,
    /// For each log that the witness did not cosign, the time before which no further request is sent.
    logs_wait_until: HashMap<TenantId, Instant>,
}

/// A signed checkpoint, with the edge of the tree that it covers.
struct SignedTree<'t> {
    scope: TenantScope,
    edge: &'t TreeEdge,
    checkpoint: &'t Checkpoint,
    note: &'t SignedNote,
}

/// Reason why a witness did not cosign.
#[derive(Debug, thiserror::Error)]
enum CosignError {
    #[error(transparent)]
    Witness(#[from] WitnessError),
    #[error("the witness took longer than {} ms", COSIGN_TIMEOUT.as_millis())]
    TimedOut,
    #[error("the response has no valid cosignature by the key of the witness")]
    Unsigned,
    #[error("the witness cosigned a tree of {0} facts, which this log does not have")]
    LargerTree(u64),
    #[error("the proof for the witness cannot be made")]
    NoProof,
}

impl Witnesses {
    pub(super) fn new(witnesses: &[Arc<dyn Witness>], tile_loader: VerifiedTileLoader) -> Self {
        let known_witnesses =
            witnesses.iter().map(|witness| KnownWitness { witness: Arc::clone(witness), memory: Mutex::default() });
        Self { known_witnesses: known_witnesses.collect(), tile_loader, remaining_budget: Mutex::new(PASS_BUDGET) }
    }

    /// Begins a pass over the logs; it has the full time budget.
    pub(super) fn begin_pass(&self) {
        *self.remaining_budget() = PASS_BUDGET;
    }

    fn remaining_budget(&self) -> MutexGuard<'_, Duration> {
        self.remaining_budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the identifiers of all witnesses as text. A checkpoint that all of them cosigned has this fingerprint.
    pub(super) fn fingerprint(&self) -> String {
        self.known_witnesses.iter().map(|known| known.witness.key().id_hex()).collect()
    }

    /// Returns the note with the cosignatures of all witnesses that respond, and the fingerprint of these witnesses.
    /// The failure of a witness is logged and ignored, because no external party may stop the log.
    pub(super) async fn cosign(
        &self,
        scope: TenantScope,
        edge: &TreeEdge,
        checkpoint: &Checkpoint,
        note: SignedNote,
    ) -> (SignedNote, String) {
        if self.known_witnesses.is_empty() || self.remaining_budget().is_zero() {
            return (note, String::new());
        }
        let started_at = Instant::now();
        let (tile_loader, tree) = (&self.tile_loader, SignedTree { scope, edge, checkpoint, note: &note });
        let cosignatures = join_all(self.known_witnesses.iter().map(|known| known.cosign(tile_loader, &tree))).await;
        let duration = started_at.elapsed();
        let mut remaining_budget = self.remaining_budget();
        *remaining_budget = remaining_budget.saturating_sub(duration);
        drop(remaining_budget);
        let cosigners = self.known_witnesses.iter().zip(&cosignatures).filter(|(_, cosignature)| cosignature.is_some());
        let fingerprint = cosigners.map(|(known, _)| known.witness.key().id_hex()).collect();
        (note.with_signatures(cosignatures.into_iter().flatten()), fingerprint)
    }
}

impl WitnessMemory {
    /// Returns the tree size that the witness cosigned last, or 0 if unknown; `None` while no request may be sent.
    fn begin_request(&mut self, tenant: TenantId) -> Option<u64> {
        let now = Instant::now();
        let log_waits_until = self.logs_wait_until.get(&tenant).copied();
        if [self.waits_until, log_waits_until].into_iter().flatten().any(|until| now < until) {
            return None;
        }
        self.waits_until = None;
        self.logs_wait_until.remove(&tenant);
        Some(self.sizes.get(&tenant).copied().unwrap_or_default())
    }
}

impl KnownWitness {
    fn memory(&self) -> MutexGuard<'_, WitnessMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn cosign(&self, tile_loader: &VerifiedTileLoader, tree: &SignedTree<'_>) -> Option<NoteSignature> {
        let tenant = tree.scope.tenant();
        let known_size = self.memory().begin_request(tenant)?;
        let response = timeout(COSIGN_TIMEOUT, self.request_cosignature(tile_loader, tree, known_size)).await;
        let error = match response.unwrap_or(Err(CosignError::TimedOut)) {
            Ok(cosignature) => {
                self.memory().sizes.insert(tenant, tree.checkpoint.size);
                return Some(cosignature);
            }
            Err(error) => error,
        };
        let (witness, log_size) = (self.witness.key().name(), tree.checkpoint.size);
        let source = &error as &dyn std::error::Error;
        match error {
            CosignError::Witness(WitnessError::Contradicted) => tracing::error!(
                tenant_id = %tenant,
                log_size,
                witness,
                error = source,
                "a witness cosigned another history of the audit log; continuing without its cosignature"
            ),
            // Another server published a later checkpoint, or the log was truncated. The comparison with the archive
            // detects a truncation.
            CosignError::LargerTree(_) => tracing::warn!(
                tenant_id = %tenant,
                log_size,
                witness,
                error = source,
                "a witness has cosigned a larger tree than this checkpoint; continuing without its cosignature"
            ),
            CosignError::Witness(WitnessError::UnknownLog) | CosignError::Unsigned | CosignError::NoProof => {
                self.memory().logs_wait_until.insert(tenant, Instant::now() + RETRY_DELAY);
                tracing::warn!(
                    tenant_id = %tenant,
                    log_size,
                    witness,
                    error = source,
                    "a witness did not cosign a checkpoint; requesting a cosignature for this log again in 30 s"
                );
            }
            CosignError::Witness(WitnessError::Unavailable(_)) | CosignError::TimedOut => {
                self.memory().waits_until = Some(Instant::now() + RETRY_DELAY);
                tracing::warn!(
                    tenant_id = %tenant,
                    log_size,
                    witness,
                    error = source,
                    "a witness did not cosign a checkpoint; requesting cosignatures from it again in 30 s"
                );
            }
        }
        None
    }

    /// Requests a cosignature that extends the tree size that the witness last cosigned. If the witness returns another
    /// size, one more request uses that size.
    async fn request_cosignature(
        &self,
        tile_loader: &VerifiedTileLoader,
        tree: &SignedTree<'_>,
        known_size: u64,
    ) -> Result<NoteSignature, CosignError> {
        let mut old_size = known_size.min(tree.checkpoint.size);
        for _ in 0..2 {
            let plan = ProofPlan::consistency(old_size, tree.checkpoint.size).ok_or(CosignError::NoProof)?;
            let proof = tile_loader.proof_hashes(tree.scope, tree.edge, &plan).await;
            let proof = proof.map_err(|_| CosignError::NoProof)?;
            let request = WitnessRequest { old_size, proof, checkpoint: tree.note.clone() };
            match self.witness.add_checkpoint(&request).await? {
                WitnessResponse::Cosigned(cosignatures) => return self.valid_cosignature(tree.note, cosignatures),
                WitnessResponse::SizeMismatch(size) if size > tree.checkpoint.size => {
                    return Err(CosignError::LargerTree(size));
                }
                WitnessResponse::SizeMismatch(size) => old_size = size,
            }
        }
        // The witness refused the size that it had named before.
        Err(CosignError::Unsigned)
    }

    /// Returns the line of the response that is a cosignature by the witness's key. Other lines are ignored, so that
    /// the note contains only verified signatures.
    fn valid_cosignature(
        &self,
        note: &SignedNote,
        cosignatures: Vec<NoteSignature>,
    ) -> Result<NoteSignature, CosignError> {
        let is_valid = |cosignature: &NoteSignature| {
            let single_note = SignedNote::new(note.text().to_owned(), vec![cosignature.clone()]);
            single_note.is_some_and(|single_note| self.witness.key().cosigned_at(&single_note).is_some())
        };
        cosignatures.into_iter().find(is_valid).ok_or(CosignError::Unsigned)
    }
}
