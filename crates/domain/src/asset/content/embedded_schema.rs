//! JSON Schemas within content, such as the schema of a prompt's output.
//!
//! The authors of content are untrusted, so every schema is bounded before its use. The validation makes no network
//! requests, and patterns run in linear time. Recursive schemas are refused, because their evaluation is unbounded.
//!
//! A check only says whether the value is valid. For a list of errors, the validator would collect the errors of all
//! branches. That could take gigabytes, even for a small schema and a small value.

mod cost;

use super::{MAX_PATTERN_MEMORY_BYTES, schema};
use crate::json::{self, JsonRefusal};
use cost::{Evaluations, Meter, ValueSize};
use jsonschema::Validator;
use serde_json::Value;
use std::sync::Arc;

/// The maximum number of nodes in a schema whose references are expanded.
const MAX_EXPANDED_NODES: u64 = 10_000;
/// The maximum size of a schema as JSON, in bytes.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// The maximum number of patterns in a schema whose references are expanded. Each pattern is expensive to compile.
const MAX_PATTERNS: u64 = 50;
/// The maximum number of evaluations for one value. Nested `unevaluatedProperties` multiply this number, and the
/// compilation takes as many steps.
const MAX_EVALUATIONS_PER_VALUE: u64 = 1_000_000;
/// The maximum number of evaluations in one check: schema nodes times values, plus pattern weights times bytes. One
/// processor core makes about 100 million evaluations per second.
const MAX_EVALUATIONS: u64 = 10_000_000;
/// The maximum number of evaluations of a check on a request thread. They take about a millisecond.
pub const MAX_CHEAP_EVALUATIONS: u64 = 100_000;
/// The maximum length of a text that a request thread parses as JSON, in bytes.
const CHEAP_TEXT_BYTES: usize = 16 << 10;

/// A compiled schema from content, within the bounds of this module.
#[derive(Clone, Debug)]
pub struct EmbeddedSchema {
    validator: Arc<Validator>,
    bytes: u64,
    check_cost: Evaluations,
}

/// The reason why a schema in content is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EmbeddedSchemaRefusal {
    /// The schema is not a JSON object.
    #[error("a schema must be an object")]
    NotAnObject,
    /// The schema refers to something outside of it, or changes the base of its references, such as by `$id`.
    #[error("a schema may refer only to its own definitions, as `#/...`")]
    ExternalReference,
    /// The schema refers to itself.
    #[error("a schema must not refer to itself")]
    Recursive,
    /// The schema exceeds a bound, possibly only with its references expanded.
    #[error("the schema is too large")]
    TooLarge,
    /// The schema is not valid JSON Schema (2020-12), or has a pattern that cannot run in linear time.
    #[error("the schema does not compile")]
    Invalid,
}

impl EmbeddedSchemaRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotAnObject => "schema_no_object",
            Self::ExternalReference => "schema_outside_reference",
            Self::Recursive => "schema_recursive",
            Self::TooLarge => "schema_too_large",
            Self::Invalid => "schema_invalid",
        }
    }
}

/// The reason why a value fails the check against a schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SchemaCheckFailure {
    /// The value does not satisfy the schema.
    #[error("the value does not satisfy the schema")]
    Mismatch,
    /// The check would exceed its budget of evaluations, so its result is unknown.
    #[error("the value and its schema are too large to be checked against each other")]
    BudgetExceeded,
}

impl SchemaCheckFailure {
    /// The stable code of the rejection. `mismatch` is the code that the caller uses for a value that does not satisfy
    /// the schema.
    #[must_use]
    pub const fn code(self, mismatch: &'static str) -> &'static str {
        match self {
            Self::Mismatch => mismatch,
            Self::BudgetExceeded => "schema_budget_exceeded",
        }
    }
}

impl EmbeddedSchema {
    /// Compiles a schema after checking its bounds.
    ///
    /// # Errors
    /// Returns an error when the schema is not self-contained, is recursive, exceeds a bound, or does not compile.
    pub fn compile(source: &Value) -> Result<Self, EmbeddedSchemaRefusal> {
        if !source.is_object() {
            return Err(EmbeddedSchemaRefusal::NotAnObject);
        }
        if source.to_string().len() > MAX_SCHEMA_BYTES {
            return Err(EmbeddedSchemaRefusal::TooLarge);
        }
        let cost = Meter::of(source).measure(source, 0)?;
        if cost.size > MAX_EXPANDED_NODES
            || cost.patterns > MAX_PATTERNS
            || cost.check.nodes > MAX_EVALUATIONS_PER_VALUE
        {
            return Err(EmbeddedSchemaRefusal::TooLarge);
        }
        let validator = schema::compile(source).map_err(|_| EmbeddedSchemaRefusal::Invalid)?;
        Ok(Self { validator: Arc::new(validator), bytes: cost.compiled_bytes(), check_cost: cost.check })
    }

    /// The estimated memory of the schema after compilation, in bytes; 0 for a schema that would be refused.
    #[must_use]
    pub fn estimated_bytes(source: &Value) -> usize {
        let measured = Meter::of(source).measure(source, 0);
        measured.map_or(0, |cost| usize::try_from(cost.compiled_bytes()).unwrap_or(usize::MAX))
    }

    /// The estimated memory of this compiled schema, in bytes. It far exceeds the length of the schema's text.
    #[must_use]
    pub fn compiled_bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// An upper bound of the evaluations that a check of this value takes.
    #[must_use]
    pub fn max_evaluations(&self, value: &Value) -> u64 {
        ValueSize::of(value).evaluations(self.check_cost)
    }

    /// Whether a request thread may check this value. A check that exceeds the budget is short too, because it fails at
    /// once.
    #[must_use]
    pub fn is_cheap_to_check(&self, value: &Value) -> bool {
        let evaluations = self.max_evaluations(value);
        evaluations <= MAX_CHEAP_EVALUATIONS || evaluations > MAX_EVALUATIONS
    }

    /// Whether a request thread may parse this text and check the value.
    #[must_use]
    pub fn is_cheap_text(&self, text: &str) -> bool {
        text.len() <= CHEAP_TEXT_BYTES
            && json::read(text.as_bytes()).map_or(true, |value| self.is_cheap_to_check(&value))
    }

    /// Checks a value within the budget of ten million evaluations.
    ///
    /// # Errors
    /// Returns an error when the value does not satisfy the schema, or the check would exceed its budget.
    pub fn check_value(&self, value: &Value) -> Result<(), SchemaCheckFailure> {
        if self.max_evaluations(value) > MAX_EVALUATIONS {
            return Err(SchemaCheckFailure::BudgetExceeded);
        }
        if self.validator.is_valid(value) { Ok(()) } else { Err(SchemaCheckFailure::Mismatch) }
    }

    /// Parses a text as JSON within the limits of [`json::read`], and checks the value.
    ///
    /// # Errors
    /// Returns an error when the text is not JSON, does not satisfy the schema, or exceeds a limit of parsing or
    /// checking.
    pub fn check_text(&self, text: &str) -> Result<(), SchemaCheckFailure> {
        match json::read(text.as_bytes()) {
            Ok(value) => self.check_value(&value),
            Err(JsonRefusal::Malformed) => Err(SchemaCheckFailure::Mismatch),
            Err(JsonRefusal::TooLarge) => Err(SchemaCheckFailure::BudgetExceeded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        cost::{MAX_DEPTH, MAX_PATTERN_BYTES},
        *,
    };
    use serde_json::json;

    fn refusal(source: Value) -> Option<EmbeddedSchemaRefusal> {
        EmbeddedSchema::compile(&source).err()
    }

    #[test]
    fn checks_values_with_a_self_contained_schema() {
        let schema = EmbeddedSchema::compile(&json!({
            "type": "object",
            "required": ["label"],
            "properties": {"label": {"$ref": "#/$defs/label"}, "$ref": {"type": "string"}},
            "$defs": {"label": {"enum": ["bug", "question"]}},
        }))
        .unwrap();
        assert_eq!(schema.check_value(&json!({"label": "bug"})), Ok(()));
        for other in [json!({"label": "x"}), json!({}), json!([])] {
            assert_eq!(schema.check_value(&other), Err(SchemaCheckFailure::Mismatch), "{other}");
        }
        assert_eq!(schema.check_text(r#"{"label": "bug"}"#), Ok(()));
        for other in ["", "bug", r#"{"label": "x"}"#, r#"{"label": "bug", "label": "bug"}"#] {
            assert_eq!(schema.check_text(other), Err(SchemaCheckFailure::Mismatch), "{other}");
        }
    }

    #[test]
    fn refuses_schemas_without_bounds() {
        for reference in ["https://example.org/s.json", "file:///etc/passwd", "other.json", "#/$defs/gone", "#anchor"] {
            assert_eq!(
                refusal(json!({"$ref": reference})),
                Some(EmbeddedSchemaRefusal::ExternalReference),
                "{reference}"
            );
        }
        assert_eq!(refusal(json!({"$id": "https://example.org/"})), Some(EmbeddedSchemaRefusal::ExternalReference));
        assert_eq!(refusal(json!({"$ref": "#"})), Some(EmbeddedSchemaRefusal::Recursive));
        let recursive = json!({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}});
        assert_eq!(refusal(recursive), Some(EmbeddedSchemaRefusal::Recursive));
        let aliased = json!({"properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/%70roperties/a"}}});
        assert!(refusal(aliased).is_some());
        let mut doubling = json!({"d0": {"type": "string"}});
        for level in 1..20 {
            let previous_level = json!({"$ref": format!("#/$defs/d{}", level - 1)});
            doubling[format!("d{level}")] = json!({"allOf": [previous_level, previous_level]});
        }
        let doubling = json!({"$ref": "#/$defs/d19", "$defs": doubling});
        assert_eq!(refusal(doubling), Some(EmbeddedSchemaRefusal::TooLarge));
        let mut chain = json!({"d0": {"type": "string"}});
        for level in 1..MAX_DEPTH {
            chain[format!("d{level}")] = json!({"$ref": format!("#/$defs/d{}", level - 1)});
        }
        assert_eq!(
            refusal(json!({"$ref": format!("#/$defs/d{}", MAX_DEPTH - 1), "$defs": chain})),
            Some(EmbeddedSchemaRefusal::TooLarge)
        );
        let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"not": inner}));
        assert_eq!(refusal(deep(MAX_DEPTH - 1)), None);
        assert_eq!(refusal(deep(MAX_DEPTH)), Some(EmbeddedSchemaRefusal::TooLarge));
        assert_eq!(refusal(json!({"enum": vec!["x"; 100_000]})), Some(EmbeddedSchemaRefusal::TooLarge));
        for pattern in ["(?=a)b", "(a)\\1", "a{1000}{1000}", "("] {
            assert_eq!(refusal(json!({"pattern": pattern})), Some(EmbeddedSchemaRefusal::Invalid), "{pattern}");
        }
        assert_eq!(
            refusal(json!({"pattern": "a".repeat(MAX_PATTERN_BYTES + 1)})),
            Some(EmbeddedSchemaRefusal::TooLarge)
        );
        let schema_with_patterns = |count: usize| json!({"anyOf": vec![json!({"pattern": "a"}); count]});
        assert_eq!(refusal(schema_with_patterns(50)), None);
        assert_eq!(refusal(schema_with_patterns(51)), Some(EmbeddedSchemaRefusal::TooLarge));
        let pattern_properties: serde_json::Map<_, _> =
            (0..51).map(|index| (format!("a{index}"), json!(true))).collect();
        assert_eq!(refusal(json!({"patternProperties": pattern_properties})), Some(EmbeddedSchemaRefusal::TooLarge));
        assert_eq!(refusal(json!({"type": "sting"})), Some(EmbeddedSchemaRefusal::Invalid));
        assert_eq!(refusal(json!(true)), Some(EmbeddedSchemaRefusal::NotAnObject));
    }

    /// A schema with nine thousand branches, each of which refuses every item.
    fn failing_branches() -> EmbeddedSchema {
        EmbeddedSchema::compile(&json!({"items": {"anyOf": vec![json!(false); 9_000]}})).unwrap()
    }

    #[test]
    fn stops_checks_at_the_evaluation_budget() {
        let (schema, numbers) = (failing_branches(), |count: usize| json!(vec![1; count]));
        for (count, expected) in [
            (0, Ok(())),
            (100, Err(SchemaCheckFailure::Mismatch)),
            (1_000, Err(SchemaCheckFailure::Mismatch)),
            (1_200, Err(SchemaCheckFailure::BudgetExceeded)),
            (90_000, Err(SchemaCheckFailure::BudgetExceeded)),
        ] {
            assert_eq!(schema.check_value(&numbers(count)), expected, "{count} numbers");
            assert_eq!(schema.check_text(&numbers(count).to_string()), expected, "{count} numbers in a text");
        }
        // The JSON parser refuses this text, because it is too large.
        assert_eq!(schema.check_text(&numbers(200_000).to_string()), Err(SchemaCheckFailure::BudgetExceeded));
    }

    #[test]
    fn counts_text_length_for_lengths_and_patterns() {
        let lengths = EmbeddedSchema::compile(&json!({"allOf": vec![json!({"minLength": 2}); 3_000]})).unwrap();
        let patterns = EmbeddedSchema::compile(&json!({"allOf": vec![json!({"pattern": "x$"}); 40]})).unwrap();
        for schema in [lengths, patterns] {
            assert_eq!(schema.check_value(&json!("x".repeat(10 << 10))), Ok(()));
            assert_eq!(schema.check_value(&json!("x".repeat(1 << 20))), Err(SchemaCheckFailure::BudgetExceeded));
            assert_eq!(schema.check_value(&json!({"x".repeat(1 << 20): 1})), Err(SchemaCheckFailure::BudgetExceeded));
        }
    }

    /// The states of this pattern do not fit into the cache of the regex engine's lazy DFA, so each byte visits every
    /// state.
    #[test]
    fn weighs_patterns_by_states_visited_per_byte() {
        let counting = |max_repeats: usize| json!({"pattern": format!("1[01]{{0,{max_repeats}}}[2-9a-z]")});
        let schema = EmbeddedSchema::compile(&counting(2_000)).unwrap();
        let text = |bytes: usize| json!("01".repeat(bytes / 2));
        assert_eq!(schema.max_evaluations(&text(1_000)), 2 * 2 + 1_000 * 2_001);
        assert_eq!(schema.check_value(&text(4_000)), Err(SchemaCheckFailure::Mismatch));
        assert_eq!(schema.check_value(&text(6_000)), Err(SchemaCheckFailure::BudgetExceeded));
        let anchored = EmbeddedSchema::compile(&json!({"pattern": "^[a-z0-9-]{1,64}$"})).unwrap();
        assert_eq!(anchored.check_value(&json!("x".repeat(1 << 20))), Err(SchemaCheckFailure::Mismatch));
    }

    #[test]
    fn brief_checks_depend_on_evaluations_not_bytes() {
        let (schema, numbers) = (failing_branches(), |count: usize| json!(vec![1; count]));
        for (count, is_cheap_to_check) in [(2, true), (20, false), (1_000, false), (1_200, true)] {
            assert_eq!(schema.is_cheap_to_check(&numbers(count)), is_cheap_to_check, "{count} numbers");
            assert_eq!(
                schema.is_cheap_text(&numbers(count).to_string()),
                is_cheap_to_check,
                "{count} numbers in a text"
            );
        }
        let unconstrained = EmbeddedSchema::compile(&json!({})).unwrap();
        assert!(
            unconstrained.is_cheap_text("\"a\"")
                && !unconstrained.is_cheap_text(&json!("a".repeat(CHEAP_TEXT_BYTES)).to_string())
        );
    }

    /// Each level evaluates the level below it at least twice. Therefore the compilation or a check of thirty levels
    /// would practically never end.
    #[test]
    fn nested_unevaluated_keywords_multiply_the_cost() {
        let nested = |levels: usize, keyword: &str, branch: &str| {
            (0..levels).fold(json!({"type": ["object", "array"]}), |inner, _| json!({branch: [inner], keyword: false}))
        };
        for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
            for branch in ["anyOf", "allOf", "oneOf"] {
                let schema = EmbeddedSchema::compile(&nested(6, keyword, branch)).unwrap();
                assert_eq!(schema.check_value(&json!({})), Ok(()), "{keyword} around {branch}");
                assert_eq!(
                    refusal(nested(30, keyword, branch)),
                    Some(EmbeddedSchemaRefusal::TooLarge),
                    "{keyword}, {branch}"
                );
            }
        }
        let mut chain = json!({"d0": {"type": "object"}});
        for level in 1..30 {
            let previous_level = json!({"$ref": format!("#/$defs/d{}", level - 1)});
            chain[format!("d{level}")] =
                json!({"dependentSchemas": {"a": previous_level}, "unevaluatedProperties": false});
        }
        assert_eq!(refusal(json!({"$ref": "#/$defs/d29", "$defs": chain})), Some(EmbeddedSchemaRefusal::TooLarge));
        // Subschemas of members and items apply to other values, so their costs add up and do not multiply.
        let nested_schema =
            (0..20).fold(json!({}), |inner, _| json!({"properties": {"a": inner}, "unevaluatedProperties": false}));
        assert_eq!(refusal(nested_schema), None);
    }
}
