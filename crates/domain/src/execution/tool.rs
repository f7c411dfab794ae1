//! Tool calls and their results.

use super::http_call::{HttpCall, HttpCallError};
use crate::{
    asset::content::{
        mcp_server::{McpConnection, ToolPin},
        tool::RepeatSafety,
    },
    audit::{Fact, FactKind, Stamp, Subject},
    id::{AssetId, ExecutionId, WorkspaceId},
    notification_category::NotificationCategory,
};
use serde_json::{Map, Value, json};

/// A tool call that a run requests.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolRequest {
    /// The target of the call.
    pub target: ToolTarget,
    /// Whether a repeated call is safe.
    pub repeat_safety: RepeatSafety,
}

/// The target of a tool call.
#[derive(Clone, PartialEq, Debug)]
pub enum ToolTarget {
    /// A call of an HTTP address.
    Http(HttpCall),
    /// A tool of an MCP server.
    Mcp(McpCall),
}

/// A call of an MCP server's tool.
#[derive(Clone, PartialEq, Debug)]
pub struct McpCall {
    /// The asset of the server, and its version that the release froze.
    pub server: (AssetId, String),
    /// The transport to the server. A bearer token of the tool overrides the bearer token of the server.
    pub connection: McpConnection,
    /// The hosts that the tool's definition allows; `None` adds no restriction.
    pub allowed_hosts: Option<Vec<String>>,
    /// The name of the tool on the server.
    pub tool: String,
    /// The arguments of the call.
    pub arguments: Map<String, Value>,
    /// The idempotency key of the call, sent as header `Idempotency-Key`. A resumed run repeats the call with the
    /// same key.
    pub call_id: String,
    /// The pin that the tool's current description must match.
    pub pin: ToolPin,
}

/// The failure of an MCP call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum McpError {
    /// The HTTP call failed.
    #[error(transparent)]
    Call(#[from] HttpCallError),
    /// The tool's description does not match its pin, so the tool was not called. Contains the pin of the current
    /// description; `None` when the tool no longer exists or cannot be pinned.
    #[error("the tool does not match its pin")]
    Drifted(Option<ToolPin>),
}

/// The failure of a tool call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ToolFailure {
    /// The HTTP call failed.
    #[error(transparent)]
    Call(#[from] HttpCallError),
    /// The tool's description does not match the release's pin, so the tool was not called. Contains the pin of
    /// the current description; `None` when the tool no longer exists or cannot be pinned.
    #[error("the tool does not match the release's pin")]
    Drifted(Option<ToolPin>),
    /// Another worker resumed the run, and it is unknown whether the previous worker made the call. The call is
    /// not repeated.
    #[error("the tool may have been called")]
    OutcomeUnknown,
}

impl ToolFailure {
    /// The stable code of the failure.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Call(error) => error.code(),
            Self::Drifted(_) => "tool_drifted",
            Self::OutcomeUnknown => "tool_outcome_unknown",
        }
    }

    /// Parses a code. `current_pin` is the current pin of a drifted tool. An unknown code becomes `OutcomeUnknown`.
    #[must_use]
    pub fn from_code(code: &str, current_pin: Option<ToolPin>) -> Self {
        let drifted = Self::Drifted(current_pin);
        if code == drifted.code() {
            return drifted;
        }
        HttpCallError::from_code(code).map_or(Self::OutcomeUnknown, Self::Call)
    }
}

/// The result of a tool call.
pub type ToolResult = Result<Value, ToolFailure>;

impl McpCall {
    /// The fact that a tool does not match its pin. It omits the tool's current description, which is untrusted
    /// text.
    #[must_use]
    pub fn drifted_fact(
        &self,
        current_pin: Option<&ToolPin>,
        execution: ExecutionId,
        workspace: WorkspaceId,
        stamp: &Stamp,
    ) -> Fact {
        let (asset, version) = &self.server;
        let subject = Subject { kind: "asset", id: asset.uuid() };
        let detail = json!({
            "execution_id": execution,
            "server": version,
            "tool": self.tool,
            "pinned": self.pin.as_str(),
            "found": current_pin.map(ToolPin::as_str),
        });
        let fact = Fact::new(FactKind::ToolDrifted, subject, Some(workspace), stamp, detail);
        fact.with_notification_categories([NotificationCategory::ComplianceFindings])
    }
}
