//! The tools that Fairway offers to agents: three built-in tools, and one tool for each workload with an input
//! form. A tool call requires the same permissions as the corresponding HTTP route.

mod manifest;
mod tool_call;

pub use manifest::{ToolDescription, describe_workload_tool, workload_slug_of_tool_name};
pub use tool_call::{EvidenceFormat, OfferedToolCall};

use crate::asset::content::{ContentProblem, PublishedSchema};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// One of the three tools that Fairway offers in every tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuiltinTool {
    /// Runs a workload.
    ExecuteFlow,
    /// Searches a knowledge base.
    QueryKnowledgeBase,
    /// Reads the evidence of a run.
    InspectEvidence,
}

/// The effect of a tool call on the state of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SideEffect {
    /// The tool only reads data.
    ReadOnly,
    /// The tool starts a run, which can have any effect.
    StartsRun,
}

impl BuiltinTool {
    /// Every built-in tool, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::ExecuteFlow, Self::QueryKnowledgeBase, Self::InspectEvidence];

    /// The name by which agents call the tool, such as `execute_flow`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExecuteFlow => "execute_flow",
            Self::QueryKnowledgeBase => "query_knowledge_base",
            Self::InspectEvidence => "inspect_evidence",
        }
    }

    /// Parses the name of a built-in tool; `None` for any other text.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.as_str() == name)
    }

    /// The effect of the tool on the state of the system.
    #[must_use]
    pub const fn effect(self) -> SideEffect {
        match self {
            Self::ExecuteFlow => SideEffect::StartsRun,
            Self::QueryKnowledgeBase | Self::InspectEvidence => SideEffect::ReadOnly,
        }
    }

    /// The published JSON Schema (2020-12) of the tool's arguments.
    #[must_use]
    pub fn input_schema(self) -> &'static Value {
        self.schema().map_or(&Value::Null, PublishedSchema::value)
    }

    /// The problems that make the arguments violate the tool's schema, with JSON pointers into the arguments; empty for
    /// valid arguments.
    #[must_use]
    pub fn find_problems(self, arguments: &Map<String, Value>) -> Vec<ContentProblem> {
        match self.schema() {
            Some(schema) => schema.find_problems(&Value::Object(arguments.clone())),
            // This cannot happen: a test shows that every schema compiles.
            None => vec![ContentProblem::new("", "schema_unreadable", "the schema of this tool cannot be read")],
        }
    }

    fn schema(self) -> Option<&'static PublishedSchema> {
        let schema = match self {
            Self::ExecuteFlow => &EXECUTE_FLOW,
            Self::QueryKnowledgeBase => &QUERY_KNOWLEDGE_BASE,
            Self::InspectEvidence => &INSPECT_EVIDENCE,
        };
        schema.as_ref()
    }
}

/// The compiled argument schema of a tool; `None` if it does not compile.
type CompiledSchema = Option<PublishedSchema>;

static EXECUTE_FLOW: LazyLock<CompiledSchema> =
    LazyLock::new(|| PublishedSchema::compile(include_str!("offered_tool/schemas/execute_flow.json")));
static QUERY_KNOWLEDGE_BASE: LazyLock<CompiledSchema> =
    LazyLock::new(|| PublishedSchema::compile(include_str!("offered_tool/schemas/query_knowledge_base.json")));
static INSPECT_EVIDENCE: LazyLock<CompiledSchema> =
    LazyLock::new(|| PublishedSchema::compile(include_str!("offered_tool/schemas/inspect_evidence.json")));

#[cfg(test)]
mod tests;
