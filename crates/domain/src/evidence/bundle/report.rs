//! The report of a verification of a bundle: its checks, and the statements that the bundle proves.

use serde::Serialize;

/// The result of one check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// The checked condition holds.
    Passed,
    /// The checked condition does not hold.
    Failed,
    /// The bundle omits the data that the check needs. This is not a failure.
    NotIncluded,
}

/// One check of a verification, with the expected and the actual value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BundleCheck {
    /// The name of the check, such as `number of documents`.
    pub name: &'static str,
    /// The checked part of the bundle, such as a version or a fact; empty for the whole bundle.
    pub part: String,
    /// The value that the check expects, as text.
    pub expected: String,
    /// The value that the check found, as text.
    pub actual: String,
    /// The result of the check.
    pub verdict: CheckVerdict,
}

/// The kind of thing that a bundle is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum BundleKind {
    /// The bundle is about a run.
    #[default]
    Execution,
    /// The bundle is about a release.
    Release,
}

/// The report of one verification.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Default)]
pub struct BundleReport {
    /// Whether the bundle is about a run or a release.
    pub kind: BundleKind,
    /// All checks, in the order in which the verification made them.
    pub checks: Vec<BundleCheck>,
    /// Whether the checkpoint of the bundle is consistent with a second checkpoint from another source.
    pub has_one_history: bool,
    /// Whether the verifier required cosignatures of witnesses.
    pub is_witnessed: bool,
    /// Whether a fact in the log contains the digest of the run's records.
    pub has_named_records: bool,
    /// Whether the verifier supplied a policy input and a new evaluation for it gave the recorded decision.
    pub has_decided_again: bool,
}

/// The statements that the bundle of a run proves if all checks pass.
const PROVEN: [&str; 5] = [
    "the holder of the given key stated this evidence",
    "the run's end, with the digests of its input and output, is in the audit log at the given index",
    "the log says that the release of the run was approved with these bindings before the run ended",
    "the bytes of the included versions are those that the approved digest names",
    "the facts are part of the log that the checkpoint signs",
];

/// The statements that a release summary proves if all checks pass.
const PROVEN_OF_RELEASES: [&str; 4] = [
    "the holder of the given key stated this result",
    "the result follows from the facts about the release in the audit log, up to the checkpoint",
    "the bytes of the included versions are those that the approved digest names",
    "the facts are part of the log that the checkpoint signs",
];

/// The further statement that is proven if facts in the log contain the digest of the run's records.
const RECORDS_NAMED: &str = "the policy decisions, the evidence documents and the digests of all that the steps read are those that the log names";
/// The further statement that a consistent second checkpoint proves.
const ONE_HISTORY: &str = "the log of the bundle and the log of the second checkpoint have one history";
/// The further statement that the required cosignatures prove.
const WITNESSED: &str = "the given witnesses saw this checkpoint, and no other history of the log";

/// The further statement that a new policy decision for a supplied input proves.
const DECIDED_AGAIN: &str = "the included policy decides the same for the given input, which the bundle does not name";

/// The statements that a release summary never proves.
const NOT_PROVEN_OF_RELEASES: [&str; 4] = [
    "that the log has one history for everybody: compare the checkpoint with one from another source",
    "that no fact about the release was left out, or followed the checkpoint: fetch a new summary before a deployment",
    "that the release holds a lane now: another release may have replaced it",
    "that the people behind the named actors acted themselves",
];

/// The statements that the bundle of a run never proves.
const NOT_PROVEN: [&str; 7] = [
    "that the log has one history for everybody: compare the checkpoint with one from another source",
    "that no fact about the run was left out, or followed the checkpoint",
    "the text of inputs and outputs: their digests are salted, and the salts are not included",
    "who submitted the run, on behalf of whom, its lane and its status: the signature alone covers them",
    "fulfilments of obligations, rules without a result, and times besides those of the facts: the signature alone covers them",
    "that the policy decides the same again: the inputs of the decision are included as digests alone",
    "that the people behind the named actors acted themselves",
];

/// A further limitation: the process of the run ended before it stored the records, so no fact contains their digest.
const RECORDS_NOT_NAMED: &str =
    "policy decisions, obligations, retrievals and documents beyond the signature: no fact of the run names them";

impl BundleReport {
    /// Whether the verification passed: it made checks, and none of them failed.
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

    /// Adds a check that passes if `expected` and `actual` are equal, and returns whether it passed.
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

    /// Adds a check that passes if `holds` is true, and returns whether it passed.
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

    /// Adds a check that the verification could not make, because the bundle omits the data.
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
