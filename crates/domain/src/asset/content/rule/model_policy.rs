//! Rules for the content of model policies: identifiers of routes must be unique, because evidence names a route by its
//! identifier.

use super::{Violation, Violations, list_items, text_field};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn check(content: &Value, findings: &mut Violations) {
    let primary = content.get("provider_route").and_then(|route| text_field(route, "route_id"));
    let mut route_ids: BTreeSet<&str> = primary.into_iter().collect();
    for (index, route) in list_items(content, "fallback_routes") {
        if text_field(route, "route_id").is_some_and(|id| !route_ids.insert(id)) {
            findings.add(format!("/fallback_routes/{index}/route_id"), Violation::DuplicateRouteId);
        }
    }
}
