//! Rewrites, truncates and counts the texts of a value in document order: its strings, keys and numbers.

use serde_json::{Map, Value};

/// Replaces every text by the result of `change`, and stops at the first error. The text of a number is its digits; it
/// stays a number if `change` returns them unchanged. If two keys become equal, a suffix distinguishes them.
///
/// INVARIANT: the recursion ends, because the values of runs have bounded nesting.
pub(super) fn rewrite_texts<E>(value: &mut Value, change: &mut impl FnMut(&str) -> Result<String, E>) -> Result<(), E> {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => {
            let digits = number.to_string();
            let changed = change(&digits)?;
            if changed != digits {
                *value = Value::String(changed);
            }
        }
        Value::String(text) => *text = change(text)?,
        Value::Array(items) => {
            for item in items {
                rewrite_texts(item, change)?;
            }
        }
        Value::Object(members) => {
            let mut changed = Map::new();
            for (key, mut member) in std::mem::take(members) {
                rewrite_texts(&mut member, change)?;
                changed.insert(unused_key(&changed, change(&key)?), member);
            }
            *members = changed;
        }
    }
    Ok(())
}

/// Returns the key, with a suffix if the object already contains it.
fn unused_key(members: &Map<String, Value>, key: String) -> String {
    let (mut name, mut suffix) = (key.clone(), 1_u64);
    while members.contains_key(&name) {
        suffix = suffix.saturating_add(1);
        name = format!("{key} {suffix}");
    }
    name
}

/// Total number of characters of all strings, without keys and numbers.
pub(super) fn count_chars(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.iter().map(count_chars).fold(0, usize::saturating_add),
        Value::Object(members) => members.values().map(count_chars).fold(0, usize::saturating_add),
    }
}

/// Truncates the strings of a value to `limit` characters in total, in document order.
pub(super) fn truncate_texts(value: &Value, limit: usize) -> Value {
    let mut remaining = limit;
    let mut truncated = value.clone();
    truncate_within(&mut truncated, &mut remaining);
    truncated
}

fn truncate_within(value: &mut Value, remaining: &mut usize) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(*remaining) {
                text.truncate(end);
            }
            *remaining = remaining.saturating_sub(text.chars().count());
        }
        Value::Array(items) => items.iter_mut().for_each(|item| truncate_within(item, remaining)),
        Value::Object(members) => members.values_mut().for_each(|member| truncate_within(member, remaining)),
    }
}

/// Estimated size of a value as text, in bytes.
pub(super) fn estimate_bytes(value: &Value) -> usize {
    const OVERHEAD_BYTES: usize = 8;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => OVERHEAD_BYTES,
        Value::String(text) => text.len().saturating_add(OVERHEAD_BYTES),
        Value::Array(items) => items.iter().map(estimate_bytes).fold(OVERHEAD_BYTES, usize::saturating_add),
        Value::Object(members) => members
            .iter()
            .map(|(key, member)| key.len().saturating_add(estimate_bytes(member)))
            .fold(OVERHEAD_BYTES, usize::saturating_add),
    }
}
