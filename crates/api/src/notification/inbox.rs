//! Routes of the caller's inbox.

use super::{SourceEventView, parse_category};
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{body::Body, etag::IfMatch, idempotency::IdempotencyHeader, paging::ListRequest, path::PathId},
    openapi::{IdempotencyKeyParams, IfMatchParams, PageParams, ReadRefusals, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult},
};
use actix_web::{HttpResponse, get, http::StatusCode, patch, post, web};
use fairway_domain::{
    id::NotificationId,
    notification::{
        inbox::{InboxStatus, Notification},
        ports::InboxFilter,
    },
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::Validate;

/// A notification in the caller's inbox.
#[derive(Serialize, ToSchema)]
#[schema(as = Notification)]
pub(crate) struct NotificationView {
    notification_id: Uuid,
    status: &'static str,
    category: &'static str,
    severity: &'static str,
    /// The title, in one line.
    title: String,
    /// Text of codes and identifiers. It names the actor if the recipient may see the subject.
    body: String,
    source_event: SourceEventView,
    workspace_id: Option<Uuid>,
    workload_id: Option<Uuid>,
    environment: Option<String>,
    /// Path of the console's page about the subject; null if there is no such page.
    link: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    /// Time of the first read; null while unread.
    #[schema(format = DateTime)]
    read_at: Option<String>,
}

impl NotificationView {
    pub(super) fn of(notification: &Notification) -> Self {
        Self {
            notification_id: notification.notification_id.uuid(),
            status: notification.status.as_str(),
            category: notification.category.as_str(),
            severity: notification.severity.as_str(),
            title: notification.title.clone(),
            body: notification.body.clone(),
            source_event: SourceEventView::new(notification.event_kind.clone(), notification.event_id),
            workspace_id: notification.workspace_id.map(fairway_domain::id::WorkspaceId::uuid),
            workload_id: notification.workload_id.map(fairway_domain::id::WorkloadId::uuid),
            environment: notification.environment.clone(),
            link: notification.link.clone(),
            created_at: notification.created_at.to_string(),
            read_at: notification.read_at.map(|at| at.to_string()),
        }
    }
}

/// Filters of the inbox.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct InboxQuery {
    /// Only notifications in this status: `unread`, `read` or `archived`.
    status: Option<String>,
    /// Only notifications of this category.
    category: Option<String>,
}

/// The new status of a notification.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxStatusChange {
    /// `unread`, `read` or `archived`.
    #[validate(custom(function = status_rule))]
    status: String,
}

/// Number of the caller's unread notifications.
#[derive(Serialize, ToSchema)]
#[schema(as = UnreadCount)]
pub(crate) struct UnreadCountView {
    /// Number of unread notifications, up to 10001. Notifications that arrive during the request may be missing.
    unread_count: u64,
}

fn parse_status(text: &str) -> Result<InboxStatus, FieldProblem> {
    InboxStatus::parse(text).ok_or_else(|| FieldProblem::invalid("status"))
}

fn status_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_status(text))
}

/// Lists the caller's notifications, newest first.
#[utoipa::path(
    operation_id = "list_inbox",
    tag = "notifications",
    params(InboxQuery, PageParams),
    responses((status = 200, description = "A page of notifications", body = Vec<NotificationView>), ReadRefusals)
)]
#[get("/v1/notifications/inbox")]
pub(crate) async fn list_inbox(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<InboxQuery>,
) -> Result<HttpResponse, ApiError> {
    let mut fields = FieldErrors::default();
    let status = fields.check(list.filter.status.as_deref().map(parse_status).transpose());
    let category = list.filter.category.as_deref().map(|text| parse_category("category", text));
    let category = fields.check(category.transpose());
    let filter = fields.finish(|| Some(InboxFilter { status: status?, category: category? }))?;
    let page = api.services.notifications.list_inbox(&caller, filter, list.paging()).await?;
    Ok(list.respond(&page.map(|notification| NotificationView::of(&notification))))
}

/// Sets the status of a notification of the caller.
#[utoipa::path(
    operation_id = "change_inbox_status",
    tag = "notifications",
    params(("notification_id" = Uuid, Path, description = "The notification"), IfMatchParams),
    request_body = InboxStatusChange,
    responses((status = 200, description = "The notification", body = NotificationView), RevisionRefusal, WriteRefusals)
)]
#[patch("/v1/notifications/inbox/{notification_id}")]
pub(crate) async fn change_inbox_status(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    notification: PathId<NotificationId>,
    expected: IfMatch,
    body: Body<InboxStatusChange>,
) -> Result<HttpResponse, ApiError> {
    let status = parse_status(&body.status)?;
    let changed = api.services.notifications.change_inbox_status(&caller, *notification, status, &expected).await?;
    Ok(ResourceResponse::ok(&NotificationView::of(&changed)).with_etag(changed.revision).into_response())
}

/// Empty body of a request to mark all notifications as read.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadAllRequest {}

/// Marks all notifications of the caller as read.
#[utoipa::path(
    operation_id = "mark_inbox_read",
    tag = "notifications",
    params(IdempotencyKeyParams),
    request_body = ReadAllRequest,
    responses((status = 200, description = "The unread notifications afterwards", body = UnreadCountView), WriteRefusals)
)]
#[post("/v1/notifications/inbox/read-all")]
pub(crate) async fn mark_inbox_read(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    idempotency: IdempotencyHeader,
    body: Body<ReadAllRequest>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let outcome = api.services.notifications.mark_all_read(&caller, key.as_ref()).await?;
    let view = UnreadCountView { unread_count: outcome.value };
    Ok(ResourceResponse::idempotent(&outcome, &view, StatusCode::OK)?.into_response())
}
