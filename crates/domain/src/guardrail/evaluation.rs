//! Evaluates all guardrails of a stage. The check owns all its data, so that it can run on another thread.

use super::{
    Enforcement, Guardrail, GuardrailAction, Guardrails, OnError, Stage,
    detector::{Budget, DetectorError, DetectorResult},
    rewrite_texts::estimate_bytes,
};
use crate::{
    asset::content::embedded_schema::MAX_CHEAP_EVALUATIONS,
    redaction::{PersonalDataClass, Redactor},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The maximum number of evaluations of one check, which takes about a second. A schema costs its number of nodes times
/// the number of values; a pattern costs its weight times the number of bytes.
const MAX_EVALUATIONS: u64 = 100_000_000;

/// A prepared check of a value by all guardrails of a stage.
#[derive(Clone, Debug)]
pub struct GuardrailCheck {
    guardrails: Arc<Guardrails>,
    stage: Stage,
    value: Value,
    /// The context that is inspected and masked together with the value.
    context: Value,
    /// The number of bytes that the run's guardrails may still inspect.
    remaining_bytes: usize,
    /// The maximum size of the masked value, in bytes.
    max_masked_bytes: usize,
}

/// The result of a guardrail check: the masked value, the findings and the outcome.
#[derive(Clone, PartialEq, Debug)]
pub struct GuardrailResult {
    /// The stage that was checked.
    pub stage: Stage,
    /// The value to use after the check, with all masks.
    pub value: Value,
    /// The context after the check, with all masks.
    pub context: Value,
    /// Whether a guardrail masked any part of the value or context.
    pub is_changed: bool,
    /// The findings, in the order of the guardrails.
    pub findings: Vec<GuardrailFinding>,
    /// Whether the value may be used.
    pub outcome: GuardrailOutcome,
    /// Whether a finding requires human review of the response.
    pub requires_review: bool,
    /// The number of bytes that the run's guardrails may inspect after this check.
    pub remaining_bytes: usize,
}

/// Whether the checked value may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuardrailOutcome {
    /// The value may be used, with all masks.
    Passed,
    /// The value must not be used, because a guardrail blocks it.
    Blocked,
    /// The value must not be used, because the detector of a fail-closed guardrail failed.
    Unavailable,
    /// The value must not be used, because its masked form would exceed the available memory.
    OutOfMemory,
}

impl GuardrailOutcome {
    /// The wire form in evidence, such as `passed`.
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
    Matched { count: u64, classes: Vec<(PersonalDataClass, u64)>, action: GuardrailAction },
    Failed { on_error: OnError, error_code: Option<&'static str> },
}

impl GuardrailFinding {
    fn of(guardrail: &Guardrail, kind: FindingKind) -> Self {
        Self {
            asset: Arc::clone(&guardrail.asset),
            id: guardrail.id.clone(),
            detector: guardrail.detector.name(),
            enforcement: guardrail.enforcement,
            reason_code: guardrail.reason_code.clone(),
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
    /// Prepares a check. `max_masked_bytes` limits the size of the masked value.
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

    /// Adds a context, such as metadata, that is inspected and masked together with the value. Detectors of lengths and
    /// schemas ignore it.
    #[must_use]
    pub fn with_context(self, context: Value) -> Self {
        Self { context, ..self }
    }

    /// The estimated number of bytes to inspect, summed over all guardrails of the stage.
    #[must_use]
    pub fn bytes_to_inspect(&self) -> usize {
        estimate_bytes(&self.value)
            .saturating_add(estimate_bytes(&self.context))
            .saturating_mul(self.guardrails.for_stage(self.stage).count())
    }

    /// Runs the guardrails in order. Each guardrail inspects the value as masked by the previous ones. The first
    /// guardrail that blocks the value ends the check.
    #[must_use]
    pub fn run(self, redactor: &Redactor) -> GuardrailResult {
        self.run_within(MAX_EVALUATIONS, redactor)
    }

    /// Runs the check with the small budget of a request thread; `None` if the check needs more evaluations than that.
    #[must_use]
    pub fn run_briefly(&self, redactor: &Redactor) -> Option<GuardrailResult> {
        let result = self.clone().run_within(MAX_CHEAP_EVALUATIONS, redactor);
        let exceeds_budget =
            |finding: &GuardrailFinding| matches!(finding.kind, FindingKind::Failed { error_code: Some(_), .. });
        (!result.findings.iter().any(exceeds_budget)).then_some(result)
    }

    fn run_within(self, evaluations: u64, redactor: &Redactor) -> GuardrailResult {
        let mut budget = Budget(evaluations);
        let Self { guardrails, stage, value, context, remaining_bytes, max_masked_bytes } = self;
        let mut result = GuardrailResult {
            stage,
            value,
            context,
            is_changed: false,
            findings: Vec::new(),
            outcome: GuardrailOutcome::Passed,
            requires_review: false,
            remaining_bytes,
        };
        for guardrail in guardrails.for_stage(stage) {
            result.apply(guardrail, max_masked_bytes, &mut budget, redactor);
            if result.outcome != GuardrailOutcome::Passed {
                break;
            }
        }
        result
    }
}

impl GuardrailResult {
    fn apply(&mut self, guardrail: &Guardrail, max_masked_bytes: usize, budget: &mut Budget, redactor: &Redactor) {
        let bytes = estimate_bytes(&self.value).saturating_add(estimate_bytes(&self.context));
        let detection = match self.remaining_bytes.checked_sub(bytes) {
            Some(remaining) => {
                self.remaining_bytes = remaining;
                guardrail.detector.inspect(
                    &self.value,
                    &self.context,
                    guardrail.action,
                    max_masked_bytes,
                    budget,
                    redactor,
                )
            }
            None => Err(DetectorError::Unavailable),
        };
        match (detection, guardrail.enforcement) {
            (Ok(detection), _) if detection.count == 0 => {}
            (Ok(detection), enforcement) => self.record(guardrail, enforcement, detection),
            (Err(DetectorError::OutOfMemory), Enforcement::Enforced) => self.outcome = GuardrailOutcome::OutOfMemory,
            (Err(error @ (DetectorError::Unavailable | DetectorError::BudgetExceeded)), Enforcement::Enforced) => {
                if guardrail.on_error == OnError::FailClosed {
                    self.outcome = GuardrailOutcome::Unavailable;
                }
                let kind = FindingKind::Failed { on_error: guardrail.on_error, error_code: error.code() };
                self.findings.push(GuardrailFinding::of(guardrail, kind));
            }
            // A guardrail that only logs never stops the run, even if its detector fails.
            (Err(error), Enforcement::LoggingOnly) => {
                let kind = FindingKind::Failed { on_error: OnError::FailOpen, error_code: error.code() };
                self.findings.push(GuardrailFinding::of(guardrail, kind));
            }
        }
    }

    fn record(&mut self, guardrail: &Guardrail, enforcement: Enforcement, detection: DetectorResult) {
        let action = detection.actions.iter().copied().max().unwrap_or(guardrail.action);
        let kind = FindingKind::Matched { count: detection.count, classes: detection.classes, action };
        self.findings.push(GuardrailFinding::of(guardrail, kind));
        if enforcement == Enforcement::LoggingOnly {
            return;
        }
        if let Some((value, context)) = detection.masked {
            (self.value, self.context) = (value, context);
            self.is_changed = true;
        }
        self.requires_review |= detection.actions.contains(&GuardrailAction::RequireApproval);
        if detection.actions.contains(&GuardrailAction::Block) {
            self.outcome = GuardrailOutcome::Blocked;
        }
    }
}
