//! Evaluates all guardrails of a stage. The check contains all its data, so that it can run on another thread.

use super::{
    Action, Enforcement, Guardrail, Guardrails, OnError, Stage,
    detector::{Budget, DetectorError, DetectorResult},
    rewrite_texts::estimate_bytes,
};
use crate::{
    asset::content::embedded_schema::MAX_BRIEF_EVALUATIONS,
    redaction::{PersonalDataClass, Redactor},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The maximum number of evaluations of one check, which is about a second of work. A schema costs its nodes times
/// the values, and a pattern its weight times the bytes.
const MAX_EVALUATIONS: u64 = 100_000_000;

/// A check of a value by all guardrails of a stage, before it runs.
#[derive(Clone, Debug)]
pub struct GuardrailCheck {
    guardrails: Arc<Guardrails>,
    stage: Stage,
    value: Value,
    /// The context that is returned together with the value.
    context: Value,
    /// The number of bytes that the run's guardrails may still inspect.
    remaining_bytes: usize,
    /// The maximum size of the masked value, in bytes.
    max_masked_bytes: usize,
}

/// Result of a check.
#[derive(Clone, PartialEq, Debug)]
pub struct GuardrailResult {
    /// The stage that was checked.
    pub stage: Stage,
    /// The value after masking.
    pub value: Value,
    /// The context after masking.
    pub context: Value,
    /// Whether a guardrail masked anything.
    pub is_changed: bool,
    /// The findings, in the order of the guardrails.
    pub findings: Vec<GuardrailFinding>,
    /// The outcome of the check.
    pub outcome: GuardrailOutcome,
    /// Whether a finding requires human review of the response.
    pub requires_review: bool,
    /// The number of bytes that the run's guardrails may still inspect.
    pub remaining_bytes: usize,
}

/// Outcome of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuardrailOutcome {
    /// The value may be used.
    Passed,
    /// The value must not be used.
    Blocked,
    /// The value must not be used, because a fail-closed detector failed.
    Unavailable,
    /// The masked value would exceed the available memory.
    OutOfMemory,
}

impl GuardrailOutcome {
    /// The wire form in evidence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Blocked => "blocked",
            Self::Unavailable => "unavailable",
            Self::OutOfMemory => "no_room",
        }
    }
}

/// The finding of one guardrail, which contains only counts and codes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardrailFinding {
    asset: Arc<str>,
    id: String,
    detector: &'static str,
    enforcement: Enforcement,
    reason_code: Option<String>,
    kind: FindingKind,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum FindingKind {
    Matched { count: u64, classes: Vec<(PersonalDataClass, u64)>, action: Action },
    Failed { on_error: OnError, error_code: Option<&'static str> },
}

impl GuardrailFinding {
    fn of(rail: &Guardrail, kind: FindingKind) -> Self {
        Self {
            asset: Arc::clone(&rail.asset),
            id: rail.id.clone(),
            detector: rail.detector.name(),
            enforcement: rail.enforcement,
            reason_code: rail.reason_code.clone(),
            kind,
        }
    }

    /// The finding as JSON, for evidence.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut document = Map::new();
        document.insert("guardrail_config".to_owned(), json!(self.asset.as_ref()));
        document.insert("id".to_owned(), json!(self.id));
        document.insert("detector".to_owned(), json!(self.detector));
        document.insert("reason_code".to_owned(), json!(self.reason_code));
        let effect = match self.enforcement {
            Enforcement::Enforced => "enforced",
            Enforcement::LoggingOnly => "logging_only",
        };
        document.insert("effect".to_owned(), json!(effect));
        match &self.kind {
            FindingKind::Matched { count, classes, action } => {
                document.insert("action".to_owned(), json!(action.as_str()));
                document.insert("found".to_owned(), json!(count));
                if !classes.is_empty() {
                    let classes = classes.iter().map(|(class, count)| (class.as_str().to_owned(), json!(count)));
                    document.insert("entities".to_owned(), Value::Object(classes.collect()));
                }
            }
            FindingKind::Failed { on_error, error_code } => {
                let on_error = match on_error {
                    OnError::FailClosed => "fail_closed",
                    OnError::FailOpen => "fail_open",
                };
                document.insert("on_error".to_owned(), json!(on_error));
                document.extend(error_code.map(|code| ("error_code".to_owned(), json!(code))));
            }
        }
        Value::Object(document)
    }
}

impl GuardrailCheck {
    /// Prepares a check. The maximum of masked bytes limits the size of the masked value.
    #[must_use]
    pub const fn new(
        guardrails: Arc<Guardrails>,
        stage: Stage,
        value: Value,
        remaining_bytes: usize,
        max_masked_bytes: usize,
    ) -> Self {
        Self { guardrails, stage, value, context: Value::Null, remaining_bytes, max_masked_bytes }
    }

    /// Adds the context that is returned together with the value, such as metadata. Length and schema detectors
    /// ignore it.
    #[must_use]
    pub fn with_context(self, beside: Value) -> Self {
        Self { context: beside, ..self }
    }

    /// The estimated number of bytes to inspect, summed over all guardrails of the stage.
    #[must_use]
    pub fn estimated_bytes(&self) -> usize {
        estimate_bytes(&self.value)
            .saturating_add(estimate_bytes(&self.context))
            .saturating_mul(self.guardrails.for_stage(self.stage).count())
    }

    /// Runs the guardrails in order. Each guardrail inspects the value that the previous guardrails masked. The
    /// first guardrail that blocks the value ends the check.
    #[must_use]
    pub fn run(self, redactor: &Redactor) -> GuardrailResult {
        self.run_within(MAX_EVALUATIONS, redactor)
    }

    /// Runs the check with the small budget of a request thread; `None` when the check needs more evaluations.
    #[must_use]
    pub fn run_briefly(&self, redactor: &Redactor) -> Option<GuardrailResult> {
        let result = self.clone().run_within(MAX_BRIEF_EVALUATIONS, redactor);
        let is_cut_short =
            |finding: &GuardrailFinding| matches!(finding.kind, FindingKind::Failed { error_code: Some(_), .. });
        (!result.findings.iter().any(is_cut_short)).then_some(result)
    }

    fn run_within(self, evaluations: u64, redactor: &Redactor) -> GuardrailResult {
        let mut budget = Budget(evaluations);
        let Self { guardrails, stage, value, context: beside, remaining_bytes: left, max_masked_bytes: room } = self;
        let mut result = GuardrailResult {
            stage,
            value,
            context: beside,
            is_changed: false,
            findings: Vec::new(),
            outcome: GuardrailOutcome::Passed,
            requires_review: false,
            remaining_bytes: left,
        };
        for rail in guardrails.for_stage(stage) {
            result.apply(rail, room, &mut budget, redactor);
            if result.outcome != GuardrailOutcome::Passed {
                break;
            }
        }
        result
    }
}

impl GuardrailResult {
    fn apply(&mut self, rail: &Guardrail, max_masked_bytes: usize, budget: &mut Budget, redactor: &Redactor) {
        let bytes = estimate_bytes(&self.value).saturating_add(estimate_bytes(&self.context));
        let found = match self.remaining_bytes.checked_sub(bytes) {
            Some(left) => {
                self.remaining_bytes = left;
                rail.detector.inspect(&self.value, &self.context, rail.action, max_masked_bytes, budget, redactor)
            }
            None => Err(DetectorError::Unavailable),
        };
        match (found, rail.enforcement) {
            (Ok(found), _) if found.count == 0 => {}
            (Ok(found), effect) => self.record(rail, effect, found),
            (Err(DetectorError::OutOfMemory), Enforcement::Enforced) => self.outcome = GuardrailOutcome::OutOfMemory,
            (Err(blind @ (DetectorError::Unavailable | DetectorError::BudgetExceeded)), Enforcement::Enforced) => {
                if rail.on_error == OnError::FailClosed {
                    self.outcome = GuardrailOutcome::Unavailable;
                }
                let what = FindingKind::Failed { on_error: rail.on_error, error_code: blind.code() };
                self.findings.push(GuardrailFinding::of(rail, what));
            }
            // A logging-only guardrail never stops the run, even when it fails.
            (Err(blind), Enforcement::LoggingOnly) => {
                let what = FindingKind::Failed { on_error: OnError::FailOpen, error_code: blind.code() };
                self.findings.push(GuardrailFinding::of(rail, what));
            }
        }
    }

    fn record(&mut self, rail: &Guardrail, effect: Enforcement, found: DetectorResult) {
        let action = found.actions.iter().copied().max().unwrap_or(rail.action);
        let what = FindingKind::Matched { count: found.count, classes: found.classes, action };
        self.findings.push(GuardrailFinding::of(rail, what));
        if effect == Enforcement::LoggingOnly {
            return;
        }
        if let Some((value, beside)) = found.masked {
            (self.value, self.context) = (value, beside);
            self.is_changed = true;
        }
        self.requires_review |= found.actions.contains(&Action::RequireApproval);
        if found.actions.contains(&Action::Block) {
            self.outcome = GuardrailOutcome::Blocked;
        }
    }
}
