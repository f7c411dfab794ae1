//! The tool client: sends HTTP and MCP calls of tools and hooks through the egress guard. Requests are never
//! repeated.

mod connection_probe;
mod mcp;

use async_trait::async_trait;
use fairway_domain::{
    execution::{
        http_call::{HttpCall, HttpCallError, HttpCaller, HttpMethod, MAX_DURATION, MAX_RESPONSE_BYTES},
        tool::{McpCall, McpError},
    },
    json,
    secret::{SecretReader, SecretRef},
    slug::Slug,
};
use fairway_egress::{
    EgressError, EgressRequest, EndpointClient, Guard, Method, ResponseLimits, Url,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use moka::sync::Cache;
use serde_json::Value;
use std::{fmt, sync::Arc};

/// Maximum number of endpoints whose open connections are cached.
const MAX_ENDPOINTS: u64 = 256;

/// A client that sends calls of tools and hooks, and probes of endpoints, through the egress guard.
#[derive(Clone)]
pub struct ToolAndHookClient {
    guard: Guard,
    secrets: Arc<dyn SecretReader>,
    endpoints: Cache<(String, usize), EndpointClient>,
}

impl fmt::Debug for ToolAndHookClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ToolAndHookClient").field("guard", &self.guard).finish_non_exhaustive()
    }
}

impl ToolAndHookClient {
    /// Creates a client that uses this guard and this source of secrets.
    #[must_use]
    pub fn new(guard: Guard, secrets: Arc<dyn SecretReader>) -> Self {
        Self { guard, secrets, endpoints: Cache::new(MAX_ENDPOINTS) }
    }

    /// The endpoint of an address, with a maximum response size in bytes. Endpoints are cached to reuse their
    /// connections; the guard checks each new connection.
    fn endpoint(&self, address: &str, max_bytes: usize) -> Result<EndpointClient, EgressError> {
        let key = (address.to_owned(), max_bytes);
        if let Some(endpoint) = self.endpoints.get(&key) {
            return Ok(endpoint);
        }
        let endpoint = self.guard.endpoint(address, ResponseLimits { timeout: MAX_DURATION, max_body: max_bytes })?;
        self.endpoints.insert(key, endpoint.clone());
        Ok(endpoint)
    }

    async fn headers(&self, tenant: &Slug, call: &HttpCall) -> Result<HeaderMap, HttpCallError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/*;q=0.9"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let call_id = HeaderValue::from_str(&call.call_id).map_err(|_| HttpCallError::Forbidden)?;
        headers.insert(HeaderName::from_static("idempotency-key"), call_id);
        if let Some(reference) = &call.secret {
            let value = self.secret_header(tenant, reference, "Bearer ", Some(call.call_id.as_str())).await?;
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(headers)
    }

    /// A header value that consists of a prefix and a secret. `call_id` is for log lines about the secret; a probe of
    /// an endpoint has none.
    async fn secret_header(
        &self,
        tenant: &Slug,
        reference: &SecretRef,
        prefix: &str,
        call_id: Option<&str>,
    ) -> Result<HeaderValue, HttpCallError> {
        let secret = self.secrets.read(tenant, reference).await.map_err(|error| {
            tracing::warn!(
                tenant = tenant.as_str(),
                call_id,
                secret_ref = %reference,
                code = error.code(),
                "failed to read the secret of an HTTP call; failing the call"
            );
            HttpCallError::SecretUnavailable
        })?;
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", secret.expose())).map_err(|_| {
            tracing::warn!(
                tenant = tenant.as_str(),
                call_id,
                secret_ref = %reference,
                "the secret of an HTTP call contains characters that a header cannot contain; failing the call"
            );
            HttpCallError::SecretUnavailable
        })?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn send_call(&self, tenant: &Slug, call: &HttpCall) -> Result<Value, HttpCallError> {
        if !call.allowed_hosts.as_ref().is_none_or(|hosts| matches_hosts(hosts, &call.address)) {
            return Err(HttpCallError::Forbidden);
        }
        let to_call_error = |error| call_error(&call.call_id, error);
        let mut endpoint = self.endpoint(&call.address, MAX_RESPONSE_BYTES).map_err(to_call_error)?;
        let mut body = Vec::new();
        if call.method.has_body() {
            body = serde_json::to_vec(&call.arguments).map_err(|_| HttpCallError::Malformed)?;
        } else {
            endpoint =
                endpoint.with_query(call.arguments.iter().map(|(name, value)| (name.as_str(), query_value(value))));
        }
        let headers = self.headers(tenant, call).await?;
        let path = call.path.trim_start_matches('/').to_owned();
        let request = EgressRequest { method: to_http_method(call.method), path, headers, body: body.into() };
        let response = endpoint.send(request).await.map_err(to_call_error)?;
        if !response.status().is_success() {
            tracing::info!(
                tenant = tenant.as_str(),
                call_id = %call.call_id,
                status = response.status().as_u16(),
                "an HTTP call got an error status; failing the call"
            );
            return Err(HttpCallError::ErrorStatus);
        }
        let content_type = response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|content_type| content_type.to_str().ok())
            .unwrap_or_default();
        let content_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let response_body = response.read_all().await.map_err(to_call_error)?;
        if response_body.is_empty() {
            return Ok(Value::Null);
        }
        if content_type == "application/json" || content_type.ends_with("+json") {
            // The strict reader refuses duplicate member names, which are ambiguous, and NUL characters, which
            // PostgreSQL cannot store.
            return json::read(&response_body).map_err(|_| HttpCallError::Malformed);
        }
        if !content_type.starts_with("text/") {
            return Err(HttpCallError::Malformed);
        }
        String::from_utf8(response_body.into())
            .map(replace_nul)
            .map(Value::String)
            .map_err(|_| HttpCallError::Malformed)
    }
}

#[async_trait]
impl HttpCaller for ToolAndHookClient {
    async fn call(&self, tenant: &Slug, call: &HttpCall) -> Result<Value, HttpCallError> {
        let timeout = call.timeout.min(MAX_DURATION);
        tokio::time::timeout(timeout, self.send_call(tenant, call)).await.map_err(|_| HttpCallError::TimedOut)?
    }

    async fn call_tool(&self, tenant: &Slug, call: &McpCall) -> Result<Value, McpError> {
        let timeout = call.connection.timeout.min(MAX_DURATION);
        tokio::time::timeout(timeout, self.call_mcp_tool(tenant, call)).await.map_err(|_| HttpCallError::TimedOut)?
    }
}

const fn to_http_method(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
    }
}

/// Replaces NUL characters by U+FFFD, because PostgreSQL cannot store them in a text.
fn replace_nul(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// Converts a value to a query parameter: a string without quotes, any other value as JSON.
fn query_value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether the host of an address matches an entry of `hosts`. An entry may begin with `*.`. An entry with a port
/// matches this port only.
fn matches_hosts(hosts: &[String], address: &str) -> bool {
    let Ok(url) = Url::parse(address) else { return false };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else { return false };
    let host = host.strip_suffix('.').unwrap_or(host);
    hosts.iter().any(|entry| {
        let (name, expected_port) =
            entry.rsplit_once(':').map_or((entry.as_str(), None), |(name, port)| (name, Some(port)));
        let port_matches = expected_port.is_none_or(|expected_port| expected_port == port.to_string());
        port_matches
            && match name.strip_prefix("*.") {
                Some(domain) => host
                    .to_ascii_lowercase()
                    .strip_suffix(&domain.to_ascii_lowercase())
                    .is_some_and(|subdomain| subdomain.len() > 1 && subdomain.ends_with('.')),
                None => host.eq_ignore_ascii_case(name),
            }
    })
}

/// Converts a failure for the caller. The log records its cause without the address, whose path often contains a
/// secret.
fn call_error(call_id: &str, error: EgressError) -> HttpCallError {
    tracing::info!(
        call_id,
        error = &error as &dyn std::error::Error,
        "failed to complete an HTTP call; failing the call"
    );
    match error {
        EgressError::Refused(_) => HttpCallError::Forbidden,
        EgressError::Unresolved | EgressError::Unreachable | EgressError::Tls => HttpCallError::Unreachable,
        EgressError::TimedOut => HttpCallError::TimedOut,
        EgressError::Redirected => HttpCallError::ErrorStatus,
        EgressError::TooLong => HttpCallError::TooLong,
        EgressError::Encoded => HttpCallError::Malformed,
        EgressError::Incomplete => HttpCallError::Truncated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_nul_in_texts() {
        assert_eq!(replace_nul("a\0b".to_owned()), "a\u{fffd}b");
    }

    #[test]
    fn matches_hosts_subdomains_and_ports() {
        for (entry, address, is_in) in [
            ("api.example.com", "https://api.example.com/x", true),
            ("api.example.com", "https://API.example.com./x", true),
            ("api.example.com", "https://evil-api.example.com/x", false),
            ("api.example.com", "https://api.example.com.evil.org/x", false),
            ("api.example.com:8443", "https://api.example.com/x", false),
            ("api.example.com:8443", "https://api.example.com:8443/x", true),
            ("api.example.com:443", "https://api.example.com/x", true),
            ("*.example.com", "https://a.b.example.com/", true),
            ("*.example.com", "https://example.com/", false),
            ("*.example.com", "https://.example.com/", false),
            ("*.example.com", "https://evilexample.com/", false),
            ("127.0.0.1", "http://127.0.0.1:4000/", true),
            ("example.com", "no address", false),
        ] {
            assert_eq!(matches_hosts(&[entry.to_owned()], address), is_in, "{entry} {address}");
        }
        assert!(!matches_hosts(&[], "https://example.com/"), "an empty list allows nothing");
    }
}
