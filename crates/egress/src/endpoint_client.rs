//! HTTP client that is bound to one scheme, host and port.

use crate::{
    error::EgressError,
    guard::{ConnectionPolicy, Origin},
    refusal::EgressRefusal,
    resolver::{CheckedResolver, Resolver},
    response::{EgressResponse, IDENTITY_CODING},
    trusted_authorities::{self, Authorities},
};
use bytes::Bytes;
use reqwest::{
    Client, Method, Request,
    header::{ACCEPT_ENCODING, HeaderMap, HeaderValue},
    redirect, retry,
};
use std::{fmt, sync::Arc, time::Duration};
use url::Url;

/// Time after which an idle connection is closed. It is shorter than the idle timeout of common load balancers, so
/// that few requests use a connection that the server has closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of response headers; the HTTP client limits their total size.
const MAX_HEADERS: usize = 100;
/// The user agent of every request.
const USER_AGENT: &str = concat!("fairway/", env!("CARGO_PKG_VERSION"));

/// ResponseLimits of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseLimits {
    /// Maximum time from the start of a request to the last byte of its response.
    pub timeout: Duration,
    /// Maximum size of a response body, in bytes.
    pub max_body: usize,
}

/// Options of an [`EndpointClient`] besides its address and limits.
pub(crate) struct ClientOptions {
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) policy: Arc<ConnectionPolicy>,
    /// Certificate authorities to trust; `None` for those of [`tls_config`](crate::trusted_authorities::tls_config).
    pub(crate) authorities: Option<Authorities>,
    /// Maximum time of a connection attempt, within the timeout of the request.
    pub(crate) connect_timeout: Option<Duration>,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), max_body: 64 * 1024 }
    }
}

/// One request to an endpoint.
#[derive(Clone, Debug)]
pub struct EgressRequest {
    /// The HTTP method of the request.
    pub method: Method,
    /// The path relative to the endpoint, such as `chat/completions`; empty for the endpoint itself.
    pub path: String,
    /// Headers, including credentials, which must be marked as sensitive.
    pub headers: HeaderMap,
    /// The request body; empty if the request has none.
    pub body: Bytes,
}

/// A client for one address and the paths below it, with a connection pool.
#[derive(Clone)]
pub struct EndpointClient {
    url: Url,
    origin: Origin,
    client: Client,
    limits: ResponseLimits,
}

impl fmt::Debug for EndpointClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Paths and queries of addresses often contain secrets.
        formatter.debug_struct("EndpointClient").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl EndpointClient {
    pub(crate) fn new(url: Url, limits: ResponseLimits, options: ClientOptions) -> Result<Self, EgressError> {
        let ClientOptions { resolver, policy, authorities, connect_timeout } = options;
        let tls = authorities
            .map_or_else(trusted_authorities::tls_config, |authorities| Ok(authorities.into_tls_config()))?;
        let mut builder = Client::builder();
        if let Some(timeout) = connect_timeout {
            builder = builder.connect_timeout(timeout);
        }
        let client = builder
            .tls_backend_preconfigured(tls)
            .dns_resolver(Arc::new(CheckedResolver { resolver, policy }))
            // A proxy from the environment would bypass the guard.
            .no_proxy()
            .redirect(redirect::Policy::none())
            // The client never retries, because only the caller knows whether a request may be repeated.
            .retry(retry::never())
            .referer(false)
            .user_agent(USER_AGENT)
            // Without this header, a server may choose any content coding.
            .default_headers(HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(IDENTITY_CODING))]))
            .http1_only()
            .http1_max_headers(MAX_HEADERS)
            .tcp_nodelay(true)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .timeout(limits.timeout)
            .build()
            .map_err(|error| {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "failed to create an HTTP client; reporting the address to call as unreachable"
                );
                EgressError::Unreachable
            })?;
        Ok(Self { origin: Origin::of(&url)?, url, client, limits })
    }

    /// Sends a request and waits for the head of its response. [`EgressResponse::body`] reads the body, within the
    /// same timeout.
    ///
    /// # Errors
    /// When the request is refused, no response arrives, or the response is a redirect.
    pub async fn send(&self, call: EgressRequest) -> Result<EgressResponse, EgressError> {
        let mut request = Request::new(call.method, self.url_of(&call.path)?);
        *request.headers_mut() = call.headers;
        *request.body_mut() = Some(call.body.into());
        let response = self.client.execute(request).await.map_err(|failure| EgressError::of(&failure))?;
        if response.status().is_redirection() {
            return Err(EgressError::Redirected);
        }
        Ok(EgressResponse::new(response, self.limits.max_body))
    }

    /// Returns an endpoint with additional query parameters, which shares the connection pool.
    #[must_use]
    pub fn with_query<'q>(&self, query: impl Iterator<Item = (&'q str, String)>) -> Self {
        let mut endpoint = self.clone();
        for (name, value) in query {
            endpoint.url.query_pairs_mut().append_pair(name, &value);
        }
        endpoint
    }

    /// Returns the address of a path below the endpoint.
    fn url_of(&self, path: &str) -> Result<Url, EgressRefusal> {
        if path.is_empty() {
            return Ok(self.url.clone());
        }
        let mut url = self.url.clone();
        url.path_segments_mut().map_err(|()| EgressRefusal::InvalidAddress)?.pop_if_empty().extend(path.split('/'));
        // A relative path cannot change the origin. This check refuses the request if the URL parser ever disagrees.
        if Origin::of(&url)? != self.origin {
            return Err(EgressRefusal::OtherEndpoint);
        }
        Ok(url)
    }
}
