//! The JSON Schemas of the kinds, compiled once, and their verdicts as problems.

use super::ContentProblem;
use crate::asset::kind::AssetKind;
use jsonschema::{
    Draft, PatternOptions, ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;
use std::{collections::BTreeMap, sync::LazyLock};

/// Most problems reported at once.
const MAX_PROBLEMS: usize = 100;
/// Bounds of one compiled pattern, in bytes.
const PATTERN_SIZE: usize = 256 << 10;
const PATTERN_CACHE: usize = 1 << 20;

/// The kinds that have a schema, with its text.
const SCHEMAS: [(AssetKind, &str); 4] = [
    (AssetKind::PromptTemplate, include_str!("../schemas/prompt_template.json")),
    (AssetKind::ModelPolicy, include_str!("../schemas/model_policy.json")),
    (AssetKind::PolicyBundle, include_str!("../schemas/policy_bundle.json")),
    (AssetKind::OrchestrationFlow, include_str!("../schemas/orchestration_flow.json")),
];

/// A schema that does not compile is left out, so that its kind refuses everything; a test shows that none is.
static COMPILED: LazyLock<BTreeMap<AssetKind, (Value, Validator)>> = LazyLock::new(|| {
    let compiled = |(kind, text): &(AssetKind, &str)| {
        let schema: Value = serde_json::from_str(text).ok()?;
        let validator = compile(&schema).ok()?;
        Some((*kind, (schema, validator)))
    };
    SCHEMAS.iter().filter_map(compiled).collect()
});

/// The JSON Schema (2020-12) of a kind, as published; `None` for a kind that has none yet.
#[must_use]
pub fn schema(kind: AssetKind) -> Option<&'static str> {
    SCHEMAS.iter().find(|(other, _)| *other == kind).map(|(_, text)| *text)
}

pub(super) fn validator(kind: AssetKind) -> Option<&'static Validator> {
    COMPILED.get(&kind).map(|(_, validator)| validator)
}

/// The schema of a kind as a value.
pub(in crate::asset) fn parsed(kind: AssetKind) -> Option<&'static Value> {
    COMPILED.get(&kind).map(|(schema, _)| schema)
}

/// Compiles a schema: nothing is fetched, and patterns take linear time and bounded memory.
pub(super) fn compile(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_SIZE).dfa_size_limit(PATTERN_CACHE))
        .build(schema)
}

/// Everything in which `content` differs from the schema, in the order of the schema, at most a hundred things.
pub(super) fn problems(validator: &Validator, content: &Value) -> Vec<ContentProblem> {
    validator.iter_errors(content).flat_map(|error| stated(&error)).take(MAX_PROBLEMS).collect()
}

/// One verdict in our words: the validator's own messages repeat values of the content.
fn stated(error: &ValidationError<'_>) -> Vec<ContentProblem> {
    let pointer = error.instance_path().to_string();
    let member = |name: &str| format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
    if let ValidationErrorKind::AdditionalProperties { unexpected } = error.kind() {
        let unknown = |name: &String| {
            ContentProblem::new(member(name), "unknown_field", "this kind of asset has no such field here")
        };
        return unexpected.iter().map(unknown).collect();
    }
    if let ValidationErrorKind::Required { property } = error.kind() {
        let name = property.as_str().unwrap_or_default();
        return vec![ContentProblem::new(member(name), "missing_field", "this field is required")];
    }
    let (code, message) = match error.kind().keyword() {
        "type" => ("wrong_type", format!("expected {}", expected_type(error.kind()))),
        "enum" | "const" => ("not_one_of", "the value is not one of those that the schema lists".to_owned()),
        "pattern" | "format" | "propertyNames" => {
            ("wrong_form", "the text does not have the form that the schema asks for".to_owned())
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
            ("out_of_bounds", "the number is outside the bounds that the schema gives".to_owned())
        }
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            ("out_of_bounds", "the length is outside the bounds that the schema gives".to_owned())
        }
        "uniqueItems" => ("duplicate_item", "the items must differ from one another".to_owned()),
        _ => ("schema_violation", "the value does not satisfy the schema".to_owned()),
    };
    vec![ContentProblem::new(pointer, code, message)]
}

fn expected_type(kind: &ValidationErrorKind) -> String {
    let ValidationErrorKind::Type { kind } = kind else { return "another type".to_owned() };
    match kind {
        TypeKind::Single(single) => single.to_string(),
        TypeKind::Multiple(several) => several.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or "),
    }
}
