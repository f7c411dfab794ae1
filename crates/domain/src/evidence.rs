//! Evidence: what stands behind an execution, as it stood when it ran.

pub mod graph;
pub mod lineage;

use crate::{
    asset::ports::ArtifactPath,
    execution::{Execution, Payload},
    id::{ApprovalId, ArtifactId, AssetId, AssetVersionId, DecisionId, ReleaseId, WorkloadId},
    policy::{Outcome, PolicyDecision},
    release::{Release, reference::FrozenReference, review::Verdict},
    time::Timestamp,
    workload::Workload,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The governance chain of a release as it stood: later changes of owner, slug or state do not change it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Chain {
    /// The release.
    pub release: ChainRelease,
    /// The workload.
    pub workload: ChainWorkload,
    /// What the release binds.
    pub bindings: Vec<ChainBinding>,
    /// What the bound contents mean by their references, each version once, with its kind for a role. Chains that were kept
    /// before references were told have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<ChainBinding>,
    /// Who approved it.
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
    /// Who answers for it.
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

/// One approval of a chain, without its note, which can be erased and is read from where it lies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainApproval {
    /// Its identifier.
    pub approval_id: ApprovalId,
    /// Who approved.
    pub approved_by: String,
    /// When.
    pub approved_at: Timestamp,
}

/// BLAKE3 of a chain's canonical JSON.
pub type SnapshotDigest = [u8; 32];

/// A chain as it is kept: one row for all the runs that share it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// What runs refer to.
    pub digest: SnapshotDigest,
    /// Canonical JSON of the chain.
    pub body: String,
}

impl Chain {
    /// The chain of a release that is being run.
    #[must_use]
    pub fn of(release: &Release, workload: &Workload) -> Self {
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

    /// The chain as it is kept.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        // Texts, identifiers and times always have a canonical form.
        let body = serde_json_canonicalizer::to_string(self).unwrap_or_default();
        Snapshot { digest: blake3::hash(body.as_bytes()).into(), body }
    }
}

/// A policy decision as it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedDecision {
    /// Its identifier.
    pub decision_id: DecisionId,
    /// What was decided.
    pub outcome: Outcome,
    /// Why.
    pub reason_code: String,
    /// What must be done besides.
    pub obligations: Vec<String>,
    /// The rules that matched.
    pub rules: Vec<String>,
    /// When.
    pub evaluated_at: Timestamp,
}

impl RecordedDecision {
    /// A decision, to be kept.
    #[must_use]
    pub fn of(decision_id: DecisionId, decision: &PolicyDecision, evaluated_at: Timestamp) -> Self {
        Self {
            decision_id,
            outcome: decision.outcome,
            reason_code: decision.reason_code.clone(),
            obligations: decision.obligations.iter().map(|obligation| obligation.as_str().to_owned()).collect(),
            rules: decision.matched_rules.clone(),
            evaluated_at,
        }
    }
}

/// The sort of document that tells what was looked up in a knowledge base. What was looked for lies beside it.
pub const RETRIEVAL_EVENT: &str = "retrieval_event";

/// A document kept as evidence. Its body holds codes, counts and digests, never payloads; those lie beside it, where they
/// can be erased.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvidenceArtifact {
    /// Its identifier.
    pub artifact_id: ArtifactId,
    /// What sort of document it is, such as `provider_call`.
    pub kind: &'static str,
    /// Where it is read.
    pub storage_ref: ArtifactPath,
    /// The document.
    pub body: Map<String, Value>,
    /// What people and models said, if the document is about that.
    pub payload: Option<Payload>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// All that stands behind one execution, as the store keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvidenceRecord {
    /// The execution.
    pub execution: Execution,
    /// The chain as the run found it.
    pub chain: Chain,
    /// Digest of what was sent.
    pub input_digest: [u8; 32],
    /// Digest of the answer, if there was one.
    pub output_digest: Option<[u8; 32]>,
    /// Every decision taken for the run, oldest first.
    pub decisions: Vec<DecisionRow>,
    /// Obligations that the run fulfilled, and when.
    pub fulfilled: Vec<(String, Timestamp)>,
    /// Documents, oldest first.
    pub artifacts: Vec<ArtifactRow>,
    /// What was looked up in knowledge bases, oldest first: those of the documents that tell it.
    pub retrievals: Vec<RetrievalRow>,
    /// Whether any approval of the release has a note.
    pub has_notes: bool,
    /// Notes to approvals that still exist, for a reader who may see them. They are read after the record.
    pub notes: Vec<(ApprovalId, String)>,
    /// Whether notes, and what was looked for, are kept from this reader.
    pub notes_withheld: bool,
}

/// A decision as evidence shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecisionRow {
    /// Its identifier.
    pub decision_id: DecisionId,
    /// What was decided.
    pub outcome: Outcome,
    /// Why.
    pub reason_code: String,
    /// What had to be done besides.
    pub obligations: Vec<String>,
    /// Ids of the rules that matched.
    pub rules: Vec<String>,
    /// When.
    pub evaluated_at: Timestamp,
}

/// A document as evidence shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArtifactRow {
    /// Its identifier.
    pub artifact_id: ArtifactId,
    /// What sort of document it is.
    pub artifact_kind: String,
    /// Where it is read.
    pub storage_ref: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A lookup in a knowledge base as evidence shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetrievalRow {
    /// The document that tells it.
    pub artifact_id: ArtifactId,
    /// The knowledge base.
    pub asset: AssetId,
    /// What was looked for, while that is kept and for whom may see it.
    pub query: Option<String>,
    /// How many pieces were found.
    pub chunks: u32,
    /// When.
    pub at: Timestamp,
}

impl EvidenceRecord {
    /// The decision that counts: the strictest of the run, and of equally strict ones the latest, because a later one
    /// saw more.
    #[must_use]
    pub fn decision(&self) -> Option<&DecisionRow> {
        self.decisions.iter().max_by_key(|decision| decision.outcome)
    }

    /// What the run owed: everything that any of its decisions imposed, also where a later one denied it.
    #[must_use]
    pub fn obligations(&self) -> Vec<OwedObligation> {
        let mut owed: Vec<OwedObligation> = Vec::new();
        for decision in &self.decisions {
            for name in &decision.obligations {
                match owed.iter_mut().find(|known| known.name == *name) {
                    Some(known) => known.decisions.push(decision.decision_id),
                    None => owed.push(OwedObligation {
                        name: name.clone(),
                        fulfilled_at: self.fulfilled.iter().find(|(known, _)| known == name).map(|(_, at)| *at),
                        decisions: vec![decision.decision_id],
                    }),
                }
            }
        }
        owed
    }
}

/// Something that a run owed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwedObligation {
    /// Its name.
    pub name: String,
    /// When it was fulfilled, if it was.
    pub fulfilled_at: Option<Timestamp>,
    /// The decisions that imposed it.
    pub decisions: Vec<DecisionId>,
}

/// A document of evidence with what it says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArtifactDocument {
    /// Which document.
    pub artifact: ArtifactRow,
    /// Codes, counts and digests.
    pub body: Map<String, Value>,
    /// What people and models said, while it is kept.
    pub payload: Option<Value>,
    /// Whether that is kept from this reader.
    pub payload_withheld: bool,
}
