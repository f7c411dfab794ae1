//! Verification summaries of releases: whether a release may be deployed, by the facts of the audit log about it.
//!
//! The predicate has the fields of a SLSA verification summary (`https://slsa.dev/spec/v1.1/verification_summary`), which
//! pipelines can gate on, and one field of Fairway with the facts, their proofs and the contents.

use super::{BundledRelease, ProvenFact, STATEMENT_TYPE, Statement, StatementSubject};
use crate::{
    asset::canonical::Checksum,
    id::{ReleaseId, TenantId, WorkspaceId},
    slug::Slug,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The type of verification summaries.
pub const SUMMARY_PREDICATE: &str = "https://slsa.dev/verification_summary/v1";
/// The identity of the rules of this module.
pub const VERIFIER_ID: &str = "https://fairway.invalid/verifiers/release/v1";
/// The name of the digest algorithm of a release: BLAKE3 over the text that reviewers approve.
pub const RELEASE_DIGEST_NAME: &str = "blake3";
/// The level of a release that passed.
const APPROVED_LEVEL: &str = "FAIRWAY_RELEASE_APPROVED";
/// The level of a release that failed, as SLSA spells it.
const FAILED_LEVEL: &str = "FAILED";

/// A statement about a release, whose subject is the digest that reviewers approve.
pub type ReleaseStatement = Statement<ReleasePredicate>;

/// The result of a verification, as SLSA spells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SummaryResult {
    /// The release was approved with these bindings, and no later fact about it takes that back.
    Passed,
    /// The release was not approved with these bindings, or a later fact takes the approval back.
    Failed,
}

impl SummaryResult {
    /// The spelling in the file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "PASSED",
            Self::Failed => "FAILED",
        }
    }

    /// The levels that the result attests.
    #[must_use]
    pub fn levels(self) -> Vec<String> {
        let level = match self {
            Self::Passed => APPROVED_LEVEL,
            Self::Failed => FAILED_LEVEL,
        };
        vec![level.to_owned()]
    }
}

/// The verifier of a summary.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummaryVerifier {
    /// [`VERIFIER_ID`].
    pub id: String,
}

/// The policy of a summary.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummaryPolicy {
    /// The settings of the environment, which say how many people approve.
    pub uri: String,
}

/// What a summary states about a release.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ReleasePredicate {
    /// The verifier.
    pub verifier: SummaryVerifier,
    /// When the newest fact behind the result occurred, so that equal logs give equal summaries.
    pub time_verified: String,
    /// The release.
    pub resource_uri: String,
    /// The policy.
    pub policy: SummaryPolicy,
    /// The result.
    pub verification_result: SummaryResult,
    /// The levels that the result attests.
    pub verified_levels: Vec<String>,
    /// The chain behind the result. Consumers of plain summaries ignore it.
    #[serde(rename = "https://fairway.invalid/evidence/release/v1")]
    pub chain: ReleaseChain,
}

/// The facts and contents behind a summary.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseChain {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The release.
    pub release_id: ReleaseId,
    /// The approved text and the contents.
    pub release: BundledRelease,
    /// Facts about the release, by index.
    pub facts: Vec<ProvenFact>,
    /// The checkpoint that the facts are proven against: a signed note.
    pub checkpoint: String,
}

/// Where a release belongs.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseLocation<'r> {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The environment.
    pub environment: &'r Slug,
}

impl Statement<ReleasePredicate> {
    /// Summarizes a release by the facts of its chain.
    #[must_use]
    pub fn summarize(chain: ReleaseChain, place: ReleaseLocation<'_>) -> Self {
        let history = ReleaseHistory::of(chain.facts.iter().map(|fact| fact.body.as_bytes()), chain.release_id);
        let result = history.result(&Checksum::blake3_of(chain.release.digest_text.as_bytes()));
        let tenant = chain.tenant_id;
        let (workspace, environment) = (place.workspace_id, place.environment);
        Self {
            statement_type: STATEMENT_TYPE.to_owned(),
            subject: vec![subject_of(&chain)],
            predicate_type: SUMMARY_PREDICATE.to_owned(),
            predicate: ReleasePredicate {
                verifier: SummaryVerifier { id: VERIFIER_ID.to_owned() },
                time_verified: history.occurred_at.clone(),
                resource_uri: resource_uri(&chain),
                policy: SummaryPolicy {
                    uri: format!("fairway:tenants/{tenant}/workspaces/{workspace}/environments/{environment}/settings"),
                },
                verification_result: result,
                verified_levels: result.levels(),
                chain,
            },
        }
    }
}

/// The address of a release for consumers, without a host: an installation may have several.
pub(super) fn resource_uri(chain: &ReleaseChain) -> String {
    format!("fairway:tenants/{}/releases/{}", chain.tenant_id, chain.release_id)
}

/// The subject of a summary.
pub(super) fn subject_of(chain: &ReleaseChain) -> StatementSubject {
    let digest = Checksum::blake3_of(chain.release.digest_text.as_bytes());
    let hex = digest.as_str().strip_prefix("blake3:").unwrap_or_default().to_owned();
    StatementSubject {
        name: format!("releases/{}", chain.release_id),
        digest: BTreeMap::from([(RELEASE_DIGEST_NAME.to_owned(), hex)]),
    }
}

/// What the facts of a log say about a release.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReleaseHistory {
    /// The state that the last fact leaves; empty without a fact.
    pub state: String,
    /// When the last fact occurred; empty without a fact.
    pub occurred_at: String,
    /// The digest of the last transition.
    digest: String,
    /// Whether a rollback took the last activation back.
    is_rolled_back: bool,
}

impl ReleaseHistory {
    /// Reads the facts about a release, which are in order.
    pub fn of<'b>(facts: impl Iterator<Item = &'b [u8]>, release: ReleaseId) -> Self {
        let release = release.to_string();
        facts.fold(Self::default(), |history, fact| {
            let body: Value = serde_json::from_slice(fact).unwrap_or_default();
            let text = |pointer| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let is_origin = text("/kind") == "use_case.published"
                && text("/detail/release_id") == release
                && body.pointer("/detail/made") == Some(&Value::Bool(true));
            // The publication of a use case drafts its release.
            if is_origin {
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

    /// The result for bindings with this digest.
    #[must_use]
    pub fn result(&self, digest: &Checksum) -> SummaryResult {
        let is_approved = matches!(self.state.as_str(), "approved" | "active") && self.digest == digest.as_str();
        if is_approved && !self.is_rolled_back { SummaryResult::Passed } else { SummaryResult::Failed }
    }
}
