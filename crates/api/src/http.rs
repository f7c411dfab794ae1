//! The HTTP layer below the routes: middlewares, extractors, and common response headers.
//!
//! Order of the middlewares, outermost first: [`request_context::request_context`],
//! [`response_memory::response_memory`], [`body_drain::body_drain`], [`site_guard::site_guard`], load shedding (over
//! [`load_shedding::LoadShedder`]), [`strict_query::strict_query`]. They read their settings from the app data,
//! `web::Data<HttpBase>`; without it every request is a 500.

pub mod admission;
pub mod answer_memory;
pub mod body;
pub mod client_address;
pub mod connection;
pub mod deprecation;
pub mod etag;
pub mod fallback;
pub(crate) mod forwarding;
mod framing;
pub(crate) mod html;
pub mod idempotency;
pub mod leaving;
pub mod memory;
pub mod paging;
pub mod path;
pub mod query;
pub mod request_context;
pub(crate) mod shape;
pub mod site_guard;
pub mod strict_query;
pub mod unread;

use crate::{embed::Embedding, execution::crowd::StreamLimiter, metrics::Metrics};
use client_address::TrustedProxies;
use deprecation::Deprecation;
use fallback::KnownMethods;
use leaving::ShutdownSignal;
use memory::MemoryBudgets;
use site_guard::{Scheme, SiteRules};
use std::time::Duration;
use strict_query::KnownQueries;

/// The shared data of the middlewares and the fallback handler.
#[derive(Debug)]
pub struct HttpBase {
    /// Counts requests.
    pub metrics: Metrics,
    /// The hosts that the server answers.
    pub site_rules: SiteRules,
    /// The scheme of the server's own pages.
    pub public_scheme: Scheme,
    /// The proxies whose forwarding headers are trusted.
    pub trusted_proxies: TrustedProxies,
    /// The workloads whose page may be embedded, and the embedding origins.
    pub embedding: Embedding,
    /// Memory budgets for request bodies and responses.
    pub memory: MemoryBudgets,
    /// Time limit for a body to arrive.
    pub body_timeout: Duration,
    /// The methods of each path.
    pub known_methods: KnownMethods,
    /// The query parameters of each route.
    pub known_queries: KnownQueries,
    /// The deprecated routes.
    pub deprecations: &'static [Deprecation],
    /// Limits the open event streams.
    pub crowd: StreamLimiter,
    /// Announces the shutdown of the process.
    pub leaving: ShutdownSignal,
}

#[cfg(test)]
pub(crate) mod trial;
