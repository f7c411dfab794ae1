//! Routes that describe the deployment: its plugins, its limits and its tools.

use crate::{
    asset::VisibleFromQuery,
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::{body::DEFAULT_BODY_LIMIT, paging::ListRequest, query::Query},
    openapi::{PageParams, ReadRefusals},
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{
    access::Caller,
    flow::{Action, StepKind},
    guardrail::DETECTOR_NAMES,
    hook::HANDLER_NAMES,
    id::WorkspaceId,
    offered_tool::{BuiltinTool, SideEffect, ToolDescription, describe_workload_tool},
    store::{Cursor, Page, PageRequest, PageStart},
};
use fairway_operations::access::Operation;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Workloads per page of `tools/list`.
const PAGE_SIZE: u32 = 200;

/// A provider account of the deployment, without credentials.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct ProviderPlugin {
    pub(crate) account_slot: String,
    /// `local`, `openai` or `anthropic`.
    pub(crate) kind: &'static str,
}

/// The components that runs can use on this deployment.
#[derive(Serialize, ToSchema)]
pub(crate) struct RuntimePlugins {
    providers: Vec<ProviderPlugin>,
    /// Kinds of available hook handlers.
    hook_handlers: Vec<&'static str>,
    /// Names of available guardrail detectors.
    guardrail_detectors: Vec<&'static str>,
    step_types: Vec<&'static str>,
    /// Names of the actions that `task` steps can perform.
    actions: Vec<&'static str>,
    tools: Vec<&'static str>,
}

/// Version, capabilities and limits of this deployment.
#[derive(Serialize, ToSchema)]
pub(crate) struct RuntimeMeta {
    version: &'static str,
    /// `local` or `oidc`.
    auth_mode: &'static str,
    capabilities: RuntimeCapabilities,
    limits: RuntimeLimits,
}

/// What this server can do in runs.
#[derive(Serialize, ToSchema)]
struct RuntimeCapabilities {
    /// `inline`, `queued` or `hybrid`.
    dispatch: &'static str,
    /// Whether clients can request queued runs.
    async_execution: bool,
    streaming: bool,
    /// Revisions of the Model Context Protocol that `/mcp` supports.
    mcp_protocol_versions: Vec<&'static str>,
}

/// Limits of runs; times are in seconds.
#[derive(Serialize, ToSchema)]
struct RuntimeLimits {
    sync_wait_seconds: u64,
    execution_deadline_seconds: u64,
    review_deadline_seconds: u64,
    queued_runs: u32,
    request_body_bytes: usize,
}

/// The tools that the caller can use in a workspace.
#[derive(Serialize, ToSchema)]
pub(crate) struct McpManifest {
    tools: Vec<ManifestTool>,
    /// Whether there are more pages. The `Link` header names the next page, and `X-Total-Count` the number of workloads
    /// in the list.
    truncated: bool,
}

/// A tool in the format of `tools/list` of the Model Context Protocol.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ManifestTool {
    name: String,
    title: String,
    description: String,
    /// The JSON Schema of the arguments.
    #[schema(value_type = Object)]
    input_schema: Value,
    annotations: ManifestAnnotations,
}

/// Hints about the effects of a tool.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ManifestAnnotations {
    read_only_hint: bool,
}

impl ManifestTool {
    fn of(tool: ToolDescription) -> Self {
        let ToolDescription { name, title, description, input_schema, effect } = tool;
        let annotations = ManifestAnnotations { read_only_hint: effect == SideEffect::ReadOnly };
        Self { name, title, description, input_schema, annotations }
    }
}

/// A page of the caller's tools; the first page includes the built-in tools.
pub(crate) async fn list_tools(
    api: &Api,
    caller: &Caller,
    workspace: Option<WorkspaceId>,
    after: Option<Cursor>,
) -> Result<(Vec<ToolDescription>, Option<Cursor>), ApiError> {
    let start = after.map_or(PageStart::Skip(0), PageStart::After);
    let Page { rows, next, total: _ } =
        tool_page(api, caller, workspace, PageRequest { limit: PAGE_SIZE, start }).await?;
    Ok((rows, next))
}

/// The tools of a page of workloads; the first page includes the built-in tools. `total` counts the workloads.
async fn tool_page(
    api: &Api,
    caller: &Caller,
    workspace: Option<WorkspaceId>,
    paging: PageRequest,
) -> Result<Page<ToolDescription>, ApiError> {
    let workloads = api.services.workloads.list_runnable_interfaces(caller, workspace, paging).await?;
    let builtin_tools = if paging.start == PageStart::Skip(0) { BuiltinTool::ALL.as_slice() } else { &[] };
    let builtin_tools = builtin_tools.iter().map(|tool| tool.description());
    let rows = builtin_tools.chain(workloads.rows.iter().filter_map(describe_workload_tool)).collect();
    Ok(Page { rows, total: workloads.total, next: workloads.next })
}

/// Reads the plugins of this deployment.
#[utoipa::path(
    operation_id = "read_runtime_plugins",
    tag = "executions",
    params(VisibleFromQuery),
    responses((status = 200, description = "The plugins of the deployment", body = RuntimePlugins), ReadRefusals)
)]
#[get("/v1/runtime/plugins")]
pub(crate) async fn read_runtime_plugins(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    visible_from: Query<VisibleFromQuery>,
) -> Result<HttpResponse, ApiError> {
    api.services.executions.installation_run_settings(&caller, Operation::ReadPlugins, visible_from.id()).await?;
    let view = RuntimePlugins {
        providers: api.provider_plugins.to_vec(),
        hook_handlers: HANDLER_NAMES.to_vec(),
        guardrail_detectors: DETECTOR_NAMES.to_vec(),
        step_types: StepKind::WIRE_FORMS.to_vec(),
        actions: Action::ALL.iter().map(|action| action.as_str()).collect(),
        tools: BuiltinTool::ALL.iter().map(|tool| tool.as_str()).collect(),
    };
    Ok(ResourceResponse::ok(&view).into_response())
}

/// Reads version, capabilities and limits of this deployment.
#[utoipa::path(
    operation_id = "read_runtime_system_meta",
    tag = "executions",
    params(VisibleFromQuery),
    responses((status = 200, description = "Version, capabilities and limits", body = RuntimeMeta), ReadRefusals)
)]
#[get("/v1/runtime/system-meta")]
pub(crate) async fn read_runtime_system_meta(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    visible_from: Query<VisibleFromQuery>,
) -> Result<HttpResponse, ApiError> {
    let settings = api
        .services
        .executions
        .installation_run_settings(&caller, Operation::ReadSystemMeta, visible_from.id())
        .await?;
    let view = RuntimeMeta {
        version: env!("CARGO_PKG_VERSION"),
        auth_mode: api.mode.as_str(),
        capabilities: RuntimeCapabilities {
            dispatch: settings.dispatch.as_str(),
            async_execution: settings.dispatch.has_workers(),
            streaming: true,
            mcp_protocol_versions: crate::mcp::REVISIONS.iter().map(|revision| revision.as_str()).collect(),
        },
        limits: RuntimeLimits {
            sync_wait_seconds: settings.sync_wait.as_secs(),
            execution_deadline_seconds: settings.execution_deadline.as_secs(),
            review_deadline_seconds: settings.review_deadline.as_secs(),
            queued_runs: settings.queue_cap,
            request_body_bytes: DEFAULT_BODY_LIMIT,
        },
    };
    Ok(ResourceResponse::ok(&view).into_response())
}

/// Lists your tools in a workspace: the built-in tools, and the workloads with a form that you may run.
#[utoipa::path(
    operation_id = "read_runtime_mcp_manifest",
    tag = "executions",
    params(VisibleFromQuery, PageParams),
    responses((status = 200, description = "A page of tools", body = McpManifest), ReadRefusals)
)]
#[get("/v1/runtime/mcp-manifest")]
pub(crate) async fn read_runtime_mcp_manifest(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<VisibleFromQuery>,
) -> Result<HttpResponse, ApiError> {
    let page = tool_page(&api, &caller, Some(list.filter.id()), list.paging()).await?;
    let Page { rows: tools, total, next } = page.map(ManifestTool::of);
    Ok(list.respond_with(&McpManifest { tools, truncated: next.is_some() }, total, next))
}
