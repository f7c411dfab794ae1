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

/// The result of a verification.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Default)]
pub struct BundleReport {
    /// All checks, in the order of the chain.
    pub checks: Vec<BundleCheck>,
}

/// What a bundle shows whose checks all pass.
const PROVEN: [&str; 5] = [
    "the holder of the given key stated this evidence",
    "the run's end, with the digests of its input and output, is in the audit log at the given index",
    "the release of the run had the bindings that the approvals in the log name",
    "the bytes of the included versions are those that the approved digest names",
    "the facts are part of the log that the checkpoint signs",
];

/// What no bundle shows.
const NOT_PROVEN: [&str; 5] = [
    "that the log has one history for everybody: compare the checkpoint with one from another source",
    "the text of inputs and outputs: their digests are salted, and the salts are not included",
    "policy decisions, obligations, retrievals and artifacts beyond the signature: the log does not name them",
    "that the policy decides the same again: the inputs of the decision are not included",
    "that the people behind the named actors acted themselves",
];

impl BundleReport {
    /// Whether the bundle holds: it has checks, and none failed.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|check| check.verdict != CheckVerdict::Failed)
    }

    /// What the bundle shows; nothing if a check failed.
    #[must_use]
    pub fn proven(&self) -> &'static [&'static str] {
        if self.has_passed() { &PROVEN } else { &[] }
    }

    /// What the bundle does not show.
    #[must_use]
    pub const fn not_proven(&self) -> &'static [&'static str] {
        &NOT_PROVEN
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
