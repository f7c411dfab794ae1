//! Route of the records of notifications that were not delivered.

use super::SourceEventView;
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::paging::ListRequest,
    openapi::{PageParams, ReadRefusals},
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{
    id::{WorkloadId, WorkspaceId},
    notification::{preference::DecidingScope, projection::SuppressedDecision},
    store::Revision,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// The record that a notification was not delivered, because its recipient opted out or a setting is off.
#[derive(Serialize, ToSchema)]
#[schema(as = SuppressedDecision)]
pub(crate) struct SuppressedDecisionView {
    suppressed_decision_id: Uuid,
    recipient: String,
    category: &'static str,
    source_event: SourceEventView,
    reason_code: &'static str,
    /// The scope of the setting that decided; null where a setting of the tenant did.
    scope: Option<&'static str>,
    /// The revision of the settings that decided.
    revision: Option<i64>,
    workspace_id: Option<Uuid>,
    workload_id: Option<Uuid>,
    /// Digest of the record, which the fact `notification.suppressed` holds too.
    record_digest: String,
    /// Time of the fact.
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
            reason_code: decision.reason.as_str(),
            scope: decision.scope.map(DecidingScope::as_str),
            revision: decision.revision.map(Revision::get),
            workspace_id: decision.workspace_id.map(WorkspaceId::uuid),
            workload_id: decision.workload_id.map(WorkloadId::uuid),
            created_at: decision.created_at.to_string(),
            source_event: SourceEventView::new(decision.event_kind, decision.event_id),
        }
    }
}

/// Filters of the list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SuppressedQuery {
    /// Only records of this workspace. Default: all records that the caller may read.
    workspace_id: Option<Uuid>,
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
    let workspace = list.filter.workspace_id.map(Into::into);
    let page = api.services.notifications.list_suppressed_decisions(&caller, workspace, list.paging()).await?;
    Ok(list.respond(&page.map(SuppressedDecisionView::of)))
}
