//! Evaluation of all guardrails of a stage: pure and self-contained, so it can run on another thread.

use super::{
    Action, Effect, Guardrails, OnError, Guardrail, Stage,
    detector::{DetectorError, Budget, Found},
    texts,
};
use crate::{
    asset::content::embedded::BRIEF_EVALUATIONS,
    redaction::{Class, Redactor},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Maximum evaluations of one check: schema nodes times values, and pattern weights times bytes. About a second in the
/// worst case.
const MAX_EVALUATIONS: u64 = 100_000_000;

/// A pending check.
#[derive(Clone, Debug)]
pub struct Looking {
    guardrails: Arc<Guardrails>,
    stage: Stage,
    value: Value,
    /// Context that is shown with the value.
    beside: Value,
    /// Remaining bytes that the run may inspect.
    left: usize,
    /// Maximum bytes of the masked value.
    room: usize,
}

/// Result of a check.
#[derive(Clone, PartialEq, Debug)]
pub struct Looked {
    /// Checked stage.
    pub stage: Stage,
    /// The value, masked.
    pub value: Value,
    /// The context, masked.
    pub beside: Value,
    /// Whether anything was masked.
    pub is_changed: bool,
    /// Findings, in the order of the guardrails.
    pub findings: Vec<Finding>,
    /// Outcome.
    pub verdict: Verdict,
    /// Whether the response requires human review.
    pub asks_review: bool,
    /// Remaining bytes that the run may inspect.
    pub left: usize,
}

/// Outcome of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The value may be used.
    Passes,
    /// The value must not be used.
    Blocked,
    /// A fail-closed detector failed.
    Unavailable,
    /// The masked value exceeds the available memory.
    NoRoom,
}

impl Verdict {
    /// The spelling in evidence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passes => "passed",
            Self::Blocked => "blocked",
            Self::Unavailable => "unavailable",
            Self::NoRoom => "no_room",
        }
    }
}

/// Finding of one guardrail: counts and codes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    asset: Arc<str>,
    id: String,
    detector: &'static str,
    effect: Effect,
    reason_code: Option<String>,
    what: FindingKind,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum FindingKind {
    Found { count: u64, classes: Vec<(Class, u64)>, action: Action },
    CouldNotLook { on_error: OnError, error_code: Option<&'static str> },
}

impl Finding {
    fn of(rail: &Guardrail, what: FindingKind) -> Self {
        Self {
            asset: Arc::clone(&rail.asset),
            id: rail.id.clone(),
            detector: rail.detector.name(),
            effect: rail.effect,
            reason_code: rail.reason_code.clone(),
            what,
        }
    }

    /// The finding as JSON for evidence.
    #[must_use]
    pub fn told(&self) -> Value {
        let mut document = Map::new();
        document.insert("guardrail_config".to_owned(), json!(self.asset.as_ref()));
        document.insert("id".to_owned(), json!(self.id));
        document.insert("detector".to_owned(), json!(self.detector));
        document.insert("reason_code".to_owned(), json!(self.reason_code));
        let effect = match self.effect {
            Effect::Acts => "enforced",
            Effect::Watches => "logging_only",
        };
        document.insert("effect".to_owned(), json!(effect));
        match &self.what {
            FindingKind::Found { count, classes, action } => {
                document.insert("action".to_owned(), json!(action.as_str()));
                document.insert("found".to_owned(), json!(count));
                if !classes.is_empty() {
                    let classes = classes.iter().map(|(class, count)| (class.as_str().to_owned(), json!(count)));
                    document.insert("entities".to_owned(), Value::Object(classes.collect()));
                }
            }
            FindingKind::CouldNotLook { on_error, error_code } => {
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

impl Looking {
    /// Prepares a check. The run may inspect `left` more bytes; the masked value has at most `room` bytes.
    #[must_use]
    pub const fn at(guardrails: Arc<Guardrails>, stage: Stage, value: Value, left: usize, room: usize) -> Self {
        Self { guardrails, stage, value, beside: Value::Null, left, room }
    }

    /// Adds context that is shown with the value. Length and schema detectors ignore it; the others inspect it too.
    #[must_use]
    pub fn with(self, beside: Value) -> Self {
        Self { beside, ..self }
    }

    /// Estimated bytes to inspect, over all guardrails.
    #[must_use]
    pub fn work(&self) -> usize {
        texts::bytes(&self.value)
            .saturating_add(texts::bytes(&self.beside))
            .saturating_mul(self.guardrails.at(self.stage).count())
    }

    /// Runs the guardrails in order; each inspects the value as masked by the previous ones. The first blocking one
    /// ends the check.
    #[must_use]
    pub fn look(self, redactor: &Redactor) -> Looked {
        self.run_within(MAX_EVALUATIONS, redactor)
    }

    /// Runs within the evaluations of a request thread; `None` when the check needs more.
    #[must_use]
    pub fn look_briefly(&self, redactor: &Redactor) -> Option<Looked> {
        let result = self.clone().run_within(BRIEF_EVALUATIONS, redactor);
        let is_cut_short = |finding: &Finding| matches!(finding.what, FindingKind::CouldNotLook { error_code: Some(_), .. });
        (!result.findings.iter().any(is_cut_short)).then_some(result)
    }

    fn run_within(self, evaluations: u64, redactor: &Redactor) -> Looked {
        let mut budget = Budget(evaluations);
        let Self { guardrails, stage, value, beside, left, room } = self;
        let mut result = Looked {
            stage,
            value,
            beside,
            is_changed: false,
            findings: Vec::new(),
            verdict: Verdict::Passes,
            asks_review: false,
            left,
        };
        for rail in guardrails.at(stage) {
            result.apply(rail, (room, &mut budget), redactor);
            if result.verdict != Verdict::Passes {
                break;
            }
        }
        result
    }
}

impl Looked {
    fn apply(&mut self, rail: &Guardrail, within: (usize, &mut Budget), redactor: &Redactor) {
        let bytes = texts::bytes(&self.value).saturating_add(texts::bytes(&self.beside));
        let found = match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                rail.detector.find((&self.value, &self.beside), rail.action, within, redactor)
            }
            None => Err(DetectorError::Unavailable),
        };
        match (found, rail.effect) {
            (Ok(found), _) if found.count == 0 => {}
            (Ok(found), effect) => self.take(rail, effect, found),
            (Err(DetectorError::NoRoom), Effect::Acts) => self.verdict = Verdict::NoRoom,
            (Err(blind @ (DetectorError::Unavailable | DetectorError::BudgetExceeded)), Effect::Acts) => {
                if rail.on_error == OnError::FailClosed {
                    self.verdict = Verdict::Unavailable;
                }
                let what = FindingKind::CouldNotLook { on_error: rail.on_error, error_code: blind.code() };
                self.findings.push(Finding::of(rail, what));
            }
            // A logging-only guardrail never stops the run, even when it fails.
            (Err(blind), Effect::Watches) => {
                let what = FindingKind::CouldNotLook { on_error: OnError::FailOpen, error_code: blind.code() };
                self.findings.push(Finding::of(rail, what));
            }
        }
    }

    fn take(&mut self, rail: &Guardrail, effect: Effect, found: Found) {
        let action = found.actions.iter().copied().max().unwrap_or(rail.action);
        let what = FindingKind::Found { count: found.count, classes: found.classes, action };
        self.findings.push(Finding::of(rail, what));
        if effect == Effect::Watches {
            return;
        }
        if let Some((value, beside)) = found.masked {
            (self.value, self.beside) = (value, beside);
            self.is_changed = true;
        }
        self.asks_review |= found.actions.contains(&Action::RequireApproval);
        if found.actions.contains(&Action::Block) {
            self.verdict = Verdict::Blocked;
        }
    }
}
