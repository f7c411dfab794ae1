//! Rules of model policies: evidence names a route by its id, so the ids are unique.

use super::{Violation, Findings, items, text};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn check(content: &Value, findings: &mut Findings) {
    let primary = content.get("provider_route").and_then(|route| text(route, "route_id"));
    let mut seen: BTreeSet<&str> = primary.into_iter().collect();
    for (index, route) in items(content, "fallback_routes") {
        if text(route, "route_id").is_some_and(|id| !seen.insert(id)) {
            findings.add(format!("/fallback_routes/{index}/route_id"), Violation::DuplicateRouteId);
        }
    }
}
