//! Compiles the content of a policy bundle, and runs its embedded tests.

use super::{
    CompiledPolicy, DecisionOutcome, Obligation, PolicyDecision, Rule, Scenario,
    condition::{Condition, ConditionRefusal},
    pattern::Patterns,
    variables::MAX_DECISION_STEPS,
};
use crate::asset::content::ContentProblem;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// The maximum number of rules of a bundle.
pub(super) const MAX_RULES: usize = 200;
/// The maximum number of tests of a bundle.
pub(super) const MAX_TESTS: usize = 100;
/// The maximum total number of evaluation steps of a bundle's tests. It is limited, because the request that creates a
/// version waits for the tests.
pub(super) const MAX_TEST_STEPS: u64 = MAX_DECISION_STEPS;

/// The part of the content that decisions need. The schema of the asset kind validates the rest.
#[derive(Deserialize)]
struct BundleContent {
    rules: Vec<RuleContent>,
    #[serde(default)]
    tests: Vec<Scenario>,
}

impl BundleContent {
    fn of(content: &Value) -> Result<Self, Vec<ContentProblem>> {
        Self::deserialize(content)
            .map_err(|_| vec![ContentProblem::new("", "invalid_content", "the content is not a policy bundle")])
    }
}

#[derive(Deserialize)]
pub(super) struct RuleContent {
    id: String,
    pub(super) condition: String,
    outcome: DecisionOutcome,
    reason_code: String,
    obligations: Option<Vec<String>>,
}

impl CompiledPolicy {
    /// Compiles the content of a bundle. [`Self::run_tests`] runs its embedded tests, which only a new version
    /// requires.
    ///
    /// # Errors
    /// Returns all problems: conditions that do not compile or are too costly, unknown obligations, and repeated
    /// identifiers.
    pub fn compile(content: &Value) -> Result<Self, Vec<ContentProblem>> {
        let bundle = BundleContent::of(content)?;
        let mut problems = Vec::new();
        if bundle.rules.len() > MAX_RULES || bundle.tests.len() > MAX_TESTS {
            problems.push(ContentProblem::new("", "out_of_bounds", "a bundle has at most 200 rules and 100 tests"));
            return Err(problems);
        }
        let parts: Vec<RuleParts<'_>> = bundle.rules.iter().map(RuleParts::of_content).collect();
        let (rules, patterns) = compile_rules(&parts, &mut problems);
        let rules = rules.into_iter().map(|(_, rule)| rule).collect();
        if problems.is_empty() { Ok(Self::of(rules, patterns)) } else { Err(problems) }
    }

    /// Runs the tests that are embedded in the bundle's content.
    ///
    /// # Errors
    /// Returns every failed test, or a problem if the tests together exceed `MAX_TEST_STEPS`.
    pub fn run_tests(&self, content: &Value) -> Result<(), Vec<ContentProblem>> {
        let content = BundleContent::of(content)?;
        let mut problems = Vec::new();
        let mut steps_left = MAX_TEST_STEPS;
        for (index, test) in content.tests.iter().enumerate() {
            let decision = test.decide_within(self, &mut steps_left);
            if steps_left == 0 {
                let message = "the tests exceed the total step limit";
                problems.push(ContentProblem::new(format!("/tests/{index}"), "policy_tests_too_costly", message));
                break;
            }
            problems.extend(test_failure(&decision, index, test));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

impl CompiledPolicy {
    /// The problems of the rules in content that is invalid in other places. All readable parts of each rule are
    /// checked.
    pub(crate) fn rule_problems(content: &Value) -> Vec<ContentProblem> {
        let mut problems = Vec::new();
        let rules = content.get("rules").and_then(Value::as_array).into_iter().flatten();
        let parts: Vec<RuleParts<'_>> = rules.take(MAX_RULES).map(RuleParts::of_value).collect();
        let (rules, _) = compile_rules(&parts, &mut problems);
        problems.extend(never_boolean_problems(rules.iter().map(|(index, rule)| (*index, rule))));
        problems
    }

    /// The problems that only new versions must not have: a condition that can never be a boolean, and a failing test.
    /// Existing versions are exempt.
    #[must_use]
    pub fn new_version_problems(&self, content: &Value) -> Vec<ContentProblem> {
        let mut problems: Vec<ContentProblem> = never_boolean_problems(self.rules.iter().enumerate()).collect();
        problems.extend(self.run_tests(content).err().unwrap_or_default());
        problems
    }
}

impl ConditionRefusal {
    /// Reports the refusal as a problem of the condition of the rule at `pointer`.
    fn at(self, pointer: &str) -> ContentProblem {
        ContentProblem::new(format!("{pointer}/condition"), self.code(), self.message())
    }
}

/// Those parts of a rule that are readable.
struct RuleParts<'c> {
    id: Option<&'c str>,
    condition: Option<&'c str>,
    outcome: Option<DecisionOutcome>,
    reason_code: Option<&'c str>,
    /// Each obligation with its position in the list; `None` if the rule has no such list.
    obligations: Option<Vec<(usize, &'c str)>>,
}

impl<'c> RuleParts<'c> {
    fn of_value(rule: &'c Value) -> Self {
        let text = |field: &str| rule.get(field).and_then(Value::as_str);
        let names = |list: &'c Vec<Value>| {
            list.iter().enumerate().filter_map(|(index, name)| Some((index, name.as_str()?))).collect()
        };
        Self {
            id: text("id"),
            condition: text("condition"),
            outcome: rule.get("outcome").and_then(|outcome| DecisionOutcome::deserialize(outcome).ok()),
            reason_code: text("reason_code"),
            obligations: rule.get("obligations").and_then(Value::as_array).map(names),
        }
    }

    fn of_content(rule: &'c RuleContent) -> Self {
        let names = |list: &'c Vec<String>| list.iter().map(String::as_str).enumerate().collect();
        Self {
            id: Some(&rule.id),
            condition: Some(&rule.condition),
            outcome: Some(rule.outcome),
            reason_code: Some(&rule.reason_code),
            obligations: rule.obligations.as_ref().map(names),
        }
    }

    fn rule(&self, condition: Option<Condition>, obligations: Vec<Obligation>) -> Option<Rule> {
        Some(Rule {
            id: self.id?.to_owned(),
            condition: condition?,
            outcome: self.outcome?,
            reason_code: self.reason_code?.to_owned(),
            obligations,
        })
    }
}

fn never_boolean_problems<'r>(rules: impl Iterator<Item = (usize, &'r Rule)>) -> impl Iterator<Item = ContentProblem> {
    let refusal = |index: usize| ConditionRefusal::NotBoolean.at(&format!("/rules/{index}"));
    rules.filter(|(_, rule)| rule.condition.is_never_boolean()).map(move |(index, _)| refusal(index))
}

/// Compiles the valid rules, and returns them with their positions and patterns. Reports all problems.
fn compile_rules(parts: &[RuleParts<'_>], problems: &mut Vec<ContentProblem>) -> (Vec<(usize, Rule)>, Patterns) {
    let mut ids = BTreeSet::new();
    let mut patterns = Patterns::default();
    let mut rules = Vec::with_capacity(parts.len());
    for (index, parts) in parts.iter().enumerate() {
        let pointer = format!("/rules/{index}");
        if parts.id.is_some_and(|id| !ids.insert(id)) {
            let message = "another rule of the bundle has this id";
            problems.push(ContentProblem::new(format!("{pointer}/id"), "duplicate_rule_id", message));
        }
        let condition = parts.condition.and_then(|source| {
            let compiled = Condition::compile(source, &mut patterns);
            compiled.map_err(|refusal| problems.push(refusal.at(&pointer))).ok()
        });
        let obligations = obligations(parts, &pointer, problems);
        rules.extend(parts.rule(condition, obligations).map(|rule| (index, rule)));
    }
    (rules, patterns)
}

/// Parses the obligations of a rule. The outcome `allow_with_obligations` requires them; the other outcomes forbid
/// them.
fn obligations(parts: &RuleParts<'_>, pointer: &str, problems: &mut Vec<ContentProblem>) -> Vec<Obligation> {
    let pointer = format!("{pointer}/obligations");
    match (parts.outcome, &parts.obligations) {
        (Some(DecisionOutcome::AllowWithObligations), names) if names.as_ref().is_none_or(Vec::is_empty) => {
            let message = "a rule that allows with obligations names at least one";
            problems.push(ContentProblem::new(pointer.as_str(), "obligations_missing", message));
        }
        (Some(DecisionOutcome::Allow | DecisionOutcome::Deny), Some(_)) => {
            let message = "only a rule that allows with obligations has obligations";
            problems.push(ContentProblem::new(pointer.as_str(), "obligations_not_allowed", message));
        }
        (Some(DecisionOutcome::AllowWithObligations | DecisionOutcome::Allow | DecisionOutcome::Deny) | None, _) => {}
    }
    let mut parsed = Vec::new();
    for (index, name) in parts.obligations.iter().flatten() {
        match Obligation::parse(name) {
            Some(obligation) if parsed.contains(&obligation) => {
                let message = "the rule repeats this obligation";
                problems.push(ContentProblem::new(format!("{pointer}/{index}"), "duplicate_obligation", message));
            }
            Some(obligation) => parsed.push(obligation),
            None => {
                let message = "this obligation is unknown";
                problems.push(ContentProblem::new(format!("{pointer}/{index}"), "unknown_obligation", message));
            }
        }
    }
    parsed
}

/// The problem of a failed test; `None` if the test passed. The message contains the name of the test, for the author.
fn test_failure(decision: &PolicyDecision, index: usize, test: &Scenario) -> Option<ContentProblem> {
    if test.differences(decision).is_empty() {
        return None;
    }
    let mut message = format!(
        "the test `{}` expected a different decision; the policy decided `{}` with reason `{}`",
        test.name(),
        decision.outcome.as_str(),
        decision.reason_code
    );
    if !decision.failed_rules.is_empty() {
        message.push_str(&format!(": {}", decision.failure_reasons()));
    }
    Some(ContentProblem::new(format!("/tests/{index}"), "policy_test_failed", message))
}
