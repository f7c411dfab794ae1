//! Hooks: what is asked before and after the parts of a run, and what its answers may do.
//!
//! A hook is a control beside the policy. Handlers of the type `policy` are decided here; an `http` handler is asked by
//! whoever drives the run. Both answer the same: allow, deny, ask a person, or change what goes on.

mod answer;

use crate::{asset::content::linear, policy::CompiledPolicy};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

pub use answer::{Decision, HookAnswer, HookError};

/// Time of an `http` handler where nobody says, in milliseconds.
pub const DEFAULT_TIMEOUT_MS: u64 = 5_000;

/// When a hook is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Before the first step. The value is what was sent.
    PreExecute,
    /// Before documents are looked up. The value is what is looked for.
    PreRetrieval,
    /// Before a model is asked. The value is what it is asked: `system_prompt` and `messages`.
    PreLlm,
    /// After a model answered. The value is what it said.
    PostLlm,
    /// Before a tool is called. The value is its arguments.
    PreTool,
    /// After a tool was called. The value is what it gave back.
    PostTool,
    /// After a run failed. The value is the code of its error.
    OnError,
    /// After the last step. The value is the answer.
    PostExecute,
}

impl Event {
    /// The spelling in content, evidence and requests.
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

    /// Whether the run shows what the event is about only once it is over.
    const fn holds_answers_back(self) -> bool {
        match self {
            Self::PostLlm | Self::PostTool | Self::PostExecute => true,
            Self::PreExecute | Self::PreRetrieval | Self::PreLlm | Self::PreTool | Self::OnError => false,
        }
    }
}

/// Whether answers count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// They do.
    #[default]
    Enforce,
    /// They are only written down.
    Observe,
}

/// What it means that a hook has no answer that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The run ends.
    #[default]
    FailClosed,
    /// The run goes on, and that is written down.
    FailOpen,
}

/// What can answer a hook here, by the names that content has for it.
pub const HANDLERS: [&str; 2] = ["policy", "http"];

/// What answers a hook.
#[derive(Clone, Debug)]
pub enum Handler {
    /// A policy bundle.
    Policy(Box<CompiledPolicy>),
    /// An address.
    Http(String),
    /// What this server cannot ask.
    Unavailable,
}

/// Which parts of a run a hook is about, by their names.
#[derive(Clone, Debug)]
enum Matcher {
    All,
    Named(Regex),
    /// A pattern that this server cannot use: it fits everything, so that no hook is passed over for it.
    Unreadable,
}

/// A hook that a release binds.
#[derive(Clone, Debug)]
pub struct Hook {
    /// The asset.
    pub asset: Arc<str>,
    /// When it is asked.
    pub event: Event,
    /// What is asked.
    pub handler: Handler,
    /// Longest time of the handler.
    pub timeout: Duration,
    /// Whether its answer counts.
    pub mode: Mode,
    /// What an error means.
    pub on_error: OnError,
    /// What its answer may do.
    pub may: Vec<Decision>,
    order: u32,
    matcher: Matcher,
    condition: Condition,
}

/// A further condition.
#[derive(Clone, Debug)]
enum Condition {
    Always,
    If(Box<CompiledPolicy>),
    Unreadable,
}

#[derive(Deserialize)]
struct Said {
    event: Event,
    matcher: Option<String>,
    #[serde(rename = "if")]
    condition: Option<String>,
    handler: SaidHandler,
    timeout_ms: Option<u64>,
    #[serde(default)]
    order: u32,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    on_error: OnError,
    may: Option<Vec<Decision>>,
}

#[derive(Deserialize)]
struct SaidHandler {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "ref")]
    reference: Value,
}

/// The content is no hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the content is no hook")]
pub struct Malformed;

/// What a condition of a hook says of a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applies {
    /// The hook is asked.
    Yes,
    /// It is not.
    No,
    /// The condition could not be evaluated.
    Unknown,
}

impl Hook {
    /// Reads the content of an asset. `policy` is the bundle that its handler refers to, where it refers to one.
    ///
    /// # Errors
    /// When the content is no hook.
    pub fn of(asset: &str, content: &Value, policy: Option<CompiledPolicy>) -> Result<Self, Malformed> {
        let said = Said::deserialize(content).map_err(|_| Malformed)?;
        let handler = match (said.handler.kind.as_str(), policy, said.handler.reference.as_str()) {
            ("policy", Some(policy), _) => Handler::Policy(Box::new(policy)),
            ("http", _, Some(address)) => Handler::Http(address.to_owned()),
            _ => Handler::Unavailable,
        };
        let matcher = match said.matcher.as_deref() {
            None | Some("" | "*") => Matcher::All,
            Some(pattern) => whole(pattern).map_or(Matcher::Unreadable, Matcher::Named),
        };
        let condition = match said.condition.as_deref() {
            None => Condition::Always,
            Some(source) => {
                let compiled = CompiledPolicy::compile(&condition_content(source));
                compiled.map_or(Condition::Unreadable, |compiled| Condition::If(Box::new(compiled)))
            }
        };
        Ok(Self {
            asset: asset.into(),
            event: said.event,
            handler,
            timeout: Duration::from_millis(said.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)),
            mode: said.mode,
            on_error: said.on_error,
            // Whoever does not say what an answer may do is taken to want a gate, and no more.
            may: said.may.unwrap_or_else(|| vec![Decision::Allow, Decision::Deny]),
            order: said.order,
            matcher,
            condition,
        })
    }

    /// Whether it is about a part of that name.
    fn fits(&self, subject: &str) -> bool {
        match &self.matcher {
            Matcher::All | Matcher::Unreadable => true,
            Matcher::Named(pattern) => pattern.is_match(subject),
        }
    }

    /// Whether its condition holds, by what the policy of the condition says.
    pub fn applies(&self, decide: impl FnOnce(&CompiledPolicy) -> crate::policy::PolicyDecision) -> Applies {
        use crate::policy::{NO_MATCHING_RULE, Outcome};
        let condition = match &self.condition {
            Condition::Always => return Applies::Yes,
            Condition::Unreadable => return Applies::Unknown,
            Condition::If(condition) => condition,
        };
        let decision = decide(condition);
        match decision.outcome {
            Outcome::Allow | Outcome::AllowWithObligations => Applies::Yes,
            Outcome::Deny if decision.reason_code == NO_MATCHING_RULE => Applies::No,
            Outcome::Deny => Applies::Unknown,
        }
    }

    /// Whether answers must not be shown before the end because of it.
    #[must_use]
    pub fn holds_answers_back(&self) -> bool {
        self.mode == Mode::Enforce && (self.event.holds_answers_back() || self.may.contains(&Decision::Ask))
    }

    /// How much memory its compiled parts may take, in bytes.
    #[must_use]
    pub fn compiled_bytes(&self) -> usize {
        let condition = match &self.condition {
            Condition::Always | Condition::Unreadable => 0,
            Condition::If(condition) => condition.pattern_bytes(),
        };
        let handler = match &self.handler {
            Handler::Policy(policy) => policy.pattern_bytes(),
            Handler::Http(_) | Handler::Unavailable => 0,
        };
        let matcher = match &self.matcher {
            Matcher::All | Matcher::Unreadable => 0,
            Matcher::Named(_) => usize::try_from(crate::asset::content::PATTERN_BYTES).unwrap_or(usize::MAX),
        };
        condition.saturating_add(handler).saturating_add(matcher)
    }
}

/// The hooks of a release, the first one first.
#[derive(Clone, Debug, Default)]
pub struct Hooks(Vec<Hook>);

impl Hooks {
    /// These hooks, by their order; those of the same order as they are bound.
    #[must_use]
    pub fn of(mut hooks: Vec<Hook>) -> Self {
        hooks.sort_by_key(|hook| hook.order);
        Self(hooks)
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Hook> {
        self.0.iter()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first hook of an event about a part of that name, not counting those before `from`, and its place.
    #[must_use]
    pub fn next(&self, event: Event, subject: &str, from: usize) -> Option<(usize, &Hook)> {
        let fits = |(_, hook): &(usize, &Hook)| hook.event == event && hook.fits(subject);
        self.0.iter().enumerate().skip(from).find(fits)
    }
}

/// JSON pointers to what this server cannot do of a hook.
///
/// # Errors
/// When the content is no hook.
pub fn unavailable(content: &Value) -> Result<Vec<String>, Malformed> {
    let said = Said::deserialize(content).map_err(|_| Malformed)?;
    let mut pointers = Vec::new();
    match (said.handler.kind.as_str(), &said.handler.reference) {
        ("policy", Value::Object(_)) | ("http", Value::String(_)) => {}
        ("policy" | "http", _) => pointers.push("/handler/ref".to_owned()),
        _ => pointers.push("/handler/type".to_owned()),
    }
    if said.matcher.is_some_and(|pattern| !matches!(pattern.as_str(), "" | "*") && whole(&pattern).is_none()) {
        pointers.push("/matcher".to_owned());
    }
    if said.condition.is_some_and(|source| CompiledPolicy::compile(&condition_content(&source)).is_err()) {
        pointers.push("/if".to_owned());
    }
    Ok(pointers)
}

/// The bundle whose one rule is a condition: conditions of hooks are those of policies.
#[must_use]
pub fn condition_content(source: &str) -> Value {
    json!({ "rules": [{ "id": "if", "condition": source, "outcome": "allow", "reason_code": "if" }] })
}

/// The pattern that fits whole names.
#[must_use]
pub fn whole(pattern: &str) -> Option<Regex> {
    linear(&format!("^(?:{pattern})$"))
}

#[cfg(test)]
mod tests;
