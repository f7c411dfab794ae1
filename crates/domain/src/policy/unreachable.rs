//! Finds rules that can never affect a decision, as far as the form of their conditions proves it.
//!
//! A rule is unreachable if decisions without it have the same outcome, reason and obligations, within the step limit.
//! Either its condition never holds, or another rule takes precedence in [`CompiledPolicy::decide`] whenever it holds.
//! A failed condition denies the run. A rule is therefore not unreachable if its condition can fail in a run in which
//! the other rule has no effect. Conditions are compared by form only, so each report is certain, but not every
//! unreachable rule is reported.

use super::{CompiledPolicy, DecisionOutcome, Rule, condition::Condition, fast_path::FastPath};
use serde::Serialize;
use std::cmp::Ordering;

/// The reason why a rule can never affect a decision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unreachable {
    /// The condition of the rule never holds.
    Unreachable,
    /// Whenever the rule holds, the rule with this identifier also holds and takes precedence.
    ShadowedBy(String),
}

impl CompiledPolicy {
    /// The identifier of each rule in bundle order, with a reason if the rule is unreachable.
    #[must_use]
    pub fn rule_reachability(&self) -> Vec<(&str, Option<Unreachable>)> {
        let results = self.rules.iter().enumerate().map(|(index, rule)| {
            if rule.condition.is_constantly(false) {
                return (rule.id.as_str(), Some(Unreachable::Unreachable));
            }
            let earlier = self.rules.iter().take(index).map(|other| (other, true));
            let later = self.rules.iter().skip(index.saturating_add(1)).map(|other| (other, false));
            let shadow = earlier
                .chain(later)
                .find(|(other, is_earlier)| rule.yields_to(other, *is_earlier) && rule.is_covered_by(other));
            (rule.id.as_str(), shadow.map(|(other, _)| Unreachable::ShadowedBy(other.id.clone())))
        });
        results.collect()
    }
}

impl Rule {
    /// Whether this rule adds nothing to a decision for which the other rule matches too.
    fn yields_to(&self, other: &Self, is_earlier: bool) -> bool {
        match other.outcome.cmp(&self.outcome) {
            Ordering::Greater => true,
            // With equal outcomes, the earlier rule determines the reason, and the obligations of both rules are
            // combined.
            Ordering::Equal => {
                is_earlier && self.obligations.iter().all(|obligation| other.obligations.contains(obligation))
            }
            Ordering::Less => false,
        }
    }

    /// Whether the other rule decides in every run in which this rule matches or cannot be evaluated, because the other
    /// rule then also matches or cannot be evaluated.
    fn is_covered_by(&self, other: &Self) -> bool {
        // Equal conditions hold and fail in the same runs.
        self.condition == other.condition
            || other.condition.is_constantly(true)
                && match other.outcome {
                    // A matching deny rule takes precedence over failed conditions.
                    DecisionOutcome::Deny => true,
                    DecisionOutcome::Allow | DecisionOutcome::AllowWithObligations => self.condition.never_fails(),
                }
    }
}

impl Condition {
    fn is_constantly(&self, truth: bool) -> bool {
        match self {
            Self::Always => truth,
            Self::Never => !truth,
            Self::Expression(expression) => Self::literal_truth(expression) == Some(truth),
        }
    }

    /// Whether evaluating the condition succeeds in every run.
    fn never_fails(&self) -> bool {
        self.is_constantly(true)
            || self.is_constantly(false)
            || FastPath::compile(self).is_some_and(|fast_path| fast_path.is_total())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        policy::{PolicyActor, PolicyDecision, PolicyInput, PolicyRelease, PolicyWorkload},
        time::Timestamp,
    };
    use proptest::{prelude::*, sample::select};
    use serde_json::{Map, Value, json};
    use time::OffsetDateTime;

    type RuleSpec = (&'static str, &'static str, &'static [&'static str]);

    const WITH_OBLIGATIONS: &str = "allow_with_obligations";

    fn compiled(rules: &[RuleSpec]) -> CompiledPolicy {
        let rules = rules.iter().enumerate().map(|(index, (condition, outcome, obligations))| {
            let mut rule = json!({
                "id": format!("r{index}"), "condition": condition, "outcome": outcome,
                "reason_code": format!("c{index}"),
            });
            if *outcome == WITH_OBLIGATIONS {
                rule["obligations"] = json!(obligations);
            }
            rule
        });
        CompiledPolicy::compile(&json!({ "rules": rules.collect::<Vec<Value>>() })).unwrap()
    }

    /// The result for each rule: the identifier of the rule that shadows it, `unreachable`, or an empty text.
    fn unreachable_results(rules: &[RuleSpec]) -> Vec<String> {
        let describe = |(_, reason): (&str, Option<Unreachable>)| match reason {
            Some(Unreachable::Unreachable) => "unreachable".to_owned(),
            Some(Unreachable::ShadowedBy(other)) => other,
            None => String::new(),
        };
        compiled(rules).rule_reachability().into_iter().map(describe).collect()
    }

    fn decide(policy: &CompiledPolicy, lane: &str, inputs: &Map<String, Value>) -> PolicyDecision {
        policy.decide(&PolicyInput {
            actor: PolicyActor::default(),
            workload: PolicyWorkload::default(),
            release: PolicyRelease::default(),
            inputs,
            environment: "dev",
            lane,
            now: Timestamp::new(OffsetDateTime::UNIX_EPOCH),
        })
    }

    #[test]
    fn reports_unreachable_rules() {
        let (guided, big) = ("lane == \"guided\"", "inputs.n > 5");
        for (rules, expected) in [
            (vec![(guided, "allow", &[][..]), (guided, "deny", &[])], vec!["r1", ""]),
            (vec![(guided, "deny", &[]), ("always", "allow", &[])], vec!["", ""]),
            (vec![("always", "deny", &[]), (guided, "deny", &[]), (big, "allow", &[])], vec!["", "r0", "r0"]),
            (vec![(guided, "allow", &[]), ("always", "allow", &[])], vec!["", ""]),
            (vec![("always", "allow", &[]), (guided, "allow", &[])], vec!["", "r0"]),
            (vec![("true", "allow", &[]), ("false", "deny", &[])], vec!["", "unreachable"]),
            (vec![("never", "allow", &[]), (guided, "allow", &[])], vec!["unreachable", ""]),
            (
                vec![(guided, WITH_OBLIGATIONS, &["notify_owner"]), (guided, WITH_OBLIGATIONS, &["human_review"])],
                vec!["", ""],
            ),
            (
                vec![
                    (guided, WITH_OBLIGATIONS, &["notify_owner", "human_review"]),
                    ("lane==\"guided\" ", WITH_OBLIGATIONS, &["human_review"]),
                ],
                vec!["", "r0"],
            ),
            (vec![(guided, WITH_OBLIGATIONS, &["notify_owner"]), (guided, "allow", &[])], vec!["", "r0"]),
        ] {
            assert_eq!(unreachable_results(&rules), expected, "{rules:?}");
        }
    }

    #[test]
    fn rule_that_denies_by_failing_is_reachable() {
        let rules: [RuleSpec; 2] = [("always", "allow", &[]), ("inputs.n > 5", "allow", &[])];
        assert_eq!(
            unreachable_results(&rules),
            ["", ""],
            "without `n` the second rule turns the decision into a denial"
        );
        let empty_inputs = Map::new();
        assert_eq!(decide(&compiled(&rules), "", &empty_inputs).outcome, DecisionOutcome::Deny);
        assert_eq!(decide(&compiled(&rules[..1]), "", &empty_inputs).outcome, DecisionOutcome::Allow);
        assert_eq!(
            unreachable_results(&[
                ("always", WITH_OBLIGATIONS, &["notify_owner"]),
                ("inputs.n == \"x\"", "allow", &[])
            ]),
            ["", ""]
        );
        assert_eq!(
            unreachable_results(&[("always", "allow", &[]), ("lane == \"guided\" && inputs.on", "allow", &[])]),
            ["", ""]
        );
    }

    fn rule() -> impl Strategy<Value = RuleSpec> {
        let conditions = [
            "always",
            "never",
            "true",
            "false",
            "lane == \"guided\"",
            "lane != \"guided\"",
            "inputs.n > 5",
            "inputs.n == \"x\"",
            "has(inputs.n)",
            "inputs.on",
            "lane in [\"guided\", \"standard\"]",
            "size(inputs.n) > 1",
        ];
        let obligations: [&[&str]; 3] = [&["notify_owner"], &["human_review"], &["human_review", "notify_owner"]];
        (select(conditions.to_vec()), select(vec!["allow", "deny", WITH_OBLIGATIONS]), select(obligations.to_vec()))
    }

    fn situation() -> impl Strategy<Value = (&'static str, Map<String, Value>)> {
        let n = prop::option::of(select(vec![json!(1), json!(7), json!("x"), json!(["a", "b"]), Value::Null]));
        let on = prop::option::of(select(vec![json!(true), json!(false), json!("yes")]));
        (select(vec!["guided", "standard", ""]), n, on).prop_map(|(lane, n, on)| {
            let members = [("n", n), ("on", on)].into_iter();
            (lane, members.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn removing_unreachable_rules_changes_no_decision(
            rules in prop::collection::vec(rule(), 1..6),
            situations in prop::collection::vec(situation(), 8),
        ) {
            let policy = compiled(&rules);
            let reachable_rules: Vec<Rule> = policy.rules.iter().zip(policy.rule_reachability())
                .filter(|(_, (_, reason))| reason.is_none()).map(|(rule, _)| rule.clone()).collect();
            let reduced = CompiledPolicy::of(reachable_rules, policy.patterns.clone());
            for (lane, inputs) in &situations {
                let (before, after) = (decide(&policy, lane, inputs), decide(&reduced, lane, inputs));
                prop_assert_eq!(
                    (before.outcome, before.reason_code, before.obligations),
                    (after.outcome, after.reason_code, after.obligations)
                );
            }
        }
    }
}
