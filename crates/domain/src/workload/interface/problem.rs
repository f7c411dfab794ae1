//! Collects the problems of an interface configuration, or of run inputs, during parsing.

use crate::number;
use serde_json::{Map, Number, Value};
use std::ops::RangeInclusive;

/// The maximum number of reported problems. It limits the size of the response.
pub const MAX_PROBLEMS: usize = 200;
/// The maximum length of a name in a path, in characters. It is limited, because callers choose these names.
const MAX_PATH_NAME_CHARS: usize = 64;

/// A problem, with the path of the member in which it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceProblem {
    /// The path of the member, such as `input_fields[0].type`; empty for the configuration as a whole.
    pub path: String,
    /// The rule that the member violates.
    pub kind: ProblemKind,
}

/// The JSON type that a value should have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExpectedType {
    /// A JSON object.
    #[error("an object")]
    Object,
    /// A JSON array.
    #[error("a list")]
    List,
    /// A JSON string.
    #[error("a text")]
    Text,
    /// A JSON number.
    #[error("a number")]
    Number,
    /// A JSON number without a fraction.
    #[error("a whole number")]
    WholeNumber,
    /// A JSON boolean.
    #[error("true or false")]
    Boolean,
}

/// The kind of a problem in an interface configuration, or in the inputs of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProblemKind {
    /// A required member is missing.
    #[error("this field is required")]
    Missing,
    /// No member has this name. The list contains the names of the members that exist; it is empty for the inputs of a
    /// run.
    #[error("there is no such field{}", names_after("; the fields are ", .0))]
    Unknown(&'static [&'static str]),
    /// The value has another JSON type than this.
    #[error("expected {0}")]
    Type(ExpectedType),
    /// The value is not one of the permitted values, which the list contains.
    #[error("the value is not one of the known values{}", names_after(": ", .0))]
    NotOneOf(&'static [&'static str]),
    /// The number is less than the minimum or greater than the maximum.
    #[error("the number is outside its bounds")]
    OutOfBounds,
    /// The list has too many items, or the text is too long.
    #[error("this is too long")]
    TooLong,
    /// The text is empty, too long, or contains invisible characters.
    #[error("the text is empty, too long, or contains invisible characters")]
    Text,
    /// The name is not a valid field name.
    #[error("a field's name is a lower-case letter and up to 62 of a-z, 0-9 and underscores")]
    FieldName,
    /// Another field already has this name.
    #[error("another field has this name")]
    DuplicateName,
    /// A `select` field has no options.
    #[error("a `select` needs options")]
    OptionsMissing,
    /// Another option of the field has the same text.
    #[error("another option is the same")]
    DuplicateOption,
    /// The setting does not apply to fields of this type.
    #[error("fields of this type have no such setting")]
    NotForThisType,
    /// The minimum of the field exceeds its maximum.
    #[error("`min` is greater than `max`")]
    MinBeyondMax,
    /// The value is not an option of the `select` field.
    #[error("the value is not one of the field's options")]
    NotAnOption,
    /// The value is not a calendar day.
    #[error("a date is a calendar day in the form YYYY-MM-DD")]
    InvalidDate,
    /// The value is not a single CSS color.
    #[error("expected one CSS colour")]
    Color,
    /// The value is not a CSS list of font families.
    #[error("expected a CSS list of font families")]
    FontFamily,
    /// The value is not a CSS length of 0 to 64 px.
    #[error("expected one CSS length of 0 to 64 px")]
    Length,
}

impl ProblemKind {
    /// The stable code of the problem.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unknown(_) => "unknown_field",
            Self::Type(_) => "invalid",
            Self::NotOneOf(_) => "not_one_of",
            Self::OutOfBounds => "out_of_bounds",
            Self::TooLong => "too_long",
            Self::Text => "invalid_text",
            Self::FieldName => "invalid_field_name",
            Self::DuplicateName => "duplicate_name",
            Self::OptionsMissing => "options_missing",
            Self::DuplicateOption => "duplicate_item",
            Self::NotForThisType => "not_for_this_type",
            Self::MinBeyondMax => "min_beyond_max",
            Self::NotAnOption => "not_an_option",
            Self::InvalidDate => "invalid_date",
            Self::Color => "invalid_color",
            Self::FontFamily => "invalid_font_family",
            Self::Length => "invalid_length",
        }
    }
}

/// The end of a message that lists names; empty if there are no names.
fn names_after(prefix: &str, names: &[&str]) -> String {
    if names.is_empty() { String::new() } else { format!("{prefix}{}", names.join(", ")) }
}

/// The path of the member with this name in the object at `path`.
pub(super) fn member_path(path: &str, name: &str) -> String {
    let name: String = name.chars().take(MAX_PATH_NAME_CHARS).collect();
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

/// The path of the item at this index in the list at `path`.
pub(super) fn item_path(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// The problems found so far. Each read method returns a usable value, or records a problem.
#[derive(Debug, Default)]
pub(super) struct Problems {
    reported: Vec<InterfaceProblem>,
    has_problem: bool,
}

impl Problems {
    pub(super) fn push(&mut self, path: &str, kind: ProblemKind) {
        self.has_problem = true;
        if self.reported.len() < MAX_PROBLEMS {
            self.reported.push(InterfaceProblem { path: path.to_owned(), kind });
        }
    }

    /// Records a problem unless `holds` is true; returns `holds`.
    pub(super) fn check(&mut self, path: &str, holds: bool, kind: ProblemKind) -> bool {
        if !holds {
            self.push(path, kind);
        }
        holds
    }

    /// Records the problem of a failed check; returns whether the check succeeded.
    pub(super) fn record(&mut self, path: &str, result: Result<(), ProblemKind>) -> bool {
        match result {
            Ok(()) => true,
            Err(kind) => self.check(path, false, kind),
        }
    }

    /// Returns the value if no problem was recorded; otherwise returns the problems.
    pub(super) fn into_result<T>(self, value: Option<T>) -> Result<T, Vec<InterfaceProblem>> {
        match (value, self.has_problem) {
            (Some(value), false) => Ok(value),
            // A missing value has already recorded its problem.
            (Some(_) | None, true) | (None, false) => Err(self.reported),
        }
    }

    /// Reads an object, and records a problem if it has unknown members.
    pub(super) fn read_object<'v>(
        &mut self,
        value: &'v Value,
        path: &str,
        allowed: &'static [&'static str],
    ) -> Option<&'v Map<String, Value>> {
        let Some(members) = value.as_object() else {
            self.push(path, ProblemKind::Type(ExpectedType::Object));
            return None;
        };
        for name in members.keys().filter(|name| !allowed.contains(&name.as_str())) {
            self.push(&member_path(path, name), ProblemKind::Unknown(allowed));
        }
        Some(members)
    }

    /// Reads a list with at most `limit` items.
    pub(super) fn read_list<'v>(&mut self, value: &'v Value, path: &str, limit: usize) -> Option<&'v [Value]> {
        let Some(items) = value.as_array() else {
            self.push(path, ProblemKind::Type(ExpectedType::List));
            return None;
        };
        self.check(path, items.len() <= limit, ProblemKind::TooLong).then_some(items)
    }

    /// Reads a member that must be present.
    pub(super) fn read_required<'v>(
        &mut self,
        members: &'v Map<String, Value>,
        path: &str,
        name: &str,
    ) -> Option<&'v Value> {
        let value = members.get(name);
        if value.is_none() {
            self.push(&member_path(path, name), ProblemKind::Missing);
        }
        value
    }

    /// Reads a member that may be absent or null; `None` in both cases.
    #[expect(clippy::unused_self, reason = "it mirrors `read_required`")]
    pub(super) fn read_optional<'v>(&self, members: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
        members.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn read_text<'v>(&mut self, path: &str, value: &'v Value) -> Option<&'v str> {
        let text = value.as_str();
        if text.is_none() {
            self.push(path, ProblemKind::Type(ExpectedType::Text));
        }
        text
    }

    pub(super) fn read_number<'v>(&mut self, path: &str, value: &'v Value) -> Option<&'v Number> {
        let number = value.as_number();
        if number.is_none() {
            self.push(path, ProblemKind::Type(ExpectedType::Number));
        }
        number
    }

    pub(super) fn read_boolean(&mut self, path: &str, value: &Value) -> Option<bool> {
        let boolean = value.as_bool();
        if boolean.is_none() {
            self.push(path, ProblemKind::Type(ExpectedType::Boolean));
        }
        boolean
    }

    /// Reads a whole number that must be within these bounds.
    pub(super) fn read_whole(&mut self, path: &str, value: &Value, bounds: RangeInclusive<u32>) -> Option<u32> {
        let number = self.read_number(path, value)?;
        let whole = number::as_whole(number);
        if whole.is_none() && number.as_f64().is_some_and(|float| float.fract() != 0.0) {
            self.push(path, ProblemKind::Type(ExpectedType::WholeNumber));
            return None;
        }
        let within_bounds = whole.and_then(|whole| u32::try_from(whole).ok()).filter(|whole| bounds.contains(whole));
        if within_bounds.is_none() {
            self.push(path, ProblemKind::OutOfBounds);
        }
        within_bounds
    }

    /// Reads a text that must be the wire form of one of the `allowed` values.
    pub(super) fn parse_wire<T>(
        &mut self,
        path: &str,
        value: &Value,
        allowed: &'static [&'static str],
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let parsed = parse(self.read_text(path, value)?);
        if parsed.is_none() {
            self.push(path, ProblemKind::NotOneOf(allowed));
        }
        parsed
    }
}
