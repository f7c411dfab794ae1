//! Routes of connections.

use crate::{
    asset::WorkspaceQuery,
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        body::{Body, deserialize_present},
        etag::IfMatch,
        idempotency::IdempotencyHeader,
        paging::ListRequest,
        path::PathId,
        query::Query,
    },
    openapi::{
        DeleteRefusals, IdempotencyKeyParams, IfMatchParams, PageParams, ReadRefusals, RevisionRefusal, WriteRefusals,
    },
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, delete, get, http::StatusCode, patch, post, web};
use fairway_domain::{
    connection::{
        Connection, ConnectionCheck, ConnectionPatch, ConnectionRefusal, ConnectionStatus, ConnectorKind,
        MAX_ENDPOINT_CHARS, MAX_NAME_CHARS, NewConnection, SecretBindings, check_endpoint, check_name,
    },
    id::ConnectionId,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::{Validate, ValidationError};

/// A named external system of a workspace.
#[derive(Serialize, ToSchema)]
#[schema(as = Connection)]
pub(crate) struct ConnectionView {
    connection_id: Uuid,
    workspace_id: Uuid,
    name: String,
    /// `http`, `postgres`, `s3`, `smtp` or `other`.
    connector_kind: &'static str,
    /// The address of the system; null if there is none.
    endpoint: Option<String>,
    /// Secret references by name. The secrets themselves are stored nowhere in Fairway.
    secret_bindings: BTreeMap<String, String>,
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// `active` or `disabled`.
    status: &'static str,
    /// `unchecked`, `healthy`, `unhealthy` or `not_checkable`.
    health: &'static str,
    /// Code of the reason for the health; null if there is none.
    health_code: Option<String>,
    #[schema(format = DateTime)]
    checked_at: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

/// Result of one check of a connection's endpoint.
#[derive(Serialize, ToSchema)]
#[schema(as = ConnectionCheck)]
pub(crate) struct ConnectionCheckView {
    connection_check_id: Uuid,
    /// `healthy`, `unhealthy` or `not_checkable`.
    health: &'static str,
    /// Code of the reason for the health; null if the endpoint is healthy.
    health_code: Option<String>,
    #[schema(format = DateTime)]
    checked_at: String,
    checked_by: String,
}

/// A connection with its latest checks.
#[derive(Serialize, ToSchema)]
#[schema(as = ConnectionDetail)]
pub(crate) struct ConnectionDetailView {
    #[serde(flatten)]
    connection: ConnectionView,
    /// The latest 20 checks, newest first.
    checks: Vec<ConnectionCheckView>,
}

impl ConnectionView {
    fn of(connection: &Connection) -> Self {
        Self {
            connection_id: connection.connection_id.uuid(),
            workspace_id: connection.workspace_id.uuid(),
            name: connection.name.clone(),
            connector_kind: connection.kind.as_str(),
            endpoint: connection.endpoint.clone(),
            secret_bindings: connection.secret_bindings.as_map().clone(),
            expires_at: connection.expires_at.map(|at| at.to_string()),
            status: connection.status.as_str(),
            health: connection.health.state.as_str(),
            health_code: connection.health.code.clone(),
            checked_at: connection.health.checked_at.map(|at| at.to_string()),
            created_at: connection.created_at.to_string(),
            created_by: connection.created_by.to_string(),
            updated_at: connection.updated_at.to_string(),
        }
    }
}

impl ConnectionDetailView {
    fn of((connection, checks): &(Connection, Vec<ConnectionCheck>)) -> Self {
        let check = |check: &ConnectionCheck| ConnectionCheckView {
            connection_check_id: check.connection_check_id.uuid(),
            health: check.health.as_str(),
            health_code: check.code.clone(),
            checked_at: check.checked_at.to_string(),
            checked_by: check.checked_by.to_string(),
        };
        Self { connection: ConnectionView::of(connection), checks: checks.iter().map(check).collect() }
    }
}

/// A connection to create in a workspace.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[schema(as = NewConnection)]
pub(crate) struct NewConnectionBody {
    /// Name that is unique in the workspace: one line of at most 100 characters.
    #[schema(min_length = 1, max_length = 100)]
    #[validate(length(min = 1, max = limit(MAX_NAME_CHARS)), custom(function = name_rule))]
    name: String,
    /// `http`, `postgres`, `s3`, `smtp` or `other`.
    #[validate(custom(function = kind_rule))]
    connector_kind: String,
    /// The address of the system, without credentials.
    #[schema(min_length = 1, max_length = 2000)]
    #[validate(length(min = 1, max = limit(MAX_ENDPOINT_CHARS)), custom(function = endpoint_rule))]
    endpoint: Option<String>,
    /// Secret references by name, such as `env:NAME`, `file:name` or `vault:path#key`. Never secrets.
    #[validate(custom(function = bindings_rule))]
    secret_bindings: Option<BTreeMap<String, String>>,
    /// Time at which the connection's credentials expire.
    #[schema(format = DateTime)]
    #[validate(custom(function = time_rule))]
    expires_at: Option<String>,
    /// `active` or `disabled`; default `active`.
    #[validate(custom(function = status_rule))]
    status: Option<String>,
    /// The workspace of the connection; default the workspace that your roles determine.
    workspace_id: Option<Uuid>,
}

/// Fields of a connection to replace; absent fields stay unchanged.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConnectionChange {
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = String, min_length = 1, max_length = 100)]
    #[validate(length(min = 1, max = limit(MAX_NAME_CHARS)), custom(function = name_rule))]
    name: Option<String>,
    /// `http`, `postgres`, `s3`, `smtp` or `other`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = String)]
    #[validate(custom(function = kind_rule))]
    connector_kind: Option<String>,
    /// The new address of the system, or null to remove the address.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = Option<String>)]
    endpoint: Option<Option<String>>,
    /// The new secret references by name. They replace all previous ones.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = BTreeMap<String, String>)]
    #[validate(custom(function = bindings_rule))]
    secret_bindings: Option<BTreeMap<String, String>>,
    /// The new expiry of the credentials, or null to remove the expiry.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = Option<String>, format = DateTime)]
    expires_at: Option<Option<String>>,
    /// `active` or `disabled`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = String)]
    #[validate(custom(function = status_rule))]
    status: Option<String>,
}

impl ConnectionChange {
    fn parse(self) -> Result<ConnectionPatch, ApiError> {
        let mut fields = FieldErrors::default();
        let kind = self.connector_kind.as_deref().and_then(|text| fields.check(parse_kind(text)));
        let status = self.status.as_deref().and_then(|text| fields.check(parse_status(text)));
        let secret_bindings = self.secret_bindings.and_then(|bindings| fields.check(parse_bindings(bindings)));
        if let Some(Some(endpoint)) = &self.endpoint {
            fields.check(check_endpoint(endpoint).map_err(field_problem));
        }
        let expires_at = match self.expires_at {
            None => None,
            Some(None) => Some(None),
            Some(Some(text)) => fields.check(parse_time(&text)).map(Some),
        };
        let (name, endpoint) = (self.name, self.endpoint);
        fields.finish(|| Some(ConnectionPatch { name, kind, endpoint, secret_bindings, expires_at, status }))
    }
}

/// Empty body of a request to check a connection.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckRequest {}

/// Filters of the list of connections.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ConnectionListQuery {
    /// The workspace; default the workspace that your roles determine.
    workspace_id: Option<Uuid>,
}

pub(crate) fn field_problem(refusal: ConnectionRefusal) -> FieldProblem {
    FieldProblem::new(refusal.field(), refusal.code(), refusal.to_string())
}

pub(crate) fn parse_kind(text: &str) -> Result<ConnectorKind, FieldProblem> {
    ConnectorKind::parse(text).ok_or_else(|| FieldProblem::invalid("connector_kind"))
}

fn parse_status(text: &str) -> Result<ConnectionStatus, FieldProblem> {
    ConnectionStatus::parse(text).ok_or_else(|| FieldProblem::invalid("status"))
}

fn parse_time(text: &str) -> Result<Timestamp, FieldProblem> {
    Timestamp::parse(text).ok_or_else(|| FieldProblem::invalid("expires_at"))
}

pub(crate) fn parse_bindings(bindings: BTreeMap<String, String>) -> Result<SecretBindings, FieldProblem> {
    SecretBindings::new(bindings).map_err(field_problem)
}

fn name_rule(text: &str) -> RuleResult {
    value_rules::accept(check_name(text).map_err(field_problem))
}

pub(crate) fn endpoint_rule(text: &str) -> RuleResult {
    value_rules::accept(check_endpoint(text).map_err(field_problem))
}

pub(crate) fn kind_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_kind(text))
}

fn status_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_status(text))
}

fn time_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_time(text))
}

pub(crate) fn bindings_rule(bindings: &BTreeMap<String, String>) -> Result<(), ValidationError> {
    value_rules::accept(parse_bindings(bindings.clone()))
}

/// Lists the connections of a workspace, newest first.
#[utoipa::path(
    operation_id = "list_connections",
    tag = "use cases",
    params(ConnectionListQuery, PageParams),
    responses((status = 200, description = "A page of connections", body = Vec<ConnectionView>), ReadRefusals)
)]
#[get("/v1/connections")]
pub(crate) async fn list_connections(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<ConnectionListQuery>,
) -> Result<HttpResponse, ApiError> {
    let workspace = list.filter.workspace_id.map(Into::into);
    let connections = api.services.connections.list_connections(&caller, workspace, list.paging()).await?;
    Ok(list.respond(&connections.map(|connection| ConnectionView::of(&connection))))
}

/// Creates a connection. Its secrets are references, never values.
#[utoipa::path(
    operation_id = "create_connection",
    tag = "use cases",
    params(WorkspaceQuery, IdempotencyKeyParams),
    request_body = NewConnectionBody,
    responses((status = 201, description = "The new connection", body = ConnectionView), WriteRefusals)
)]
#[post("/v1/connections")]
pub(crate) async fn create_connection(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    idempotency: IdempotencyHeader,
    query: Query<WorkspaceQuery>,
    body: Body<NewConnectionBody>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || query.digest(body.digest()));
    let new = body.into_inner();
    let mut fields = FieldErrors::default();
    let workspace = fields.check(query.resolve_with_body(new.workspace_id));
    let kind = fields.check(parse_kind(&new.connector_kind));
    let status = fields.check(new.status.as_deref().map_or(Ok(ConnectionStatus::Active), parse_status));
    let secret_bindings = fields.check(parse_bindings(new.secret_bindings.unwrap_or_default()));
    let expires_at = fields.check(new.expires_at.as_deref().map(parse_time).transpose());
    let (name, endpoint) = (new.name, new.endpoint);
    let (workspace, new) = fields.finish(|| {
        let (kind, status, secret_bindings) = (kind?, status?, secret_bindings?);
        let new = NewConnection { name, kind, endpoint, secret_bindings, expires_at: expires_at?, status };
        Some((workspace?, new))
    })?;
    let outcome = api.services.connections.create_connection(&caller, workspace, new, key.as_ref()).await?;
    let view = ConnectionView::of(&outcome.value);
    let location = format!("/v1/connections/{}", view.connection_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.with_etag(outcome.value.revision).into_response())
}

/// Reads a connection with its latest checks.
#[utoipa::path(
    operation_id = "read_connection",
    tag = "use cases",
    params(("connection_id" = Uuid, Path, description = "The connection"), WorkspaceQuery),
    responses((status = 200, description = "The connection", body = ConnectionDetailView), ReadRefusals)
)]
#[get("/v1/connections/{connection_id}")]
pub(crate) async fn read_connection(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    connection: PathId<ConnectionId>,
    query: Query<WorkspaceQuery>,
) -> Result<HttpResponse, ApiError> {
    let workspace = query.resolve_with_body(None)?;
    let detail = api.services.connections.read_connection(&caller, *connection, workspace).await?;
    Ok(ResourceResponse::ok(&ConnectionDetailView::of(&detail)).with_etag(detail.0.revision).into_response())
}

/// Changes a connection. A new kind, endpoint or secret reference resets its health to `unchecked`.
#[utoipa::path(
    operation_id = "change_connection",
    tag = "use cases",
    params(("connection_id" = Uuid, Path, description = "The connection"), WorkspaceQuery, IfMatchParams),
    request_body = ConnectionChange,
    responses(
        (status = 200, description = "The changed connection", body = ConnectionView), RevisionRefusal, WriteRefusals
    )
)]
#[patch("/v1/connections/{connection_id}")]
pub(crate) async fn change_connection(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    connection: PathId<ConnectionId>,
    query: Query<WorkspaceQuery>,
    expected: IfMatch,
    body: Body<ConnectionChange>,
) -> Result<HttpResponse, ApiError> {
    let workspace = query.resolve_with_body(None)?;
    let patch = body.into_inner().parse()?;
    let connections = &api.services.connections;
    let changed = connections.change_connection(&caller, *connection, workspace, &patch, &expected).await?;
    Ok(ResourceResponse::ok(&ConnectionView::of(&changed)).with_etag(changed.revision).into_response())
}

/// Deletes a connection. Its checks are kept.
#[utoipa::path(
    operation_id = "delete_connection",
    tag = "use cases",
    params(("connection_id" = Uuid, Path, description = "The connection"), WorkspaceQuery),
    responses((status = 204, description = "The connection is deleted"), DeleteRefusals)
)]
#[delete("/v1/connections/{connection_id}")]
pub(crate) async fn delete_connection(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    connection: PathId<ConnectionId>,
    query: Query<WorkspaceQuery>,
) -> Result<HttpResponse, ApiError> {
    let workspace = query.resolve_with_body(None)?;
    api.services.connections.delete_connection(&caller, *connection, workspace).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Checks the endpoint of a connection, and records the result.
#[utoipa::path(
    operation_id = "check_connection",
    tag = "use cases",
    params(("connection_id" = Uuid, Path, description = "The connection"), WorkspaceQuery, IdempotencyKeyParams),
    request_body = CheckRequest,
    responses((status = 200, description = "The connection with its new health", body = ConnectionDetailView), WriteRefusals)
)]
#[post("/v1/connections/{connection_id}/check")]
pub(crate) async fn check_connection(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    connection: PathId<ConnectionId>,
    query: Query<WorkspaceQuery>,
    idempotency: IdempotencyHeader,
    body: Body<CheckRequest>,
) -> Result<HttpResponse, ApiError> {
    let workspace = query.resolve_with_body(None)?;
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let outcome = api.services.connections.check_connection(&caller, *connection, workspace, key.as_ref()).await?;
    let view = ConnectionDetailView::of(&outcome.value);
    Ok(ResourceResponse::idempotent(&outcome, &view, StatusCode::OK)?
        .with_etag(outcome.value.0.revision)
        .into_response())
}
