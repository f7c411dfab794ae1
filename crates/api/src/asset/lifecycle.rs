//! Routes of the asset lifecycle.

use super::{AssetView, WorkspaceQuery};
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::{body::Body, etag::IfMatch, idempotency::IdempotencyHeader, path::PathId, query::Query},
    openapi::{IfMatchParams, KeyParams, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
};
use actix_web::{HttpResponse, http::StatusCode, post, web};
use fairway_domain::{asset::Asset, id::AssetId};
use fairway_operations::MaybeReplayed;
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// The workspace of a lifecycle transition.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssetMove {
    /// The asset must be visible from this workspace. Required, here or in the query.
    workspace_id: Option<Uuid>,
}

fn lifecycle_response(done: &MaybeReplayed<Asset>) -> Result<HttpResponse, ApiError> {
    let view = AssetView::of(&done.value);
    Ok(ResourceResponse::idempotent(done, &view, StatusCode::OK)?.with_etag(done.value.revision).into_response())
}

/// Activates an asset: releases can bind its versions.
#[utoipa::path(
    operation_id = "activate_asset",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), WorkspaceQuery, KeyParams, IfMatchParams),
    request_body = AssetMove,
    responses((status = 200, description = "The asset in its new state", body = AssetView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/activate")]
pub(crate) async fn activate_asset(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    query: Query<WorkspaceQuery>,
    keyed: IdempotencyHeader,
    expected: IfMatch,
    body: Body<AssetMove>,
) -> Result<HttpResponse, ApiError> {
    let key = keyed.into_request_key(&caller.actor, || body.digest());
    let from = query.required(body.into_inner().workspace_id)?;
    lifecycle_response(&api.services.assets.activate_asset(&caller, *asset, from, &expected, key.as_ref()).await?)
}

/// Retires an asset: it accepts no new bindings. Existing releases continue.
#[utoipa::path(
    operation_id = "retire_asset",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), WorkspaceQuery, KeyParams, IfMatchParams),
    request_body = AssetMove,
    responses((status = 200, description = "The asset in its new state", body = AssetView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/retire")]
pub(crate) async fn retire_asset(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    query: Query<WorkspaceQuery>,
    keyed: IdempotencyHeader,
    expected: IfMatch,
    body: Body<AssetMove>,
) -> Result<HttpResponse, ApiError> {
    let key = keyed.into_request_key(&caller.actor, || body.digest());
    let from = query.required(body.into_inner().workspace_id)?;
    lifecycle_response(&api.services.assets.retire_asset(&caller, *asset, from, &expected, key.as_ref()).await?)
}

/// Archives an asset; its versions stay. 409 `asset_in_use` while an unfinished release binds one of them.
#[utoipa::path(
    operation_id = "archive_asset",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), WorkspaceQuery, KeyParams, IfMatchParams),
    request_body = AssetMove,
    responses((status = 200, description = "The asset in its new state", body = AssetView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/archive")]
pub(crate) async fn archive_asset(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    query: Query<WorkspaceQuery>,
    keyed: IdempotencyHeader,
    expected: IfMatch,
    body: Body<AssetMove>,
) -> Result<HttpResponse, ApiError> {
    let key = keyed.into_request_key(&caller.actor, || body.digest());
    let from = query.required(body.into_inner().workspace_id)?;
    lifecycle_response(&api.services.assets.archive_asset(&caller, *asset, from, &expected, key.as_ref()).await?)
}
