//! Route of the records of notifications that were not delivered.

use super::SourceEventView;
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::paging::ListRequest,
    openapi::{PageParams, ReadRefusals},
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{
    access::ActorRef,
    id::{WorkloadId, WorkspaceId},
    notification::{Channel, ports::SuppressedFilter, preference::DecidingScope, projection::SuppressedDecision},
    store::Revision,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// The record that a notification was not delivered, because a preference, a default profile or a setting of the tenant
/// is off.
#[derive(Serialize, ToSchema)]
#[schema(as = SuppressedDecision)]
pub(crate) struct SuppressedDecisionView {
    suppressed_decision_id: Uuid,
    recipient: String,
    category: &'static str,
    source_event: SourceEventView,
    reason_code: &'static str,
    /// Scope of the deciding preference; null if the tenant has disabled notifications.
    scope: Option<&'static str>,
    /// Revision of the deciding preference set.
    revision: Option<i64>,
    /// Channel of the deciding preference; null if the tenant has disabled notifications.
    channel: Option<&'static str>,
    /// The channels that were enabled but had no receiver, such as `email` without a verified address; empty if all
    /// channels were off.
    unreachable_channels: Vec<&'static str>,
    workspace_id: Option<Uuid>,
    workload_id: Option<Uuid>,
    /// SHA-256 of the record's canonical JSON (RFC 8785), without `record_digest` and `audit_event_id`.
    record_digest: String,
    /// The event of the audit log whose `detail.digest` is the record's digest at the time of the decision.
    audit_event_id: Uuid,
    /// Time of the source event.
    #[schema(format = DateTime)]
    created_at: String,
}

impl SuppressedDecisionView {
    fn of(decision: SuppressedDecision) -> Self {
        Self {
            suppressed_decision_id: decision.suppressed_decision_id.uuid(),
            recipient: decision.recipient.to_string(),
            category: decision.category.as_str(),
            record_digest: decision.digest(),
            audit_event_id: decision.suppression_fact_id().uuid(),
            reason_code: decision.reason.as_str(),
            scope: decision.scope.map(DecidingScope::as_str),
            revision: decision.revision.map(Revision::get),
            channel: decision.channel.map(Channel::as_str),
            unreachable_channels: decision.unreachable_channels.iter().map(|channel| channel.as_str()).collect(),
            workspace_id: decision.workspace_id.map(WorkspaceId::uuid),
            workload_id: decision.workload_id.map(WorkloadId::uuid),
            created_at: decision.created_at.to_string(),
            source_event: SourceEventView::new(decision.event_kind, decision.event_id),
        }
    }
}

/// Filters of the list of suppressed notifications.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SuppressedQuery {
    /// Only records of this workspace. Default: all records that the caller may read.
    workspace_id: Option<Uuid>,
    /// Only records of this recipient, such as `user:ada`.
    recipient: Option<String>,
    /// Only records about this event of the audit log.
    source_event_id: Option<Uuid>,
}

/// Lists the records of notifications that were not delivered, newest first.
#[utoipa::path(
    operation_id = "list_suppressed_decisions",
    tag = "notifications",
    params(SuppressedQuery, PageParams),
    responses((status = 200, description = "A page of records", body = Vec<SuppressedDecisionView>), ReadRefusals)
)]
#[get("/v1/notifications/suppressed-decisions")]
pub(crate) async fn list_suppressed_decisions(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<SuppressedQuery>,
) -> Result<HttpResponse, ApiError> {
    let mut fields = FieldErrors::default();
    let recipient = list.filter.recipient.as_deref();
    let recipient = recipient.map(|text| ActorRef::parse(text).map_err(|_| FieldProblem::invalid("recipient")));
    let recipient = fields.check(recipient.transpose());
    let filter = fields.finish(|| {
        Some(SuppressedFilter {
            workspace: list.filter.workspace_id.map(Into::into),
            recipient: recipient?,
            source_event: list.filter.source_event_id.map(Into::into),
        })
    })?;
    let page = api.services.notifications.list_suppressed_decisions(&caller, &filter, list.paging()).await?;
    Ok(list.respond(&page.map(SuppressedDecisionView::of)))
}
