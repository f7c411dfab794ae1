//! The JSON Schemas of the asset kinds, each compiled once, and the compilation of any other schema.

use super::{
    linear_pattern::{MAX_COMPILED_PATTERN_BYTES, MAX_MATCH_CACHE_BYTES},
    published_schema::PublishedSchema,
};
use crate::asset::kind::AssetKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    sync::{LazyLock, OnceLock},
};

/// The compiled schemas, each built at its first use. If the schema of a kind did not compile, all content of that
/// kind would be refused; a test checks that all compile.
static COMPILED_SCHEMAS: LazyLock<BTreeMap<AssetKind, OnceLock<Option<PublishedSchema>>>> =
    LazyLock::new(|| AssetKind::ALL.into_iter().map(|kind| (kind, OnceLock::new())).collect());

/// The published JSON Schema (2020-12) of an asset kind, as text.
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

pub(super) fn compiled_schema(kind: AssetKind) -> Option<&'static PublishedSchema> {
    COMPILED_SCHEMAS.get(&kind)?.get_or_init(|| PublishedSchema::compile(schema_text(kind))).as_ref()
}

/// The JSON Schema of an asset kind, as a JSON value.
#[must_use]
pub fn schema_value(kind: AssetKind) -> Option<&'static Value> {
    compiled_schema(kind).map(PublishedSchema::value)
}

/// Compiles a schema without network requests. Its patterns run in linear time and bounded memory.
pub(crate) fn compile(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .with_pattern_options(
            PatternOptions::regex().size_limit(MAX_COMPILED_PATTERN_BYTES).dfa_size_limit(MAX_MATCH_CACHE_BYTES),
        )
        .build(schema)
}
