//! Transparency logs: checkpoints, proofs and tiles of the Merkle tree of a tenant's audit log.

mod log_access_error;
mod log_auditor;
mod tree_builder;
mod verified_tiles;
mod witnesses;

pub use log_access_error::LogAccessError;
pub use log_auditor::{AuditFinding, AuditedLog, LogAuditInputs, LogAuditor};
pub use tree_builder::{TreeBuilder, run_tree_builder};
pub(crate) use verified_tiles::{TileCache, new_tile_cache};

use crate::{
    Failure, Stores,
    access::{Operation, ScopeResolver, authorize},
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    access::{Caller, Permission, ResourcePosition},
    audit::leaf_hash,
    evidence::bundle::{Envelope, EnvelopeSignature, PAYLOAD_TYPE},
    id::FactId,
    tenant::TenantScope,
    transparency_log::{
        Checkpoint, CheckpointSigner, InclusionClaim, LogOriginBase, LoggedFact, ProofPlan, TileRequest, TreeEdge,
        TreeHash, TreeState, TreeStore, VerifierKey,
    },
};
use std::sync::Arc;
use verified_tiles::VerifiedTileLoader;

/// Proof that a tree contains an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InclusionProof {
    /// The index of the event in the log.
    pub index: u64,
    /// The number of leaves of the tree.
    pub tree_size: u64,
    /// The root hash against which the proof verifies.
    pub root: TreeHash,
    /// The hashes of the proof, from the leaf to the root.
    pub hashes: Vec<TreeHash>,
}

/// Proof that a tree is a prefix of a later tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsistencyProof {
    /// The size of the earlier tree.
    pub from_size: u64,
    /// The root of the earlier tree.
    pub from_root: TreeHash,
    /// The size of the later tree.
    pub to_size: u64,
    /// The root of the later tree.
    pub to_root: TreeHash,
    /// The hashes of the proof, in the order of RFC 6962.
    pub hashes: Vec<TreeHash>,
}

/// Reads the checkpoints, keys, proofs and tiles of a tenant's log, and signs evidence bundles with its keys.
#[derive(Clone)]
pub struct TransparencyLogs {
    tree_store: Arc<dyn TreeStore>,
    tile_loader: VerifiedTileLoader,
    signer: Arc<dyn CheckpointSigner>,
    origin: LogOriginBase,
    scope_resolver: Arc<ScopeResolver>,
}

impl TransparencyLogs {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            tree_store: Arc::clone(&stores.log_trees),
            tile_loader: VerifiedTileLoader::new(Arc::clone(&shared.artifact_store), shared.log_tiles.clone()),
            signer: Arc::clone(&shared.checkpoint_signer),
            origin: shared.settings.log_origin.clone(),
            scope_resolver: Arc::clone(&common.scope_resolver),
        }
    }
}

impl TransparencyLogs {
    /// Returns the latest checkpoint of the tenant's log, as a signed note.
    ///
    /// # Errors
    /// When the caller may audit no scope of the tenant, or no checkpoint is published yet.
    pub async fn checkpoint(&self, caller: &Caller) -> Result<String, Failure> {
        let (scope, _) = authorize::authorize_list(caller, Operation::ReadCheckpoint)?;
        self.tree(scope).await?.checkpoint.ok_or(Failure::NotYetInCheckpoint)
    }

    /// Returns the public keys that sign the checkpoints of the tenant's log, the current key first.
    ///
    /// # Errors
    /// When the caller may audit no scope of the tenant, or the keys cannot be read.
    pub async fn checkpoint_keys(&self, caller: &Caller) -> Result<Vec<VerifierKey>, Failure> {
        let (scope, _) = authorize::authorize_list(caller, Operation::ReadCheckpointKeys)?;
        let name = self.origin.origin_of_tenant(scope.tenant());
        let keys = self.signer.public_keys().await?;
        keys.iter()
            .map(|key| VerifierKey::new(&name, key).ok_or(Failure::Inconsistent("a checkpoint key cannot be named")))
            .collect()
    }

    /// Returns the proof that an event is part of the tree of the latest checkpoint, or of an earlier tree.
    ///
    /// # Errors
    /// When the caller may not see the event, or the tree does not contain it.
    pub async fn inclusion_proof(
        &self,
        caller: &Caller,
        event: FactId,
        tree_size: Option<u64>,
    ) -> Result<InclusionProof, Failure> {
        let (scope, _) = authorize::authorize_list(caller, Operation::ReadInclusionProof)?;
        let fact = self.tree_store.find_logged_fact(scope, event).await?.ok_or(Failure::NotFound)?;
        self.authorize_fact(caller, &fact).await?;
        let (edge, checkpoint) = self.published_tree(scope).await?;
        let tree_size = tree_size.unwrap_or(checkpoint.size);
        if fact.index >= checkpoint.size {
            return Err(Failure::NotYetInCheckpoint);
        }
        check_size("tree_size", tree_size, &checkpoint)?;
        let plan = ProofPlan::inclusion(fact.index, tree_size).ok_or_else(|| {
            Failure::invalid_field("tree_size", "out_of_bounds", "must be larger than the index of the event")
        })?;
        let hashes = self.tile_loader.proof_hashes(scope, &edge, &plan).await?;
        let root = self.root(scope, &edge, tree_size).await?;
        let claim = InclusionClaim { index: fact.index, leaf: TreeHash::new(leaf_hash(&fact.body)), tree_size, root };
        if claim.is_proved_by(&hashes) {
            Ok(InclusionProof { index: fact.index, tree_size, root, hashes })
        } else {
            Err(Failure::Inconsistent("the stored bytes of an event do not match the tree of its log"))
        }
    }

    /// Returns the proof that the tree of the first `from_size` leaves is a prefix of the tree of the first `to_size`
    /// leaves.
    ///
    /// # Errors
    /// When the caller may audit no scope of the tenant, `from_size` exceeds `to_size`, or a size exceeds the latest
    /// checkpoint.
    pub async fn consistency_proof(
        &self,
        caller: &Caller,
        from_size: u64,
        to_size: u64,
    ) -> Result<ConsistencyProof, Failure> {
        let (scope, _) = authorize::authorize_list(caller, Operation::ReadConsistencyProof)?;
        let plan = ProofPlan::consistency(from_size, to_size)
            .ok_or_else(|| Failure::invalid_field("from", "out_of_bounds", "must not be larger than `to`"))?;
        let (edge, checkpoint) = self.published_tree(scope).await?;
        check_size("to", to_size, &checkpoint)?;
        Ok(ConsistencyProof {
            from_size,
            from_root: self.root(scope, &edge, from_size).await?,
            to_size,
            to_root: self.root(scope, &edge, to_size).await?,
            hashes: self.tile_loader.proof_hashes(scope, &edge, &plan).await?,
        })
    }

    /// Returns the bytes of a tile of the published tree, which are its concatenated hashes.
    ///
    /// # Errors
    /// When the caller may audit no scope of the tenant, or the tree has no such tile.
    pub async fn tile(&self, caller: &Caller, request: TileRequest) -> Result<Vec<u8>, Failure> {
        let (scope, _) = authorize::authorize_list(caller, Operation::ReadLogTile)?;
        let (edge, checkpoint) = match self.published_tree(scope).await {
            Err(Failure::NotYetInCheckpoint) => return Err(Failure::NotFound),
            tree => tree?,
        };
        if request.coordinate.width_in(checkpoint.size) < request.width {
            return Err(Failure::NotFound);
        }
        self.tile_loader.first_hashes(scope, &edge, request).await
    }

    /// Returns the inclusion proofs of facts for the latest checkpoint, and the checkpoint.
    ///
    /// # Errors
    /// When no checkpoint exists, the checkpoint does not cover all facts, or a fact does not match the tree.
    pub(crate) async fn prove_facts(
        &self,
        scope: TenantScope,
        facts: &[LoggedFact],
    ) -> Result<(Vec<Vec<TreeHash>>, String), Failure> {
        let tree = self.tree(scope).await?;
        let note = tree.checkpoint.clone().ok_or(Failure::NotYetInCheckpoint)?;
        let checkpoint = tree.parse_checkpoint();
        let checkpoint = checkpoint.ok_or(Failure::Inconsistent("the stored checkpoint cannot be read"))?;
        let mut proofs = Vec::with_capacity(facts.len());
        for fact in facts {
            let plan = ProofPlan::inclusion(fact.index, checkpoint.size).ok_or(Failure::NotYetInCheckpoint)?;
            let hashes = self.tile_loader.proof_hashes(scope, &tree.edge, &plan).await?;
            let leaf = TreeHash::new(leaf_hash(&fact.body));
            let (tree_size, root) = (checkpoint.size, checkpoint.root);
            if !(InclusionClaim { index: fact.index, leaf, tree_size, root }).is_proved_by(&hashes) {
                return Err(Failure::Inconsistent("the stored bytes of an event do not match the tree of its log"));
            }
            proofs.push(hashes);
        }
        Ok((proofs, note))
    }

    /// Signs the payload of an evidence bundle with the checkpoint keys of the log.
    ///
    /// # Errors
    /// When the keys cannot be read.
    pub(crate) async fn sign_payload(&self, scope: TenantScope, payload: Vec<u8>) -> Result<String, Failure> {
        let name = self.origin.origin_of_tenant(scope.tenant());
        let signed = Envelope::signed_bytes(PAYLOAD_TYPE, &payload);
        let mut signatures = Vec::new();
        for (key, signature) in self.signer.sign(&signed).await? {
            let key = VerifierKey::new(&name, &key).ok_or(Failure::Inconsistent("a checkpoint key cannot be named"))?;
            signatures.push(EnvelopeSignature::new(&key, &signature));
        }
        Ok(Envelope { payload_type: PAYLOAD_TYPE.to_owned(), payload, signatures }.to_json())
    }

    async fn tree(&self, scope: TenantScope) -> Result<TreeState, Failure> {
        Ok(self.tree_store.find_log(scope).await?.map(|log| log.tree).unwrap_or_default())
    }

    /// Returns the edge of the tree and the latest checkpoint. The edge contains the hashes of incomplete tiles, and is
    /// at least as large as the checkpoint's tree.
    async fn published_tree(&self, scope: TenantScope) -> Result<(TreeEdge, Checkpoint), Failure> {
        let tree = self.tree(scope).await?;
        if tree.checkpoint.is_none() {
            return Err(Failure::NotYetInCheckpoint);
        }
        let checkpoint = tree.parse_checkpoint();
        let checkpoint = checkpoint.ok_or(Failure::Inconsistent("the stored checkpoint cannot be read"))?;
        if checkpoint.size <= tree.edge.size() {
            Ok((tree.edge, checkpoint))
        } else {
            Err(Failure::Inconsistent("the stored tree is smaller than its checkpoint"))
        }
    }

    async fn root(&self, scope: TenantScope, edge: &TreeEdge, size: u64) -> Result<TreeHash, Failure> {
        if size == 0 {
            return Ok(TreeHash::of_empty_tree());
        }
        if size == edge.size() {
            return Ok(edge.root());
        }
        let hashes = self.tile_loader.proof_hashes(scope, edge, &ProofPlan::root(size)).await?;
        hashes.first().copied().ok_or(Failure::Inconsistent("a tree with leaves has no root"))
    }

    /// Authorizes a caller to read a fact. A fact outside the scopes that the caller may audit is reported as not
    /// found.
    async fn authorize_fact(&self, caller: &Caller, fact: &LoggedFact) -> Result<(), Failure> {
        let position = match fact.workspace {
            None => ResourcePosition::tenant(caller.tenant),
            Some(workspace) => {
                let namespace = self.scope_resolver.namespace_of(caller, workspace).await?;
                let namespace = namespace.ok_or(Failure::Inconsistent("the workspace of an event is missing"))?;
                ResourcePosition::workspace(caller.tenant, namespace, workspace)
            }
        };
        let position = fact.workload.map_or(position, |workload| position.for_workload(workload));
        if caller.rights.allow(Permission::AuditView, &position) { Ok(()) } else { Err(Failure::NotFound) }
    }
}

/// Refuses a tree size that exceeds the latest checkpoint.
fn check_size(field: &'static str, size: u64, checkpoint: &Checkpoint) -> Result<(), Failure> {
    if size <= checkpoint.size {
        return Ok(());
    }
    Err(Failure::invalid_field(field, "out_of_bounds", "must not be larger than the tree of the latest checkpoint"))
}
