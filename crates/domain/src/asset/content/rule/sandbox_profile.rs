//! Rules for the content of sandbox profiles: network, image and variables must be consistent.

use super::{Violation, Violations, list_items, text_field};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn check(content: &Value, findings: &mut Violations) {
    if let Some(network) = content.get("network") {
        match text_field(network, "mode") {
            Some("allowlist") => findings.require(network, "/network", "hosts"),
            Some("none") => findings.forbid(network, "/network", "hosts"),
            Some(_) | None => {}
        }
    }
    if content.get("image_digest").is_some() {
        findings.require(content, "", "image");
    }
    // A secret must not have the name of an allowed environment variable, because one of the two values would hide the
    // other.
    let allowed: BTreeSet<&str> = list_items(content, "env_allow").filter_map(|(_, name)| name.as_str()).collect();
    for (index, secret) in list_items(content, "secrets") {
        if text_field(secret, "name").is_some_and(|name| allowed.contains(name)) {
            findings.add(format!("/secrets/{index}/name"), Violation::Contradiction);
        }
    }
}
