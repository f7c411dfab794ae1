//! Which fields of content nothing acts on yet.
//!
//! Every property of every schema says in `x-enforcement` whether something reads it (`enforced`) or it is only kept
//! (`recorded`), so that a version never looks stricter than it is.

use super::schema;
use crate::asset::kind::AssetKind;
use serde_json::Value;

/// A field that is kept but not acted on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedField {
    /// JSON pointer to the field in the content.
    pub pointer: String,
}

/// The fields of `content` that are kept but not acted on, each reported once at its outermost level.
#[must_use]
pub fn recorded_only(kind: AssetKind, content: &Value) -> Vec<RecordedField> {
    let mut found = Vec::new();
    if let Some(root) = schema::parsed(kind) {
        walk(root, root, content, "", &mut found);
    }
    found
}

/// INVARIANT: recursion ends, because every call goes one level down in `content`.
fn walk(root: &Value, schema: &Value, content: &Value, pointer: &str, found: &mut Vec<RecordedField>) {
    let schema = resolved(root, schema);
    if let (Some(properties), Some(members)) = (schema.get("properties"), content.as_object()) {
        for (name, member) in members {
            let Some(property) = properties.get(name) else { continue };
            let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
            if property.get("x-enforcement").and_then(Value::as_str) == Some("recorded") {
                found.push(RecordedField { pointer });
            } else {
                walk(root, property, member, &pointer, found);
            }
        }
    }
    if let (Some(item), Some(items)) = (schema.get("items"), content.as_array()) {
        for (index, member) in items.iter().enumerate() {
            walk(root, item, member, &format!("{pointer}/{index}"), found);
        }
    }
}

/// Follows one local reference; our schemas have no chains of them.
fn resolved<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
    target.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}
