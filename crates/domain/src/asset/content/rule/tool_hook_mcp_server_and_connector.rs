//! Rules of kinds with external endpoints: tools, hooks, MCP servers, connectors.

use super::{Violation, Violations, is_true, list_items, text_field};
use crate::{hook, policy::CompiledPolicy};
use serde_json::Value;
use std::collections::BTreeSet;

/// Names of the built-in tools.
const BUILTINS: [&str; 3] = ["execute_flow", "query_knowledge_base", "inspect_evidence"];

/// Headers that the HTTP client and the MCP client set, in lower case. A value from content could split the request,
/// route it to another virtual host, or spoof a protocol header.
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

/// Whether a text is an http or https URL without credentials. Credentials are refused, because content must not
/// contain secrets.
pub(super) fn is_http_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
    matches!(scheme, "http" | "https") && printable && !authority.is_empty() && !authority.contains('@')
}

pub(super) fn check_tool(content: &Value, findings: &mut Violations) {
    if let Some(annotations) = content.get("annotations")
        && is_true(annotations, "read_only")
        && is_true(annotations, "destructive")
    {
        findings.add("/annotations/destructive", Violation::Contradiction);
    }
    let Some(binding) = content.get("binding") else { return };
    let Some(target) = binding.get("ref") else { return };
    let pointer = "/binding/ref";
    match text_field(binding, "kind") {
        Some("http") => check_address_or_reference(target, pointer, findings),
        Some("mcp" | "code") if !target.is_object() => findings.add(pointer, Violation::ReferenceExpected),
        Some("builtin") if !target.as_str().is_some_and(|name| BUILTINS.contains(&name)) => {
            findings.add(pointer, Violation::UnknownBuiltin);
        }
        Some(_) | None => {}
    }
}

fn check_address_or_reference(target: &Value, pointer: &str, findings: &mut Violations) {
    if target.as_str().is_some_and(|text| !is_http_url(text)) {
        findings.add(pointer, Violation::AddressExpected);
    }
}

pub(super) fn check_hook(content: &Value, findings: &mut Violations) {
    if let Some(pattern) = text_field(content, "matcher").filter(|pattern| !matches!(*pattern, "" | "*"))
        && hook::compile_full_match(pattern).is_none()
    {
        findings.add("/matcher", Violation::PatternNotLinear);
    }
    if let Some(source) = text_field(content, "if") {
        for problem in CompiledPolicy::rule_problems(&hook::condition_bundle(source)) {
            findings.add_problem("/if", problem.code, problem.message);
        }
    }
    let Some(handler) = content.get("handler") else { return };
    let Some(target) = handler.get("ref") else { return };
    let pointer = "/handler/ref";
    match text_field(handler, "type") {
        Some("http") if !target.as_str().is_some_and(is_http_url) => findings.add(pointer, Violation::AddressExpected),
        Some("policy" | "mcp_tool" | "prompt" | "code") if !target.is_object() => {
            findings.add(pointer, Violation::ReferenceExpected);
        }
        Some(_) | None => {}
    }
}

pub(super) fn check_mcp_server(content: &Value, findings: &mut Violations) {
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
            let named = text_field(header, "name").map(str::to_ascii_lowercase);
            if named.is_some_and(|name| PROTOCOL_HEADERS.contains(&name.as_str())) {
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

pub(super) fn check_connector(content: &Value, findings: &mut Violations) {
    if let Some(auth) = content.get("auth")
        && text_field(auth, "type") == Some("oauth2")
    {
        findings.require(auth, "/auth", "token_url");
    }
    if let Some(schema) = content.get("connection_schema") {
        check_secrets(schema, "/connection_schema", findings);
    }
}

/// A field that the schema marks as secret must not contain a value, not even as an example.
///
/// INVARIANT: the recursion terminates, because every call descends one level in a value of bounded nesting.
fn check_secrets(node: &Value, pointer: &str, findings: &mut Violations) {
    if is_true(node, "x-secret") {
        for value in ["default", "const", "enum", "example", "examples"] {
            if node.get(value).is_some() {
                findings.add(format!("{pointer}/{value}"), Violation::SecretInContent);
            }
        }
    }
    match node {
        Value::Object(members) => {
            for (name, member) in members {
                check_secrets(member, &super::schema_walk::member_pointer(pointer, name), findings);
            }
        }
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                check_secrets(item, &format!("{pointer}/{index}"), findings);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
