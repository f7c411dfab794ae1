//! The check of list and map sizes, which runs before the validator.

use super::{
    ContentProblem,
    content_walk::{self, VisitFlow},
    problem::MAX_PROBLEMS,
    schema::schema_value,
    validator_problems::TOO_LONG,
};
use crate::asset::kind::AssetKind;
use serde_json::Value;

/// The number of entries above which an oversized list or map is reported as one problem, without the problems of its
/// entries.
const OVERSIZED_FROM: usize = 1_000;

/// The problems of lists and maps that exceed the limit of their schema and have more than [`OVERSIZED_FROM`] entries.
/// The caller does not run the validator on such content, because it would report every entry.
pub(super) fn oversized_collections(kind: AssetKind, content: &Value) -> Vec<ContentProblem> {
    let mut found = Vec::new();
    let Some(root) = schema_value(kind) else { return found };
    content_walk::visit(root, content, &mut |visited| {
        let (count, keyword) = match visited.value {
            Value::Array(items) => (items.len(), "maxItems"),
            Value::Object(members) => (members.len(), "maxProperties"),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return VisitFlow::Descend,
        };
        let limit = visited.resolved.get(keyword).and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok());
        if count <= OVERSIZED_FROM || limit.is_none_or(|limit| count <= limit) {
            return VisitFlow::Descend;
        }
        if found.len() < MAX_PROBLEMS {
            found.push(ContentProblem::new(visited.pointer, "out_of_bounds", TOO_LONG));
        }
        VisitFlow::Skip
    });
    found
}
