//! Everything that is wrong with the shape of a body, told at once.
//!
//! A body is read strictly and fast; the first thing that does not fit ends that. Then, and only then, it is read again by
//! a deserializer that notes each problem with its field path and goes on with a stand-in of the type that was asked for.
//! What comes out of these readings is dropped: only the notes count.
//!
//! A type says that it needs a field, or refuses unknown ones, by failing. The reading notes that for every value of the
//! type and begins again, so the number of readings is the number of such rules that the body breaks, and is bounded.

mod probe;

use crate::{
    error::FieldProblem,
    http::shape::{ShapeError, echoed},
};
use fairway_domain::workload::interface::MOST_FINDINGS;
use probe::{Probe, Step};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

/// Most readings of one body.
const READINGS: usize = 16;
/// Most values that all readings of a body look at together.
const VALUES: usize = 500_000;

/// A struct of Rust, by what its deserializer is told of it.
type Type = (&'static str, usize);

/// What the readings of a body have found.
#[derive(Default)]
pub(super) struct Notes {
    /// What is wrong, in the order of the reading.
    problems: RefCell<Vec<FieldProblem>>,
    /// Fields that a type needs.
    required: RefCell<BTreeSet<(Type, &'static str)>>,
    /// Types that take no fields but their own.
    closed: RefCell<BTreeSet<Type>>,
    /// Places whose value their type refused by a rule of its own.
    refused: RefCell<BTreeMap<String, FieldProblem>>,
    /// Whether the present reading learned something for the next one.
    learned: Cell<bool>,
}

impl Notes {
    fn add(&self, problem: impl FnOnce() -> FieldProblem) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < MOST_FINDINGS {
            problems.push(problem());
        }
    }

    fn wrong(&self, at: &Step<'_>) {
        self.add(|| FieldProblem::invalid(echoed(at.path())));
    }
}

/// All problems of a body that is no `T`, of which `first` is one.
pub(super) fn problems<T: DeserializeOwned>(document: &Value, first: FieldProblem) -> Vec<FieldProblem> {
    let notes = Notes::default();
    let readings = VALUES.checked_div(count(document)).unwrap_or(READINGS).clamp(1, READINGS);
    for _ in 0..readings {
        notes.problems.borrow_mut().clear();
        notes.learned.set(false);
        let read = T::deserialize(Probe { value: Some(document), at: &Step::Body, notes: &notes });
        if read.is_ok() || !notes.learned.get() {
            break;
        }
    }
    let mut found = notes.problems.into_inner();
    // Readings that could not come to their end have missed something, but never what the strict one has found.
    if !found.contains(&first) {
        found.insert(0, first);
    }
    found.truncate(MOST_FINDINGS);
    found
}

fn count(value: &Value) -> usize {
    let (mut waiting, mut seen) = (vec![value], 0_usize);
    while let Some(value) = waiting.pop() {
        seen += 1;
        match value {
            Value::Object(members) => waiting.extend(members.values()),
            Value::Array(items) => waiting.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    seen
}

/// What a failed reading has taught, as the error that ends it.
fn learn(error: ShapeError, of: Option<Type>, probe: Probe<'_>) -> ShapeError {
    let (at, notes) = (probe.at, probe.notes);
    match (error, of) {
        // What is below has learned from it already.
        (ShapeError::Noted, _) => {}
        (ShapeError::Missing(field), Some(of)) => {
            notes.required.borrow_mut().insert((of, field));
            notes.learned.set(true);
        }
        (ShapeError::Unknown, Some(of)) => {
            notes.closed.borrow_mut().insert(of);
            notes.learned.set(true);
        }
        (error, _) if probe.value.is_some() => {
            let message: Cow<'static, str> = crate::http::shape::explained(&error);
            let path = at.path();
            let problem = FieldProblem::new(echoed(path.clone()), "invalid", message);
            notes.learned.set(notes.refused.borrow_mut().insert(path, problem).is_none());
        }
        // A stand-in that its type refuses: nothing more can be learned there.
        (_, _) => {}
    }
    ShapeError::Noted
}
