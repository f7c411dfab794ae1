//! An HTTP client for tests. Its failure messages contain the request and the response.

use super::Fixtures;
use crate::assert_documented_status_and_headers;
use reqwest::{
    Method,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::Value;
use std::{
    fmt,
    future::{Future, IntoFuture},
    net::SocketAddr,
    pin::Pin,
    time::Duration,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Timeout of a request; only a hanging server reaches it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A client for one server. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    http: reqwest::Client,
    database: String,
}

/// A request that is sent when awaited.
#[derive(Clone)]
#[must_use = "a request is sent when awaited"]
pub struct Request {
    client: Client,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// A response with its request line for failure messages.
#[derive(Clone)]
pub struct Response {
    /// The HTTP status code, such as 404.
    pub status: u16,
    /// The response headers as received.
    pub headers: HeaderMap,
    /// The response body as received.
    pub body: Vec<u8>,
    request_line: String,
}

impl Request {
    /// The HTTP method of the request.
    #[must_use]
    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    /// The path with the query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Replaces the path and the query.
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// The body as text.
    #[must_use]
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    /// Creates a client for a server at this address. `database` is the URL of that server's database.
    ///
    /// # Errors
    /// When the HTTP client cannot be built.
    pub fn new(address: SocketAddr, database: String) -> anyhow::Result<Self> {
        crate::install_crypto_provider();
        let http = reqwest::Client::builder()
            .no_proxy()
            .tcp_nodelay(true)
            .timeout(REQUEST_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { address, http, database })
    }

    /// The address to which requests are sent.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the server's database, for state that no request exposes.
    #[must_use]
    pub fn database_url(&self) -> &str {
        &self.database
    }

    /// Creates a GET request; it is sent when awaited.
    pub fn get(&self, path: impl Into<String>) -> Request {
        self.request(Method::GET, path)
    }

    /// Creates a POST request with a JSON body; it is sent when awaited.
    pub fn post(&self, path: impl Into<String>, body: impl Into<Value>) -> Request {
        self.request(Method::POST, path).json(body)
    }

    /// Creates a PATCH request with a JSON body; it is sent when awaited.
    pub fn patch(&self, path: impl Into<String>, body: impl Into<Value>) -> Request {
        self.request(Method::PATCH, path).json(body)
    }

    /// Creates a PUT request with a JSON body; it is sent when awaited.
    pub fn put(&self, path: impl Into<String>, body: impl Into<Value>) -> Request {
        self.request(Method::PUT, path).json(body)
    }

    /// Creates a DELETE request; it is sent when awaited.
    pub fn delete(&self, path: impl Into<String>) -> Request {
        self.request(Method::DELETE, path)
    }

    /// Creates a request with any method and without a body; it is sent when awaited.
    pub fn request(&self, method: Method, path: impl Into<String>) -> Request {
        Request { client: self.clone(), method, path: path.into(), headers: HeaderMap::new(), body: Vec::new() }
    }

    /// A request with a method by name, for tests that iterate over the OpenAPI document.
    ///
    /// # Panics
    /// When the name is not a valid method.
    pub fn request_by_method_name(&self, method: &str, path: impl Into<String>) -> Request {
        let Ok(method) = method.to_uppercase().parse() else { panic!("`{method}` is not a valid method") };
        self.request(method, path)
    }

    /// Sends bytes unchanged on a new connection, and reads until the server closes the connection. Other client
    /// libraries would validate and normalize the path.
    ///
    /// # Panics
    /// When the response is not HTTP.
    pub async fn send_raw_bytes(&self, bytes: impl AsRef<[u8]>) -> Response {
        let request_line = String::from_utf8_lossy(bytes.as_ref()).lines().next().unwrap_or_default().to_owned();
        match tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(bytes.as_ref())).await {
            Ok(Ok(received)) => {
                let response = parse_response(&received, request_line);
                let mut words = response.request_line.split(' ');
                if let (Some(method), Some(path)) = (words.next(), words.next()) {
                    assert_documented_status_and_headers(method, path, response.status, &response.headers);
                }
                response
            }
            Ok(Err(error)) => panic!("{request_line}: {error}"),
            Err(_) => panic!("{request_line}: no response within {REQUEST_TIMEOUT:?}"),
        }
    }

    /// Sends a request without a body. The path is sent unchanged, because HTTP client libraries normalize paths.
    pub async fn send_raw_path(&self, method: &str, path: &str) -> Response {
        self.send_raw_bytes(format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address))
            .await
    }

    async fn exchange(&self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut stream = tokio::net::TcpStream::connect(self.address).await?;
        // The server may respond and close before it has read the whole request.
        let _ = stream.write_all(bytes).await;
        let mut received = Vec::new();
        match stream.read_to_end(&mut received).await {
            Err(_) if !received.is_empty() => Ok(received),
            read => read.map(|_| received),
        }
    }

    /// Returns a builder that creates test fixtures (assets, workloads, releases) through the API.
    #[must_use]
    pub fn fixtures(&self) -> Fixtures {
        Fixtures::of(self.clone())
    }
}

impl Request {
    /// Sends the request to another server.
    pub fn to_server(mut self, other: &Client) -> Self {
        self.client = other.clone();
        self
    }

    /// Sends the request as this actor instead of the local user.
    pub fn as_actor(self, actor: &str) -> Self {
        self.header("X-Actor-Ref", actor)
    }

    /// Sends the request for this tenant.
    pub fn in_tenant(self, tenant: &str) -> Self {
        self.header("X-Tenant-Id", tenant)
    }

    /// Adds the header `Idempotency-Key`.
    pub fn idempotency_key(self, key: &str) -> Self {
        self.header("Idempotency-Key", key)
    }

    /// Adds a header. Existing headers with the same name remain.
    ///
    /// # Panics
    /// When the name or the value is invalid.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let value = HeaderValue::from_bytes(value.as_ref());
        let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value) else {
            panic!("the header `{name}` is invalid")
        };
        self.headers.append(name, value);
        self
    }

    /// Sets a JSON body.
    pub fn json(self, body: impl Into<Value>) -> Self {
        self.with_body("application/json", body.into().to_string())
    }

    /// Sets a body with this media type.
    pub fn with_body(mut self, media_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.headers.remove("content-type");
        self.header("Content-Type", media_type)
    }

    async fn send(self) -> Response {
        let request_line = format!("{} {}", self.method, self.path);
        let (method, path) = (self.method.clone(), self.path.clone());
        match tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(&request_line)).await {
            Ok(Ok(response)) => {
                assert_documented_status_and_headers(method.as_str(), &path, response.status, &response.headers);
                response
            }
            Ok(Err(error)) => panic!("{request_line}: {error:?}"),
            Err(_) => panic!("{request_line}: no response within {REQUEST_TIMEOUT:?}"),
        }
    }

    async fn exchange(self, request_line: &str) -> reqwest::Result<Response> {
        let url = format!("http://{}{}", self.client.address, self.path);
        let request = self.client.http.request(self.method, url).headers(self.headers).body(self.body);
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await?.to_vec();
        Ok(Response { status, headers, body, request_line: request_line.to_owned() })
    }
}

impl IntoFuture for Request {
    type Output = Response;
    type IntoFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl Response {
    /// The value of a header; `None` if it is missing or not a text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When the body is not JSON.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(json) => json,
            Err(error) => panic!("expected JSON ({error})\n{self}"),
        }
    }

    /// Asserts the status, and returns the body.
    ///
    /// # Panics
    /// When the status differs.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert!(self.status == status, "expected {status}\n{self}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Asserts a refusal with this status and code in the standard form, and returns its `detail`.
    ///
    /// # Panics
    /// When the response differs, or lacks the standard form of a refusal.
    #[track_caller]
    pub fn expect_refusal(&self, status: u16, code: &str) -> Value {
        assert!(self.status == status, "expected {status} `{code}`\n{self}");
        let body = self.json();
        let detail = body.get("detail").cloned().unwrap_or_default();
        let actual_code = detail.get("error").and_then(Value::as_str);
        assert!(actual_code == Some(code), "expected the code `{code}`\n{self}");
        let message = detail.get("message").and_then(Value::as_str);
        assert!(message.is_some_and(|message| !message.is_empty()), "a refusal needs a message\n{self}");
        let id = body.get("request_id").and_then(Value::as_str);
        assert!(id.is_some() && id == self.header("x-request-id"), "a refusal needs the request id\n{self}");
        let allowed_members = ["detail", "request_id"];
        let has_allowed_members_only =
            body.as_object().is_some_and(|body| body.keys().all(|key| allowed_members.contains(&key.as_str())));
        assert!(has_allowed_members_only, "a refusal must have no other members\n{self}");
        let media_type = self.header("content-type").unwrap_or_default();
        assert!(media_type.starts_with("application/json"), "a refusal must be JSON\n{self}");
        detail
    }

    /// The code of a refusal, or an empty string.
    #[must_use]
    pub fn code(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body.pointer("/detail/error").and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

impl fmt::Display for Response {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = self.text().chars().take(2_000).collect();
        write!(formatter, "{} -> {}\n{text}", self.request_line, self.status)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Parses an HTTP/1.1 response that ended with its connection.
fn parse_response(received: &[u8], request_line: String) -> Response {
    let head_end = received.windows(4).position(|window| window == b"\r\n\r\n");
    let Some((head, rest)) = head_end.and_then(|head_end| received.split_at_checked(head_end)) else {
        panic!("{request_line}: not an HTTP response: {}", String::from_utf8_lossy(received))
    };
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value.trim())) {
            headers.append(name, value);
        }
    }
    let body = rest.get(4..).unwrap_or_default().to_vec();
    Response { status: status.unwrap_or_default(), headers, body, request_line }
}
