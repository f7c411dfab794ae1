//! Tool calls of agents: their targets, results and failures.

use super::http_call::{HttpCall, HttpCallError};
use crate::{
    asset::content::{
        mcp_server::{McpConnectionSettings, ToolPin},
        tool::RepeatSafety,
    },
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{AssetId, ExecutionId, WorkspaceId},
    notification_category::NotificationCategory,
};
use serde_json::{Map, Value, json};

/// A tool call that a run requests.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolRequest {
    /// The HTTP address or the MCP tool to call.
    pub target: ToolTarget,
    /// Whether another worker may repeat the call if its outcome is unknown.
    pub repeat_safety: RepeatSafety,
}

/// The HTTP address or the MCP tool that a call reaches.
#[derive(Clone, PartialEq, Debug)]
pub enum ToolTarget {
    /// The tool is an HTTP address.
    Http(HttpCall),
    /// The tool belongs to an MCP server.
    Mcp(McpCall),
}

/// A call of a tool on an MCP server.
#[derive(Clone, PartialEq, Debug)]
pub struct McpCall {
    /// The asset of the MCP server, and the label of its frozen version.
    pub server: (AssetId, String),
    /// The connection to the server. A bearer token of the tool overrides the bearer token of the server.
    pub connection: McpConnectionSettings,
    /// The hosts that the definition of the tool allows; `None` adds no restriction.
    pub allowed_hosts: Option<Vec<String>>,
    /// The name of the tool on the server.
    pub tool: String,
    /// The arguments of the call, as a JSON object.
    pub arguments: Map<String, Value>,
    /// The idempotency key of the call, sent as header `Idempotency-Key`. A repetition of the call by a resumed run has
    /// the same key.
    pub call_id: String,
    /// The pin that the current description of the tool must match.
    pub pin: ToolPin,
}

/// The reason why a call of an MCP tool failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum McpError {
    /// The HTTP request of the call failed.
    #[error(transparent)]
    Call(#[from] HttpCallError),
    /// The description of the tool does not match its pin, so the tool was not called. The value is the pin of the
    /// current description; `None` if the tool no longer exists or cannot be pinned.
    #[error("the tool does not match its pin")]
    Drifted(Option<ToolPin>),
}

/// The reason why a tool call of a run failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ToolFailure {
    /// The HTTP request of the call failed.
    #[error(transparent)]
    Call(#[from] HttpCallError),
    /// The description of the tool does not match the pin of the release, so the tool was not called. The value is the
    /// pin of the current description; `None` if the tool no longer exists or cannot be pinned.
    #[error("the tool does not match the release's pin")]
    Drifted(Option<ToolPin>),
    /// Another worker resumed the run, and it is unknown whether the previous worker called the tool. The run does not
    /// repeat the call.
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

    /// Parses the stable code of a failure. `current_pin` is the current pin of a drifted tool. An unknown code becomes
    /// `OutcomeUnknown`.
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
    /// The fact that the description of the tool does not match its pin. The fact omits the current description,
    /// because that is untrusted text.
    #[must_use]
    pub fn drifted_fact(
        &self,
        current_pin: Option<&ToolPin>,
        execution: ExecutionId,
        workspace: WorkspaceId,
        stamp: &Stamp,
    ) -> Fact {
        let (asset, version) = &self.server;
        let subject = FactSubject { kind: "asset", id: asset.uuid() };
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
