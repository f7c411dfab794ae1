//! Responses of hooks.

use crate::{
    execution::http_call::HttpCallError,
    policy::{self, Obligation, PolicyDecision},
};
use serde::Deserialize;
use serde_json::Value;

/// Maximum length of a reason code.
const MAX_REASON_CODE_BYTES: usize = 128;

/// Decision of a hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The run continues.
    Allow,
    /// The run ends.
    Deny,
    /// The response of the run requires human review.
    Ask,
    /// The run continues with a modified value.
    Modify,
}

impl Decision {
    /// The spelling in content, responses and evidence.
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

/// Validated response of a hook.
#[derive(Clone, PartialEq, Debug)]
pub struct HookResponse {
    /// Decision.
    pub decision: Decision,
    /// Reason code.
    pub reason_code: Option<String>,
    /// Modified value; present exactly with [`Decision::Modify`].
    pub modified: Option<Value>,
    /// Obligations that the run takes on.
    pub obligations: Vec<Obligation>,
}

/// Why a hook has no valid response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HookError {
    /// The call failed.
    #[error(transparent)]
    Call(HttpCallError),
    /// The response is malformed.
    #[error("the hook's response is malformed")]
    Malformed,
    /// The hook lacks permission for its decision, or the modified value is invalid.
    #[error("the hook's response is not permitted")]
    NotAllowed,
    /// The evaluation of its condition failed.
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

/// A response on the wire. Unknown members are ignored, so handlers can be extended.
#[derive(Deserialize)]
struct WireResponse {
    decision: Decision,
    reason_code: Option<String>,
    modified: Option<Value>,
}

impl HookResponse {
    /// Parses the body of a response.
    ///
    /// # Errors
    /// Returns [`HookError::Malformed`] when the body has no valid decision, its reason is not a code, or `modified`
    /// and the decision disagree.
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

    /// Converts a policy decision to a response.
    #[must_use]
    pub fn from_policy(decision: PolicyDecision) -> Self {
        let verdict = match decision.outcome {
            policy::Outcome::Allow | policy::Outcome::AllowWithObligations => Decision::Allow,
            policy::Outcome::Deny => Decision::Deny,
        };
        let PolicyDecision { reason_code, obligations, .. } = decision;
        Self { decision: verdict, reason_code: Some(reason_code), modified: None, obligations }
    }
}

/// Whether a text is a code that evidence may contain.
fn is_code(text: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    text.len() <= MAX_REASON_CODE_BYTES
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && text.bytes().all(rest)
}
