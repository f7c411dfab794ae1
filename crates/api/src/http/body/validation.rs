//! The problems of a body's values, from the rules of its type.
//!
//! `validator` keeps a copy of each refused value beside its error. Only the code, the message and the bounds of an
//! error reach a [`FieldProblem`], so no response echoes a value. Validation does not suspend, so each thread
//! stores the copies of at most one body.

use crate::error::FieldProblem;
use fairway_domain::{
    field_path::{push_index, push_member},
    workload::interface::MAX_PROBLEMS,
};
use serde_json::Value;
use std::borrow::Cow;
use validator::{Validate, ValidationError, ValidationErrors, ValidationErrorsKind};

/// Key under which `validator` stores the errors of a whole struct.
const WHOLE_STRUCT: &str = "__all__";
/// Error parameter with the path of the field that a rule between several fields reports, relative to its struct.
const FIELD: &str = "field";

/// Validates the values of a body, and returns every problem in the order of the paths, up to 200.
///
/// # Errors
/// When a value breaks a rule of its type. A field has at most one problem of its own, and one more for each rule
/// that compares it with other fields.
pub(super) fn validate<T: Validate>(value: &T) -> Result<(), Vec<FieldProblem>> {
    value.validate().map_err(|errors| {
        let mut problems = Vec::new();
        collect(errors, "", &mut problems);
        problems.truncate(MAX_PROBLEMS);
        problems
    })
}

/// Converts the problem of a rule to a `validator` error. Only rules between the fields of a struct use the path.
pub(crate) fn to_validation_error(problem: FieldProblem) -> ValidationError {
    let mut error = ValidationError::new(problem.code).with_message(problem.message);
    error.params.insert(FIELD.into(), problem.path.into());
    error
}

/// Converts the problems of a struct that validates itself. The paths are relative to the struct.
pub(crate) fn to_validation_errors(problems: Vec<FieldProblem>) -> ValidationErrors {
    let mut errors = ValidationErrors::new();
    for problem in problems {
        errors.add(WHOLE_STRUCT, to_validation_error(problem));
    }
    errors
}

/// Validates the length of a body that is a list.
///
/// # Errors
/// When the list has more than `max` items.
pub(crate) fn validate_list_length(length: usize, max: usize) -> Result<(), ValidationErrors> {
    if length <= max {
        return Ok(());
    }
    let mut error = ValidationError::new("length");
    error.add_param("max".into(), &max);
    let mut errors = ValidationErrors::new();
    errors.add(WHOLE_STRUCT, error);
    Err(errors)
}

fn collect(errors: ValidationErrors, prefix: &str, problems: &mut Vec<FieldProblem>) {
    let mut field_errors = errors.into_errors();
    let struct_errors = match field_errors.remove(WHOLE_STRUCT) {
        Some(ValidationErrorsKind::Field(errors)) => errors,
        Some(ValidationErrorsKind::Struct(_) | ValidationErrorsKind::List(_)) | None => Vec::new(),
    };
    let mut entries: Vec<_> = field_errors.into_iter().map(|(name, kind)| (name.into_owned(), kind)).collect();
    let struct_errors = struct_errors.into_iter();
    entries.extend(struct_errors.map(|error| (field_of(&error), ValidationErrorsKind::Field(vec![error]))));
    // The sort is stable: a field's own problem precedes the problem of a rule between fields.
    entries.sort_by(|(left, _), (right, _)| first_member(left).cmp(first_member(right)));
    for (name, kind) in entries {
        let path = member_path(prefix, &name);
        match kind {
            ValidationErrorsKind::Field(errors) => {
                // The message of a domain rule explains more than the bound that the same value exceeds.
                let error = errors.iter().rfind(|error| error.message.is_some()).or_else(|| errors.first());
                problems.extend(error.map(|error| to_field_problem(path, error)));
            }
            ValidationErrorsKind::Struct(errors) => collect(*errors, &path, problems),
            ValidationErrorsKind::List(items) => {
                for (index, errors) in items {
                    let mut path = path.clone();
                    push_index(&mut path, index);
                    collect(*errors, &path, problems);
                }
            }
        }
    }
}

/// The field of an error that [`to_validation_error`] created, relative to its struct.
fn field_of(error: &ValidationError) -> String {
    error.params.get(FIELD).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn first_member(path: &str) -> &str {
    path.split(['.', '[']).next().unwrap_or(path)
}

fn member_path(prefix: &str, name: &str) -> String {
    let mut path = prefix.to_owned();
    if !name.is_empty() {
        push_member(&mut path, name);
    }
    path
}

fn to_field_problem(path: String, error: &ValidationError) -> FieldProblem {
    let code = match error.code {
        Cow::Borrowed("length") => "too_long",
        Cow::Borrowed("range") => "out_of_bounds",
        Cow::Borrowed(code) => code,
        Cow::Owned(_) => "invalid",
    };
    let message = error.message.clone().or_else(|| describe_bounds(error).map(Cow::Owned));
    FieldProblem::new(path, code, message.unwrap_or_else(|| FieldProblem::invalid("").message))
}

/// The message of a `length` or `range` error that has no message yet.
fn describe_bounds(error: &ValidationError) -> Option<String> {
    let subject = if error.params.get("value").is_some_and(Value::is_number) { "" } else { "the length " };
    match (error.params.get("min"), error.params.get("max")) {
        (Some(min), Some(max)) => Some(format!("{subject}must be {min} to {max}")),
        (Some(min), None) => Some(format!("{subject}must be at least {min}")),
        (None, Some(max)) => Some(format!("{subject}must be at most {max}")),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests;
