//! Content of a policy bundle into a compiled policy, and the tests that it carries.

use super::{
    CompiledPolicy, Obligation, Outcome, PolicyActor, PolicyDecision, PolicyInput, PolicyRelease, PolicyWorkload, Rule,
    condition::Condition, pattern::Patterns, variables::MAX_STEPS,
};
use crate::{asset::content::ContentProblem, time::Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use time::OffsetDateTime;

/// Most rules of a bundle.
pub(super) const MAX_RULES: usize = 200;
/// Most tests of a bundle.
pub(super) const MAX_TESTS: usize = 100;
/// Most steps that all tests of a bundle may take together: somebody waits for the answer.
pub(super) const MAX_TEST_STEPS: u64 = MAX_STEPS;

/// What deciding needs of the content; the schema of the kind has refused everything else.
#[derive(Deserialize)]
struct BundleContent {
    rules: Vec<RuleContent>,
    #[serde(default)]
    tests: Vec<TestContent>,
}

impl BundleContent {
    fn of(content: &Value) -> Result<Self, Vec<ContentProblem>> {
        Self::deserialize(content)
            .map_err(|_| vec![ContentProblem::new("", "invalid_content", "the content is no policy bundle")])
    }
}

#[derive(Deserialize)]
struct RuleContent {
    id: String,
    condition: String,
    outcome: Outcome,
    reason_code: String,
    obligations: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct TestContent {
    name: String,
    #[serde(default)]
    input: TestInput,
    expect: Expectation,
}

#[derive(Deserialize)]
struct Expectation {
    outcome: Outcome,
    reason_code: Option<String>,
}

/// The variables of a test; what it leaves out is empty.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TestInput {
    actor: TestActor,
    workload: TestWorkload,
    release: TestRelease,
    inputs: Map<String, Value>,
    environment: String,
    lane: String,
    now: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TestActor {
    #[serde(rename = "ref")]
    reference: String,
    #[serde(rename = "type")]
    kind: String,
    groups: Vec<String>,
    roles: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TestWorkload {
    slug: String,
    owner_ref: String,
    workload_id: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TestRelease {
    release_id: String,
    state: String,
    environment: String,
}

impl TestInput {
    /// Decides, and takes the steps that it needs from those that are left; none are where it needs more.
    fn decide(&self, policy: &CompiledPolicy, left: &mut u64) -> PolicyDecision {
        let input = PolicyInput {
            actor: PolicyActor {
                reference: &self.actor.reference,
                kind: &self.actor.kind,
                groups: &self.actor.groups,
                roles: &self.actor.roles,
            },
            workload: PolicyWorkload {
                slug: &self.workload.slug,
                owner_ref: &self.workload.owner_ref,
                workload_id: &self.workload.workload_id,
            },
            release: PolicyRelease {
                release_id: &self.release.release_id,
                state: &self.release.state,
                environment: &self.release.environment,
            },
            inputs: &self.inputs,
            environment: &self.environment,
            lane: &self.lane,
            now: self.now.unwrap_or_else(|| Timestamp::new(OffsetDateTime::UNIX_EPOCH)),
        };
        let (decision, rest) = policy.decide_within(&input, *left);
        *left = rest;
        decision
    }
}

impl CompiledPolicy {
    /// Compiles the content of a bundle. The tests that it carries are run when it is made: see [`Self::pass_tests`].
    ///
    /// # Errors
    /// With everything that is wrong: conditions that do not compile or are too costly, obligations that nobody knows,
    /// repeated ids.
    pub fn compile(content: &Value) -> Result<Self, Vec<ContentProblem>> {
        let content = BundleContent::of(content)?;
        let mut problems = Vec::new();
        if content.rules.len() > MAX_RULES || content.tests.len() > MAX_TESTS {
            problems.push(ContentProblem::new("", "out_of_bounds", "a bundle has at most 200 rules and 100 tests"));
            return Err(problems);
        }
        let mut ids = BTreeSet::new();
        let mut patterns = Patterns::default();
        let mut rules = Vec::with_capacity(content.rules.len());
        for (index, rule) in content.rules.iter().enumerate() {
            let pointer = format!("/rules/{index}");
            if !ids.insert(&rule.id) {
                problems.push(ContentProblem::new(
                    format!("{pointer}/id"),
                    "duplicate_rule_id",
                    "another rule of the bundle has this id",
                ));
            }
            rules.extend(compiled(rule, &pointer, (&mut patterns, &mut problems)));
        }
        if problems.is_empty() { Ok(Self::of(rules, patterns)) } else { Err(problems) }
    }

    /// Runs the tests that the content of this bundle carries.
    ///
    /// # Errors
    /// With every test that expects another decision, or when they take too many steps together.
    pub fn pass_tests(&self, content: &Value) -> Result<(), Vec<ContentProblem>> {
        let content = BundleContent::of(content)?;
        let mut problems = Vec::new();
        let mut left = MAX_TEST_STEPS;
        for (index, test) in content.tests.iter().enumerate() {
            let decision = test.input.decide(self, &mut left);
            if left == 0 {
                let message = "the tests take too many steps together";
                problems.push(ContentProblem::new(format!("/tests/{index}"), "policy_tests_too_costly", message));
                break;
            }
            problems.extend(failure(&decision, index, test));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

impl CompiledPolicy {
    /// What is wrong with those rules of a bundle that can be read as rules, where the bundle as a whole cannot.
    pub(crate) fn rule_problems(content: &Value) -> Vec<ContentProblem> {
        let mut problems = Vec::new();
        let mut patterns = Patterns::default();
        let rules = content.get("rules").and_then(Value::as_array).into_iter().flatten();
        for (index, rule) in rules.take(MAX_RULES).enumerate() {
            if let Ok(rule) = RuleContent::deserialize(rule) {
                let _ = compiled(&rule, &format!("/rules/{index}"), (&mut patterns, &mut problems));
            }
        }
        problems
    }
}

fn compiled(
    rule: &RuleContent,
    pointer: &str,
    (patterns, problems): (&mut Patterns, &mut Vec<ContentProblem>),
) -> Option<Rule> {
    let condition = Condition::compile(&rule.condition, patterns)
        .map_err(|refusal| {
            let pointer = format!("{pointer}/condition");
            problems.push(ContentProblem::new(pointer, refusal.code(), refusal.message()));
        })
        .ok();
    let obligations = obligations(rule, pointer, problems);
    Some(Rule {
        id: rule.id.clone(),
        condition: condition?,
        outcome: rule.outcome,
        reason_code: rule.reason_code.clone(),
        obligations,
    })
}

/// The obligations of a rule, which it has exactly when its outcome says so.
fn obligations(rule: &RuleContent, pointer: &str, problems: &mut Vec<ContentProblem>) -> Vec<Obligation> {
    let pointer = format!("{pointer}/obligations");
    let names = rule.obligations.as_deref().unwrap_or_default();
    match rule.outcome {
        Outcome::AllowWithObligations if names.is_empty() => {
            let message = "a rule that allows with obligations names at least one";
            problems.push(ContentProblem::new(pointer.as_str(), "obligations_missing", message));
        }
        Outcome::Allow | Outcome::Deny if rule.obligations.is_some() => {
            let message = "only a rule that allows with obligations has obligations";
            problems.push(ContentProblem::new(pointer.as_str(), "obligations_not_allowed", message));
        }
        Outcome::AllowWithObligations | Outcome::Allow | Outcome::Deny => {}
    }
    let mut known = Vec::with_capacity(names.len());
    for (index, name) in names.iter().enumerate() {
        match Obligation::parse(name) {
            Some(obligation) if known.contains(&obligation) => {
                let message = "the rule names this obligation already";
                problems.push(ContentProblem::new(format!("{pointer}/{index}"), "duplicate_obligation", message));
            }
            Some(obligation) => known.push(obligation),
            None => {
                let message = "this obligation is not known";
                problems.push(ContentProblem::new(format!("{pointer}/{index}"), "unknown_obligation", message));
            }
        }
    }
    known
}

/// A test's own name is the one thing of the content that its author must see again.
fn failure(decision: &PolicyDecision, index: usize, test: &TestContent) -> Option<ContentProblem> {
    let reason_fits = test.expect.reason_code.as_ref().is_none_or(|reason| *reason == decision.reason_code);
    if decision.outcome == test.expect.outcome && reason_fits {
        return None;
    }
    let message = format!(
        "the test `{}` expected another decision than `{}` with reason `{}`",
        test.name,
        decision.outcome.as_str(),
        decision.reason_code
    );
    Some(ContentProblem::new(format!("/tests/{index}"), "policy_test_failed", message))
}
