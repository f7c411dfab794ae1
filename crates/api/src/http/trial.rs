//! Common fixtures of the HTTP tests.

use super::{
    HttpBase,
    client_address::TrustedProxies,
    fallback::KnownMethods,
    leaving::ShutdownSignal,
    site_guard::{Scheme, SiteRules},
    strict_query::KnownQueries,
};
use crate::{
    embed::{FrameAncestors, Embedding},
    metrics::Metrics,
};
use std::time::Duration;

/// The HTTP base of an app that answers every host.
pub(crate) fn base() -> HttpBase {
    HttpBase {
        metrics: Metrics::new().unwrap(),
        site_rules: SiteRules::AnyHost,
        public_scheme: Scheme::Http,
        trusted_proxies: TrustedProxies::default(),
        embedding: Embedding::new(Vec::new(), FrameAncestors::parse("'self'").unwrap()),
        memory: Default::default(),
        body_timeout: Duration::from_secs(30),
        known_methods: KnownMethods::default(),
        known_queries: KnownQueries::default(),
        deprecations: &[],
        crowd: Default::default(),
        leaving: ShutdownSignal::default(),
    }
}
