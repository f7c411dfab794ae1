//! Route that compares two versions.

use super::VisibleFromQuery;
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::{
        path::{Path, PathId},
        query::Query,
    },
    openapi::ReadRefusals,
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::id::{AssetId, AssetVersionId};
use json_patch::Patch;
use serde::Serialize;
use utoipa::ToSchema;

/// The difference between two versions.
#[derive(Serialize, ToSchema)]
#[schema(as = VersionDiff)]
pub(crate) struct DiffView {
    /// A JSON Patch (RFC 6902) that turns the first content into the second.
    #[schema(value_type = Vec<Object>)]
    patch: Patch,
    /// One line per change: `+` added, `-` removed, `~` changed. Very long texts are truncated.
    readable: String,
}

/// Compares two versions of an asset.
#[utoipa::path(
    operation_id = "diff_asset_versions",
    tag = "assets",
    params(
        ("asset_id" = Uuid, Path, description = "The asset"),
        ("asset_version_id" = Uuid, Path, description = "The old version"),
        ("other_version_id" = Uuid, Path, description = "The new version"),
        VisibleFromQuery,
    ),
    responses((status = 200, description = "The difference", body = DiffView), ReadRefusals)
)]
#[get("/v1/assets/{asset_id}/versions/{asset_version_id}/diff/{other_version_id}")]
pub(crate) async fn diff_asset_versions(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<AssetId>, PathId<AssetVersionId>, PathId<AssetVersionId>)>,
    visible_from: Query<VisibleFromQuery>,
) -> Result<HttpResponse, ApiError> {
    let (asset, first, second) = path.into_inner();
    let diff = api.services.assets.diff_asset_versions(&caller, *asset, visible_from.id(), *first, *second).await?;
    let capacity = diff.patch_bytes.saturating_add(diff.readable.len());
    Ok(ResourceResponse::ok(&DiffView { patch: diff.patch, readable: diff.readable })
        .with_capacity(capacity)
        .into_response())
}
