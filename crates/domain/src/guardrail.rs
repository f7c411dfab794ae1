//! Guardrails: detectors that look at what goes into a run and comes out of it, and what their findings mean.
//!
//! What a detector found is told as counts and codes; the words themselves are kept nowhere for it. Where a guardrail
//! masks, it replaces; where it blocks, the run ends; and what it cannot do is told before a release is activated, so that
//! nothing looks stricter than it is.

mod counted;
mod detector;
mod look;
mod texts;

use crate::{asset::content::embedded::EmbeddedSchema, redaction::Class};
use counted::CountedPattern;
use detector::Detector;
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

pub use detector::DETECTORS;
pub use look::{Finding, Looked, Looking, Verdict};

/// Bytes that the guardrails of one run look at, each guardrail counted: as often as a run has room for values, four times
/// over. Beyond that a detector cannot look, and its `on_error` says what that means.
pub const LOOK_BYTES: usize = 64 << 20;

/// What a guardrail looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// What is sent, before anything reads it.
    Input,
    /// The answer of the run.
    Output,
    /// Documents that were looked up.
    Retrieval,
    /// The arguments of a tool.
    ToolIn,
    /// What a tool gave back.
    ToolOut,
}

impl Stage {
    /// The spelling in content and evidence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Retrieval => "retrieval",
            Self::ToolIn => "tool_in",
            Self::ToolOut => "tool_out",
        }
    }
}

/// What a finding means, the milder first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is written down.
    Flag,
    /// It is replaced.
    Mask,
    /// A person looks at the answer before it counts.
    RequireApproval,
    /// The run ends.
    Block,
}

impl Action {
    /// The spelling in content and evidence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Mask => "mask",
            Self::RequireApproval => "require_approval",
            Self::Block => "block",
        }
    }
}

/// Whether findings have consequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Acts,
    Watches,
}

/// When a guardrail looks. A detector is done before what it looks at goes on, so the first three are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    PreCall,
    DuringCall,
    PostCall,
    LoggingOnly,
}

/// What it means that a detector cannot look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The run ends.
    #[default]
    FailClosed,
    /// The run goes on, and that is written down.
    FailOpen,
}

/// The guardrails of a release, in the order of its bindings.
#[derive(Clone, Debug, Default)]
pub struct Guardrails {
    rails: Vec<Rail>,
}

/// One guardrail.
#[derive(Clone, Debug)]
struct Rail {
    /// The asset that it stands in.
    asset: Arc<str>,
    id: String,
    stage: Stage,
    effect: Effect,
    detector: Detector,
    action: Action,
    on_error: OnError,
    reason_code: Option<String>,
}

impl Rail {
    fn may(&self, wanted: Action) -> bool {
        self.effect == Effect::Acts && (self.action == wanted || self.detector.may(wanted))
    }
}

/// A guardrail as content says it.
#[derive(Deserialize)]
struct Said {
    id: String,
    detector: String,
    pattern: Option<String>,
    max_length: Option<usize>,
    schema: Option<Value>,
    stage: Stage,
    mode: Option<Mode>,
    action: Action,
    #[serde(default)]
    entities: BTreeMap<String, Action>,
    #[serde(default)]
    on_error: OnError,
    default_on: Option<bool>,
    reason_code: Option<String>,
}

#[derive(Deserialize)]
struct SaidTogether {
    guardrails: Vec<Said>,
}

/// The content is no configuration of guardrails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the content is no configuration of guardrails")]
pub struct Malformed;

impl Guardrails {
    /// Reads the content of an asset and adds what it says.
    ///
    /// # Errors
    /// When the content is no configuration of guardrails.
    pub fn add(&mut self, asset: &str, content: &Value) -> Result<(), Malformed> {
        let asset: Arc<str> = asset.into();
        for said in said(content)? {
            self.rails.extend(rail(&asset, said));
        }
        Ok(())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rails.is_empty()
    }

    /// Whether any looks at that.
    #[must_use]
    pub fn look_at(&self, stage: Stage) -> bool {
        self.at(stage).next().is_some()
    }

    /// Whether an answer must not be shown before its end: something may change it, hold it back, or let a person look at
    /// it first.
    #[must_use]
    pub fn hold_answers_back(&self) -> bool {
        let holds = |rail: &Rail| match rail.stage {
            Stage::Output => {
                let unsettled = rail.effect == Effect::Acts && rail.on_error == OnError::FailClosed;
                unsettled || rail.may(Action::Block) || rail.may(Action::Mask)
            }
            Stage::Input | Stage::Retrieval | Stage::ToolIn | Stage::ToolOut => false,
        };
        self.rails.iter().any(|rail| rail.may(Action::RequireApproval) || holds(rail))
    }

    /// How much memory the compiled patterns and schemas may take, in bytes: far more than their text.
    #[must_use]
    pub fn compiled_bytes(&self) -> usize {
        self.rails.iter().map(|rail| rail.detector.bytes()).fold(0, usize::saturating_add)
    }

    fn at(&self, stage: Stage) -> impl Iterator<Item = &Rail> {
        self.rails.iter().filter(move |rail| rail.stage == stage)
    }
}

/// JSON pointers to what this server cannot do of a configuration: detectors and types of findings that it does not have,
/// and parameters that cannot be used.
///
/// # Errors
/// When the content is no configuration of guardrails.
pub fn unavailable(content: &Value) -> Result<Vec<String>, Malformed> {
    let mut pointers = Vec::new();
    for (index, said) in said(content)?.into_iter().enumerate().filter(|(_, said)| said.is_on()) {
        let pointer = |field: &str| format!("/guardrails/{index}/{field}");
        match said.detector() {
            Detector::Unavailable { field } => pointers.push(pointer(field)),
            Detector::JsonSchema(_) if said.action == Action::Mask => pointers.push(pointer("action")),
            Detector::Pii(_) => {
                let unknown = said.entities.keys().filter(|name| detector::class(name).is_none());
                pointers.extend(unknown.map(|name| pointer(&format!("entities/{name}"))));
            }
            Detector::Regex(_) | Detector::MaxLength(_) | Detector::JsonSchema(_) => {}
        }
    }
    Ok(pointers)
}

impl Said {
    /// Whether it looks at all.
    fn is_on(&self) -> bool {
        self.default_on != Some(false)
    }

    fn detector(&self) -> Detector {
        match self.detector.as_str() {
            "pii" => {
                let action = |class: Class| {
                    let own = self.entities.iter().find(|(name, _)| detector::class(name) == Some(class));
                    (class, own.map_or(self.action, |(_, action)| *action))
                };
                Detector::Pii(Class::ALL.into_iter().map(action).collect())
            }
            "regex" => {
                let pattern = self.pattern.as_deref().and_then(CountedPattern::of);
                pattern.map_or(Detector::Unavailable { field: "pattern" }, Detector::Regex)
            }
            "max_length" => self.max_length.map_or(Detector::Unavailable { field: "max_length" }, Detector::MaxLength),
            "json_schema" => {
                let schema = self.schema.as_ref().and_then(|schema| EmbeddedSchema::compile(schema).ok());
                schema.map_or(Detector::Unavailable { field: "schema" }, Detector::JsonSchema)
            }
            _ => Detector::Unavailable { field: "detector" },
        }
    }
}

fn said(content: &Value) -> Result<Vec<Said>, Malformed> {
    SaidTogether::deserialize(content).map(|said| said.guardrails).map_err(|_| Malformed)
}

/// The guardrail that content says; `None` for one that is off.
fn rail(asset: &Arc<str>, said: Said) -> Option<Rail> {
    if !said.is_on() {
        return None;
    }
    let effect = match said.mode {
        Some(Mode::LoggingOnly) => Effect::Watches,
        Some(Mode::PreCall | Mode::DuringCall | Mode::PostCall) | None => Effect::Acts,
    };
    let detector = said.detector();
    // Nothing can be put in the place of a value that has the wrong shape.
    let action = match (&detector, said.action) {
        (Detector::JsonSchema(_), Action::Mask) => Action::Block,
        (_, action) => action,
    };
    Some(Rail {
        asset: Arc::clone(asset),
        id: said.id,
        stage: said.stage,
        effect,
        detector,
        action,
        on_error: said.on_error,
        reason_code: said.reason_code,
    })
}

#[cfg(test)]
mod tests;
