//! What stands in a version of an asset: the schema of its kind, then the rules that a schema cannot say.
//!
//! Checking parses: what comes out is typed and never needs to be looked at as JSON again.

pub mod embedded;
mod enforcement;
mod legacy;
pub mod mcp_server;
pub mod model_policy;
pub(crate) mod pattern;
pub(super) mod position;
mod problem;
mod promise;
mod published;
mod rule;
mod schema;
mod sovereignty;
pub mod tool;
mod warning;

use super::kind::AssetKind;
use crate::{
    flow::{Flow, FlowProblem},
    policy::CompiledPolicy,
    prompt::{PromptRefusal, PromptTemplate},
};
use serde_json::Value;
use std::collections::BTreeSet;

pub use enforcement::{RecordedField, recorded_only};
pub use model_policy::{ModelPolicy, Route};
pub use problem::ContentProblem;
pub use promise::{Reach, unenforced_promises};
pub(crate) use published::PublishedSchema;
pub(crate) use schema::{COUNTED_PATTERN_BYTES, PATTERN_BYTES, PATTERN_CACHE, PATTERN_SIZE, linear};

pub use schema::{parsed as schema_value, schema};
pub use sovereignty::{SovereigntyProfile, can_be_jurisdiction};
pub use tool::Tool;
pub use warning::{ContentWarning, warnings};

/// Most values in one content, members and items counted at every depth.
pub const MAX_VALUES: usize = 50_000;

/// Whether content of a kind may carry patterns or schemas that a run plan holds compiled, apart from a policy.
#[must_use]
pub const fn may_compile(kind: AssetKind) -> bool {
    matches!(kind, AssetKind::GuardrailConfig | AssetKind::ToolDefinition | AssetKind::PromptTemplate)
}

/// About as much memory as the patterns and schemas of content take once they are compiled, in bytes. Nothing is compiled
/// to know it.
#[must_use]
pub fn compiled_bytes(kind: AssetKind, content: &Value) -> usize {
    let schemas = |holder: &Value, names: &[&str]| {
        let schemas = names.iter().filter_map(|name| holder.get(name));
        schemas.map(embedded::EmbeddedSchema::estimated_bytes).fold(0, usize::saturating_add)
    };
    if kind == AssetKind::GuardrailConfig {
        let rails = content.get("guardrails").and_then(Value::as_array).into_iter().flatten();
        let pattern = |rail: &Value| if rail.get("pattern").is_some() { COUNTED_PATTERN_BYTES } else { 0 };
        return rails
            .map(|rail| pattern(rail).saturating_add(schemas(rail, &["schema"])))
            .fold(0, usize::saturating_add);
    }
    if may_compile(kind) { schemas(content, &["input_schema", "output_schema"]) } else { 0 }
}

/// Content as what it is.
#[derive(Clone, PartialEq, Debug)]
pub enum CheckedContent {
    /// A prompt template.
    PromptTemplate(PromptTemplate),
    /// A model policy, or a legacy configuration in its words.
    ModelPolicy(ModelPolicy),
    /// A policy bundle, compiled.
    PolicyBundle(CompiledPolicy),
    /// A flow.
    Flow(Flow),
    /// A sovereignty profile.
    Sovereignty(SovereigntyProfile),
    /// A tool.
    Tool(Box<Tool>),
    /// Any other kind: what reads it reads it as JSON.
    Plain,
}

/// Why content is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ContentRefusal {
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
            Self::Invalid(_) => "invalid_content",
            Self::Prompt(refusal) => refusal.code(),
        }
    }
}

/// Checks the content of a version of an asset of that kind, before it is made.
///
/// # Errors
/// With everything that is wrong, each with a JSON pointer; a malformed token of a prompt template on its own.
pub fn check(kind: AssetKind, content: &Value) -> Result<CheckedContent, ContentRefusal> {
    let problems = problems(kind, content);
    if !problems.is_empty() {
        return Err(ContentRefusal::Invalid(problems));
    }
    told(made(kind, content))
}

/// As much of a refusal as is told at once: one content can be wrong in thousands of places.
fn told(checked: Result<CheckedContent, ContentRefusal>) -> Result<CheckedContent, ContentRefusal> {
    checked.map_err(|refusal| match refusal {
        ContentRefusal::Invalid(mut problems) => {
            problems.truncate(schema::MAX_PROBLEMS);
            ContentRefusal::Invalid(problems)
        }
        ContentRefusal::Prompt(refusal) => ContentRefusal::Prompt(refusal),
    })
}

/// Reads content that is new.
fn made(kind: AssetKind, content: &Value) -> Result<CheckedContent, ContentRefusal> {
    let checked = read(kind, content);
    if kind == AssetKind::PolicyBundle {
        let problems = if let Ok(CheckedContent::PolicyBundle(policy)) = &checked {
            policy.problems_when_made(content)
        } else {
            // Its reader tells what cannot be run, and not what should not be made.
            CompiledPolicy::rule_problems(content)
        };
        if !problems.is_empty() {
            return Err(ContentRefusal::Invalid(problems));
        }
    }
    checked
}

/// Reads the content of a version that exists. It was judged when it was made, by the schema and the rules of that day,
/// and its policy's tests were run: a version does not change, so what was said of it stands. A server that has become
/// stricter since then still runs what is active, and still goes back to what was (spec: versioning).
///
/// # Errors
/// When it cannot be read as what it is.
pub fn read(kind: AssetKind, content: &Value) -> Result<CheckedContent, ContentRefusal> {
    match kind {
        AssetKind::PromptTemplate => {
            PromptTemplate::parse(content).map(CheckedContent::PromptTemplate).map_err(ContentRefusal::Prompt)
        }
        AssetKind::ModelPolicy => {
            ModelPolicy::parse(content).map(CheckedContent::ModelPolicy).map_err(ContentRefusal::Invalid)
        }
        AssetKind::ModelConfig => {
            legacy::policy(content).map(CheckedContent::ModelPolicy).map_err(ContentRefusal::Invalid)
        }
        AssetKind::PolicyBundle => {
            CompiledPolicy::compile(content).map(CheckedContent::PolicyBundle).map_err(ContentRefusal::Invalid)
        }
        AssetKind::OrchestrationFlow => flow(content).map(CheckedContent::Flow).map_err(ContentRefusal::Invalid),
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
        | AssetKind::WorkloadHarness => Ok(CheckedContent::Plain),
    }
}

fn flow(content: &Value) -> Result<Flow, Vec<ContentProblem>> {
    let stated = |problem: FlowProblem| ContentProblem::new(problem.pointer, problem.code, problem.message);
    Flow::from_content(content).map_err(|problems| problems.into_iter().map(stated).collect())
}

/// What schema and rules say against the content, each thing once.
fn problems(kind: AssetKind, content: &Value) -> Vec<ContentProblem> {
    if values_beyond(content, MAX_VALUES) {
        return vec![ContentProblem::new("", "too_many_values", "the content has more than 50 000 values")];
    }
    let Some(published) = schema::compiled(kind) else {
        return vec![ContentProblem::new("", "invalid_content", "nothing of this kind can be checked")];
    };
    // The validator would look at every entry of a list that is far too long, and tell of each.
    let crowded = schema::crowded(kind, content);
    if !crowded.is_empty() {
        return crowded;
    }
    let mut problems = published.problems(content);
    // A full list has no room for what compiled patterns and rules would add, and may lack the problem of a list that is too long.
    if problems.len() >= schema::MAX_PROBLEMS {
        return problems;
    }
    let refused: BTreeSet<String> = problems.iter().map(|problem| problem.pointer.clone()).collect();
    // Values that are too long are not compiled: it would take seconds, and the content is refused all the same.
    let is_within_bounds = !problems.iter().any(schema::is_too_long);
    let mut ruled = rule::problems(kind, content, is_within_bounds);
    // Readers speak when the content is read. Where it will not be, they are asked here, so that nobody hears of half.
    let unread = !problems.is_empty() || !ruled.is_empty();
    if unread && is_within_bounds && kind == AssetKind::PolicyBundle {
        ruled.extend(CompiledPolicy::rule_problems(content));
    } else if unread && kind == AssetKind::OrchestrationFlow {
        ruled.extend(flow(content).err().unwrap_or_default());
    }
    // Of what the schema has refused, nothing else need be said.
    let mut said = BTreeSet::new();
    ruled.retain(|problem| !refused.contains(&problem.pointer) && said.insert((problem.pointer.clone(), problem.code)));
    problems.extend(ruled);
    problems.truncate(schema::MAX_PROBLEMS);
    problems
}

/// Whether there are more than `most` values; looks no further than that.
fn values_beyond(content: &Value, most: usize) -> bool {
    let mut waiting = vec![content];
    let mut seen = 0_usize;
    while let Some(value) = waiting.pop() {
        seen += 1;
        if seen + waiting.len() > most {
            return true;
        }
        match value {
            Value::Object(members) => waiting.extend(members.values()),
            Value::Array(items) => waiting.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
