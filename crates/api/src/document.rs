//! The OpenAPI document, collected from the handlers.

mod headers;
mod pages;
mod words;

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

/// What every route shares.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Fairway",
        description = "Governs AI workloads: versions, releases, approvals, runs and their evidence.",
        version = "0.1.0",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "this server")),
    // Refusals are described apart from the handlers' answers, so nothing else brings their schema in.
    components(schemas(ErrorBody)),
    paths(pages::read_document, pages::read_reference, pages::read_page),
    modifiers(&Callers),
    // Who says nothing is the person in front of the server.
    security((), ("actor" = []), ("actor" = [], "tenant" = [])),
    tags(
        (name = "tenants", description = "Tenants, workspaces, roles and who holds them"),
        (name = "assets", description = "Governed assets, their immutable versions, and flows"),
        (name = "workloads", description = "Named runnable units"),
        (name = "releases", description = "Versions bound to a workload, reviewed, approved and live"),
        (name = "executions", description = "Runs and the evidence behind them"),
        (name = "audit", description = "The log of everything that happened"),
        (name = "service", description = "Whether the service lives and how it does"),
    ),
)]
pub(crate) struct Base;

/// How callers say who they are.
struct Callers;

impl Modify for Callers {
    fn modify(&self, document: &mut OpenApiDocument) {
        let told = "A server in local mode believes who a caller says to be: `user:<name>`, `service:<name>` or `anonymous`; \
            without the header, the person in front of it speaks, `user:local`.";
        let actor = ApiKey::Header(ApiKeyValue::with_description("X-Actor-Ref", told));
        let told = "The tenant that a request is about, by its identifier. It is needed by callers who hold roles in more than \
            one; others are in the tenant of their roles.";
        let tenant = ApiKey::Header(ApiKeyValue::with_description("X-Tenant-Id", told));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("actor", SecurityScheme::ApiKey(actor));
        components.add_security_scheme("tenant", SecurityScheme::ApiKey(tenant));
    }
}

/// The whole document.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = app::collected();
    words::add(&mut document);
    headers::add(&mut document);
    let_bodies_be_absent(&mut document);
    document
}

/// An absent body counts as an empty object, so where nothing is required of one it may be absent.
fn let_bodies_be_absent(document: &mut OpenApiDocument) {
    let Some(components) = document.components.clone() else { return };
    let asks_for_nothing = |content: &Content| {
        let Some(RefOr::Ref(schema)) = &content.schema else { return false };
        let name = schema.ref_location.rsplit('/').next().unwrap_or_default();
        matches!(components.schemas.get(name), Some(RefOr::T(Schema::Object(object))) if object.required.is_empty())
    };
    for operation in document.paths.paths.values_mut().flat_map(operations_mut) {
        if let Some(RefOr::T(body)) = &mut operation.request_body {
            let mut contents = body.content.values();
            let absent = contents.all(|content| matches!(content, RefOr::T(content) if asks_for_nothing(content)));
            if absent {
                body.required = Some(Required::False);
            }
        }
    }
}

/// The operations of a path, each with the method that asks for it.
pub(crate) fn operations(item: &PathItem) -> impl Iterator<Item = (&'static str, &Operation)> {
    let all = [
        ("GET", &item.get),
        ("PUT", &item.put),
        ("POST", &item.post),
        ("DELETE", &item.delete),
        ("PATCH", &item.patch),
    ];
    all.into_iter().filter_map(|(method, operation)| operation.as_ref().map(|operation| (method, operation)))
}

/// The same, to add to them.
fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch].into_iter().flatten()
}

/// The document as it stands in `docs/openapi.json`.
///
/// # Errors
/// When it cannot be written as JSON, which a document of texts always can.
pub fn as_json() -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(&document())?;
    text.push('\n');
    Ok(text)
}

/// What a refused request is answered with.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub(crate) struct ErrorBody {
    detail: ErrorDetail,
    /// The request's identifier, as in the header `X-Request-Id`.
    request_id: uuid::Uuid,
}

/// What was refused, and why. Some refusals say more in further members.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// A stable code, such as `not_found`.
    error: String,
    /// The same for people.
    message: String,
    /// Fields that cannot be as they are.
    #[schema(required = false)]
    fields: Option<Vec<ErrorField>>,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    more: Map<String, Value>,
}

/// One field that cannot be as it is.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorField {
    /// Where: `interface_config.input_fields[0].type`.
    path: String,
    /// What, as a code.
    code: String,
    /// What, for people.
    message: String,
}

/// Refusals that every read can meet.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only their description is used")]
pub(crate) enum ReadRefusals {
    /// The request breaks a rule of HTTP
    #[response(status = 400)]
    Malformed(ErrorBody),
    /// A share token opens nothing here, or one is needed
    #[response(status = 401)]
    NoToken(ErrorBody),
    /// The caller lacks a permission
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// There is no such thing, or the caller may not see it
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// The request took too long to arrive
    #[response(status = 408)]
    TooSlow(ErrorBody),
    /// The request's host is not answered here
    #[response(status = 421)]
    Misdirected(ErrorBody),
    /// A parameter or header is wrong
    #[response(status = 422)]
    Invalid(ErrorBody),
    /// The request's head is too long
    #[response(status = 431)]
    HeadTooLarge(ErrorBody),
    /// A fault of the server
    #[response(status = 500)]
    Internal(ErrorBody),
    /// A dependency is away; try again after `Retry-After`
    #[response(status = 503)]
    Unavailable(ErrorBody),
}

/// Refusals that every write with a body can meet.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only their description is used")]
pub(crate) enum WriteRefusals {
    /// The request breaks a rule of HTTP, its body is no JSON within bounds, or its content is not allowed
    #[response(status = 400)]
    Malformed(ErrorBody),
    /// A share token opens nothing here, or one is needed
    #[response(status = 401)]
    NoToken(ErrorBody),
    /// The caller lacks a permission, or another site's page sent the request
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// There is no such thing, or the caller may not see it
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// The request took too long to arrive
    #[response(status = 408)]
    TooSlow(ErrorBody),
    /// It is taken, has moved, or its state does not allow this
    #[response(status = 409)]
    Conflict(ErrorBody),
    /// The body is too large
    #[response(status = 413)]
    TooLarge(ErrorBody),
    /// The body is not unencoded JSON
    #[response(status = 415)]
    UnsupportedMediaType(ErrorBody),
    /// The request's host is not answered here
    #[response(status = 421)]
    Misdirected(ErrorBody),
    /// A field, parameter or header is wrong, or something that is needed is missing
    #[response(status = 422)]
    Invalid(ErrorBody),
    /// The request's head is too long
    #[response(status = 431)]
    HeadTooLarge(ErrorBody),
    /// A fault of the server
    #[response(status = 500)]
    Internal(ErrorBody),
    /// A dependency is away; try again after `Retry-After`
    #[response(status = 503)]
    Unavailable(ErrorBody),
}

/// Refusals that every removal can meet.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only their description is used")]
pub(crate) enum DeleteRefusals {
    /// The request breaks a rule of HTTP
    #[response(status = 400)]
    Malformed(ErrorBody),
    /// A share token opens nothing here, or one is needed
    #[response(status = 401)]
    NoToken(ErrorBody),
    /// The caller lacks a permission, or another site's page sent the request
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// There is no such thing, or the caller may not see it
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// The request took too long to arrive
    #[response(status = 408)]
    TooSlow(ErrorBody),
    /// It is taken, has moved, or its state does not allow this
    #[response(status = 409)]
    Conflict(ErrorBody),
    /// The request's host is not answered here
    #[response(status = 421)]
    Misdirected(ErrorBody),
    /// A parameter or header is wrong
    #[response(status = 422)]
    Invalid(ErrorBody),
    /// The request's head is too long
    #[response(status = 431)]
    HeadTooLarge(ErrorBody),
    /// A fault of the server
    #[response(status = 500)]
    Internal(ErrorBody),
    /// A dependency is away; try again after `Retry-After`
    #[response(status = 503)]
    Unavailable(ErrorBody),
}

/// The refusal of a write that names the revision that it expects.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum RevisionRefusal {
    /// The resource is not at the revision of `If-Match`
    #[response(status = 412)]
    PreconditionFailed(ErrorBody),
}

/// Refusals that probes can meet: nobody is asked who they are.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only their description is used")]
pub(crate) enum ServiceRefusals {
    /// The request breaks a rule of HTTP
    #[response(status = 400)]
    Malformed(ErrorBody),
    /// The request took too long to arrive
    #[response(status = 408)]
    TooSlow(ErrorBody),
    /// The request's host is not answered here
    #[response(status = 421)]
    Misdirected(ErrorBody),
    /// The request's head is too long
    #[response(status = 431)]
    HeadTooLarge(ErrorBody),
    /// A fault of the server
    #[response(status = 500)]
    Internal(ErrorBody),
}

/// Which page of a list.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only their description is used")]
pub(crate) struct PageParams {
    /// Rows to answer with.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// Rows to skip. The further, the slower; the cursor is as fast at any depth.
    #[param(minimum = 0, maximum = 10_000, default = 0)]
    offset: Option<u32>,
    /// Where the page begins, as the header `Link` of the page before says it; instead of `offset`, with the same
    /// filters.
    cursor: Option<String>,
}

/// The key under which a request has one effect however often it is sent.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct KeyParams {
    /// The same key with the same body finds the effect of the first request.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
}

/// What opens a runtime interface to whoever holds a share link, in the query or in a header.
pub(crate) struct TokenParams;

impl IntoParams for TokenParams {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let of = |name: &str, place, told: &str| {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let parameter = ParameterBuilder::new().name(name).parameter_in(place).required(Required::False);
            parameter.description(Some(told)).schema(Some(text)).build()
        };
        vec![
            of("token", ParameterIn::Query, "The token of a share link, for whoever follows one"),
            of(
                "X-Share-Token",
                ParameterIn::Header,
                "The same, where it is not to stand in an address; one of both is enough",
            ),
        ]
    }
}

/// The revision that a request expects.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct IfMatchParams {
    /// Entity tags of `ETag`; 412 when the resource is at none of them.
    #[param(rename = "If-Match")]
    if_match: Option<String>,
}
