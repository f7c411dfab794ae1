//! Renders an object as a record: one row for each member, dotted names for nested members, tables
//! for lists of objects.

use super::{
    relative_time,
    table::{self, Display},
};
use crate::terminal_text::{sanitize, sanitize_lines};
use serde_json::{Map, Value};
use time::OffsetDateTime;

/// Maximum number of columns of a table inside a record.
const MAX_COLUMNS: usize = 6;

/// Renders the members of an object.
pub(super) fn render(members: &Map<String, Value>) -> Vec<String> {
    render_for(Display::of_stdout(), members, OffsetDateTime::now_utc())
}

fn render_for(display: Display, members: &Map<String, Value>, now: OffsetDateTime) -> Vec<String> {
    let mut parts = Parts { rows: Vec::new(), lists: Vec::new(), now };
    parts.collect("", members);
    let mut lines = table::lay_out(display, None, &parts.rows);
    for (name, items) in parts.lists {
        lines.push(String::new());
        lines.push(format!("{}:", sanitize(&name)));
        let columns = columns(items);
        lines.extend(table::render_for(
            display,
            items,
            &columns.iter().map(|(head, pointer)| (head.clone(), pointer.as_str())).collect::<Vec<_>>(),
        ));
    }
    lines
}

/// The parts of a record: the rows of an object, and its lists of objects.
struct Parts<'v> {
    rows: Vec<Vec<String>>,
    lists: Vec<(String, &'v [Value])>,
    now: OffsetDateTime,
}

impl<'v> Parts<'v> {
    fn collect(&mut self, prefix: &str, members: &'v Map<String, Value>) {
        for (name, value) in members {
            let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                Value::Object(inner) if !inner.is_empty() => self.collect(&name, inner),
                Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_object) => {
                    self.lists.push((name, items));
                }
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_)
                | Value::Object(_) => self.rows.push(vec![sanitize(&name), self.text(value)]),
            }
        }
    }

    /// The text of a value. A time is shown exactly, followed by the time relative to now.
    fn text(&self, value: &Value) -> String {
        match value {
            Value::String(text) => match relative_time::parse(text) {
                Some(time) => format!("{} ({})", sanitize(text), relative_time::describe(time, self.now)),
                None => sanitize(sanitize_lines(text).trim_end()),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                table::cell(Some(value), self.now)
            }
        }
    }
}

/// The columns of a table: the members for which at least one item has a value. If there are more than
/// [`MAX_COLUMNS`], identifiers are omitted first, then the last members.
fn columns(items: &[Value]) -> Vec<(String, String)> {
    let mut names: Vec<&str> = Vec::new();
    for (name, value) in items.iter().filter_map(Value::as_object).flatten() {
        if !value.is_null() && !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    // If there are too many columns, identifiers are omitted first, because they are long. The JSON format shows all
    // members.
    if names.len() > MAX_COLUMNS {
        let mut without_ids: Vec<&str> = names.iter().copied().filter(|name| !name.ends_with("_id")).collect();
        without_ids.truncate(MAX_COLUMNS);
        names = without_ids;
    }
    let pointer = |name: &str| format!("/{}", name.replace('~', "~0").replace('/', "~1"));
    names.into_iter().map(|name| (sanitize(name).to_uppercase(), pointer(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn renders_nested_values_without_json() {
        let item = json!({
            "slug": "letters", "tags": ["a", "b"], "none": [], "theme": { "color": "red", "sizes": {} },
            "bindings": [{ "label": null, "role": "policy_bundle" }, { "label": "v1", "role": "skill" }],
            "mixed": [1, { "a": 2 }], "open": true,
        });
        let lines = render_for(Display::of_stdout(), item.as_object().unwrap(), OffsetDateTime::now_utc());
        let text = lines.join("\n");
        let squeezed: Vec<String> =
            lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for expected in ["tags a, b", "none -", "theme.color red", "theme.sizes -", "mixed 2 items", "open yes"] {
            assert!(squeezed.iter().any(|line| line == expected), "{expected}: {text}");
        }
        let table = squeezed.iter().position(|line| line == "bindings:").unwrap();
        assert_eq!(squeezed[table + 1..], ["ROLE LABEL", "policy_bundle -", "skill v1"].map(str::to_owned), "{text}");
        assert!(!text.contains(['{', '[', '"']), "{text}");
    }
}
