//! The report of a verification.

use serde::Serialize;

/// The verdict of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// The statement holds.
    Passed,
    /// The statement does not hold.
    Failed,
    /// The bundle lacks what the check needs, which is no failure.
    NotIncluded,
}

/// One check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BundleCheck {
    /// What is checked.
    pub name: &'static str,
    /// The part of the bundle, such as a version or a fact; empty for the whole bundle.
    pub part: String,
    /// What must be there.
    pub expected: String,
    /// What is there.
    pub actual: String,
    /// The verdict.
    pub verdict: CheckVerdict,
}

/// What a bundle is about.
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
    /// What the bundle is about.
    pub kind: BundleKind,
    /// All checks, in the order of the chain.
    pub checks: Vec<BundleCheck>,
    /// Whether the checkpoint is consistent with a second one.
    pub has_one_history: bool,
    /// Whether the verifier requires cosignatures.
    pub is_witnessed: bool,
    /// Whether facts of the log name the records of the run.
    pub has_named_records: bool,
    /// Whether the policy decided the same again, for an input from outside.
    pub has_decided_again: bool,
}

/// What the bundle of a run shows whose checks all pass.
const PROVEN: [&str; 5] = [
    "the holder of the given key stated this evidence",
    "the run's end, with the digests of its input and output, is in the audit log at the given index",
    "the log says that the release of the run was approved with these bindings before the run ended",
    "the bytes of the included versions are those that the approved digest names",
    "the facts are part of the log that the checkpoint signs",
];

/// What a release summary shows whose checks all pass.
const PROVEN_OF_RELEASES: [&str; 4] = [
    "the holder of the given key stated this result",
    "the result follows from the facts about the release in the audit log, up to the checkpoint",
    "the bytes of the included versions are those that the approved digest names",
    "the facts are part of the log that the checkpoint signs",
];

/// What records show that facts of the log name.
const RECORDS_NAMED: &str = "the policy decisions, the evidence documents and the digests of all that the steps read are those that the log names";
/// What a second checkpoint shows.
const ONE_HISTORY: &str = "the log of the bundle and the log of the second checkpoint have one history";
/// What cosignatures show.
const WITNESSED: &str = "the given witnesses saw this checkpoint, and no other history of the log";

/// What a decision for an input from outside shows.
const DECIDED_AGAIN: &str = "the included policy decides the same for the given input, which the bundle does not name";

/// What no release summary shows.
const NOT_PROVEN_OF_RELEASES: [&str; 4] = [
    "that the log has one history for everybody: compare the checkpoint with one from another source",
    "that no fact about the release was left out, or followed the checkpoint: fetch a new summary before a deployment",
    "that the release holds a lane now: another release may have replaced it",
    "that the people behind the named actors acted themselves",
];

/// What no bundle of a run shows.
const NOT_PROVEN: [&str; 7] = [
    "that the log has one history for everybody: compare the checkpoint with one from another source",
    "that no fact about the run was left out, or followed the checkpoint",
    "the text of inputs and outputs: their digests are salted, and the salts are not included",
    "who submitted the run, on behalf of whom, its lane and its status: the signature alone covers them",
    "fulfilments of obligations, rules without a result, and times besides those of the facts: the signature alone covers them",
    "that the policy decides the same again: the inputs of the decision are included as digests alone",
    "that the people behind the named actors acted themselves",
];

/// What a bundle does not show besides, of a run whose process ended before it stored its records.
const RECORDS_NOT_NAMED: &str =
    "policy decisions, obligations, retrievals and documents beyond the signature: no fact of the run names them";

impl BundleReport {
    /// Whether the bundle holds: it has checks, and none failed.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|check| check.verdict != CheckVerdict::Failed)
    }

    /// What the bundle shows; nothing if a check failed.
    #[must_use]
    pub fn proven(&self) -> Vec<&'static str> {
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

    /// What a bundle of this kind cannot show, as sentences for people.
    #[must_use]
    pub fn limitations(&self) -> Vec<&'static str> {
        let unnamed = (!self.has_named_records).then_some(RECORDS_NOT_NAMED);
        match self.kind {
            BundleKind::Execution => NOT_PROVEN.into_iter().chain(unnamed).collect(),
            BundleKind::Release => NOT_PROVEN_OF_RELEASES.to_vec(),
        }
    }

    /// Adds a check that passes if both sides are equal.
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

    /// Adds a check of a condition.
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

    /// Adds a check that the bundle gives no means for.
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
