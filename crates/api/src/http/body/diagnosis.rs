//! Collects the problems of a body whose deserialization failed.
//!
//! The strict deserialization stops at the first problem. Only then, [`RecordingDeserializer`] reads the body
//! again. It records each problem with its field path and continues with a placeholder of the requested type. The
//! resulting value is dropped.
//!
//! A type reports a missing or an unknown field by failing, which ends the pass. The pass records the broken rule
//! for the type, and the next pass applies it. The number of passes equals the number of broken rules, up to
//! [`MAX_PASSES`].

mod recording_deserializer;

use crate::{
    error::FieldProblem,
    http::deserialize_error::{DeserializeError, truncate_path},
};
use fairway_domain::workload::interface::MAX_PROBLEMS;
use recording_deserializer::{RecordingDeserializer, ValuePath};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

/// Maximum passes over one body.
const MAX_PASSES: usize = 16;
/// Maximum values that all passes over a body visit together.
const MAX_VALUES: usize = 500_000;

/// Identity of a Rust struct: its name and the address of its field list.
type StructId = (&'static str, usize);

/// Results of the passes over a body: the problems, and the rules of its types that the next pass applies.
#[derive(Default)]
pub(super) struct Diagnosis {
    /// The problems, in document order.
    problems: RefCell<Vec<FieldProblem>>,
    /// The fields that a type requires.
    required: RefCell<BTreeSet<(StructId, &'static str)>>,
    /// The types that refuse unknown fields.
    strict_types: RefCell<BTreeSet<StructId>>,
    /// Problems of values that a type refused by its own rule, by path.
    refused: RefCell<BTreeMap<String, FieldProblem>>,
    /// Whether this pass recorded a rule for the next pass.
    has_new_rules: Cell<bool>,
}

impl Diagnosis {
    fn add(&self, problem: impl FnOnce() -> FieldProblem) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < MAX_PROBLEMS {
            problems.push(problem());
        }
    }

    fn add_invalid(&self, at: &ValuePath<'_>) {
        self.add(|| FieldProblem::invalid(truncate_path(at.path())));
    }
}

/// Finds the problems of a body that is not a `T`, at most [`MAX_PROBLEMS`], including `first`.
pub(super) fn diagnose<T: DeserializeOwned>(document: &Value, first: FieldProblem) -> Vec<FieldProblem> {
    let notes = Diagnosis::default();
    let passes = MAX_VALUES.checked_div(count_values(document)).unwrap_or(MAX_PASSES).clamp(1, MAX_PASSES);
    for _ in 0..passes {
        notes.problems.borrow_mut().clear();
        notes.has_new_rules.set(false);
        let result =
            T::deserialize(RecordingDeserializer { value: Some(document), at: &ValuePath::Root, notes: &notes });
        if result.is_ok() || !notes.has_new_rules.get() {
            break;
        }
    }
    let mut problems = notes.problems.into_inner();
    // The passes can miss the problem of the strict deserialization, because their number is limited.
    if !problems.contains(&first) {
        problems.insert(0, first);
    }
    problems.truncate(MAX_PROBLEMS);
    problems
}

fn count_values(value: &Value) -> usize {
    let (mut pending, mut count) = (vec![value], 0_usize);
    while let Some(value) = pending.pop() {
        count += 1;
        match value {
            Value::Object(members) => pending.extend(members.values()),
            Value::Array(items) => pending.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    count
}

/// Records the rule behind a failure, and returns the error that ends the pass.
fn record_rule(
    error: DeserializeError,
    id: Option<StructId>,
    deserializer: RecordingDeserializer<'_>,
) -> DeserializeError {
    let (at, notes) = (deserializer.at, deserializer.notes);
    match (error, id) {
        // An inner value has already recorded the failure.
        (DeserializeError::Recorded, _) => {}
        (DeserializeError::Missing(field), Some(id)) => {
            notes.required.borrow_mut().insert((id, field));
            notes.has_new_rules.set(true);
        }
        (DeserializeError::Unknown, Some(id)) => {
            notes.strict_types.borrow_mut().insert(id);
            notes.has_new_rules.set(true);
        }
        (error, _) if deserializer.value.is_some() => {
            let message: Cow<'static, str> = crate::http::deserialize_error::error_message(&error);
            let path = at.path();
            let problem = FieldProblem::new(truncate_path(path.clone()), "invalid", message);
            notes.has_new_rules.set(notes.refused.borrow_mut().insert(path, problem).is_none());
        }
        // The type refuses a placeholder value. The body itself has no problem here.
        (_, _) => {}
    }
    DeserializeError::Recorded
}
