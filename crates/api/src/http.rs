//! What every route stands on: the middlewares, the extractors, and the answers' common headers.
//!
//! Order of the middlewares, outermost first: [`request_context::request_context`],
//! [`answer_memory::answer_memory`], [`unread::unread`],
//! [`site_guard::site_guard`], the one that admits (over [`admission::Admission`]), [`strict_query::strict_query`]. They find
//! their settings in the app's data, `web::Data<HttpBase>`; without it every request is a 500.

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

use crate::{embed::Embedding, execution::crowd::Crowd, metrics::Metrics};
use client_address::TrustedProxies;
use deprecation::Deprecation;
use fallback::KnownMethods;
use leaving::Leaving;
use memory::MemoryBudgets;
use site_guard::{Scheme, SiteRules};
use std::time::Duration;
use strict_query::KnownQueries;

/// What the middlewares and the fallback need.
#[derive(Debug)]
pub struct HttpBase {
    /// Counts requests.
    pub metrics: Metrics,
    /// Which hosts are answered.
    pub site_rules: SiteRules,
    /// The scheme of the server's own pages.
    pub public_scheme: Scheme,
    /// Whose word on where a request comes from is taken.
    pub trusted_proxies: TrustedProxies,
    /// Which workloads have a page that may be framed, and by whom.
    pub embedding: Embedding,
    /// Memory of bodies and answers.
    pub memory: MemoryBudgets,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Which methods each path knows.
    pub known_methods: KnownMethods,
    /// Which parameters each route knows.
    pub known_queries: KnownQueries,
    /// Which routes will go away.
    pub deprecations: &'static [Deprecation],
    /// Which streams of runs are open.
    pub crowd: Crowd,
    /// Whether the process is about to end.
    pub leaving: Leaving,
}

#[cfg(test)]
pub(crate) mod trial;
