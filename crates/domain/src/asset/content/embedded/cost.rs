//! The cost of a carried schema: how much a check of one value can take at most, before anything is compiled.

use super::{EmbeddedRefusal, MAX_PATTERNS, PATTERN_BYTES};
use crate::asset::content::pattern;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Deepest schema, references followed: the compiler and the validator recurse.
pub(super) const MAX_DEPTH: usize = 128;
/// Longest pattern, in bytes.
pub(super) const MAX_PATTERN: usize = 512;
/// About as much as one value of a schema takes once it is compiled, in bytes.
const COMPILED_VALUE: u64 = 512;
/// What `multipleOf` takes beside its value: the validator divides exact fractions.
const EXACT_DIVISION: u64 = 20;

/// Keywords that would let a schema reach outside itself or rebind its references.
const REFUSED: [&str; 6] = ["$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor"];
/// Keywords whose schemas apply to the very value that the schema around them applies to.
const IN_PLACE: [&str; 8] = ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"];

/// How often something of a schema is evaluated at most.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Evaluations {
    /// Values of the schema.
    pub(super) nodes: u64,
    /// Evaluations of all patterns for one byte of text: the sum of [`pattern::weight`].
    pub(super) patterns: u64,
}

impl Evaluations {
    const fn plus(self, other: Self) -> Self {
        Self { nodes: self.nodes.saturating_add(other.nodes), patterns: self.patterns.saturating_add(other.patterns) }
    }
}

/// What a schema comes to when every reference is replaced by its target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// How many values it has.
    pub(super) size: u64,
    /// How many patterns it has.
    pub(super) patterns: u64,
    /// How many values stand inside one another.
    depth: usize,
    /// What one check of a value evaluates.
    pub(super) check: Evaluations,
    /// What the validator evaluates once more to find out which members and items the schema evaluates. An
    /// `unevaluatedProperties` around it asks for that, so nested ones multiply: this is why size alone bounds no time.
    marking: Evaluations,
}

impl Cost {
    /// About as much memory as the compiled schema takes, in bytes.
    pub(super) const fn compiled_bytes(self) -> u64 {
        self.size.saturating_mul(COMPILED_VALUE).saturating_add(self.patterns.saturating_mul(PATTERN_BYTES))
    }

    const fn of_one(nodes: u64, (patterns, weight): (u64, u64)) -> Self {
        let own = Evaluations { nodes, patterns: weight };
        Self { size: 1, patterns, depth: 1, check: own, marking: own }
    }

    /// Adds a part that applies to other values: members, items, names.
    fn add(&mut self, part: Self) {
        self.size = self.size.saturating_add(part.size);
        self.patterns = self.patterns.saturating_add(part.patterns);
        self.depth = self.depth.max(part.depth.saturating_add(1));
        self.check = self.check.plus(part.check);
    }

    /// Adds a part that applies to the same value.
    fn add_in_place(&mut self, part: Self) {
        self.add(part);
        self.marking = self.marking.plus(part.check).plus(part.marking);
    }
}

/// Measures a schema with its references followed.
pub(super) struct Meter<'s> {
    root: &'s Value,
    /// The targets met so far; `None` while one is being measured.
    targets: BTreeMap<&'s str, Option<Cost>>,
}

impl<'s> Meter<'s> {
    pub(super) const fn of(root: &'s Value) -> Self {
        Self { root, targets: BTreeMap::new() }
    }

    /// Measures a node that stands `above` levels deep.
    pub(super) fn measure(&mut self, node: &'s Value, above: usize) -> Result<Cost, EmbeddedRefusal> {
        if above >= MAX_DEPTH {
            return Err(EmbeddedRefusal::TooLarge);
        }
        match node {
            Value::Object(members) => self.object(members, node, above),
            Value::Array(items) => self.in_place(items.iter(), above),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Cost::of_one(1, (0, 0))),
        }
    }

    fn object(
        &mut self,
        members: &'s Map<String, Value>,
        node: &'s Value,
        above: usize,
    ) -> Result<Cost, EmbeddedRefusal> {
        let division = if members.contains_key("multipleOf") { EXACT_DIVISION } else { 0 };
        let mut whole = Cost::of_one(1 + division, patterns(node)?);
        let mut asks_what_is_evaluated = false;
        for (key, member) in members {
            // As the name of a property one of these stands before an object and means nothing.
            if REFUSED.contains(&key.as_str()) && !member.is_object() {
                return Err(EmbeddedRefusal::Outside);
            }
            let part = match (key.as_str(), member) {
                ("$ref", Value::String(target)) => self.target(target, above + 1)?,
                ("dependentSchemas", Value::Object(dependent)) => self.in_place(dependent.values(), above + 1)?,
                _ => self.measure(member, above + 1)?,
            };
            if key == "unevaluatedProperties" || key == "unevaluatedItems" {
                asks_what_is_evaluated = true;
                // It is applied once by itself and once for whatever asks in turn.
                whole.marking = whole.marking.plus(part.check);
            }
            if IN_PLACE.contains(&key.as_str()) || key == "dependentSchemas" {
                whole.add_in_place(part);
            } else {
                whole.add(part);
            }
        }
        if asks_what_is_evaluated {
            whole.check = whole.check.plus(whole.marking);
        }
        Ok(whole)
    }

    /// Measures schemas of which each applies to the same value.
    fn in_place(&mut self, schemas: impl Iterator<Item = &'s Value>, above: usize) -> Result<Cost, EmbeddedRefusal> {
        if above >= MAX_DEPTH {
            return Err(EmbeddedRefusal::TooLarge);
        }
        let mut whole = Cost::of_one(1, (0, 0));
        for schema in schemas {
            whole.add_in_place(self.measure(schema, above + 1)?);
        }
        Ok(whole)
    }

    fn target(&mut self, reference: &'s str, above: usize) -> Result<Cost, EmbeddedRefusal> {
        match self.targets.get(reference) {
            Some(Some(known)) if above + known.depth > MAX_DEPTH => return Err(EmbeddedRefusal::TooLarge),
            Some(Some(known)) => return Ok(*known),
            Some(None) => return Err(EmbeddedRefusal::Recursive),
            None => {}
        }
        let pointer = reference.strip_prefix('#').ok_or(EmbeddedRefusal::Outside)?;
        let node = self.root.pointer(pointer).ok_or(EmbeddedRefusal::Outside)?;
        self.targets.insert(reference, None);
        let cost = self.measure(node, above)?;
        self.targets.insert(reference, Some(cost));
        Ok(cost)
    }
}

/// How many patterns a schema holds itself, and the evaluations of all of them for one byte.
fn patterns(node: &Value) -> Result<(u64, u64), EmbeddedRefusal> {
    let one = node.get("pattern").and_then(Value::as_str);
    let many = node.get("patternProperties").and_then(Value::as_object);
    let (mut count, mut weight) = (0_u64, 0_u64);
    for pattern in one.into_iter().chain(many.into_iter().flat_map(|many| many.keys().map(String::as_str))) {
        if pattern.len() > MAX_PATTERN {
            return Err(EmbeddedRefusal::TooLarge);
        }
        count = count.saturating_add(1);
        // A schema with more is refused, so nobody needs the weight of the rest.
        if count <= MAX_PATTERNS {
            weight = weight.saturating_add(pattern::weight(pattern));
        }
    }
    Ok((count, weight))
}

/// What a value has to be looked through for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Weight {
    /// Values, members and items counted at every depth.
    values: u64,
    /// Bytes of its texts and names.
    bytes: u64,
}

/// Bytes of text that take about as long to look through as one value takes to check.
const BYTES_PER_VALUE: u64 = 512;

impl Weight {
    /// Weighs a value.
    pub(super) fn of(value: &Value) -> Self {
        let (mut weight, mut waiting) = (Self::default(), vec![value]);
        while let Some(value) = waiting.pop() {
            weight.values = weight.values.saturating_add(1);
            match value {
                Value::Object(members) => {
                    members.keys().for_each(|name| weight.take(name));
                    waiting.extend(members.values());
                }
                Value::Array(items) => waiting.extend(items),
                Value::String(text) => weight.take(text),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        weight
    }

    fn take(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
    }

    /// How many evaluations a check takes at most: each node of the schema for each value and each stretch of text, and
    /// each pattern for each byte, by its weight.
    pub(super) const fn evaluations(self, check: Evaluations) -> u64 {
        let values = self.values.saturating_add(self.bytes / BYTES_PER_VALUE);
        check.nodes.saturating_mul(values).saturating_add(check.patterns.saturating_mul(self.bytes))
    }
}
