//! The traversal of content together with its schema. The position in the schema determines the meaning of a value.

use serde_json::Value;

/// Whether the traversal enters the visited value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::asset) enum VisitFlow {
    /// Visit the members and items of the value.
    Descend,
    /// Skip the members and items of the value.
    Skip,
}

/// A visited value, with the schema that describes it.
pub(in crate::asset) struct VisitedValue<'w, 'p> {
    /// The schema at this position, before its `$ref` is followed.
    pub(in crate::asset) schema: &'w Value,
    /// The schema at this position, after its `$ref` is followed.
    pub(in crate::asset) resolved: &'w Value,
    pub(in crate::asset) value: &'w Value,
    pub(in crate::asset) pointer: &'p str,
}

/// Visits every value that the schema describes, outermost first. Values without a schema are skipped, such as members
/// of free maps. A value that several branches describe (`oneOf` and similar) is visited once for each branch.
pub(in crate::asset) fn visit<'w>(
    root: &'w Value,
    content: &'w Value,
    visitor: &mut impl FnMut(&VisitedValue<'w, '_>) -> VisitFlow,
) {
    visit_value(root, root, content, "", visitor);
}

/// INVARIANT: the recursion ends. Each call descends one level in `value`, whose nesting is bounded, or goes from a
/// schema to one of its branches. Branches of published schemas are not nested, which a test checks.
fn visit_value<'w>(
    root: &'w Value,
    schema: &'w Value,
    value: &'w Value,
    pointer: &str,
    visitor: &mut impl FnMut(&VisitedValue<'w, '_>) -> VisitFlow,
) {
    let resolved = resolve_reference(root, schema);
    if visitor(&VisitedValue { schema, resolved, value, pointer }) == VisitFlow::Skip {
        return;
    }
    let schema = resolved;
    for keyword in ["anyOf", "oneOf", "allOf"] {
        for branch in schema.get(keyword).and_then(Value::as_array).into_iter().flatten() {
            visit_value(root, branch, value, pointer, visitor);
        }
    }
    match value {
        Value::Object(members) => {
            let properties = schema.get("properties");
            let additional = schema.get("additionalProperties").filter(|additional| additional.is_object());
            for (name, member) in members {
                let declared = properties.and_then(|properties| properties.get(name));
                if let Some(member_schema) = declared.or(additional) {
                    visit_value(root, member_schema, member, &member_pointer(pointer, name), visitor);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item_schema) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    visit_value(root, item_schema, item, &format!("{pointer}/{index}"), visitor);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Appends the name of a member to a JSON pointer (RFC 6901).
pub(in crate::asset) fn member_pointer(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Follows one local `$ref`. The published schemas have no chains of references.
fn resolve_reference<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
    target.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}
