//! Rules for the content of MCP servers: transport, authentication and lists of tools must be consistent.

use super::{Violation, Violations, list_items, text_field};
use serde_json::Value;
use std::collections::BTreeSet;

/// The headers that the HTTP client and the MCP client set, in lower case. A value from content could split the
/// request, route it to another virtual host, or forge a header of the protocol.
const PROTOCOL_HEADERS: [&str; 14] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn check(content: &Value, findings: &mut Violations) {
    if let Some(transport) = content.get("transport") {
        match text_field(transport, "type") {
            Some("streamable-http") => findings.require(transport, "/transport", "url"),
            Some("stdio") => {
                findings.forbid(transport, "/transport", "url");
                findings.require(content, "", "packages");
            }
            Some(_) | None => {}
        }
        for (index, header) in list_items(transport, "headers") {
            let header_name = text_field(header, "name").map(str::to_ascii_lowercase);
            if header_name.is_some_and(|name| PROTOCOL_HEADERS.contains(&name.as_str())) {
                findings.add(format!("/transport/headers/{index}/name"), Violation::ProtocolHeader);
            }
        }
    }
    if let Some(auth) = content.get("auth") {
        match text_field(auth, "type") {
            Some("bearer") => findings.require(auth, "/auth", "secret_ref"),
            Some("oauth2") => findings.require(auth, "/auth", "issuer"),
            Some(_) | None => {}
        }
    }
    let allowed: BTreeSet<&str> = list_items(content, "allowed_tools").filter_map(|(_, tool)| tool.as_str()).collect();
    for (index, tool) in list_items(content, "denied_tools") {
        if tool.as_str().is_some_and(|name| allowed.contains(name)) {
            findings.add(format!("/denied_tools/{index}"), Violation::Contradiction);
        }
    }
}
