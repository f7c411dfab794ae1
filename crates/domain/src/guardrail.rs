//! Guardrails: detectors that inspect the inputs and outputs of a run, with actions on their findings.
//!
//! Evidence records findings as counts and codes, without the matched text. A masking guardrail replaces the matches,
//! and a blocking guardrail ends the run. Activation checks report the parts that this server cannot enforce, so that a
//! configuration does not appear stricter than it is.

mod bounded_pattern;
mod detector;
mod evaluation;
mod rewrite_texts;

use crate::{asset::content::embedded_schema::EmbeddedSchema, redaction::PersonalDataClass};
use bounded_pattern::BoundedPattern;
use detector::Detector;
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

pub use detector::DETECTOR_NAMES;
pub use evaluation::{GuardrailCheck, GuardrailFinding, GuardrailOutcome, GuardrailResult};

/// The maximum number of bytes that all guardrails of a run inspect in total. It is sixteen times the value budget of a
/// run. A detector that would exceed this limit fails, and its `on_error` setting applies.
pub const MAX_BYTES_INSPECTED_PER_RUN: usize = 64 << 20;

/// The stage of a run at which a guardrail inspects a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The run's inputs, before any step reads them.
    Input,
    /// The response of the run.
    Output,
    /// The documents that a step retrieved.
    Retrieval,
    /// The arguments of a tool call.
    ToolIn,
    /// The result of a tool call.
    ToolOut,
}

impl Stage {
    /// The wire form in content and evidence, such as `input`.
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

/// The action on a finding, in the order from the mildest to the strictest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardrailAction {
    /// Records the finding, and continues.
    Flag,
    /// Replaces the match by a mask.
    Mask,
    /// Requires human review of the response. A tool call is refused instead, because it cannot wait for a person.
    RequireApproval,
    /// Ends the run.
    Block,
}

impl GuardrailAction {
    /// The wire form in content and evidence, such as `flag`.
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

/// Whether the findings of a guardrail take effect or are only recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Enforcement {
    Enforced,
    LoggingOnly,
}

/// When a guardrail runs, as content names it. The first three modes have the same effect, because a detector always
/// finishes before the inspected value is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    PreCall,
    DuringCall,
    PostCall,
    LoggingOnly,
}

/// The reaction to the failure of a guardrail, or to a hook without a valid response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// Ends the run.
    #[default]
    FailClosed,
    /// Continues the run, and records the failure.
    FailOpen,
}

/// The guardrails of a release, in the order of its bindings.
#[derive(Clone, Debug, Default)]
pub struct Guardrails {
    guardrails: Vec<Guardrail>,
}

/// A guardrail: a detector with an action, at one stage of a run.
#[derive(Clone, Debug)]
struct Guardrail {
    /// The slug of the asset that configures the guardrail.
    asset: Arc<str>,
    id: String,
    stage: Stage,
    enforcement: Enforcement,
    detector: Detector,
    action: GuardrailAction,
    on_error: OnError,
    reason_code: Option<String>,
}

impl Guardrail {
    fn can_trigger(&self, action: GuardrailAction) -> bool {
        self.enforcement == Enforcement::Enforced && (self.action == action || self.detector.can_trigger(action))
    }
}

/// A guardrail as written in content.
#[derive(Deserialize)]
struct GuardrailContent {
    id: String,
    detector: String,
    pattern: Option<String>,
    max_length: Option<usize>,
    schema: Option<Value>,
    stage: Stage,
    mode: Option<Mode>,
    action: GuardrailAction,
    #[serde(default)]
    entities: BTreeMap<String, GuardrailAction>,
    #[serde(default)]
    on_error: OnError,
    default_on: Option<bool>,
    reason_code: Option<String>,
}

#[derive(Deserialize)]
struct ConfigContent {
    guardrails: Vec<GuardrailContent>,
}

/// The content is not a guardrail configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the content is not a guardrail configuration")]
pub struct MalformedGuardrails;

impl Guardrails {
    /// Adds the guardrails of an asset's content.
    ///
    /// # Errors
    /// Returns an error when the content is not a guardrail configuration.
    pub fn add(&mut self, asset: &str, content: &Value) -> Result<(), MalformedGuardrails> {
        let asset: Arc<str> = asset.into();
        for config in parse_config(content)? {
            self.guardrails.extend(build_guardrail(&asset, config));
        }
        Ok(())
    }

    /// Whether the release has no guardrails.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.guardrails.is_empty()
    }

    /// Whether any guardrail inspects this stage.
    #[must_use]
    pub fn inspects(&self, stage: Stage) -> bool {
        self.for_stage(stage).next().is_some()
    }

    /// Whether the response must not be streamed before the run ends, because a guardrail may mask or block the
    /// response or require review.
    #[must_use]
    pub fn requires_buffering(&self) -> bool {
        let may_change_output = |guardrail: &Guardrail| match guardrail.stage {
            Stage::Output => {
                let blocks_on_error =
                    guardrail.enforcement == Enforcement::Enforced && guardrail.on_error == OnError::FailClosed;
                blocks_on_error
                    || guardrail.can_trigger(GuardrailAction::Block)
                    || guardrail.can_trigger(GuardrailAction::Mask)
            }
            Stage::Input | Stage::Retrieval | Stage::ToolIn | Stage::ToolOut => false,
        };
        self.guardrails
            .iter()
            .any(|guardrail| guardrail.can_trigger(GuardrailAction::RequireApproval) || may_change_output(guardrail))
    }

    /// Estimated memory of the compiled patterns and schemas, in bytes. It far exceeds the length of their source
    /// texts.
    #[must_use]
    pub fn compiled_bytes(&self) -> usize {
        self.guardrails.iter().map(|guardrail| guardrail.detector.compiled_bytes()).fold(0, usize::saturating_add)
    }

    fn for_stage(&self, stage: Stage) -> impl Iterator<Item = &Guardrail> {
        self.guardrails.iter().filter(move |guardrail| guardrail.stage == stage)
    }
}

/// Lists the JSON pointers to the parts of a configuration that this server does not support: unknown detectors
/// and entity types, and unusable parameters.
///
/// # Errors
/// Returns an error when the content is not a guardrail configuration.
pub fn unsupported_parts(content: &Value) -> Result<Vec<String>, MalformedGuardrails> {
    let mut pointers = Vec::new();
    for (index, config) in parse_config(content)?.into_iter().enumerate().filter(|(_, config)| config.is_active()) {
        let pointer = |field: &str| format!("/guardrails/{index}/{field}");
        match config.build_detector() {
            Detector::Unavailable { field } => pointers.push(pointer(field)),
            Detector::JsonSchema(_) if config.action == GuardrailAction::Mask => pointers.push(pointer("action")),
            Detector::Pii(_) => {
                let unknown = config.entities.keys().filter(|name| detector::class_of_entity(name).is_none());
                pointers.extend(unknown.map(|name| pointer(&format!("entities/{name}"))));
            }
            Detector::Regex(_) | Detector::MaxLength(_) | Detector::JsonSchema(_) => {}
        }
    }
    Ok(pointers)
}

impl GuardrailContent {
    /// Whether the guardrail is active; it is unless its content disables it.
    fn is_active(&self) -> bool {
        self.default_on != Some(false)
    }

    fn build_detector(&self) -> Detector {
        match self.detector.as_str() {
            "pii" => {
                let action = |class: PersonalDataClass| {
                    let entity_action =
                        self.entities.iter().find(|(name, _)| detector::class_of_entity(name) == Some(class));
                    (class, entity_action.map_or(self.action, |(_, action)| *action))
                };
                Detector::Pii(PersonalDataClass::ALL.into_iter().map(action).collect())
            }
            "regex" => {
                let pattern = self.pattern.as_deref().and_then(BoundedPattern::compile);
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

fn parse_config(content: &Value) -> Result<Vec<GuardrailContent>, MalformedGuardrails> {
    ConfigContent::deserialize(content).map(|config| config.guardrails).map_err(|_| MalformedGuardrails)
}

/// Builds a guardrail; `None` for an inactive one.
fn build_guardrail(asset: &Arc<str>, config: GuardrailContent) -> Option<Guardrail> {
    if !config.is_active() {
        return None;
    }
    let enforcement = match config.mode {
        Some(Mode::LoggingOnly) => Enforcement::LoggingOnly,
        Some(Mode::PreCall | Mode::DuringCall | Mode::PostCall) | None => Enforcement::Enforced,
    };
    let detector = config.build_detector();
    // A value that violates a schema cannot be masked, so the guardrail blocks it instead.
    let action = match (&detector, config.action) {
        (Detector::JsonSchema(_), GuardrailAction::Mask) => GuardrailAction::Block,
        (_, action) => action,
    };
    Some(Guardrail {
        asset: Arc::clone(asset),
        id: config.id,
        stage: config.stage,
        enforcement,
        detector,
        action,
        on_error: config.on_error,
        reason_code: config.reason_code,
    })
}

#[cfg(test)]
mod tests;
