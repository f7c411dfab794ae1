//! The route that calls a built-in tool.

use crate::{
    caller::{UnverifiedClaims, check_actor_header},
    compose::Api,
    error::ApiError,
    evidence,
    execution::tool_result::to_tool_result,
    http::{
        body::{Body, deserialize_present},
        client_address::client_of,
        idempotency::{IDEMPOTENCY_REPLAYED, IdempotencyHeader},
        request_id_log_and_metrics::request_id_or_new,
    },
    openapi::{ErrorBody, IdempotencyKeyParams, WriteRefusals},
};
use actix_web::{HttpRequest, HttpResponse, post, web};
use fairway_domain::{
    access::{ActorRef, delegation, on_behalf_of_fields::OnBehalfOfFields},
    client_address::ClientAddress,
    id::RequestId,
    idempotency::RequestKey,
    offered_tool::{BuiltinTool, OfferedToolCall},
    slug::Slug,
};
use fairway_operations::{
    Failure,
    access::IdentityClaims,
    builtin_tool,
    execution::{ExecuteRequest, ExecuteResponse as Run, RunPayload, WaitMode},
    knowledge::{KnowledgeQuery, Retrieval},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// A call of a built-in tool.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(as = CallOfTool)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolCallBody {
    /// Arguments that match the tool's schema in the manifest.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Map<String, Value>>,
    /// Must be `on_behalf_of`: the run of `execute_flow` then belongs to `actor_ref`. Only trusted services may
    /// send this field and the three fields below.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(value_type = String, required = false)]
    execution_mode: Option<Value>,
    /// The actor of the run: `user:<name>` or `service:<name>`, bound to the workload.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(value_type = String, required = false)]
    actor_ref: Option<Value>,
    /// Kind of `actor_ref`: `user` or `service`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(value_type = String, required = false)]
    actor_type: Option<Value>,
    /// Authentication mode of the server: `local` or `oidc`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(value_type = String, required = false)]
    actor_auth_mode: Option<Value>,
}

/// The result of a tool call.
#[derive(Serialize, ToSchema)]
pub(crate) struct ToolResult {
    /// `success`, `queued` for a run that has not ended, or `failed` for a run that ended without success.
    pub(crate) status: &'static str,
    /// The response of the corresponding route: a run, document chunks, or evidence.
    #[schema(value_type = Object)]
    result: Value,
}

impl ToolResult {
    pub(crate) fn new(status: &'static str, view: &impl Serialize) -> Result<Self, ApiError> {
        let result = serde_json::to_value(view).map_err(|error| ApiError::internal().log_cause(&error))?;
        Ok(Self { status, result })
    }
}

/// The result of a knowledge base query.
#[derive(Serialize)]
struct KnowledgeResult {
    knowledge_base_asset_id: Uuid,
    contract_id: Option<String>,
    /// Whether an answer from these chunks must cite them.
    citation_required: bool,
    index_revision: i64,
    strategy: &'static str,
    /// Whether possible matches were not ranked: too many chunks contain the query's words, or vector search does not
    /// compare all chunks.
    capped: bool,
    retrieved_at: String,
    chunks: Vec<Chunk>,
}

#[derive(Serialize)]
struct Chunk {
    chunk_id: Uuid,
    document_id: String,
    title: Option<String>,
    index: u32,
    text: String,
    score: f64,
}

impl KnowledgeResult {
    fn of(retrieval: Retrieval) -> Self {
        let chunks = retrieval.chunks.into_iter().map(|chunk| Chunk {
            chunk_id: chunk.chunk_id.uuid(),
            document_id: chunk.document_id.as_str().to_owned(),
            title: chunk.title,
            index: chunk.index,
            text: chunk.text,
            score: chunk.score,
        });
        Self {
            knowledge_base_asset_id: retrieval.asset.uuid(),
            contract_id: retrieval.decision.contract_id,
            citation_required: retrieval.decision.citation_required,
            index_revision: retrieval.index_revision.get(),
            strategy: retrieval.strategy.as_str(),
            capped: retrieval.is_capped,
            retrieved_at: retrieval.retrieved_at.to_string(),
            chunks: chunks.collect(),
        }
    }
}

/// The request to which a tool call belongs: caller, idempotency key and delegation.
pub(crate) struct ToolCallContext<'c> {
    pub(crate) api: &'c Api,
    pub(crate) claims: &'c IdentityClaims,
    pub(crate) request_id: RequestId,
    pub(crate) address: ClientAddress,
    pub(crate) key: Option<&'c RequestKey>,
    pub(crate) on_behalf_of: Option<ActorRef>,
}

/// Whether the effect comes from this request, or from an earlier request with the same idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplayState {
    Fresh,
    Replayed,
}

impl ToolCallContext<'_> {
    pub(crate) async fn execute(self, call: OfferedToolCall) -> Result<(ToolResult, ReplayState), ApiError> {
        let Self { api, claims, request_id, .. } = self;
        match call {
            OfferedToolCall::Workload { workload, environment, inputs } => {
                finish_run(self.run(workload, environment, RunPayload::Form(inputs)).await, ARGUMENTS)
            }
            OfferedToolCall::ExecuteFlow { workload, environment, inputs } => {
                let inputs_at = format!("{ARGUMENTS}.{INPUTS}");
                finish_run(self.run(workload, environment, RunPayload::Inputs(inputs)).await, &inputs_at)
            }
            OfferedToolCall::QueryKnowledgeBase { knowledge_base: base, query, top_k, workspace } => {
                let caller = api.services.identities.resolve_caller(api.mode, claims, request_id).await?;
                let query = KnowledgeQuery { base, query, top_k, workspace };
                let retrieval = api.services.knowledge_bases.query_knowledge(&caller, &query).await?;
                Ok((ToolResult::new("success", &KnowledgeResult::of(retrieval))?, ReplayState::Fresh))
            }
            OfferedToolCall::InspectEvidence { execution, format: form } => {
                let caller = api.services.identities.resolve_caller(api.mode, claims, request_id).await?;
                let record = api.services.execution_reader.inspect_evidence(&caller, execution).await?;
                Ok((ToolResult::new("success", &evidence::to_view(&record, form)?)?, ReplayState::Fresh))
            }
        }
    }

    async fn run(self, slug: Slug, environment: Slug, payload: RunPayload) -> Result<Run, Failure> {
        let Self { api, claims, request_id, address, key, on_behalf_of } = self;
        let request = ExecuteRequest {
            slug,
            environment,
            payload,
            lane: None,
            on_behalf_of,
            link: None,
            address: Some(address),
            session: None,
            wait: WaitMode::End(None),
        };
        let run = api.services.executions.execute_flow(api.mode, claims, request_id, &request, key).await?;
        Ok(run)
    }
}

/// Name of the member with the arguments of a call. The paths of their errors start with this name.
pub(crate) const ARGUMENTS: &str = "arguments";
/// Name of the member with the inputs of a run.
const INPUTS: &str = "inputs";

/// Converts a run to a tool result. Error paths of its inputs are mapped to their paths in the call.
fn finish_run(run: Result<Run, Failure>, inputs_at: &str) -> Result<(ToolResult, ReplayState), ApiError> {
    match run {
        Ok(run) => Ok((to_tool_result(&run)?, if run.replayed { ReplayState::Replayed } else { ReplayState::Fresh })),
        Err(Failure::InvalidInputs(mut findings)) => {
            for finding in &mut findings {
                finding.path = finding.path.replacen(INPUTS, inputs_at, 1);
            }
            Err(Failure::InvalidInputs(findings).into())
        }
        Err(failure) => Err(failure.into()),
    }
}

/// Calls a built-in tool.
///
/// `execute_flow` executes a workload; `query_knowledge_base` searches a knowledge base under its access contract;
/// `inspect_evidence` reads the evidence of a run.
#[utoipa::path(
    operation_id = "call_tool",
    tag = "executions",
    params(
        ("tool" = String, Path, description = "`execute_flow`, `query_knowledge_base` or `inspect_evidence`"),
        IdempotencyKeyParams,
    ),
    request_body = ToolCallBody,
    responses(
        (status = 200, description = "The result of the tool", body = ToolResult),
        (status = 429, description = "The queue of runs is full, or the rate limit of a public workload is exceeded", body = ErrorBody),
        (status = 502, description = "The response of the tool is malformed; the server does not repeat the call", body = ErrorBody),
        WriteRefusals,
    )
)]
#[post("/v1/runtime/tools/{tool}")]
pub(crate) async fn call_tool(
    request: HttpRequest,
    api: web::Data<Api>,
    UnverifiedClaims(claims): UnverifiedClaims,
    tool: web::Path<String>,
    idempotency: IdempotencyHeader,
    body: Body<ToolCallBody>,
) -> Result<HttpResponse, ApiError> {
    let tool = BuiltinTool::parse(&tool).ok_or_else(ApiError::not_found)?;
    let key = idempotency.into_request_key(&claims.actor, || body.digest());
    let ToolCallBody { arguments, execution_mode, actor_ref, actor_type, actor_auth_mode } = body.into_inner();
    let delegation = OnBehalfOfFields { execution_mode, actor_ref, actor_type, actor_auth_mode };
    let on_behalf_of = api.services.executions.delegated_subject(api.mode, &claims, &delegation)?;
    check_actor_header(&request, on_behalf_of.as_ref())?;
    delegation::check_tool(tool, on_behalf_of.as_ref())?;
    let tool_call = builtin_tool::parse_tool_call(tool, arguments.unwrap_or_default())?;
    let (request_id, address) = (request_id_or_new(), client_of(&request));
    let call = ToolCallContext { api: &api, claims: &claims, request_id, address, key: key.as_ref(), on_behalf_of };
    let (view, effect) = call.execute(tool_call).await?;
    let mut response = HttpResponse::Ok();
    if effect == ReplayState::Replayed {
        response.insert_header((IDEMPOTENCY_REPLAYED, "true"));
    }
    Ok(response.json(view))
}
