//! The Model Context Protocol endpoint `/mcp`, built on the official SDK. It offers the tools to MCP clients.
//!
//! The endpoint is stateless in every revision. Each request identifies its caller like any other request. There is no
//! session to hijack, and any process can respond.

pub(crate) mod protected_resource_metadata;
mod revision;
mod server;

pub(crate) use revision::REVISIONS;

use crate::{
    caller::UnverifiedClaims,
    compose::Api,
    error::ApiError,
    http::{
        authentication::challenge, body::Body, client_address::client_of, query,
        request_id_log_and_metrics::request_id_or_new,
    },
    release::parse_environment,
};
use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{HeaderName, HeaderValue},
    },
    web,
};
use fairway_domain::access::ActorKind;
use http_body_util::{BodyExt as _, Full};
use rmcp::{
    model::{ErrorCode, ProtocolVersion},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use server::McpHandler;
use std::sync::Arc;
use validator::{Validate, ValidationErrors};

/// Session header of stateful MCP servers.
const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
/// Environment of the agent's workload tools if the connection names none.
const DEFAULT_ENVIRONMENT: &str = "production";

/// Query parameters of a connection.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectionQuery {
    /// Environment of the agent's workload tools.
    environment: Option<String>,
}

/// A JSON-RPC message. The SDK validates its content.
#[derive(Debug)]
struct JsonRpcMessage;

impl<'de> Deserialize<'de> for JsonRpcMessage {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// The route. The OpenAPI document omits it, because MCP defines the messages.
pub(crate) fn mcp_route() -> actix_web::Resource {
    web::resource("/mcp").route(web::post().to(handle_message)).default_service(web::to(refuse_other_methods))
}

/// Refuses other methods: there is no stream to open and no session to delete.
async fn refuse_other_methods() -> Result<HttpResponse, ApiError> {
    Err(ApiError::method_not_allowed(Some(HeaderValue::from_static("POST"))))
}

impl Validate for JsonRpcMessage {
    fn validate(&self) -> Result<(), ValidationErrors> {
        Ok(())
    }
}

async fn handle_message(
    request: HttpRequest,
    api: web::Data<Api>,
    UnverifiedClaims(claims): UnverifiedClaims,
    body: Body<JsonRpcMessage>,
) -> Result<HttpResponse, ApiError> {
    // An MCP client starts its authorization when it receives this response.
    if claims.actor.kind() == ActorKind::Anonymous
        && let Some(challenge) = challenge()
    {
        return Err(ApiError::unauthenticated(challenge));
    }
    // This server issues no sessions, so the id belongs to another server.
    if request.headers().contains_key(&SESSION_HEADER) {
        return Err(ApiError::not_found());
    }
    let revision = match revision::check_revision(&request, body.document()) {
        Ok(revision) => revision,
        Err(unsupported) => return Ok(unsupported.to_response(body.document())),
    };
    let ConnectionQuery { environment } = query::parse_query(request.query_string())?;
    let environment = parse_environment(environment.as_deref().unwrap_or(DEFAULT_ENVIRONMENT))?;
    if has_invalid_cursor(body.document()) {
        let rule = "a cursor must be a string from this server";
        return Ok(rpc_error(StatusCode::OK, body.document(), ErrorCode::INVALID_PARAMS, rule, Value::Null));
    }
    let address = client_of(&request);
    let handler = McpHandler::new(Api::clone(&api), claims, request_id_or_new(), address, environment);
    // The host check of the SDK is off, because the site guard checks hosts and origins of every route.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts();
    let service =
        StreamableHttpService::new(move || Ok(handler.clone()), Arc::new(NeverSessionManager::default()), config);
    let response = service.handle(to_sdk_request(&request, revision.as_ref(), body.document().to_string())?).await;
    from_sdk_response(response, body.document()).await
}

/// Whether a `tools/list` request has a non-string `cursor`, including null: the MCP schema has `cursor?: string`. The
/// SDK would ignore it and return the first page again.
fn has_invalid_cursor(document: &Value) -> bool {
    let is_request = document.get("id").is_some_and(|id| id.is_string() || id.is_number());
    let is_list = document.get("method").is_some_and(|method| method == "tools/list");
    is_request && is_list && document.pointer("/params/cursor").is_some_and(|cursor| !cursor.is_string())
}

/// Converts the request to the types of the SDK. The body was read strictly, so it is unambiguous. Only headers of the
/// protocol are passed, no credentials.
fn to_sdk_request(
    request: &HttpRequest,
    version: Option<&ProtocolVersion>,
    body: String,
) -> Result<http::Request<Full<bytes::Bytes>>, ApiError> {
    let mut builder = http::Request::builder().method("POST").uri("/mcp");
    if let Some(version) = version {
        builder = builder.header(revision::HEADER.as_str(), version.as_str());
    }
    for (name, value) in request.headers() {
        let name = name.as_str();
        if name.starts_with("mcp-") || matches!(name, "host" | "accept" | "content-type") {
            builder = builder.header(name, value.as_bytes());
        }
    }
    builder.body(Full::new(body.into())).map_err(|error| ApiError::internal().log_cause(&error))
}

/// A JSON-RPC error response; null `data` is omitted.
fn rpc_error(
    status: StatusCode,
    document: &Value,
    code: ErrorCode,
    message: &'static str,
    data: Value,
) -> HttpResponse {
    let error = [("code", json!(code)), ("message", json!(message)), ("data", data)].into_iter();
    let error = error.filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value));
    let error = Map::from_iter(error);
    // The response repeats the id of the request. Only a string or a number is a valid id.
    let id = document.get("id").filter(|id| id.is_string() || id.is_number());
    HttpResponse::build(status).json(json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

/// Replaces a non-JSON error response of the SDK. A 415 of the SDK means that the JSON is not a JSON-RPC message,
/// because the media type was checked before.
fn replace_sdk_error(status: StatusCode, document: &Value) -> HttpResponse {
    let (message, status) = match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ("the body is not a JSON-RPC 2.0 request", StatusCode::BAD_REQUEST),
        StatusCode::NOT_ACCEPTABLE => {
            ("the `Accept` header must list both `application/json` and `text/event-stream`", status)
        }
        other => ("the request is not valid in this protocol", other),
    };
    rpc_error(status, document, ErrorCode::INVALID_REQUEST, message, Value::Null)
}

async fn from_sdk_response<B>(sdk_response: http::Response<B>, document: &Value) -> Result<HttpResponse, ApiError>
where
    B: http_body::Body<Data = bytes::Bytes, Error = std::convert::Infallible>,
{
    let (head, body) = sdk_response.into_parts();
    let status = StatusCode::from_u16(head.status.as_u16()).map_err(|error| ApiError::internal().log_cause(&error))?;
    let kind = head.headers.get(http::header::CONTENT_TYPE);
    if status.is_client_error() && kind.is_none_or(|kind| kind != "application/json") {
        return Ok(replace_sdk_error(status, document));
    }
    let mut response = HttpResponse::build(status);
    for name in ["content-type", "allow"] {
        if let Some(value) = head.headers.get(name) {
            response.insert_header((name, value.as_bytes()));
        }
    }
    // Responses are complete JSON documents, never streams.
    match body.collect().await {
        Ok(collected) => Ok(response.body(collected.to_bytes())),
        Err(never) => match never {},
    }
}
