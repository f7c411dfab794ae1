//! Tool calls over the Model Context Protocol. They use its official SDK, whose requests pass the egress guard.
//!
//! Each call uses its own session: it initializes the session, compares the tool with its pin (the digest that a
//! person reviewed), and calls the tool. Sessions are not reused, so that a tool cannot change between its check
//! and its call. Only connections are kept between calls.

use crate::{ToolAndHookClient, call_error, matches_hosts, replace_nul};
use fairway_domain::{
    asset::content::mcp_server::{McpSessionStartMethod, ToolPin},
    execution::{
        http_call::{HttpCallError, MAX_RESPONSE_BYTES},
        tool::{McpCall, McpError},
    },
    json,
    slug::Slug,
};
use fairway_egress::{
    EgressError, EgressRequest, EndpointClient, Method, StatusCode,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use rmcp::{
    ClientHandler, RoleClient, ServiceError,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
        ClientJsonRpcMessage, ClientRequest, ContentBlock, Implementation, PaginatedRequestParams, ProtocolVersion,
        ServerJsonRpcMessage, Tool,
    },
    service::{ClientInitializeError, ClientLifecycleMode, Peer, serve_client_with_lifecycle},
    transport::{
        StreamableHttpClientTransport,
        common::client_side_sse::NeverRetry,
        streamable_http_client::{
            SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
            StreamableHttpPostResponse,
        },
    },
};
use serde_json::Value;
use sse_stream::{Sse, SseStream};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Maximum size of one response, in bytes. It exceeds the limit of HTTP tools, because tool lists are longer than
/// tool results.
const MAX_LISTING_BYTES: usize = 1 << 20;
/// Maximum number of pages of a tool list that are read.
const MAX_PAGES: usize = 20;
/// The header whose value lets the server recognize a repeated call.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header that contains the server's session identifier.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

impl ToolAndHookClient {
    pub(crate) async fn call_mcp_tool(&self, tenant: &Slug, call: &McpCall) -> Result<Value, McpError> {
        let connection = &call.connection;
        for hosts in [&connection.allowed_hosts, &call.allowed_hosts].into_iter().flatten() {
            if !matches_hosts(hosts, &connection.url) {
                return Err(HttpCallError::Forbidden.into());
            }
        }
        let endpoint = self.endpoint(&connection.url, MAX_LISTING_BYTES);
        let endpoint = endpoint.map_err(|error| call_error(&call.call_id, error))?;
        let mut headers = HeaderMap::new();
        for (name, reference) in &connection.headers {
            let name = HeaderName::try_from(name.as_str()).map_err(|_| HttpCallError::Forbidden)?;
            headers.insert(name, self.secret_header(tenant, reference, "", Some(call.call_id.as_str())).await?);
        }
        if let Some(reference) = &connection.bearer {
            let value = self.secret_header(tenant, reference, "Bearer ", Some(call.call_id.as_str())).await?;
            headers.insert(header::AUTHORIZATION, value);
        }
        let idempotency_key = HeaderValue::from_str(&call.call_id).map_err(|_| HttpCallError::Forbidden)?;
        let transport = GuardedTransport { endpoint, headers, idempotency_key, failure: Arc::default() };
        let failure = Arc::clone(&transport.failure);
        run_session(transport, call).await.map_err(|error| match error {
            // The SDK reports only that the transport failed. The cause is in the record that the transport keeps.
            McpError::Call(HttpCallError::Truncated) => {
                let cause = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
                cause.unwrap_or(HttpCallError::Truncated).into()
            }
            McpError::Call(_) | McpError::Drifted(_) => error,
        })
    }
}

async fn run_session(guarded_transport: GuardedTransport, call: &McpCall) -> Result<Value, McpError> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(call.connection.url.as_str());
    config.retry_config = Arc::new(NeverRetry::default());
    config.reinit_on_expired_session = false;
    config.max_sse_event_size = MAX_LISTING_BYTES;
    let transport = StreamableHttpClientTransport::with_client(guarded_transport, config);
    let [handshake, discovery] = [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];
    let lifecycle = match call.connection.session_start {
        McpSessionStartMethod::Handshake => ClientLifecycleMode::Initialize,
        McpSessionStartMethod::Discovery => ClientLifecycleMode::Discover { preferred_versions: vec![discovery] },
    };
    let implementation = Implementation::new("fairway", env!("CARGO_PKG_VERSION"));
    let client_info =
        ClientInfo(ClientConfig::new(ClientCapabilities::default(), implementation).with_protocol_version(handshake));
    let session = serve_client_with_lifecycle(client_info, transport, lifecycle).await.map_err(|error| {
        tracing::info!(
            error_kind = init_error_name(&error),
            call_id = %call.call_id,
            "failed to start an MCP session; failing the tool call"
        );
        HttpCallError::Truncated
    })?;
    // This call does not wait for the end of the session, so that a slow server does not delay the result. The
    // SDK's background task ends the session within seconds after it was dropped.
    verify_and_call(session.peer(), call).await
}

async fn verify_and_call(peer: &Peer<RoleClient>, call: &McpCall) -> Result<Value, McpError> {
    if let (Some(agreed), Some(allowed_revisions)) = (peer.peer_info(), &call.connection.revisions)
        && !allowed_revisions.iter().any(|revision| revision == agreed.protocol_version.as_str())
    {
        return Err(HttpCallError::ErrorStatus.into());
    }
    let current_pin = find_tool(peer, call).await?;
    let current_pin = current_pin.and_then(|tool| {
        let schema = Value::Object(tool.input_schema.as_ref().clone());
        ToolPin::of(&tool.name, tool.description.as_deref().unwrap_or_default(), &schema)
    });
    if current_pin.as_ref() != Some(&call.pin) {
        return Err(McpError::Drifted(current_pin));
    }
    let params = CallToolRequestParams::new(call.tool.clone()).with_arguments(call.arguments.clone());
    match peer.call_tool_once(params).await.map_err(|error| session_error(&error, call))? {
        CallToolResponse::Complete(result) => Ok(result_value(result, call)?),
        // Both responses are refused: no user is available to provide input, and this client does not poll tasks.
        CallToolResponse::InputRequired(_) | CallToolResponse::Task(_) => Err(HttpCallError::ErrorStatus.into()),
        _ => Err(HttpCallError::Malformed.into()),
    }
}

async fn find_tool(peer: &Peer<RoleClient>, call: &McpCall) -> Result<Option<Tool>, McpError> {
    let (mut described_tool, mut cursor) = (None, None);
    for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let page = peer.list_tools(Some(params)).await.map_err(|error| session_error(&error, call))?;
        for tool in page.tools.into_iter().filter(|tool| tool.name == call.tool) {
            // If two tools have the same name, it is unknown which one the server would call, so none is called.
            if described_tool.replace(tool).is_some() {
                return Ok(None);
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(described_tool);
        }
    }
    // The list has more pages than the limit. It is refused, because an unread page may contain a second tool with
    // this name.
    Err(HttpCallError::TooLong.into())
}

/// The result of a tool: its structured content if present, otherwise its text. The size limit of HTTP results
/// applies.
fn result_value(result: CallToolResult, call: &McpCall) -> Result<Value, HttpCallError> {
    if result.is_error == Some(true) {
        tracing::info!(call_id = %call.call_id, "an MCP tool reported an error; failing the tool call");
        return Err(HttpCallError::ErrorStatus);
    }
    let value = match result.structured_content {
        Some(value) => value,
        None => {
            let texts = result.content.into_iter().map(|block| match block {
                ContentBlock::Text(text) => Ok(replace_nul(text.text)),
                ContentBlock::Image(_)
                | ContentBlock::Audio(_)
                | ContentBlock::Resource(_)
                | ContentBlock::ResourceLink(_) => Err(HttpCallError::Malformed),
                _ => Err(HttpCallError::Malformed),
            });
            Value::String(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
        }
    };
    let bytes = serde_json::to_vec(&value).map_err(|_| HttpCallError::Malformed)?;
    if bytes.len() > MAX_RESPONSE_BYTES {
        return Err(HttpCallError::TooLong);
    }
    // The strict reader refuses values that PostgreSQL cannot store.
    json::read(&bytes).map_err(|_| HttpCallError::Malformed)
}

/// Converts the failure of a request in a session. The log contains only the name of the failure, because other parts
/// may contain the server's text.
fn session_error(error: &ServiceError, call: &McpCall) -> HttpCallError {
    let (name, failure) = match error {
        ServiceError::McpError(_) => ("McpError", HttpCallError::ErrorStatus),
        ServiceError::UnexpectedResponse => ("UnexpectedResponse", HttpCallError::Malformed),
        ServiceError::TransportSend(_) => ("TransportSend", HttpCallError::Truncated),
        ServiceError::TransportClosed => ("TransportClosed", HttpCallError::Truncated),
        ServiceError::SubscriptionLagged { .. } => ("SubscriptionLagged", HttpCallError::Truncated),
        ServiceError::Cancelled { .. } => ("Cancelled", HttpCallError::Truncated),
        ServiceError::Timeout { .. } => ("Timeout", HttpCallError::Truncated),
        ServiceError::InputRequiredRoundsExceeded { .. } => ("InputRequiredRoundsExceeded", HttpCallError::Truncated),
        _ => ("unknown", HttpCallError::Truncated),
    };
    tracing::info!(
        error_kind = name,
        call_id = %call.call_id,
        "a request to an MCP server failed; failing the tool call"
    );
    failure
}

/// The name of an initialization failure, for the log. Other parts of the error may contain the server's text.
const fn init_error_name(error: &ClientInitializeError) -> &'static str {
    match error {
        ClientInitializeError::ExpectedInitResponse(_) => "ExpectedInitResponse",
        ClientInitializeError::ExpectedInitResult(_) => "ExpectedInitResult",
        ClientInitializeError::ConflictInitResponseId(..) => "ConflictInitResponseId",
        ClientInitializeError::UncorrelatedErrorResponse { .. } => "UncorrelatedErrorResponse",
        ClientInitializeError::ConnectionClosed(_) => "ConnectionClosed",
        ClientInitializeError::TransportError { .. } => "TransportError",
        ClientInitializeError::JsonRpcError(_) => "JsonRpcError",
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => "NoCompatibleProtocolVersion",
        ClientInitializeError::NoPreferredProtocolVersion => "NoPreferredProtocolVersion",
        ClientInitializeError::Cancelled => "Cancelled",
        ClientInitializeError::LegacyFallbackFailed { .. } => "LegacyFallbackFailed",
        _ => "unknown",
    }
}

/// Describes this client to servers. It declares no capabilities.
struct ClientInfo(ClientConfig);

impl ClientHandler for ClientInfo {
    fn get_info(&self) -> ClientConfig {
        self.0.clone()
    }
}

/// The transport of a session, which sends requests through the egress guard. No message is sent twice.
#[derive(Clone)]
struct GuardedTransport {
    endpoint: EndpointClient,
    headers: HeaderMap,
    /// The identifier of the tool call, by which the server recognizes a repeated call.
    idempotency_key: HeaderValue,
    /// The cause of the transport's first failure, which the SDK does not return.
    failure: Arc<Mutex<Option<HttpCallError>>>,
}

type McpTransportError = StreamableHttpError<EgressError>;

impl GuardedTransport {
    /// The identifier of the tool call, for logs.
    fn call_id(&self) -> &str {
        self.idempotency_key.to_str().unwrap_or_default()
    }

    fn record_failure(&self, cause: HttpCallError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(cause);
    }

    fn egress_failure(&self, error: EgressError) -> McpTransportError {
        self.record_failure(call_error(self.call_id(), error));
        StreamableHttpError::Client(error)
    }

    fn invalid_response(&self, cause: HttpCallError) -> McpTransportError {
        self.record_failure(cause);
        StreamableHttpError::UnexpectedServerResponse("an invalid response".into())
    }

    /// Refuses an event whose data is not strict JSON, for example because of duplicate member names. The SDK
    /// itself would skip unreadable data, and would use the last of two equal names. It ignores events of other
    /// types, so they are not checked.
    fn check_event(&self, event: Sse) -> Result<Sse, SseError> {
        if let (None | Some("" | "message"), Some(data)) = (event.event.as_deref(), event.data.as_deref())
            && !data.trim().is_empty()
            && let Err(refusal) = json::read(data.as_bytes())
        {
            self.record_failure(HttpCallError::Malformed);
            return Err(SseError::Body(Box::new(refusal)));
        }
        Ok(event)
    }

    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, McpTransportError> {
        let mut headers = self.headers.clone();
        headers.extend(custom_headers);
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(session) = session {
            let session =
                HeaderValue::from_str(&session).map_err(|_| self.invalid_response(HttpCallError::Malformed))?;
            headers.insert(SESSION, session);
        }
        if let ClientJsonRpcMessage::Request(request) = &message
            && let ClientRequest::CallToolRequest(_) = &request.request
        {
            // Only the request that calls the tool has the key. With the key on earlier requests of the session,
            // the server could return their responses as the result of the call.
            headers.insert(IDEMPOTENCY_KEY, self.idempotency_key.clone());
        }
        let body = serde_json::to_vec(&message)?;
        let call = EgressRequest { method: Method::POST, path: String::new(), headers, body: body.into() };
        let response = self.endpoint.send(call).await.map_err(|error| self.egress_failure(error))?;
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !status.is_success() {
            tracing::info!(
                call_id = self.call_id(),
                status = status.as_u16(),
                "an MCP server returned an error status; failing the tool call"
            );
            return Err(self.invalid_response(HttpCallError::ErrorStatus));
        }
        let session = response.headers().get(SESSION).and_then(|session| session.to_str().ok()).map(str::to_owned);
        let content_type = response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|content_type| content_type.to_str().ok())
            .unwrap_or_default();
        let content_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match content_type.as_str() {
            "text/event-stream" => {
                let transport = self.clone();
                let body = response.body().inspect_err(move |error| {
                    transport.record_failure(call_error(transport.call_id(), *error));
                });
                let transport = self.clone();
                let events = SseStream::from_bytes_stream(body).map(move |event| transport.check_event(event?));
                Ok(StreamableHttpPostResponse::Sse(events.boxed(), session))
            }
            "application/json" => {
                let body = response.read_all().await.map_err(|error| self.egress_failure(error))?;
                // The strict reader refuses duplicate member names, which are ambiguous.
                let document = json::read(&body).map_err(|_| self.invalid_response(HttpCallError::Malformed))?;
                let message: ServerJsonRpcMessage =
                    serde_json::from_value(document).map_err(|_| self.invalid_response(HttpCallError::Malformed))?;
                Ok(StreamableHttpPostResponse::Json(message, session))
            }
            _ if matches!(message, ClientJsonRpcMessage::Notification(_)) => Ok(StreamableHttpPostResponse::Accepted),
            _ => Err(self.invalid_response(HttpCallError::Malformed)),
        }
    }
}

impl StreamableHttpClient for GuardedTransport {
    type Error = EgressError;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, McpTransportError> {
        self.post(message, session, headers).await
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), McpTransportError> {
        let mut headers = self.headers.clone();
        headers.extend(custom_headers);
        let session = HeaderValue::from_str(&session).map_err(|_| self.invalid_response(HttpCallError::Malformed))?;
        headers.insert(SESSION, session);
        let call = EgressRequest { method: Method::DELETE, path: String::new(), headers, body: Vec::new().into() };
        self.endpoint.send(call).await.map(|_| ()).map_err(StreamableHttpError::Client)
    }

    /// Refuses a separate event stream: responses arrive with their requests, and an interrupted stream is not
    /// resumed.
    async fn get_stream(
        &self,
        _: Arc<str>,
        _: Option<Arc<str>>,
        _: Option<String>,
        _: Option<String>,
        _: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, McpTransportError> {
        Err(StreamableHttpError::ServerDoesNotSupportSse)
    }
}
