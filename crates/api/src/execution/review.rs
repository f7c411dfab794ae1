//! Reviewing what runs answered.

use super::{ExecutionView, PENDING, StoredOutput};
use crate::{
    answer::Answer,
    caller::Identified,
    compose::Api,
    document::{KeyParams, ReadRefusals, WriteRefusals},
    error::{ApiError, FieldProblem, Fields},
    http::{body::Body, idempotency::Keyed, path::PathId},
};
use actix_web::{HttpResponse, get, http::StatusCode, post, web};
use fairway_domain::{
    execution::{
        Execution, Status,
        review::{AwaitingAnswer, MAX_NOTE, REJECTED, Verdict},
    },
    id::ExecutionId,
    text::is_prose,
};
use fairway_operations::execution::ReadExecution;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A person's verdict on the answer of a run.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReviewRequest {
    /// `approved`: the run has completed with its answer. `rejected`: it is denied, and nobody ever sees the answer.
    outcome: String,
    /// In more words, at most 2000 characters. Kept with the evidence, for operators.
    note: Option<String>,
}

/// The status that is asked for, where those that wait for a review are.
pub(super) fn of_status(status: Option<Status>, review: Option<&str>) -> Result<Option<Status>, FieldProblem> {
    match (review, status) {
        (None, status) => Ok(status),
        (Some(PENDING), None | Some(Status::AwaitingReview)) => Ok(Some(Status::AwaitingReview)),
        (Some(PENDING), Some(_)) => {
            Err(FieldProblem::new("review", "invalid", "a run whose review is pending is `awaiting_review`"))
        }
        (Some(_), _) => Err(FieldProblem::invalid("review")),
    }
}

/// What a run that was denied is answered with: by its policy, or by a person.
pub(super) fn denied(execution: &Execution) -> ApiError {
    let error = match &execution.error {
        Some(error) if error.code == REJECTED => {
            ApiError::new(StatusCode::FORBIDDEN, "review_rejected", "a person looked at the answer and refused it")
        }
        Some(_) | None => ApiError::new(StatusCode::FORBIDDEN, "policy_denied", "the policy does not allow this run"),
    };
    error.with("reason_code", execution.reason_code.clone())
}

/// Gives a verdict on the answer of a run that waits for one, which ends the run.
#[utoipa::path(
    operation_id = "review_execution",
    tag = "executions",
    params(("execution_id" = uuid::Uuid, Path, description = "The run, which may not be your own"), KeyParams),
    request_body = ReviewRequest,
    responses((status = 200, description = "The run, ended", body = ExecutionView), WriteRefusals)
)]
#[post("/v1/executions/{execution_id}/review")]
pub(crate) async fn review_execution(
    api: web::Data<Api>,
    caller: Identified,
    execution: PathId<ExecutionId>,
    keyed: Keyed,
    body: Body<ReviewRequest>,
) -> Result<HttpResponse, ApiError> {
    let key = keyed.of_caller(&caller.actor, || body.digest());
    let ReviewRequest { outcome, note } = body.into_inner();
    let mut fields = Fields::default();
    let verdict = fields.read(Verdict::parse(&outcome).ok_or_else(|| FieldProblem::invalid("outcome")));
    if !note.as_ref().is_none_or(|note| is_prose(note, MAX_NOTE)) {
        let rule = "a note has at most 2000 characters, and none but line breaks and tabs that do not show";
        fields.note([FieldProblem::new("note", "invalid_text", rule)]);
    }
    let verdict = fields.whole(|| verdict)?;
    let done = api.services.review_execution(&caller, *execution, (verdict, note.as_deref()), key.as_ref()).await?;
    let (ReadExecution { execution, steps }, replayed) = done.apart();
    Ok(Answer::once(&replayed, &ExecutionView::of(&execution, steps.as_deref())?, StatusCode::OK)?.send())
}

/// The answer of a run that waits for a person.
#[derive(Serialize, ToSchema)]
#[schema(as = AwaitingReview)]
pub(crate) struct AwaitingReviewView {
    /// The run.
    execution_id: uuid::Uuid,
    /// Its answer, as its submitter sees it once it is approved.
    output: Value,
    /// What providers said of their answers, by step.
    metadata: Value,
    /// Since when it waits.
    #[schema(format = DateTime)]
    asked_at: String,
    /// When the run is cancelled unless somebody gave a verdict.
    #[schema(format = DateTime)]
    lapses_at: String,
}

/// What whoever may give a verdict on the answer of a run looks at: the answer, while the run waits.
#[utoipa::path(
    operation_id = "read_execution_review",
    tag = "executions",
    params(("execution_id" = uuid::Uuid, Path, description = "The run, which may not be your own")),
    responses((status = 200, description = "The answer that waits", body = AwaitingReviewView), ReadRefusals)
)]
#[get("/v1/executions/{execution_id}/review")]
pub(crate) async fn read_execution_review(
    api: web::Data<Api>,
    caller: Identified,
    execution: PathId<ExecutionId>,
) -> Result<HttpResponse, ApiError> {
    let AwaitingAnswer { kept, asked_at, lapses_at } = api.services.awaiting_review(&caller, *execution).await?;
    let stored = serde_json::from_str(&kept).map_err(|error| ApiError::internal().caused_by(&error))?;
    let StoredOutput { output, metadata } = stored;
    let (asked_at, lapses_at) = (asked_at.to_string(), lapses_at.to_string());
    let view = AwaitingReviewView { execution_id: execution.uuid(), output, metadata, asked_at, lapses_at };
    Ok(Answer::ok(&view).send())
}
