//! Differences between two versions: a JSON Patch (RFC 6902) for programs, and lines of text for people.
//!
//! Both outputs are bounded. A patch can be many times larger than its document, because each operation repeats the
//! path of its value. Therefore the traversal that writes the lines estimates the memory of the patch. Beyond
//! [`MAX_PATCH_BYTES`], the patch is one operation that replaces the whole document.

use serde_json::Value;
use similar::{ChangeTag, TextDiff};
use std::fmt::Write as _;

/// The maximum memory of a patch's operations, in bytes.
const MAX_PATCH_BYTES: usize = 4 << 20;
/// The estimated memory of one operation without its path and value, in bytes.
const OPERATION_BYTES: usize = 128;
/// The estimated memory of a value with its heap allocation, and of the first map node of an object, in bytes.
const VALUE_BYTES: usize = 48;
const MAP_NODE_BYTES: usize = 640;
/// The maximum length of the lines for people, in bytes.
const MAX_READABLE_BYTES: usize = 256 << 10;
/// The maximum length of a value in one line, in characters.
const MAX_VALUE_CHARS: usize = 2_000;
/// The maximum number of lines in a text that is compared line by line, because that comparison takes quadratic time.
const MAX_COMPARED_LINES: usize = 1_000;

/// The differences between two versions, for programs and for people.
#[derive(Clone, PartialEq, Debug)]
pub struct VersionDiff {
    /// The operations that turn the first content into the second one.
    pub patch: json_patch::Patch,
    /// The changes for people. Each change is one line with its JSON pointer, and starts with `+` (added), `-`
    /// (removed) or `~` (changed).
    pub readable: String,
    /// The estimated memory of the patch in bytes. It exceeds the length of its text.
    pub patch_bytes: usize,
}

/// Compares two contents. They are passed by value, so that a patch that replaces the whole document needs no copy.
#[must_use]
pub fn diff(from: Value, to: Value) -> VersionDiff {
    let mut writer = DiffWriter::default();
    writer.compare(&from, &to);
    let (patch, patch_bytes) = match writer.patch_bytes {
        bytes @ 0..=MAX_PATCH_BYTES => (json_patch::diff(&from, &to), bytes),
        _ => {
            let replacement_bytes = estimate_bytes(&to);
            (replace_document(to), replacement_bytes)
        }
    };
    if writer.is_truncated {
        writer.text.push_str("… and more\n");
    }
    VersionDiff { patch, readable: writer.text, patch_bytes }
}

fn replace_document(to: Value) -> json_patch::Patch {
    let replace = json_patch::ReplaceOperation { path: json_patch::jsonptr::PointerBuf::new(), value: to };
    json_patch::Patch(vec![json_patch::PatchOperation::Replace(replace)])
}

/// The estimated memory of a copy of this value, in bytes.
fn estimate_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => VALUE_BYTES,
        Value::String(text) => VALUE_BYTES.saturating_add(text.len()),
        Value::Array(items) => items.iter().fold(VALUE_BYTES, |sum, item| sum.saturating_add(estimate_bytes(item))),
        Value::Object(members) => {
            members.iter().fold(VALUE_BYTES.saturating_add(MAP_NODE_BYTES), |sum, (key, member)| {
                sum.saturating_add(VALUE_BYTES).saturating_add(key.len()).saturating_add(estimate_bytes(member))
            })
        }
    }
}

/// The lines so far, and the current position in the document.
#[derive(Default)]
struct DiffWriter {
    text: String,
    pointer: String,
    /// The estimated memory of the patch so far, in bytes.
    patch_bytes: usize,
    is_truncated: bool,
}

impl DiffWriter {
    fn compare(&mut self, from: &Value, to: &Value) {
        match (from, to) {
            (Value::Object(old), Value::Object(new)) => {
                for (key, value) in old {
                    self.with_member(key, |writer| match new.get(key) {
                        Some(new_value) => writer.compare(value, new_value),
                        None => writer.write_change('-', None, || render_value(value)),
                    });
                }
                for (key, value) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
                    self.with_member(key, |writer| writer.write_change('+', Some(value), || render_value(value)));
                }
            }
            (Value::Array(old), Value::Array(new)) => {
                for index in 0..old.len().max(new.len()) {
                    self.with_member(&index.to_string(), |writer| match (old.get(index), new.get(index)) {
                        (Some(value), Some(new_value)) => writer.compare(value, new_value),
                        (Some(value), None) => writer.write_change('-', None, || render_value(value)),
                        (None, Some(value)) => writer.write_change('+', Some(value), || render_value(value)),
                        (None, None) => {}
                    });
                }
            }
            _ if from == to => {}
            (Value::String(old), Value::String(new)) if has_lines(old) || has_lines(new) => {
                self.write_text_changes(old, new, to)
            }
            _ => self.write_change('~', Some(to), || format!("{} -> {}", render_value(from), render_value(to))),
        }
    }

    /// Moves the position to a member, calls `visit_member`, and moves the position back.
    fn with_member(&mut self, key: &str, visit_member: impl FnOnce(&mut Self)) {
        let parent_length = self.pointer.len();
        self.pointer.push('/');
        self.pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
        visit_member(self);
        self.pointer.truncate(parent_length);
    }

    /// Writes one line, and adds the memory of its patch operation. `value` is the value in that operation.
    fn write_change(&mut self, sign: char, value: Option<&Value>, describe: impl FnOnce() -> String) {
        let operation_bytes =
            OPERATION_BYTES.saturating_add(self.pointer.len()).saturating_add(value.map_or(0, estimate_bytes));
        self.patch_bytes = self.patch_bytes.saturating_add(operation_bytes);
        if self.has_space_left() {
            // Writing to a `String` cannot fail.
            let _ = writeln!(self.text, "{sign} {}: {}", excerpt(&self.pointer), describe());
        }
    }

    /// Compares a text with several lines, line by line.
    fn write_text_changes(&mut self, old: &str, new: &str, new_value: &Value) {
        if old.lines().count().max(new.lines().count()) > MAX_COMPARED_LINES {
            let (old, new) = (old.lines().count(), new.lines().count());
            return self
                .write_change('~', Some(new_value), || format!("a text of {old} lines -> a text of {new} lines"));
        }
        self.write_change('~', Some(new_value), String::new);
        let compared = TextDiff::from_lines(old, new);
        for change in compared.iter_all_changes() {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            if self.has_space_left() {
                let _ = writeln!(self.text, "    {sign} {}", excerpt(change.value().trim_end_matches(['\n', '\r'])));
            }
        }
    }

    fn has_space_left(&mut self) -> bool {
        let has_space = self.text.len() < MAX_READABLE_BYTES;
        self.is_truncated |= !has_space;
        has_space
    }
}

fn has_lines(text: &str) -> bool {
    text.contains('\n')
}

/// Renders a value in one line, and cuts it at the maximum length before it is written.
fn render_value(value: &Value) -> String {
    match value {
        Value::String(text) => {
            excerpt(&Value::String(text.chars().take(MAX_VALUE_CHARS).collect()).to_string()).to_owned()
        }
        Value::Array(items) if items.len() > MAX_VALUE_CHARS => format!("[… {} items]", items.len()),
        Value::Object(members) if members.len() > MAX_VALUE_CHARS => format!("{{… {} members}}", members.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            excerpt(&value.to_string()).to_owned()
        }
    }
}

/// The first [`MAX_VALUE_CHARS`] characters of a text.
fn excerpt(text: &str) -> &str {
    text.char_indices().nth(MAX_VALUE_CHARS).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn apply_patch(from: &Value, to: &Value) -> Value {
        let mut document = from.clone();
        json_patch::patch(&mut document, &diff(from.clone(), to.clone()).patch).unwrap();
        document
    }

    #[test]
    fn renders_added_removed_and_changed_values() {
        let from = json!({
            "system_prompt": "Sort the ticket.\nBe kind.\n", "labels": {"a/b": "x"}, "variables": [1, 2, 3],
            "provider_route": {"model": "a", "region": "eu"},
        });
        let to = json!({
            "system_prompt": "Sort the ticket.\nBe quick.\n", "labels": {}, "variables": [1, 9],
            "provider_route": {"model": "b", "region": "eu"}, "description": "new",
        });
        insta::assert_snapshot!(diff(from.clone(), to.clone()).readable, @r#"
        - /labels/a~1b: "x"
        ~ /provider_route/model: "a" -> "b"
        ~ /system_prompt: 
              Sort the ticket.
            - Be kind.
            + Be quick.
        ~ /variables/1: 2 -> 9
        - /variables/2: 3
        + /description: "new"
        "#);
        assert_eq!(apply_patch(&from, &to), to);
        assert_eq!(apply_patch(&to, &from), from);
        assert_eq!(diff(to.clone(), to.clone()).readable, "");
        assert_eq!(diff(to.clone(), to.clone()).patch.0, []);
    }

    #[test]
    fn replaces_the_document_when_keys_inflate_the_patch() {
        let repeated_values = |value: u32| json!({ "k".repeat(10_000): vec![value; 10_000] });
        let result = diff(repeated_values(1), repeated_values(2));
        assert_eq!(result.patch.0.len(), 1);
        assert!(result.readable.len() < MAX_READABLE_BYTES + 3 * MAX_VALUE_CHARS, "{}", result.readable.len());
        assert!(result.readable.ends_with("… and more\n"));
        assert_eq!(apply_patch(&repeated_values(1), &repeated_values(2)), repeated_values(2));
    }

    #[test]
    fn replaces_the_document_when_the_patch_outweighs_it() {
        let list =
            |items: &mut dyn Iterator<Item = u32>| json!(items.map(|item| format!("{item:070}")).collect::<Vec<_>>());
        let (ascending, descending) = (list(&mut (0..49_900)), list(&mut (0..49_900).rev()));
        assert_eq!(diff(ascending.clone(), descending.clone()).patch.0.len(), 1);
        assert_eq!(apply_patch(&ascending, &descending), descending);
        let shorter = list(&mut (0..49_890));
        assert_eq!(diff(ascending, shorter).patch.0.len(), 10);
    }

    #[test]
    fn skips_line_comparison_of_long_texts() {
        let text = |word: &str| json!({ "t": format!("{word}\n").repeat(MAX_COMPARED_LINES + 1) });
        assert_eq!(diff(text("a"), text("b")).readable, "~ /t: a text of 1001 lines -> a text of 1001 lines\n");
    }

    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3_i64..3).prop_map(Value::from),
            "[a-c/~\n]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::hash_map("[a-c/~]{0,2}", inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn patch_transforms_source_into_target(from in documents(), to in documents()) {
            prop_assert_eq!(apply_patch(&from, &to), to.clone());
            prop_assert_eq!(diff(from.clone(), to.clone()).readable.is_empty(), from == to);
        }
    }
}
