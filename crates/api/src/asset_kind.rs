//! The kinds of assets and their schemas.

use crate::{
    answer::Answer, caller::Identified, compose::Api, document::ReadRefusals, error::ApiError, http::path::Path,
};
use actix_web::{HttpResponse, get, http::header::ContentType, web};
use fairway_domain::asset::{content, kind::AssetKind};
use serde::Serialize;
use utoipa::ToSchema;

/// A kind of asset.
#[derive(Serialize, ToSchema)]
#[schema(as = AssetKind)]
pub(crate) struct KindView {
    /// The spelling that requests use; also the role in which a release binds assets of the kind.
    kind: &'static str,
    /// Its name for people.
    title: &'static str,
    /// What assets of the kind are for.
    description: &'static str,
    /// Whether another kind has taken its place.
    legacy: bool,
    /// Whether a release may bind several assets of the kind.
    binds_many: bool,
    /// Where its JSON Schema is.
    schema_url: String,
}

impl KindView {
    fn of(kind: AssetKind) -> Self {
        let schema = content::schema_value(kind);
        let words = |name: &str| schema.and_then(|schema| schema.get(name)?.as_str()).unwrap_or_default();
        Self {
            kind: kind.as_str(),
            title: words("title"),
            description: words("description"),
            legacy: kind.is_legacy(),
            binds_many: kind.allows_many_bindings(),
            schema_url: format!("/v1/asset-kinds/{kind}/schema"),
        }
    }
}

/// The kinds of assets.
#[utoipa::path(
    operation_id = "list_asset_kinds",
    tag = "assets",
    responses((status = 200, description = "All kinds", body = Vec<KindView>), ReadRefusals)
)]
#[get("/v1/asset-kinds")]
pub(crate) async fn list_asset_kinds(api: web::Data<Api>, caller: Identified) -> Result<HttpResponse, ApiError> {
    let kinds = api.services.list_asset_kinds(&caller)?;
    let views: Vec<KindView> = kinds.into_iter().map(KindView::of).collect();
    Ok(Answer::ok(&views).send())
}

/// The JSON Schema (2020-12) of a kind.
///
/// Each property has a `description` for people, and `x-enforcement`: `enforced` where something in this server acts on
/// it, `recorded` where it is only kept. Further marks: `x-asset-kinds` (what a reference may name), `x-unique` (the
/// member by which the items of a list differ), `x-json-schema` and `x-pattern` (a value that is checked as a schema or
/// a pattern), `x-fails-closed` (values that promise to fail closed).
#[utoipa::path(
    operation_id = "read_asset_kind_schema",
    tag = "assets",
    params(("kind" = String, Path, description = "One of the asset kinds")),
    responses((status = 200, description = "The schema", body = Object), ReadRefusals)
)]
#[get("/v1/asset-kinds/{kind}/schema")]
pub(crate) async fn read_asset_kind_schema(
    api: web::Data<Api>,
    caller: Identified,
    path: Path<(String,)>,
) -> Result<HttpResponse, ApiError> {
    let (kind,) = path.into_inner();
    let schema = api.services.read_asset_kind_schema(&caller, &kind)?;
    Ok(HttpResponse::Ok().content_type(ContentType::json()).body(schema))
}
