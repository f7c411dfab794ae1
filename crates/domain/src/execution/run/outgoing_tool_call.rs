//! Tool calls of agents: the reasons to refuse a call, its expected pin, and the outgoing call.

use super::schema_check::SchemaResult;
use crate::{
    asset::content::{
        mcp_server::{McpConnectionSettings, ToolPin},
        tool::{HttpBinding, McpBinding, ToolBinding},
    },
    execution::{
        http_call::HttpCall,
        plan::{BoundServer, BoundTool},
        tool::McpCall,
    },
};
use serde_json::{Map, Value};

/// The error code of arguments that do not satisfy the schema of the tool.
pub(super) const ARGUMENTS_INVALID: &str = "tool_arguments_invalid";

/// The error code with which the run refuses a tool call; `None` if the call is allowed.
pub(super) fn call_refusal(
    tool: Option<&BoundTool>,
    arguments: Option<&Map<String, Value>>,
    schema_result: SchemaResult,
) -> Option<&'static str> {
    let Some(tool) = tool else { return Some("tool_unknown") };
    if arguments.is_none() {
        return Some("tool_arguments_malformed");
    }
    if tool.tool.needs_approval() {
        return Some("tool_needs_approval");
    }
    schema_result.err().map(|rejection| rejection.code(ARGUMENTS_INVALID))
}

pub(super) fn build_http_call(
    http: &HttpBinding,
    arguments: Map<String, Value>,
    call_id: String,
    timeout: std::time::Duration,
) -> HttpCall {
    HttpCall {
        address: http.url.clone(),
        path: http.path.clone(),
        method: http.method,
        arguments,
        secret: http.secret.clone(),
        call_id,
        timeout,
        allowed_hosts: http.allowed_hosts.clone(),
    }
}

/// The pin that the description of an MCP tool must match; `None` for a tool of any other kind.
pub(super) fn tool_pin(bound_tool: &BoundTool) -> Option<ToolPin> {
    let server = bound_tool.server.as_ref()?;
    match &bound_tool.tool.binding {
        ToolBinding::Mcp(binding) => Some(server.server.expected_pin(&bound_tool.tool.name, &binding.pin).clone()),
        ToolBinding::Http(_) | ToolBinding::Builtin(_) | ToolBinding::Unavailable => None,
    }
}

pub(super) fn build_mcp_call(
    bound_tool: &BoundTool,
    binding: &McpBinding,
    server: &BoundServer,
    connection: &McpConnectionSettings,
    arguments: Map<String, Value>,
    call_id: String,
) -> McpCall {
    let tool = &bound_tool.tool;
    let bearer = binding.secret.clone().or_else(|| connection.bearer.clone());
    McpCall {
        server: (server.asset, server.reference.clone()),
        connection: McpConnectionSettings {
            bearer,
            timeout: connection.timeout.min(tool.timeout),
            ..connection.clone()
        },
        allowed_hosts: binding.allowed_hosts.clone(),
        tool: tool.name.clone(),
        arguments,
        call_id,
        pin: server.server.expected_pin(&tool.name, &binding.pin).clone(),
    }
}
