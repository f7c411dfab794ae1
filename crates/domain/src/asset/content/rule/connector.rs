//! Rules for the content of connectors: OAuth 2.0 requires a token URL, and the connection schema must not contain
//! secrets.

use super::{Violation, Violations, is_true, text_field};
use serde_json::Value;

pub(super) fn check(content: &Value, findings: &mut Violations) {
    if let Some(auth) = content.get("auth")
        && text_field(auth, "type") == Some("oauth2")
    {
        findings.require(auth, "/auth", "token_url");
    }
    if let Some(schema) = content.get("connection_schema") {
        check_secrets(schema, "/connection_schema", findings);
    }
}

/// A field that the schema marks as secret must have no value in the content, not even as an example.
///
/// INVARIANT: the recursion ends, because each call descends one level in a value of bounded nesting.
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
                check_secrets(member, &super::content_walk::member_pointer(pointer, name), findings);
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
