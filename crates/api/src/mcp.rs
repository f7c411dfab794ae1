//! The Model Context Protocol at `/mcp`, by its official SDK: the tools, for programs that speak it.
//!
//! Nothing is kept between two requests, whichever revision a client speaks: every request says who it is from like any
//! other, so there is no session that somebody else could take over, and any process may answer.

mod revision;
mod server;

pub(crate) use revision::REVISIONS;

use crate::{
    caller::Claimed,
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{body::Body, client_address::client_of, query, request_context::request_id},
};
use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{HeaderName, HeaderValue},
    },
    web,
};
use fairway_domain::slug::Slug;
use http_body_util::{BodyExt as _, Full};
use rmcp::{
    model::{ErrorCode, ProtocolVersion},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use server::Agent;
use std::sync::Arc;

/// The header by which servers that keep sessions name them.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Where workloads run whose environment nobody names.
const ENVIRONMENT: &str = "production";

/// How an agent is connected.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Connection {
    /// Where the workloads among its tools run.
    environment: Option<String>,
}

/// A message of JSON-RPC. Its own reader says what is wrong with it.
#[derive(Debug)]
struct Message;

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// The resource. It is no operation of the API's document: its messages have a document of their own.
pub(crate) fn resource() -> actix_web::Resource {
    web::resource("/mcp").route(web::post().to(exchange)).default_service(web::to(only_post))
}

/// Answers are whole, so there is no stream to open, and no session to end.
async fn only_post() -> Result<HttpResponse, ApiError> {
    Err(ApiError::method_not_allowed(Some(HeaderValue::from_static("POST"))))
}

async fn exchange(
    request: HttpRequest,
    api: web::Data<Api>,
    Claimed(claims): Claimed,
    body: Body<Message>,
) -> Result<HttpResponse, ApiError> {
    // No session is ever given out, so whoever names one means somebody else's, or another server's.
    if request.headers().contains_key(&SESSION) {
        return Err(ApiError::not_found());
    }
    let spoken = match revision::read(&request, body.document()) {
        Ok(spoken) => spoken,
        Err(unspoken) => return Ok(unspoken.told(body.document())),
    };
    let Connection { environment } = query::read(request.query_string())?;
    let environment = Slug::parse(environment.as_deref().unwrap_or(ENVIRONMENT))
        .map_err(|refusal| FieldProblem::new("environment", refusal.code(), "an environment is a slug"))?;
    if has_wrong_cursor(body.document()) {
        let rule = "a cursor is a text that this server handed out";
        return Ok(wrong(StatusCode::OK, body.document(), ErrorCode::INVALID_PARAMS, rule, Value::Null));
    }
    let address = client_of(&request);
    let agent = Agent::new(Api::clone(&api), claims, (request_id(), address), environment);
    // Hosts and origins are judged for every route alike, in front of this one.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts();
    let service =
        StreamableHttpService::new(move || Ok(agent.clone()), Arc::new(NeverSessionManager::default()), config);
    let answer = service.handle(foreign(&request, spoken.as_ref(), body.document().to_string())?).await;
    ours(answer, body.document()).await
}

/// Whether a request for a page of tools has a `cursor` that is no text, null included: the schema of the protocol has
/// `cursor?: string`. The SDK would take it for a request without one and answer the first page again.
fn has_wrong_cursor(document: &Value) -> bool {
    let is_request = document.get("id").is_some_and(|id| id.is_string() || id.is_number());
    let lists = document.get("method").is_some_and(|method| method == "tools/list");
    is_request && lists && document.pointer("/params/cursor").is_some_and(|cursor| !cursor.is_string())
}

/// The request in the types of the SDK. The body was read strictly, so it says the same to every reader. What opens other
/// doors stays outside: the SDK is handed the headers of the protocol and no others.
fn foreign(
    request: &HttpRequest,
    spoken: Option<&ProtocolVersion>,
    body: String,
) -> Result<http::Request<Full<bytes::Bytes>>, ApiError> {
    let mut made = http::Request::builder().method("POST").uri("/mcp");
    if let Some(spoken) = spoken {
        made = made.header(revision::HEADER.as_str(), spoken.as_str());
    }
    for (name, value) in request.headers() {
        let name = name.as_str();
        if name.starts_with("mcp-") || matches!(name, "host" | "accept" | "content-type") {
            made = made.header(name, value.as_bytes());
        }
    }
    made.body(Full::new(body.into())).map_err(|error| ApiError::internal().caused_by(&error))
}

/// What is wrong with a request as one of the protocol, in its own words; `data` that is null is left out.
fn wrong(status: StatusCode, document: &Value, code: ErrorCode, message: &'static str, data: Value) -> HttpResponse {
    let error = [("code", json!(code)), ("message", json!(message)), ("data", data)].into_iter();
    let error = error.filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value));
    let error = Map::from_iter(error);
    // A request that has a name is answered by it; names are texts and numbers.
    let id = document.get("id").filter(|id| id.is_string() || id.is_number());
    HttpResponse::build(status).json(json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

/// What the SDK refuses without saying why in a way that clients read. What it calls an unsupported media type is JSON that
/// is no message of JSON-RPC: types were judged before it.
fn refused(status: StatusCode, document: &Value) -> HttpResponse {
    let (message, status) = match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ("the body is no request of JSON-RPC 2.0", StatusCode::BAD_REQUEST),
        StatusCode::NOT_ACCEPTABLE => {
            ("the header `Accept` must name `application/json` and `text/event-stream`, both", status)
        }
        other => ("this is no request of the protocol", other),
    };
    wrong(status, document, ErrorCode::INVALID_REQUEST, message, Value::Null)
}

async fn ours<B>(answer: http::Response<B>, document: &Value) -> Result<HttpResponse, ApiError>
where
    B: http_body::Body<Data = bytes::Bytes, Error = std::convert::Infallible>,
{
    let (head, body) = answer.into_parts();
    let status = StatusCode::from_u16(head.status.as_u16()).map_err(|error| ApiError::internal().caused_by(&error))?;
    let kind = head.headers.get(http::header::CONTENT_TYPE);
    if status.is_client_error() && kind.is_none_or(|kind| kind != "application/json") {
        return Ok(refused(status, document));
    }
    let mut response = HttpResponse::build(status);
    for name in ["content-type", "allow"] {
        if let Some(value) = head.headers.get(name) {
            response.insert_header((name, value.as_bytes()));
        }
    }
    // Nothing is told before an answer is whole, so none is a stream.
    match body.collect().await {
        Ok(whole) => Ok(response.body(whole.to_bytes())),
        Err(never) => match never {},
    }
}
