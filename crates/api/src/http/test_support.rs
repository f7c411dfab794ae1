//! Common fixtures of the HTTP tests.

use super::{
    HttpState,
    client_address::TrustedProxies,
    fallback::KnownMethods,
    shutdown_signal::ShutdownFlag,
    site_guard::{HostRules, Scheme},
    unknown_query_parameters::KnownQueries,
};
use crate::{
    embeddable_page::{EmbedPolicy, FrameAncestors},
    metrics::Metrics,
};
use std::time::Duration;

/// The shared HTTP state of an app that serves every host.
pub(crate) fn http_state() -> HttpState {
    HttpState {
        metrics: Metrics::new().unwrap(),
        site_rules: HostRules::AnyHost,
        public_scheme: Scheme::Http,
        trusted_proxies: TrustedProxies::default(),
        embed_policy: EmbedPolicy::new(Vec::new(), FrameAncestors::parse("'self'").unwrap()),
        portal: crate::portal::tests::small_portal(),
        memory_budgets: Default::default(),
        body_timeout: Duration::from_secs(30),
        known_methods: KnownMethods::default(),
        known_queries: KnownQueries::default(),
        deprecations: &[],
        stream_limiter: Default::default(),
        inbox_stream_lifetime: std::time::Duration::from_secs(1),
        shutdown: ShutdownFlag::default(),
    }
}
