//! Policies: whether a run may happen, and under which obligations.
//!
//! Deciding is pure and fails closed: what cannot be evaluated denies. Every condition is compiled and bounded when the
//! version is created, so that a bundle that exists can always be asked (contract: policy rules, CEL).

mod bundle;
mod condition;
mod cost;
mod idle;
mod pattern;
mod plain;
mod scenario;
mod variables;

use crate::time::Timestamp;
use condition::Condition;
use pattern::Patterns;
use plain::Plain;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

pub use idle::Idle;
pub use scenario::{DecisionPart, Difference, Scenario};
pub use variables::MAX_STEPS;

/// Reason of a decision that no rule made.
pub const NO_MATCHING_RULE: &str = "no_matching_rule";
/// Reason of a decision in which a condition could not be evaluated.
pub const EVALUATION_ERROR: &str = "policy_evaluation_error";

/// What a policy decides about.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInput<'a> {
    /// Who asks: the CEL variable `actor`.
    pub actor: PolicyActor<'a>,
    /// For which workload: `workload`.
    pub workload: PolicyWorkload<'a>,
    /// Under which release: `release`.
    pub release: PolicyRelease<'a>,
    /// With which inputs: `inputs`.
    pub inputs: &'a Map<String, Value>,
    /// In which environment: `environment`.
    pub environment: &'a str,
    /// On which lane: `lane`.
    pub lane: &'a str,
    /// When: `now`.
    pub now: Timestamp,
}

/// The variable `actor`.
#[derive(Clone, Copy, Default, Debug)]
pub struct PolicyActor<'a> {
    /// `actor.ref`, such as `user:ada`.
    pub reference: &'a str,
    /// `actor.type`, such as `user`.
    pub kind: &'a str,
    /// `actor.groups`.
    pub groups: &'a [String],
    /// `actor.roles`.
    pub roles: &'a [String],
}

/// The variable `workload`.
#[derive(Clone, Copy, Default, Debug)]
pub struct PolicyWorkload<'a> {
    /// `workload.slug`.
    pub slug: &'a str,
    /// `workload.owner_ref`.
    pub owner_ref: &'a str,
    /// `workload.workload_id`.
    pub workload_id: &'a str,
}

/// The variable `release`.
#[derive(Clone, Copy, Default, Debug)]
pub struct PolicyRelease<'a> {
    /// `release.release_id`.
    pub release_id: &'a str,
    /// `release.state`.
    pub state: &'a str,
    /// `release.environment`.
    pub environment: &'a str,
}

/// The answer of a policy, from the mildest to the strictest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The run may happen.
    Allow,
    /// The run may happen if the obligations are fulfilled.
    AllowWithObligations,
    /// The run may not happen.
    Deny,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 3] = [Self::Allow, Self::AllowWithObligations, Self::Deny];

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::AllowWithObligations => "allow_with_obligations",
            Self::Deny => "deny",
        }
    }

    /// The outcome of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// What a run has to do beside its work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Obligation {
    /// Keep the messages as evidence.
    RecordTranscript,
    /// Mask personal data in the output.
    RedactOutput,
    /// Fail unless the answer cites a retrieved document.
    RequireCitation,
    /// Tell the owner.
    NotifyOwner,
    /// Wait for a person before the output is shown.
    HumanReview,
}

impl Obligation {
    /// Every obligation.
    pub const ALL: [Self; 5] =
        [Self::RecordTranscript, Self::RedactOutput, Self::RequireCitation, Self::NotifyOwner, Self::HumanReview];

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RecordTranscript => "record_transcript",
            Self::RedactOutput => "redact_output",
            Self::RequireCitation => "require_citation",
            Self::NotifyOwner => "notify_owner",
            Self::HumanReview => "human_review",
        }
    }

    /// The obligation of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|obligation| obligation.as_str() == text)
    }
}

/// What a policy decided, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyDecision {
    /// The answer.
    pub outcome: Outcome,
    /// The deciding rule's reason, or one of the reasons of this module.
    pub reason_code: String,
    /// What the run owes; empty unless the outcome says so.
    pub obligations: Vec<Obligation>,
    /// Ids of the rules that matched, in the order of the bundle.
    pub matched_rules: Vec<String>,
}

/// A policy bundle, compiled once.
#[derive(Clone, PartialEq, Debug)]
pub struct CompiledPolicy {
    rules: Vec<Rule>,
    /// For each rule, its condition without the interpreter, where it can do without.
    plain: Vec<Option<Plain>>,
    /// The variables that some condition reads; no other is worked out.
    reads: BTreeSet<String>,
    patterns: Patterns,
}

/// A rule: what it says where its condition holds.
#[derive(Clone, PartialEq, Debug)]
struct Rule {
    id: String,
    condition: Condition,
    outcome: Outcome,
    reason_code: String,
    obligations: Vec<Obligation>,
}

impl CompiledPolicy {
    fn of(rules: Vec<Rule>, patterns: Patterns) -> Self {
        let reads = rules.iter().flat_map(|rule| rule.condition.variables()).collect();
        let plain = rules.iter().map(|rule| Plain::of(&rule.condition)).collect();
        Self { rules, plain, reads, patterns }
    }

    /// Every obligation that some rule may impose.
    pub fn obligations(&self) -> impl Iterator<Item = Obligation> {
        self.rules.iter().flat_map(|rule| rule.obligations.iter().copied())
    }

    /// How much memory the compiled patterns may take, in bytes: far more than their text.
    #[must_use]
    pub fn pattern_bytes(&self) -> usize {
        self.patterns.bytes()
    }

    /// Decides. Any rule that denies wins; then an error denies; then obligations are united; then a rule that allows
    /// is enough; without any matching rule the answer is no. The reason is that of the first rule of the winning kind.
    #[must_use]
    pub fn decide(&self, input: &PolicyInput<'_>) -> PolicyDecision {
        self.decide_within(input, MAX_STEPS).0
    }

    /// Decides within so many steps, and says how many are left.
    fn decide_within(&self, input: &PolicyInput<'_>, steps: u64) -> (PolicyDecision, u64) {
        let mut matched: Vec<&Rule> = Vec::new();
        let mut failed = false;
        // Most bundles of constants never look at the input, so it is converted only when a condition asks for it.
        let mut evaluation = None;
        for (rule, plain) in self.rules.iter().zip(&self.plain) {
            let answered = plain.as_ref().and_then(|plain| plain.holds(input));
            let holds = match &rule.condition {
                Condition::Always => Some(true),
                Condition::Never => Some(false),
                Condition::Expression(expression) => answered.or_else(|| {
                    evaluation
                        .get_or_insert_with(|| variables::Evaluation::new(input, (&self.reads, &self.patterns), steps))
                        .holds(expression)
                }),
            };
            match holds {
                Some(true) => matched.push(rule),
                Some(false) => {}
                None => failed = true,
            }
        }
        let left = evaluation.map_or(steps, |evaluation| evaluation.left());
        (combine(&matched, failed), left)
    }
}

fn combine(matched: &[&Rule], failed: bool) -> PolicyDecision {
    let first = |outcome| matched.iter().find(|rule| rule.outcome == outcome);
    let (outcome, reason_code) = if let Some(rule) = first(Outcome::Deny) {
        (Outcome::Deny, rule.reason_code.as_str())
    } else if failed {
        (Outcome::Deny, EVALUATION_ERROR)
    } else if let Some(rule) = first(Outcome::AllowWithObligations) {
        (Outcome::AllowWithObligations, rule.reason_code.as_str())
    } else if let Some(rule) = first(Outcome::Allow) {
        (Outcome::Allow, rule.reason_code.as_str())
    } else {
        (Outcome::Deny, NO_MATCHING_RULE)
    };
    let mut obligations = Vec::new();
    if outcome == Outcome::AllowWithObligations {
        for rule in matched {
            unite(&mut obligations, &rule.obligations);
        }
    }
    PolicyDecision {
        outcome,
        reason_code: reason_code.to_owned(),
        obligations,
        matched_rules: matched.iter().map(|rule| rule.id.clone()).collect(),
    }
}

fn unite<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
    for item in more {
        if !all.contains(item) {
            all.push(item.clone());
        }
    }
}

/// The stricter of two decisions of one run. Between equals the first keeps its reason, and what either owes is owed.
#[must_use]
pub fn strictest(first: PolicyDecision, second: PolicyDecision) -> PolicyDecision {
    let (mut stricter, milder) = if second.outcome > first.outcome { (second, first) } else { (first, second) };
    if stricter.outcome == Outcome::AllowWithObligations {
        unite(&mut stricter.obligations, &milder.obligations);
    }
    unite(&mut stricter.matched_rules, &milder.matched_rules);
    stricter
}

#[cfg(test)]
mod tests;
