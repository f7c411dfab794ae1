//! What stands in a version of an asset: the schema of its kind, then the rules that a schema cannot say.
//!
//! Checking parses: what comes out is typed and never needs to be looked at as JSON again.

pub mod embedded;
mod enforcement;
pub mod model_policy;
pub(super) mod position;
mod problem;
mod schema;

use super::kind::AssetKind;
use crate::{
    flow::Flow,
    policy::CompiledPolicy,
    prompt::{PromptRefusal, PromptTemplate},
};
use embedded::EmbeddedSchema;
use serde_json::Value;
use std::collections::BTreeSet;

pub use enforcement::{RecordedField, recorded_only};
pub use model_policy::{ModelPolicy, Route};
pub use problem::ContentProblem;
pub(super) use schema::parsed as schema_value;
pub use schema::schema;

/// Content that passed every check of its kind.
#[derive(Clone, PartialEq, Debug)]
pub enum CheckedContent {
    /// A prompt template.
    PromptTemplate(PromptTemplate),
    /// A model policy.
    ModelPolicy(ModelPolicy),
    /// A policy bundle, compiled.
    PolicyBundle(CompiledPolicy),
    /// A flow.
    Flow(Flow),
}

/// Why content is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ContentRefusal {
    /// This build has no schema for the kind yet, so nothing of that kind can be created.
    #[error("assets of this kind cannot have versions yet")]
    SchemaUnavailable(AssetKind),
    /// Everything that is wrong with the content.
    #[error("the content does not satisfy the schema or the rules of its kind")]
    Invalid(Vec<ContentProblem>),
    /// A token of a prompt template is wrong.
    #[error(transparent)]
    Prompt(PromptRefusal),
}

impl ContentRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::SchemaUnavailable(_) => "schema_unavailable",
            Self::Invalid(_) => "invalid_content",
            Self::Prompt(refusal) => refusal.code(),
        }
    }
}

/// Checks the content of a version of an asset of that kind.
///
/// # Errors
/// With everything that is wrong, each with a JSON pointer; a malformed token of a prompt template on its own.
pub fn check(kind: AssetKind, content: &Value) -> Result<CheckedContent, ContentRefusal> {
    let validator = schema::validator(kind).ok_or(ContentRefusal::SchemaUnavailable(kind))?;
    let problems = schema::problems(validator, content);
    if !problems.is_empty() {
        return Err(ContentRefusal::Invalid(problems));
    }
    match kind {
        AssetKind::PromptTemplate => prompt_template(content),
        AssetKind::ModelPolicy => {
            ModelPolicy::parse(content).map(CheckedContent::ModelPolicy).map_err(ContentRefusal::Invalid)
        }
        AssetKind::PolicyBundle => {
            CompiledPolicy::compile(content).map(CheckedContent::PolicyBundle).map_err(ContentRefusal::Invalid)
        }
        AssetKind::OrchestrationFlow => Flow::from_content(content).map(CheckedContent::Flow).map_err(|problems| {
            let stated =
                |problem: crate::flow::FlowProblem| ContentProblem::new(problem.pointer, problem.code, problem.message);
            ContentRefusal::Invalid(problems.into_iter().map(stated).collect())
        }),
        AssetKind::KnowledgeBase
        | AssetKind::ModelConfig
        | AssetKind::ToolDefinition
        | AssetKind::HookDefinition
        | AssetKind::McpServer
        | AssetKind::Skill
        | AssetKind::Agent
        | AssetKind::Memory
        | AssetKind::EvaluationSuite
        | AssetKind::GuardrailConfig
        | AssetKind::ConnectorDefinition
        | AssetKind::SovereigntyProfile
        | AssetKind::WorkloadProfile
        | AssetKind::SandboxProfile
        | AssetKind::WorkloadHarness => Err(ContentRefusal::SchemaUnavailable(kind)),
    }
}

fn prompt_template(content: &Value) -> Result<CheckedContent, ContentRefusal> {
    let mut problems = repeated_names(content);
    if let Some(output) = content.get("output_schema")
        && let Err(refusal) = EmbeddedSchema::compile(output)
    {
        problems.push(ContentProblem::new("/output_schema", refusal.code(), refusal.to_string()));
    }
    if !problems.is_empty() {
        return Err(ContentRefusal::Invalid(problems));
    }
    PromptTemplate::parse(content).map(CheckedContent::PromptTemplate).map_err(ContentRefusal::Prompt)
}

fn repeated_names(content: &Value) -> Vec<ContentProblem> {
    let variables = content.get("variables").and_then(Value::as_array);
    let mut seen = BTreeSet::new();
    let names = variables.into_iter().flatten().filter_map(|variable| variable.get("name"));
    names
        .enumerate()
        .filter(|(_, name)| !seen.insert(name.as_str()))
        .map(|(index, _)| {
            let message = "another variable has this name";
            ContentProblem::new(format!("/variables/{index}/name"), "duplicate_name", message)
        })
        .collect()
}

#[cfg(test)]
mod tests;
