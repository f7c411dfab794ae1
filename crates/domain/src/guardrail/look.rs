//! One look of all guardrails of a stage at a value: pure, and self-contained so that it can be done on another thread.

use super::{
    Action, Effect, Guardrails, OnError, Rail, Stage,
    detector::{Blind, Budget, Found},
    texts,
};
use crate::{
    asset::content::embedded::BRIEF_EVALUATIONS,
    redaction::{Class, Redactor},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Most evaluations of one look: schema nodes times values, and pattern weights times bytes. At worst about a second.
const MAX_EVALUATIONS: u64 = 100_000_000;

/// A look that is to be done.
#[derive(Clone, Debug)]
pub struct Looking {
    guardrails: Arc<Guardrails>,
    stage: Stage,
    value: Value,
    /// What is shown with it.
    beside: Value,
    /// Bytes that may still be looked at.
    left: usize,
    /// Bytes that the value may take.
    room: usize,
}

/// What a look came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Looked {
    /// What was looked at.
    pub stage: Stage,
    /// The value, masked.
    pub value: Value,
    /// What is shown with it, masked.
    pub beside: Value,
    /// Whether anything of it was masked.
    pub is_changed: bool,
    /// What was found, in the order of the guardrails.
    pub findings: Vec<Finding>,
    /// What it comes to.
    pub verdict: Verdict,
    /// Whether a person has to look at the answer of the run.
    pub asks_review: bool,
    /// Bytes that may still be looked at in the run.
    pub left: usize,
}

/// What a look comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The value may go on.
    Passes,
    /// It may not.
    Blocked,
    /// A detector that fails closed could not look.
    Unavailable,
    /// What masking made of it takes more room than there is.
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

/// What one guardrail found: counts and codes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    asset: Arc<str>,
    id: String,
    detector: &'static str,
    effect: Effect,
    reason_code: Option<String>,
    what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum What {
    Found { count: u64, classes: Vec<(Class, u64)>, action: Action },
    CouldNotLook { on_error: OnError, error_code: Option<&'static str> },
}

impl Finding {
    fn of(rail: &Rail, what: What) -> Self {
        Self {
            asset: Arc::clone(&rail.asset),
            id: rail.id.clone(),
            detector: rail.detector.name(),
            effect: rail.effect,
            reason_code: rail.reason_code.clone(),
            what,
        }
    }

    /// The finding as a document of evidence tells it.
    #[must_use]
    pub fn told(&self) -> Value {
        let mut told = Map::new();
        told.insert("guardrail_config".to_owned(), json!(self.asset.as_ref()));
        told.insert("id".to_owned(), json!(self.id));
        told.insert("detector".to_owned(), json!(self.detector));
        told.insert("reason_code".to_owned(), json!(self.reason_code));
        let effect = match self.effect {
            Effect::Acts => "enforced",
            Effect::Watches => "logging_only",
        };
        told.insert("effect".to_owned(), json!(effect));
        match &self.what {
            What::Found { count, classes, action } => {
                told.insert("action".to_owned(), json!(action.as_str()));
                told.insert("found".to_owned(), json!(count));
                if !classes.is_empty() {
                    let classes = classes.iter().map(|(class, count)| (class.as_str().to_owned(), json!(count)));
                    told.insert("entities".to_owned(), Value::Object(classes.collect()));
                }
            }
            What::CouldNotLook { on_error, error_code } => {
                let on_error = match on_error {
                    OnError::FailClosed => "fail_closed",
                    OnError::FailOpen => "fail_open",
                };
                told.insert("on_error".to_owned(), json!(on_error));
                told.extend(error_code.map(|code| ("error_code".to_owned(), json!(code))));
            }
        }
        Value::Object(told)
    }
}

impl Looking {
    /// A look at a value. `left` bytes may still be looked at in the run; masked, the value may take `room` bytes.
    #[must_use]
    pub const fn at(guardrails: Arc<Guardrails>, stage: Stage, value: Value, left: usize, room: usize) -> Self {
        Self { guardrails, stage, value, beside: Value::Null, left, room }
    }

    /// The same, with what is shown beside the value: it has no length and no shape that anybody asks for, and what must
    /// not be in the value must not be in it either.
    #[must_use]
    pub fn with(self, beside: Value) -> Self {
        Self { beside, ..self }
    }

    /// About how much is looked through, in bytes.
    #[must_use]
    pub fn work(&self) -> usize {
        texts::bytes(&self.value)
            .saturating_add(texts::bytes(&self.beside))
            .saturating_mul(self.guardrails.at(self.stage).count())
    }

    /// Looks, with one guardrail after the other: each sees what those before it made of the value. The first that blocks
    /// is the last that looks.
    #[must_use]
    pub fn look(self, redactor: &Redactor) -> Looked {
        self.look_within(MAX_EVALUATIONS, redactor)
    }

    /// Looks within the evaluations of a thread that serves; `None` where the look takes more.
    #[must_use]
    pub fn look_briefly(&self, redactor: &Redactor) -> Option<Looked> {
        let looked = self.clone().look_within(BRIEF_EVALUATIONS, redactor);
        let is_cut_short = |finding: &Finding| matches!(finding.what, What::CouldNotLook { error_code: Some(_), .. });
        (!looked.findings.iter().any(is_cut_short)).then_some(looked)
    }

    fn look_within(self, evaluations: u64, redactor: &Redactor) -> Looked {
        let mut budget = Budget(evaluations);
        let Self { guardrails, stage, value, beside, left, room } = self;
        let mut looked = Looked {
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
            looked.look_with(rail, (room, &mut budget), redactor);
            if looked.verdict != Verdict::Passes {
                break;
            }
        }
        looked
    }
}

impl Looked {
    fn look_with(&mut self, rail: &Rail, within: (usize, &mut Budget), redactor: &Redactor) {
        let bytes = texts::bytes(&self.value).saturating_add(texts::bytes(&self.beside));
        let found = match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                rail.detector.find((&self.value, &self.beside), rail.action, within, redactor)
            }
            None => Err(Blind::Unavailable),
        };
        match (found, rail.effect) {
            (Ok(found), _) if found.count == 0 => {}
            (Ok(found), effect) => self.take(rail, effect, found),
            (Err(Blind::NoRoom), Effect::Acts) => self.verdict = Verdict::NoRoom,
            (Err(blind @ (Blind::Unavailable | Blind::BudgetExceeded)), Effect::Acts) => {
                if rail.on_error == OnError::FailClosed {
                    self.verdict = Verdict::Unavailable;
                }
                let what = What::CouldNotLook { on_error: rail.on_error, error_code: blind.code() };
                self.findings.push(Finding::of(rail, what));
            }
            // What only watches stops nothing, also where it cannot.
            (Err(blind), Effect::Watches) => {
                let what = What::CouldNotLook { on_error: OnError::FailOpen, error_code: blind.code() };
                self.findings.push(Finding::of(rail, what));
            }
        }
    }

    fn take(&mut self, rail: &Rail, effect: Effect, found: Found) {
        let action = found.actions.iter().copied().max().unwrap_or(rail.action);
        let what = What::Found { count: found.count, classes: found.classes, action };
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
