//! Route that cancels runs.

use super::{ExecutionView, identify_runtime_caller};
use crate::{
    caller::{RuntimeClient, result_token_hash},
    compose::Api,
    error::ApiError,
    http::{body::Body, idempotency::IdempotencyHeader, path::PathId},
    openapi::{ErrorBody, IdempotencyKeyParams, ShareTokenParams, WriteRefusals},
    response::ResourceResponse,
};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode, post, web};
use fairway_domain::id::ExecutionId;
use serde::Deserialize;
use utoipa::ToSchema;
use validator::Validate;

/// Empty body of a request to cancel a run.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelRequest {}

/// Cancels a run: a queued run immediately, an active run within a second.
#[utoipa::path(
    operation_id = "cancel_execution",
    tag = "executions",
    params(
        ("execution_id" = Uuid, Path, description = "The run"),
        ShareTokenParams,
        ("X-Result-Token" = Option<String>, Header, description = "The result token of a run of `anonymous`"),
        IdempotencyKeyParams,
    ),
    request_body = CancelRequest,
    responses(
        (status = 200, description = "The cancelled run", body = ExecutionView),
        (status = 429, description = "Too many attempts with share tokens, or the rate limit of a public workload is exceeded", body = ErrorBody),
        WriteRefusals,
    )
)]
#[post("/v1/executions/{execution_id}/cancel")]
pub(crate) async fn cancel_execution(
    request: HttpRequest,
    api: web::Data<Api>,
    RuntimeClient(runtime_request): RuntimeClient,
    execution: PathId<ExecutionId>,
    idempotency: IdempotencyHeader,
    body: Body<CancelRequest>,
) -> Result<HttpResponse, ApiError> {
    let token = result_token_hash(request.headers())?;
    let caller = identify_runtime_caller(&api, runtime_request, *execution, token.as_ref()).await?;
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let outcome =
        api.services.cancellations.cancel_execution(&caller, *execution, token.as_ref(), key.as_ref()).await?;
    let (detail, replayed) = outcome.into_parts();
    Ok(ResourceResponse::idempotent(&replayed, &ExecutionView::of_detail(&detail)?, StatusCode::OK)?.into_response())
}
