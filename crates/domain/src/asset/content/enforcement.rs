//! Which fields of content nothing acts on yet.
//!
//! Every property of every schema says in `x-enforcement` whether something reads it (`enforced`) or it is only kept
//! (`recorded`), so that a version never looks stricter than it is.

use super::{
    position::{self, Descend},
    schema,
};
use crate::asset::kind::AssetKind;
use serde_json::Value;
use std::collections::BTreeSet;

/// A field that is kept but not acted on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RecordedField {
    /// JSON pointer to the field in the content.
    pub pointer: String,
}

/// The fields of `content` that are kept but not acted on, each reported once at its outermost level.
#[must_use]
pub fn recorded_only(kind: AssetKind, content: &Value) -> Vec<RecordedField> {
    let mut found = BTreeSet::new();
    if let Some(root) = schema::parsed(kind) {
        position::visit(root, content, &mut |place| {
            if place.schema.get("x-enforcement").and_then(Value::as_str) == Some("recorded") {
                found.insert(RecordedField { pointer: place.pointer.to_owned() });
                return Descend::Past;
            }
            Descend::Into
        });
    }
    found.into_iter().collect()
}
