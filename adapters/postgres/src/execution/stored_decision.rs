//! Encodes and decodes policy decisions as they are stored.
//!
//! Each rule is stored as one text. `ID` means that the rule matched. `!ID` means that it could not be evaluated,
//! and `!ID FIELD` that the inputs lack the field that it needs. An identifier begins with a letter or digit and
//! contains no space, so the three forms are distinct.

use crate::{param::array_literal, row::require_decoded};
use fairway_domain::{
    evidence::RecordedDecision,
    id::DecisionId,
    policy::{DecisionOutcome, FailedRule},
    store::StoreError,
    time::Timestamp,
};
use serde::Deserialize;

/// A decision as statements return it, built with `json_build_object`.
#[derive(Deserialize)]
pub(super) struct StoredDecision {
    decision_id: DecisionId,
    outcome: String,
    reason_code: String,
    obligations: Vec<String>,
    rules: Vec<String>,
    evaluated_at: Timestamp,
}

impl StoredDecision {
    pub(super) fn into_decision(self) -> Result<RecordedDecision, StoreError> {
        let (rules, failed_rules) = decode_rules(self.rules);
        Ok(RecordedDecision {
            decision_id: self.decision_id,
            outcome: require_decoded("decisions", DecisionOutcome::parse(&self.outcome))?,
            reason_code: self.reason_code,
            obligations: self.obligations,
            rules,
            failed_rules,
            evaluated_at: self.evaluated_at,
        })
    }
}

/// The obligations of a decision, as a PostgreSQL array literal.
pub(super) fn obligations_literal(decision: &RecordedDecision) -> String {
    array_literal(decision.obligations.iter().map(Some))
}

/// The encoded rules of a decision, as a PostgreSQL array literal.
pub(super) fn rules_literal(decision: &RecordedDecision) -> String {
    array_literal(encode_rules(decision).iter().map(Some))
}

fn encode_rules(decision: &RecordedDecision) -> Vec<String> {
    let failed = decision.failed_rules.iter().map(|FailedRule { rule, missing_field }| match missing_field {
        Some(field) => format!("!{rule} {field}"),
        None => format!("!{rule}"),
    });
    decision.rules.iter().cloned().chain(failed).collect()
}

/// Decodes stored rules to the rules that matched and the rules that failed.
fn decode_rules(stored: Vec<String>) -> (Vec<String>, Vec<FailedRule>) {
    let (mut matched, mut failed) = (Vec::new(), Vec::new());
    for text in stored {
        let Some(failure) = text.strip_prefix('!') else {
            matched.push(text);
            continue;
        };
        let (rule, field) = failure.split_once(' ').map_or((failure, None), |(rule, field)| (rule, Some(field)));
        failed.push(FailedRule { rule: rule.to_owned(), missing_field: field.map(str::to_owned) });
    }
    (matched, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_what_it_encodes() {
        let stored = ["a", "!b", "!c.d a field"].map(str::to_owned).to_vec();
        let (matched, failed) = decode_rules(stored);
        assert_eq!(matched, ["a"]);
        let failure = |rule: &str, field: Option<&str>| FailedRule {
            rule: rule.to_owned(),
            missing_field: field.map(str::to_owned),
        };
        assert_eq!(failed, [failure("b", None), failure("c.d", Some("a field"))]);
    }
}
