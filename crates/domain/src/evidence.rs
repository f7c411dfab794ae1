//! Evidence: the governance chain, decisions and artifacts of an execution, as of its run.

pub mod bundle;
pub mod graph;
pub mod lineage;
pub mod records;

use crate::{
    asset::artifact_store::ArtifactPath,
    erasure::RunErasure,
    execution::{Execution, Payload},
    id::{ApprovalId, ArtifactId, AssetId, AssetVersionId, DecisionId, ReleaseId, WorkloadId},
    policy::{FailedRule, Outcome, PolicyDecision},
    release::{Release, reference::FrozenReference, review::Verdict},
    time::Timestamp,
    workload::Workload,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// A snapshot of a release's governance chain. Later changes of owner, slug or state do not alter it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GovernanceChain {
    /// The release.
    pub release: ChainRelease,
    /// The workload.
    pub workload: ChainWorkload,
    /// The bound versions.
    pub bindings: Vec<ChainBinding>,
    /// The resolved references of the bound contents, each version once, with its asset kind as role. Chains stored
    /// before references were recorded have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<ChainBinding>,
    /// The approvals.
    pub approvals: Vec<ChainApproval>,
}

/// The release of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainRelease {
    /// Its identifier.
    pub release_id: ReleaseId,
    /// Its environment.
    pub environment: String,
    /// Its state.
    pub lifecycle_state: String,
}

/// The workload of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainWorkload {
    /// Its identifier.
    pub workload_id: WorkloadId,
    /// Its slug.
    pub slug: String,
    /// The owner.
    pub owner_ref: String,
}

/// One binding of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainBinding {
    /// The role.
    pub role: String,
    /// The version.
    pub asset_version_id: AssetVersionId,
    /// The asset's slug.
    pub asset_slug: String,
}

/// One approval of a chain. Its note is erasable and stored separately.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainApproval {
    /// Its identifier.
    pub approval_id: ApprovalId,
    /// The approver.
    pub approved_by: String,
    /// When.
    pub approved_at: Timestamp,
}

/// BLAKE3 of a chain's canonical JSON.
pub type SnapshotDigest = [u8; 32];

/// A stored chain, shared by all runs of the same release state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The digest that runs refer to.
    pub digest: SnapshotDigest,
    /// Canonical JSON of the chain.
    pub body: String,
}

impl GovernanceChain {
    /// The chain of the release that a run executes.
    #[must_use]
    pub fn for_release(release: &Release, workload: &Workload) -> Self {
        let digest = release.bindings_digest();
        let mut referenced = BTreeSet::new();
        let once = |reference: &&FrozenReference| referenced.insert(reference.asset_version_id);
        Self {
            release: ChainRelease {
                release_id: release.release_id,
                environment: release.environment.to_string(),
                lifecycle_state: release.state.name().as_str().to_owned(),
            },
            workload: ChainWorkload {
                workload_id: workload.workload_id,
                slug: workload.slug.to_string(),
                owner_ref: workload.owner_ref.to_string(),
            },
            bindings: release
                .bindings
                .iter()
                .map(|binding| ChainBinding {
                    role: binding.role.as_str().to_owned(),
                    asset_version_id: binding.asset_version_id,
                    asset_slug: binding.asset_slug.to_string(),
                })
                .collect(),
            references: release
                .references
                .iter()
                .filter(once)
                .map(|reference| ChainBinding {
                    role: reference.kind.as_str().to_owned(),
                    asset_version_id: reference.asset_version_id,
                    asset_slug: reference.slug.to_string(),
                })
                .collect(),
            approvals: release
                .approvals
                .iter()
                .filter(|approval| approval.verdict == Verdict::Approved && approval.subject_digest == digest)
                .map(|approval| ChainApproval {
                    approval_id: approval.approval_id,
                    approved_by: approval.by.to_string(),
                    approved_at: approval.at,
                })
                .collect(),
        }
    }

    /// The chain in its stored form.
    #[must_use]
    pub fn to_snapshot(&self) -> Snapshot {
        // Strings, identifiers and times always have a canonical form.
        let body = serde_json_canonicalizer::to_string(self).unwrap_or_default();
        Snapshot { digest: blake3::hash(body.as_bytes()).into(), body }
    }
}

/// A stored policy decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedDecision {
    /// Its identifier.
    pub decision_id: DecisionId,
    /// The outcome.
    pub outcome: Outcome,
    /// The reason code.
    pub reason_code: String,
    /// The obligations that the decision imposes.
    pub obligations: Vec<String>,
    /// The rules that matched.
    pub rules: Vec<String>,
    /// The rules that could not be evaluated.
    pub failed_rules: Vec<FailedRule>,
    /// When.
    pub evaluated_at: Timestamp,
}

impl RecordedDecision {
    /// Converts a decision into its stored form.
    #[must_use]
    pub fn from_decision(decision_id: DecisionId, decision: &PolicyDecision, evaluated_at: Timestamp) -> Self {
        Self {
            decision_id,
            outcome: decision.outcome,
            reason_code: decision.reason_code.clone(),
            obligations: decision.obligations.iter().map(|obligation| obligation.as_str().to_owned()).collect(),
            rules: decision.matched_rules.clone(),
            failed_rules: decision.failed_rules.clone(),
            evaluated_at,
        }
    }
}

/// The kind of the artifact that records a model call: its route, attempts, tokens and cost.
pub const PROVIDER_CALL: &str = "provider_call";

/// The kind of the artifact that records a knowledge base query. The query text is its payload.
pub const RETRIEVAL_EVENT: &str = "retrieval_event";

/// An evidence artifact. Its body holds codes, counts and digests, never payloads; payloads are stored separately and
/// erasable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvidenceArtifact {
    /// Its identifier.
    pub artifact_id: ArtifactId,
    /// The kind of the document, such as `provider_call`.
    pub kind: &'static str,
    /// Its location.
    pub storage_ref: ArtifactPath,
    /// The document.
    pub body: Map<String, Value>,
    /// The text that people and models exchanged, if the document concerns it.
    pub payload: Option<Payload>,
    /// When it was made.
    pub created_at: Timestamp,
}

impl EvidenceArtifact {
    /// The document as it is stored.
    #[must_use]
    pub fn body_text(&self) -> String {
        // A JSON object always has a JSON form.
        serde_json::to_string(&self.body).unwrap_or_default()
    }
}

/// A stored evidence document, without its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredDocument {
    /// Its identifier.
    pub artifact_id: ArtifactId,
    /// Its kind.
    pub artifact_kind: String,
    /// The stored text: a JSON object of codes, counts and digests.
    pub body: String,
}

/// The stored evidence of one execution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvidenceRecord {
    /// The execution.
    pub execution: Execution,
    /// The chain as of the run.
    pub chain: GovernanceChain,
    /// Digest of the input.
    pub input_digest: [u8; 32],
    /// Digest of the output, if any.
    pub output_digest: Option<[u8; 32]>,
    /// The erasure that took the texts of the run, if any.
    pub erasure: Option<RunErasure>,
    /// Every policy decision of the run, oldest first.
    pub decisions: Vec<RecordedDecision>,
    /// Fulfilled obligations and their times.
    pub fulfilled: Vec<(String, Timestamp)>,
    /// Documents, oldest first.
    pub artifacts: Vec<ArtifactRow>,
    /// Knowledge base queries, oldest first: the retrieval events among the artifacts.
    pub retrievals: Vec<RetrievalRow>,
    /// Whether any approval of the release has a note.
    pub has_notes: bool,
    /// The existing approval notes, for a reader who may see them. They are read after the record.
    pub notes: Vec<(ApprovalId, String)>,
    /// Whether notes and query texts are withheld from this reader.
    pub notes_withheld: bool,
}

/// A document in the evidence view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArtifactRow {
    /// Its identifier.
    pub artifact_id: ArtifactId,
    /// The kind of the document.
    pub artifact_kind: String,
    /// Its location.
    pub storage_ref: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A knowledge base query in the evidence view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetrievalRow {
    /// The artifact that records it.
    pub artifact_id: ArtifactId,
    /// The knowledge base.
    pub asset: AssetId,
    /// The query text, while it is retained and if the reader may see it.
    pub query: Option<String>,
    /// The number of retrieved chunks.
    pub chunks: u32,
    /// When.
    pub at: Timestamp,
}

impl EvidenceRecord {
    /// The effective decision: the strictest of the run; among equally strict ones the latest, which saw the most data.
    #[must_use]
    pub fn effective_decision(&self) -> Option<&RecordedDecision> {
        self.decisions.iter().max_by_key(|decision| decision.outcome)
    }

    /// The obligations of the run: all that any of its decisions imposed, including those that a later decision denied.
    #[must_use]
    pub fn obligations(&self) -> Vec<ImposedObligation> {
        let mut imposed: Vec<ImposedObligation> = Vec::new();
        for decision in &self.decisions {
            for name in &decision.obligations {
                match imposed.iter_mut().find(|known| known.name == *name) {
                    Some(known) => known.decisions.push(decision.decision_id),
                    None => imposed.push(ImposedObligation {
                        name: name.clone(),
                        fulfilled_at: self.fulfilled.iter().find(|(known, _)| known == name).map(|(_, at)| *at),
                        decisions: vec![decision.decision_id],
                    }),
                }
            }
        }
        imposed
    }
}

/// An obligation imposed on a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImposedObligation {
    /// Its name.
    pub name: String,
    /// When it was fulfilled, if it was.
    pub fulfilled_at: Option<Timestamp>,
    /// The decisions that imposed it.
    pub decisions: Vec<DecisionId>,
}

/// An evidence artifact with its content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArtifactDocument {
    /// The artifact.
    pub artifact: ArtifactRow,
    /// Codes, counts and digests.
    pub body: Map<String, Value>,
    /// The payload, while it is retained.
    pub payload: Option<Value>,
    /// Whether the payload is withheld from this reader.
    pub payload_withheld: bool,
}
