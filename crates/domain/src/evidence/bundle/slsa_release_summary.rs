//! Verification summaries of releases. A summary states whether a release may be deployed. That result follows from the
//! facts about the release in the audit log.
//!
//! The predicate has the fields of a SLSA verification summary (`https://slsa.dev/spec/v1.1/verification_summary`), so
//! deployment pipelines can require it. One further field contains the facts, their proofs and the contents.

use super::{BundledRelease, ProvenFact, STATEMENT_TYPE, Statement, StatementSubject};
use crate::{
    asset::canonical::Checksum,
    id::{ReleaseId, TenantId, WorkspaceId},
    slug::Slug,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The predicate type of SLSA verification summaries.
pub const SUMMARY_PREDICATE_TYPE: &str = "https://slsa.dev/verification_summary/v1";
/// The identifier that names the rules of this module as the verifier of a summary.
pub const VERIFIER_ID: &str = "https://fairway.invalid/verifiers/release/v1";
/// The name of the digest algorithm for a release: BLAKE3 over the text that reviewers approve.
pub const RELEASE_DIGEST_ALGORITHM: &str = "blake3";
/// The level that a summary attests for an approved release.
const APPROVED_LEVEL: &str = "FAIRWAY_RELEASE_APPROVED";
/// The level in a summary of a release that is not approved, as SLSA spells it.
const FAILED_LEVEL: &str = "FAILED";

/// A statement about a release. Its subject is the digest that reviewers approve.
pub type ReleaseStatement = Statement<ReleasePredicate>;

/// The result of a summary, as SLSA spells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SummaryResult {
    /// The release was approved with these bindings, and no later fact revoked the approval.
    Passed,
    /// The release was not approved with these bindings, or a later fact revoked the approval.
    Failed,
}

impl SummaryResult {
    /// The text of the result in a summary, such as `PASSED`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "PASSED",
            Self::Failed => "FAILED",
        }
    }

    /// The levels that a summary with this result attests.
    #[must_use]
    pub fn verified_levels(self) -> Vec<String> {
        let level = match self {
            Self::Passed => APPROVED_LEVEL,
            Self::Failed => FAILED_LEVEL,
        };
        vec![level.to_owned()]
    }
}

/// The verifier that a summary names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummaryVerifier {
    /// The identifier of the verifier: [`VERIFIER_ID`].
    pub id: String,
}

/// The policy that a summary names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummaryPolicy {
    /// The URI of the settings of the release's environment, which contain the number of required approvals.
    pub uri: String,
}

/// The content of a statement about a release: a SLSA verification summary.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ReleasePredicate {
    /// The verifier that derived the result.
    pub verifier: SummaryVerifier,
    /// The time of the newest fact about the release, so that equal logs lead to equal summaries.
    pub time_verified: String,
    /// The URI that identifies the release.
    pub resource_uri: String,
    /// The policy by which the release was verified.
    pub policy: SummaryPolicy,
    /// Whether the release may be deployed.
    pub verification_result: SummaryResult,
    /// The levels that the summary attests.
    pub verified_levels: Vec<String>,
    /// The evidence from which the result follows. Consumers of plain SLSA summaries ignore this field.
    #[serde(rename = "https://fairway.invalid/evidence/release/v1")]
    pub evidence: ReleaseSummaryEvidence,
}

/// The facts and contents from which the result of a summary follows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseSummaryEvidence {
    /// The tenant to which the release belongs.
    pub tenant_id: TenantId,
    /// The release that the summary is about.
    pub release_id: ReleaseId,
    /// The text that reviewers approve, and the contents of the bound versions.
    pub release: BundledRelease,
    /// The facts about the release, ordered by their index in the audit log.
    pub facts: Vec<ProvenFact>,
    /// The checkpoint of the audit log as a signed note. The inclusion proofs of the facts lead to its root.
    pub checkpoint: String,
}

/// The workspace and the environment of a release, which the policy URI of its summary names.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseLocation<'r> {
    /// The workspace to which the release belongs.
    pub workspace_id: WorkspaceId,
    /// The environment in which the release serves.
    pub environment: &'r Slug,
}

impl Statement<ReleasePredicate> {
    /// Derives the summary of a release from the facts in its evidence.
    #[must_use]
    pub fn from_evidence(evidence: ReleaseSummaryEvidence, location: ReleaseLocation<'_>) -> Self {
        let history =
            LoggedReleaseState::from_facts(evidence.facts.iter().map(|fact| fact.body.as_bytes()), evidence.release_id);
        let result = history.result(&Checksum::blake3_of(evidence.release.digest_text.as_bytes()));
        let tenant = evidence.tenant_id;
        let (workspace, environment) = (location.workspace_id, location.environment);
        Self {
            statement_type: STATEMENT_TYPE.to_owned(),
            subject: vec![subject_of(&evidence)],
            predicate_type: SUMMARY_PREDICATE_TYPE.to_owned(),
            predicate: ReleasePredicate {
                verifier: SummaryVerifier { id: VERIFIER_ID.to_owned() },
                time_verified: history.occurred_at.clone(),
                resource_uri: resource_uri(&evidence),
                policy: SummaryPolicy {
                    uri: format!("fairway:tenants/{tenant}/workspaces/{workspace}/environments/{environment}/settings"),
                },
                verification_result: result,
                verified_levels: result.verified_levels(),
                evidence,
            },
        }
    }
}

/// The URI that identifies a release. It contains no host, because an installation can have several hosts.
pub(super) fn resource_uri(evidence: &ReleaseSummaryEvidence) -> String {
    format!("fairway:tenants/{}/releases/{}", evidence.tenant_id, evidence.release_id)
}

/// The subject of a summary: the release, with the digest that reviewers approve.
pub(super) fn subject_of(evidence: &ReleaseSummaryEvidence) -> StatementSubject {
    let digest = Checksum::blake3_of(evidence.release.digest_text.as_bytes());
    let hex = digest.as_str().strip_prefix("blake3:").unwrap_or_default().to_owned();
    StatementSubject {
        name: format!("releases/{}", evidence.release_id),
        digest: BTreeMap::from([(RELEASE_DIGEST_ALGORITHM.to_owned(), hex)]),
    }
}

/// The state of a release, as the facts in the audit log describe it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoggedReleaseState {
    /// The state after the newest fact; empty without a fact.
    pub state: String,
    /// The time of the newest fact; empty without a fact.
    pub occurred_at: String,
    /// The bindings digest in the fact of the newest transition.
    digest: String,
    /// Whether the release was rolled back after its last activation.
    is_rolled_back: bool,
}

impl LoggedReleaseState {
    /// Derives the state from facts in the order of the log. It ignores facts about other releases.
    pub fn from_facts<'b>(facts: impl Iterator<Item = &'b [u8]>, release: ReleaseId) -> Self {
        let release = release.to_string();
        facts.fold(Self::default(), |history, fact| {
            let body: Value = serde_json::from_slice(fact).unwrap_or_default();
            let text = |pointer| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let is_publication = text("/kind") == "use_case.published"
                && text("/detail/release_id") == release
                && body.pointer("/detail/made") == Some(&Value::Bool(true));
            // The publication of a use case also creates the draft of its release.
            if is_publication {
                return Self {
                    state: "draft".to_owned(),
                    occurred_at: text("/occurred_at").to_owned(),
                    ..Self::default()
                };
            }
            if text("/subject/kind") != "release" || text("/subject/id") != release {
                return history;
            }
            let history = Self { occurred_at: text("/occurred_at").to_owned(), ..history };
            match text("/kind") {
                "release.created" => Self { state: "draft".to_owned(), ..history },
                "release.transitioned" => Self {
                    state: text("/detail/to").to_owned(),
                    digest: text("/detail/bindings_digest").to_owned(),
                    is_rolled_back: false,
                    ..history
                },
                "release.reviewed" => Self { state: text("/detail/state").to_owned(), ..history },
                "release.rolled_back" => Self { state: text("/detail/to").to_owned(), is_rolled_back: true, ..history },
                _ => history,
            }
        })
    }

    /// The result of a summary for bindings with this digest.
    #[must_use]
    pub fn result(&self, digest: &Checksum) -> SummaryResult {
        let is_approved = matches!(self.state.as_str(), "approved" | "active") && self.digest == digest.as_str();
        if is_approved && !self.is_rolled_back { SummaryResult::Passed } else { SummaryResult::Failed }
    }
}
