//! Policies: they decide whether a run is allowed, and which obligations it has.
//!
//! Decisions are pure and fail closed: a condition that cannot be evaluated denies the run. Conditions are compiled and
//! limited when a version is created, so that every stored bundle can be evaluated.

mod bundle;
mod condition;
mod cost;
mod explanation;
mod fast_path;
mod pattern;
mod referenced_names;
mod scenario;
mod unreachable;
mod variables;

use crate::time::Timestamp;
use condition::Condition;
use fast_path::FastPath;
use pattern::Patterns;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeSet, fmt};
use variables::{Evaluation, EvaluationError};

pub use explanation::{ClauseExplanation, ConditionResult, DecisionExplanation, ExplanationRefusal, RuleExplanation};
pub use scenario::{DecisionPart, Difference, Scenario};
pub use unreachable::Unreachable;
pub use variables::MAX_DECISION_STEPS;

/// The reason code of a denial because no rule matched.
pub const NO_MATCHING_RULE: &str = "no_matching_rule";
/// The reason code of a denial because a condition could not be evaluated.
pub const EVALUATION_ERROR: &str = "policy_evaluation_error";

/// The input of a policy decision: the variables that conditions can read.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInput<'a> {
    /// The actor of the run, in CEL the variable `actor`.
    pub actor: PolicyActor<'a>,
    /// The workload of the run, in CEL the variable `workload`.
    pub workload: PolicyWorkload<'a>,
    /// The release of the run, in CEL the variable `release`.
    pub release: PolicyRelease<'a>,
    /// The inputs of the run, in CEL the variable `inputs`.
    pub inputs: &'a Map<String, Value>,
    /// The environment of the run, in CEL the variable `environment`.
    pub environment: &'a str,
    /// The lane of the run, in CEL the variable `lane`.
    pub lane: &'a str,
    /// The time of the decision, in CEL the variable `now`.
    pub now: Timestamp,
}

/// The actor of the run, which conditions read as the variable `actor`.
#[derive(Clone, Copy, Default, Debug)]
pub struct PolicyActor<'a> {
    /// The reference of the actor, such as `user:ada`; in CEL `actor.ref`.
    pub reference: &'a str,
    /// The kind of the actor, such as `user`; in CEL `actor.type`.
    pub kind: &'a str,
    /// The groups to which the actor belongs; in CEL `actor.groups`.
    pub groups: &'a [String],
    /// The roles that the actor has; in CEL `actor.roles`.
    pub roles: &'a [String],
}

/// The workload of the run, which conditions read as the variable `workload`.
#[derive(Clone, Copy, Default, Debug)]
pub struct PolicyWorkload<'a> {
    /// The slug of the workload; in CEL `workload.slug`.
    pub slug: &'a str,
    /// The reference of the workload's owner; in CEL `workload.owner_ref`.
    pub owner_ref: &'a str,
    /// The identifier of the workload; in CEL `workload.workload_id`.
    pub workload_id: &'a str,
}

/// The release of the run, which conditions read as the variable `release`.
#[derive(Clone, Copy, Default, Debug)]
pub struct PolicyRelease<'a> {
    /// The identifier of the release; in CEL `release.release_id`.
    pub release_id: &'a str,
    /// The state of the release, such as `active`; in CEL `release.state`.
    pub state: &'a str,
    /// The environment of the release; in CEL `release.environment`.
    pub environment: &'a str,
}

/// The outcome of a policy decision, in the order from the mildest to the strictest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionOutcome {
    /// The run is allowed.
    Allow,
    /// The run is allowed if its obligations are fulfilled.
    AllowWithObligations,
    /// The run is denied.
    Deny,
}

impl DecisionOutcome {
    /// Every outcome, mildest first.
    pub const ALL: [Self; 3] = [Self::Allow, Self::AllowWithObligations, Self::Deny];

    /// The wire form, such as `allow`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::AllowWithObligations => "allow_with_obligations",
            Self::Deny => "deny",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// A duty that a policy imposes on a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Obligation {
    /// Records the messages of the run as evidence.
    RecordTranscript,
    /// Masks personal data in the output.
    RedactOutput,
    /// Fails the run unless the answer cites a retrieved document.
    RequireCitation,
    /// Notifies the owner of the workload.
    NotifyOwner,
    /// Requires a person's verdict before the output is shown.
    HumanReview,
}

impl Obligation {
    /// Every obligation, in the order of declaration.
    pub const ALL: [Self; 5] =
        [Self::RecordTranscript, Self::RedactOutput, Self::RequireCitation, Self::NotifyOwner, Self::HumanReview];

    /// The wire form, such as `record_transcript`.
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

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|obligation| obligation.as_str() == text)
    }
}

/// A rule whose condition could not be evaluated.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailedRule {
    /// The identifier of the rule.
    pub rule: String,
    /// The name of a field that the condition reads and the inputs lack, if this is the cause of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_field: Option<String>,
}

impl fmt::Display for FailedRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.missing_field {
            Some(name) => {
                write!(formatter, "rule `{}` cannot be evaluated, because the input has no `{name}`", self.rule)
            }
            None => write!(formatter, "rule `{}` cannot be evaluated with this input", self.rule),
        }
    }
}

/// The maximum number of failed rules that a decision reports.
pub const MAX_FAILED_RULES: usize = 20;

/// A policy decision about a run, with its reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyDecision {
    /// Whether the run is allowed, and whether obligations apply.
    pub outcome: DecisionOutcome,
    /// The reason code of the deciding rule. If no rule decided, it is [`NO_MATCHING_RULE`] or [`EVALUATION_ERROR`].
    pub reason_code: String,
    /// The obligations; empty unless the outcome is [`DecisionOutcome::AllowWithObligations`].
    pub obligations: Vec<Obligation>,
    /// The identifiers of the matching rules, in bundle order.
    pub matched_rules: Vec<String>,
    /// The first rules that could not be evaluated; empty unless the reason code is [`EVALUATION_ERROR`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_rules: Vec<FailedRule>,
}

/// The maximum number of failed rules that an error message names.
const MAX_NAMED_FAILED_RULES: usize = 3;

impl PolicyDecision {
    /// The reasons why rules could not be evaluated, for messages; empty unless the reason code is
    /// [`EVALUATION_ERROR`].
    #[must_use]
    pub fn failure_reasons(&self) -> String {
        let reasons: Vec<String> =
            self.failed_rules.iter().take(MAX_NAMED_FAILED_RULES).map(FailedRule::to_string).collect();
        let ellipsis = if self.failed_rules.len() > MAX_NAMED_FAILED_RULES { "; …" } else { "" };
        format!("{}{ellipsis}", reasons.join("; "))
    }
}

/// A compiled policy bundle, which decides about runs.
#[derive(Clone, PartialEq, Debug)]
pub struct CompiledPolicy {
    rules: Vec<Rule>,
    /// For each rule, its condition in fast-path form, if the condition has one.
    fast_paths: Vec<Option<FastPath>>,
    /// The names of the variables that the conditions read. Only their values are computed.
    variables_read: BTreeSet<String>,
    patterns: Patterns,
}

/// A rule: a condition, with the effect that it has if it holds.
#[derive(Clone, PartialEq, Debug)]
struct Rule {
    id: String,
    condition: Condition,
    outcome: DecisionOutcome,
    reason_code: String,
    obligations: Vec<Obligation>,
}

impl Rule {
    /// The failure of the rule. The name of a missing field is reported only if the source of the rule contains it. Any
    /// other name is data of the run.
    fn failed(&self, error: EvaluationError) -> FailedRule {
        let missing_field = match error {
            EvaluationError::MissingField(name) => Some(name).filter(|name| self.condition.mentions_field(name)),
            EvaluationError::Other => None,
        };
        FailedRule { rule: self.id.clone(), missing_field }
    }
}

impl CompiledPolicy {
    fn of(rules: Vec<Rule>, patterns: Patterns) -> Self {
        let variables_read = rules.iter().flat_map(|rule| rule.condition.variables()).collect();
        let fast_paths = rules.iter().map(|rule| FastPath::compile(&rule.condition)).collect();
        Self { rules, fast_paths, variables_read, patterns }
    }

    /// Every obligation that a rule of the bundle can impose.
    pub fn obligations(&self) -> impl Iterator<Item = Obligation> {
        self.rules.iter().flat_map(|rule| rule.obligations.iter().copied())
    }

    /// The rules that read inputs without testing that these inputs exist; each rule has the names of such inputs.
    pub fn inputs_assumed_present(&self) -> impl Iterator<Item = (&str, BTreeSet<String>)> {
        let inputs_of = |rule: &'_ Rule| rule.condition.required_inputs();
        self.rules.iter().map(move |rule| (rule.id.as_str(), inputs_of(rule))).filter(|(_, inputs)| !inputs.is_empty())
    }

    /// The maximum memory of the compiled patterns, in bytes. It far exceeds the length of their sources.
    #[must_use]
    pub fn compiled_pattern_bytes(&self) -> usize {
        self.patterns.max_bytes()
    }

    /// Decides about a run. The first of these that occurs decides: a matching deny rule, an evaluation error (which
    /// denies), matching rules with obligations (which are combined), a matching allow rule. If none occurs, the run is
    /// denied. The reason code is that of the first rule of the deciding kind.
    #[must_use]
    pub fn decide(&self, input: &PolicyInput<'_>) -> PolicyDecision {
        self.decide_within(input, MAX_DECISION_STEPS).0
    }

    /// Decides within a budget of evaluation steps, and returns the steps that remain.
    fn decide_within(&self, input: &PolicyInput<'_>, steps: u64) -> (PolicyDecision, u64) {
        let mut matched: Vec<&Rule> = Vec::new();
        let mut failed: Vec<FailedRule> = Vec::new();
        let mut evaluator = Evaluator::new(self, input, steps);
        for (rule, fast_path) in self.rules.iter().zip(&self.fast_paths) {
            match evaluator.try_holds(&rule.condition, fast_path.as_ref()) {
                Ok(true) => matched.push(rule),
                Ok(false) => {}
                Err(_) if failed.len() >= MAX_FAILED_RULES => {}
                Err(error) => failed.push(rule.failed(error)),
            }
        }
        (combine(&matched, failed), evaluator.steps_left())
    }
}

/// Evaluates the conditions of a bundle for one input, within one budget of steps for all conditions.
struct Evaluator<'p> {
    policy: &'p CompiledPolicy,
    input: &'p PolicyInput<'p>,
    steps: u64,
    /// The converted input. It is created when an expression first needs it; constant rules and fast paths do not.
    evaluation: Option<Evaluation>,
}

impl<'p> Evaluator<'p> {
    const fn new(policy: &'p CompiledPolicy, input: &'p PolicyInput<'p>, steps: u64) -> Self {
        Self { policy, input, steps, evaluation: None }
    }

    /// Whether a condition holds. The condition may read only variables that a rule of the bundle reads.
    fn try_holds(&mut self, condition: &Condition, fast_path: Option<&FastPath>) -> Result<bool, EvaluationError> {
        let expression = match condition {
            Condition::Always => return Ok(true),
            Condition::Never => return Ok(false),
            Condition::Expression(expression) => expression,
        };
        if let Some(holds) = fast_path.and_then(|fast_path| fast_path.evaluate(self.input)) {
            return Ok(holds);
        }
        let (policy, input, steps) = (self.policy, self.input, self.steps);
        self.evaluation
            .get_or_insert_with(|| Evaluation::new(input, &policy.variables_read, &policy.patterns, steps))
            .try_evaluate(expression)
    }

    fn steps_left(&self) -> u64 {
        self.evaluation.as_ref().map_or(self.steps, Evaluation::steps_left)
    }
}

fn combine(matched: &[&Rule], failed: Vec<FailedRule>) -> PolicyDecision {
    let first = |outcome| matched.iter().find(|rule| rule.outcome == outcome);
    let (outcome, reason_code) = if let Some(rule) = first(DecisionOutcome::Deny) {
        (DecisionOutcome::Deny, rule.reason_code.as_str())
    } else if !failed.is_empty() {
        (DecisionOutcome::Deny, EVALUATION_ERROR)
    } else if let Some(rule) = first(DecisionOutcome::AllowWithObligations) {
        (DecisionOutcome::AllowWithObligations, rule.reason_code.as_str())
    } else if let Some(rule) = first(DecisionOutcome::Allow) {
        (DecisionOutcome::Allow, rule.reason_code.as_str())
    } else {
        (DecisionOutcome::Deny, NO_MATCHING_RULE)
    };
    let mut obligations = Vec::new();
    if outcome == DecisionOutcome::AllowWithObligations {
        for rule in matched {
            append_missing(&mut obligations, &rule.obligations);
        }
    }
    let is_failure = reason_code == EVALUATION_ERROR;
    PolicyDecision {
        outcome,
        failed_rules: if is_failure { failed } else { Vec::new() },
        reason_code: reason_code.to_owned(),
        obligations,
        matched_rules: matched.iter().map(|rule| rule.id.clone()).collect(),
    }
}

fn append_missing<T: Clone + PartialEq>(target: &mut Vec<T>, additions: &[T]) {
    for item in additions {
        if !target.contains(item) {
            target.push(item.clone());
        }
    }
}

/// The stricter of two decisions about the same run, with the obligations of both. If both are equally strict, the
/// result has the reason of the first decision.
#[must_use]
pub fn stricter_decision(first: PolicyDecision, second: PolicyDecision) -> PolicyDecision {
    let (mut stricter, milder) = if second.outcome > first.outcome { (second, first) } else { (first, second) };
    if stricter.outcome == DecisionOutcome::AllowWithObligations {
        append_missing(&mut stricter.obligations, &milder.obligations);
    }
    append_missing(&mut stricter.matched_rules, &milder.matched_rules);
    append_missing(&mut stricter.failed_rules, &milder.failed_rules);
    stricter
}

#[cfg(test)]
mod tests;
