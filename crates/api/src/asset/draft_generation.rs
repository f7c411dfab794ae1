//! Route that generates a draft of content from a description.

use super::VersionWarning;
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{
        body::Body,
        idempotency::{IdempotencyHeader, digest_in_workspace},
        query::Query,
    },
    openapi::{ErrorBody, IdempotencyKeyParams, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, http::StatusCode, post, web};
use fairway_domain::{
    generator::{Description, MAX_DESCRIPTION},
    id::WorkspaceId,
};
use fairway_operations::MaybeReplayed;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::Validate;

/// The workspace of a draft.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DraftQuery {
    /// Workspace of the draft. The caller needs the permission `asset.create` in it.
    workspace_id: Uuid,
}

/// A request to draft a prompt template.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct DraftRequest {
    /// The purpose of the prompt template, in at least four words.
    #[schema(max_length = 4000)]
    #[validate(length(max = limit(MAX_DESCRIPTION)), custom(function = description_rule))]
    description: String,
}

fn parse_description(text: &str) -> Result<Description, FieldProblem> {
    Description::parse(text).map_err(|refusal| FieldProblem::new("description", refusal.code(), refusal.to_string()))
}

fn description_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_description(text))
}

/// A generated draft. The server does not store it as an asset.
#[derive(Serialize, ToSchema)]
#[schema(as = GeneratedDraft)]
pub(crate) struct DraftView {
    /// Proposed content of a prompt template version. Review it, change it, and send it as the content of a version.
    #[schema(value_type = Object)]
    draft_content: Value,
    /// Warnings about the proposed content, for its author.
    warnings: Vec<VersionWarning>,
    /// Identifier of the run that generated the draft.
    generation_id: Uuid,
}

/// Drafts the content of a prompt template. Creates no asset and no version.
#[utoipa::path(
    operation_id = "generate_asset_draft",
    tag = "assets",
    params(DraftQuery, IdempotencyKeyParams),
    request_body = DraftRequest,
    responses(
        (status = 200, description = "The draft", body = DraftView),
        (status = 503, description = "The generator has no active release", body = ErrorBody),
        WriteRefusals,
    )
)]
#[post("/v1/asset-drafts/generate")]
pub(crate) async fn generate_asset_draft(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    query: Query<DraftQuery>,
    idempotency: IdempotencyHeader,
    body: Body<DraftRequest>,
) -> Result<HttpResponse, ApiError> {
    let workspace = WorkspaceId::from(query.workspace_id);
    let key = idempotency.into_request_key(&caller.actor, || digest_in_workspace(body.digest(), query.workspace_id));
    let description = parse_description(&body.description)?;
    let draft =
        api.services.draft_generator.generate_prompt_content(&caller, workspace, &description, key.as_ref()).await?;
    let view = DraftView {
        draft_content: draft.content,
        warnings: draft.warnings.into_iter().map(VersionWarning::of).collect(),
        generation_id: draft.generation_id.uuid(),
    };
    let outcome = MaybeReplayed { value: (), replayed: draft.replayed.then_some(StatusCode::OK.as_u16()) };
    Ok(ResourceResponse::idempotent(&outcome, &view, StatusCode::OK)?.into_response())
}
