//! Evidence of an execution: its governance chain, policy decisions and artifacts, as they were when it ran.

pub mod bundle;
pub mod graph;
pub mod lineage;
pub mod run_records;

use crate::{
    asset::artifact_store::ArtifactPath,
    erasure::RunErasure,
    execution::{Execution, Payload},
    id::{ApprovalId, ArtifactId, AssetId, AssetVersionId, DecisionId, ReleaseId, WorkloadId},
    policy::{FailedRule, Outcome, PolicyDecision},
    release::{Release, frozen_reference::FrozenReference, review::Verdict},
    time::Timestamp,
    workload::Workload,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// A snapshot of a release's governance chain: the release with its workload, bindings, references and approvals.
/// Later changes of owner, slug or state do not alter the snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GovernanceChain {
    /// The release.
    pub release: ChainRelease,
    /// The workload.
    pub workload: ChainWorkload,
    /// The bound versions.
    pub bindings: Vec<ChainBinding>,
    /// The resolved references of the bound contents. Each version occurs once, with its asset kind as role. Chains
    /// of older versions of Fairway have no references.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<ChainBinding>,
    /// The approvals.
    pub approvals: Vec<ChainApproval>,
}

/// The release of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainRelease {
    /// The identifier of the release.
    pub release_id: ReleaseId,
    /// The environment of the release.
    pub environment: String,
    /// The state of the release when the snapshot was made.
    pub lifecycle_state: String,
}

/// The workload of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainWorkload {
    /// The identifier of the workload.
    pub workload_id: WorkloadId,
    /// The slug of the workload.
    pub slug: String,
    /// The owner.
    pub owner_ref: String,
}

/// One binding of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainBinding {
    /// The role in which the release binds the version.
    pub role: String,
    /// The bound version.
    pub asset_version_id: AssetVersionId,
    /// The asset's slug.
    pub asset_slug: String,
}

/// One approval of a chain. Its note is erasable and stored separately.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainApproval {
    /// The identifier of the approval.
    pub approval_id: ApprovalId,
    /// The approver.
    pub approved_by: String,
    /// When the release was approved.
    pub approved_at: Timestamp,
}

/// BLAKE3 of a chain's canonical JSON.
pub type SnapshotDigest = [u8; 32];

/// A stored chain, shared by all runs of the same release state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvidenceSnapshot {
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
        let is_new = |reference: &&FrozenReference| referenced.insert(reference.asset_version_id);
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
                .filter(is_new)
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
    pub fn to_snapshot(&self) -> EvidenceSnapshot {
        // Strings, identifiers and times always have a canonical form.
        let body = serde_json_canonicalizer::to_string(self).unwrap_or_default();
        EvidenceSnapshot { digest: blake3::hash(body.as_bytes()).into(), body }
    }
}

/// A stored policy decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedDecision {
    /// The identifier of the decision.
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
    /// When the policy was evaluated.
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

/// An evidence artifact. Its body contains only codes, counts and digests. Payloads are stored separately, so that
/// they can be erased.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvidenceArtifact {
    /// The identifier of the artifact.
    pub artifact_id: ArtifactId,
    /// The kind of the document, such as `provider_call`.
    pub kind: &'static str,
    /// The path of the document in the artifact store.
    pub storage_ref: ArtifactPath,
    /// The document.
    pub body: Map<String, Value>,
    /// The text of the model call or query that the document describes, if any.
    pub payload: Option<Payload>,
    /// When the artifact was created.
    pub created_at: Timestamp,
}

impl EvidenceArtifact {
    /// The document as it is stored.
    #[must_use]
    pub fn body_text(&self) -> String {
        // Serialization of a JSON object cannot fail.
        serde_json::to_string(&self.body).unwrap_or_default()
    }
}

/// An evidence artifact as stored, without its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredEvidenceArtifact {
    /// The identifier of the artifact.
    pub artifact_id: ArtifactId,
    /// The kind of the artifact.
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
    /// The erasure that removed the texts of the run, if any.
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
    /// The approval notes that exist and that the reader may see. The caller loads them after the record.
    pub notes: Vec<(ApprovalId, String)>,
    /// Whether notes and query texts are withheld from this reader.
    pub notes_withheld: bool,
}

/// A document in the evidence view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArtifactRow {
    /// The identifier of the artifact.
    pub artifact_id: ArtifactId,
    /// The kind of the document.
    pub artifact_kind: String,
    /// The path of the document in the artifact store.
    pub storage_ref: String,
    /// When the artifact was created.
    pub created_at: Timestamp,
}

/// A knowledge base query in the evidence view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetrievalRow {
    /// The artifact that records the query.
    pub artifact_id: ArtifactId,
    /// The knowledge base.
    pub asset: AssetId,
    /// The query text, if it is still stored and the reader may see it.
    pub query: Option<String>,
    /// The number of retrieved chunks.
    pub chunks: u32,
    /// When the query was made.
    pub at: Timestamp,
}

impl EvidenceRecord {
    /// The strictest decision of the run. Among equally strict decisions, the latest counts, because its input is the
    /// most complete.
    #[must_use]
    pub fn strictest_decision(&self) -> Option<&RecordedDecision> {
        self.decisions.iter().max_by_key(|decision| decision.outcome)
    }

    /// The obligations of the run: those that any of its decisions imposed, even if a later decision denied the run.
    #[must_use]
    pub fn obligations(&self) -> Vec<ImposedObligation> {
        let mut imposed: Vec<ImposedObligation> = Vec::new();
        for decision in &self.decisions {
            for name in &decision.obligations {
                match imposed.iter_mut().find(|obligation| obligation.name == *name) {
                    Some(obligation) => obligation.decisions.push(decision.decision_id),
                    None => imposed.push(ImposedObligation {
                        name: name.clone(),
                        fulfilled_at: self
                            .fulfilled
                            .iter()
                            .find(|(fulfilled_name, _)| fulfilled_name == name)
                            .map(|(_, fulfilled_at)| *fulfilled_at),
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
    /// The name of the obligation.
    pub name: String,
    /// When the obligation was fulfilled; `None` while it is unfulfilled.
    pub fulfilled_at: Option<Timestamp>,
    /// The decisions that imposed the obligation.
    pub decisions: Vec<DecisionId>,
}

/// An evidence artifact with its content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArtifactWithContent {
    /// The artifact.
    pub artifact: ArtifactRow,
    /// The document: codes, counts and digests.
    pub body: Map<String, Value>,
    /// The payload, if it is still stored.
    pub payload: Option<Value>,
    /// Whether the payload is withheld from this reader.
    pub payload_withheld: bool,
}
