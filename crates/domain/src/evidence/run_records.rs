//! The records of a run. A fact in the audit log contains their digest, so a verifier detects every later change of a
//! record.

use super::{
    EvidenceArtifact, RecordedDecision, StoredEvidenceArtifact,
    lineage::{LineageItem, LineageRow},
};
use crate::{
    asset::canonical::Checksum,
    audit::Fact,
    execution::format_digest,
    id::{ArtifactId, DecisionId, LineageId},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The kinds of artifacts that record a person's decision on a run. Each such decision has its own fact, which contains
/// the digest of its artifact.
const OWN_FACT_KINDS: [&str; 2] = ["review", "settlement"];

/// The member of a fact's detail that contains the digest of the records.
pub const RECORDS_DIGEST_MEMBER: &str = "evidence_digest";

/// The member of the fact of a run's end that is true if a review was requested before the end.
pub const REVIEW_REQUESTED_MEMBER: &str = "review_asked";

/// The policy decisions, evidence artifacts and lineage of a run, with the members that the evidence response contains.
///
/// INVARIANT: the members are declared in alphabetical order and numbers are integers, so the serialized form is
/// canonical JSON.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecords {
    /// The evidence artifacts, ordered by identifier.
    pub artifacts: Vec<ArtifactEntry>,
    /// The policy decisions, ordered by identifier.
    pub decisions: Vec<DecisionEntry>,
    /// The items that the steps read, ordered by identifier.
    pub lineage: Vec<LineageEntry>,
}

/// An evidence artifact in the records of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactEntry {
    /// The identifier of the evidence artifact.
    pub artifact_id: ArtifactId,
    /// The kind of the artifact, such as `provider_call`.
    pub artifact_kind: String,
    /// The checksum of the artifact's stored body.
    pub digest: Checksum,
}

/// A policy decision in the records of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionEntry {
    /// The identifier of the policy decision.
    pub decision_id: DecisionId,
    /// The names of the obligations that the decision imposed.
    pub obligations: Vec<String>,
    /// The wire form of the decision's outcome, such as `deny`.
    pub outcome: String,
    /// The reason code of the deciding rule.
    pub reason_code: String,
    /// The identifiers of the rules that matched.
    pub rules: Vec<String>,
}

/// An item that a step read, in the records of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineageEntry {
    /// The wire form of the use that the step made of the item, such as `read`.
    pub action_class: String,
    /// The checksum of an asset version or a retrieved text; a salted digest for any other item.
    pub digest: String,
    /// The role of the item in the step.
    pub influence_role: String,
    /// The identifier of the item.
    pub lineage_id: LineageId,
    /// The wire form of the item's origin, such as `user_input`.
    pub origin: String,
    /// The name of the item, such as `inputs` or a version.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The length of the item, in bytes.
    pub size_bytes: u64,
}

impl RunRecords {
    /// The records of a run at a commit: those that the commit stores, and those that earlier commits stored.
    #[must_use]
    pub fn for_commit<D: Into<DecisionEntry>>(
        decisions: impl IntoIterator<Item = D>,
        artifacts: &[EvidenceArtifact],
        lineage: &[LineageItem],
    ) -> Self {
        let decisions = decisions.into_iter().map(Into::into).collect();
        let artifacts = artifacts.iter().map(ArtifactEntry::of_artifact).collect();
        Self::sorted(artifacts, decisions, lineage.iter().map(LineageEntry::of_item).collect())
    }

    /// The records of a person's decision on a run, which consist of one artifact.
    #[must_use]
    pub fn of_artifact(artifact: &EvidenceArtifact) -> Self {
        Self { artifacts: vec![ArtifactEntry::of_artifact(artifact)], ..Self::default() }
    }

    /// Groups the stored records of a run by the fact that contains their digest. The first group contains the run's
    /// own records, if the first fact that closed the run contains a digest (`has_run_digest`). Each further group
    /// contains the record of one person's decision.
    #[must_use]
    pub fn group_stored_by_fact(
        has_run_digest: bool,
        decisions: &[RecordedDecision],
        documents: &[StoredEvidenceArtifact],
        lineage: &[LineageRow],
    ) -> Vec<Self> {
        let has_own_fact =
            |document: &&StoredEvidenceArtifact| OWN_FACT_KINDS.contains(&document.artifact_kind.as_str());
        let run = has_run_digest.then(|| {
            let documents = documents.iter().filter(|document| !has_own_fact(document));
            let artifacts = documents.map(ArtifactEntry::of_document).collect();
            let lineage = lineage.iter().map(LineageEntry::of_row).collect();
            Self::sorted(artifacts, decisions.iter().map(Into::into).collect(), lineage)
        });
        let decision_records = documents.iter().filter(has_own_fact);
        let decision_records = decision_records
            .map(|document| Self { artifacts: vec![ArtifactEntry::of_document(document)], ..Self::default() });
        run.into_iter().chain(decision_records).collect()
    }

    /// Sorts the records by identifier. The process that executes a run and the readers of its evidence see them in
    /// different orders.
    fn sorted(
        mut artifacts: Vec<ArtifactEntry>,
        mut decisions: Vec<DecisionEntry>,
        mut lineage: Vec<LineageEntry>,
    ) -> Self {
        artifacts.sort_unstable_by_key(|entry| entry.artifact_id);
        decisions.sort_unstable_by_key(|entry| entry.decision_id);
        lineage.sort_unstable_by_key(|entry| entry.lineage_id);
        Self { artifacts, decisions, lineage }
    }

    /// Whether the run has no records.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.artifacts.is_empty() && self.decisions.is_empty() && self.lineage.is_empty()
    }

    /// The canonical JSON of the records, which their digest covers.
    #[must_use]
    pub fn to_text(&self) -> String {
        // The records contain only strings, integers and lists, whose serialization cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The digest that a fact about the run contains.
    #[must_use]
    pub fn digest(&self) -> Checksum {
        Checksum::blake3_of(self.to_text().as_bytes())
    }
}

impl Fact {
    /// Adds the digest of a run's records to a fact about the run. The records are those that the fact's commit stores
    /// and those of earlier commits.
    #[must_use]
    pub fn with_records_digest(self, records: &RunRecords) -> Self {
        if records.is_empty() { self } else { self.merge_detail(json!({ RECORDS_DIGEST_MEMBER: records.digest() })) }
    }
}

impl ArtifactEntry {
    fn of_artifact(artifact: &EvidenceArtifact) -> Self {
        Self {
            artifact_id: artifact.artifact_id,
            artifact_kind: artifact.kind.to_owned(),
            digest: Checksum::blake3_of(artifact.body_text().as_bytes()),
        }
    }

    fn of_document(document: &StoredEvidenceArtifact) -> Self {
        Self {
            artifact_id: document.artifact_id,
            artifact_kind: document.artifact_kind.clone(),
            digest: Checksum::blake3_of(document.body.as_bytes()),
        }
    }
}

impl From<&RecordedDecision> for DecisionEntry {
    fn from(decision: &RecordedDecision) -> Self {
        Self {
            decision_id: decision.decision_id,
            obligations: decision.obligations.clone(),
            outcome: decision.outcome.as_str().to_owned(),
            reason_code: decision.reason_code.clone(),
            rules: decision.rules.clone(),
        }
    }
}

impl LineageEntry {
    fn of_item(item: &LineageItem) -> Self {
        Self {
            action_class: item.action_class.as_str().to_owned(),
            digest: format_digest(&item.digest),
            influence_role: item.influence_role.as_str().to_owned(),
            lineage_id: item.lineage_id,
            origin: item.origin.as_str().to_owned(),
            reference: item.reference.clone(),
            size_bytes: item.size_bytes,
        }
    }

    fn of_row(row: &LineageRow) -> Self {
        Self {
            action_class: row.action_class.as_str().to_owned(),
            digest: row.digest.clone(),
            influence_role: row.influence_role.as_str().to_owned(),
            lineage_id: row.lineage_id,
            origin: row.origin.as_str().to_owned(),
            reference: row.reference.clone(),
            size_bytes: row.size_bytes,
        }
    }
}
