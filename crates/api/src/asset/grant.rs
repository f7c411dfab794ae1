//! Routes of asset grants.

use super::{VisibleFromQuery, WorkspaceQuery};
use crate::{
    access::parse_principal,
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        body::Body,
        idempotency::IdempotencyHeader,
        paging::ListRequest,
        path::{Path, PathId},
        query::Query,
    },
    openapi::{DeleteRefusals, IdempotencyKeyParams, PageParams, ReadRefusals, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, delete, get, post, web};
use fairway_domain::{
    access::ActorRef,
    asset::grant::{AssetGrant, Grantee},
    id::{AssetGrantId, AssetId},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// A grant that makes an asset visible to a principal or workspace.
#[derive(Serialize, ToSchema)]
#[schema(as = AssetGrant)]
pub(crate) struct GrantView {
    grant_id: Uuid,
    asset_id: Uuid,
    /// The grantee, if it is a user, group or service; null for a workspace.
    principal: Option<String>,
    /// The grantee, if it is a workspace; null for a principal.
    grantee_workspace_id: Option<Uuid>,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
}

impl GrantView {
    fn of(grant: &AssetGrant) -> Self {
        let (principal, grantee_workspace_id) = match &grant.grantee {
            Grantee::Principal(principal) => (Some(principal.to_string()), None),
            Grantee::Workspace(id) => (None, Some(id.uuid())),
        };
        Self {
            grant_id: grant.grant_id.uuid(),
            asset_id: grant.asset_id.uuid(),
            principal,
            grantee_workspace_id,
            created_at: grant.created_at.to_string(),
            created_by: grant.created_by.to_string(),
        }
    }
}

/// A grant to create, for a principal or a workspace.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[validate(schema(function = check_grantee, skip_on_field_errors = false))]
pub(crate) struct NewAssetGrant {
    /// `user:<name>`, `group:<name>` or `service:<name>`.
    #[validate(length(min = 1, max = limit(ActorRef::MAX_PRINCIPAL_CHARS)), custom(function = value_rules::principal))]
    principal: Option<String>,
    /// Workspace of the tenant that gets the access: callers who may view its assets see this asset there, and its
    /// releases may bind it.
    grantee_workspace_id: Option<Uuid>,
    /// Workspace from which the asset must be visible. Required, here or in the query.
    workspace_id: Option<Uuid>,
}

impl NewAssetGrant {
    fn grantee(&self) -> Result<Grantee, FieldProblem> {
        match (&self.principal, self.grantee_workspace_id) {
            (Some(principal), None) => parse_principal(principal).map(Grantee::Principal),
            (None, Some(workspace)) => Ok(Grantee::Workspace(workspace.into())),
            (Some(_), Some(_)) => {
                let rule = "a grant names either a `principal` or a `grantee_workspace_id`";
                Err(FieldProblem::new("grantee_workspace_id", "invalid", rule))
            }
            (None, None) => Err(FieldProblem::missing("principal")),
        }
    }
}

/// Checks that the grant names exactly one grantee. The rule of the field `principal` reports a malformed
/// principal.
fn check_grantee(new: &NewAssetGrant) -> RuleResult {
    value_rules::accept_unless(new.grantee().err().filter(|problem| problem.code != "invalid_principal"))
}

/// Lists the grants of an asset, newest first.
#[utoipa::path(
    operation_id = "list_asset_grants",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), VisibleFromQuery, PageParams),
    responses((status = 200, description = "A page of grants", body = Vec<GrantView>), ReadRefusals)
)]
#[get("/v1/assets/{asset_id}/grants")]
pub(crate) async fn list_asset_grants(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    list: ListRequest<VisibleFromQuery>,
) -> Result<HttpResponse, ApiError> {
    let grants = api.services.assets.list_asset_grants(&caller, *asset, list.filter.id(), list.paging()).await?;
    Ok(list.respond(&grants.map(|grant| GrantView::of(&grant))))
}

/// Grants a principal or a workspace access to an asset.
#[utoipa::path(
    operation_id = "create_asset_grant",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), WorkspaceQuery, IdempotencyKeyParams),
    request_body = NewAssetGrant,
    responses((status = 201, description = "The grant", body = GrantView), WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/grants")]
pub(crate) async fn create_asset_grant(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    query: Query<WorkspaceQuery>,
    idempotency: IdempotencyHeader,
    body: Body<NewAssetGrant>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let new = body.into_inner();
    let mut fields = FieldErrors::default();
    let (grantee, workspace) = (fields.check(new.grantee()), fields.check(query.resolve_required(new.workspace_id)));
    let (grantee, workspace) = fields.finish(|| Some((grantee?, workspace?)))?;
    let outcome = api.services.assets.create_asset_grant(&caller, *asset, workspace, grantee, key.as_ref()).await?;
    let view = GrantView::of(&outcome.value);
    let location = format!("/v1/assets/{}/grants?workspace_id={workspace}", view.asset_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.into_response())
}

/// Revokes a grant of an asset.
#[utoipa::path(
    operation_id = "delete_asset_grant",
    tag = "assets",
    params(
        ("asset_id" = Uuid, Path, description = "The asset"),
        ("grant_id" = Uuid, Path, description = "The grant"),
        VisibleFromQuery,
    ),
    responses((status = 204, description = "The grant is revoked"), DeleteRefusals)
)]
#[delete("/v1/assets/{asset_id}/grants/{grant_id}")]
pub(crate) async fn delete_asset_grant(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<AssetId>, PathId<AssetGrantId>)>,
    visible_from: Query<VisibleFromQuery>,
) -> Result<HttpResponse, ApiError> {
    let (asset, grant) = path.into_inner();
    api.services.assets.delete_asset_grant(&caller, *asset, visible_from.id(), *grant).await?;
    Ok(HttpResponse::NoContent().finish())
}
