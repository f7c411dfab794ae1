//! A client for one scheme, host and port.

use crate::{
    answer::{Answer, PLAIN},
    guard::{Demand, Origin},
    refusal::{EgressError, EgressRefusal},
    resolver::{Checked, Resolver},
    trust,
};
use bytes::Bytes;
use reqwest::{
    Client, Method, Request,
    header::{ACCEPT_ENCODING, HeaderMap, HeaderValue},
    redirect, retry,
};
use std::{fmt, sync::Arc, time::Duration};
use url::Url;

/// How long a connection is kept that nobody uses. Shorter than balancers keep theirs, so that few requests meet one
/// that was just closed.
const IDLE: Duration = Duration::from_secs(30);
/// Most headers of an answer; the bytes of all of them are bounded by the client below.
const HEADERS: usize = 100;
/// What every request says it comes from.
const AGENT: &str = concat!("fairway/", env!("CARGO_PKG_VERSION"));

/// What an answer may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Longest time from the beginning of a request to the last byte of its answer.
    pub time: Duration,
    /// Most bytes of an answer's body.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(10), body: 64 * 1024 }
    }
}

/// One request to an endpoint.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// What follows the endpoint's own path, such as `chat/completions`; empty for the endpoint itself.
    pub path: String,
    /// Headers, credentials among them; mark those as sensitive.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// A client for what lies at one address and below. Its connections are kept and used again.
#[derive(Clone)]
pub struct Endpoint {
    url: Url,
    origin: Origin,
    client: Client,
    limits: Limits,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Paths and queries of addresses are often secrets.
        out.debug_struct("Endpoint").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Endpoint {
    pub(crate) fn new(
        url: Url,
        limits: Limits,
        resolver: Arc<dyn Resolver>,
        demand: Arc<Demand>,
    ) -> Result<Self, EgressError> {
        let client = Client::builder()
            .tls_backend_preconfigured(trust::tls()?)
            .dns_resolver(Arc::new(Checked { resolver, demand }))
            // Whoever set a proxy in the environment did not mean to open the guard.
            .no_proxy()
            .redirect(redirect::Policy::none())
            // Whoever asks decides whether to ask again.
            .retry(retry::never())
            .referer(false)
            .user_agent(AGENT)
            // Without a word about it, whoever answers may encode as they like.
            .default_headers(HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(PLAIN))]))
            .http1_only()
            .http1_max_headers(HEADERS)
            .tcp_nodelay(true)
            .pool_idle_timeout(IDLE)
            .timeout(limits.time)
            .build()
            .map_err(|error| {
                tracing::error!(%error, "a client cannot be made");
                EgressError::Unreachable
            })?;
        Ok(Self { origin: Origin::of(&url)?, url, client, limits })
    }

    /// Sends a request and waits for the head of its answer. The body comes with [`Answer::body`], in the same time.
    ///
    /// # Errors
    /// When the request may not leave, when there is no answer, or when it points elsewhere.
    pub async fn send(&self, call: Call) -> Result<Answer, EgressError> {
        let mut request = Request::new(call.method, self.at(&call.path)?);
        *request.headers_mut() = call.headers;
        *request.body_mut() = Some(call.body.into());
        let response = self.client.execute(request).await.map_err(|failure| EgressError::of(&failure))?;
        if response.status().is_redirection() {
            return Err(EgressError::Redirected);
        }
        Ok(Answer::new(response, self.limits.body))
    }

    /// The same endpoint over the same connections, asked with this query beside its own.
    #[must_use]
    pub fn asking<'q>(&self, query: impl Iterator<Item = (&'q str, String)>) -> Self {
        let mut endpoint = self.clone();
        for (name, value) in query {
            endpoint.url.query_pairs_mut().append_pair(name, &value);
        }
        endpoint
    }

    /// The address of a path below the endpoint's own.
    fn at(&self, path: &str) -> Result<Url, EgressRefusal> {
        if path.is_empty() {
            return Ok(self.url.clone());
        }
        let mut url = self.url.clone();
        url.path_segments_mut().map_err(|()| EgressRefusal::NoAddress)?.pop_if_empty().extend(path.split('/'));
        // Path segments cannot change the rest; should that ever not hold, nothing is sent.
        if Origin::of(&url)? != self.origin {
            return Err(EgressRefusal::Elsewhere);
        }
        Ok(url)
    }
}
