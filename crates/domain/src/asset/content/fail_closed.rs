//! Fail-closed controls in content that the server does not enforce yet.
//!
//! The schemas mark such fields with `x-fails-closed`. With `true`, the field is a control as soon as it has a value.
//! With `"present"`, the field is a list of permitted values, which is strictest when it is empty. A list names the
//! values that make the field a control. For an absent field, its `default` counts.
//!
//! A version with such a control can be created and tested. In production, the activation of a release with this
//! version is refused with `control_not_enforced`, because the version would look stricter than it is.

use super::{
    content_walk::{self, VisitFlow, VisitedValue, member_pointer},
    schema,
};
use crate::asset::kind::AssetKind;
use serde_json::Value;
use std::collections::BTreeSet;

/// How a release reaches a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindingPath {
    /// The release binds the version.
    Bound,
    /// Content that the release binds references the version.
    Referenced,
}

/// The JSON pointers to the fail-closed controls that the server only records, ordered by pointer.
///
/// Runs enforce guardrails, hooks and sandbox profiles only if the release binds them. If only a harness or an agent
/// references them, all of their controls count as not enforced. For MCP servers it is the reverse: runs use only the
/// servers that a bound tool references.
#[must_use]
pub fn unenforced_controls(kind: AssetKind, content: &Value, path: BindingPath) -> Vec<String> {
    let mut found = BTreeSet::new();
    let is_never_enforced = match path {
        BindingPath::Bound => kind == AssetKind::McpServer,
        BindingPath::Referenced => {
            matches!(kind, AssetKind::GuardrailConfig | AssetKind::HookDefinition | AssetKind::SandboxProfile)
        }
    };
    let mut recorded_field: Option<String> = is_never_enforced.then(String::new);
    if let Some(root) = schema::schema_value(kind) {
        content_walk::visit(root, content, &mut |visited| {
            // A field within a recorded field counts as recorded, even if its own annotation is `enforced`.
            let is_inside_recorded =
                recorded_field.as_deref().is_some_and(|recorded_pointer| is_below(visited.pointer, recorded_pointer));
            if !is_inside_recorded {
                recorded_field = is_recorded(visited.schema).then(|| visited.pointer.to_owned());
            }
            collect_controls(visited, recorded_field.is_some(), &mut found);
            VisitFlow::Descend
        });
    }
    found.into_iter().collect()
}

fn is_below(pointer: &str, ancestor: &str) -> bool {
    pointer.strip_prefix(ancestor).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('/'))
}

fn is_recorded(schema: &Value) -> bool {
    schema.get("x-enforcement").and_then(Value::as_str) == Some("recorded")
}

/// Adds the controls among the fields of one object that the server does not enforce.
fn collect_controls(visited: &VisitedValue<'_, '_>, is_inside_recorded: bool, found: &mut BTreeSet<String>) {
    let (Some(members), Some(properties)) =
        (visited.value.as_object(), visited.resolved.get("properties").and_then(Value::as_object))
    else {
        return;
    };
    // A control in an observing mode never blocks a run, so it is not reported.
    if matches!(members.get("mode").and_then(Value::as_str), Some("observe" | "logging_only")) {
        return;
    }
    for (name, property) in properties {
        let Some(annotation) = property.get("x-fails-closed") else { continue };
        let Some(value) = members.get(name).or_else(|| property.get("default")) else { continue };
        if (is_inside_recorded || is_recorded(property)) && is_control(annotation, value) {
            found.insert(member_pointer(visited.pointer, name));
        }
    }
}

fn is_control(annotation: &Value, value: &Value) -> bool {
    let Some(control_values) = annotation.as_array() else {
        return match value {
            Value::Array(_) if annotation == "present" => true,
            Value::Array(items) => !items.is_empty(),
            Value::Object(members) => !members.is_empty(),
            Value::Null => false,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        };
    };
    match value {
        Value::Array(items) => items.iter().any(|item| control_values.contains(item)),
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            control_values.contains(value)
        }
    }
}
