//! A keep-alive HTTP/1.1 connection of a client.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, LINK, RETRY_AFTER};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::net::TcpStream;

/// A complete request, except for the `Host` header, which the connection adds.
pub(crate) type BenchRequest = Request<Full<Bytes>>;

pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
}

/// A response whose body was read completely.
pub(crate) struct BenchResponse {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    /// The `Link` header of a list.
    pub(crate) link: Option<String>,
    /// Whether the response has a `Retry-After` header.
    pub(crate) has_retry_after: bool,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        // Without `TCP_NODELAY`, a reused connection stalls until the delayed acknowledgement of the previous request.
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // An error of the connection task also fails the pending request.
        tokio::task::spawn_local(connection);
        Ok(Connection { sender, host: HeaderValue::from_str(&address.to_string())? })
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&mut self, mut request: BenchRequest) -> Result<BenchResponse> {
        request.headers_mut().insert(HOST, self.host.clone());
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status().as_u16();
        let link = response.headers().get(LINK).and_then(|link| link.to_str().ok()).map(str::to_owned);
        let has_retry_after = response.headers().contains_key(RETRY_AFTER);
        let body = response.into_body().collect().await?.to_bytes();
        Ok(BenchResponse { status, body, link, has_retry_after })
    }

    /// Sends a request and returns the response without reading its body, which the caller streams.
    pub(crate) async fn send_for_stream(mut self, mut request: BenchRequest) -> Result<Response<Incoming>> {
        request.headers_mut().insert(HOST, self.host.clone());
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        if response.status().as_u16() != 200 {
            bail!("the stream responded with {}", response.status());
        }
        Ok(response)
    }

    /// Sends a request and reads the whole response. Also returns the time at which the body first contained `marker`.
    pub(crate) async fn send_and_time_text(
        &mut self,
        mut request: BenchRequest,
        marker: &str,
    ) -> Result<(BenchResponse, Option<OffsetDateTime>)> {
        request.headers_mut().insert(HOST, self.host.clone());
        self.sender.ready().await?;
        let mut response = self.sender.send_request(request).await?;
        let (mut body, mut first_seen_at) = (Vec::new(), None);
        while let Some(frame) = response.frame().await {
            let Ok(part) = frame?.into_data() else { continue };
            let received_at = OffsetDateTime::now_utc();
            // `marker` may span two frames.
            let start = body.len().saturating_sub(marker.len());
            body.extend_from_slice(&part);
            let unsearched = body.get(start..).unwrap_or_default();
            if first_seen_at.is_none() && unsearched.windows(marker.len()).any(|window| window == marker.as_bytes()) {
                first_seen_at = Some(received_at);
            }
        }
        let has_retry_after = response.headers().contains_key(RETRY_AFTER);
        let complete_response =
            BenchResponse { status: response.status().as_u16(), body: body.into(), link: None, has_retry_after };
        Ok((complete_response, first_seen_at))
    }

    /// Sends a request and parses the JSON of its response. Fails if the request does not succeed.
    pub(crate) async fn json(&mut self, request: BenchRequest) -> Result<Value> {
        let request_line = format!("{} {}", request.method(), request.uri());
        let response = self.send(request).await.with_context(|| request_line.clone())?;
        if !response.is_success() {
            bail!("{request_line} responded with {response}");
        }
        serde_json::from_slice(&response.body).with_context(|| format!("{request_line} did not respond with JSON"))
    }
}

impl BenchResponse {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl std::fmt::Display for BenchResponse {
    /// The status and the beginning of the body.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text: String = String::from_utf8_lossy(&self.body).chars().take(400).collect();
        write!(formatter, "{}: {text}", self.status)
    }
}

/// Builds a GET request for this path.
pub(crate) fn get(path: &str) -> BenchRequest {
    build(Method::GET, path, None)
}

/// Builds a POST request with a JSON body.
pub(crate) fn post(path: &str, body: &Value) -> BenchRequest {
    post_bytes(path, Bytes::from(body.to_string()))
}

/// Builds a PATCH request with a JSON body.
pub(crate) fn patch(path: &str, body: &Value) -> BenchRequest {
    build(Method::PATCH, path, Some(Bytes::from(body.to_string())))
}

/// Builds a PUT request with a JSON body.
pub(crate) fn put(path: &str, body: &Value) -> BenchRequest {
    build(Method::PUT, path, Some(Bytes::from(body.to_string())))
}

/// Builds a POST request with a body that is already serialized JSON.
pub(crate) fn post_bytes(path: &str, body: Bytes) -> BenchRequest {
    build(Method::POST, path, Some(body))
}

/// Builds a DELETE request for this path.
pub(crate) fn delete(path: &str) -> BenchRequest {
    build(Method::DELETE, path, None)
}

/// Adds a header. Ignores values that are invalid in a header.
pub(crate) fn with_header(mut request: BenchRequest, name: &'static str, value: &str) -> BenchRequest {
    if let Ok(value) = HeaderValue::from_str(value) {
        request.headers_mut().insert(HeaderName::from_static(name), value);
    }
    request
}

fn build(method: Method, path: &str, body: Option<Bytes>) -> BenchRequest {
    let has_body = body.is_some();
    let mut request = Request::new(Full::new(body.unwrap_or_default()));
    *request.method_mut() = method;
    // Paths consist of literals, slugs and UUIDs. An invalid path becomes `/`, which the server refuses.
    *request.uri_mut() = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
    if has_body {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_requests_with_their_headers() {
        let request = with_header(post("/v1/x?y=1", &serde_json::json!({"a": 1})), "idempotency-key", "k-1");
        assert_eq!(request.method(), Method::POST);
        assert_eq!(request.uri(), "/v1/x?y=1");
        assert_eq!(request.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(request.headers()["idempotency-key"], "k-1");
        assert!(!get("/healthz").headers().contains_key(CONTENT_TYPE));
    }
}
