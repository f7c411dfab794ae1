//! The stored form of a policy decision.
//!
//! Its rules are one text each: `ID` matched, `!ID` could not be evaluated, `!ID FIELD` could not because the inputs lack
//! FIELD. An id begins with a letter or a digit and has no space, so the forms are distinct.

use crate::row::decode;
use fairway_domain::{
    evidence::RecordedDecision,
    id::DecisionId,
    policy::{FailedRule, Outcome},
    store::StoreError,
    time::Timestamp,
};
use serde::Deserialize;

/// A decision as statements return it: an object of `json_build_object`.
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
    /// Reads the decision.
    pub(super) fn read(self) -> Result<RecordedDecision, StoreError> {
        let (rules, failed_rules) = decode_rules(self.rules);
        Ok(RecordedDecision {
            decision_id: self.decision_id,
            outcome: decode("decisions", Outcome::parse(&self.outcome))?,
            reason_code: self.reason_code,
            obligations: self.obligations,
            rules,
            failed_rules,
            evaluated_at: self.evaluated_at,
        })
    }
}

/// Encodes the rules of a decision.
pub(super) fn encode_rules(decision: &RecordedDecision) -> Vec<String> {
    let failed = decision.failed_rules.iter().map(|FailedRule { rule, missing_field }| match missing_field {
        Some(field) => format!("!{rule} {field}"),
        None => format!("!{rule}"),
    });
    decision.rules.iter().cloned().chain(failed).collect()
}

/// Decodes the rules that matched, and those that failed.
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
