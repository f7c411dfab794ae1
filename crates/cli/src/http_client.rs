//! The HTTP client of a Fairway server: requests, paginated lists, and refusals.

pub(crate) mod address_source;
pub(crate) mod events;
mod link;
mod unknown_workspace;

pub(crate) use ureq::http::{Method, StatusCode};

use crate::failure::{Failure, Refusal, is_transient_status};
use address_source::{AddressSource, is_failed_connection};
use link::{cursor_of, next_link};
use rustls::crypto::aws_lc_rs;
use serde_json::Value;
use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};
use ureq::{
    Agent, Body,
    http::{Request, Response, header},
    tls::{Certificate, RootCerts, TlsConfig},
};
use url::{Host, Url};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of one request, except streams.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum wait for a checkpoint of the log.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(60);
const CHECKPOINT_POLL: Duration = Duration::from_millis(500);
/// Page size of lists, the server's maximum.
const PAGE_SIZE: usize = 200;
/// Maximum size of a response, and of all pages of a list: 200 versions of 4 MiB each, and overhead.
const MAX_RESPONSE_BYTES: u64 = 1 << 30;
/// Maximum number of pages of a list: a million items.
const MAX_PAGES: usize = 5_000;

/// The caller's identity at a server.
#[derive(Clone, Default)]
pub(crate) struct Identity {
    /// Access token, sent as `Authorization: Bearer`.
    pub(crate) token: Option<String>,
    /// Actor for the identity header, which only a server in local mode trusts.
    pub(crate) actor: Option<String>,
    /// The tenant, for callers that belong to several.
    pub(crate) tenant: Option<String>,
}

/// A client for one server.
pub(crate) struct ServerClient {
    agent: Agent,
    base: Url,
    identity: Identity,
    /// The selected workspace, by slug or id.
    selected_workspace: Option<String>,
    /// The id of the workspace, once resolved.
    workspace_id: OnceLock<String>,
    /// The source of the address, if messages about failed connections should state it.
    address_source: Option<AddressSource>,
}

/// A page of a list.
pub(crate) struct Page {
    pub(crate) items: Vec<Value>,
    /// The cursor of the next page, if more items exist.
    pub(crate) cursor: Option<String>,
}

/// Query parameters as names and values.
pub(crate) type Query<'q> = &'q [(&'q str, &'q str)];

impl ServerClient {
    /// Creates a client for an address and an optional workspace.
    ///
    /// # Errors
    /// When the address is not an HTTP URL, or has user info, a query or a fragment. When it would send a token
    /// unencrypted over a network.
    pub(crate) fn new(address: &str, identity: Identity, workspace: Option<&str>) -> Result<Self, Failure> {
        let base = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(base) = base else {
            return Err(Failure::Usage("the server's address must begin with http:// or https://".to_owned()));
        };
        if base.path().trim_end_matches('/').ends_with("/v1") {
            return Err(Failure::Usage("the server's address ends before `/v1`, which commands add".to_owned()));
        }
        // The address appears in messages and in the profile, so it must not contain a secret.
        if !base.username().is_empty()
            || base.password().is_some()
            || base.query().is_some()
            || base.fragment().is_some()
        {
            let message =
                "the server's address must not contain credentials, query or fragment: pass a token by --token-stdin";
            return Err(Failure::Usage(message.to_owned()));
        }
        if identity.token.is_some() && base.scheme() == "http" && !is_loopback(&base) {
            return Err(Failure::Usage("a token is sent only over https or to this machine".to_owned()));
        }
        let selected_workspace = workspace.map(str::to_owned);
        let (agent, workspace_id) = (http_agent(&base), OnceLock::new());
        Ok(Self { agent, base, identity, selected_workspace, workspace_id, address_source: None })
    }

    /// Sets the source of the address, for messages about failed connections.
    pub(crate) fn with_address_source(self, source: AddressSource) -> Self {
        Self { address_source: Some(source), ..self }
    }

    /// The address without a trailing slash.
    pub(crate) fn address(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Whether requests contain a token.
    pub(crate) const fn has_token(&self) -> bool {
        self.identity.token.is_some()
    }

    /// The selected tenant, by name.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.identity.tenant.as_deref()
    }

    /// The id of the workspace that commands use: the selected one, else the only visible one, else `default`.
    pub(crate) fn workspace_id(&self) -> Result<&str, Failure> {
        if let Some(id) = self.workspace_id.get() {
            return Ok(id);
        }
        if let Some(id) = self.selected_workspace.as_ref().filter(|selected| uuid::Uuid::parse_str(selected).is_ok()) {
            return Ok(self.workspace_id.get_or_init(|| id.clone()));
        }
        let workspaces = self.list(&["workspaces"], &[])?;
        let slug = self.selected_workspace.as_deref().unwrap_or("default");
        let has_slug = |workspace: &&Value| string_or_empty(workspace, "slug") == slug;
        let found = match (workspaces.as_slice(), &self.selected_workspace) {
            ([only], None) => Some(only),
            (several, _) => several.iter().find(has_slug),
        };
        let Some(found) = found else {
            return Err(unknown_workspace::failure(self.selected_workspace.as_deref(), &workspaces));
        };
        let id = required_string(found, "workspace_id")?;
        Ok(self.workspace_id.get_or_init(|| id.to_owned()))
    }

    /// Reads a resource below `/v1`.
    pub(crate) fn get(&self, path: &[&str], query: Query<'_>) -> Result<Value, Failure> {
        let url = self.url(path, query)?;
        self.read(self.send(&self.request(&Method::GET, &url, &[])?)?)
    }

    /// Reads a resource that the server returns only after a checkpoint covers its facts. Polls, because the server
    /// writes a checkpoint every two seconds.
    pub(crate) fn get_when_covered_by_checkpoint(&self, path: &[&str]) -> Result<Value, Failure> {
        let deadline = Instant::now() + CHECKPOINT_TIMEOUT;
        loop {
            match self.get(path, &[]) {
                Err(failure) if failure.is_refusal("not_yet_in_checkpoint") && Instant::now() < deadline => {
                    thread::sleep(CHECKPOINT_POLL);
                }
                result => return result,
            }
        }
    }

    /// Reads a resource with its entity tag, for [`Self::update_if_match`]. Unchanged defaults have no entity tag.
    pub(crate) fn get_with_etag(&self, path: &[&str]) -> Result<(Option<String>, Value), Failure> {
        let url = self.url(path, &[])?;
        let response = self.send(&self.request(&Method::GET, &url, &[])?)?;
        let tag = response.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        Ok((tag, self.read(response)?))
    }

    /// Reads a resource; `None` if the response is 404.
    pub(crate) fn find(&self, path: &[&str], query: Query<'_>) -> Result<Option<Value>, Failure> {
        match self.get(path, query) {
            Err(Failure::Refused(refusal)) if refusal.status == 404 => Ok(None),
            found => found.map(Some),
        }
    }

    /// Reads all items of a list, page by page.
    pub(crate) fn list(&self, path: &[&str], query: Query<'_>) -> Result<Vec<Value>, Failure> {
        self.list_first(path, query, usize::MAX)
    }

    /// Reads the first items of a list.
    ///
    /// # Errors
    /// When a page is not a list, a link leads to another origin, or the list exceeds its page limit.
    pub(crate) fn list_first(&self, path: &[&str], query: Query<'_>, limit: usize) -> Result<Vec<Value>, Failure> {
        self.list_page(path, query, limit).map(|page| page.items)
    }

    /// Reads the first items of a list, and the cursor of the following page. There is no cursor if the limit ends
    /// within a page of the server.
    ///
    /// # Errors
    /// The same as those of [`Self::list_first`].
    pub(crate) fn list_page(&self, path: &[&str], query: Query<'_>, limit: usize) -> Result<Page, Failure> {
        let mut items = Vec::new();
        let mut url = self.url(path, query)?;
        url.query_pairs_mut().append_pair("limit", &limit.clamp(1, PAGE_SIZE).to_string());
        let mut remaining_bytes = MAX_RESPONSE_BYTES;
        for _ in 0..MAX_PAGES {
            let response = self.send(&self.request(&Method::GET, &url, &[])?)?;
            let link = response.headers().get(header::LINK).and_then(|link| link.to_str().ok()).and_then(next_link);
            let (page, length) = self.read_limited(response, remaining_bytes)?;
            let Value::Array(page) = page else { return Err(self.not_fairway()) };
            remaining_bytes = remaining_bytes.saturating_sub(length);
            items.extend(page);
            if items.len() >= limit {
                let cursor = link.filter(|_| items.len() == limit).as_deref().and_then(cursor_of);
                items.truncate(limit);
                return Ok(Page { items, cursor });
            }
            let Some(link) = link else { return Ok(Page { items, cursor: None }) };
            // A link to another origin is an error: following it would send the token to that origin, and ignoring it
            // would truncate the list.
            let next = self.base.join(&link).ok().filter(|next| next.origin() == self.base.origin());
            url = next.ok_or_else(|| self.not_fairway())?;
        }
        Err(self.not_fairway())
    }

    /// Posts a body and returns the resource in the response. A fresh idempotency key makes the request safe to retry
    /// after a lost response.
    pub(crate) fn post(&self, path: &[&str], body: &Value) -> Result<Value, Failure> {
        self.post_with_query(path, &[], body)
    }

    /// Like [`Self::post`], with a query.
    pub(crate) fn post_with_query(&self, path: &[&str], query: Query<'_>, body: &Value) -> Result<Value, Failure> {
        self.post_with_headers((path, query), body, &uuid::Uuid::new_v4().to_string(), &[])
    }

    /// Posts a body under an idempotency key. A second request with the key returns the first one's response, also in
    /// another process.
    pub(crate) fn post_with_key(&self, path: &[&str], body: &Value, key: &str) -> Result<Value, Failure> {
        self.post_with_headers((path, &[]), body, key, &[])
    }

    fn post_with_headers(
        &self,
        (path, query): (&[&str], Query<'_>),
        body: &Value,
        key: &str,
        headers: &[(&str, &str)],
    ) -> Result<Value, Failure> {
        let headers = [headers, &[("Idempotency-Key", key)]].concat();
        let request = self.request(&Method::POST, &self.url(path, query)?, &headers)?.map(|()| body.to_string());
        let attempt = || self.read(self.send(&request)?);
        match attempt() {
            Err(Failure::Unreachable { .. }) => attempt(),
            result => result,
        }
    }

    /// Patches or replaces a resource, and returns the resource in the response.
    pub(crate) fn update(&self, method: &Method, path: &[&str], body: &Value) -> Result<Value, Failure> {
        let url = self.url(path, &[])?;
        let request = self.request(method, &url, &[])?.map(|()| body.to_string());
        self.read(self.send(&request)?)
    }

    /// Deletes a resource.
    pub(crate) fn delete(&self, path: &[&str]) -> Result<(), Failure> {
        let request = self.request(&Method::DELETE, &self.url(path, &[])?, &[])?;
        self.read(self.send(&request)?).map(drop)
    }

    /// Patches or replaces a resource. With an entity tag, the server refuses the change if the resource has changed.
    pub(crate) fn update_if_match(
        &self,
        method: &Method,
        tag: Option<&str>,
        path: &[&str],
        body: &Value,
    ) -> Result<Value, Failure> {
        let url = self.url(path, &[])?;
        let headers: Vec<(&str, &str)> = tag.iter().map(|tag| (header::IF_MATCH.as_str(), *tag)).collect();
        let request = self.request(method, &url, &headers)?;
        self.read(self.send(&request.map(|()| body.to_string()))?)
    }

    /// The address of a portal page.
    ///
    /// # Errors
    /// When the server's address has no path.
    pub(crate) fn portal_page_address(&self, path: &[&str], query: Query<'_>) -> Result<String, Failure> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(path),
            Err(()) => return Err(self.not_fairway()),
        };
        url.query_pairs_mut().extend_pairs(query);
        Ok(url.into())
    }

    fn url(&self, path: &[&str], query: Query<'_>) -> Result<Url, Failure> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().push("v1").extend(path),
            Err(()) => return Err(self.not_fairway()),
        };
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    /// Builds a request without its body.
    fn request(&self, method: &Method, url: &Url, headers: &[(&str, &str)]) -> Result<Request<()>, Failure> {
        let mut request = Request::builder().method(method).uri(url.as_str());
        if *method != Method::GET && *method != Method::DELETE {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let bearer = self.identity.token.as_ref().map(|token| format!("Bearer {token}"));
        let identity_headers = [
            ("Authorization", bearer),
            ("X-Actor-Ref", self.identity.actor.clone()),
            ("X-Tenant-Id", self.identity.tenant.clone()),
        ];
        for (name, value) in identity_headers {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
            .body(())
            .map_err(|_| Failure::Usage("the token, actor or tenant is not a valid header value".to_owned()))
    }

    fn send<B: ureq::AsSendBody + Clone>(&self, request: &Request<B>) -> Result<Response<Body>, Failure> {
        self.agent.run(request.clone()).map_err(|error| self.unreachable(&error))
    }

    /// Reads the JSON body of a response; a response with an error status is a refusal.
    fn read(&self, response: Response<Body>) -> Result<Value, Failure> {
        Ok(self.read_limited(response, MAX_RESPONSE_BYTES)?.0)
    }

    /// Like [`Self::read`] with a maximum size in bytes; also returns the size.
    fn read_limited(&self, mut response: Response<Body>, max_bytes: u64) -> Result<(Value, u64), Failure> {
        let status = response.status();
        let body = response
            .body_mut()
            .with_config()
            .limit(max_bytes)
            .read_to_vec()
            .map_err(|error| self.unreachable(&error))?;
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let value: Option<Value> = serde_json::from_slice(&body).ok();
        match value {
            Some(value) if status.is_success() => Ok((value, length)),
            None if status.is_success() && body.is_empty() => Ok((Value::Null, 0)),
            Some(value) if value.get("detail").is_some() => {
                Err(Failure::Refused(Box::new(Refusal::from_body(status.as_u16(), &value))))
            }
            Some(_) | None if status.is_success() => Err(self.not_fairway()),
            Some(_) | None if !is_transient_status(status.as_u16()) => {
                Err(Failure::NotFairway { server: self.address().to_owned(), status })
            }
            Some(_) | None => {
                let cause = format!("the response {status} is not from a Fairway server");
                Err(Failure::Unreachable { server: self.address().to_owned(), cause })
            }
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let source = self.address_source.filter(|_| is_failed_connection(error));
        let mut hint = source.map(|source| format!("; {}", source.describe())).unwrap_or_default();
        // The TLS library reports a response without TLS as `InvalidContentType`.
        if error.to_string().contains("InvalidContentType") {
            hint.push_str("; the server answers without TLS, so its address begins with http://");
        }
        Failure::Unreachable { server: self.address().to_owned(), cause: format!("{error}{hint}") }
    }

    /// The failure for a response that Fairway never sends.
    fn not_fairway(&self) -> Failure {
        let cause = "the response is not from a Fairway server".to_owned();
        Failure::Unreachable { server: self.address().to_owned(), cause }
    }
}

/// Builds an HTTP agent. Loopback addresses bypass the proxy of the environment variables.
pub(crate) fn http_agent(base: &Url) -> Agent {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent(concat!("fairway/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(REQUEST_TIMEOUT));
    if base.scheme() == "https" {
        let certificates = rustls_native_certs::load_native_certs().certs;
        let roots: Vec<Certificate<'static>> =
            certificates.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&roots))
            .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
            .build();
        config = config.tls_config(tls);
    }
    if is_loopback(base) {
        config = config.proxy(None);
    }
    config.build().into()
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

/// A string member of a JSON object, or an empty string.
pub(crate) fn string_or_empty<'v>(object: &'v Value, name: &str) -> &'v str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A required string member of a JSON object.
///
/// # Errors
/// When the member is missing or not a string, so the response is not from Fairway.
pub(crate) fn required_string<'v>(object: &'v Value, name: &str) -> Result<&'v str, Failure> {
    let found = object.get(name).and_then(Value::as_str);
    found.ok_or_else(|| {
        Failure::Failed(format!("the response has no `{name}`: it is not from a Fairway server of this version"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(address: &str, token: Option<&str>) -> Result<ServerClient, Failure> {
        ServerClient::new(address, Identity { token: token.map(str::to_owned), ..Identity::default() }, None)
    }

    #[test]
    fn joins_paths_below_the_base_address() {
        for (address, expected) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/a/b%2Fc?q=x+y"),
            ("https://example.org/fairway/", "https://example.org/fairway/v1/a/b%2Fc?q=x+y"),
        ] {
            let url = server(address, None).unwrap().url(&["a", "b/c"], &[("q", "x y")]).unwrap();
            assert_eq!(url.as_str(), expected);
        }
        for address in ["", "8080", "localhost:8080", "file:///etc"] {
            assert!(matches!(server(address, None), Err(Failure::Usage(_))), "{address}");
        }
    }

    #[test]
    fn rejects_addresses_with_credentials_query_or_fragment() {
        for address in [
            "https://ada@example.org",
            "https://:s3cret@example.org",
            "https://example.org/?t=s3cret",
            "https://example.org/#s3cret",
        ] {
            let Err(Failure::Usage(message)) = server(address, None) else { panic!("{address} is accepted") };
            assert!(!message.contains("s3cret") && !message.contains("ada"), "{message}");
        }
    }

    #[test]
    fn rejects_tokens_over_unencrypted_networks() {
        for (address, is_accepted) in [
            ("https://fairway.example.org", true),
            ("http://localhost:8080", true),
            ("http://[::1]:8080", true),
            ("http://127.0.0.1:8080", true),
            ("http://fairway.example.org", false),
            ("http://localhost.example.org", false),
        ] {
            assert_eq!(server(address, Some("t")).is_ok(), is_accepted, "{address}");
            assert!(server(address, None).is_ok());
        }
    }
}
