//! Which rules can decide anything at all, as far as their texts say.
//!
//! A rule is shadowed by another that holds wherever it does and wins over it (contract: any `deny` wins, then obligations
//! are united, then `allow`; the reason is that of the first rule of the winning kind). Two conditions are compared as texts,
//! so what is said here is certain, and not everything that is so is said.

use super::Idle;
use fairway_domain::policy::Outcome;
use serde_json::Value;
use std::collections::BTreeSet;

/// What of a rule says who wins.
struct Rule<'c> {
    id: &'c str,
    condition: String,
    outcome: Option<Outcome>,
    obligations: BTreeSet<&'c str>,
}

/// For each rule of a bundle its id, and why it can never decide where that is so.
pub(super) fn idle(content: &Value) -> Vec<(String, Option<Idle>)> {
    let rules: Vec<Rule<'_>> =
        content.get("rules").and_then(Value::as_array).into_iter().flatten().map(Rule::of).collect();
    let judged = rules.iter().enumerate().map(|(place, rule)| {
        let others = rules.iter().enumerate().filter(|(other, _)| *other != place);
        let shadow = others.into_iter().find(|(other, shadow)| shadow.hides(rule, *other < place));
        let idle = match (rule.condition.as_str(), shadow) {
            ("never" | "false", _) => Some(Idle::Unreachable),
            (_, Some((_, shadow))) => Some(Idle::ShadowedBy(shadow.id.to_owned())),
            (_, None) => None,
        };
        (rule.id.to_owned(), idle)
    });
    judged.collect()
}

impl<'c> Rule<'c> {
    fn of(rule: &'c Value) -> Self {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        let obligations = rule.get("obligations").and_then(Value::as_array).into_iter().flatten();
        Self {
            id: text("id"),
            condition: text("condition").trim().to_owned(),
            outcome: Outcome::parse(text("outcome")),
            obligations: obligations.filter_map(Value::as_str).collect(),
        }
    }

    /// Whether the other rule changes nothing where this one stands, before it or behind it.
    fn hides(&self, other: &Self, is_before: bool) -> bool {
        let holds_too = matches!(self.condition.as_str(), "always" | "true") || self.condition == other.condition;
        let (Some(mine), Some(its)) = (self.outcome, other.outcome) else { return false };
        let wins = match mine.cmp(&its) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => is_before && other.obligations.is_subset(&self.obligations),
            std::cmp::Ordering::Less => false,
        };
        // Where two rules are the same, the earlier one is the one that decides.
        holds_too && wins
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judged(rules: &[(&str, &str, &[&str])]) -> Vec<Option<String>> {
        let rules: Vec<Value> = rules
            .iter()
            .enumerate()
            .map(|(place, (condition, outcome, obligations))| {
                json!({ "id": format!("r{place}"), "condition": condition, "outcome": outcome, "obligations": obligations })
            })
            .collect();
        let named = |(_, idle): (String, Option<Idle>)| {
            idle.map(|idle| match idle {
                Idle::Unreachable => "unreachable".to_owned(),
                Idle::ShadowedBy(other) => other,
            })
        };
        idle(&json!({ "rules": rules })).into_iter().map(named).collect()
    }

    #[test]
    fn rules_that_can_never_decide_are_told() {
        let none: &[&str] = &[];
        let by = |name: &str| Some(name.to_owned());
        let owed = "allow_with_obligations";
        assert_eq!(
            judged(&[("a", "allow", none), ("a", "deny", none)]),
            [by("r1"), None],
            "a denial wins wherever it stands"
        );
        assert_eq!(judged(&[("a", "deny", none), ("always", "allow", none)]), [None, None]);
        assert_eq!(
            judged(&[("always", "deny", none), ("a", "deny", none), ("b", "allow", none)]),
            [None, by("r0"), by("r0")]
        );
        assert_eq!(
            judged(&[("a", "allow", none), ("always", "allow", none)]),
            [None, None],
            "the first one gives its reason"
        );
        assert_eq!(judged(&[("never", "allow", none), ("b", "allow", none)]), [by("unreachable"), None]);
        assert_eq!(judged(&[("a", owed, &["x"]), ("a", owed, &["y"])]), [None, None], "obligations are united");
        assert_eq!(judged(&[("a", owed, &["x", "y"]), ("a", owed, &["y"])]), [None, by("r0")]);
        assert_eq!(judged(&[("a", owed, &["x"]), ("a", "allow", none)]), [None, by("r0")]);
    }
}
