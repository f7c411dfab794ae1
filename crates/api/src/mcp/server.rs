//! The MCP server handler: lists and calls the tools of an agent.

use super::REVISIONS;
use crate::{
    builtin_tool::ToolCallContext, compose::Api, error::ApiError, http::paging::CursorSeal, runtime_info::list_tools,
};
use fairway_domain::{
    access::Caller,
    client_address::ClientAddress,
    id::RequestId,
    offered_tool::{BuiltinTool, OfferedToolCall, SideEffect, ToolDescription, workload_slug_of_tool_name},
    slug::Slug,
};
use fairway_operations::{access::IdentityClaims, builtin_tool::parse_tool_call};
use fairway_postgres::{CallerKey, with_caller_key};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult, ErrorCode,
        Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
        ServerConfig, Tool, ToolAnnotations,
    },
    service::RequestContext,
};
use serde_json::{Value, json};
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};
use tracing::{Instrument as _, Span};

/// The MCP methods that the server supports.
const METHODS: [&str; 5] = ["initialize", "ping", "server/discover", "tools/list", "tools/call"];

/// The handler of one request.
#[derive(Clone)]
pub(super) struct McpHandler {
    api: Api,
    claims: IdentityClaims,
    request_id: RequestId,
    address: ClientAddress,
    environment: Slug,
    span: Span,
    /// Key by which fair list queues attribute the request. The SDK responds in a separate task, which needs it
    /// explicitly.
    key: CallerKey,
}

impl McpHandler {
    pub(super) fn new(
        api: Api,
        claims: IdentityClaims,
        request_id: RequestId,
        address: ClientAddress,
        environment: Slug,
    ) -> Self {
        Self { api, claims, request_id, address, environment, span: Span::current(), key: CallerKey::current() }
    }

    async fn caller(&self) -> Result<Caller, ApiError> {
        Ok(self.api.services.identities.resolve_caller(self.api.mode, &self.claims, self.request_id).await?)
    }

    /// The cursor seal of the tool list, for the caller's tenant and the connection's environment.
    async fn cursor_seal(&self, caller: &Caller) -> Result<CursorSeal, ApiError> {
        let tenant = ("tenant".to_owned(), caller.tenant.to_string());
        let environment = ("environment".to_owned(), self.environment.to_string());
        Ok(CursorSeal::new(self.api.cursor_seal_key().await?, "/mcp", &BTreeMap::from([tenant, environment])))
    }

    async fn list(&self, cursor: Option<&str>) -> Result<ListToolsResult, ErrorData> {
        let caller = self.caller().await.map_err(|error| to_protocol_error(&error))?;
        let seal = self.cursor_seal(&caller).await.map_err(|error| to_protocol_error(&error))?;
        let unknown = || ErrorData::invalid_params("the cursor is unknown", None);
        let after = cursor.map(|cursor| seal.open(cursor).ok_or_else(unknown)).transpose()?;
        let (page, next) = match list_tools(&self.api, &caller, None, after).await {
            // A caller without access to workloads has only the built-in tools, on one page without a cursor.
            Err(error) if error.status() == actix_web::http::StatusCode::FORBIDDEN => {
                if after.is_some() {
                    return Err(unknown());
                }
                (BuiltinTool::ALL.iter().map(|tool| tool.description()).collect(), None)
            }
            page => page.map_err(|error| to_protocol_error(&error))?,
        };
        let mut result = ListToolsResult::with_all_items(page.into_iter().map(to_mcp_tool).collect());
        result.next_cursor = next.map(|position| seal.seal(position));
        Ok(result)
    }

    async fn call(&self, name: &str, arguments: JsonObject) -> Result<CallToolResult, ErrorData> {
        let tool_call = match (BuiltinTool::parse(name), workload_slug_of_tool_name(name)) {
            (Some(tool), _) => parse_tool_call(tool, arguments).map_err(ApiError::from),
            (None, Some(workload)) => {
                let environment = self.environment.clone();
                Ok(OfferedToolCall::Workload { workload, environment, inputs: arguments })
            }
            (None, None) => return Err(ErrorData::invalid_params("unknown tool", None)),
        };
        let call = ToolCallContext {
            api: &self.api,
            claims: &self.claims,
            request_id: self.request_id,
            address: self.address,
            key: None,
            on_behalf_of: None,
        };
        let outcome = match tool_call {
            Ok(tool_call) => call.execute(tool_call).await,
            Err(error) => Err(error),
        };
        Ok(match outcome {
            Ok((result, _)) => {
                let failed = result.status == "failed";
                let value = serde_json::to_value(result).unwrap_or_default();
                if failed { CallToolResult::structured_error(value) } else { CallToolResult::structured(value) }
            }
            // Errors are tool results, because models can correct their calls but never see protocol errors.
            Err(error) => CallToolResult::structured_error(self.error_detail(&error)),
        })
    }

    /// The `detail` of an error response, with the request id, for an agent.
    fn error_detail(&self, error: &ApiError) -> Value {
        let mut detail = error.body().get_mut("detail").map(Value::take).unwrap_or_default();
        if let Some(members) = detail.as_object_mut() {
            members.insert("request_id".to_owned(), json!(self.request_id));
        }
        detail
    }
}

fn to_protocol_error(error: &ApiError) -> ErrorData {
    if error.status().is_server_error() {
        ErrorData::internal_error(error.code(), None)
    } else {
        ErrorData::invalid_params(error.code(), None)
    }
}

fn to_mcp_tool(tool: ToolDescription) -> Tool {
    let ToolDescription { name, title, description, input_schema, effect } = tool;
    let schema = match input_schema {
        Value::Object(schema) => schema,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => JsonObject::new(),
    };
    let annotations = ToolAnnotations::new().read_only(effect == SideEffect::ReadOnly);
    Tool::new(name, description, Arc::new(schema)).with_title(title).with_annotations(annotations)
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("fairway", env!("CARGO_PKG_VERSION")).with_title("Fairway"))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&REVISIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        with_caller_key(self.key, self.list(cursor.as_deref())).instrument(self.span.clone()).await
    }

    /// Handles messages that the SDK cannot parse: an unknown method, or a known one with invalid parameters. The
    /// error repeats neither the method nor the parameters.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if METHODS.contains(&request.method.as_str()) {
            return Err(ErrorData::invalid_params("the parameters do not match the method", None));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "unknown method", None))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let call = with_caller_key(self.key, self.call(&request.name, arguments));
        call.instrument(self.span.clone()).await.map(CallToolResponse::from)
    }
}
