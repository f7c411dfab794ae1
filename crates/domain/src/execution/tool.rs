//! Calls of tools, as a run asks for them and hears of them.

use super::outward::{OutwardCall, OutwardError};
use crate::{
    asset::content::{
        mcp_server::{McpWay, ToolPin},
        tool::Repeat,
    },
    audit::{Fact, FactKind, Stamp, Subject},
    id::{AssetId, ExecutionId, WorkspaceId},
    notification::Category,
};
use serde_json::{Map, Value, json};

/// A call that a run asks for.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolRequest {
    /// What is called.
    pub call: Outgoing,
    /// What a second call would do.
    pub repeat: Repeat,
}

/// What is called.
#[derive(Clone, PartialEq, Debug)]
pub enum Outgoing {
    /// An address.
    Address(OutwardCall),
    /// A tool of a server that speaks the Model Context Protocol.
    Server(McpCall),
}

/// One call of a tool of a server.
#[derive(Clone, PartialEq, Debug)]
pub struct McpCall {
    /// The server's asset, and the version of it that the release has frozen.
    pub server: (AssetId, String),
    /// The way to it; its bearer token is that of the tool where the tool has one.
    pub way: McpWay,
    /// Hosts that the tool may be at besides, by its own definition; `None` where it says nothing.
    pub hosts: Option<Vec<String>>,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub said: Map<String, Value>,
    /// What names the call, the same however often it is sent: header `Idempotency-Key`.
    pub call_id: String,
    /// What the tool has to say of itself.
    pub pin: ToolPin,
}

/// Why a server's tool gave nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum McpError {
    /// The call went wrong.
    #[error(transparent)]
    Call(#[from] OutwardError),
    /// The tool is not what was pinned, so it was not called: what it says now; `None` where there is no such tool, or
    /// what it says cannot be pinned.
    #[error("the tool is not what was pinned")]
    Drifted(Option<ToolPin>),
}

/// Why a tool gave no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ToolFailure {
    /// The call went wrong.
    #[error(transparent)]
    Call(#[from] OutwardError),
    /// The tool is not what its release pinned, so it was not called: what it says now; `None` where there is no such tool, or
    /// what it says cannot be pinned.
    #[error("the tool is not what its release pinned")]
    Drifted(Option<ToolPin>),
    /// The run went on elsewhere, and it is not known whether the call was made. It is not made again.
    #[error("whether the tool was called is not known")]
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

    /// The failure of that code, with what was found where a tool has drifted. One that nobody knows any more says as little
    /// as can be said.
    #[must_use]
    pub fn of_code(code: &str, found: Option<ToolPin>) -> Self {
        let drifted = Self::Drifted(found);
        if code == drifted.code() {
            return drifted;
        }
        OutwardError::of_code(code).map_or(Self::OutcomeUnknown, Self::Call)
    }
}

/// What a tool gave.
pub type ToolResult = Result<Value, ToolFailure>;

impl McpCall {
    /// The fact that the tool is not what was pinned. What it says of itself is somebody else's text and stays out.
    #[must_use]
    pub fn drifted(
        &self,
        found: Option<&ToolPin>,
        (execution, workspace): (ExecutionId, WorkspaceId),
        stamp: &Stamp,
    ) -> Fact {
        let (asset, version) = &self.server;
        let subject = Subject { kind: "asset", id: asset.uuid() };
        let said = json!({
            "execution_id": execution,
            "server": version,
            "tool": self.tool,
            "pinned": self.pin.as_str(),
            "found": found.map(ToolPin::as_str),
        });
        let fact = Fact::new(FactKind::ToolDrifted, subject, Some(workspace), stamp, said);
        fact.concerning([Category::ComplianceFindings])
    }
}
