//! Responses of hooks, and the errors of hooks without a valid response.

use crate::{
    execution::http_call::HttpCallError,
    policy::{self, Obligation, PolicyDecision},
};
use serde::Deserialize;
use serde_json::Value;

/// The maximum length of a reason code, in bytes.
const MAX_REASON_CODE_BYTES: usize = 128;

/// The decision of a hook about a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The run continues with the value.
    Allow,
    /// The run ends as denied.
    Deny,
    /// The run continues, but its response requires human review. A tool call is refused instead, because it cannot
    /// wait.
    Ask,
    /// The run continues with a modified value.
    Modify,
}

impl Decision {
    /// The wire form in content, responses and evidence, such as `allow`.
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

/// The validated response of a hook.
#[derive(Clone, PartialEq, Debug)]
pub struct HookResponse {
    /// Whether the run continues, and with which value.
    pub decision: Decision,
    /// The code of the reason, if the handler gave one.
    pub reason_code: Option<String>,
    /// The modified value; present if and only if the decision is [`Decision::Modify`].
    pub modified: Option<Value>,
    /// The obligations that the decision imposes on the run.
    pub obligations: Vec<Obligation>,
}

/// The reason why a hook has no valid response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HookError {
    /// The HTTP call to the handler failed.
    #[error(transparent)]
    Call(HttpCallError),
    /// The response is not a decision in the required form.
    #[error("the hook's response is malformed")]
    Malformed,
    /// The hook may not make this decision, or its modified value is invalid.
    #[error("the hook's response is not permitted")]
    NotAllowed,
    /// The evaluation of the hook's condition failed.
    #[error("the evaluation of the hook's condition failed")]
    Condition,
    /// This server does not support the handler.
    #[error("this server does not support the hook's handler")]
    Unavailable,
}

impl HookError {
    /// The stable code, as recorded in evidence.
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

/// The response of an HTTP handler. Unknown members are ignored, so that handlers may send more members.
#[derive(Deserialize)]
struct WireResponse {
    decision: Decision,
    reason_code: Option<String>,
    modified: Option<Value>,
}

impl HookResponse {
    /// Parses the response body of an HTTP handler.
    ///
    /// # Errors
    /// Returns [`HookError::Malformed`] in these cases: the body has no valid decision, the reason is not a code, or
    /// the decision `modify` and the member `modified` do not occur together.
    pub fn parse(body: Value) -> Result<Self, HookError> {
        let WireResponse { decision, reason_code, modified } =
            WireResponse::deserialize(body).map_err(|_| HookError::Malformed)?;
        if reason_code.as_deref().is_some_and(|code| !is_code(code))
            || (decision == Decision::Modify) != modified.is_some()
        {
            return Err(HookError::Malformed);
        }
        Ok(Self { decision, reason_code, modified, obligations: Vec::new() })
    }

    /// Converts the decision of a policy into a hook response.
    #[must_use]
    pub fn from_policy(decision: PolicyDecision) -> Self {
        let verdict = match decision.outcome {
            policy::DecisionOutcome::Allow | policy::DecisionOutcome::AllowWithObligations => Decision::Allow,
            policy::DecisionOutcome::Deny => Decision::Deny,
        };
        let PolicyDecision { reason_code, obligations, .. } = decision;
        Self { decision: verdict, reason_code: Some(reason_code), modified: None, obligations }
    }
}

/// Whether a text has the form of a code, so that evidence may contain it.
fn is_code(text: &str) -> bool {
    let is_code_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    text.len() <= MAX_REASON_CODE_BYTES
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && text.bytes().all(is_code_byte)
}
