//! Deserialization errors without the values of the input.
//!
//! The deserializers of bodies and queries return [`DeserializeError`], because serde's error texts name Rust types
//! and quote the input.

use crate::error::FieldProblem;
use fairway_domain::field_path::{push_index, push_member};
use serde::de::{self, Expected, Unexpected};
use serde_path_to_error::{Path, Segment};
use std::{borrow::Cow, fmt};

/// Maximum length of a path in a response, in characters.
const MAX_PATH_CHARS: usize = 256;

/// The reason why a value cannot be deserialized.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DeserializeError {
    /// A required field of this name is absent.
    Missing(&'static str),
    /// The value has a field that its type does not have.
    Unknown,
    /// A field of this name occurs twice.
    Duplicate(&'static str),
    /// The value is not one of these variants.
    NotOneOf(&'static [&'static str]),
    /// The value has the wrong type or form.
    Invalid,
    /// The diagnosis of the body has already recorded the problem.
    Recorded,
}

impl fmt::Display for DeserializeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the value does not have the expected shape")
    }
}

impl std::error::Error for DeserializeError {}

impl de::Error for DeserializeError {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Invalid
    }

    fn invalid_type(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        Self::Invalid
    }

    fn invalid_value(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        Self::Invalid
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::NotOneOf(expected)
    }

    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Self::Unknown
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::Duplicate(field)
    }
}

/// Converts a deserialization error to the problem that the response reports.
pub(super) fn to_field_problem(failure: serde_path_to_error::Error<DeserializeError>) -> FieldProblem {
    let path = format_path(failure.path());
    match failure.into_inner() {
        DeserializeError::Missing(field) => FieldProblem::missing(child_path(&path, field)),
        DeserializeError::Unknown => FieldProblem::new(path, "unknown_field", "there is no such field"),
        error @ DeserializeError::Duplicate(field) => {
            FieldProblem::new(child_path(&path, field), "invalid", error_message(&error))
        }
        error @ (DeserializeError::NotOneOf(_) | DeserializeError::Invalid | DeserializeError::Recorded) => {
            FieldProblem::new(path, "invalid", error_message(&error))
        }
    }
}

/// Human-readable message for the error of a value that is present.
pub(super) fn error_message(error: &DeserializeError) -> Cow<'static, str> {
    match error {
        DeserializeError::NotOneOf(expected) => one_of(expected),
        DeserializeError::Duplicate(_) => "this field occurs more than once".into(),
        DeserializeError::Missing(_)
        | DeserializeError::Unknown
        | DeserializeError::Invalid
        | DeserializeError::Recorded => FieldProblem::invalid("").message,
    }
}

/// Whether a text is a UUID in a form that only [`uuid::Uuid`] accepts: with braces, as a URN, or without hyphens.
/// Identifiers are the only request types that deserialize borrowed text, so the deserializers check borrowed text with
/// this function.
pub(super) fn is_nonstandard_uuid(text: &str) -> bool {
    text.len() != 36 && uuid::Uuid::try_parse(text).is_ok()
}

pub(super) fn one_of(expected: &[&str]) -> Cow<'static, str> {
    let quoted: Vec<String> = expected.iter().map(|name| format!("`{name}`")).collect();
    format!("expected one of {}", quoted.join(", ")).into()
}

fn child_path(path: &str, field: &str) -> String {
    let mut path = path.to_owned();
    push_member(&mut path, field);
    path
}

/// The path in the form `interface_config.input_fields[0].type`.
fn format_path(path: &Path) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => push_index(&mut text, index),
            Segment::Map { key } | Segment::Enum { variant: key } => text = child_path(&text, key),
            Segment::Unknown => text = child_path(&text, "?"),
        }
    }
    truncate_path(text)
}

/// Truncates a path for a response, because the caller chooses the names in it.
pub(crate) fn truncate_path(path: String) -> String {
    match path.char_indices().nth(MAX_PATH_CHARS) {
        None => path,
        Some((end, _)) => format!("{}…", path.get(..end).unwrap_or_default()),
    }
}
