//! Routes of chat memory: reading and erasing the turns of a conversation.

use crate::{
    caller::RuntimeClient,
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{
        path::{Path, PathId},
        query::Query,
        request_id_log_and_metrics::request_id_or_new,
    },
    openapi::{DeleteRefusals, ErrorBody, ReadRefusals, ShareTokenParams},
    response::ResourceResponse,
};
use actix_web::{HttpResponse, delete, get, web};
use fairway_domain::{
    access::{ActorRef, Caller},
    id::WorkloadId,
    memory::{ConversationSessionId, StoredTurn},
};
use fairway_operations::share_link::{RuntimeCaller, RuntimeRequest};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// The stored memory of a conversation.
#[derive(Serialize, ToSchema)]
#[schema(as = SessionMemory)]
pub(crate) struct MemoryView {
    workload_id: Uuid,
    session_id: String,
    /// The turns, oldest first; empty if there are none.
    turns: Vec<TurnView>,
}

/// A turn of a conversation.
#[derive(Serialize, ToSchema)]
#[schema(as = MemoryTurn)]
struct TurnView {
    /// The run that stored the turn.
    execution_id: Uuid,
    /// The user's message; personal data may be masked.
    message: String,
    /// The answer of the run.
    answer: String,
    #[schema(format = DateTime)]
    remembered_at: String,
    /// Time at which the turn is deleted.
    #[schema(format = DateTime)]
    expires_at: String,
}

impl TurnView {
    fn of(turn: StoredTurn) -> Self {
        Self {
            execution_id: turn.execution_id.uuid(),
            message: turn.question,
            answer: turn.response,
            remembered_at: turn.stored_at.to_string(),
            expires_at: turn.expires_at.to_string(),
        }
    }
}

/// The owner of the conversation to erase.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EraseQuery {
    /// The owner, such as `user:ada`; requires `execution.kill`. Default: yourself.
    owner: Option<String>,
}

/// Reads the memory of your conversation with a workload.
#[utoipa::path(
    operation_id = "read_session_memory",
    tag = "executions",
    params(
        ("workload_id" = Uuid, Path, description = "The workload"),
        ("session_id" = String, Path, description = "The `session_id` of the runs"),
        ShareTokenParams,
    ),
    responses(
        (status = 200, description = "The memory", body = MemoryView),
        (status = 429, description = "Too many attempts with share tokens, or the rate limit of a public workload is exceeded", body = ErrorBody),
        ReadRefusals,
    )
)]
#[get("/v1/workloads/{workload_id}/sessions/{session_id}/memory")]
pub(crate) async fn read_session_memory(
    api: web::Data<Api>,
    RuntimeClient(runtime_request): RuntimeClient,
    path: Path<(PathId<WorkloadId>, String)>,
) -> Result<HttpResponse, ApiError> {
    let (workload, session) = parse_conversation(path)?;
    let (caller, runtime_caller) = identify_runtime_caller(&api, runtime_request).await?;
    let turns = api.services.memories.read_memory(&caller, &runtime_caller, workload, session.clone()).await?;
    let view = MemoryView {
        workload_id: workload.uuid(),
        session_id: session.to_string(),
        turns: turns.into_iter().map(TurnView::of).collect(),
    };
    Ok(ResourceResponse::ok(&view).into_response())
}

/// Erases the memory of a conversation. Active runs of the conversation store no further turns.
#[utoipa::path(
    operation_id = "erase_session_memory",
    tag = "executions",
    params(
        ("workload_id" = Uuid, Path, description = "The workload"),
        ("session_id" = String, Path, description = "The `session_id` of the runs"),
        EraseQuery,
        ShareTokenParams,
    ),
    responses(
        (status = 204, description = "The memory is erased"),
        (status = 429, description = "Too many attempts with share tokens, or the rate limit of a public workload is exceeded", body = ErrorBody),
        DeleteRefusals,
    )
)]
#[delete("/v1/workloads/{workload_id}/sessions/{session_id}/memory")]
pub(crate) async fn erase_session_memory(
    api: web::Data<Api>,
    RuntimeClient(runtime_request): RuntimeClient,
    path: Path<(PathId<WorkloadId>, String)>,
    query: Query<EraseQuery>,
) -> Result<HttpResponse, ApiError> {
    let (workload, session) = parse_conversation(path)?;
    let owner = query.owner.as_deref().map(ActorRef::parse).transpose();
    let owner = owner.map_err(|refusal| FieldProblem::new("owner", "invalid", refusal.to_string()))?;
    let (caller, runtime_caller) = identify_runtime_caller(&api, runtime_request).await?;
    api.services.memories.erase_memory(&caller, &runtime_caller, workload, session, owner.as_ref()).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Parses the name of a run's conversation.
pub(crate) fn parse_session(text: Option<&str>) -> Result<Option<ConversationSessionId>, FieldProblem> {
    let session = text.map(ConversationSessionId::parse).transpose();
    session.map_err(|refusal| FieldProblem::new("session_id", "invalid_session_id", refusal.to_string()))
}

/// The workload and session of a path; a malformed session is a 404.
fn parse_conversation(
    path: Path<(PathId<WorkloadId>, String)>,
) -> Result<(WorkloadId, ConversationSessionId), ApiError> {
    let (workload, session) = path.into_inner();
    Ok((*workload, ConversationSessionId::parse(&session).map_err(|_| ApiError::not_found())?))
}

async fn identify_runtime_caller(
    api: &Api,
    runtime_request: RuntimeRequest,
) -> Result<(Caller, RuntimeCaller), ApiError> {
    let runtime_caller = api.services.share_links.resolve_runtime_caller(runtime_request).await?;
    let caller = api.services.identities.resolve_caller(api.mode, &runtime_caller.claims, request_id_or_new()).await?;
    Ok((caller, runtime_caller))
}
