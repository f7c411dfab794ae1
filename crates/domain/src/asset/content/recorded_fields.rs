//! Fields of content that the server stores but does not enforce.
//!
//! Every schema property has an `x-enforcement` annotation: `enforced` for fields that the server applies, `recorded`
//! for fields that it only stores. Warnings list the recorded fields, so that a version does not look stricter than
//! it is.

use super::{
    content_walk::{self, VisitFlow},
    schema,
};
use crate::asset::kind::AssetKind;
use serde_json::Value;
use std::collections::BTreeSet;

/// A field that the server stores but does not enforce.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RecordedField {
    /// JSON pointer to the field in the content.
    pub pointer: String,
}

/// The fields of `content` that are only recorded, each reported once at its outermost level.
#[must_use]
pub fn recorded_fields(kind: AssetKind, content: &Value) -> Vec<RecordedField> {
    let mut found = BTreeSet::new();
    if let Some(root) = schema::schema_value(kind) {
        content_walk::visit(root, content, &mut |visited| {
            if visited.schema.get("x-enforcement").and_then(Value::as_str) == Some("recorded") {
                found.insert(RecordedField { pointer: visited.pointer.to_owned() });
                return VisitFlow::Skip;
            }
            VisitFlow::Descend
        });
    }
    found.into_iter().collect()
}
