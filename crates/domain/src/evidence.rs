//! Evidence of a run: its governance chain, policy decisions and artifacts, as they were when the run was executed.

pub mod bundle;
pub mod graph;
pub mod lineage;
pub mod run_records;

use crate::{
    asset::artifact_store::ArtifactPath,
    erasure::CoveringErasure,
    execution::{Execution, Payload},
    id::{ApprovalId, ArtifactId, AssetId, AssetVersionId, DecisionId, ReleaseId, WorkloadId},
    policy::{DecisionOutcome, FailedRule, PolicyDecision},
    release::{Release, frozen_reference::FrozenReference, review::ReleaseVerdict},
    time::Timestamp,
    workload::Workload,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The governance chain of a release: release, workload, bindings, references and approvals. It is a snapshot, so later
/// changes of owner, slug or state do not alter it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GovernanceChain {
    /// The release that the run executed.
    pub release: ChainRelease,
    /// The workload of the release.
    pub workload: ChainWorkload,
    /// The versions that the release binds, each with its role.
    pub bindings: Vec<ChainVersion>,
    /// The versions that bound contents reference. Each version occurs once, with its asset kind as role. Chains of
    /// older versions of Fairway contain no references.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<ChainVersion>,
    /// The approvals of the release.
    pub approvals: Vec<ChainApproval>,
}

/// The release in a governance chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainRelease {
    /// The identifier of the release.
    pub release_id: ReleaseId,
    /// The environment of the release.
    pub environment: String,
    /// The state of the release when the snapshot was made.
    pub lifecycle_state: String,
}

/// The workload in a governance chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainWorkload {
    /// The identifier of the workload.
    pub workload_id: WorkloadId,
    /// The slug of the workload.
    pub slug: String,
    /// The owner of the workload at the time of the snapshot.
    pub owner_ref: String,
}

/// One bound or referenced version in a governance chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainVersion {
    /// The role of a binding, or the asset kind of a referenced version.
    pub role: String,
    /// The bound or referenced version.
    pub asset_version_id: AssetVersionId,
    /// The slug of the version's asset.
    pub asset_slug: String,
}

/// One approval in a governance chain. Its note is stored separately, so that it can be erased.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainApproval {
    /// The identifier of the approval.
    pub approval_id: ApprovalId,
    /// The actor who approved the release.
    pub approved_by: String,
    /// When the release was approved.
    pub approved_at: Timestamp,
}

/// The BLAKE3 digest of a governance chain's canonical JSON.
pub type SnapshotDigest = [u8; 32];

/// A governance chain in stored form. All runs of the same release state share it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvidenceSnapshot {
    /// The digest by which runs refer to the governance chain.
    pub digest: SnapshotDigest,
    /// The canonical JSON of the governance chain.
    pub body: String,
}

impl GovernanceChain {
    /// The governance chain of a release and its workload.
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
                .map(|binding| ChainVersion {
                    role: binding.role.as_str().to_owned(),
                    asset_version_id: binding.asset_version_id,
                    asset_slug: binding.asset_slug.to_string(),
                })
                .collect(),
            references: release
                .references
                .iter()
                .filter(is_new)
                .map(|reference| ChainVersion {
                    role: reference.kind.as_str().to_owned(),
                    asset_version_id: reference.asset_version_id,
                    asset_slug: reference.slug.to_string(),
                })
                .collect(),
            approvals: release
                .approvals
                .iter()
                .filter(|approval| approval.verdict == ReleaseVerdict::Approved && approval.subject_digest == digest)
                .map(|approval| ChainApproval {
                    approval_id: approval.approval_id,
                    approved_by: approval.by.to_string(),
                    approved_at: approval.at,
                })
                .collect(),
        }
    }

    /// Converts the governance chain to its stored form.
    #[must_use]
    pub fn to_snapshot(&self) -> EvidenceSnapshot {
        // A governance chain contains only strings, identifiers and times, which always have a canonical form.
        let body = serde_json_canonicalizer::to_string(self).unwrap_or_default();
        EvidenceSnapshot { digest: blake3::hash(body.as_bytes()).into(), body }
    }
}

/// A policy decision of a run, as the store keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedDecision {
    /// The identifier of the decision.
    pub decision_id: DecisionId,
    /// Whether the policy allowed or denied the run, or allowed it with obligations.
    pub outcome: DecisionOutcome,
    /// The reason code of the deciding rule.
    pub reason_code: String,
    /// The names of the obligations that the decision imposes.
    pub obligations: Vec<String>,
    /// The identifiers of the rules that matched.
    pub rules: Vec<String>,
    /// The rules that could not be evaluated, each with the reason.
    pub failed_rules: Vec<FailedRule>,
    /// When the policy was evaluated.
    pub evaluated_at: Timestamp,
}

impl RecordedDecision {
    /// Converts a policy decision to its stored form.
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

/// The kind of the evidence artifact for a model call: its route, attempts, tokens and cost.
pub const PROVIDER_CALL: &str = "provider_call";

/// The kind of the evidence artifact for a knowledge base query. The text of the query is its payload.
pub const RETRIEVAL_EVENT: &str = "retrieval_event";

/// A document about a part of a run, such as a model call. Its body contains only codes, counts and digests. Texts are
/// a separate payload, so that they can be erased.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvidenceArtifact {
    /// The identifier of the artifact.
    pub artifact_id: ArtifactId,
    /// The kind of the artifact, such as `provider_call`.
    pub kind: &'static str,
    /// A path that names the artifact in responses. The artifact store has no object at this path.
    pub storage_ref: ArtifactPath,
    /// The body of the artifact: codes, counts and digests.
    pub body: Map<String, Value>,
    /// The texts of the model call, tool call or query that the artifact describes, if any.
    pub payload: Option<Payload>,
    /// When the artifact was created.
    pub created_at: Timestamp,
}

impl EvidenceArtifact {
    /// The body as the JSON text that is stored.
    #[must_use]
    pub fn body_text(&self) -> String {
        // Serialization of a JSON object cannot fail.
        serde_json::to_string(&self.body).unwrap_or_default()
    }
}

/// An evidence artifact as read from the store, without its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredEvidenceArtifact {
    /// The identifier of the artifact.
    pub artifact_id: ArtifactId,
    /// The kind of the artifact, such as `provider_call`.
    pub artifact_kind: String,
    /// The stored body: a JSON object of codes, counts and digests.
    pub body: String,
}

/// All stored evidence of one run, as one reader may see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunEvidence {
    /// The stored run to which the evidence belongs.
    pub execution: Execution,
    /// The governance chain under which the run was executed.
    pub chain: GovernanceChain,
    /// The salted BLAKE3 digest of the run's inputs.
    pub input_digest: [u8; 32],
    /// The salted BLAKE3 digest of the run's answer; `None` without an answer.
    pub output_digest: Option<[u8; 32]>,
    /// The erasure that removed the texts of the run, if any.
    pub erasure: Option<CoveringErasure>,
    /// Every policy decision of the run, oldest first.
    pub decisions: Vec<RecordedDecision>,
    /// The names of the fulfilled obligations, each with the time of its fulfilment.
    pub fulfilled: Vec<(String, Timestamp)>,
    /// The evidence artifacts of the run, oldest first.
    pub artifacts: Vec<EvidenceArtifactRow>,
    /// The knowledge base queries of the run, oldest first. Each is one of the evidence artifacts.
    pub retrievals: Vec<RetrievalRow>,
    /// Whether an approval of the release has a note.
    pub has_notes: bool,
    /// The notes of approvals that are still stored and that the reader may see. The caller loads them after the
    /// record.
    pub notes: Vec<(ApprovalId, String)>,
    /// Whether notes and query texts are hidden from this reader.
    pub notes_withheld: bool,
}

/// An evidence artifact in a list, without its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvidenceArtifactRow {
    /// The identifier of the artifact.
    pub artifact_id: ArtifactId,
    /// The kind of the artifact, such as `provider_call`.
    pub artifact_kind: String,
    /// A path that names the artifact in responses. The artifact store has no object at this path.
    pub storage_ref: String,
    /// When the artifact was created.
    pub created_at: Timestamp,
}

/// A knowledge base query of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetrievalRow {
    /// The evidence artifact that records the query.
    pub artifact_id: ArtifactId,
    /// The asset of the queried knowledge base.
    pub asset: AssetId,
    /// The query text, if it is still stored and the reader may see it.
    pub query: Option<String>,
    /// The number of chunks that the query retrieved.
    pub chunks: u32,
    /// When the query was made.
    pub at: Timestamp,
}

impl RunEvidence {
    /// The strictest policy decision of the run. Among equally strict decisions, the latest one counts, because it was
    /// made with the most complete input.
    #[must_use]
    pub fn strictest_decision(&self) -> Option<&RecordedDecision> {
        self.decisions.iter().max_by_key(|decision| decision.outcome)
    }

    /// The obligations that any decision of the run imposed, even if a later decision denied the run.
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

/// An obligation that policy decisions imposed on a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImposedObligation {
    /// The name of the obligation, such as `redact_output`.
    pub name: String,
    /// When the obligation was fulfilled; `None` while it is unfulfilled.
    pub fulfilled_at: Option<Timestamp>,
    /// The policy decisions that imposed the obligation.
    pub decisions: Vec<DecisionId>,
}

/// An evidence artifact with its body and payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvidenceArtifactWithContent {
    /// The artifact without its content.
    pub artifact: EvidenceArtifactRow,
    /// The body of the artifact: codes, counts and digests.
    pub body: Map<String, Value>,
    /// The payload; `None` if it was erased, never existed or is hidden from this reader.
    pub payload: Option<Value>,
    /// Whether the payload is hidden from this reader.
    pub payload_withheld: bool,
}
