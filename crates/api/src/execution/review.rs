//! Routes of human reviews of results.

use super::{ExecutionView, REVIEW_PENDING, StoredOutput};
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{body::Body, idempotency::IdempotencyHeader, path::PathId},
    note_field::parse_note,
    openapi::{IdempotencyKeyParams, ReadRefusals, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, get, http::StatusCode, post, web};
use fairway_domain::{
    execution::{
        Execution, Status,
        review::{AnswerUnderReview, AnswerVerdict, REJECTED_CODE},
    },
    id::ExecutionId,
    note::MAX_NOTE_CHARS,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use validator::Validate;

/// A reviewer's verdict on the result of a run.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReviewRequest {
    /// `approved`: the run completes with its result. `rejected`: the run is denied, and the result is never shown.
    #[validate(custom(function = outcome_rule))]
    outcome: String,
    /// Explanation of at most 2000 characters. Stored with the evidence, for operators.
    #[schema(max_length = 2000)]
    #[validate(length(max = limit(MAX_NOTE_CHARS)), custom(function = value_rules::note))]
    note: Option<String>,
}

fn parse_outcome(text: &str) -> Result<AnswerVerdict, FieldProblem> {
    AnswerVerdict::parse(text).ok_or_else(|| FieldProblem::invalid("outcome"))
}

fn outcome_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_outcome(text))
}

/// Combines the filters `status` and `review` into one status.
pub(super) fn status_filter(status: Option<Status>, review: Option<&str>) -> Result<Option<Status>, FieldProblem> {
    match (review, status) {
        (None, status) => Ok(status),
        (Some(REVIEW_PENDING), None | Some(Status::AwaitingReview)) => Ok(Some(Status::AwaitingReview)),
        (Some(REVIEW_PENDING), Some(_)) => {
            Err(FieldProblem::new("review", "invalid", "a run with a pending review has the status `awaiting_review`"))
        }
        (Some(_), _) => Err(FieldProblem::invalid("review")),
    }
}

/// The error of a run that its policy or a reviewer denied.
pub(super) fn denied_error(execution: &Execution) -> ApiError {
    let error = match &execution.error {
        Some(error) if error.code == REJECTED_CODE => {
            ApiError::new(StatusCode::FORBIDDEN, "review_rejected", "a reviewer rejected the result")
        }
        Some(_) | None => ApiError::new(StatusCode::FORBIDDEN, "policy_denied", "the policy does not allow this run"),
    };
    error.with_detail("reason_code", execution.reason_code.clone())
}

/// Records a verdict on the result of a run that awaits a review, and ends the run.
#[utoipa::path(
    operation_id = "review_execution",
    tag = "executions",
    params(("execution_id" = uuid::Uuid, Path, description = "The run, which must not be your own"), IdempotencyKeyParams),
    request_body = ReviewRequest,
    responses((status = 200, description = "The ended run", body = ExecutionView), WriteRefusals)
)]
#[post("/v1/executions/{execution_id}/review")]
pub(crate) async fn review_execution(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    execution: PathId<ExecutionId>,
    idempotency: IdempotencyHeader,
    body: Body<ReviewRequest>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let ReviewRequest { outcome, note } = body.into_inner();
    let mut fields = FieldErrors::default();
    let verdict = fields.check(parse_outcome(&outcome));
    let note = fields.check(parse_note("note", note.as_deref()));
    let (verdict, note) = fields.finish(|| verdict.zip(note))?;
    let outcome =
        api.services.reviews.review_execution(&caller, *execution, verdict, note.as_ref(), key.as_ref()).await?;
    let (detail, replayed) = outcome.into_parts();
    Ok(ResourceResponse::idempotent(&replayed, &ExecutionView::of_detail(&detail)?, StatusCode::OK)?.into_response())
}

/// The result of a run that awaits a review.
#[derive(Serialize, ToSchema)]
#[schema(as = AwaitingReview)]
pub(crate) struct AwaitingReviewView {
    /// Identifier of the run that awaits the review.
    execution_id: uuid::Uuid,
    /// The result in the form that the submitter sees after an approval.
    output: Value,
    /// Metadata that the providers returned, by step.
    metadata: Value,
    /// Time at which the wait for a review started.
    #[schema(format = DateTime)]
    asked_at: String,
    /// Time at which the run is cancelled unless a verdict exists.
    #[schema(format = DateTime)]
    lapses_at: String,
}

/// Reads the result of a run that awaits a review, for its reviewers.
#[utoipa::path(
    operation_id = "read_execution_review",
    tag = "executions",
    params(("execution_id" = uuid::Uuid, Path, description = "The run, which must not be your own")),
    responses((status = 200, description = "The result to review", body = AwaitingReviewView), ReadRefusals)
)]
#[get("/v1/executions/{execution_id}/review")]
pub(crate) async fn read_execution_review(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    execution: PathId<ExecutionId>,
) -> Result<HttpResponse, ApiError> {
    let AnswerUnderReview { stored_answer, requested_at, expires_at } =
        api.services.reviews.read_answer_under_review(&caller, *execution).await?;
    let stored = serde_json::from_str(&stored_answer).map_err(|error| ApiError::internal().log_cause(&error))?;
    let StoredOutput { output, metadata } = stored;
    let (asked_at, lapses_at) = (requested_at.to_string(), expires_at.to_string());
    let view = AwaitingReviewView { execution_id: execution.uuid(), output, metadata, asked_at, lapses_at };
    Ok(ResourceResponse::ok(&view).into_response())
}
