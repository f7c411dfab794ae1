//! Why a value has not the shape that a type asks for, told without repeating the value.
//!
//! The deserializers of bodies and queries fail with this instead of a text, because the texts of serde name Rust types
//! and quote the input.

use crate::error::FieldProblem;
use fairway_domain::field_path::{push_index, push_member};
use serde::de::{self, Expected, Unexpected};
use serde_path_to_error::{Path, Segment};
use std::{borrow::Cow, fmt};

/// Longest path that is repeated to the caller, in characters.
const LONGEST_PATH: usize = 256;

/// What is wrong at a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ShapeError {
    /// A required field of this name is absent.
    Missing(&'static str),
    /// The field at this place is not known.
    Unknown,
    /// The field is given twice.
    Twice(&'static str),
    /// The value is none of these.
    NoneOf(&'static [&'static str]),
    /// The value has the wrong type or form.
    Invalid,
    /// A diagnosis has noted already what is wrong.
    Noted,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the value has not the expected shape")
    }
}

impl std::error::Error for ShapeError {}

impl de::Error for ShapeError {
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
        Self::NoneOf(expected)
    }

    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Self::Unknown
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::Twice(field)
    }
}

/// What the caller is told.
pub(super) fn problem(failure: serde_path_to_error::Error<ShapeError>) -> FieldProblem {
    let path = spelled(failure.path());
    match failure.into_inner() {
        ShapeError::Missing(field) => FieldProblem::missing(below(&path, field)),
        ShapeError::Unknown => FieldProblem::new(path, "unknown_field", "there is no such field"),
        error @ ShapeError::Twice(field) => FieldProblem::new(below(&path, field), "invalid", explained(&error)),
        error @ (ShapeError::NoneOf(_) | ShapeError::Invalid | ShapeError::Noted) => {
            FieldProblem::new(path, "invalid", explained(&error))
        }
    }
}

/// What is wrong with a value that is there, for people.
pub(super) fn explained(error: &ShapeError) -> Cow<'static, str> {
    match error {
        ShapeError::NoneOf(expected) => one_of(expected),
        ShapeError::Twice(_) => "this is given more than once".into(),
        ShapeError::Missing(_) | ShapeError::Unknown | ShapeError::Invalid | ShapeError::Noted => {
            FieldProblem::invalid("").message
        }
    }
}

/// Whether a text is what [`uuid::Uuid`] reads and nobody else does: its spellings with braces, as a URN and without
/// hyphens. Of the types of requests, identifiers alone ask for borrowed text, so their deserializers ask this there.
pub(super) fn is_odd_identifier(text: &str) -> bool {
    text.len() != 36 && uuid::Uuid::try_parse(text).is_ok()
}

pub(super) fn one_of(expected: &[&str]) -> Cow<'static, str> {
    let quoted: Vec<String> = expected.iter().map(|name| format!("`{name}`")).collect();
    format!("expected one of {}", quoted.join(", ")).into()
}

fn below(path: &str, field: &str) -> String {
    let mut path = path.to_owned();
    push_member(&mut path, field);
    path
}

/// The path in the form `interface_config.input_fields[0].type`.
fn spelled(path: &Path) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => push_index(&mut text, index),
            Segment::Map { key } | Segment::Enum { variant: key } => text = below(&text, key),
            Segment::Unknown => text = below(&text, "?"),
        }
    }
    echoed(text)
}

/// A path as it is repeated to the caller, who may have chosen names without end.
pub(crate) fn echoed(path: String) -> String {
    match path.char_indices().nth(LONGEST_PATH) {
        None => path,
        Some((end, _)) => format!("{}…", path.get(..end).unwrap_or_default()),
    }
}
