//! The cost model of embedded schemas: an upper bound of the work of one check, known before the compilation.

use super::{EmbeddedSchemaRefusal, MAX_PATTERN_MEMORY_BYTES, MAX_PATTERNS};
use crate::asset::content::pattern_weight;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The maximum depth of a schema with its references followed. It bounds the recursion of the compiler and the
/// validator.
pub(super) const MAX_DEPTH: usize = 128;
pub(super) const MAX_PATTERN_BYTES: usize = 512;
/// The estimated memory of one node of a compiled schema, in bytes.
const COMPILED_NODE_BYTES: u64 = 512;
/// The additional evaluations of `multipleOf`, because the validator divides exact fractions.
const DIVISION_EVALUATIONS: u64 = 20;

/// The keywords that refer to other documents or change the target of references.
const FORBIDDEN_KEYWORDS: [&str; 6] =
    ["$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor"];
/// The keywords whose subschemas apply to the same value as the schema around them. `dependentSchemas` is handled
/// separately, because its subschemas are members of an object.
const IN_PLACE_APPLICATORS: [&str; 8] = ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"];

/// An upper bound of the evaluations of a schema for one value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Evaluations {
    /// The number of schema nodes that are evaluated for each value.
    pub(super) nodes: u64,
    /// The evaluations of all patterns for one byte of text, which is the sum of [`pattern_weight::weight`].
    pub(super) patterns: u64,
}

impl Evaluations {
    const fn plus(self, other: Self) -> Self {
        Self { nodes: self.nodes.saturating_add(other.nodes), patterns: self.patterns.saturating_add(other.patterns) }
    }
}

/// The cost of a schema with every reference expanded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// The number of nodes in the schema.
    pub(super) size: u64,
    /// The number of patterns in the schema.
    pub(super) patterns: u64,
    depth: usize,
    /// The evaluations of one check.
    pub(super) check: Evaluations,
    /// The additional evaluations that find out which members and items the schema evaluates. An enclosing
    /// `unevaluatedProperties` causes them, so nested keywords multiply. Therefore the size alone does not bound the
    /// time.
    unevaluated: Evaluations,
}

impl Cost {
    /// The estimated memory of the compiled schema, in bytes.
    pub(super) const fn compiled_bytes(self) -> u64 {
        self.size
            .saturating_mul(COMPILED_NODE_BYTES)
            .saturating_add(self.patterns.saturating_mul(MAX_PATTERN_MEMORY_BYTES))
    }

    const fn of_node(nodes: u64, patterns: u64, weight: u64) -> Self {
        let evaluations = Evaluations { nodes, patterns: weight };
        Self { size: 1, patterns, depth: 1, check: evaluations, unevaluated: evaluations }
    }

    /// Adds the cost of a subschema that applies to other values: members, items or names.
    fn add(&mut self, part: Self) {
        self.size = self.size.saturating_add(part.size);
        self.patterns = self.patterns.saturating_add(part.patterns);
        self.depth = self.depth.max(part.depth.saturating_add(1));
        self.check = self.check.plus(part.check);
    }

    /// Adds the cost of a subschema that applies to the same value.
    fn add_in_place(&mut self, part: Self) {
        self.add(part);
        self.unevaluated = self.unevaluated.plus(part.check).plus(part.unevaluated);
    }
}

/// Measures the cost of a schema, and follows its references.
pub(super) struct Meter<'s> {
    root: &'s Value,
    /// The costs of the reference targets that were measured; `None` for a target whose measurement has not ended.
    /// Meeting such a target again proves recursion.
    targets: BTreeMap<&'s str, Option<Cost>>,
}

impl<'s> Meter<'s> {
    pub(super) const fn of(root: &'s Value) -> Self {
        Self { root, targets: BTreeMap::new() }
    }

    pub(super) fn measure(&mut self, node: &'s Value, depth: usize) -> Result<Cost, EmbeddedSchemaRefusal> {
        if depth >= MAX_DEPTH {
            return Err(EmbeddedSchemaRefusal::TooLarge);
        }
        match node {
            Value::Object(members) => self.measure_object(members, node, depth),
            Value::Array(items) => self.measure_in_place(items.iter(), depth),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Cost::of_node(1, 0, 0)),
        }
    }

    fn measure_object(
        &mut self,
        members: &'s Map<String, Value>,
        node: &'s Value,
        depth: usize,
    ) -> Result<Cost, EmbeddedSchemaRefusal> {
        let division = if members.contains_key("multipleOf") { DIVISION_EVALUATIONS } else { 0 };
        let (patterns, weight) = measure_patterns(node)?;
        let mut cost = Cost::of_node(1 + division, patterns, weight);
        let mut has_unevaluated = false;
        for (key, member) in members {
            // A member of `properties` can have the name of a keyword. Its value is an object, so it is not that
            // keyword.
            if FORBIDDEN_KEYWORDS.contains(&key.as_str()) && !member.is_object() {
                return Err(EmbeddedSchemaRefusal::ExternalReference);
            }
            let part = match (key.as_str(), member) {
                ("$ref", Value::String(target)) => self.measure_target(target, depth + 1)?,
                ("dependentSchemas", Value::Object(dependent)) => {
                    self.measure_in_place(dependent.values(), depth + 1)?
                }
                _ => self.measure(member, depth + 1)?,
            };
            if key == "unevaluatedProperties" || key == "unevaluatedItems" {
                has_unevaluated = true;
                // The subschema is evaluated once by itself, and once for every enclosing `unevaluated*` keyword.
                cost.unevaluated = cost.unevaluated.plus(part.check);
            }
            if IN_PLACE_APPLICATORS.contains(&key.as_str()) || key == "dependentSchemas" {
                cost.add_in_place(part);
            } else {
                cost.add(part);
            }
        }
        if has_unevaluated {
            cost.check = cost.check.plus(cost.unevaluated);
        }
        Ok(cost)
    }

    /// Measures several schemas that apply to the same value.
    fn measure_in_place(
        &mut self,
        schemas: impl Iterator<Item = &'s Value>,
        depth: usize,
    ) -> Result<Cost, EmbeddedSchemaRefusal> {
        if depth >= MAX_DEPTH {
            return Err(EmbeddedSchemaRefusal::TooLarge);
        }
        let mut cost = Cost::of_node(1, 0, 0);
        for schema in schemas {
            cost.add_in_place(self.measure(schema, depth + 1)?);
        }
        Ok(cost)
    }

    fn measure_target(&mut self, reference: &'s str, depth: usize) -> Result<Cost, EmbeddedSchemaRefusal> {
        match self.targets.get(reference) {
            Some(Some(cost)) if depth + cost.depth > MAX_DEPTH => return Err(EmbeddedSchemaRefusal::TooLarge),
            Some(Some(cost)) => return Ok(*cost),
            Some(None) => return Err(EmbeddedSchemaRefusal::Recursive),
            None => {}
        }
        let pointer = reference.strip_prefix('#').ok_or(EmbeddedSchemaRefusal::ExternalReference)?;
        let node = self.root.pointer(pointer).ok_or(EmbeddedSchemaRefusal::ExternalReference)?;
        self.targets.insert(reference, None);
        let cost = self.measure(node, depth)?;
        self.targets.insert(reference, Some(cost));
        Ok(cost)
    }
}

/// The number of patterns in this node, without those of subschemas, and their evaluations for one byte of text.
fn measure_patterns(node: &Value) -> Result<(u64, u64), EmbeddedSchemaRefusal> {
    let single_pattern = node.get("pattern").and_then(Value::as_str);
    let property_patterns = node.get("patternProperties").and_then(Value::as_object);
    let (mut count, mut weight) = (0_u64, 0_u64);
    for pattern in single_pattern
        .into_iter()
        .chain(property_patterns.into_iter().flat_map(|property_patterns| property_patterns.keys().map(String::as_str)))
    {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(EmbeddedSchemaRefusal::TooLarge);
        }
        count = count.saturating_add(1);
        // A schema with more patterns is refused, so further weights are not needed.
        if count <= MAX_PATTERNS {
            weight = weight.saturating_add(pattern_weight::weight(pattern));
        }
    }
    Ok((count, weight))
}

/// The size of a value, as far as it determines the work of a check.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct ValueSize {
    /// The number of values. Members and items at every depth count.
    values: u64,
    /// The total length of all texts and keys, in bytes.
    bytes: u64,
}

/// The number of bytes of text whose traversal takes about as long as the check of one value.
const BYTES_PER_VALUE: u64 = 512;

impl ValueSize {
    /// Measures a value with all of its members and items.
    pub(super) fn of(value: &Value) -> Self {
        let (mut size, mut pending) = (Self::default(), vec![value]);
        while let Some(value) = pending.pop() {
            size.values = size.values.saturating_add(1);
            match value {
                Value::Object(members) => {
                    members.keys().for_each(|name| size.add_text(name));
                    pending.extend(members.values());
                }
                Value::Array(items) => pending.extend(items),
                Value::String(text) => size.add_text(text),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        size
    }

    fn add_text(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
    }

    /// An upper bound of the evaluations of a check: schema nodes times values and text segments, plus pattern weights
    /// times bytes.
    pub(super) const fn evaluations(self, check: Evaluations) -> u64 {
        let values = self.values.saturating_add(self.bytes / BYTES_PER_VALUE);
        check.nodes.saturating_mul(values).saturating_add(check.patterns.saturating_mul(self.bytes))
    }
}
