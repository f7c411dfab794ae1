//! Routes of asset kinds and their schemas.

use crate::{
    caller::IdentifiedCaller, compose::Api, error::ApiError, http::path::Path, openapi::ReadRefusals,
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, http::header::ContentType, web};
use fairway_domain::asset::{content, kind::AssetKind};
use serde::Serialize;
use utoipa::ToSchema;

/// A kind of asset, with its purpose and the URL of its schema.
#[derive(Serialize, ToSchema)]
#[schema(as = AssetKind)]
pub(crate) struct KindView {
    /// Name of the kind in requests; also the role in which a release binds its assets.
    kind: &'static str,
    /// Human-readable name of the kind.
    title: &'static str,
    /// Purpose of assets of the kind.
    description: &'static str,
    /// Whether another kind supersedes this kind.
    legacy: bool,
    /// Whether a release may bind several assets of the kind.
    binds_many: bool,
    /// URL of the JSON Schema for content of the kind.
    schema_url: String,
}

impl KindView {
    fn of(kind: AssetKind) -> Self {
        let schema = content::schema_value(kind);
        let annotation = |name: &str| schema.and_then(|schema| schema.get(name)?.as_str()).unwrap_or_default();
        Self {
            kind: kind.as_str(),
            title: annotation("title"),
            description: annotation("description"),
            legacy: kind.is_legacy(),
            binds_many: kind.allows_many_bindings(),
            schema_url: format!("/v1/asset-kinds/{kind}/schema"),
        }
    }
}

/// Lists the asset kinds with the URLs of their schemas.
#[utoipa::path(
    operation_id = "list_asset_kinds",
    tag = "assets",
    responses((status = 200, description = "All kinds", body = Vec<KindView>), ReadRefusals)
)]
#[get("/v1/asset-kinds")]
pub(crate) async fn list_asset_kinds(api: web::Data<Api>, caller: IdentifiedCaller) -> Result<HttpResponse, ApiError> {
    let kinds = api.services.assets.list_asset_kinds(&caller)?;
    let views: Vec<KindView> = kinds.into_iter().map(KindView::of).collect();
    Ok(ResourceResponse::ok(&views).into_response())
}

/// Reads the JSON Schema (2020-12) of a kind.
///
/// Each property has a `description` and `x-enforcement`: `enforced` if the server acts on it, `recorded` if the server
/// only stores it. Further annotations: `x-asset-kinds` (kinds that a reference may name), `x-unique` (the member that
/// distinguishes the items of a list), `x-json-schema` and `x-pattern` (a value that is validated as a schema or a
/// pattern), `x-fails-closed` (values that require the server to fail closed).
#[utoipa::path(
    operation_id = "read_asset_kind_schema",
    tag = "assets",
    params(("kind" = String, Path, description = "One of the asset kinds")),
    responses((status = 200, description = "The schema", body = Object), ReadRefusals)
)]
#[get("/v1/asset-kinds/{kind}/schema")]
pub(crate) async fn read_asset_kind_schema(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(String,)>,
) -> Result<HttpResponse, ApiError> {
    let (kind,) = path.into_inner();
    let schema = api.services.assets.read_asset_kind_schema(&caller, &kind)?;
    Ok(HttpResponse::Ok().content_type(ContentType::json()).body(schema))
}
