//! Policy scenarios: a policy input with the expected decision. Bundles embed scenarios as tests.

use super::{
    CompiledPolicy, DecisionOutcome, Obligation, PolicyActor, PolicyDecision, PolicyInput, PolicyRelease,
    PolicyWorkload, variables::MAX_DECISION_STEPS,
};
use crate::{asset::canonical::Canonical, number, time::Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use time::OffsetDateTime;

/// A policy input, with the decision that the policy is expected to make.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    name: String,
    #[serde(default)]
    input: ScenarioInput,
    expect: Expectation,
}

/// The expected parts of a decision. An omitted part is not compared.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    outcome: DecisionOutcome,
    reason_code: Option<String>,
    /// The expected obligations, in any order.
    obligations: Option<BTreeSet<Obligation>>,
    /// The identifiers of the expected matching rules, in any order.
    matched_rules: Option<BTreeSet<String>>,
}

/// The variables of the policy input, as a scenario spells them. An omitted variable is empty.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ScenarioInput {
    actor: Actor,
    workload: Workload,
    release: Release,
    inputs: Map<String, Value>,
    environment: String,
    lane: String,
    now: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Actor {
    #[serde(rename = "ref")]
    reference: String,
    #[serde(rename = "type")]
    kind: String,
    groups: Vec<String>,
    roles: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Workload {
    slug: String,
    owner_ref: String,
    workload_id: String,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Release {
    release_id: String,
    state: String,
    environment: String,
}

impl ScenarioInput {
    /// Converts the scenario's input to a policy input, and passes it to `decide`.
    pub(super) fn with_policy_input<T>(&self, decide: impl FnOnce(&PolicyInput<'_>) -> T) -> T {
        let ScenarioInput { actor, workload, release, inputs, environment, lane, now } = self;
        // `5` and `5.0` are equal in JSON, but have different types in CEL. Whole numbers are therefore normalized to
        // integers.
        let mut inputs = inputs.clone();
        inputs.values_mut().for_each(number::normalize_whole_numbers);
        let input = PolicyInput {
            actor: PolicyActor {
                reference: &actor.reference,
                kind: &actor.kind,
                groups: &actor.groups,
                roles: &actor.roles,
            },
            workload: PolicyWorkload {
                slug: &workload.slug,
                owner_ref: &workload.owner_ref,
                workload_id: &workload.workload_id,
            },
            release: PolicyRelease {
                release_id: &release.release_id,
                state: &release.state,
                environment: &release.environment,
            },
            inputs: &inputs,
            environment,
            lane,
            now: now.unwrap_or_else(|| Timestamp::new(OffsetDateTime::UNIX_EPOCH)),
        };
        decide(&input)
    }
}

/// A part of a decision that a scenario can compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecisionPart {
    /// The outcome of the decision.
    Outcome,
    /// The reason code of the decision.
    ReasonCode,
    /// The obligations that the decision imposes.
    Obligations,
    /// The rules whose conditions hold.
    MatchedRules,
}

impl DecisionPart {
    /// The name of the part in scenario files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Outcome => "outcome",
            Self::ReasonCode => "reason_code",
            Self::Obligations => "obligations",
            Self::MatchedRules => "matched_rules",
        }
    }
}

/// A part of a decision that differs from the expected part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The part of the decision that differs.
    pub part: DecisionPart,
    /// The expected value of the part, as text.
    pub expected: String,
    /// The value of the part in the decision, as text.
    pub decided: String,
}

impl Scenario {
    /// Parses a scenario; `None` if a field is unknown, missing or of another type, or a value has no canonical form.
    #[must_use]
    pub fn parse(value: &Value) -> Option<Self> {
        Canonical::of(value).ok()?;
        Self::deserialize(value).ok()
    }

    /// The name by which messages about the scenario identify it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The decision of a policy about the scenario's input.
    #[must_use]
    pub fn decide(&self, policy: &CompiledPolicy) -> PolicyDecision {
        self.decide_within(policy, &mut { MAX_DECISION_STEPS })
    }

    /// Decides within the remaining steps, and subtracts the steps that it used. If the limit is exceeded,
    /// `remaining_steps` becomes 0.
    pub(super) fn decide_within(&self, policy: &CompiledPolicy, remaining_steps: &mut u64) -> PolicyDecision {
        let (decision, remaining) = self.input.with_policy_input(|input| policy.decide_within(input, *remaining_steps));
        *remaining_steps = remaining;
        decision
    }

    /// The parts of the decision that differ from the expectation.
    #[must_use]
    pub fn differences(&self, decision: &PolicyDecision) -> Vec<Difference> {
        let Expectation { outcome, reason_code, obligations, matched_rules } = &self.expect;
        let format_obligations = |names: &BTreeSet<Obligation>| format_list(names.iter().map(|name| name.as_str()));
        let format_rules = |rules: &BTreeSet<String>| format_list(rules.iter().map(String::as_str));
        let parts = [
            Some((DecisionPart::Outcome, outcome.as_str().to_owned(), decision.outcome.as_str().to_owned())),
            reason_code
                .as_ref()
                .map(|expected| (DecisionPart::ReasonCode, expected.clone(), decision.reason_code.clone())),
            obligations.as_ref().map(|expected| {
                (
                    DecisionPart::Obligations,
                    format_obligations(expected),
                    format_obligations(&decision.obligations.iter().copied().collect()),
                )
            }),
            matched_rules.as_ref().map(|expected| {
                (
                    DecisionPart::MatchedRules,
                    format_rules(expected),
                    format_rules(&decision.matched_rules.iter().cloned().collect()),
                )
            }),
        ];
        let compared = parts.into_iter().flatten().filter(|(_, expected, decided)| expected != decided);
        compared.map(|(part, expected, decided)| Difference { part, expected, decided }).collect()
    }
}

fn format_list<'t>(items: impl Iterator<Item = &'t str>) -> String {
    let items: Vec<&str> = items.collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy() -> CompiledPolicy {
        let rules = json!([
            { "id": "big", "condition": "inputs.n > 5", "outcome": "allow_with_obligations", "reason_code": "big",
              "obligations": ["notify_owner", "human_review"] },
            { "id": "all", "condition": "lane == \"guided\"", "outcome": "allow", "reason_code": "all" },
        ]);
        CompiledPolicy::compile(&json!({ "rules": rules })).unwrap()
    }

    fn differences(expect: Value) -> Vec<(&'static str, String, String)> {
        let value = json!({ "name": "s", "input": { "lane": "guided", "inputs": { "n": 6.0 } }, "expect": expect });
        let scenario = Scenario::parse(&value).unwrap();
        let differences = scenario.differences(&scenario.decide(&policy()));
        differences
            .into_iter()
            .map(|difference| (difference.part.as_str(), difference.expected, difference.decided))
            .collect()
    }

    #[test]
    fn reports_every_difference() {
        let matching = json!({
            "outcome": "allow_with_obligations", "reason_code": "big", "obligations": ["human_review", "notify_owner"],
            "matched_rules": ["all", "big"],
        });
        assert_eq!(differences(matching), []);
        assert_eq!(differences(json!({ "outcome": "allow_with_obligations" })), [], "omitted parts are not compared");
        let mismatching = json!({ "outcome": "deny", "reason_code": "x", "obligations": [], "matched_rules": ["big"] });
        let text = str::to_owned;
        assert_eq!(
            differences(mismatching),
            [
                ("outcome", text("deny"), text("allow_with_obligations")),
                ("reason_code", text("x"), text("big")),
                ("obligations", text("[]"), text("[notify_owner, human_review]")),
                ("matched_rules", text("[big]"), text("[all, big]")),
            ]
        );
    }

    #[test]
    fn refuses_unknown_scenario_fields() {
        for value in [
            json!({ "name": "s" }),
            json!({ "name": "s", "expect": { "outcome": "perhaps" } }),
            json!({ "name": "s", "expect": { "outcome": "deny", "because": "x" } }),
            json!({ "name": "s", "input": { "actor": { "name": "x" } }, "expect": { "outcome": "deny" } }),
            json!({ "name": "s", "input": { "inputs": { "n": 1e300 } }, "when": "now", "expect": { "outcome": "deny" } }),
        ] {
            assert_eq!(Scenario::parse(&value), None, "{value}");
        }
    }
}
