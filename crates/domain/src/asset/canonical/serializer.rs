//! The serializer of JSON values to their canonical form (RFC 8785). It visits each value once.
//!
//! The crate `serde_json_canonicalizer` needs 250 microseconds for 10 KiB, because it copies every object into a new
//! map and writes numbers digit by digit. New versions and run plans need a faster serializer. Tests compare this
//! serializer with that crate and with an external oracle.

use super::{Defect, LARGEST_EXACT_INTEGER};
use serde_json::{Map, Number, Value};
use std::fmt::Write as _;

/// One step on the path from a value to a value within it.
pub(super) enum PathStep {
    Index(usize),
    Key(String),
}

/// The value that has no canonical form, and the path to it with the innermost step first. The steps are collected only
/// after an error, so a valid value pays nothing for them.
pub(super) struct InvalidPath {
    pub(super) defect: Defect,
    pub(super) path: Vec<PathStep>,
}

impl InvalidPath {
    const fn at_root(defect: Defect) -> Self {
        Self { defect, path: Vec::new() }
    }

    fn nested_in(mut self, step: PathStep) -> Self {
        self.path.push(step);
        self
    }
}

/// The estimated length of the canonical form, in bytes. It is exact for texts without escapes; every number counts as
/// 8 bytes.
pub(super) fn estimate_length(value: &Value) -> usize {
    const NUMBER: usize = 8;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => NUMBER,
        Value::String(text) => text.len().saturating_add(2),
        Value::Array(items) => {
            items.iter().fold(2, |sum, item| sum.saturating_add(estimate_length(item)).saturating_add(1))
        }
        Value::Object(members) => members.iter().fold(2, |sum, (key, member)| {
            sum.saturating_add(key.len()).saturating_add(estimate_length(member)).saturating_add(4)
        }),
    }
}

/// Appends the canonical form of a value to `out`.
///
/// # Errors
/// Returns the path of the first number or text that has no canonical form.
pub(super) fn write(value: &Value, out: &mut String) -> Result<(), InvalidPath> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => return write_number(number, out).map_err(InvalidPath::at_root),
        Value::String(text) => return write_text(text, out).map_err(InvalidPath::at_root),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out).map_err(|invalid_path| invalid_path.nested_in(PathStep::Index(index)))?;
            }
            out.push(']');
        }
        Value::Object(members) => return write_object(members, out),
    }
    Ok(())
}

/// Appends the canonical form of an object to `out`.
///
/// # Errors
/// As [`write`].
pub(super) fn write_object(members: &Map<String, Value>, out: &mut String) -> Result<(), InvalidPath> {
    out.push('{');
    write_members(members, out)?;
    out.push('}');
    Ok(())
}

/// Writes members in the order of their keys' UTF-16 code units, while the map orders them by UTF-8 bytes. Both orders
/// agree unless a key contains a character above U+DFFF. UTF-16 sorts characters above U+FFFF (surrogate pairs) before
/// U+E000 to U+FFFF.
fn write_members(members: &Map<String, Value>, out: &mut String) -> Result<(), InvalidPath> {
    let has_same_order = |key: &String| key.bytes().all(|byte| byte < 0xee);
    if members.keys().all(has_same_order) && members.keys().is_sorted() {
        return members.iter().enumerate().try_for_each(|(index, (key, member))| write_member(index, key, member, out));
    }
    let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
    sorted.sort_unstable_by(|(first, _), (second, _)| first.encode_utf16().cmp(second.encode_utf16()));
    sorted.into_iter().enumerate().try_for_each(|(index, (key, member))| write_member(index, key, member, out))
}

fn write_member(index: usize, key: &str, member: &Value, out: &mut String) -> Result<(), InvalidPath> {
    if index > 0 {
        out.push(',');
    }
    let nested = |invalid_path: InvalidPath| invalid_path.nested_in(PathStep::Key(key.to_owned()));
    write_text(key, out).map_err(InvalidPath::at_root).map_err(nested)?;
    out.push(':');
    write(member, out).map_err(nested)
}

/// Writes a text like `JSON.stringify` of ECMAScript, with only the escapes that JSON requires.
fn write_text(text: &str, out: &mut String) -> Result<(), Defect> {
    out.push('"');
    let mut remaining = text;
    while let Some(index) = remaining.bytes().position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        // The character has one byte, so both parts end at character boundaries.
        let (before, after) = remaining.split_at_checked(index).unwrap_or((remaining, ""));
        out.push_str(before);
        let mut after = after.chars();
        match after.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\u{8}') => out.push_str("\\b"),
            Some('\t') => out.push_str("\\t"),
            Some('\n') => out.push_str("\\n"),
            Some('\u{c}') => out.push_str("\\f"),
            Some('\r') => out.push_str("\\r"),
            Some('\0') => return Err(Defect::NulInText),
            // Writing to a `String` cannot fail.
            Some(control) => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            None => {}
        }
        remaining = after.as_str();
    }
    out.push_str(remaining);
    out.push('"');
    Ok(())
}

/// Writes a number like ECMAScript. The JSON parser turns an integer with too many digits into a float. Therefore whole
/// floats beyond the bound are refused as integers are.
fn write_number(number: &Number, out: &mut String) -> Result<(), Defect> {
    if let Some(integer) = number.as_i64() {
        if integer.unsigned_abs() > LARGEST_EXACT_INTEGER {
            return Err(Defect::IntegerOutOfRange);
        }
        // Writing to a `String` cannot fail.
        let _ = write!(out, "{integer}");
        return Ok(());
    }
    #[expect(clippy::cast_precision_loss, reason = "2^53 - 1 is exactly a double")]
    let bound = LARGEST_EXACT_INTEGER as f64;
    let float = number.as_f64().filter(|float| float.fract() != 0.0 || float.abs() <= bound);
    out.push_str(ryu_js::Buffer::new().format(float.ok_or(Defect::IntegerOutOfRange)?));
    Ok(())
}
