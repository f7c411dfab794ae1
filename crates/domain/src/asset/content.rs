//! The validation of a version's content: first the JSON Schema of its kind, then rules that a schema cannot express.
//!
//! The validation also parses the content into types, so that later code does not interpret JSON again.

pub(super) mod content_walk;
pub mod embedded_schema;
mod fail_closed;
mod legacy_kind;
mod linear_pattern;
pub mod mcp_server;
pub mod model_policy;
mod oversized_collection;
pub(crate) mod pattern_weight;
mod problem;
mod published_schema;
mod recorded_fields;
mod rule;
mod schema;
mod sovereignty;
pub mod tool;
mod validator_problems;
mod warning;

use super::kind::AssetKind;
use crate::{
    flow::{Flow, FlowProblem},
    policy::CompiledPolicy,
    prompt::{PromptRefusal, PromptTemplate},
};
use serde_json::Value;
use std::collections::BTreeSet;

pub use fail_closed::{BindingPath, unenforced_controls};
pub(crate) use linear_pattern::{
    MAX_COMPILED_PATTERN_BYTES, MAX_GUARDRAIL_PATTERN_BYTES, MAX_MATCH_CACHE_BYTES, MAX_PATTERN_MEMORY_BYTES,
    compile_linear_pattern,
};
pub use model_policy::{ModelPolicy, Route};
pub use problem::ContentProblem;
pub(crate) use published_schema::PublishedSchema;
pub use recorded_fields::{RecordedField, recorded_fields};

pub use schema::{schema_text, schema_value};
pub use sovereignty::{SovereigntyProfile, has_jurisdiction_code_form};
pub use tool::Tool;
pub use warning::{ContentWarning, warnings};

/// The maximum number of values in the content of one version. Members and items at every depth count.
pub const MAX_VALUES: usize = 50_000;

/// Whether content of this kind can contain patterns or schemas, which a run plan compiles. Policy bundles have their
/// own estimate.
#[must_use]
pub const fn may_contain_patterns(kind: AssetKind) -> bool {
    matches!(kind, AssetKind::GuardrailConfig | AssetKind::ToolDefinition | AssetKind::PromptTemplate)
}

/// The estimated memory of the content's patterns and schemas after compilation, in bytes. The estimate compiles
/// nothing.
#[must_use]
pub fn estimate_compiled_bytes(kind: AssetKind, content: &Value) -> usize {
    let schema_bytes = |holder: &Value, names: &[&str]| {
        let schemas = names.iter().filter_map(|name| holder.get(name));
        schemas.map(embedded_schema::EmbeddedSchema::estimated_bytes).fold(0, usize::saturating_add)
    };
    if kind == AssetKind::GuardrailConfig {
        let guardrails = content.get("guardrails").and_then(Value::as_array).into_iter().flatten();
        let pattern_bytes =
            |guardrail: &Value| if guardrail.get("pattern").is_some() { MAX_GUARDRAIL_PATTERN_BYTES } else { 0 };
        return guardrails
            .map(|guardrail| pattern_bytes(guardrail).saturating_add(schema_bytes(guardrail, &["schema"])))
            .fold(0, usize::saturating_add);
    }
    if may_contain_patterns(kind) { schema_bytes(content, &["input_schema", "output_schema"]) } else { 0 }
}

/// The content of a version, parsed by its kind.
#[derive(Clone, PartialEq, Debug)]
pub enum CheckedContent {
    /// The content is a prompt template.
    PromptTemplate(PromptTemplate),
    /// The content is a model policy, or a legacy configuration that was converted to one.
    ModelPolicy(ModelPolicy),
    /// The content is a policy bundle, and its rules are compiled.
    PolicyBundle(CompiledPolicy),
    /// The content is a flow.
    Flow(Flow),
    /// The content is a sovereignty profile.
    Sovereignty(SovereigntyProfile),
    /// The content is a tool definition.
    Tool(Box<Tool>),
    /// The content has another kind, and its users read it as JSON.
    Untyped,
}

/// The reason why content is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ContentRefusal {
    /// The content has these problems.
    #[error("the content does not satisfy the schema or the rules of its kind")]
    Invalid(Vec<ContentProblem>),
    /// The prompt template contains a malformed token.
    #[error(transparent)]
    Prompt(PromptRefusal),
}

impl ContentRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid_content",
            Self::Prompt(refusal) => refusal.code(),
        }
    }
}

/// Checks and parses the content of a new version of this kind.
///
/// # Errors
/// Returns every problem with its JSON pointer; a malformed token of a prompt template is returned alone.
pub fn check(kind: AssetKind, content: &Value) -> Result<CheckedContent, ContentRefusal> {
    let problems = find_problems(kind, content);
    if !problems.is_empty() {
        return Err(ContentRefusal::Invalid(problems));
    }
    truncate_problems(read_new(kind, content))
}

/// Shortens the list of problems in a refusal, because the content of one version can have thousands.
fn truncate_problems(checked: Result<CheckedContent, ContentRefusal>) -> Result<CheckedContent, ContentRefusal> {
    checked.map_err(|refusal| match refusal {
        ContentRefusal::Invalid(mut problems) => {
            problems.truncate(problem::MAX_PROBLEMS);
            ContentRefusal::Invalid(problems)
        }
        ContentRefusal::Prompt(refusal) => ContentRefusal::Prompt(refusal),
    })
}

/// Parses the content of a new version. For a policy bundle, it also checks the rules that apply to new versions only.
fn read_new(kind: AssetKind, content: &Value) -> Result<CheckedContent, ContentRefusal> {
    let checked = parse_existing(kind, content);
    if kind == AssetKind::PolicyBundle {
        let problems = if let Ok(CheckedContent::PolicyBundle(policy)) = &checked {
            policy.new_version_problems(content)
        } else {
            // The parser stops at errors that prevent an evaluation. This check finds all errors in the rules of the
            // bundle.
            CompiledPolicy::rule_problems(content)
        };
        if !problems.is_empty() {
            return Err(ContentRefusal::Invalid(problems));
        }
    }
    checked
}

/// Parses the content of an existing version without the checks for new ones. The version passed the checks of its
/// creation time, and it is immutable. Therefore a server with stricter checks still runs active releases and rolls
/// back to earlier ones (specification: versioning).
///
/// # Errors
/// Returns an error when the content cannot be parsed as its kind.
pub fn parse_existing(kind: AssetKind, content: &Value) -> Result<CheckedContent, ContentRefusal> {
    match kind {
        AssetKind::PromptTemplate => {
            PromptTemplate::parse(content).map(CheckedContent::PromptTemplate).map_err(ContentRefusal::Prompt)
        }
        AssetKind::ModelPolicy => {
            ModelPolicy::parse(content).map(CheckedContent::ModelPolicy).map_err(ContentRefusal::Invalid)
        }
        AssetKind::ModelConfig => {
            legacy_kind::parse_model_config(content).map(CheckedContent::ModelPolicy).map_err(ContentRefusal::Invalid)
        }
        AssetKind::PolicyBundle => {
            CompiledPolicy::compile(content).map(CheckedContent::PolicyBundle).map_err(ContentRefusal::Invalid)
        }
        AssetKind::OrchestrationFlow => parse_flow(content).map(CheckedContent::Flow).map_err(ContentRefusal::Invalid),
        AssetKind::SovereigntyProfile => {
            SovereigntyProfile::parse(content).map(CheckedContent::Sovereignty).map_err(ContentRefusal::Invalid)
        }
        AssetKind::ToolDefinition => {
            Tool::parse(content).map(|tool| CheckedContent::Tool(Box::new(tool))).map_err(ContentRefusal::Invalid)
        }
        AssetKind::KnowledgeBase
        | AssetKind::HookDefinition
        | AssetKind::McpServer
        | AssetKind::Skill
        | AssetKind::Agent
        | AssetKind::Memory
        | AssetKind::EvaluationSuite
        | AssetKind::GuardrailConfig
        | AssetKind::ConnectorDefinition
        | AssetKind::WorkloadProfile
        | AssetKind::SandboxProfile
        | AssetKind::WorkloadHarness => Ok(CheckedContent::Untyped),
    }
}

fn parse_flow(content: &Value) -> Result<Flow, Vec<ContentProblem>> {
    let to_problem = |problem: FlowProblem| {
        ContentProblem::new(problem.pointer, problem.code, problem.message)
            .with_valid_names(problem.valid_names.iter().copied())
    };
    Flow::from_content(content).map_err(|problems| problems.into_iter().map(to_problem).collect())
}

/// The problems that the schema and the rules find, without duplicates.
fn find_problems(kind: AssetKind, content: &Value) -> Vec<ContentProblem> {
    if exceeds_value_limit(content, MAX_VALUES) {
        return vec![ContentProblem::new("", "too_many_values", "the content has more than 50,000 values")];
    }
    let Some(published) = schema::compiled_schema(kind) else {
        return vec![ContentProblem::new("", "invalid_content", "the schema of this kind does not compile")];
    };
    // The validator would visit and report every entry of an oversized list or map, so their sizes are checked first.
    let oversized = oversized_collection::oversized_collections(kind, content);
    if !oversized.is_empty() {
        return oversized;
    }
    let mut problems = published.find_problems(content);
    // A full list of problems needs no further ones. It may also lack the report of an oversized value, whose patterns
    // the rules would then compile.
    if problems.len() >= problem::MAX_PROBLEMS {
        return problems;
    }
    let refused_pointers: BTreeSet<String> = problems.iter().map(|problem| problem.pointer.clone()).collect();
    // Content above a size bound is refused in any case, so its patterns are not compiled. That could take seconds.
    let is_within_bounds = !problems.iter().any(validator_problems::reports_excess_length);
    let mut violations = rule::find_violations(kind, content, is_within_bounds);
    // Refused content is not parsed later. Therefore the parsers run here, so that the refusal contains their problems
    // too.
    let is_refused = !problems.is_empty() || !violations.is_empty();
    if is_refused && is_within_bounds && kind == AssetKind::PolicyBundle {
        violations.extend(CompiledPolicy::rule_problems(content));
    } else if is_refused && kind == AssetKind::OrchestrationFlow {
        violations.extend(parse_flow(content).err().unwrap_or_default());
    }
    // A problem of the schema hides the problems of rules at the same pointer.
    let mut reported = BTreeSet::new();
    violations.retain(|problem| {
        !refused_pointers.contains(&problem.pointer) && reported.insert((problem.pointer.clone(), problem.code))
    });
    problems.extend(violations);
    problems.truncate(problem::MAX_PROBLEMS);
    problems
}

/// Whether the content has more than `limit` values. The count stops at the limit.
fn exceeds_value_limit(content: &Value, limit: usize) -> bool {
    let mut pending = vec![content];
    let mut visited_count = 0_usize;
    while let Some(value) = pending.pop() {
        visited_count += 1;
        if visited_count + pending.len() > limit {
            return true;
        }
        match value {
            Value::Object(members) => pending.extend(members.values()),
            Value::Array(items) => pending.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
