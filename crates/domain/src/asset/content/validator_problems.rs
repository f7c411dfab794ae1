//! The conversion of the validator's errors to problems of content.

use super::{ContentProblem, content_walk::member_pointer, problem::MAX_PROBLEMS};
use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;

/// The maximum number of permitted values that a message lists, and their maximum total length in bytes.
const MAX_LISTED_VALUES: usize = 10;
const MAX_LISTED_BYTES: usize = 300;
/// The maximum total length of the field names that a message lists, in bytes.
const MAX_LISTED_FIELD_BYTES: usize = 600;
/// The message for a list, map or text that is longer than its schema permits.
pub(super) const TOO_LONG: &str = "the length is above the bound of the schema";
const TOO_SHORT: &str = "the length is below the bound of the schema";

/// Whether the problem is a list, map or text that is longer than its schema permits.
pub(super) fn reports_excess_length(problem: &ContentProblem) -> bool {
    problem.message == TOO_LONG
}

/// Converts an error about a value below the JSON pointer `parent_pointer`, whose schema declares `fields`. The
/// problems have their own messages, because the messages of the validator contain values of the content.
pub(super) fn to_problems(error: &ValidationError<'_>, parent_pointer: &str, fields: &[&str]) -> Vec<ContentProblem> {
    let pointer = format!("{parent_pointer}{}", error.instance_path());
    let member = |name: &str| member_pointer(&pointer, name);
    if let ValidationErrorKind::AdditionalProperties { unexpected } = error.kind() {
        let message = unknown_field_message(fields);
        let to_problem = |name: &String| {
            ContentProblem::new(member(name), "unknown_field", message.as_str())
                .with_valid_names(fields.iter().copied())
        };
        return unexpected.iter().take(MAX_PROBLEMS).map(to_problem).collect();
    }
    if let ValidationErrorKind::Required { property } = error.kind() {
        let name = property.as_str().unwrap_or_default();
        return vec![ContentProblem::new(member(name), "missing_field", "this field is required")];
    }
    let (code, message) = match error.kind().keyword() {
        "type" => ("wrong_type", format!("expected {}", expected_type(error.kind()))),
        "enum" | "const" => ("not_one_of", listed_values(error.kind())),
        "pattern" | "format" | "propertyNames" => {
            ("wrong_form", "the text does not have the form that the schema requires".to_owned())
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
            ("out_of_bounds", "the number is outside the bounds of the schema".to_owned())
        }
        "maxLength" | "maxItems" | "maxProperties" => ("out_of_bounds", TOO_LONG.to_owned()),
        "minLength" | "minItems" | "minProperties" => ("out_of_bounds", TOO_SHORT.to_owned()),
        "uniqueItems" => ("duplicate_item", "the items must differ from one another".to_owned()),
        _ => ("schema_violation", "the value does not satisfy the schema".to_owned()),
    };
    vec![ContentProblem::new(pointer, code, message)]
}

/// The message for an unknown field. It lists the fields of the schema if there are any and their names are short.
fn unknown_field_message(fields: &[&str]) -> String {
    let field_list = fields.join(", ");
    if field_list.is_empty() || field_list.len() > MAX_LISTED_FIELD_BYTES {
        return "unknown field".to_owned();
    }
    format!("unknown field; the fields are {field_list}")
}

/// The message for a value that a schema does not permit. It lists the permitted values if they are few and short.
fn listed_values(kind: &ValidationErrorKind) -> String {
    let permitted_values: Vec<&Value> = if let ValidationErrorKind::Enum { options } = kind {
        options.as_array().into_iter().flatten().collect()
    } else if let ValidationErrorKind::Constant { expected_value } = kind {
        vec![expected_value.as_ref()]
    } else {
        Vec::new()
    };
    let texts: Vec<String> =
        permitted_values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
    let length: usize = texts.iter().map(String::len).sum();
    if texts.is_empty() || texts.len() > MAX_LISTED_VALUES || length > MAX_LISTED_BYTES {
        return "the value is not one of the values that the schema lists".to_owned();
    }
    format!("the value is not one of those that the schema lists: {}", texts.join(", "))
}

fn expected_type(kind: &ValidationErrorKind) -> String {
    let ValidationErrorKind::Type { kind } = kind else { return "another type".to_owned() };
    match kind {
        TypeKind::Single(single) => single.to_string(),
        TypeKind::Multiple(types) => {
            types.iter().map(|type_name| type_name.to_string()).collect::<Vec<_>>().join(" or ")
        }
    }
}
