//! Calling the tools that are always there.

mod proxy;

pub(crate) use proxy::*;

use crate::{
    caller::Claimed,
    compose::Api,
    document::{ErrorBody, KeyParams, WriteRefusals},
    error::ApiError,
    evidence,
    execution::{
        behalf::{self, Said},
        tool::of_run,
    },
    http::{
        body::{Body, present},
        client_address::client_of,
        idempotency::{IDEMPOTENCY_REPLAYED, Keyed},
        request_context::request_id,
    },
};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode, post, web};
use fairway_domain::{
    access::ActorRef,
    id::RequestId,
    idempotency::RequestKey,
    slug::Slug,
    throttle::ClientAddress,
    tool::{BuiltIn, ToolCall},
};
use fairway_operations::{
    Failure,
    access::Claims,
    execution::{Answer as Run, Asks, ExecuteRequest, Patience},
    knowledge::{KnowledgeQuery, Retrieval},
    tool,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

/// A tool to call.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallOfTool {
    /// What the tool's schema asks for; the manifest has it.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Map<String, Value>>,
    /// `on_behalf_of`, from a service whose word is taken: the run of `execute_flow` is that of `actor_ref`. Nobody else may
    /// send this and the three fields below.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = String, required = false)]
    execution_mode: Option<Value>,
    /// Who the run is for: `user:<name>` or `service:<name>`, bound to the workload.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = String, required = false)]
    actor_ref: Option<Value>,
    /// `user` or `service`: what `actor_ref` is.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = String, required = false)]
    actor_type: Option<Value>,
    /// `local`: how the server tells who is who.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = String, required = false)]
    actor_auth_mode: Option<Value>,
}

/// What a tool gave.
#[derive(Serialize, ToSchema)]
pub(crate) struct ToolResult {
    /// `success`; `queued` for a run that goes on; `failed` for a run that ended otherwise.
    pub(crate) status: &'static str,
    /// What the route gives that the tool stands for: a run, pieces of documents, or evidence.
    #[schema(value_type = Object)]
    result: Value,
}

impl ToolResult {
    pub(crate) fn new(status: &'static str, view: &impl Serialize) -> Result<Self, ApiError> {
        let result = serde_json::to_value(view).map_err(|error| ApiError::internal().caused_by(&error))?;
        Ok(Self { status, result })
    }
}

/// What was found in a knowledge base.
#[derive(Serialize)]
struct Found {
    knowledge_base_asset_id: Uuid,
    contract_id: Option<String>,
    /// Whether an answer that is made of this must cite it.
    citation_required: bool,
    index_revision: i64,
    strategy: &'static str,
    /// Whether pieces that might fit were not ranked: too many hold the query's words, or there are more than a search by
    /// vectors compares.
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

impl Found {
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
            capped: retrieval.capped,
            retrieved_at: retrieval.retrieved_at.to_string(),
            chunks: chunks.collect(),
        }
    }
}

/// Who calls a tool, and how.
pub(crate) struct Call<'c> {
    pub(crate) api: &'c Api,
    pub(crate) claims: &'c Claims,
    pub(crate) request_id: RequestId,
    pub(crate) address: ClientAddress,
    pub(crate) key: Option<&'c RequestKey>,
    pub(crate) on_behalf_of: Option<ActorRef>,
}

/// Whether an earlier request with the same key has had this effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    Now,
    Earlier,
}

impl Call<'_> {
    /// Does what a tool is called for.
    pub(crate) async fn answer(self, asked: ToolCall) -> Result<(ToolResult, Effect), ApiError> {
        let Self { api, claims, request_id, .. } = self;
        match asked {
            ToolCall::Workload { workload, environment, inputs } => {
                told(self.run(workload, environment, Asks::Form(inputs)).await, ARGUMENTS)
            }
            ToolCall::ExecuteFlow { workload, environment, inputs } => {
                let inputs_at = format!("{ARGUMENTS}.{INPUTS}");
                told(self.run(workload, environment, Asks::Inputs(inputs)).await, &inputs_at)
            }
            ToolCall::QueryKnowledgeBase { base, query, top_k, workspace } => {
                let caller = api.services.identify(api.mode, claims, request_id).await?;
                let asked = KnowledgeQuery { base, query, top_k, workspace };
                let found = api.services.query_knowledge(&caller, &asked).await?;
                Ok((ToolResult::new("success", &Found::of(found))?, Effect::Now))
            }
            ToolCall::InspectEvidence { execution, form } => {
                let caller = api.services.identify(api.mode, claims, request_id).await?;
                let record = api.services.inspect_evidence(&caller, execution).await?;
                Ok((ToolResult::new("success", &evidence::view(&record, form)?)?, Effect::Now))
            }
        }
    }

    async fn run(self, slug: Slug, environment: Slug, asks: Asks) -> Result<Run, Failure> {
        let Self { api, claims, request_id, address, key, on_behalf_of } = self;
        let wanted = ExecuteRequest {
            slug,
            environment,
            asks,
            lane: None,
            on_behalf_of,
            pass: None,
            address: Some(address),
            session: None,
            patience: Patience::End(None),
        };
        let run = api.services.execute_flow((api.mode, claims, request_id), &wanted, key).await?;
        if !run.replayed {
            api.metrics.execution(run.execution.status);
        }
        Ok(run)
    }
}

/// Where a call has what its tool takes: the start of every path that is told of it, whichever way it came.
pub(crate) const ARGUMENTS: &str = "arguments";
/// Where a run has what its form asks for.
const INPUTS: &str = "inputs";

/// What a caller is told of a run. What is wrong with its inputs has the places that they have in the call.
fn told(run: Result<Run, Failure>, inputs_at: &str) -> Result<(ToolResult, Effect), ApiError> {
    match run {
        Ok(run) => Ok((of_run(&run)?, if run.replayed { Effect::Earlier } else { Effect::Now })),
        Err(Failure::Inputs(mut findings)) => {
            for finding in &mut findings {
                finding.path = finding.path.replacen(INPUTS, inputs_at, 1);
            }
            Err(Failure::Inputs(findings).into())
        }
        Err(failure) => Err(failure.into()),
    }
}

/// Calls a tool. `execute_flow` runs a workload as executing it does; `query_knowledge_base` searches a knowledge base by its
/// access contract; `inspect_evidence` reads what stands behind a run.
#[utoipa::path(
    operation_id = "call_tool",
    tag = "executions",
    params(
        ("tool" = String, Path, description = "`execute_flow`, `query_knowledge_base` or `inspect_evidence`"),
        KeyParams,
    ),
    request_body = CallOfTool,
    responses(
        (status = 200, description = "What the tool gave", body = ToolResult),
        (status = 429, description = "Too many runs wait, or the workload is public and you ask too often", body = ErrorBody),
        (status = 502, description = "What the tool answered cannot be read; it is not called again", body = ErrorBody),
        WriteRefusals,
    )
)]
#[post("/v1/runtime/tools/{tool}")]
pub(crate) async fn call_tool(
    request: HttpRequest,
    api: web::Data<Api>,
    Claimed(claims): Claimed,
    tool: web::Path<String>,
    keyed: Keyed,
    body: Body<CallOfTool>,
) -> Result<HttpResponse, ApiError> {
    let tool = BuiltIn::parse(&tool).ok_or_else(ApiError::not_found)?;
    let key = keyed.of_caller(&claims.actor, || body.digest());
    let CallOfTool { arguments, execution_mode, actor_ref, actor_type, actor_auth_mode } = body.into_inner();
    let said = Said { execution_mode, actor_ref, actor_type, actor_auth_mode };
    let on_behalf_of = behalf::subject(said, api.services.is_internal_client(&claims.actor), api.mode)?;
    if on_behalf_of.is_some() && tool != BuiltIn::ExecuteFlow {
        // It would be read with the service's own rights.
        let message = "whom you act for is said where workloads are run, and nowhere else";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden_field", message));
    }
    let asked = tool::read(tool, arguments.unwrap_or_default())?;
    let (request_id, address) = (request_id(), client_of(&request));
    let call = Call { api: &api, claims: &claims, request_id, address, key: key.as_ref(), on_behalf_of };
    let (view, effect) = call.answer(asked).await?;
    let mut response = HttpResponse::Ok();
    if effect == Effect::Earlier {
        response.insert_header((IDEMPOTENCY_REPLAYED, "true"));
    }
    Ok(response.json(view))
}
