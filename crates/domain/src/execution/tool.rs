//! Calls of tools, as a run asks for them and hears of them.

use super::outward::{OutwardCall, OutwardError};
use crate::asset::content::tool::Repeat;
use serde_json::Value;

/// A call that a run asks for.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolRequest {
    /// What is called.
    pub call: OutwardCall,
    /// What a second call would do.
    pub repeat: Repeat,
}

/// Why a tool gave no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ToolFailure {
    /// The call went wrong.
    #[error(transparent)]
    Call(#[from] OutwardError),
    /// The run went on elsewhere, and it is not known whether the call was made. It is not made again.
    #[error("whether the tool was called is not known")]
    OutcomeUnknown,
}

impl ToolFailure {
    /// The stable code of the failure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Call(error) => error.code(),
            Self::OutcomeUnknown => "tool_outcome_unknown",
        }
    }

    /// The failure of that code. One that nobody knows any more says as little as can be said.
    #[must_use]
    pub fn of_code(code: &str) -> Self {
        OutwardError::of_code(code).map_or(Self::OutcomeUnknown, Self::Call)
    }
}

/// What a tool gave.
pub type ToolResult = Result<Value, ToolFailure>;
