//! Routes of delivery health: deliveries outside the inbox, and manual retries.

use super::SourceEventView;
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{body::Body, idempotency::IdempotencyHeader, paging::ListRequest, path::PathId},
    openapi::{IdempotencyKeyParams, PageParams, ReadRefusals, WriteRefusals},
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, http::StatusCode, post, web};
use fairway_domain::{
    id::{DeliveryId, DestinationId, WorkloadId, WorkspaceId},
    notification::{
        delivery::{Delivery, DeliveryError, DeliveryStatus},
        ports::DeliveryFilter,
    },
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::Validate;

/// A delivery of a notification outside the inbox.
#[derive(Serialize, ToSchema)]
#[schema(as = Delivery)]
pub(crate) struct DeliveryView {
    delivery_id: Uuid,
    channel: &'static str,
    /// The shared destination; null for a delivery to a person.
    destination_id: Option<Uuid>,
    /// The person; null for a delivery to a destination.
    recipient: Option<String>,
    /// `pending`, `claimed`, `sent`, `failed`, `suppressed` (the tenant disabled notifications or the required advanced
    /// tier) or `cancelled` (the destination was disabled or deleted).
    status: &'static str,
    attempt_count: u32,
    /// Time of the next attempt; null unless the delivery is pending.
    #[schema(format = DateTime)]
    next_retry_at: Option<String>,
    /// Why the last attempt failed: `no_address`, `mail_not_configured`, `address_refused`, `secret_unavailable`,
    /// `connection_failed`, `timed_out`, `redirected`, `rejected` or `receiver_failed`. The server stores no text
    /// of a receiver.
    last_error: Option<&'static str>,
    /// The HTTP or SMTP status of the last response.
    last_response_status: Option<u16>,
    category: &'static str,
    source_event: SourceEventView,
    workspace_id: Option<Uuid>,
    workload_id: Option<Uuid>,
    /// Time of the source event.
    #[schema(format = DateTime)]
    created_at: String,
    /// Time at which the receiver accepted the message; null until then.
    #[schema(format = DateTime)]
    sent_at: Option<String>,
}

impl DeliveryView {
    fn of(delivery: &Delivery) -> Self {
        Self {
            delivery_id: delivery.delivery_id.uuid(),
            channel: delivery.channel.as_str(),
            destination_id: delivery.target.destination().map(DestinationId::uuid),
            recipient: delivery.target.person().map(ToString::to_string),
            status: delivery.status.as_str(),
            attempt_count: delivery.attempts,
            next_retry_at: delivery.next_attempt_at.map(|at| at.to_string()),
            last_error: delivery.last_error.map(DeliveryError::as_str),
            last_response_status: delivery.last_response_status,
            category: delivery.category.as_str(),
            source_event: SourceEventView::new(delivery.event_kind.clone(), delivery.event_id),
            workspace_id: delivery.workspace_id.map(WorkspaceId::uuid),
            workload_id: delivery.workload_id.map(WorkloadId::uuid),
            created_at: delivery.created_at.to_string(),
            sent_at: delivery.sent_at.map(|at| at.to_string()),
        }
    }
}

/// Filters of the list of deliveries.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeliveryQuery {
    /// Only deliveries about facts of this workspace. Default: all deliveries that the caller may see.
    workspace_id: Option<Uuid>,
    /// Only deliveries in this status, such as `failed`.
    status: Option<String>,
    /// Only deliveries to this destination.
    destination_id: Option<Uuid>,
}

/// Lists deliveries outside the inbox, newest first.
#[utoipa::path(
    operation_id = "list_deliveries",
    tag = "notifications",
    params(DeliveryQuery, PageParams),
    responses((status = 200, description = "A page of deliveries", body = Vec<DeliveryView>), ReadRefusals)
)]
#[get("/v1/notifications/deliveries")]
pub(crate) async fn list_deliveries(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<DeliveryQuery>,
) -> Result<HttpResponse, ApiError> {
    let mut fields = FieldErrors::default();
    let status = list.filter.status.as_deref();
    let status = status.map(|text| DeliveryStatus::parse(text).ok_or_else(|| FieldProblem::invalid("status")));
    let status = fields.check(status.transpose());
    let filter = fields.finish(|| {
        Some(DeliveryFilter {
            workspace: list.filter.workspace_id.map(Into::into),
            status: status?,
            destination: list.filter.destination_id.map(Into::into),
        })
    })?;
    let page = api.services.notifications.list_deliveries(&caller, filter, list.paging()).await?;
    Ok(list.respond(&page.map(|delivery| DeliveryView::of(&delivery))))
}

/// Empty body of a request to retry a delivery.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveryRetry {}

/// Attempts a failed delivery once more.
#[utoipa::path(
    operation_id = "retry_delivery",
    tag = "notifications",
    params(("delivery_id" = Uuid, Path, description = "The delivery"), IdempotencyKeyParams),
    request_body = DeliveryRetry,
    responses((status = 200, description = "The delivery, which is pending again", body = DeliveryView), WriteRefusals)
)]
#[post("/v1/notifications/deliveries/{delivery_id}/retry")]
pub(crate) async fn retry_delivery(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    id: PathId<DeliveryId>,
    idempotency: IdempotencyHeader,
    body: Body<DeliveryRetry>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let outcome = api.services.notifications.retry_delivery(&caller, *id, key.as_ref()).await?;
    let view = DeliveryView::of(&outcome.value);
    Ok(ResourceResponse::idempotent(&outcome, &view, StatusCode::OK)?.into_response())
}
