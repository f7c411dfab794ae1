//! What is wrong with a document, gathered while it is read.

use crate::number;
use serde_json::{Map, Number, Value};
use std::ops::RangeInclusive;

/// Most findings that are told. A caller learns enough from as many, and an answer must not grow with the request.
pub const MOST_FINDINGS: usize = 200;
/// Longest name of the caller's choice that is repeated in a path, in characters.
const LONGEST_NAME: usize = 64;

/// One thing that is wrong, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Where, in the form `input_fields[0].type`; empty for the whole.
    pub path: String,
    /// What.
    pub fault: Fault,
}

/// What can be wrong with a configuration, or with inputs that it is to hold for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// It is not there and must be.
    #[error("this field is required")]
    Missing,
    /// It is there and nothing knows it.
    #[error("there is no such field")]
    Unknown,
    /// It has another type.
    #[error("the value has not the type or form that is expected here")]
    Type,
    /// It is none of the listed values.
    #[error("this is not one of the values that are known here")]
    NotOneOf,
    /// A number outside its bounds.
    #[error("the number is outside its bounds")]
    OutOfBounds,
    /// A list or text beyond its greatest length.
    #[error("this is too long")]
    TooLong,
    /// A text that cannot be shown to people as it is.
    #[error("the text is empty, too long, or holds characters that do not show")]
    Text,
    /// No name of a field.
    #[error("a field's name is a lower-case letter and up to 62 of a-z, 0-9 and underscores")]
    FieldName,
    /// Another field has the name.
    #[error("another field has this name")]
    DuplicateName,
    /// A select without anything to select.
    #[error("a `select` needs options")]
    OptionsMissing,
    /// An option that is there already.
    #[error("another option is the same")]
    DuplicateOption,
    /// A member that means nothing for this type of field.
    #[error("fields of this type have no such setting")]
    OtherType,
    /// The least is greater than the greatest.
    #[error("`min` is greater than `max`")]
    MinBeyondMax,
    /// None of the field's options.
    #[error("this is none of the field's options")]
    NoOption,
    /// No day of the calendar.
    #[error("a date is a day of the calendar in the form YYYY-MM-DD")]
    NoDate,
    /// No colour.
    #[error("expected one CSS colour")]
    Color,
    /// No list of fonts.
    #[error("expected a CSS list of font families")]
    FontFamily,
    /// No length.
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
    let name: String = name.chars().take(LONGEST_NAME).collect();
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

/// The path of an item.
pub(super) fn at(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// What has been found so far. Its readers answer with what is usable and note what is not.
#[derive(Debug, Default)]
pub(super) struct Findings {
    told: Vec<Finding>,
    any: bool,
}

impl Findings {
    pub(super) fn push(&mut self, path: &str, fault: Fault) {
        self.any = true;
        if self.told.len() < MOST_FINDINGS {
            self.told.push(Finding { path: path.to_owned(), fault });
        }
    }

    /// Whether a rule holds; a finding where it does not.
    pub(super) fn hold(&mut self, path: &str, holds: bool, fault: Fault) -> bool {
        if !holds {
            self.push(path, fault);
        }
        holds
    }

    /// Notes what a check says.
    pub(super) fn note(&mut self, path: &str, checked: Result<(), Fault>) -> bool {
        match checked {
            Ok(()) => true,
            Err(fault) => self.hold(path, false, fault),
        }
    }

    /// What was read, if nothing was wrong with it.
    pub(super) fn or<T>(self, read: Option<T>) -> Result<T, Vec<Finding>> {
        match (read, self.any) {
            (Some(read), false) => Ok(read),
            // Whoever reads nothing has said why.
            (Some(_) | None, true) | (None, false) => Err(self.told),
        }
    }

    /// An object without unknown members.
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

    /// A list of at most so many items.
    pub(super) fn list<'v>(&mut self, value: &'v Value, path: &str, most: usize) -> Option<&'v [Value]> {
        let Some(items) = value.as_array() else {
            self.push(path, Fault::Type);
            return None;
        };
        self.hold(path, items.len() <= most, Fault::TooLong).then_some(items)
    }

    /// A member that must be there.
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

    /// A member that may be absent or null.
    #[expect(clippy::unused_self, reason = "it stands beside `required` and reads the same way")]
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

    /// A whole number within bounds.
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

    /// A text that is the spelling of something.
    pub(super) fn case<T>(&mut self, path: &str, value: &Value, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let case = parse(self.text(path, value)?);
        if case.is_none() {
            self.push(path, Fault::NotOneOf);
        }
        case
    }
}
