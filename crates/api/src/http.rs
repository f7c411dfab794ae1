//! The HTTP layer below the routes: middlewares, extractors, and common response headers.
//!
//! Order of the middlewares, outermost first: [`request_id_log_and_metrics::identify_and_record_request`],
//! [`response_memory::reserve_response_memory`], [`body_drain::body_drain`], [`site_guard::site_guard`],
//! [`authentication::authenticate`], [`load_shedding::middleware::shed_load`],
//! [`unknown_query_parameters::refuse_unknown_query_parameters`]. They read their settings from the app data,
//! `web::Data<HttpState>`; without it every request is a 500.

pub mod authentication;
pub mod body;
pub mod body_drain;
pub mod client_address;
pub mod connection_guard;
pub mod deprecation;
pub(crate) mod deserialize_error;
pub mod etag;
pub(crate) mod event_stream;
pub mod fallback;
mod framing;
pub(crate) mod html_page;
pub mod idempotency;
pub mod load_shedding;
pub mod memory_budget;
pub mod paging;
pub mod path;
pub(crate) mod proxy_detection;
pub mod query;
pub(crate) mod rate_limit_headers;
pub mod request_id_log_and_metrics;
pub mod response_memory;
pub(crate) mod route_origins;
pub mod shutdown_signal;
pub mod site_guard;
pub mod stream_limit;
pub mod unknown_query_parameters;

use crate::{embeddable_page::EmbedPolicy, metrics::Metrics, portal::Portal};
use client_address::TrustedProxies;
use deprecation::Deprecation;
use fallback::KnownMethods;
use memory_budget::MemoryBudgets;
use shutdown_signal::ShutdownFlag;
use site_guard::{HostRules, Scheme};
use std::time::Duration;
use stream_limit::StreamLimiter;
use unknown_query_parameters::KnownQueries;

/// The shared data of the middlewares and the fallback handler.
#[derive(Debug)]
pub struct HttpState {
    /// Metrics of the process, in which the middlewares count requests.
    pub metrics: Metrics,
    /// Rules for the host names that the server serves.
    pub site_rules: HostRules,
    /// The scheme of the server's own pages.
    pub public_scheme: Scheme,
    /// The proxies whose forwarding headers are trusted.
    pub trusted_proxies: TrustedProxies,
    /// The workloads with an embeddable page, and the origins that may embed it.
    pub embed_policy: EmbedPolicy,
    /// The built pages of the portal.
    pub portal: Portal,
    /// Memory budgets for request bodies and responses.
    pub memory_budgets: MemoryBudgets,
    /// Time limit for a body to arrive.
    pub body_timeout: Duration,
    /// HTTP methods of each documented path.
    pub known_methods: KnownMethods,
    /// The query parameters of each route.
    pub known_queries: KnownQueries,
    /// The deprecated routes, whose responses get deprecation headers.
    pub deprecations: &'static [Deprecation],
    /// Limits the open event streams.
    pub stream_limiter: StreamLimiter,
    /// Time after which an inbox stream ends.
    pub inbox_stream_lifetime: Duration,
    /// Announces the shutdown of the process.
    pub shutdown: ShutdownFlag,
}

#[cfg(test)]
pub(crate) mod test_support;
