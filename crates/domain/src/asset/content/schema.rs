//! JSON Schemas of the kinds, compiled once, and the conversion of validator errors to problems.

use super::{
    ContentProblem,
    published_schema::PublishedSchema,
    schema_walk::{self, VisitFlow, member_pointer},
};
use crate::asset::kind::AssetKind;
use jsonschema::{
    Draft, PatternOptions, ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use regex::{Regex, RegexBuilder};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{LazyLock, OnceLock},
};

/// Maximum number of problems reported at once.
pub(super) const MAX_PROBLEMS: usize = 100;
/// Number of entries above which an oversized list or map is reported as one problem, without problems of its
/// entries.
const OVERSIZED_FROM: usize = 1_000;
/// Maximum number of permitted values that a message lists, and their maximum total length in bytes.
const MAX_LISTED_VALUES: usize = 10;
const MAX_LISTED_BYTES: usize = 300;
const TOO_LONG: &str = "the length is above the bound of the schema";
const TOO_SHORT: &str = "the length is below the bound of the schema";
/// Memory limits of one compiled pattern and of its match cache, in bytes. A full cache is cleared, so a smaller
/// cache costs time but never changes a result.
pub(crate) const MAX_COMPILED_PATTERN_BYTES: usize = 256 << 10;
pub(crate) const PATTERN_CACHE_BYTES: usize = 256 << 10;
/// Maximum memory of a compiled pattern with its match cache, in bytes.
pub(crate) const MAX_PATTERN_MEMORY_BYTES: u64 = (MAX_COMPILED_PATTERN_BYTES + PATTERN_CACHE_BYTES) as u64;

/// Maximum memory of a guardrail's search pattern, in bytes. Its states are stored twice, because a second copy
/// counts the steps of a search.
pub(crate) const MAX_GUARDRAIL_PATTERN_BYTES: usize = 2 * MAX_COMPILED_PATTERN_BYTES + PATTERN_CACHE_BYTES;

/// Compiled schemas, each built at its first use. A kind whose schema does not compile refuses all content; a test
/// checks that every schema compiles.
static COMPILED_SCHEMAS: LazyLock<BTreeMap<AssetKind, OnceLock<Option<PublishedSchema>>>> =
    LazyLock::new(|| AssetKind::ALL.into_iter().map(|kind| (kind, OnceLock::new())).collect());

/// The JSON Schema (2020-12) of a kind, as published.
#[must_use]
pub const fn schema_text(kind: AssetKind) -> &'static str {
    match kind {
        AssetKind::PromptTemplate => include_str!("../schemas/prompt_template.json"),
        AssetKind::KnowledgeBase => include_str!("../schemas/knowledge_base.json"),
        AssetKind::ModelPolicy => include_str!("../schemas/model_policy.json"),
        AssetKind::ModelConfig => include_str!("../schemas/model_config.json"),
        AssetKind::PolicyBundle => include_str!("../schemas/policy_bundle.json"),
        AssetKind::ToolDefinition => include_str!("../schemas/tool_definition.json"),
        AssetKind::HookDefinition => include_str!("../schemas/hook_definition.json"),
        AssetKind::McpServer => include_str!("../schemas/mcp_server.json"),
        AssetKind::Skill => include_str!("../schemas/skill.json"),
        AssetKind::Agent => include_str!("../schemas/agent.json"),
        AssetKind::OrchestrationFlow => include_str!("../schemas/orchestration_flow.json"),
        AssetKind::Memory => include_str!("../schemas/memory.json"),
        AssetKind::EvaluationSuite => include_str!("../schemas/evaluation_suite.json"),
        AssetKind::GuardrailConfig => include_str!("../schemas/guardrail_config.json"),
        AssetKind::ConnectorDefinition => include_str!("../schemas/connector_definition.json"),
        AssetKind::SovereigntyProfile => include_str!("../schemas/sovereignty_profile.json"),
        AssetKind::WorkloadProfile => include_str!("../schemas/workload_profile.json"),
        AssetKind::SandboxProfile => include_str!("../schemas/sandbox_profile.json"),
        AssetKind::WorkloadHarness => include_str!("../schemas/workload_harness.json"),
    }
}

/// The compiled schema of a kind.
pub(super) fn compiled_schema(kind: AssetKind) -> Option<&'static PublishedSchema> {
    COMPILED_SCHEMAS.get(&kind)?.get_or_init(|| PublishedSchema::compile(schema_text(kind))).as_ref()
}

/// The schema of a kind as a JSON value.
#[must_use]
pub fn schema_value(kind: AssetKind) -> Option<&'static Value> {
    compiled_schema(kind).map(PublishedSchema::value)
}

/// Whether a text is a regular expression with linear time and bounded memory.
pub(super) fn is_linear_pattern(pattern: &str) -> bool {
    compile(&json!({ "pattern": pattern })).is_ok()
}

/// Compiles a pattern with linear time and bounded memory ([`MAX_PATTERN_MEMORY_BYTES`]); `None` if the pattern is
/// invalid or too large.
pub(crate) fn compile_linear_pattern(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern).size_limit(MAX_COMPILED_PATTERN_BYTES).dfa_size_limit(PATTERN_CACHE_BYTES).build().ok()
}

/// Compiles a schema without network requests. Its patterns take linear time and bounded memory.
pub(crate) fn compile(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .with_pattern_options(
            PatternOptions::regex().size_limit(MAX_COMPILED_PATTERN_BYTES).dfa_size_limit(PATTERN_CACHE_BYTES),
        )
        .build(schema)
}

/// Problems of lists and maps that exceed both their schema's limit and [`OVERSIZED_FROM`] entries. The caller skips
/// the validator for such content, because the validator would report each entry.
pub(super) fn oversized_collections(kind: AssetKind, content: &Value) -> Vec<ContentProblem> {
    let mut found = Vec::new();
    let Some(root) = schema_value(kind) else { return found };
    schema_walk::visit(root, content, &mut |visited| {
        let (count, bound) = match visited.value {
            Value::Array(items) => (items.len(), "maxItems"),
            Value::Object(members) => (members.len(), "maxProperties"),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return VisitFlow::Descend,
        };
        let limit = visited.resolved.get(bound).and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok());
        if count <= OVERSIZED_FROM || limit.is_none_or(|limit| count <= limit) {
            return VisitFlow::Descend;
        }
        if found.len() < MAX_PROBLEMS {
            found.push(ContentProblem::new(visited.pointer, "out_of_bounds", TOO_LONG));
        }
        VisitFlow::Skip
    });
    found
}

/// Whether a problem is a list, map or text that is longer than the schema allows.
pub(super) fn is_too_long(problem: &ContentProblem) -> bool {
    problem.message == TOO_LONG
}

/// Converts a validator error about a value below the JSON pointer `above`. The problems have messages of their own,
/// because the validator's messages contain values of the content.
pub(super) fn to_problems(error: &ValidationError<'_>, above: &str) -> Vec<ContentProblem> {
    let pointer = format!("{above}{}", error.instance_path());
    let member = |name: &str| member_pointer(&pointer, name);
    if let ValidationErrorKind::AdditionalProperties { unexpected } = error.kind() {
        let unknown = |name: &String| ContentProblem::new(member(name), "unknown_field", "unknown field");
        return unexpected.iter().take(MAX_PROBLEMS).map(unknown).collect();
    }
    if let ValidationErrorKind::Required { property } = error.kind() {
        let name = property.as_str().unwrap_or_default();
        return vec![ContentProblem::new(member(name), "missing_field", "this field is required")];
    }
    let (code, message) = match error.kind().keyword() {
        "type" => ("wrong_type", format!("expected {}", expected_type(error.kind()))),
        "enum" | "const" => ("not_one_of", listed_values(error.kind())),
        "pattern" | "format" | "propertyNames" => {
            ("wrong_form", "the text does not have the form that the schema requires".to_owned())
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
            ("out_of_bounds", "the number is outside the bounds of the schema".to_owned())
        }
        "maxLength" | "maxItems" | "maxProperties" => ("out_of_bounds", TOO_LONG.to_owned()),
        "minLength" | "minItems" | "minProperties" => ("out_of_bounds", TOO_SHORT.to_owned()),
        "uniqueItems" => ("duplicate_item", "the items must differ from one another".to_owned()),
        _ => ("schema_violation", "the value does not satisfy the schema".to_owned()),
    };
    vec![ContentProblem::new(pointer, code, message)]
}

/// The message for a value that is not among the permitted values of a schema. The message lists the permitted values
/// if they are few and short.
fn listed_values(kind: &ValidationErrorKind) -> String {
    let listed: Vec<&Value> = if let ValidationErrorKind::Enum { options } = kind {
        options.as_array().into_iter().flatten().collect()
    } else if let ValidationErrorKind::Constant { expected_value } = kind {
        vec![expected_value.as_ref()]
    } else {
        Vec::new()
    };
    let texts: Vec<String> =
        listed.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
    let length: usize = texts.iter().map(String::len).sum();
    if texts.is_empty() || texts.len() > MAX_LISTED_VALUES || length > MAX_LISTED_BYTES {
        return "the value is not one of the values that the schema lists".to_owned();
    }
    format!("the value is not one of those that the schema lists: {}", texts.join(", "))
}

fn expected_type(kind: &ValidationErrorKind) -> String {
    let ValidationErrorKind::Type { kind } = kind else { return "another type".to_owned() };
    match kind {
        TypeKind::Single(single) => single.to_string(),
        TypeKind::Multiple(several) => several.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or "),
    }
}
