//! The fields of an input form, and the validation of their values.

use super::{
    ExpectedType, ProblemKind,
    problem::{Problems, item_path, member_path},
    wire_enum,
};
use crate::text::is_name;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use std::collections::BTreeSet;
use time::{Date, Month};

/// The maximum length of a field's name, in characters.
const MAX_NAME_CHARS: usize = 63;
/// The maximum length of a field's label or of an option, in characters.
const MAX_LABEL_CHARS: usize = 200;
/// The maximum number of options of a `select` field.
const MAX_OPTIONS: usize = 200;
/// The maximum length of a text value, in bytes.
const MAX_TEXT_BYTES: usize = 32 * 1024;
/// The maximum number of rows of a `textarea` field.
const MAX_ROWS: u32 = 50;

wire_enum! {
    /// The type of a form field.
    FieldType {
        /// A single line of text.
        Text = "text",
        /// A JSON number.
        Number = "number",
        /// A choice of one of the options.
        Select = "select",
        /// Several lines of text.
        Textarea = "textarea",
        /// A JSON boolean.
        Boolean = "boolean",
        /// A calendar day, such as `2026-11-30`.
        Date = "date",
    }
}

/// A field of an input form, with its settings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InputField {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<String>,
    #[serde(rename = "type")]
    pub(super) field_type: FieldType,
    #[serde(skip_serializing_if = "Option::is_none")]
    required: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) options: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) min: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) default: Option<Value>,
}

/// The memory of a string beyond its characters, in bytes: the `String` itself and the overhead of the allocator.
const TEXT_OVERHEAD: usize = size_of::<String>() + 16;

impl InputField {
    /// The name of the input that the field provides.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The estimated memory of the field, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let texts = self.options.as_deref().unwrap_or_default().iter().map(String::len);
        let options = texts.map(|bytes| bytes.saturating_add(TEXT_OVERHEAD)).sum::<usize>();
        let label = self.label.as_deref().map_or(0, str::len);
        let default = self.default.as_ref().and_then(Value::as_str).map_or(0, str::len);
        [size_of::<Self>(), self.name.len(), label, default].into_iter().fold(options, usize::saturating_add)
    }

    /// Whether a run requires a value for the field.
    pub(super) fn is_required(&self) -> bool {
        self.required.unwrap_or(false)
    }

    /// Whether a value counts as missing for a field of this type.
    pub(super) fn is_blank(&self, value: &Value) -> bool {
        match self.field_type {
            FieldType::Text | FieldType::Textarea => value.as_str() == Some(""),
            FieldType::Number | FieldType::Select | FieldType::Boolean | FieldType::Date => false,
        }
    }

    /// Validates a value against the type and the settings of the field.
    pub(super) fn validate(&self, value: &Value) -> Result<(), ProblemKind> {
        match self.field_type {
            FieldType::Text | FieldType::Textarea => match value.as_str() {
                Some(text) if text.len() <= MAX_TEXT_BYTES => Ok(()),
                Some(_) => Err(ProblemKind::TooLong),
                None => Err(ProblemKind::Type(ExpectedType::Text)),
            },
            FieldType::Number => match value.as_f64() {
                Some(number) if self.is_within_bounds(number) => Ok(()),
                Some(_) => Err(ProblemKind::OutOfBounds),
                None => Err(ProblemKind::Type(ExpectedType::Number)),
            },
            FieldType::Select => {
                let options = self.options.as_deref().unwrap_or_default();
                match value.as_str() {
                    Some(text) if options.iter().any(|option| option == text) => Ok(()),
                    Some(_) => Err(ProblemKind::NotAnOption),
                    None => Err(ProblemKind::Type(ExpectedType::Text)),
                }
            }
            FieldType::Boolean => value.as_bool().map(|_| ()).ok_or(ProblemKind::Type(ExpectedType::Boolean)),
            FieldType::Date => match value.as_str() {
                Some(text) if is_calendar_day(text) => Ok(()),
                Some(_) => Err(ProblemKind::InvalidDate),
                None => Err(ProblemKind::Type(ExpectedType::Text)),
            },
        }
    }

    fn is_within_bounds(&self, number: f64) -> bool {
        let bound = |bound: &Option<Number>| bound.as_ref().and_then(Number::as_f64);
        bound(&self.min).is_none_or(|min| min <= number) && bound(&self.max).is_none_or(|max| number <= max)
    }
}

/// Whether a text has the form `YYYY-MM-DD` (RFC 3339, `full-date`) and names an existing day. The year 0 is not
/// accepted.
fn is_calendar_day(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return false };
    if (year.len(), month.len(), day.len()) != (4, 2, 2) || !parts.iter().all(|part| digits(part)) {
        return false;
    }
    let parsed = (year.parse::<i32>(), month.parse::<u8>(), day.parse::<u8>());
    let (Ok(year @ 1..), Ok(month), Ok(day)) = parsed else { return false };
    Month::try_from(month).is_ok_and(|month| Date::from_calendar_date(year, month, day).is_ok())
}

/// Parses the fields of a form. Their names must be unique.
pub(super) fn parse_all(value: &Value, path: &str, findings: &mut Problems) -> Option<Vec<InputField>> {
    let items = findings.read_list(value, path, super::MAX_FIELDS)?;
    let mut names = BTreeSet::new();
    let mut fields = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let path = item_path(path, index);
        let name = item.get("name").and_then(Value::as_str);
        let is_unique = name.is_none_or(|name| names.insert(name));
        findings.check(&member_path(&path, "name"), is_unique, ProblemKind::DuplicateName);
        fields.extend(parse(item, &path, findings));
    }
    Some(fields)
}

fn parse(value: &Value, path: &str, findings: &mut Problems) -> Option<InputField> {
    const KNOWN: &[&str] = &["name", "label", "type", "required", "options", "min", "max", "rows", "default"];
    let members = findings.read_object(value, path, KNOWN)?;
    let setting_path = |name: &str| member_path(path, name);
    let name = findings.read_required(members, path, "name").and_then(|value| {
        let name = findings.read_text(&setting_path("name"), value)?;
        findings.check(&setting_path("name"), is_field_name(name), ProblemKind::FieldName).then(|| name.to_owned())
    });
    let field_type = findings
        .read_required(members, path, "type")
        .and_then(|value| findings.parse_wire(&setting_path("type"), value, FieldType::SPELLINGS, FieldType::parse));
    let label = findings.read_optional(members, "label").and_then(|value| {
        let label = findings.read_text(&setting_path("label"), value)?;
        findings
            .check(&setting_path("label"), is_name(label, MAX_LABEL_CHARS), ProblemKind::Text)
            .then(|| label.to_owned())
    });
    let required = findings
        .read_optional(members, "required")
        .and_then(|value| findings.read_boolean(&setting_path("required"), value));
    // Which settings are valid depends on the type, so they cannot be checked if the type is unknown.
    let field_type = field_type?;
    refuse_settings_of_other_types(members, field_type, path, findings);
    let options = match field_type {
        FieldType::Select => parse_options(members, path, findings),
        FieldType::Text | FieldType::Number | FieldType::Textarea | FieldType::Boolean | FieldType::Date => None,
    };
    let (min, max) = match field_type {
        FieldType::Number => parse_bounds(members, path, findings),
        FieldType::Text | FieldType::Select | FieldType::Textarea | FieldType::Boolean | FieldType::Date => {
            (None, None)
        }
    };
    let rows = match field_type {
        FieldType::Textarea => findings
            .read_optional(members, "rows")
            .and_then(|value| findings.read_whole(&setting_path("rows"), value, 1..=MAX_ROWS)),
        FieldType::Text | FieldType::Number | FieldType::Select | FieldType::Boolean | FieldType::Date => None,
    };
    let field = InputField {
        name: name.unwrap_or_default(),
        label,
        field_type,
        required,
        options,
        min,
        max,
        rows,
        default: findings.read_optional(members, "default").cloned(),
    };
    if let Some(default) = &field.default {
        findings.record(&setting_path("default"), field.validate(default));
    }
    Some(field)
}

/// Refuses settings that belong to fields of other types. Accepting them would suggest that they take effect.
fn refuse_settings_of_other_types(
    members: &Map<String, Value>,
    field_type: FieldType,
    path: &str,
    findings: &mut Problems,
) {
    for (name, owner) in [
        ("options", FieldType::Select),
        ("min", FieldType::Number),
        ("max", FieldType::Number),
        ("rows", FieldType::Textarea),
    ] {
        let is_foreign = field_type != owner && findings.read_optional(members, name).is_some();
        findings.check(&member_path(path, name), !is_foreign, ProblemKind::NotForThisType);
    }
}

fn parse_options(members: &Map<String, Value>, path: &str, findings: &mut Problems) -> Option<Vec<String>> {
    let path = member_path(path, "options");
    let Some(value) = findings.read_optional(members, "options") else {
        findings.push(&path, ProblemKind::OptionsMissing);
        return None;
    };
    let items = findings.read_list(value, &path, MAX_OPTIONS)?;
    findings.check(&path, !items.is_empty(), ProblemKind::OptionsMissing);
    let mut unique_options = BTreeSet::new();
    let mut options = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let path = item_path(&path, index);
        let Some(option) = findings.read_text(&path, item) else { continue };
        findings.check(&path, is_name(option, MAX_LABEL_CHARS), ProblemKind::Text);
        findings.check(&path, unique_options.insert(option), ProblemKind::DuplicateOption);
        options.push(option.to_owned());
    }
    Some(options)
}

fn parse_bounds(members: &Map<String, Value>, path: &str, findings: &mut Problems) -> (Option<Number>, Option<Number>) {
    let mut bound = |name: &str| {
        let value = findings.read_optional(members, name)?;
        findings.read_number(&member_path(path, name), value).cloned()
    };
    let (min, max) = (bound("min"), bound("max"));
    let value = |bound: &Option<Number>| bound.as_ref().and_then(Number::as_f64);
    let is_ordered = value(&min).zip(value(&max)).is_none_or(|(min, max)| min <= max);
    findings.check(&member_path(path, "min"), is_ordered, ProblemKind::MinBeyondMax);
    (min, max)
}

/// Whether a text is a valid field name: `[a-z][a-z0-9_]{0,62}`.
pub(crate) fn is_field_name(text: &str) -> bool {
    let is_name_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    text.len() <= MAX_NAME_CHARS
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(is_name_byte)
}
