//! The report of the verification of a bundle.

use serde::Serialize;

/// The verdict of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// The checked condition is true.
    Passed,
    /// The checked condition is false.
    Failed,
    /// The bundle omits the data that the check requires. This is not a failure.
    NotIncluded,
}

/// One check of a verification.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BundleCheck {
    /// The name of the check.
    pub name: &'static str,
    /// The part of the bundle, such as a version or a fact; empty for the whole bundle.
    pub part: String,
    /// The expected value.
    pub expected: String,
    /// The actual value.
    pub actual: String,
    /// The verdict.
    pub verdict: CheckVerdict,
}

/// The type of a bundle's subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum BundleKind {
    /// A run.
    #[default]
    Execution,
    /// A release.
    Release,
}

/// The result of a verification.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Default)]
pub struct BundleReport {
    /// The type of the bundle's subject.
    pub kind: BundleKind,
    /// All checks, in the order of the chain.
    pub checks: Vec<BundleCheck>,
    /// Whether the checkpoint is consistent with a second checkpoint from another source.
    pub has_one_history: bool,
    /// Whether the verifier requires cosignatures.
    pub is_witnessed: bool,
    /// Whether facts of the log contain the digest of the run's records.
    pub has_named_records: bool,
    /// Whether a new evaluation of the policy, for an input that the verifier supplied, has the recorded result.
    pub has_decided_again: bool,
}

/// Statements that the bundle of a run proves if all checks pass.
const PROVEN: [&str; 5] = [
    "the holder of the given key stated this evidence",
    "the run's end, with the digests of its input and output, is in the audit log at the given index",
    "the log says that the release of the run was approved with these bindings before the run ended",
    "the bytes of the included versions are those that the approved digest names",
    "the facts are part of the log that the checkpoint signs",
];

/// Statements that a release summary proves if all checks pass.
const PROVEN_OF_RELEASES: [&str; 4] = [
    "the holder of the given key stated this result",
    "the result follows from the facts about the release in the audit log, up to the checkpoint",
    "the bytes of the included versions are those that the approved digest names",
    "the facts are part of the log that the checkpoint signs",
];

/// The statement that is proven if facts of the log contain the digest of the records.
const RECORDS_NAMED: &str = "the policy decisions, the evidence documents and the digests of all that the steps read are those that the log names";
/// The statement that a consistent second checkpoint proves.
const ONE_HISTORY: &str = "the log of the bundle and the log of the second checkpoint have one history";
/// The statement that the required cosignatures prove.
const WITNESSED: &str = "the given witnesses saw this checkpoint, and no other history of the log";

/// The statement that a new policy decision for a supplied input proves.
const DECIDED_AGAIN: &str = "the included policy decides the same for the given input, which the bundle does not name";

/// Statements that a release summary never proves.
const NOT_PROVEN_OF_RELEASES: [&str; 4] = [
    "that the log has one history for everybody: compare the checkpoint with one from another source",
    "that no fact about the release was left out, or followed the checkpoint: fetch a new summary before a deployment",
    "that the release holds a lane now: another release may have replaced it",
    "that the people behind the named actors acted themselves",
];

/// Statements that the bundle of a run never proves.
const NOT_PROVEN: [&str; 7] = [
    "that the log has one history for everybody: compare the checkpoint with one from another source",
    "that no fact about the run was left out, or followed the checkpoint",
    "the text of inputs and outputs: their digests are salted, and the salts are not included",
    "who submitted the run, on behalf of whom, its lane and its status: the signature alone covers them",
    "fulfilments of obligations, rules without a result, and times besides those of the facts: the signature alone covers them",
    "that the policy decides the same again: the inputs of the decision are included as digests alone",
    "that the people behind the named actors acted themselves",
];

/// A further statement that the bundle does not prove if the process of the run ended before storing the records.
const RECORDS_NOT_NAMED: &str =
    "policy decisions, obligations, retrievals and documents beyond the signature: no fact of the run names them";

impl BundleReport {
    /// Whether the verification passed: there are checks, and none of them failed.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|check| check.verdict != CheckVerdict::Failed)
    }

    /// The statements that the bundle proves; empty if a check failed.
    #[must_use]
    pub fn proven_statements(&self) -> Vec<&'static str> {
        if !self.has_passed() {
            return Vec::new();
        }
        let chain = match self.kind {
            BundleKind::Execution => PROVEN.as_slice(),
            BundleKind::Release => PROVEN_OF_RELEASES.as_slice(),
        };
        let records = self.has_named_records.then_some(RECORDS_NAMED);
        let one_history = self.has_one_history.then_some(ONE_HISTORY);
        let witnessed = self.is_witnessed.then_some(WITNESSED);
        let decided = self.has_decided_again.then_some(DECIDED_AGAIN);
        chain.iter().copied().chain(records).chain(one_history).chain(witnessed).chain(decided).collect()
    }

    /// The statements that this bundle does not prove, as texts for people.
    #[must_use]
    pub fn limitations(&self) -> Vec<&'static str> {
        let unnamed = (!self.has_named_records).then_some(RECORDS_NOT_NAMED);
        match self.kind {
            BundleKind::Execution => NOT_PROVEN.into_iter().chain(unnamed).collect(),
            BundleKind::Release => NOT_PROVEN_OF_RELEASES.to_vec(),
        }
    }

    /// Adds a check that passes if `expected` and `actual` are equal. Returns whether it passed.
    pub(super) fn compare(
        &mut self,
        name: &'static str,
        part: impl Into<String>,
        expected: impl Into<String>,
        actual: impl Into<String>,
    ) -> bool {
        let (expected, actual) = (expected.into(), actual.into());
        let verdict = if expected == actual { CheckVerdict::Passed } else { CheckVerdict::Failed };
        self.checks.push(BundleCheck { name, part: part.into(), expected, actual, verdict });
        verdict == CheckVerdict::Passed
    }

    /// Adds a check that passes if `holds` is true. Returns whether it passed.
    pub(super) fn require(
        &mut self,
        name: &'static str,
        part: impl Into<String>,
        expected: impl Into<String>,
        actual: impl Into<String>,
        holds: bool,
    ) -> bool {
        let verdict = if holds { CheckVerdict::Passed } else { CheckVerdict::Failed };
        let (part, expected, actual) = (part.into(), expected.into(), actual.into());
        self.checks.push(BundleCheck { name, part, expected, actual, verdict });
        holds
    }

    /// Adds a check that is impossible because the bundle omits the data.
    pub(super) fn skip(&mut self, name: &'static str, part: impl Into<String>, expected: impl Into<String>) {
        self.checks.push(BundleCheck {
            name,
            part: part.into(),
            expected: expected.into(),
            actual: "not included".to_owned(),
            verdict: CheckVerdict::NotIncluded,
        });
    }
}
