//! Routes of access requests.

use crate::{
    asset::WorkspaceQuery,
    caller::IdentifiedCaller,
    compose::Api,
    connection::{bindings_rule, endpoint_rule, kind_rule, parse_bindings, parse_kind},
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        body::Body, etag::IfMatch, idempotency::IdempotencyHeader, paging::ListRequest, path::PathId, query::Query,
    },
    note_field::parse_note,
    openapi::{IdempotencyKeyParams, IfMatchParams, PageParams, ReadRefusals, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
    use_case::credential_problem,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, get, http::StatusCode, post, web};
use fairway_domain::{
    access_request::{AccessRequest, AccessRequestStatus, GrantedSettings},
    connection::MAX_ENDPOINT_CHARS,
    id::{AccessRequestId, ConnectionId},
    note::{MAX_NOTE_CHARS, Note},
};
use fairway_operations::MaybeReplayed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::Validate;

/// A request for access to a connection.
#[derive(Serialize, ToSchema)]
#[schema(as = AccessRequest)]
pub(crate) struct AccessRequestView {
    access_request_id: Uuid,
    workspace_id: Uuid,
    use_case_id: Uuid,
    connection_name: String,
    /// `pending`, `granted`, `denied` or `withdrawn`.
    status: &'static str,
    /// The granted connection; null unless the request is granted.
    connection_id: Option<Uuid>,
    /// Reason of the denial, if one was given.
    reason: Option<String>,
    requested_by: String,
    #[schema(format = DateTime)]
    created_at: String,
    /// Null while the request is pending.
    decided_by: Option<String>,
    #[schema(format = DateTime)]
    decided_at: Option<String>,
}

impl AccessRequestView {
    fn of(request: &AccessRequest) -> Self {
        Self {
            access_request_id: request.access_request_id.uuid(),
            workspace_id: request.workspace_id.uuid(),
            use_case_id: request.use_case_id.uuid(),
            connection_name: request.connection_name.clone(),
            status: request.status.as_str(),
            connection_id: request.connection_id.map(ConnectionId::uuid),
            reason: request.reason.as_ref().map(|reason| Note::as_str(reason).to_owned()),
            requested_by: request.requested_by.to_string(),
            created_at: request.created_at.to_string(),
            decided_by: request.decided_by.as_ref().map(ToString::to_string),
            decided_at: request.decided_at.map(|at| at.to_string()),
        }
    }
}

/// Filters of the list of access requests.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AccessRequestQuery {
    /// The workspace; default the workspace that your roles determine.
    workspace_id: Option<Uuid>,
    /// Only requests in this status: `pending`, `granted`, `denied` or `withdrawn`.
    status: Option<String>,
}

/// The connection to grant. Absent fields of an existing connection stay unchanged.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessGrant {
    /// Secret references by name, such as `env:NAME`, `file:name` or `vault:path#key`. Never secrets.
    #[validate(custom(function = bindings_rule))]
    secret_bindings: Option<BTreeMap<String, String>>,
    /// `http`, `postgres`, `s3`, `smtp` or `other`; default `other` for a new connection.
    #[validate(custom(function = kind_rule))]
    connector_kind: Option<String>,
    /// The address of the system, without credentials.
    #[schema(min_length = 1, max_length = 2000)]
    #[validate(length(min = 1, max = limit(MAX_ENDPOINT_CHARS)), custom(function = endpoint_rule))]
    endpoint: Option<String>,
}

/// Denial of an access request.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessDenial {
    /// The reason, for the author of the use case.
    #[schema(max_length = 2000)]
    #[validate(length(max = limit(MAX_NOTE_CHARS)), custom(function = reason_rule))]
    reason: Option<String>,
}

fn reason_rule(text: &str) -> RuleResult {
    value_rules::accept_unless(parse_note("reason", Some(text)).err().or_else(|| credential_problem("reason", text)))
}

fn parse_status(text: &str) -> Result<AccessRequestStatus, FieldProblem> {
    AccessRequestStatus::parse(text).ok_or_else(|| FieldProblem::invalid("status"))
}

fn respond(outcome: &MaybeReplayed<AccessRequest>) -> Result<HttpResponse, ApiError> {
    let view = AccessRequestView::of(&outcome.value);
    Ok(ResourceResponse::idempotent(outcome, &view, StatusCode::OK)?.with_etag(outcome.value.revision).into_response())
}

/// Lists the access requests of a workspace, newest first.
#[utoipa::path(
    operation_id = "list_access_requests",
    tag = "use cases",
    params(AccessRequestQuery, PageParams),
    responses((status = 200, description = "A page of requests", body = Vec<AccessRequestView>), ReadRefusals)
)]
#[get("/v1/access-requests")]
pub(crate) async fn list_access_requests(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<AccessRequestQuery>,
) -> Result<HttpResponse, ApiError> {
    let status = list.filter.status.as_deref().map(parse_status).transpose()?;
    let workspace = list.filter.workspace_id.map(Into::into);
    let requests = api.services.access_requests.list_access_requests(&caller, workspace, status, list.paging()).await?;
    Ok(list.respond(&requests.map(|request| AccessRequestView::of(&request))))
}

/// Grants an access request.
///
/// Creates the connection, or changes the named settings of an existing one and makes it usable. The last grant of
/// a use case activates the use case and withdraws its other requests.
#[utoipa::path(
    operation_id = "grant_access_request",
    tag = "use cases",
    params(("access_request_id" = Uuid, Path, description = "The request"), WorkspaceQuery, IdempotencyKeyParams, IfMatchParams),
    request_body = AccessGrant,
    responses(
        (status = 200, description = "The granted request", body = AccessRequestView), RevisionRefusal, WriteRefusals
    )
)]
#[post("/v1/access-requests/{access_request_id}/grant")]
pub(crate) async fn grant_access_request(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    request: PathId<AccessRequestId>,
    query: Query<WorkspaceQuery>,
    idempotency: IdempotencyHeader,
    expected: IfMatch,
    body: Body<AccessGrant>,
) -> Result<HttpResponse, ApiError> {
    let workspace = query.resolve_with_body(None)?;
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let AccessGrant { secret_bindings, connector_kind, endpoint } = body.into_inner();
    let mut fields = FieldErrors::default();
    let kind = fields.check(connector_kind.as_deref().map(parse_kind).transpose());
    let secret_bindings = fields.check(secret_bindings.map(parse_bindings).transpose());
    let settings =
        fields.finish(|| Some(GrantedSettings { secret_bindings: secret_bindings?, kind: kind?, endpoint }))?;
    let requests = &api.services.access_requests;
    respond(&requests.grant_access_request(&caller, *request, workspace, settings, &expected, key.as_ref()).await?)
}

/// Denies an access request. Its use case stays `pending_access`.
#[utoipa::path(
    operation_id = "deny_access_request",
    tag = "use cases",
    params(("access_request_id" = Uuid, Path, description = "The request"), WorkspaceQuery, IdempotencyKeyParams, IfMatchParams),
    request_body = AccessDenial,
    responses((status = 200, description = "The denied request", body = AccessRequestView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/access-requests/{access_request_id}/deny")]
pub(crate) async fn deny_access_request(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    request: PathId<AccessRequestId>,
    query: Query<WorkspaceQuery>,
    idempotency: IdempotencyHeader,
    expected: IfMatch,
    body: Body<AccessDenial>,
) -> Result<HttpResponse, ApiError> {
    let workspace = query.resolve_with_body(None)?;
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let reason = parse_note("reason", body.reason.as_deref())?;
    let requests = &api.services.access_requests;
    respond(&requests.deny_access_request(&caller, *request, workspace, reason, &expected, key.as_ref()).await?)
}
