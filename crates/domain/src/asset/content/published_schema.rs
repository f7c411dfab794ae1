//! A published JSON Schema with its validator, which finds the problems of a value.
//!
//! The schema is compiled twice: as a whole to decide whether a value is valid, and in parts to find its problems. The
//! whole validator collects all errors before it returns the first one. A value can have tens of thousands of errors
//! with hundreds of bytes each. The traversal of the parts stops at the maximum number of problems.

use super::{
    ContentProblem, content_walk::member_pointer, problem::MAX_PROBLEMS, schema::compile,
    validator_problems::to_problems,
};
use jsonschema::{ValidationError, Validator};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::OnceLock};

/// The keywords that a part checks on its own value, without members and items.
const OWN_KEYWORDS: [&str; 17] = [
    "type",
    "enum",
    "const",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "required",
    "propertyNames",
    "anyOf",
    "oneOf",
];
/// The keywords that refer to other parts or contain definitions.
#[cfg(test)]
const SUBSCHEMA_KEYWORDS: [&str; 5] = ["properties", "additionalProperties", "items", "$ref", "$defs"];

/// A published schema, compiled for the check of values.
pub(crate) struct PublishedSchema {
    value: Value,
    validator: Validator,
    /// The parts of the schema, compiled when the first value is invalid; `None` if a part does not compile.
    parts: OnceLock<Option<SchemaParts>>,
}

impl PublishedSchema {
    /// Parses and compiles the text of a schema; `None` if it does not compile.
    pub(crate) fn compile(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let validator = compile(&value).ok()?;
        Some(Self { value, validator, parts: OnceLock::new() })
    }

    pub(crate) const fn value(&self) -> &Value {
        &self.value
    }

    /// The problems of a value, outermost first, at most [`MAX_PROBLEMS`].
    pub(crate) fn find_problems(&self, value: &Value) -> Vec<ContentProblem> {
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        let mut found = Vec::new();
        if let Some(parts) = self.parts.get_or_init(|| SchemaParts::split(&self.value).ok()) {
            parts.collect_problems(parts.root, value, "", &mut found);
        }
        if found.is_empty() {
            // This fallback should never be used, because tests check that the parts find every problem of the whole
            // schema.
            found.push(ContentProblem::new("", "schema_violation", "the value does not satisfy the schema"));
        }
        found.truncate(MAX_PROBLEMS);
        found
    }
}

/// A schema that is split into parts, each of which checks one value alone.
struct SchemaParts {
    parts: Vec<SchemaPart>,
    root: usize,
}

/// The schema of one value without its members and items. `members`, `additional` and `items` are the indexes of the
/// parts for these.
struct SchemaPart {
    validator: Validator,
    members: BTreeMap<String, usize>,
    additional: Option<usize>,
    items: Option<usize>,
}

impl SchemaParts {
    fn split(schema: &Value) -> Result<Self, ValidationError<'static>> {
        let mut splitter = SchemaSplitter { root: schema, parts: Vec::new(), targets: BTreeMap::new() };
        let root = splitter.part(schema)?;
        Ok(Self { parts: splitter.parts, root })
    }

    fn collect_problems(&self, part: usize, value: &Value, pointer: &str, found: &mut Vec<ContentProblem>) {
        let Some(part) = self.parts.get(part).filter(|_| found.len() < MAX_PROBLEMS) else { return };
        let mut errors = part.validator.iter_errors(value).peekable();
        if errors.peek().is_some() {
            let fields: Vec<&str> = part.members.keys().map(String::as_str).collect();
            found.extend(errors.flat_map(|error| to_problems(&error, pointer, &fields)));
        }
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    if let Some(member_part) = part.members.get(name).copied().or(part.additional) {
                        self.collect_problems(member_part, member, &member_pointer(pointer, name), found);
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let Some(item_part) = part.items.filter(|_| found.len() < MAX_PROBLEMS) else { break };
                    self.collect_problems(item_part, item, &format!("{pointer}/{index}"), found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Splits a schema into parts, each once.
struct SchemaSplitter<'s> {
    root: &'s Value,
    parts: Vec<SchemaPart>,
    /// The indexes of the parts for definitions, by the `$ref` that names the definition.
    targets: BTreeMap<&'s str, usize>,
}

impl<'s> SchemaSplitter<'s> {
    fn part(&mut self, schema: &'s Value) -> Result<usize, ValidationError<'static>> {
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return self.add_part(schema) };
        if let Some(part) = self.targets.get(reference) {
            return Ok(*part);
        }
        let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)).unwrap_or(schema);
        let part = self.add_part(target)?;
        self.targets.insert(reference, part);
        Ok(part)
    }

    fn add_part(&mut self, schema: &'s Value) -> Result<usize, ValidationError<'static>> {
        let validator = compile(&self.own_keywords(schema))?;
        let mut members = BTreeMap::new();
        for (name, member) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            members.insert(name.clone(), self.part(member)?);
        }
        let mut subschema_part = |keyword: &str| {
            schema
                .get(keyword)
                .filter(|subschema| subschema.is_object())
                .map(|subschema| self.part(subschema))
                .transpose()
        };
        let (additional, items) = (subschema_part("additionalProperties")?, subschema_part("items")?);
        self.parts.push(SchemaPart { validator, members, additional, items });
        Ok(self.parts.len() - 1)
    }

    /// The keywords of a schema that concern the value itself, without the subschemas for members and items.
    fn own_keywords(&self, schema: &Value) -> Value {
        let mut keywords = Map::new();
        for keyword in OWN_KEYWORDS {
            keywords.extend(schema.get(keyword).map(|operand| (keyword.to_owned(), operand.clone())));
        }
        if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
            let names = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
            let names: Map<String, Value> = names.map(|(name, _)| (name.clone(), json!(true))).collect();
            keywords.insert("properties".to_owned(), Value::Object(names));
            keywords.insert("additionalProperties".to_owned(), json!(false));
        }
        // The branches of `anyOf` and `oneOf` can refer to definitions.
        if keywords.contains_key("anyOf") || keywords.contains_key("oneOf") {
            keywords.extend(self.root.get("$defs").map(|definitions| ("$defs".to_owned(), definitions.clone())));
        }
        Value::Object(keywords)
    }
}

#[cfg(test)]
mod tests;
