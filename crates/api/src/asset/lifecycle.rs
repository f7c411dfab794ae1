//! Routes of the asset lifecycle.

use super::{AssetView, WorkspaceQuery};
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::{body::Body, etag::IfMatch, idempotency::IdempotencyHeader, path::PathId, query::Query},
    openapi::{IdempotencyKeyParams, IfMatchParams, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
};
use actix_web::{HttpResponse, http::StatusCode, post, web};
use fairway_domain::id::AssetId;
use fairway_operations::asset::LifecycleCommand;
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// The workspace of a lifecycle transition.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssetMove {
    /// Workspace from which the asset must be visible. Required, here or in the query.
    workspace_id: Option<Uuid>,
}

/// The parts of a request for a lifecycle transition.
type LifecycleRequest = (PathId<AssetId>, Query<WorkspaceQuery>, IdempotencyHeader, IfMatch, Body<AssetMove>);

async fn change_lifecycle(
    api: &Api,
    caller: &IdentifiedCaller,
    command: LifecycleCommand,
    (asset, query, idempotency, expected, body): LifecycleRequest,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let workspace = query.resolve_required(body.into_inner().workspace_id)?;
    let outcome =
        api.services.assets.change_lifecycle(caller, command, *asset, workspace, &expected, key.as_ref()).await?;
    let view = AssetView::of(&outcome.value);
    Ok(ResourceResponse::idempotent(&outcome, &view, StatusCode::OK)?.with_etag(outcome.value.revision).into_response())
}

/// Activates an asset: releases can bind its versions.
#[utoipa::path(
    operation_id = "activate_asset",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), WorkspaceQuery, IdempotencyKeyParams, IfMatchParams),
    request_body = AssetMove,
    responses((status = 200, description = "The asset in its new state", body = AssetView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/activate")]
pub(crate) async fn activate_asset(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    request: LifecycleRequest,
) -> Result<HttpResponse, ApiError> {
    change_lifecycle(&api, &caller, LifecycleCommand::Activate, request).await
}

/// Retires an asset: it accepts no new bindings. Existing releases keep their bindings.
#[utoipa::path(
    operation_id = "retire_asset",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), WorkspaceQuery, IdempotencyKeyParams, IfMatchParams),
    request_body = AssetMove,
    responses((status = 200, description = "The asset in its new state", body = AssetView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/retire")]
pub(crate) async fn retire_asset(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    request: LifecycleRequest,
) -> Result<HttpResponse, ApiError> {
    change_lifecycle(&api, &caller, LifecycleCommand::Retire, request).await
}

/// Archives an asset and keeps its versions. The response is 409 `asset_in_use` while a draft, reviewed or active
/// release binds a version.
#[utoipa::path(
    operation_id = "archive_asset",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), WorkspaceQuery, IdempotencyKeyParams, IfMatchParams),
    request_body = AssetMove,
    responses((status = 200, description = "The asset in its new state", body = AssetView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/archive")]
pub(crate) async fn archive_asset(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    request: LifecycleRequest,
) -> Result<HttpResponse, ApiError> {
    change_lifecycle(&api, &caller, LifecycleCommand::Archive, request).await
}
