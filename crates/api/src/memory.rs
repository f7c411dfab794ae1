//! Chat memory: what is remembered of a conversation, for whoever had it, and its end.

use crate::{
    answer::Answer,
    caller::Visitor,
    compose::Api,
    document::{DeleteRefusals, ErrorBody, ReadRefusals, TokenParams},
    error::{ApiError, FieldProblem},
    http::{
        path::{Path, PathId},
        query::Query,
        request_context::request_id,
    },
};
use actix_web::{HttpResponse, delete, get, web};
use fairway_domain::{
    access::{ActorRef, Caller},
    id::WorkloadId,
    memory::{KeptTurn, SessionId},
};
use fairway_operations::share_link::{Arrival, Visit};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// What is remembered of a conversation.
#[derive(Serialize, ToSchema)]
#[schema(as = SessionMemory)]
pub(crate) struct MemoryView {
    workload_id: Uuid,
    session_id: String,
    /// The turns, the oldest first; none where nothing is remembered.
    turns: Vec<TurnView>,
}

/// One turn of a conversation.
#[derive(Serialize, ToSchema)]
#[schema(as = MemoryTurn)]
struct TurnView {
    /// The run that it was.
    execution_id: Uuid,
    /// What was asked, as it is remembered: personal data may be masked.
    message: String,
    /// What was answered.
    answer: String,
    #[schema(format = DateTime)]
    remembered_at: String,
    /// When it is forgotten.
    #[schema(format = DateTime)]
    expires_at: String,
}

impl TurnView {
    fn of(turn: KeptTurn) -> Self {
        Self {
            execution_id: turn.execution_id.uuid(),
            message: turn.said,
            answer: turn.answered,
            remembered_at: turn.remembered_at.to_string(),
            expires_at: turn.expires_at.to_string(),
        }
    }
}

/// Whose conversation to erase.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EraseQuery {
    /// Whose, such as `user:ada`; needs `execution.kill`. Left out, your own.
    owner: Option<String>,
}

/// What is remembered of your own conversation with a workload.
#[utoipa::path(
    operation_id = "read_session_memory",
    tag = "executions",
    params(
        ("workload_id" = Uuid, Path, description = "The workload"),
        ("session_id" = String, Path, description = "The conversation, as runs named it"),
        TokenParams,
    ),
    responses(
        (status = 200, description = "What is remembered", body = MemoryView),
        (status = 429, description = "You try too many share tokens, or ask too often about a public workload", body = ErrorBody),
        ReadRefusals,
    )
)]
#[get("/v1/workloads/{workload_id}/sessions/{session_id}/memory")]
pub(crate) async fn read_session_memory(
    api: web::Data<Api>,
    Visitor(arrival): Visitor,
    path: Path<(PathId<WorkloadId>, String)>,
) -> Result<HttpResponse, ApiError> {
    let (workload, session) = conversation(path)?;
    let (caller, visit) = comes(&api, arrival).await?;
    let turns = api.services.read_memory(&caller, &visit, (workload, session.clone())).await?;
    let view = MemoryView {
        workload_id: workload.uuid(),
        session_id: session.to_string(),
        turns: turns.into_iter().map(TurnView::of).collect(),
    };
    Ok(Answer::ok(&view).send())
}

/// Erases what is remembered of a conversation. Runs of it that are under way write nothing any more.
#[utoipa::path(
    operation_id = "erase_session_memory",
    tag = "executions",
    params(
        ("workload_id" = Uuid, Path, description = "The workload"),
        ("session_id" = String, Path, description = "The conversation, as runs named it"),
        EraseQuery,
        TokenParams,
    ),
    responses(
        (status = 204, description = "Nothing of it is remembered"),
        (status = 429, description = "You try too many share tokens, or ask too often about a public workload", body = ErrorBody),
        DeleteRefusals,
    )
)]
#[delete("/v1/workloads/{workload_id}/sessions/{session_id}/memory")]
pub(crate) async fn erase_session_memory(
    api: web::Data<Api>,
    Visitor(arrival): Visitor,
    path: Path<(PathId<WorkloadId>, String)>,
    query: Query<EraseQuery>,
) -> Result<HttpResponse, ApiError> {
    let named = conversation(path)?;
    let owner = query.owner.as_deref().map(ActorRef::parse).transpose();
    let owner = owner.map_err(|refusal| FieldProblem::new("owner", "invalid", refusal.to_string()))?;
    let (caller, visit) = comes(&api, arrival).await?;
    api.services.erase_memory(&caller, &visit, named, owner.as_ref()).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// The conversation that a run is part of.
pub(crate) fn session(named: Option<&str>) -> Result<Option<SessionId>, FieldProblem> {
    let read = named.map(SessionId::parse).transpose();
    read.map_err(|refusal| FieldProblem::new("session_id", "invalid_session_id", refusal.to_string()))
}

/// What is no name of a session names none.
fn conversation(path: Path<(PathId<WorkloadId>, String)>) -> Result<(WorkloadId, SessionId), ApiError> {
    let (workload, session) = path.into_inner();
    Ok((*workload, SessionId::parse(&session).map_err(|_| ApiError::not_found())?))
}

async fn comes(api: &Api, arrival: Arrival) -> Result<(Caller, Visit), ApiError> {
    let visit = api.services.receive(arrival).await?;
    let caller = api.services.identify(api.mode, &visit.claims, request_id()).await?;
    Ok((caller, visit))
}
