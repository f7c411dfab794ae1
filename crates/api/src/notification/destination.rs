//! Routes of destinations: shared external endpoints of a workspace or an organization.

use super::parse_channel;
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{
        body::{Body, deserialize_present},
        etag::IfMatch,
        idempotency::IdempotencyHeader,
        paging::{ListRequest, NoFilter},
        path::{Path, PathId},
    },
    openapi::{
        DeleteRefusals, IdempotencyKeyParams, IfMatchParams, PageParams, ReadRefusals, RevisionRefusal, WriteRefusals,
    },
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, delete, get, patch, post, web};
use fairway_domain::{
    id::{DestinationId, WorkspaceId},
    notification::{
        Channel,
        delivery::{DeliveryError, DeliveryStatus},
        destination::{Destination, DestinationPatch, DestinationRefusal, DestinationScope, MAX_DISPLAY_NAME},
    },
    text::is_name,
};
use fairway_operations::notification::{delivery::DestinationTest, destination::DestinationDraft};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// A shared external endpoint of notifications.
#[derive(Serialize, ToSchema)]
#[schema(as = Destination)]
pub(crate) struct DestinationView {
    destination_id: Uuid,
    /// `organization` or `workspace`.
    scope: &'static str,
    /// Null for a destination of the organization.
    workspace_id: Option<Uuid>,
    destination_type: &'static str,
    display_name: String,
    /// The configuration; values of sensitive keys are `[redacted]`.
    #[schema(value_type = Object)]
    redacted_metadata: Map<String, Value>,
    /// Whether the destination has a reference to a secret. The reference itself is never shown.
    has_secret_ref: bool,
    is_enabled: bool,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

impl DestinationView {
    fn of(destination: &Destination) -> Self {
        Self {
            destination_id: destination.destination_id.uuid(),
            scope: destination.scope.kind(),
            workspace_id: destination.scope.workspace().map(WorkspaceId::uuid),
            destination_type: destination.destination_type.as_str(),
            display_name: destination.display_name.clone(),
            redacted_metadata: destination.configuration.clone(),
            has_secret_ref: destination.secret_ref.is_some(),
            is_enabled: destination.is_enabled,
            created_at: destination.created_at.to_string(),
            created_by: destination.created_by.to_string(),
            updated_at: destination.updated_at.to_string(),
        }
    }
}

/// A notification destination to create.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDestination {
    /// `email`, `chat_a`, `chat_b`, `chat_c`, `paging` or `webhook`.
    #[validate(custom(function = type_rule))]
    destination_type: String,
    /// Name that is unique among the destinations of this type in the scope.
    #[schema(min_length = 1, max_length = 200)]
    #[validate(length(min = 1, max = limit(MAX_DISPLAY_NAME)), custom(function = name_rule))]
    display_name: String,
    /// The configuration, at most 8 KiB: `url`, or `address` of a mailbox, and `format` of a chat (`slack`,
    /// `teams`, `discord`, `google_chat` or `mattermost`). For a chat without `url`, the secret contains the whole
    /// address. Values of sensitive keys are stored as `[redacted]`.
    #[serde(default)]
    #[schema(value_type = Object)]
    redacted_metadata: Map<String, Value>,
    /// Reference to the signing key, the routing key or the whole address: `env:NAME`, `file:name` or `vault:path#key`.
    secret_ref: Option<String>,
    /// Whether deliveries are sent to the destination; default true.
    is_enabled: Option<bool>,
}

/// Fields of a destination to replace; absent fields stay unchanged.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct DestinationChange {
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = String, min_length = 1, max_length = 200)]
    #[validate(length(min = 1, max = limit(MAX_DISPLAY_NAME)), custom(function = name_rule))]
    display_name: Option<String>,
    /// The complete configuration. The value `[redacted]` is stored literally.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = Object)]
    redacted_metadata: Option<Map<String, Value>>,
    /// The reference to the secret, or null to remove it.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = Option<String>)]
    secret_ref: Option<Option<String>>,
    /// Whether deliveries are sent to the destination.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = bool)]
    is_enabled: Option<bool>,
}

impl From<DestinationChange> for DestinationPatch {
    fn from(change: DestinationChange) -> Self {
        Self {
            display_name: change.display_name,
            configuration: change.redacted_metadata,
            secret_ref: change.secret_ref,
            is_enabled: change.is_enabled,
        }
    }
}

fn problem_of(refusal: DestinationRefusal) -> FieldProblem {
    FieldProblem::new(refusal.field(), refusal.code(), refusal.to_string())
}

fn parse_type(text: &str) -> Result<Channel, FieldProblem> {
    match parse_channel("destination_type", text) {
        Ok(Channel::Portal) | Err(_) => Err(problem_of(DestinationRefusal::Type)),
        channel => channel,
    }
}

fn type_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_type(text))
}

fn name_rule(text: &str) -> RuleResult {
    let refusal = (!is_name(text, MAX_DISPLAY_NAME)).then_some(DestinationRefusal::Name);
    value_rules::accept_unless(refusal.map(problem_of))
}

async fn list(
    api: &Api,
    caller: &IdentifiedCaller,
    scope: DestinationScope,
    list: &ListRequest<NoFilter>,
) -> Result<HttpResponse, ApiError> {
    let page = api.services.notifications.list_destinations(caller, scope, list.paging()).await?;
    Ok(list.respond(&page.map(|destination| DestinationView::of(&destination))))
}

async fn create(
    api: &Api,
    caller: &IdentifiedCaller,
    scope: DestinationScope,
    idempotency: IdempotencyHeader,
    body: Body<NewDestination>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let new = body.into_inner();
    let draft = DestinationDraft {
        destination_type: parse_type(&new.destination_type)?,
        display_name: new.display_name,
        configuration: new.redacted_metadata,
        secret_ref: new.secret_ref,
        is_enabled: new.is_enabled.unwrap_or(true),
    };
    let outcome = api.services.notifications.create_destination(caller, scope, draft, key.as_ref()).await?;
    let view = DestinationView::of(&outcome.value);
    let segment = match scope {
        DestinationScope::Organization => "organization".to_owned(),
        DestinationScope::Workspace(id) => format!("workspaces/{}", id.uuid()),
    };
    let location = format!("/v1/notifications/{segment}/destinations/{}", view.destination_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.with_etag(outcome.value.revision).into_response())
}

fn respond(destination: &Destination) -> HttpResponse {
    let view = DestinationView::of(destination);
    ResourceResponse::ok(&view).with_etag(destination.revision).into_response()
}

async fn change(
    api: &Api,
    caller: &IdentifiedCaller,
    (scope, id): (DestinationScope, DestinationId),
    expected: &IfMatch,
    body: Body<DestinationChange>,
) -> Result<HttpResponse, ApiError> {
    let patch = body.into_inner().into();
    Ok(respond(&api.services.notifications.change_destination(caller, scope, id, &patch, expected).await?))
}

/// Lists the destinations of a workspace, newest first.
#[utoipa::path(
    operation_id = "list_workspace_destinations",
    tag = "notifications",
    params(("workspace_id" = Uuid, Path, description = "The workspace"), PageParams),
    responses((status = 200, description = "A page of destinations", body = Vec<DestinationView>), ReadRefusals)
)]
#[get("/v1/notifications/workspaces/{workspace_id}/destinations")]
pub(crate) async fn list_workspace_destinations(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workspace: PathId<WorkspaceId>,
    page: ListRequest<NoFilter>,
) -> Result<HttpResponse, ApiError> {
    list(&api, &caller, DestinationScope::Workspace(*workspace), &page).await
}

/// Creates a destination of a workspace, which can have at most 100. The address is checked at each delivery.
#[utoipa::path(
    operation_id = "create_workspace_destination",
    tag = "notifications",
    params(("workspace_id" = Uuid, Path, description = "The workspace"), IdempotencyKeyParams),
    request_body = NewDestination,
    responses((status = 201, description = "The destination", body = DestinationView), WriteRefusals)
)]
#[post("/v1/notifications/workspaces/{workspace_id}/destinations")]
pub(crate) async fn create_workspace_destination(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workspace: PathId<WorkspaceId>,
    idempotency: IdempotencyHeader,
    body: Body<NewDestination>,
) -> Result<HttpResponse, ApiError> {
    create(&api, &caller, DestinationScope::Workspace(*workspace), idempotency, body).await
}

/// Reads a destination of a workspace, without secrets.
#[utoipa::path(
    operation_id = "read_workspace_destination",
    tag = "notifications",
    params(
        ("workspace_id" = Uuid, Path, description = "The workspace"),
        ("destination_id" = Uuid, Path, description = "The destination"),
    ),
    responses((status = 200, description = "The destination", body = DestinationView), ReadRefusals)
)]
#[get("/v1/notifications/workspaces/{workspace_id}/destinations/{destination_id}")]
pub(crate) async fn read_workspace_destination(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkspaceId>, PathId<DestinationId>)>,
) -> Result<HttpResponse, ApiError> {
    let (workspace, id) = path.into_inner();
    Ok(respond(
        &api.services.notifications.read_destination(&caller, DestinationScope::Workspace(*workspace), *id).await?,
    ))
}

/// Changes a destination of a workspace.
#[utoipa::path(
    operation_id = "change_workspace_destination",
    tag = "notifications",
    params(
        ("workspace_id" = Uuid, Path, description = "The workspace"),
        ("destination_id" = Uuid, Path, description = "The destination"),
        IfMatchParams,
    ),
    request_body = DestinationChange,
    responses((status = 200, description = "The destination", body = DestinationView), RevisionRefusal, WriteRefusals)
)]
#[patch("/v1/notifications/workspaces/{workspace_id}/destinations/{destination_id}")]
pub(crate) async fn change_workspace_destination(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkspaceId>, PathId<DestinationId>)>,
    expected: IfMatch,
    body: Body<DestinationChange>,
) -> Result<HttpResponse, ApiError> {
    let (workspace, id) = path.into_inner();
    change(&api, &caller, (DestinationScope::Workspace(*workspace), *id), &expected, body).await
}

/// Deletes a destination of a workspace.
#[utoipa::path(
    operation_id = "delete_workspace_destination",
    tag = "notifications",
    params(
        ("workspace_id" = Uuid, Path, description = "The workspace"),
        ("destination_id" = Uuid, Path, description = "The destination"),
        IfMatchParams,
    ),
    responses((status = 204, description = "The destination is deleted"), RevisionRefusal, DeleteRefusals)
)]
#[delete("/v1/notifications/workspaces/{workspace_id}/destinations/{destination_id}")]
pub(crate) async fn delete_workspace_destination(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkspaceId>, PathId<DestinationId>)>,
    expected: IfMatch,
) -> Result<HttpResponse, ApiError> {
    let (workspace, id) = path.into_inner();
    let scope = DestinationScope::Workspace(*workspace);
    api.services.notifications.delete_destination(&caller, scope, *id, &expected).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Lists the destinations of the organization, newest first.
#[utoipa::path(
    operation_id = "list_organization_destinations",
    tag = "notifications",
    params(PageParams),
    responses((status = 200, description = "A page of destinations", body = Vec<DestinationView>), ReadRefusals)
)]
#[get("/v1/notifications/organization/destinations")]
pub(crate) async fn list_organization_destinations(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    page: ListRequest<NoFilter>,
) -> Result<HttpResponse, ApiError> {
    list(&api, &caller, DestinationScope::Organization, &page).await
}

/// Creates a destination of the organization, which can have at most 100. The address is checked at each delivery.
#[utoipa::path(
    operation_id = "create_organization_destination",
    tag = "notifications",
    params(IdempotencyKeyParams),
    request_body = NewDestination,
    responses((status = 201, description = "The destination", body = DestinationView), WriteRefusals)
)]
#[post("/v1/notifications/organization/destinations")]
pub(crate) async fn create_organization_destination(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    idempotency: IdempotencyHeader,
    body: Body<NewDestination>,
) -> Result<HttpResponse, ApiError> {
    create(&api, &caller, DestinationScope::Organization, idempotency, body).await
}

/// Reads a destination of the organization, without secrets.
#[utoipa::path(
    operation_id = "read_organization_destination",
    tag = "notifications",
    params(("destination_id" = Uuid, Path, description = "The destination")),
    responses((status = 200, description = "The destination", body = DestinationView), ReadRefusals)
)]
#[get("/v1/notifications/organization/destinations/{destination_id}")]
pub(crate) async fn read_organization_destination(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    id: PathId<DestinationId>,
) -> Result<HttpResponse, ApiError> {
    Ok(respond(&api.services.notifications.read_destination(&caller, DestinationScope::Organization, *id).await?))
}

/// Changes a destination of the organization.
#[utoipa::path(
    operation_id = "change_organization_destination",
    tag = "notifications",
    params(("destination_id" = Uuid, Path, description = "The destination"), IfMatchParams),
    request_body = DestinationChange,
    responses((status = 200, description = "The destination", body = DestinationView), RevisionRefusal, WriteRefusals)
)]
#[patch("/v1/notifications/organization/destinations/{destination_id}")]
pub(crate) async fn change_organization_destination(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    id: PathId<DestinationId>,
    expected: IfMatch,
    body: Body<DestinationChange>,
) -> Result<HttpResponse, ApiError> {
    change(&api, &caller, (DestinationScope::Organization, *id), &expected, body).await
}

/// Deletes a destination of the organization.
#[utoipa::path(
    operation_id = "delete_organization_destination",
    tag = "notifications",
    params(("destination_id" = Uuid, Path, description = "The destination"), IfMatchParams),
    responses((status = 204, description = "The destination is deleted"), RevisionRefusal, DeleteRefusals)
)]
#[delete("/v1/notifications/organization/destinations/{destination_id}")]
pub(crate) async fn delete_organization_destination(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    id: PathId<DestinationId>,
    expected: IfMatch,
) -> Result<HttpResponse, ApiError> {
    api.services.notifications.delete_destination(&caller, DestinationScope::Organization, *id, &expected).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// The result of a test message to a destination.
#[derive(Serialize, ToSchema)]
#[schema(as = DestinationTest)]
pub(crate) struct DestinationTestView {
    /// `sent` or `failed`.
    status: &'static str,
    /// Why the receiver did not accept the message: a code as in `last_error` of a delivery. Null for `sent`.
    error: Option<&'static str>,
    /// The HTTP or SMTP status of the receiver's response, if one arrived. The text of the response is never shown,
    /// because it may repeat the secret.
    response_status: Option<u16>,
    /// Time until the response, in milliseconds.
    duration_ms: u64,
}

async fn test(
    api: &Api,
    caller: &IdentifiedCaller,
    scope: DestinationScope,
    id: DestinationId,
) -> Result<HttpResponse, ApiError> {
    let DestinationTest { error, response_status, duration } =
        api.services.notifications.test_destination(caller, scope, id).await?;
    let status = if error.is_none() { DeliveryStatus::Sent } else { DeliveryStatus::Failed };
    let view = DestinationTestView {
        status: status.as_str(),
        error: error.map(DeliveryError::as_str),
        response_status,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    };
    Ok(ResourceResponse::ok(&view).into_response())
}

/// Sends a test message to a destination of a workspace, and waits for the receiver's response.
#[utoipa::path(
    operation_id = "test_workspace_destination",
    tag = "notifications",
    params(
        ("workspace_id" = Uuid, Path, description = "The workspace"),
        ("destination_id" = Uuid, Path, description = "The destination")
    ),
    responses((status = 200, description = "How the test ended", body = DestinationTestView), DeleteRefusals)
)]
#[post("/v1/notifications/workspaces/{workspace_id}/destinations/{destination_id}/test")]
pub(crate) async fn test_workspace_destination(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkspaceId>, PathId<DestinationId>)>,
) -> Result<HttpResponse, ApiError> {
    let (workspace, id) = path.into_inner();
    test(&api, &caller, DestinationScope::Workspace(*workspace), *id).await
}

/// Sends a test message to a destination of the organization, and waits for the receiver's response.
#[utoipa::path(
    operation_id = "test_organization_destination",
    tag = "notifications",
    params(("destination_id" = Uuid, Path, description = "The destination")),
    responses((status = 200, description = "How the test ended", body = DestinationTestView), DeleteRefusals)
)]
#[post("/v1/notifications/organization/destinations/{destination_id}/test")]
pub(crate) async fn test_organization_destination(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    id: PathId<DestinationId>,
) -> Result<HttpResponse, ApiError> {
    test(&api, &caller, DestinationScope::Organization, *id).await
}
