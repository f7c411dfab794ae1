//! Routes of environment settings.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::{
        body::Body,
        etag::IfMatch,
        path::{Path, PathId},
    },
    openapi::{IfMatchParams, ReadRefusals, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, put, web};
use fairway_domain::{
    environment::{EnvironmentSettings, MAX_APPROVALS},
    id::WorkspaceId,
    release::review::SelfApproval,
    slug::Slug,
};
use fairway_operations::environment::EffectiveSettings;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// The release rules of an environment.
#[derive(Serialize, ToSchema)]
#[schema(as = EnvironmentSettings)]
pub(crate) struct EnvironmentView {
    workspace_id: Uuid,
    environment: String,
    /// Number of required approvals of a release.
    min_approvals: u16,
    /// Whether the creators of a release may approve it.
    allow_self_approval: bool,
    /// Whether runs use the document index of the approval instead of the current one.
    pin_documents: bool,
}

impl EnvironmentView {
    fn respond(workspace: WorkspaceId, environment: &Slug, effective: &EffectiveSettings) -> HttpResponse {
        let settings = effective.settings;
        let view = Self {
            workspace_id: workspace.uuid(),
            environment: environment.to_string(),
            min_approvals: settings.min_approvals,
            allow_self_approval: settings.self_approval == SelfApproval::Allowed,
            pin_documents: settings.pin_documents,
        };
        let response = ResourceResponse::ok(&view);
        match effective.revision {
            Some(revision) => response.with_etag(revision).into_response(),
            None => response.into_response(),
        }
    }
}

/// The new release rules of an environment; they replace all previous ones.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnvironmentChange {
    /// Number of required approvals of a release.
    #[schema(minimum = 1, maximum = 10)]
    #[validate(range(min = 1, max = MAX_APPROVALS))]
    min_approvals: u16,
    /// Whether the creators of a release may approve it.
    allow_self_approval: bool,
    /// Whether runs use the document index of the approval instead of the current one.
    pin_documents: bool,
}

/// The workspace and the environment of a path; a malformed slug is a 404.
fn parse_path(path: Path<(PathId<WorkspaceId>, String)>) -> Result<(WorkspaceId, Slug), ApiError> {
    let (workspace, environment) = path.into_inner();
    Ok((*workspace, Slug::parse(&environment).map_err(|_| ApiError::not_found())?))
}

/// Reads the settings of an environment; defaults apply until they are changed.
#[utoipa::path(
    operation_id = "read_environment_settings",
    tag = "tenants",
    params(
        ("workspace_id" = Uuid, Path, description = "The workspace"),
        ("environment" = String, Path, description = "A slug such as `dev`"),
    ),
    responses((status = 200, description = "The settings", body = EnvironmentView), ReadRefusals)
)]
#[get("/v1/workspaces/{workspace_id}/environments/{environment}/settings")]
pub(crate) async fn read_environment_settings(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkspaceId>, String)>,
) -> Result<HttpResponse, ApiError> {
    let (workspace, environment) = parse_path(path)?;
    let effective = api.services.environments.environment_settings(&caller, workspace, &environment).await?;
    Ok(EnvironmentView::respond(workspace, &environment, &effective))
}

/// Replaces the settings of an environment.
#[utoipa::path(
    operation_id = "change_environment_settings",
    tag = "tenants",
    params(
        ("workspace_id" = Uuid, Path, description = "The workspace"),
        ("environment" = String, Path, description = "A slug such as `dev`"),
        IfMatchParams,
    ),
    request_body = EnvironmentChange,
    responses((status = 200, description = "The new settings", body = EnvironmentView), RevisionRefusal, WriteRefusals)
)]
#[put("/v1/workspaces/{workspace_id}/environments/{environment}/settings")]
pub(crate) async fn change_environment_settings(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkspaceId>, String)>,
    expected: IfMatch,
    body: Body<EnvironmentChange>,
) -> Result<HttpResponse, ApiError> {
    let (workspace, environment) = parse_path(path)?;
    let settings = EnvironmentSettings {
        min_approvals: body.min_approvals,
        self_approval: if body.allow_self_approval { SelfApproval::Allowed } else { SelfApproval::Refused },
        pin_documents: body.pin_documents,
    };
    let effective =
        api.services.environments.configure_environment(&caller, workspace, &environment, settings, &expected).await?;
    Ok(EnvironmentView::respond(workspace, &environment, &effective))
}
