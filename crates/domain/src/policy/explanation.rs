//! Explains a decision rule by rule: which clauses of each condition hold, do not hold, or cannot be evaluated.
//!
//! A condition is split only at its outermost operators, so that each clause is a complete expression of the source.
//!
//! All rules together may use the steps of one decision, and all clauses together the same number again. Patterns are
//! compiled once for the bundle. The input is converted twice: once for rules, and once for clauses. An explanation
//! therefore takes about three times as long as its decision.

use super::{
    CompiledPolicy, DecisionOutcome, Evaluator, PolicyDecision, Rule,
    bundle::RuleContent,
    condition::{Condition, LogicalOperator, split_clauses},
    fast_path::FastPath,
    scenario::ScenarioInput,
    variables::{EvaluationError, MAX_DECISION_STEPS},
};
use crate::asset::{canonical::Canonical, content::ContentProblem};
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

/// Whether a condition or a clause of a condition holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConditionResult {
    /// The condition or clause is true.
    Yes,
    /// The condition or clause is false.
    No,
    /// The condition or clause cannot be evaluated.
    Failed,
}

impl ConditionResult {
    /// Every result, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::Yes, Self::No, Self::Failed];

    /// The wire form, such as `yes`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Failed => "failed",
        }
    }
}

/// A clause of a condition, with its result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ClauseExplanation {
    /// The clause as the source of the condition spells it.
    pub source: String,
    /// Whether the clause holds for the input.
    pub holds: ConditionResult,
    /// The name of the field that the clause reads and the input lacks, if the clause failed for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_field: Option<String>,
}

/// A rule, with the result of its condition and of each clause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RuleExplanation {
    /// The identifier of the rule.
    pub rule: String,
    /// Whether the condition holds for the input.
    pub holds: ConditionResult,
    /// The outcome that the rule has if its condition holds.
    pub outcome: DecisionOutcome,
    /// The reason code that the rule gives to a decision.
    pub reason_code: String,
    /// The operator between the clauses, `&&` or `||`; `None` for a condition with a single clause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<&'static str>,
    /// The clauses of the condition, in order.
    pub clauses: Vec<ClauseExplanation>,
}

/// A decision with its explanation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DecisionExplanation {
    /// The decision that is explained.
    pub decision: PolicyDecision,
    /// The rules, in bundle order.
    pub rules: Vec<RuleExplanation>,
}

/// The reason why no decision can be made and explained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExplanationRefusal {
    /// The bundle does not compile, because of these problems.
    Bundle(Vec<ContentProblem>),
    /// The input has an unknown field, or a value that has no canonical form.
    Input,
}

impl CompiledPolicy {
    /// Decides for an input in the form of a scenario's `input`, and explains the decision.
    ///
    /// # Errors
    /// When the content is not a valid bundle, or the input is invalid.
    pub fn explain(content: &Value, input: &Value) -> Result<DecisionExplanation, ExplanationRefusal> {
        let policy = Self::compile(content).map_err(ExplanationRefusal::Bundle)?;
        // Serde would also accept a list in place of the struct, so the type is checked first.
        let is_valid = input.is_object() && Canonical::of(input).is_ok();
        let input = ScenarioInput::deserialize(input).ok().filter(|_| is_valid);
        let input = input.ok_or(ExplanationRefusal::Input)?;
        let sources = content.get("rules").and_then(Value::as_array).into_iter().flatten();
        let sources: Vec<String> =
            sources.filter_map(|rule| Some(RuleContent::deserialize(rule).ok()?.condition)).collect();
        Ok(input.with_policy_input(|input| {
            let mut rules = Evaluator::new(&policy, input, MAX_DECISION_STEPS);
            let mut clauses = Evaluator::new(&policy, input, MAX_DECISION_STEPS);
            let parts = policy.rules.iter().zip(&policy.fast_paths).zip(&sources);
            let explained = parts.map(|((rule, fast_path), source)| {
                let (holds, _) = result(rules.try_holds(&rule.condition, fast_path.as_ref()));
                explain_rule(rule, holds, source, &mut clauses)
            });
            DecisionExplanation { decision: policy.decide(input), rules: explained.collect() }
        }))
    }
}

fn explain_rule(rule: &Rule, holds: ConditionResult, source: &str, clauses: &mut Evaluator<'_>) -> RuleExplanation {
    let (operator, sources) = split_clauses(source);
    RuleExplanation {
        rule: rule.id.clone(),
        holds,
        outcome: rule.outcome,
        reason_code: rule.reason_code.clone(),
        operator: operator.map(LogicalOperator::as_str),
        clauses: sources.into_iter().map(|source| explain_clause(source, clauses)).collect(),
    }
}

fn explain_clause(source: &str, clauses: &mut Evaluator<'_>) -> ClauseExplanation {
    // The patterns of the rule include those of its clauses, so compiling a clause adds none.
    let mut patterns = clauses.policy.patterns.clone();
    // Each limit was checked for the whole condition, so each of its clauses compiles.
    let Ok(condition) = Condition::compile(source, &mut patterns) else {
        return ClauseExplanation { source: source.to_owned(), holds: ConditionResult::Failed, missing_field: None };
    };
    let fast_path = FastPath::compile(&condition);
    let (holds, missing_field) = result(clauses.try_holds(&condition, fast_path.as_ref()));
    ClauseExplanation { source: source.to_owned(), holds, missing_field }
}

fn result(evaluated: Result<bool, EvaluationError>) -> (ConditionResult, Option<String>) {
    match evaluated {
        Ok(true) => (ConditionResult::Yes, None),
        Ok(false) => (ConditionResult::No, None),
        Err(EvaluationError::MissingField(name)) => (ConditionResult::Failed, Some(name)),
        Err(EvaluationError::Other) => (ConditionResult::Failed, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The source of a clause, its result, and the field that it lacks.
    type Clause = (String, ConditionResult, Option<String>);

    fn explain(condition: &str, input: &Value) -> (ConditionResult, Option<&'static str>, Vec<Clause>) {
        let bundle =
            json!({ "rules": [{ "id": "r", "condition": condition, "outcome": "allow", "reason_code": "x" }] });
        let explanation = CompiledPolicy::explain(&bundle, input).unwrap();
        let rule = explanation.rules.into_iter().next().unwrap();
        assert_eq!(rule.holds == ConditionResult::Yes, explanation.decision.matched_rules == ["r"], "{condition}");
        let clauses = rule.clauses.into_iter().map(|clause| (clause.source, clause.holds, clause.missing_field));
        (rule.holds, rule.operator, clauses.collect())
    }

    fn clause(source: &str, holds: ConditionResult, missing: Option<&str>) -> Clause {
        (source.to_owned(), holds, missing.map(str::to_owned))
    }

    #[test]
    fn explains_each_clause_of_a_condition() {
        let input = json!({ "environment": "dev", "inputs": { "n": 7.0, "a": ["x&&y"] } });
        for (condition, expected) in [
            ("always", (ConditionResult::Yes, None, vec![clause("always", ConditionResult::Yes, None)])),
            ("never", (ConditionResult::No, None, vec![clause("never", ConditionResult::No, None)])),
            (
                "environment == \"dev\" && (inputs.n > 9 || inputs.n < 3) && inputs.n > 5",
                (
                    ConditionResult::No,
                    Some("&&"),
                    vec![
                        clause("environment == \"dev\"", ConditionResult::Yes, None),
                        clause("(inputs.n > 9 || inputs.n < 3)", ConditionResult::No, None),
                        clause("inputs.n > 5", ConditionResult::Yes, None),
                    ],
                ),
            ),
            (
                "inputs.n > 9 && inputs.n > 8 || inputs.a[0] == \"x&&y\"",
                (
                    ConditionResult::Yes,
                    Some("||"),
                    vec![
                        clause("inputs.n > 9 && inputs.n > 8", ConditionResult::No, None),
                        clause("inputs.a[0] == \"x&&y\"", ConditionResult::Yes, None),
                    ],
                ),
            ),
            (
                "inputs.n > 9 && true ? false : true",
                (
                    ConditionResult::Yes,
                    None,
                    vec![clause("inputs.n > 9 && true ? false : true", ConditionResult::Yes, None)],
                ),
            ),
            (
                "inputs.n > 5 && inputs.ticket == \"x\"",
                (
                    ConditionResult::Failed,
                    Some("&&"),
                    vec![
                        clause("inputs.n > 5", ConditionResult::Yes, None),
                        clause("inputs.ticket == \"x\"", ConditionResult::Failed, Some("ticket")),
                    ],
                ),
            ),
        ] {
            assert_eq!(explain(condition, &input), expected, "{condition}");
        }
    }

    /// 200 rules can have hundreds of clauses, each with the steps of a decision. Without a shared limit, an
    /// explanation could take minutes.
    #[test]
    fn rules_and_clauses_share_the_steps_of_a_decision() {
        let costly = "inputs.list.exists(x, inputs.list.exists(y, x == y + 1000))";
        let rule = |index: usize| {
            json!({
                "id": format!("r{index}"), "condition": format!("{costly} || {costly}"), "outcome": "allow",
                "reason_code": "x",
            })
        };
        let bundle = json!({ "rules": (0..12).map(rule).collect::<Vec<_>>() });
        let input = json!({ "inputs": { "list": (0..90).collect::<Vec<_>>() } });
        let explanation = CompiledPolicy::explain(&bundle, &input).unwrap();
        let failed: Vec<&str> = explanation
            .rules
            .iter()
            .filter(|rule| rule.holds == ConditionResult::Failed)
            .map(|rule| rule.rule.as_str())
            .collect();
        let expected: Vec<&str> = explanation.decision.failed_rules.iter().map(|failed| failed.rule.as_str()).collect();
        assert_eq!(failed, expected, "rules fail as in the decision");
        assert!((1..12).contains(&failed.len()), "{failed:?}");
        let clauses: Vec<ConditionResult> =
            explanation.rules.iter().flat_map(|rule| &rule.clauses).map(|clause| clause.holds).collect();
        assert_eq!((clauses.first(), clauses.last()), (Some(&ConditionResult::No), Some(&ConditionResult::Failed)));
    }

    #[test]
    fn clause_uses_the_patterns_of_its_bundle() {
        let condition = "inputs.a.matches('^x+$') && inputs.b.matches('^y+$')";
        let input = json!({ "inputs": { "a": "xx", "b": "z" } });
        let expected = vec![
            clause("inputs.a.matches('^x+$')", ConditionResult::Yes, None),
            clause("inputs.b.matches('^y+$')", ConditionResult::No, None),
        ];
        assert_eq!(explain(condition, &input), (ConditionResult::No, Some("&&"), expected));
    }

    #[test]
    fn refuses_invalid_bundles_and_inputs() {
        let bundle = json!({ "rules": [{ "id": "r", "condition": "1 +", "outcome": "allow", "reason_code": "x" }] });
        let refusal = CompiledPolicy::explain(&bundle, &json!({}));
        assert!(matches!(refusal, Err(ExplanationRefusal::Bundle(problems)) if problems.len() == 1));
        let bundle = json!({ "rules": [] });
        for invalid_input in
            [json!({ "input": {} }), json!([]), json!({ "inputs": { "n": 9_007_199_254_740_993_i64 } })]
        {
            assert_eq!(
                CompiledPolicy::explain(&bundle, &invalid_input),
                Err(ExplanationRefusal::Input),
                "{invalid_input}"
            );
        }
    }
}
