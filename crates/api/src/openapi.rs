//! The OpenAPI document, collected from the handlers.

mod constraints;
mod document_and_page_descriptions;
#[cfg(test)]
mod documented_bounds_tests;
mod response_headers;

use crate::app;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::{
    IntoParams, IntoResponses, Modify, OpenApi, ToSchema,
    openapi::{
        Content, OpenApi as OpenApiDocument, PathItem, RefOr, Required, Schema,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn},
        schema::{ObjectBuilder, Type},
        security::{ApiKey, ApiKeyValue, SecurityScheme},
    },
};

/// The parts of the OpenAPI document that no handler describes.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Fairway",
        description = "Control plane for AI workloads: versions, releases, approvals, runs and their evidence.",
        version = "0.1.0",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "this server")),
    // Error responses are described outside the handlers, so their schema is added explicitly.
    components(schemas(ErrorBody)),
    paths(
        document_and_page_descriptions::read_document,
        document_and_page_descriptions::read_reference,
        document_and_page_descriptions::read_page,
    ),
    modifiers(&IdentitySchemes),
    // A request without identity headers comes from the local user.
    security((), ("actor" = []), ("actor" = [], "tenant" = [])),
    tags(
        (name = "tenants", description = "Tenants, workspaces, roles and role bindings"),
        (name = "assets", description = "Governed assets, their immutable versions, and flows"),
        (name = "workloads", description = "Named runnable units"),
        (name = "releases", description = "Versions bound to a workload: review, approval, activation, rollout"),
        (name = "executions", description = "Runs and their evidence"),
        (name = "use cases", description = "Use cases, connections and access requests"),
        (name = "notifications", description = "Inboxes, preferences, and records of what was not delivered"),
        (name = "audit", description = "The audit log"),
        (name = "service", description = "Health, readiness and metrics of the service"),
    ),
)]
pub(crate) struct BaseDocument;

/// Adds the security schemes of the identity headers.
struct IdentitySchemes;

impl Modify for IdentitySchemes {
    fn modify(&self, document: &mut OpenApiDocument) {
        let description = "The identity of the caller, which a server in local mode trusts: `user:<name>`, `service:<name>` \
            or `anonymous`. Default: `user:local`.";
        let actor = ApiKey::Header(ApiKeyValue::with_description("X-Actor-Ref", description));
        let description = "The identifier of the tenant. Required for callers with roles in several tenants; for others the \
            tenant of their roles applies.";
        let tenant = ApiKey::Header(ApiKeyValue::with_description("X-Tenant-Id", description));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("actor", SecurityScheme::ApiKey(actor));
        components.add_security_scheme("tenant", SecurityScheme::ApiKey(tenant));
    }
}

/// Builds the complete OpenAPI document.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = app::collect_openapi();
    constraints::add(&mut document);
    response_headers::add(&mut document);
    mark_optional_bodies(&mut document);
    document
}

/// Marks bodies without required members as optional, because an absent body counts as an empty object.
fn mark_optional_bodies(document: &mut OpenApiDocument) {
    let Some(components) = document.components.clone() else { return };
    let allows_empty = |content: &Content| {
        let Some(RefOr::Ref(schema)) = &content.schema else { return false };
        let name = schema.ref_location.rsplit('/').next().unwrap_or_default();
        matches!(components.schemas.get(name), Some(RefOr::T(Schema::Object(object))) if object.required.is_empty())
    };
    for operation in document.paths.paths.values_mut().flat_map(operations_mut) {
        if let Some(RefOr::T(body)) = &mut operation.request_body {
            let mut contents = body.content.values();
            let may_be_absent = contents.all(|content| matches!(content, RefOr::T(content) if allows_empty(content)));
            if may_be_absent {
                body.required = Some(Required::False);
            }
        }
    }
}

/// The operations of a path, each with its method.
pub fn operations(item: &PathItem) -> impl Iterator<Item = (&'static str, &Operation)> {
    let methods = [
        ("GET", &item.get),
        ("PUT", &item.put),
        ("POST", &item.post),
        ("DELETE", &item.delete),
        ("PATCH", &item.patch),
    ];
    methods.into_iter().filter_map(|(method, operation)| operation.as_ref().map(|operation| (method, operation)))
}

/// Mutable access to the operations of a path.
fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch].into_iter().flatten()
}

/// The text of `docs/openapi.json`.
///
/// # Errors
/// When the document cannot be serialized as JSON.
pub fn as_json() -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(&document())?;
    text.push('\n');
    Ok(text)
}

/// The body of an error response.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub(crate) struct ErrorBody {
    detail: ErrorDetail,
    /// The identifier of the request, as in the `X-Request-Id` header.
    request_id: uuid::Uuid,
}

/// The error. Some errors have further members.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// A stable code, such as `not_found`.
    error: String,
    /// A human-readable message.
    message: String,
    /// The invalid fields, if the error concerns fields.
    #[schema(required = false)]
    fields: Option<Vec<ErrorField>>,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    more: Map<String, Value>,
}

/// A problem of a field.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorField {
    /// Path of the field, such as `interface_config.input_fields[0].type`.
    path: String,
    /// Stable code of the problem.
    code: String,
    /// Human-readable message.
    message: String,
}

/// Error responses of every read.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only their description is used")]
pub(crate) enum ReadRefusals {
    /// The request is not valid HTTP
    #[response(status = 400)]
    Malformed(ErrorBody),
    /// The request has no valid identity or share token
    #[response(status = 401)]
    NoToken(ErrorBody),
    /// The caller lacks a permission
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// The resource does not exist or is not visible to the caller
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// The request took too long to arrive
    #[response(status = 408)]
    TooSlow(ErrorBody),
    /// The server does not serve the requested host
    #[response(status = 421)]
    Misdirected(ErrorBody),
    /// A parameter or header is invalid
    #[response(status = 422)]
    Invalid(ErrorBody),
    /// The request's head is too long
    #[response(status = 431)]
    HeadTooLarge(ErrorBody),
    /// The server failed
    #[response(status = 500)]
    Internal(ErrorBody),
    /// A dependency is unavailable; try again after `Retry-After`
    #[response(status = 503)]
    Unavailable(ErrorBody),
}

/// Error responses of every write with a body.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only their description is used")]
pub(crate) enum WriteRefusals {
    /// The request is not valid HTTP, its body is not valid JSON, or its content is invalid
    #[response(status = 400)]
    Malformed(ErrorBody),
    /// The request has no valid identity or share token
    #[response(status = 401)]
    NoToken(ErrorBody),
    /// The caller lacks a permission, or the request is cross-site
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// The resource does not exist or is not visible to the caller
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// The request took too long to arrive
    #[response(status = 408)]
    TooSlow(ErrorBody),
    /// The name is taken, the resource has changed, or its state does not allow the operation
    #[response(status = 409)]
    Conflict(ErrorBody),
    /// The body is too large
    #[response(status = 413)]
    TooLarge(ErrorBody),
    /// The body is not unencoded JSON
    #[response(status = 415)]
    UnsupportedMediaType(ErrorBody),
    /// The server does not serve the requested host
    #[response(status = 421)]
    Misdirected(ErrorBody),
    /// A field, parameter or header is invalid or missing
    #[response(status = 422)]
    Invalid(ErrorBody),
    /// The request's head is too long
    #[response(status = 431)]
    HeadTooLarge(ErrorBody),
    /// The server failed
    #[response(status = 500)]
    Internal(ErrorBody),
    /// A dependency is unavailable; try again after `Retry-After`
    #[response(status = 503)]
    Unavailable(ErrorBody),
}

/// Error responses of every deletion.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only their description is used")]
pub(crate) enum DeleteRefusals {
    /// The request is not valid HTTP
    #[response(status = 400)]
    Malformed(ErrorBody),
    /// The request has no valid identity or share token
    #[response(status = 401)]
    NoToken(ErrorBody),
    /// The caller lacks a permission, or the request is cross-site
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// The resource does not exist or is not visible to the caller
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// The request took too long to arrive
    #[response(status = 408)]
    TooSlow(ErrorBody),
    /// The name is taken, the resource has changed, or its state does not allow the operation
    #[response(status = 409)]
    Conflict(ErrorBody),
    /// The server does not serve the requested host
    #[response(status = 421)]
    Misdirected(ErrorBody),
    /// A parameter or header is invalid
    #[response(status = 422)]
    Invalid(ErrorBody),
    /// The request's head is too long
    #[response(status = 431)]
    HeadTooLarge(ErrorBody),
    /// The server failed
    #[response(status = 500)]
    Internal(ErrorBody),
    /// A dependency is unavailable; try again after `Retry-After`
    #[response(status = 503)]
    Unavailable(ErrorBody),
}

/// The error response of a conditional write.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum RevisionRefusal {
    /// The resource is not at the revision of `If-Match`
    #[response(status = 412)]
    PreconditionFailed(ErrorBody),
}

/// Error responses of probes and documents, which need no identity.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only their description is used")]
pub(crate) enum RefusalsWithoutIdentity {
    /// The request is not valid HTTP
    #[response(status = 400)]
    Malformed(ErrorBody),
    /// The request took too long to arrive
    #[response(status = 408)]
    TooSlow(ErrorBody),
    /// The server does not serve the requested host
    #[response(status = 421)]
    Misdirected(ErrorBody),
    /// The request's head is too long
    #[response(status = 431)]
    HeadTooLarge(ErrorBody),
    /// The server failed
    #[response(status = 500)]
    Internal(ErrorBody),
}

/// Parameters that select a page of a list.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only their description is used")]
pub(crate) struct PageParams {
    /// Maximum rows of the page.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// Rows to skip. Large offsets are slow; a cursor has constant cost.
    #[param(minimum = 0, maximum = 10_000, default = 0)]
    offset: Option<u32>,
    /// Start of the page, from the `Link` header of the previous page. Excludes `offset` and requires the same filters.
    cursor: Option<String>,
}

/// The idempotency key of a request.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct IdempotencyKeyParams {
    /// A repeat with the same key and body has no effect. It returns the status and the present resource.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
}

/// Parameters with a share token, in the query or in a header.
pub(crate) struct ShareTokenParams;

impl IntoParams for ShareTokenParams {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let token_parameter = |name: &str, location, description: &str| {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let parameter = ParameterBuilder::new().name(name).parameter_in(location).required(Required::False);
            parameter.description(Some(description)).schema(Some(text)).build()
        };
        vec![
            token_parameter("token", ParameterIn::Query, "The token of a share link"),
            token_parameter(
                "X-Share-Token",
                ParameterIn::Header,
                "The token of a share link, as an alternative to the query parameter",
            ),
        ]
    }
}

/// The precondition of a request.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct IfMatchParams {
    /// Entity tags from `ETag`; 412 if the resource matches none of them.
    #[param(rename = "If-Match")]
    if_match: Option<String>,
}
