//! Hooks: interceptors at events of a run, such as before and after a model call.
//!
//! A hook is a control in addition to the policy. The domain itself evaluates `policy` handlers; the run engine calls
//! `http` handlers. Handlers of both kinds return the same decisions: allow, deny, ask for human review, or modify the
//! value.

mod response;

use crate::{asset::content::compile_linear_pattern, guardrail::OnError, policy::CompiledPolicy};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

pub use response::{Decision, HookError, HookResponse};

/// The default timeout of an `http` handler, in milliseconds.
pub const DEFAULT_TIMEOUT_MS: u64 = 5_000;

/// The event that triggers a hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Before the first step. The value is the run's input.
    PreExecute,
    /// Before a retrieval. The value is the query.
    PreRetrieval,
    /// Before a model call. The value is the request: `system_prompt` and `messages`.
    PreLlm,
    /// After a model call. The value is the response.
    PostLlm,
    /// Before a tool call. The value is its arguments.
    PreTool,
    /// After a tool call. The value is its result.
    PostTool,
    /// After a run failed. The value is the error code.
    OnError,
    /// After the last step. The value is the response of the run.
    PostExecute,
}

impl Event {
    /// The wire form in content, evidence and requests to handlers, such as `pre_execute`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreExecute => "pre_execute",
            Self::PreRetrieval => "pre_retrieval",
            Self::PreLlm => "pre_llm",
            Self::PostLlm => "post_llm",
            Self::PreTool => "pre_tool",
            Self::PostTool => "post_tool",
            Self::OnError => "on_error",
            Self::PostExecute => "post_execute",
        }
    }

    /// Whether the run must buffer its response until the hooks of this event have decided on it.
    const fn requires_buffering(self) -> bool {
        match self {
            Self::PostLlm | Self::PostTool | Self::PostExecute => true,
            Self::PreExecute | Self::PreRetrieval | Self::PreLlm | Self::PreTool | Self::OnError => false,
        }
    }
}

/// Whether the responses of a hook take effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnforcementMode {
    /// Responses take effect on the run.
    #[default]
    Enforce,
    /// Responses are only recorded in evidence.
    Observe,
}

/// The names of the available handlers, as content spells them.
pub const HANDLER_NAMES: [&str; 2] = ["policy", "http"];

/// The handler that answers a hook: a policy bundle or an HTTP call.
#[derive(Clone, Debug)]
pub enum HookHandler {
    /// A policy bundle, which the domain evaluates.
    Policy(Box<CompiledPolicy>),
    /// An HTTP call to this URL.
    Http(String),
    /// A handler that this server does not support.
    Unavailable,
}

/// Selects the models, tools or other subjects to which a hook applies, by name.
#[derive(Clone, Debug)]
enum Matcher {
    All,
    Named(Regex),
    /// The pattern does not compile. The hook then applies to every subject, so that it is never skipped.
    Unreadable,
}

/// A hook that a release binds, with its handler.
#[derive(Clone, Debug)]
pub struct Hook {
    /// The slug of the asset that defines the hook.
    pub asset: Arc<str>,
    /// The event that triggers the hook.
    pub event: Event,
    /// The handler that decides.
    pub handler: HookHandler,
    /// The maximum time that the handler may take.
    pub timeout: Duration,
    /// Whether the responses of the handler take effect.
    pub mode: EnforcementMode,
    /// The reaction if the hook has no valid response.
    pub on_error: OnError,
    /// The decisions that the handler may return.
    pub allowed_decisions: Vec<Decision>,
    order: u32,
    matcher: Matcher,
    condition: Condition,
}

/// The condition under which the hook applies to a value.
#[derive(Clone, Debug)]
enum Condition {
    Always,
    If(Box<CompiledPolicy>),
    Unreadable,
}

#[derive(Deserialize)]
struct HookContent {
    event: Event,
    matcher: Option<String>,
    #[serde(rename = "if")]
    condition: Option<String>,
    handler: HandlerContent,
    timeout_ms: Option<u64>,
    #[serde(default)]
    order: u32,
    #[serde(default)]
    mode: EnforcementMode,
    #[serde(default)]
    on_error: OnError,
    may: Option<Vec<Decision>>,
}

#[derive(Deserialize)]
struct HandlerContent {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "ref")]
    reference: Value,
}

/// The content is not a hook definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the content is not a hook")]
pub struct MalformedHook;

/// Whether the condition of a hook holds for a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookConditionResult {
    /// The condition holds, so the hook applies.
    Yes,
    /// The condition does not hold, so the hook is skipped.
    No,
    /// The evaluation of the condition failed.
    Unknown,
}

impl Hook {
    /// Parses the hook in the content of an asset. `policy` is the bundle to which a `policy` handler refers.
    ///
    /// # Errors
    /// Returns an error when the content is not a hook definition.
    pub fn parse(asset: &str, content: &Value, policy: Option<CompiledPolicy>) -> Result<Self, MalformedHook> {
        let definition = HookContent::deserialize(content).map_err(|_| MalformedHook)?;
        let handler = match (definition.handler.kind.as_str(), policy, definition.handler.reference.as_str()) {
            ("policy", Some(policy), _) => HookHandler::Policy(Box::new(policy)),
            ("http", _, Some(address)) => HookHandler::Http(address.to_owned()),
            _ => HookHandler::Unavailable,
        };
        let matcher = match definition.matcher.as_deref() {
            None | Some("" | "*") => Matcher::All,
            Some(pattern) => compile_full_match(pattern).map_or(Matcher::Unreadable, Matcher::Named),
        };
        let condition = match definition.condition.as_deref() {
            None => Condition::Always,
            Some(source) => {
                let compiled = CompiledPolicy::compile(&condition_bundle(source));
                compiled.map_or(Condition::Unreadable, |compiled| Condition::If(Box::new(compiled)))
            }
        };
        Ok(Self {
            asset: asset.into(),
            event: definition.event,
            handler,
            timeout: Duration::from_millis(definition.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)),
            mode: definition.mode,
            on_error: definition.on_error,
            // A hook that declares no decisions may only allow or deny.
            allowed_decisions: definition.may.unwrap_or_else(|| vec![Decision::Allow, Decision::Deny]),
            order: definition.order,
            matcher,
            condition,
        })
    }

    /// Whether the hook applies to the subject with this name.
    fn matches(&self, subject: &str) -> bool {
        match &self.matcher {
            Matcher::All | Matcher::Unreadable => true,
            Matcher::Named(pattern) => pattern.is_match(subject),
        }
    }

    /// Evaluates the condition. `decide` evaluates the policy into which the condition is compiled.
    pub fn evaluate_condition(
        &self,
        decide: impl FnOnce(&CompiledPolicy) -> crate::policy::PolicyDecision,
    ) -> HookConditionResult {
        use crate::policy::{DecisionOutcome, NO_MATCHING_RULE};
        let condition = match &self.condition {
            Condition::Always => return HookConditionResult::Yes,
            Condition::Unreadable => return HookConditionResult::Unknown,
            Condition::If(condition) => condition,
        };
        let decision = decide(condition);
        match decision.outcome {
            DecisionOutcome::Allow | DecisionOutcome::AllowWithObligations => HookConditionResult::Yes,
            DecisionOutcome::Deny if decision.reason_code == NO_MATCHING_RULE => HookConditionResult::No,
            DecisionOutcome::Deny => HookConditionResult::Unknown,
        }
    }

    /// Whether this hook requires the run to buffer its response until the end.
    #[must_use]
    pub fn requires_buffering(&self) -> bool {
        self.mode == EnforcementMode::Enforce
            && (self.event.requires_buffering() || self.allowed_decisions.contains(&Decision::Ask))
    }

    /// Estimated memory of the compiled parts, in bytes.
    #[must_use]
    pub fn compiled_bytes(&self) -> usize {
        let condition = match &self.condition {
            Condition::Always | Condition::Unreadable => 0,
            Condition::If(condition) => condition.compiled_pattern_bytes(),
        };
        let handler = match &self.handler {
            HookHandler::Policy(policy) => policy.compiled_pattern_bytes(),
            HookHandler::Http(_) | HookHandler::Unavailable => 0,
        };
        let matcher = match &self.matcher {
            Matcher::All | Matcher::Unreadable => 0,
            Matcher::Named(_) => usize::try_from(crate::asset::content::MAX_PATTERN_MEMORY_BYTES).unwrap_or(usize::MAX),
        };
        condition.saturating_add(handler).saturating_add(matcher)
    }
}

/// The hooks of a release, in execution order.
#[derive(Clone, Debug, Default)]
pub struct Hooks(Vec<Hook>);

impl Hooks {
    /// Sorts hooks by their `order`. Hooks with the same order remain in binding order.
    #[must_use]
    pub fn in_execution_order(mut hooks: Vec<Hook>) -> Self {
        hooks.sort_by_key(|hook| hook.order);
        Self(hooks)
    }

    /// Iterates over the hooks in execution order.
    pub fn iter(&self) -> impl Iterator<Item = &Hook> {
        self.0.iter()
    }

    /// Whether the release binds no hooks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first hook at or after index `from` that matches the event and the subject, with its index.
    #[must_use]
    pub fn next_matching(&self, event: Event, subject: &str, from: usize) -> Option<(usize, &Hook)> {
        let is_match = |(_, hook): &(usize, &Hook)| hook.event == event && hook.matches(subject);
        self.0.iter().enumerate().skip(from).find(is_match)
    }
}

/// Lists the JSON pointers to the parts of a hook that this server does not support.
///
/// # Errors
/// Returns an error when the content is not a hook definition.
pub fn unsupported_parts(content: &Value) -> Result<Vec<String>, MalformedHook> {
    let definition = HookContent::deserialize(content).map_err(|_| MalformedHook)?;
    let mut pointers = Vec::new();
    match (definition.handler.kind.as_str(), &definition.handler.reference) {
        ("policy", Value::Object(_)) | ("http", Value::String(_)) => {}
        ("policy" | "http", _) => pointers.push("/handler/ref".to_owned()),
        _ => pointers.push("/handler/type".to_owned()),
    }
    if definition
        .matcher
        .is_some_and(|pattern| !matches!(pattern.as_str(), "" | "*") && compile_full_match(&pattern).is_none())
    {
        pointers.push("/matcher".to_owned());
    }
    if definition.condition.is_some_and(|source| CompiledPolicy::compile(&condition_bundle(&source)).is_err()) {
        pointers.push("/if".to_owned());
    }
    Ok(pointers)
}

/// A policy bundle with one rule that has this condition. Conditions of hooks thus use the language of policies.
#[must_use]
pub fn condition_bundle(source: &str) -> Value {
    json!({ "rules": [{ "id": "if", "condition": source, "outcome": "allow", "reason_code": "if" }] })
}

/// Compiles a pattern that must match a whole name.
#[must_use]
pub fn compile_full_match(pattern: &str) -> Option<Regex> {
    compile_linear_pattern(&format!("^(?:{pattern})$"))
}

#[cfg(test)]
mod tests;
