//! The texts inside of a value: all of them, keys and numbers included, read and rewritten in their order.

use serde_json::{Map, Value};

/// Gives every text to `change` and puts what comes back in its place; stops where an error does. A number is a text of
/// digits, and stays a number where it is not changed. Two keys may become the same; no member is lost for that.
///
/// INVARIANT: recursion ends, because values of runs are nested within bounds.
pub(super) fn rewrite<E>(value: &mut Value, change: &mut impl FnMut(&str) -> Result<String, E>) -> Result<(), E> {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => {
            let written = number.to_string();
            let changed = change(&written)?;
            if changed != written {
                *value = Value::String(changed);
            }
        }
        Value::String(text) => *text = change(text)?,
        Value::Array(items) => {
            for item in items {
                rewrite(item, change)?;
            }
        }
        Value::Object(members) => {
            let mut changed = Map::new();
            for (key, mut member) in std::mem::take(members) {
                rewrite(&mut member, change)?;
                changed.insert(free(&changed, change(&key)?), member);
            }
            *members = changed;
        }
    }
    Ok(())
}

/// A key that is not taken yet.
fn free(members: &Map<String, Value>, key: String) -> String {
    let (mut name, mut nth) = (key.clone(), 1_u64);
    while members.contains_key(&name) {
        nth = nth.saturating_add(1);
        name = format!("{key} {nth}");
    }
    name
}

/// How many characters all texts have together, without keys and numbers.
pub(super) fn characters(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.iter().map(characters).fold(0, usize::saturating_add),
        Value::Object(members) => members.values().map(characters).fold(0, usize::saturating_add),
    }
}

/// The value with its texts cut so that all of them together have at most so many characters, the first ones kept.
pub(super) fn cut(value: &Value, most: usize) -> Value {
    let mut left = most;
    let mut short = value.clone();
    shorten(&mut short, &mut left);
    short
}

fn shorten(value: &mut Value, left: &mut usize) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(*left) {
                text.truncate(end);
            }
            *left = left.saturating_sub(text.chars().count());
        }
        Value::Array(items) => items.iter_mut().for_each(|item| shorten(item, left)),
        Value::Object(members) => members.values_mut().for_each(|member| shorten(member, left)),
    }
}

/// About how many bytes a value has as text.
pub(super) fn bytes(value: &Value) -> usize {
    const SIGNS: usize = 8;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => SIGNS,
        Value::String(text) => text.len().saturating_add(SIGNS),
        Value::Array(items) => items.iter().map(bytes).fold(SIGNS, usize::saturating_add),
        Value::Object(members) => members
            .iter()
            .map(|(key, member)| key.len().saturating_add(bytes(member)))
            .fold(SIGNS, usize::saturating_add),
    }
}
