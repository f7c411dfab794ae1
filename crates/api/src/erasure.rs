//! Routes of erasures: a person's texts are erased after another person's approval.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{body::Body, etag::IfMatch, idempotency::IdempotencyHeader, paging::ListRequest, path::PathId},
    openapi::{IdempotencyKeyParams, IfMatchParams, PageParams, ReadRefusals, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, get, http::StatusCode, post, web};
use fairway_domain::{
    access::ActorRef,
    erasure::{ErasureRefusal, ErasureStatus, SubjectErasure},
    id::ErasureId,
};
use fairway_operations::MaybeReplayed;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::Validate;

/// The erasure of the texts of one actor.
#[derive(Serialize, ToSchema)]
#[schema(as = Erasure)]
pub(crate) struct ErasureView {
    erasure_id: Uuid,
    /// The actor whose texts are erased.
    subject: String,
    /// `requested`, `approved`, `refused` or `completed`. An approved erasure is in progress.
    status: &'static str,
    requested_by: String,
    #[schema(format = DateTime)]
    requested_at: String,
    /// The actor that approved or refused the erasure; null until then.
    decided_by: Option<String>,
    #[schema(format = DateTime)]
    decided_at: Option<String>,
    #[schema(format = DateTime)]
    completed_at: Option<String>,
    /// Runs whose inputs, results and payloads are erased so far.
    erased_runs: u64,
    /// Conversation turns that are erased so far.
    erased_turns: u64,
    /// Documents of knowledge bases whose texts are erased so far.
    erased_documents: u64,
}

impl ErasureView {
    fn of(erasure: &SubjectErasure) -> Self {
        Self {
            erasure_id: erasure.erasure_id.uuid(),
            subject: erasure.subject.to_string(),
            status: erasure.status.as_str(),
            requested_by: erasure.requested_by.to_string(),
            requested_at: erasure.requested_at.to_string(),
            decided_by: erasure.decided_by.as_ref().map(ToString::to_string),
            decided_at: erasure.decided_at.map(|at| at.to_string()),
            completed_at: erasure.completed_at.map(|at| at.to_string()),
            erased_runs: erasure.counts.runs,
            erased_turns: erasure.counts.turns,
            erased_documents: erasure.counts.documents,
        }
    }
}

/// Filters of the list of erasures.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ErasureQuery {
    /// Only erasures in this status: `requested`, `approved`, `refused` or `completed`.
    status: Option<String>,
}

/// A request to erase the texts of one actor.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewErasure {
    /// The actor whose texts are erased: `user:<name>`, `service:<name>` or `share_link:<id>`.
    #[validate(length(min = 1, max = limit(SubjectErasure::MAX_SUBJECT_CHARS)), custom(function = subject_rule))]
    subject: String,
}

/// Empty body of a decision on an erasure.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErasureDecision {}

fn parse_subject(text: &str) -> Result<ActorRef, FieldProblem> {
    let problem = || FieldProblem::new("subject", "invalid", ErasureRefusal::Subject.to_string());
    ActorRef::parse(text).ok().filter(SubjectErasure::can_be_subject).ok_or_else(problem)
}

fn subject_rule(text: &str) -> RuleResult {
    value_rules::accept_unless(parse_subject(text).err())
}

fn parse_status(text: &str) -> Result<ErasureStatus, FieldProblem> {
    ErasureStatus::parse(text).ok_or_else(|| FieldProblem::invalid("status"))
}

fn respond(outcome: &MaybeReplayed<SubjectErasure>) -> Result<HttpResponse, ApiError> {
    let view = ErasureView::of(&outcome.value);
    Ok(ResourceResponse::idempotent(outcome, &view, StatusCode::OK)?.with_etag(outcome.value.revision).into_response())
}

/// Lists the erasures of the tenant, newest first.
#[utoipa::path(
    operation_id = "list_erasures",
    tag = "audit",
    params(ErasureQuery, PageParams),
    responses((status = 200, description = "A page of erasures", body = Vec<ErasureView>), ReadRefusals)
)]
#[get("/v1/erasures")]
pub(crate) async fn list_erasures(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<ErasureQuery>,
) -> Result<HttpResponse, ApiError> {
    let status = list.filter.status.as_deref().map(parse_status).transpose()?;
    let erasures = api.services.erasures.list_erasures(&caller, status, list.paging()).await?;
    Ok(list.respond(&erasures.map(|erasure| ErasureView::of(&erasure))))
}

/// Reads an erasure with its status and counts.
#[utoipa::path(
    operation_id = "read_erasure",
    tag = "audit",
    params(("erasure_id" = Uuid, Path, description = "The erasure")),
    responses((status = 200, description = "The erasure", body = ErasureView), ReadRefusals)
)]
#[get("/v1/erasures/{erasure_id}")]
pub(crate) async fn read_erasure(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    id: PathId<ErasureId>,
) -> Result<HttpResponse, ApiError> {
    let erasure = api.services.erasures.read_erasure(&caller, *id).await?;
    Ok(ResourceResponse::ok(&ErasureView::of(&erasure)).with_etag(erasure.revision).into_response())
}

/// Requests the erasure of the texts of one actor.
///
/// These texts are inputs, results and payloads of the actor's runs, the actor's conversation turns, and the documents
/// that the actor added. Another person has to approve the erasure. Digests, facts and the governance chain stay.
#[utoipa::path(
    operation_id = "request_erasure",
    tag = "audit",
    params(IdempotencyKeyParams),
    request_body = NewErasure,
    responses((status = 201, description = "The requested erasure", body = ErasureView), WriteRefusals)
)]
#[post("/v1/erasures")]
pub(crate) async fn request_erasure(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    idempotency: IdempotencyHeader,
    body: Body<NewErasure>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let subject = parse_subject(&body.subject)?;
    let outcome = api.services.erasures.request_erasure(&caller, subject, key.as_ref()).await?;
    let view = ErasureView::of(&outcome.value);
    let location = format!("/v1/erasures/{}", view.erasure_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.with_etag(outcome.value.revision).into_response())
}

/// Approves an erasure, which a background task then performs. The requester may not approve it.
///
/// The erasure covers runs and documents from before the approval. Runs in progress are erased after their end.
#[utoipa::path(
    operation_id = "approve_erasure",
    tag = "audit",
    params(("erasure_id" = Uuid, Path, description = "The erasure"), IdempotencyKeyParams, IfMatchParams),
    request_body = ErasureDecision,
    responses((status = 200, description = "The approved erasure", body = ErasureView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/erasures/{erasure_id}/approve")]
pub(crate) async fn approve_erasure(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    id: PathId<ErasureId>,
    idempotency: IdempotencyHeader,
    expected: IfMatch,
    body: Body<ErasureDecision>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    respond(&api.services.erasures.approve_erasure(&caller, *id, &expected, key.as_ref()).await?)
}

/// Refuses an erasure. The requester uses this route to withdraw the request.
#[utoipa::path(
    operation_id = "refuse_erasure",
    tag = "audit",
    params(("erasure_id" = Uuid, Path, description = "The erasure"), IdempotencyKeyParams, IfMatchParams),
    request_body = ErasureDecision,
    responses((status = 200, description = "The refused erasure", body = ErasureView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/erasures/{erasure_id}/refuse")]
pub(crate) async fn refuse_erasure(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    id: PathId<ErasureId>,
    idempotency: IdempotencyHeader,
    expected: IfMatch,
    body: Body<ErasureDecision>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    respond(&api.services.erasures.refuse_erasure(&caller, *id, &expected, key.as_ref()).await?)
}
