//! JSON Schemas that people put inside content, such as the shape of a prompt's output.
//!
//! They come from outside, so they are bounded before they are used: nothing is fetched, patterns run in linear time,
//! and a schema that refers to itself is refused, because its evaluation could not be bounded.

use super::{ContentProblem, schema};
use jsonschema::Validator;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// Most schemas in one, every reference counted as often as it is used.
const MAX_EXPANDED: u64 = 10_000;
/// Deepest schema, references followed: the compiler and the validator recurse.
const MAX_DEPTH: usize = 128;
/// Longest text of a schema, in bytes of JSON.
const MAX_TEXT: usize = 256 << 10;
/// Most patterns, every reference counted as often as it is used: compiling one is dear.
const MAX_PATTERNS: u64 = 50;
/// Longest pattern, in bytes.
const MAX_PATTERN: usize = 512;

/// Keywords that would let a schema reach outside itself or rebind its references.
const REFUSED: [&str; 6] = ["$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor"];

/// About as much as one value of a schema takes once it is compiled, in bytes.
const COMPILED_VALUE: u64 = 512;

/// A schema carried in content, compiled within bounds.
#[derive(Clone, Debug)]
pub struct EmbeddedSchema {
    validator: Arc<Validator>,
    bytes: u64,
}

/// Why a carried schema is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EmbeddedRefusal {
    /// It is no object.
    #[error("a schema is an object")]
    NoObject,
    /// It refers to something outside itself, or rebinds references.
    #[error("a schema refers only to its own definitions, by `#/...`")]
    Outside,
    /// It refers to itself.
    #[error("a schema must not refer to itself")]
    Recursive,
    /// It is too large, or becomes so once its references are followed.
    #[error("the schema is too large")]
    TooLarge,
    /// It is no valid JSON Schema (2020-12), or a pattern in it needs more than linear time.
    #[error("the schema does not compile")]
    Invalid,
}

impl EmbeddedRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NoObject => "schema_no_object",
            Self::Outside => "schema_outside_reference",
            Self::Recursive => "schema_recursive",
            Self::TooLarge => "schema_too_large",
            Self::Invalid => "schema_invalid",
        }
    }
}

impl EmbeddedSchema {
    /// Compiles a schema that came as a value.
    ///
    /// # Errors
    /// When it is not self-contained, refers to itself, is too large, or does not compile.
    pub fn compile(carried: &Value) -> Result<Self, EmbeddedRefusal> {
        if !carried.is_object() {
            return Err(EmbeddedRefusal::NoObject);
        }
        if carried.to_string().len() > MAX_TEXT {
            return Err(EmbeddedRefusal::TooLarge);
        }
        let mut expansion = Expansion { root: carried, targets: BTreeMap::new() };
        let whole = expansion.measure(carried, 0)?;
        if whole.size > MAX_EXPANDED || whole.patterns > MAX_PATTERNS {
            return Err(EmbeddedRefusal::TooLarge);
        }
        let validator = schema::compile(carried).map_err(|_| EmbeddedRefusal::Invalid)?;
        Ok(Self { validator: Arc::new(validator), bytes: whole.compiled_bytes() })
    }

    /// How much memory it may take, in bytes: far more than its text.
    #[must_use]
    pub fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// Everything in which a value differs from the schema.
    #[must_use]
    pub fn problems(&self, value: &Value) -> Vec<ContentProblem> {
        schema::problems(&self.validator, value)
    }
}

/// What a schema becomes when every reference is replaced by what it names.
#[derive(Clone, Copy)]
struct Measure {
    /// How many values it has.
    size: u64,
    /// How many patterns.
    patterns: u64,
    /// How many values stand inside one another.
    depth: usize,
}

impl Measure {
    const fn compiled_bytes(self) -> u64 {
        self.size.saturating_mul(COMPILED_VALUE).saturating_add(self.patterns.saturating_mul(schema::PATTERN_BYTES))
    }
}

struct Expansion<'s> {
    root: &'s Value,
    /// The targets met so far; `None` while one is being measured.
    targets: BTreeMap<&'s str, Option<Measure>>,
}

impl<'s> Expansion<'s> {
    /// Measures a node that stands `above` levels deep, references followed.
    fn measure(&mut self, node: &'s Value, above: usize) -> Result<Measure, EmbeddedRefusal> {
        if above >= MAX_DEPTH {
            return Err(EmbeddedRefusal::TooLarge);
        }
        let mut whole = Measure { size: 1, patterns: patterns(node)?, depth: 1 };
        let mut add = |part: Measure| {
            whole.size = whole.size.saturating_add(part.size);
            whole.patterns = whole.patterns.saturating_add(part.patterns);
            whole.depth = whole.depth.max(part.depth + 1);
        };
        match node {
            Value::Object(members) => {
                for (key, member) in members {
                    // As the name of a property one of these stands before an object and means nothing.
                    if REFUSED.contains(&key.as_str()) && !member.is_object() {
                        return Err(EmbeddedRefusal::Outside);
                    }
                    add(match (key.as_str(), member) {
                        ("$ref", Value::String(target)) => self.target(target, above + 1)?,
                        _ => self.measure(member, above + 1)?,
                    });
                }
            }
            Value::Array(items) => {
                for item in items {
                    add(self.measure(item, above + 1)?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(whole)
    }

    fn target(&mut self, reference: &'s str, above: usize) -> Result<Measure, EmbeddedRefusal> {
        match self.targets.get(reference) {
            Some(Some(known)) if above + known.depth > MAX_DEPTH => return Err(EmbeddedRefusal::TooLarge),
            Some(Some(known)) => return Ok(*known),
            Some(None) => return Err(EmbeddedRefusal::Recursive),
            None => {}
        }
        let pointer = reference.strip_prefix('#').ok_or(EmbeddedRefusal::Outside)?;
        let node = self.root.pointer(pointer).ok_or(EmbeddedRefusal::Outside)?;
        self.targets.insert(reference, None);
        let measure = self.measure(node, above)?;
        self.targets.insert(reference, Some(measure));
        Ok(measure)
    }
}

/// How many patterns a schema holds itself.
fn patterns(node: &Value) -> Result<u64, EmbeddedRefusal> {
    let one = node.get("pattern").and_then(Value::as_str);
    let many = node.get("patternProperties").and_then(Value::as_object);
    let mut count = 0_u64;
    for pattern in one.into_iter().chain(many.into_iter().flat_map(|many| many.keys().map(String::as_str))) {
        if pattern.len() > MAX_PATTERN {
            return Err(EmbeddedRefusal::TooLarge);
        }
        count = count.saturating_add(1);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(carried: Value) -> Option<EmbeddedRefusal> {
        EmbeddedSchema::compile(&carried).err()
    }

    #[test]
    fn a_self_contained_schema_compiles_and_judges() {
        let schema = EmbeddedSchema::compile(&json!({
            "type": "object",
            "required": ["label"],
            "properties": {"label": {"$ref": "#/$defs/label"}, "$ref": {"type": "string"}},
            "$defs": {"label": {"enum": ["bug", "question"]}},
        }))
        .unwrap();
        assert!(schema.problems(&json!({"label": "bug"})).is_empty());
        assert_eq!(schema.problems(&json!({"label": "x"}))[0].code, "not_one_of");
        assert_eq!(schema.problems(&json!({}))[0].pointer, "/label");
    }

    #[test]
    fn everything_that_cannot_be_bounded_is_refused() {
        for reference in ["https://example.org/s.json", "file:///etc/passwd", "other.json", "#/$defs/gone", "#anchor"] {
            assert_eq!(refusal(json!({"$ref": reference})), Some(EmbeddedRefusal::Outside), "{reference}");
        }
        assert_eq!(refusal(json!({"$id": "https://example.org/"})), Some(EmbeddedRefusal::Outside));
        assert_eq!(refusal(json!({"$ref": "#"})), Some(EmbeddedRefusal::Recursive));
        let through = json!({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}});
        assert_eq!(refusal(through), Some(EmbeddedRefusal::Recursive));
        let aliased = json!({"properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/%70roperties/a"}}});
        assert!(refusal(aliased).is_some());
        let mut doubling = json!({"d0": {"type": "string"}});
        for level in 1..20 {
            let below = json!({"$ref": format!("#/$defs/d{}", level - 1)});
            doubling[format!("d{level}")] = json!({"allOf": [below, below]});
        }
        let doubling = json!({"$ref": "#/$defs/d19", "$defs": doubling});
        assert_eq!(refusal(doubling), Some(EmbeddedRefusal::TooLarge));
        let mut chain = json!({"d0": {"type": "string"}});
        for level in 1..MAX_DEPTH {
            chain[format!("d{level}")] = json!({"$ref": format!("#/$defs/d{}", level - 1)});
        }
        assert_eq!(
            refusal(json!({"$ref": format!("#/$defs/d{}", MAX_DEPTH - 1), "$defs": chain})),
            Some(EmbeddedRefusal::TooLarge)
        );
        let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"not": inner}));
        assert_eq!(refusal(deep(MAX_DEPTH - 1)), None);
        assert_eq!(refusal(deep(MAX_DEPTH)), Some(EmbeddedRefusal::TooLarge));
        assert_eq!(refusal(json!({"enum": vec!["x"; 100_000]})), Some(EmbeddedRefusal::TooLarge));
        for pattern in ["(?=a)b", "(a)\\1", "a{1000}{1000}", "("] {
            assert_eq!(refusal(json!({"pattern": pattern})), Some(EmbeddedRefusal::Invalid), "{pattern}");
        }
        assert_eq!(refusal(json!({"pattern": "a".repeat(MAX_PATTERN + 1)})), Some(EmbeddedRefusal::TooLarge));
        let many = |count: usize| json!({"anyOf": vec![json!({"pattern": "a"}); count]});
        assert_eq!(refusal(many(50)), None);
        assert_eq!(refusal(many(51)), Some(EmbeddedRefusal::TooLarge));
        let named: serde_json::Map<_, _> = (0..51).map(|index| (format!("a{index}"), json!(true))).collect();
        assert_eq!(refusal(json!({"patternProperties": named})), Some(EmbeddedRefusal::TooLarge));
        assert_eq!(refusal(json!({"type": "sting"})), Some(EmbeddedRefusal::Invalid));
        assert_eq!(refusal(json!(true)), Some(EmbeddedRefusal::NoObject));
    }
}
