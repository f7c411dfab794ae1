//! What hooks answer.

use crate::{
    execution::outward::OutwardError,
    policy::{self, Obligation, PolicyDecision},
};
use serde::Deserialize;
use serde_json::Value;

/// Longest reason code.
const MAX_REASON: usize = 128;

/// What a hook says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The run goes on.
    Allow,
    /// It ends.
    Deny,
    /// A person looks at its answer before it counts.
    Ask,
    /// It goes on with another value.
    Modify,
}

impl Decision {
    /// The spelling in content, answers and evidence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Ask => "ask",
            Self::Modify => "modify",
        }
    }
}

/// What a hook answered.
#[derive(Clone, PartialEq, Debug)]
pub struct HookAnswer {
    /// What it says.
    pub decision: Decision,
    /// Why.
    pub reason_code: Option<String>,
    /// What the value becomes; exactly with [`Decision::Modify`].
    pub modified: Option<Value>,
    /// What the run owes from then on.
    pub obligations: Vec<Obligation>,
}

/// Why a hook has no answer that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HookError {
    /// It could not be called, or did not answer.
    #[error(transparent)]
    Call(OutwardError),
    /// Its answer is none.
    #[error("the hook's answer cannot be read")]
    Malformed,
    /// Its answer does what it may not do, or changes the value to something that it cannot be.
    #[error("the hook may not do what it answered")]
    NotAllowed,
    /// Its condition could not be evaluated.
    #[error("the hook's condition could not be evaluated")]
    Condition,
    /// This server cannot ask it.
    #[error("this server cannot ask the hook")]
    Unavailable,
}

impl HookError {
    /// The stable code, as evidence tells it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Call(error) => error.code(),
            Self::Malformed => "hook_answer_malformed",
            Self::NotAllowed => "hook_answer_not_allowed",
            Self::Condition => "hook_condition_failed",
            Self::Unavailable => "hook_handler_unavailable",
        }
    }
}

/// An answer as it comes over the wire. What else stands there is passed over: those who answer may learn more words.
#[derive(Deserialize)]
struct Wire {
    decision: Decision,
    reason_code: Option<String>,
    modified: Option<Value>,
}

impl HookAnswer {
    /// Reads the body of an answer.
    ///
    /// # Errors
    /// When it is none: no JSON, no decision, a reason that is no code, or a change where none is meant.
    pub fn read(body: Value) -> Result<Self, HookError> {
        let Wire { decision, reason_code, modified } = Wire::deserialize(body).map_err(|_| HookError::Malformed)?;
        if reason_code.as_deref().is_some_and(|code| !is_code(code))
            || (decision == Decision::Modify) != modified.is_some()
        {
            return Err(HookError::Malformed);
        }
        Ok(Self { decision, reason_code, modified, obligations: Vec::new() })
    }

    /// What a policy's decision says as the answer of a hook.
    #[must_use]
    pub fn of_policy(decision: PolicyDecision) -> Self {
        let said = match decision.outcome {
            policy::Outcome::Allow | policy::Outcome::AllowWithObligations => Decision::Allow,
            policy::Outcome::Deny => Decision::Deny,
        };
        let PolicyDecision { reason_code, obligations, .. } = decision;
        Self { decision: said, reason_code: Some(reason_code), modified: None, obligations }
    }
}

/// Whether a text is a code that may stand in evidence.
fn is_code(text: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    text.len() <= MAX_REASON
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && text.bytes().all(rest)
}
