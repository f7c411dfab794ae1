//! What the schemas mark: lists whose entries have names, and schemas and patterns that are values of the content.
//!
//! `x-unique` names the member by which the items of a list differ; `x-json-schema` and `x-pattern` say that the value
//! is a JSON Schema or a regular expression. Both come from outside, so all of them together are bounded: compiling is
//! the dearest thing that checking content does.

use super::{Breach, Compile, Findings};
use crate::asset::content::{
    embedded::EmbeddedSchema,
    position::{Descend, Position},
    schema,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Most carried patterns outside of schemas.
const MAX_PATTERNS: usize = 50;
/// Longest carried pattern, in bytes.
const MAX_PATTERN: usize = 512;
/// Most carried schemas.
const MAX_SCHEMAS: usize = 10;

/// How much of the content has been counted so far.
pub(super) struct Carried {
    compile: Compile,
    patterns: usize,
    schemas: usize,
}

impl Carried {
    /// Nothing is counted yet.
    pub(super) const fn new(compile: Compile) -> Self {
        Self { compile, patterns: 0, schemas: 0 }
    }

    /// Looks at one place of the content.
    pub(super) fn look(&mut self, place: &Position<'_, '_>, findings: &mut Findings) -> Descend {
        if let Some(member) = place.shape.get("x-unique").and_then(Value::as_str) {
            distinct(place, member, findings);
        }
        if marked(place, "x-pattern")
            && let Some(pattern) = place.value.as_str()
        {
            self.pattern(pattern, place.pointer, findings);
        }
        if marked(place, "x-json-schema") {
            self.schema(place.value, place.pointer, findings);
            return Descend::Past;
        }
        Descend::Into
    }

    /// A pattern; `*` and nothing stand for everything and are none.
    pub(super) fn pattern(&mut self, pattern: &str, pointer: &str, findings: &mut Findings) {
        if matches!(pattern, "" | "*") {
            return;
        }
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS {
            if self.patterns == MAX_PATTERNS + 1 {
                findings.add(pointer, Breach::TooManyCarried);
            }
        } else if self.compile == Compile::Yes && (pattern.len() > MAX_PATTERN || !schema::is_linear(pattern)) {
            findings.add(pointer, Breach::PatternNotLinear);
        }
    }

    /// A JSON Schema.
    pub(super) fn schema(&mut self, carried: &Value, pointer: &str, findings: &mut Findings) {
        self.schemas += 1;
        if self.schemas > MAX_SCHEMAS {
            if self.schemas == MAX_SCHEMAS + 1 {
                findings.add(pointer, Breach::TooManyCarried);
            }
        } else if self.compile == Compile::Yes
            && let Err(refusal) = EmbeddedSchema::compile(carried)
        {
            findings.tell(pointer, refusal.code(), refusal.to_string());
        }
    }
}

fn marked(place: &Position<'_, '_>, mark: &str) -> bool {
    place.shape.get(mark).and_then(Value::as_bool).unwrap_or_default()
}

fn distinct(place: &Position<'_, '_>, member: &str, findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (index, item) in place.value.as_array().into_iter().flatten().enumerate() {
        if let Some(name) = item.get(member).and_then(Value::as_str)
            && !seen.insert(name)
        {
            findings.add(format!("{}/{index}/{member}", place.pointer), Breach::DuplicateName);
        }
    }
}
