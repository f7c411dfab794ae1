//! Route that resolves runs with an unknown outcome.

use super::ExecutionView;
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{body::Body, idempotency::IdempotencyHeader, path::PathId},
    note_field::parse_note,
    openapi::{IdempotencyKeyParams, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, http::StatusCode, post, web};
use fairway_domain::{execution::resolve_unknown::Resolution, id::ExecutionId, note::MAX_NOTE_CHARS};
use serde::Deserialize;
use utoipa::ToSchema;
use validator::Validate;

/// The outcome that an operator determined.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleRequest {
    /// `success`: the run completes without a result. `failure`: the run fails.
    #[validate(custom(function = outcome_rule))]
    outcome: String,
    /// How the outcome was determined, in at most 2000 characters. Stored with the evidence, for operators.
    #[schema(max_length = 2000)]
    #[validate(length(max = limit(MAX_NOTE_CHARS)), custom(function = value_rules::note))]
    note: Option<String>,
}

fn parse_outcome(text: &str) -> Result<Resolution, FieldProblem> {
    Resolution::parse(text).ok_or_else(|| FieldProblem::invalid("outcome"))
}

fn outcome_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_outcome(text))
}

/// Resolves a run with the status `unknown`. The first resolution wins.
#[utoipa::path(
    operation_id = "settle_execution",
    tag = "executions",
    params(("execution_id" = uuid::Uuid, Path, description = "The run"), IdempotencyKeyParams),
    request_body = SettleRequest,
    responses((status = 200, description = "The resolved run", body = ExecutionView), WriteRefusals)
)]
#[post("/v1/executions/{execution_id}/settle")]
pub(crate) async fn settle_execution(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    execution: PathId<ExecutionId>,
    idempotency: IdempotencyHeader,
    body: Body<SettleRequest>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let SettleRequest { outcome, note } = body.into_inner();
    let mut fields = FieldErrors::default();
    let resolution = fields.check(parse_outcome(&outcome));
    let note = fields.check(parse_note("note", note.as_deref()));
    let (resolution, note) = fields.finish(|| resolution.zip(note))?;
    let outcome = api
        .services
        .unknown_outcomes
        .resolve_execution(&caller, *execution, resolution, note.as_ref(), key.as_ref())
        .await?;
    let (detail, replayed) = outcome.into_parts();
    Ok(ResourceResponse::idempotent(&replayed, &ExecutionView::of_detail(&detail)?, StatusCode::OK)?.into_response())
}
