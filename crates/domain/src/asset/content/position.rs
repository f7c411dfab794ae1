//! Content and schema walked side by side: what a value means follows from where the schema puts it.

use serde_json::Value;

/// Whether a visit goes on below the value it has just seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::asset) enum Descend {
    /// Into its members and items.
    Into,
    /// Not into this one.
    Past,
}

/// A value of the content, and what the schema says where it stands.
pub(in crate::asset) struct Position<'w, 'p> {
    /// The schema as written at this place: a reference to a definition is not followed yet.
    pub(in crate::asset) schema: &'w Value,
    /// The same, with a reference to a definition followed.
    pub(in crate::asset) shape: &'w Value,
    /// The value.
    pub(in crate::asset) value: &'w Value,
    /// JSON pointer to the value.
    pub(in crate::asset) pointer: &'p str,
}

/// Shows every value that the schema describes, outermost first. Members of free maps that the schema says nothing
/// about are not shown. A value that several branches describe is shown once for each.
pub(in crate::asset) fn visit<'w>(
    root: &'w Value,
    content: &'w Value,
    seen: &mut impl FnMut(&Position<'w, '_>) -> Descend,
) {
    step(root, root, content, "", seen);
}

/// INVARIANT: recursion ends. Every call either goes one level down in `value`, whose nesting is bounded, or from a
/// schema to one of its branches, and no branch of our schemas holds a branch again (a test looks).
fn step<'w>(
    root: &'w Value,
    schema: &'w Value,
    value: &'w Value,
    pointer: &str,
    seen: &mut impl FnMut(&Position<'w, '_>) -> Descend,
) {
    let shape = resolved(root, schema);
    if seen(&Position { schema, shape, value, pointer }) == Descend::Past {
        return;
    }
    let schema = shape;
    for branch in ["anyOf", "oneOf", "allOf"] {
        for way in schema.get(branch).and_then(Value::as_array).into_iter().flatten() {
            step(root, way, value, pointer, seen);
        }
    }
    match value {
        Value::Object(members) => {
            let properties = schema.get("properties");
            let others = schema.get("additionalProperties").filter(|others| others.is_object());
            for (name, member) in members {
                let known = properties.and_then(|properties| properties.get(name));
                if let Some(below) = known.or(others) {
                    step(root, below, member, &member_pointer(pointer, name), seen);
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    step(root, below, item, &format!("{pointer}/{index}"), seen);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The pointer to a member (RFC 6901).
pub(in crate::asset) fn member_pointer(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Follows one local reference; our schemas have no chains of them.
fn resolved<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
    target.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}
