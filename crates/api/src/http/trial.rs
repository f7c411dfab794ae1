//! What tests of this folder have in common.

use super::{
    HttpBase,
    fallback::KnownMethods,
    leaving::Leaving,
    site_guard::{Scheme, SiteRules},
    strict_query::KnownQueries,
};
use crate::metrics::Metrics;
use std::time::Duration;

/// The base of an app that answers every host.
pub(crate) fn base() -> HttpBase {
    HttpBase {
        metrics: Metrics::new().unwrap(),
        site_rules: SiteRules::AnyHost,
        public_scheme: Scheme::Http,
        body_timeout: Duration::from_secs(30),
        known_methods: KnownMethods::default(),
        known_queries: KnownQueries::default(),
        deprecations: &[],
        leaving: Leaving::default(),
    }
}
