//! Route of the audit log.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::paging::ListRequest,
    openapi::{PageParams, ReadRefusals},
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{
    audit::{AuditEvent, AuditFilter},
    id::WorkspaceId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Write as _;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// An event of the tenant's audit log.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEvent)]
pub(crate) struct AuditEventView {
    event_id: Uuid,
    /// Index in the log, from 0 without gaps.
    index: u64,
    /// Kind of the event, in the form `noun.what_happened`.
    kind: String,
    subject: SubjectView,
    actor: String,
    #[schema(format = DateTime)]
    occurred_at: String,
    request_id: Uuid,
    /// Notification categories: `executions`, `approvals`, `incidents`, `compliance_findings`, `reports`,
    /// `connector_health`, `credential_expiry`, `policy_changes`.
    categories: Vec<String>,
    /// SHA-256 of the event as a Merkle tree leaf (RFC 6962), in hex.
    leaf_hash: String,
    /// The workspace; null for an event outside workspaces.
    workspace_id: Option<Uuid>,
    /// Codes and digests of the event. Null for most kinds, whose detail is part of `leaf_hash` only.
    #[schema(value_type = Option<Object>)]
    detail: Option<Map<String, Value>>,
}

/// The resource that an event concerns.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditSubject)]
pub(crate) struct SubjectView {
    kind: String,
    id: Uuid,
}

impl AuditEventView {
    fn of(event: AuditEvent) -> Self {
        let mut leaf_hash = String::new();
        for byte in &event.leaf_hash {
            // Writing to a string cannot fail.
            let _ = write!(leaf_hash, "{byte:02x}");
        }
        Self {
            event_id: event.event_id.uuid(),
            index: event.index,
            kind: event.kind,
            subject: SubjectView { kind: event.subject_kind, id: event.subject_id },
            actor: event.actor,
            occurred_at: event.occurred_at.to_string(),
            request_id: event.request_id.uuid(),
            categories: event.categories,
            leaf_hash,
            workspace_id: event.workspace_id.map(WorkspaceId::uuid),
            detail: event.detail,
        }
    }
}

/// Filters of the list of audit events.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Only events of this workspace. By default all events that the caller may read: those of the tenant, or those
    /// of the namespaces, workspaces and workloads that the caller audits.
    workspace_id: Option<Uuid>,
    /// Only events about this resource.
    subject_id: Option<Uuid>,
}

/// Lists the events of the tenant's audit log, newest first.
#[utoipa::path(
    operation_id = "list_audit_events",
    tag = "audit",
    params(AuditQuery, PageParams),
    responses((status = 200, description = "A page of events", body = Vec<AuditEventView>), ReadRefusals)
)]
#[get("/v1/audit/events")]
pub(crate) async fn list_audit_events(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<AuditQuery>,
) -> Result<HttpResponse, ApiError> {
    let filter = AuditFilter { workspace: list.filter.workspace_id.map(Into::into), subject: list.filter.subject_id };
    let events = api.services.audit_log.list_audit_events(&caller, filter, list.paging()).await?;
    Ok(list.respond(&events.map(AuditEventView::of)))
}
