//! Fields of content that the server stores but does not enforce.
//!
//! Every property in the schemas has the annotation `x-enforcement`: `enforced` for fields that the server applies, and
//! `recorded` for fields that it only stores. Warnings list the recorded fields, so that a version does not look
//! stricter than it is.

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
    /// The JSON pointer to the field within the content.
    pub pointer: String,
}

/// The recorded fields of content. A field within a recorded field is not listed separately.
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
