//! Collects the problems of a document while it is read.

use crate::number;
use serde_json::{Map, Number, Value};
use std::ops::RangeInclusive;

/// The maximum number of reported problems, which bounds the size of the response.
pub const MAX_PROBLEMS: usize = 200;
/// The maximum length of a caller-chosen name in a path, in characters.
const MAX_PATH_NAME_CHARS: usize = 64;

/// A problem and its path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The path, such as `input_fields[0].type`; empty for the whole document.
    pub path: String,
    /// The problem.
    pub fault: Fault,
}

/// A problem of a configuration or of run inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// A required member is missing.
    #[error("this field is required")]
    Missing,
    /// The member is unknown.
    #[error("there is no such field")]
    Unknown,
    /// The value has the wrong type.
    #[error("the value has an unexpected type or form")]
    Type,
    /// The value is not one of the allowed ones.
    #[error("the value is not one of the known values")]
    NotOneOf,
    /// The number is out of range.
    #[error("the number is outside its bounds")]
    OutOfBounds,
    /// The list or text is too long.
    #[error("this is too long")]
    TooLong,
    /// The text is not valid display text.
    #[error("the text is empty, too long, or contains invisible characters")]
    Text,
    /// The name is not a valid field name.
    #[error("a field's name is a lower-case letter and up to 62 of a-z, 0-9 and underscores")]
    FieldName,
    /// Another field has the name.
    #[error("another field has this name")]
    DuplicateName,
    /// The select has no options.
    #[error("a `select` needs options")]
    OptionsMissing,
    /// The option is a duplicate.
    #[error("another option is the same")]
    DuplicateOption,
    /// The setting does not apply to this field type.
    #[error("fields of this type have no such setting")]
    OtherType,
    /// The minimum exceeds the maximum.
    #[error("`min` is greater than `max`")]
    MinBeyondMax,
    /// The value is not one of the field's options.
    #[error("the value is not one of the field's options")]
    NoOption,
    /// The value is not a calendar day.
    #[error("a date is a calendar day in the form YYYY-MM-DD")]
    NoDate,
    /// The value is not a CSS colour.
    #[error("expected one CSS colour")]
    Color,
    /// The value is not a CSS font family list.
    #[error("expected a CSS list of font families")]
    FontFamily,
    /// The value is not a CSS length.
    #[error("expected one CSS length of 0 to 64 px")]
    Length,
}

impl Fault {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unknown => "unknown_field",
            Self::Type => "invalid",
            Self::NotOneOf => "not_one_of",
            Self::OutOfBounds => "out_of_bounds",
            Self::TooLong => "too_long",
            Self::Text => "invalid_text",
            Self::FieldName => "invalid_field_name",
            Self::DuplicateName => "duplicate_name",
            Self::OptionsMissing => "options_missing",
            Self::DuplicateOption => "duplicate_item",
            Self::OtherType => "not_for_this_type",
            Self::MinBeyondMax => "min_beyond_max",
            Self::NoOption => "not_an_option",
            Self::NoDate => "invalid_date",
            Self::Color => "invalid_color",
            Self::FontFamily => "invalid_font_family",
            Self::Length => "invalid_length",
        }
    }
}

/// The path of a member.
pub(super) fn below(path: &str, name: &str) -> String {
    let name: String = name.chars().take(MAX_PATH_NAME_CHARS).collect();
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

/// The path of an item.
pub(super) fn at(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// The problems found so far. Its readers return usable values and record problems.
#[derive(Debug, Default)]
pub(super) struct Findings {
    told: Vec<Finding>,
    any: bool,
}

impl Findings {
    pub(super) fn push(&mut self, path: &str, fault: Fault) {
        self.any = true;
        if self.told.len() < MAX_PROBLEMS {
            self.told.push(Finding { path: path.to_owned(), fault });
        }
    }

    /// Records a problem unless the rule holds; returns whether it holds.
    pub(super) fn hold(&mut self, path: &str, holds: bool, fault: Fault) -> bool {
        if !holds {
            self.push(path, fault);
        }
        holds
    }

    /// Records the problem of a failed check.
    pub(super) fn note(&mut self, path: &str, checked: Result<(), Fault>) -> bool {
        match checked {
            Ok(()) => true,
            Err(fault) => self.hold(path, false, fault),
        }
    }

    /// The value, if there are no problems.
    pub(super) fn or<T>(self, read: Option<T>) -> Result<T, Vec<Finding>> {
        match (read, self.any) {
            (Some(read), false) => Ok(read),
            // A missing value has already recorded its problem.
            (Some(_) | None, true) | (None, false) => Err(self.told),
        }
    }

    /// Reads an object without unknown members.
    pub(super) fn object<'v>(
        &mut self,
        value: &'v Value,
        path: &str,
        known: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        let Some(members) = value.as_object() else {
            self.push(path, Fault::Type);
            return None;
        };
        for name in members.keys().filter(|name| !known.contains(&name.as_str())) {
            self.push(&below(path, name), Fault::Unknown);
        }
        Some(members)
    }

    /// Reads a list of bounded length.
    pub(super) fn list<'v>(&mut self, value: &'v Value, path: &str, most: usize) -> Option<&'v [Value]> {
        let Some(items) = value.as_array() else {
            self.push(path, Fault::Type);
            return None;
        };
        self.hold(path, items.len() <= most, Fault::TooLong).then_some(items)
    }

    /// Reads a required member.
    pub(super) fn required<'v>(
        &mut self,
        members: &'v Map<String, Value>,
        path: &str,
        name: &str,
    ) -> Option<&'v Value> {
        let value = members.get(name);
        if value.is_none() {
            self.push(&below(path, name), Fault::Missing);
        }
        value
    }

    /// Reads an optional member, which may be null.
    #[expect(clippy::unused_self, reason = "it mirrors `required`")]
    pub(super) fn optional<'v>(&self, members: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
        members.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text<'v>(&mut self, path: &str, value: &'v Value) -> Option<&'v str> {
        let text = value.as_str();
        if text.is_none() {
            self.push(path, Fault::Type);
        }
        text
    }

    pub(super) fn number<'v>(&mut self, path: &str, value: &'v Value) -> Option<&'v Number> {
        let number = value.as_number();
        if number.is_none() {
            self.push(path, Fault::Type);
        }
        number
    }

    pub(super) fn boolean(&mut self, path: &str, value: &Value) -> Option<bool> {
        let truth = value.as_bool();
        if truth.is_none() {
            self.push(path, Fault::Type);
        }
        truth
    }

    /// Reads a whole number within bounds.
    pub(super) fn whole(&mut self, path: &str, value: &Value, bounds: RangeInclusive<u32>) -> Option<u32> {
        let number = self.number(path, value)?;
        let whole = number::whole(number);
        if whole.is_none() && number.as_f64().is_some_and(|float| float.fract() != 0.0) {
            self.push(path, Fault::Type);
            return None;
        }
        let inside = whole.and_then(|whole| u32::try_from(whole).ok()).filter(|whole| bounds.contains(whole));
        if inside.is_none() {
            self.push(path, Fault::OutOfBounds);
        }
        inside
    }

    /// Reads a text by its wire form.
    pub(super) fn case<T>(&mut self, path: &str, value: &Value, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let case = parse(self.text(path, value)?);
        if case.is_none() {
            self.push(path, Fault::NotOneOf);
        }
        case
    }
}
