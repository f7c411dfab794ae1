//! The records of a run that a fact of the log names by one digest, so that no record changes without notice.

use super::{
    EvidenceArtifact, RecordedDecision, StoredDocument,
    lineage::{LineageItem, LineageRow},
};
use crate::{
    asset::canonical::Checksum,
    audit::Fact,
    execution::digest_text,
    id::{ArtifactId, DecisionId, LineageId},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The kinds of artifacts that people's decisions on an ended run store. Each is named by the fact of its decision.
const OWN_FACT_KINDS: [&str; 2] = ["review", "settlement"];

/// The member of a fact's detail that names records.
pub const EVIDENCE_DIGEST_MEMBER: &str = "evidence_digest";

/// The member of the detail of a run's end that says that a review was asked for before.
pub const REVIEW_ASKED_MEMBER: &str = "review_asked";

/// The policy decisions, evidence documents and lineage of a run, each by the members that its evidence shows.
///
/// INVARIANT: members are in alphabetical order and hold no fractions, so that the serialized form is canonical JSON.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecords {
    /// The evidence documents, by identifier.
    pub artifacts: Vec<ArtifactEntry>,
    /// The policy decisions, by identifier.
    pub decisions: Vec<DecisionEntry>,
    /// What the steps read, by identifier.
    pub lineage: Vec<LineageEntry>,
}

/// An evidence document among the records of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactEntry {
    /// Its identifier.
    pub artifact_id: ArtifactId,
    /// Its kind.
    pub artifact_kind: String,
    /// The checksum of its stored text.
    pub digest: Checksum,
}

/// A policy decision among the records of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionEntry {
    /// Its identifier.
    pub decision_id: DecisionId,
    /// The obligations that it imposed.
    pub obligations: Vec<String>,
    /// The outcome.
    pub outcome: String,
    /// The reason code.
    pub reason_code: String,
    /// The rules that matched.
    pub rules: Vec<String>,
}

/// Something that a step read, among the records of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineageEntry {
    /// The step's use of it.
    pub action_class: String,
    /// The checksum of a version or of a retrieved text; otherwise a salted digest.
    pub digest: String,
    /// Its role in the step.
    pub influence_role: String,
    /// Its identifier.
    pub lineage_id: LineageId,
    /// Its origin.
    pub origin: String,
    /// Its name.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Its length in bytes.
    pub size_bytes: u64,
}

impl RunRecords {
    /// The records of a run that are stored with a commit and before.
    #[must_use]
    pub fn to_store<D: Into<DecisionEntry>>(
        decisions: impl IntoIterator<Item = D>,
        artifacts: &[EvidenceArtifact],
        lineage: &[LineageItem],
    ) -> Self {
        let decisions = decisions.into_iter().map(Into::into).collect();
        let artifacts = artifacts.iter().map(ArtifactEntry::of_artifact).collect();
        Self::sorted(artifacts, decisions, lineage.iter().map(LineageEntry::of_item).collect())
    }

    /// The record of a person's decision on a run.
    #[must_use]
    pub fn of_artifact(artifact: &EvidenceArtifact) -> Self {
        Self { artifacts: vec![ArtifactEntry::of_artifact(artifact)], ..Self::default() }
    }

    /// The stored records of a run, as its facts name them: those of the run, if its first closing fact names any, and those
    /// of people's decisions on it.
    #[must_use]
    pub fn stored(
        is_run_named: bool,
        decisions: &[RecordedDecision],
        documents: &[StoredDocument],
        lineage: &[LineageRow],
    ) -> Vec<Self> {
        let has_own_fact = |document: &&StoredDocument| OWN_FACT_KINDS.contains(&document.artifact_kind.as_str());
        let run = is_run_named.then(|| {
            let documents = documents.iter().filter(|document| !has_own_fact(document));
            let artifacts = documents.map(ArtifactEntry::of_document).collect();
            let lineage = lineage.iter().map(LineageEntry::of_row).collect();
            Self::sorted(artifacts, decisions.iter().map(Into::into).collect(), lineage)
        });
        let later = documents.iter().filter(has_own_fact);
        let later =
            later.map(|document| Self { artifacts: vec![ArtifactEntry::of_document(document)], ..Self::default() });
        run.into_iter().chain(later).collect()
    }

    /// Stores run, worker and reader list the records in orders of their own, so the identifiers order them.
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

    /// Whether there is no record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.artifacts.is_empty() && self.decisions.is_empty() && self.lineage.is_empty()
    }

    /// The text that the digest covers: canonical JSON.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Strings, integers and lists always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The digest that a fact names.
    #[must_use]
    pub fn digest(&self) -> Checksum {
        Checksum::blake3_of(self.to_text().as_bytes())
    }
}

impl Fact {
    /// Names the records of the fact's subject, as they are stored with its commit and before.
    #[must_use]
    pub fn naming_records(self, records: &RunRecords) -> Self {
        if records.is_empty() { self } else { self.merge_detail(json!({ EVIDENCE_DIGEST_MEMBER: records.digest() })) }
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

    fn of_document(document: &StoredDocument) -> Self {
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
            digest: digest_text(&item.digest),
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
