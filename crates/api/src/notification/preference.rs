//! Routes of notification preferences, their explanation, and the default profiles of roles.

use super::{parse_category, parse_channel};
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    execution::list::parse_environment_filter,
    http::{
        body::{Body, validate_list_length},
        etag::IfMatch,
        path::{Path, PathId},
        query::Query,
    },
    openapi::{IfMatchParams, ReadRefusals, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, put, web};
use fairway_domain::{
    access::Role,
    id::{WorkloadId, WorkspaceId},
    notification::preference::{
        CATEGORY_CHANNEL_PAIR_COUNT, DefaultPreference, EffectivePreference, MAX_DEFAULTS, Preference,
    },
    slug::Slug,
    store::Revision,
};
use fairway_operations::notification::{ExplicitSettings, PreferenceContext, RequestedPreferenceScope};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::{Validate, ValidationErrors};

/// A preference: whether a category is on or off on a channel.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = NotificationPreference)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreferenceView {
    category: String,
    channel: String,
    enabled: bool,
}

/// A default preference for the holders of a role.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = DefaultPreference)]
#[serde(deny_unknown_fields)]
pub(crate) struct DefaultPreferenceView {
    /// Name of the role.
    profile_ref: String,
    category: String,
    channel: String,
    enabled: bool,
}

/// Preferences of one scope. Each pair of category and channel occurs once.
#[derive(Deserialize, ToSchema)]
#[schema(as = NotificationPreferenceList, max_items = 56)]
#[serde(transparent)]
pub(crate) struct PreferenceList(Vec<PreferenceView>);

/// Default preferences. Each pair of category and channel occurs once for a role.
#[derive(Deserialize, ToSchema)]
#[schema(as = DefaultPreferenceList, max_items = 504)]
#[serde(transparent)]
pub(crate) struct DefaultPreferencesBody(Vec<DefaultPreferenceView>);

/// This rule checks only the length of the list, because the handler parses the entries and names the position of each
/// problem.
impl Validate for PreferenceList {
    fn validate(&self) -> Result<(), ValidationErrors> {
        validate_list_length(self.0.len(), CATEGORY_CHANNEL_PAIR_COUNT)
    }
}

/// This rule checks only the length of the list, as the rule of [`PreferenceList`] does.
impl Validate for DefaultPreferencesBody {
    fn validate(&self) -> Result<(), ValidationErrors> {
        validate_list_length(self.0.len(), MAX_DEFAULTS)
    }
}

/// The effective preference of a channel.
#[derive(Serialize, ToSchema)]
#[schema(as = EffectivePreference)]
pub(crate) struct EffectivePreferenceView {
    channel: &'static str,
    enabled: bool,
    /// Source of the decision: `environment`, `project` (the workload), `workspace`, `global`, `default_profile` or
    /// `fallback`.
    scope: &'static str,
}

impl PreferenceView {
    fn of(preference: &Preference) -> Self {
        Self {
            category: preference.category.as_str().to_owned(),
            channel: preference.channel.as_str().to_owned(),
            enabled: preference.enabled,
        }
    }
}

/// Parses the category and the channel of the entry at a position.
fn parse_pair(
    fields: &mut FieldErrors,
    position: usize,
    category: &str,
    channel: &str,
    enabled: bool,
) -> Option<Preference> {
    let category = fields.check(parse_category(&format!("[{position}].category"), category));
    let channel = fields.check(parse_channel(&format!("[{position}].channel"), channel));
    Some(Preference { category: category?, channel: channel?, enabled })
}

fn parse_preferences(entries: &PreferenceList) -> Result<Vec<Preference>, ApiError> {
    let mut fields = FieldErrors::default();
    let parsed: Vec<_> = (entries.0.iter().enumerate())
        .map(|(position, entry)| parse_pair(&mut fields, position, &entry.category, &entry.channel, entry.enabled))
        .collect();
    fields.finish(|| parsed.into_iter().collect())
}

fn parse_defaults(entries: &DefaultPreferencesBody) -> Result<Vec<DefaultPreference>, ApiError> {
    let mut fields = FieldErrors::default();
    let parsed: Vec<_> = (entries.0.iter().enumerate())
        .map(|(position, entry)| {
            let problem = || FieldProblem::new(format!("[{position}].profile_ref"), "invalid", "must be a role");
            let role = fields.check(Role::parse(&entry.profile_ref).ok_or_else(problem));
            let preference = parse_pair(&mut fields, position, &entry.category, &entry.channel, entry.enabled);
            Some(DefaultPreference { role: role?, preference: preference? })
        })
        .collect();
    fields.finish(|| parsed.into_iter().collect())
}

fn respond(explicit: &ExplicitSettings<Preference>) -> HttpResponse {
    let view: Vec<_> = explicit.settings.iter().map(PreferenceView::of).collect();
    ResourceResponse::ok(&view).with_etag(explicit.revision.unwrap_or(Revision::UNSET)).into_response()
}

fn respond_with_defaults(explicit: &ExplicitSettings<DefaultPreference>) -> HttpResponse {
    let to_view = |default: &DefaultPreference| DefaultPreferenceView {
        profile_ref: default.role.as_str().to_owned(),
        category: default.preference.category.as_str().to_owned(),
        channel: default.preference.channel.as_str().to_owned(),
        enabled: default.preference.enabled,
    };
    let view: Vec<_> = explicit.settings.iter().map(to_view).collect();
    ResourceResponse::ok(&view).with_etag(explicit.revision.unwrap_or(Revision::UNSET)).into_response()
}

async fn read(api: &Api, caller: &IdentifiedCaller, scope: RequestedPreferenceScope) -> Result<HttpResponse, ApiError> {
    Ok(respond(&api.services.notifications.explicit_preferences(caller, scope).await?))
}

async fn change(
    api: &Api,
    caller: &IdentifiedCaller,
    scope: RequestedPreferenceScope,
    expected: &IfMatch,
    body: &PreferenceList,
) -> Result<HttpResponse, ApiError> {
    let preferences = parse_preferences(body)?;
    Ok(respond(&api.services.notifications.set_preferences(caller, scope, &preferences, expected).await?))
}

/// The workload and the environment of a path; a malformed slug is a 404.
fn environment_path(
    path: Path<(PathId<WorkspaceId>, PathId<WorkloadId>, String)>,
) -> Result<RequestedPreferenceScope, ApiError> {
    let (workspace, workload, environment) = path.into_inner();
    let environment = Slug::parse(&environment).map_err(|_| ApiError::not_found())?;
    Ok(RequestedPreferenceScope::Environment(*workspace, *workload, environment))
}

fn workload_path(path: Path<(PathId<WorkspaceId>, PathId<WorkloadId>)>) -> RequestedPreferenceScope {
    let (workspace, workload) = path.into_inner();
    RequestedPreferenceScope::Workload(*workspace, *workload)
}

/// Reads the caller's explicit preferences everywhere in the tenant.
#[utoipa::path(
    operation_id = "read_preferences",
    tag = "notifications",
    responses((status = 200, description = "The preferences", body = Vec<PreferenceView>), ReadRefusals)
)]
#[get("/v1/notifications/preferences")]
pub(crate) async fn read_preferences(api: web::Data<Api>, caller: IdentifiedCaller) -> Result<HttpResponse, ApiError> {
    read(&api, &caller, RequestedPreferenceScope::Global).await
}

/// Sets preferences of the caller everywhere in the tenant. Preferences that the request omits stay unchanged. A
/// preference cannot be removed, only set.
#[utoipa::path(
    operation_id = "change_preferences",
    tag = "notifications",
    params(IfMatchParams),
    request_body = PreferenceList,
    responses((status = 200, description = "All preferences", body = Vec<PreferenceView>), RevisionRefusal, WriteRefusals)
)]
#[put("/v1/notifications/preferences")]
pub(crate) async fn change_preferences(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    expected: IfMatch,
    body: Body<PreferenceList>,
) -> Result<HttpResponse, ApiError> {
    change(&api, &caller, RequestedPreferenceScope::Global, &expected, &body).await
}

/// Reads the caller's explicit preferences in a workspace.
#[utoipa::path(
    operation_id = "read_workspace_preferences",
    tag = "notifications",
    params(("workspace_id" = Uuid, Path, description = "The workspace")),
    responses((status = 200, description = "The preferences", body = Vec<PreferenceView>), ReadRefusals)
)]
#[get("/v1/notifications/workspaces/{workspace_id}/preferences")]
pub(crate) async fn read_workspace_preferences(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workspace: PathId<WorkspaceId>,
) -> Result<HttpResponse, ApiError> {
    read(&api, &caller, RequestedPreferenceScope::Workspace(*workspace)).await
}

/// Sets preferences of the caller in a workspace.
#[utoipa::path(
    operation_id = "change_workspace_preferences",
    tag = "notifications",
    params(("workspace_id" = Uuid, Path, description = "The workspace"), IfMatchParams),
    request_body = PreferenceList,
    responses((status = 200, description = "All preferences", body = Vec<PreferenceView>), RevisionRefusal, WriteRefusals)
)]
#[put("/v1/notifications/workspaces/{workspace_id}/preferences")]
pub(crate) async fn change_workspace_preferences(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workspace: PathId<WorkspaceId>,
    expected: IfMatch,
    body: Body<PreferenceList>,
) -> Result<HttpResponse, ApiError> {
    change(&api, &caller, RequestedPreferenceScope::Workspace(*workspace), &expected, &body).await
}

/// Reads the caller's explicit preferences for a workload. Requires the tenant setting
/// `advanced_notifications_enabled`.
#[utoipa::path(
    operation_id = "read_workload_preferences",
    tag = "notifications",
    params(
        ("workspace_id" = Uuid, Path, description = "The workspace of the workload"),
        ("workload_id" = Uuid, Path, description = "The workload"),
    ),
    responses((status = 200, description = "The preferences", body = Vec<PreferenceView>), ReadRefusals)
)]
#[get("/v1/notifications/workspaces/{workspace_id}/workloads/{workload_id}/preferences")]
pub(crate) async fn read_workload_preferences(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkspaceId>, PathId<WorkloadId>)>,
) -> Result<HttpResponse, ApiError> {
    read(&api, &caller, workload_path(path)).await
}

/// Sets preferences of the caller for a workload. Requires the tenant setting `advanced_notifications_enabled`.
#[utoipa::path(
    operation_id = "change_workload_preferences",
    tag = "notifications",
    params(
        ("workspace_id" = Uuid, Path, description = "The workspace of the workload"),
        ("workload_id" = Uuid, Path, description = "The workload"),
        IfMatchParams,
    ),
    request_body = PreferenceList,
    responses((status = 200, description = "All preferences", body = Vec<PreferenceView>), RevisionRefusal, WriteRefusals)
)]
#[put("/v1/notifications/workspaces/{workspace_id}/workloads/{workload_id}/preferences")]
pub(crate) async fn change_workload_preferences(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkspaceId>, PathId<WorkloadId>)>,
    expected: IfMatch,
    body: Body<PreferenceList>,
) -> Result<HttpResponse, ApiError> {
    change(&api, &caller, workload_path(path), &expected, &body).await
}

/// Reads the caller's explicit preferences for a workload in an environment. Requires the tenant setting
/// `advanced_notifications_enabled`.
#[utoipa::path(
    operation_id = "read_environment_preferences",
    tag = "notifications",
    params(
        ("workspace_id" = Uuid, Path, description = "The workspace of the workload"),
        ("workload_id" = Uuid, Path, description = "The workload"),
        ("environment" = String, Path, description = "A slug such as `dev`"),
    ),
    responses((status = 200, description = "The preferences", body = Vec<PreferenceView>), ReadRefusals)
)]
#[get("/v1/notifications/workspaces/{workspace_id}/workloads/{workload_id}/environments/{environment}/preferences")]
pub(crate) async fn read_environment_preferences(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkspaceId>, PathId<WorkloadId>, String)>,
) -> Result<HttpResponse, ApiError> {
    read(&api, &caller, environment_path(path)?).await
}

/// Sets preferences of the caller for a workload in an environment. Requires the tenant setting
/// `advanced_notifications_enabled`.
#[utoipa::path(
    operation_id = "change_environment_preferences",
    tag = "notifications",
    params(
        ("workspace_id" = Uuid, Path, description = "The workspace of the workload"),
        ("workload_id" = Uuid, Path, description = "The workload"),
        ("environment" = String, Path, description = "A slug such as `dev`"),
        IfMatchParams,
    ),
    request_body = PreferenceList,
    responses((status = 200, description = "All preferences", body = Vec<PreferenceView>), RevisionRefusal, WriteRefusals)
)]
#[put("/v1/notifications/workspaces/{workspace_id}/workloads/{workload_id}/environments/{environment}/preferences")]
pub(crate) async fn change_environment_preferences(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkspaceId>, PathId<WorkloadId>, String)>,
    expected: IfMatch,
    body: Body<PreferenceList>,
) -> Result<HttpResponse, ApiError> {
    change(&api, &caller, environment_path(path)?, &expected, &body).await
}

/// Lists the environments in which a workload has releases.
#[utoipa::path(
    operation_id = "list_workload_environments",
    tag = "notifications",
    params(
        ("workspace_id" = Uuid, Path, description = "The workspace of the workload"),
        ("workload_id" = Uuid, Path, description = "The workload"),
    ),
    responses((status = 200, description = "The names, in alphabetical order", body = Vec<String>), ReadRefusals)
)]
#[get("/v1/notifications/workspaces/{workspace_id}/workloads/{workload_id}/environments")]
pub(crate) async fn list_workload_environments(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkspaceId>, PathId<WorkloadId>)>,
) -> Result<HttpResponse, ApiError> {
    let (workspace, workload) = path.into_inner();
    let names = api.services.notifications.list_workload_environments(&caller, *workspace, *workload).await?;
    Ok(ResourceResponse::ok(&names).into_response())
}

/// Category and context of the preferences to explain.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EffectiveQuery {
    /// The category of notifications to explain.
    category: String,
    /// The workspace of the events whose notifications are explained.
    workspace_id: Option<Uuid>,
    /// The workload of the events whose notifications are explained.
    workload_id: Option<Uuid>,
    /// The environment of the context; requires a workload.
    environment: Option<String>,
}

/// Explains on which channels the caller receives notifications of a category, and what decides about each channel.
#[utoipa::path(
    operation_id = "read_effective_preferences",
    tag = "notifications",
    params(EffectiveQuery),
    responses((status = 200, description = "One entry for each channel", body = Vec<EffectivePreferenceView>), ReadRefusals)
)]
#[get("/v1/notifications/preferences/effective")]
pub(crate) async fn read_effective_preferences(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    query: Query<EffectiveQuery>,
) -> Result<HttpResponse, ApiError> {
    let query = query.into_inner();
    let mut fields = FieldErrors::default();
    let category = fields.check(parse_category("category", &query.category));
    let environment = fields.check(parse_environment_filter(query.environment.as_deref()).and_then(|environment| {
        let lacks_workload = environment.is_some() && query.workload_id.is_none();
        let rule = "an environment requires a workload";
        if lacks_workload { Err(FieldProblem::new("environment", "invalid", rule)) } else { Ok(environment) }
    }));
    let (category, environment) = fields.finish(|| category.zip(environment))?;
    let context = PreferenceContext {
        workspace: query.workspace_id.map(Into::into),
        workload: query.workload_id.map(Into::into),
        environment,
    };
    let preferences = api.services.notifications.explain_preferences(&caller, category, context).await?;
    let to_view = |preference: &EffectivePreference| EffectivePreferenceView {
        channel: preference.channel.as_str(),
        enabled: preference.enabled,
        scope: preference.scope.as_str(),
    };
    let view: Vec<_> = preferences.iter().map(to_view).collect();
    Ok(ResourceResponse::ok(&view).into_response())
}

/// Reads the default preferences of roles.
#[utoipa::path(
    operation_id = "read_default_profiles",
    tag = "notifications",
    responses((status = 200, description = "The defaults", body = Vec<DefaultPreferenceView>), ReadRefusals)
)]
#[get("/v1/notifications/default-profiles")]
pub(crate) async fn read_default_profiles(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
) -> Result<HttpResponse, ApiError> {
    Ok(respond_with_defaults(&api.services.notifications.default_profiles(&caller).await?))
}

/// Sets default preferences of roles. Preferences that the request omits stay unchanged. If the roles of a
/// recipient disagree, `on` wins.
#[utoipa::path(
    operation_id = "change_default_profiles",
    tag = "notifications",
    params(IfMatchParams),
    request_body = DefaultPreferencesBody,
    responses((status = 200, description = "All defaults", body = Vec<DefaultPreferenceView>), RevisionRefusal, WriteRefusals)
)]
#[put("/v1/notifications/default-profiles")]
pub(crate) async fn change_default_profiles(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    expected: IfMatch,
    body: Body<DefaultPreferencesBody>,
) -> Result<HttpResponse, ApiError> {
    let defaults = parse_defaults(&body)?;
    Ok(respond_with_defaults(&api.services.notifications.set_default_profiles(&caller, &defaults, &expected).await?))
}
