//! Compares a refined use case with its predecessor, and prints the changes for people.

use crate::{
    failure::Failure,
    http_client::{ServerClient, string_or_empty},
    output::print,
    terminal_text::sanitize,
};
use serde_json::Value;

/// The server's comparison of a use case with its predecessor; `None` if the comparison is not visible to the caller.
pub(super) fn compare(server: &ServerClient, id: &str) -> Result<Option<Value>, Failure> {
    server.find(&["use-cases", id, "changes"], &[("workspace_id", server.workspace_id()?)])
}

/// Prints a comparison: `+` for additions, `-` for removals, and `=` for identical steps.
pub(super) fn show(comparison: &Value) -> Result<(), Failure> {
    if comparison.get("redacted") == Some(&Value::Bool(true)) {
        return print("you may not see the changes, because you lack `connection.read`");
    }
    if comparison.get("predecessor_id").is_none_or(Value::is_null) {
        return print("the use case refines no other one");
    }
    let changes = comparison.get("changes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    print(if changes.is_empty() { "Nothing changed." } else { "Changes:" })?;
    for change in changes {
        print(&format!("  {}", sanitize(string_or_empty(change, "path"))))?;
        for (marker, member) in [('-', "before"), ('+', "after")] {
            for line in change.get(member).filter(|value| !value.is_null()).map(lines).unwrap_or_default() {
                print(&format!("    {marker} {line}"))?;
            }
        }
    }
    for step in comparison.get("unchanged_steps").and_then(Value::as_array).into_iter().flatten() {
        print(&format!("  = flow.steps.{}", sanitize(step.as_str().unwrap_or_default())))?;
    }
    Ok(())
}

/// The lines of a string, of the template of a prompt, or of the JSON text of another value.
fn lines(value: &Value) -> Vec<String> {
    let text = value.as_str().or_else(|| value.get("template").and_then(Value::as_str));
    match text {
        Some(text) => text.lines().map(sanitize).collect(),
        None => serde_json::to_string_pretty(value).unwrap_or_default().lines().map(sanitize).collect(),
    }
}
