//! Routes of workspaces.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::{
        body::Body,
        idempotency::IdempotencyHeader,
        paging::{ListRequest, NoFilter},
        path::PathId,
    },
    openapi::{IdempotencyKeyParams, PageParams, ReadRefusals, WriteRefusals},
    response::ResourceResponse,
    tenant::name_rule,
    value_rules::{self, limit},
};
use actix_web::{HttpResponse, get, post, web};
use fairway_domain::{
    id::WorkspaceId,
    slug::MAX_SLUG,
    tenant::{MAX_DISPLAY_NAME_CHARS, MAX_WORKSPACE_SLUG, Workspace},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// A workspace, which contains assets and workloads.
#[derive(Serialize, ToSchema)]
#[schema(as = Workspace)]
pub(crate) struct WorkspaceView {
    workspace_id: Uuid,
    slug: String,
    name: String,
    namespace_id: Uuid,
    namespace: String,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
}

impl WorkspaceView {
    fn of(workspace: &Workspace) -> Self {
        Self {
            workspace_id: workspace.workspace_id.uuid(),
            slug: workspace.slug.to_string(),
            name: workspace.name.clone(),
            namespace_id: workspace.namespace_id.uuid(),
            namespace: workspace.namespace.to_string(),
            created_at: workspace.created_at.to_string(),
            created_by: workspace.created_by.to_string(),
        }
    }
}

/// A workspace to create.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWorkspace {
    /// Slug that is unique in the tenant.
    #[schema(max_length = 43)]
    #[validate(
        length(min = 1, max = limit(MAX_WORKSPACE_SLUG), code = "slug_too_long"),
        custom(function = value_rules::slug)
    )]
    slug: String,
    /// Human-readable name of the workspace.
    #[schema(min_length = 1, max_length = 200)]
    #[validate(length(min = 1, max = limit(MAX_DISPLAY_NAME_CHARS)), custom(function = name_rule))]
    name: String,
    /// Slug of the namespace; created on first use.
    #[validate(length(min = 1, max = limit(MAX_SLUG)), custom(function = value_rules::slug))]
    namespace: String,
}

/// Lists the workspaces of the tenant, newest first.
#[utoipa::path(
    operation_id = "list_workspaces",
    tag = "tenants",
    params(PageParams),
    responses((status = 200, description = "A page of workspaces", body = Vec<WorkspaceView>), ReadRefusals)
)]
#[get("/v1/workspaces")]
pub(crate) async fn list_workspaces(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<NoFilter>,
) -> Result<HttpResponse, ApiError> {
    let workspaces = api.services.workspaces.list_workspaces(&caller, list.paging()).await?;
    Ok(list.respond(&workspaces.map(|workspace| WorkspaceView::of(&workspace))))
}

/// Creates a workspace, and its namespace on first use.
#[utoipa::path(
    operation_id = "create_workspace",
    tag = "tenants",
    params(IdempotencyKeyParams),
    request_body = NewWorkspace,
    responses((status = 201, description = "The new workspace", body = WorkspaceView), WriteRefusals)
)]
#[post("/v1/workspaces")]
pub(crate) async fn create_workspace(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    idempotency: IdempotencyHeader,
    body: Body<NewWorkspace>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let new = body.into_inner();
    let outcome =
        api.services.workspaces.create_workspace(&caller, &new.slug, &new.name, &new.namespace, key.as_ref()).await?;
    let view = WorkspaceView::of(&outcome.value);
    let location = format!("/v1/workspaces/{}", view.workspace_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.into_response())
}

/// Reads a workspace with its namespace.
#[utoipa::path(
    operation_id = "read_workspace",
    tag = "tenants",
    params(("workspace_id" = Uuid, Path, description = "The workspace")),
    responses((status = 200, description = "The workspace", body = WorkspaceView), ReadRefusals)
)]
#[get("/v1/workspaces/{workspace_id}")]
pub(crate) async fn read_workspace(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workspace: PathId<WorkspaceId>,
) -> Result<HttpResponse, ApiError> {
    let workspace = api.services.workspaces.read_workspace(&caller, *workspace).await?;
    Ok(ResourceResponse::ok(&WorkspaceView::of(&workspace)).into_response())
}
