//! What tests of this folder have in common.

use super::{HttpBase, fallback::KnownMethods, leaving::Leaving, site_guard::SiteRules};
use crate::metrics::Metrics;

/// The base of an app that answers every host.
pub(crate) fn base() -> HttpBase {
    HttpBase {
        metrics: Metrics::new().unwrap(),
        site_rules: SiteRules::AnyHost,
        known_methods: KnownMethods::default(),
        leaving: Leaving::default(),
    }
}
