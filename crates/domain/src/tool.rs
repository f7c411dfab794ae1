//! The tools that Fairway has for agents: three that are always there, and one for each workload with a form. Whoever calls
//! one does nothing that it could not do by the routes: a tool is another way in, never another right.

mod arguments;
mod manifest;

pub use arguments::{EvidenceForm, ToolCall};
pub use manifest::{ToolDescription, of_workload, workload_of};

use crate::asset::content::{ContentProblem, PublishedSchema};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// A tool that is always there. Source: specification, execution; contract, sections 5 and 12.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuiltIn {
    /// Runs a workload.
    ExecuteFlow,
    /// Looks something up in a knowledge base.
    QueryKnowledgeBase,
    /// Reads what stands behind a run.
    InspectEvidence,
}

/// What a tool does to the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It reads.
    Reads,
    /// It starts a run, whatever that does.
    Runs,
}

impl BuiltIn {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::ExecuteFlow, Self::QueryKnowledgeBase, Self::InspectEvidence];

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExecuteFlow => "execute_flow",
            Self::QueryKnowledgeBase => "query_knowledge_base",
            Self::InspectEvidence => "inspect_evidence",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.as_str() == name)
    }

    /// What it does to the world.
    #[must_use]
    pub const fn effect(self) -> Effect {
        match self {
            Self::ExecuteFlow => Effect::Runs,
            Self::QueryKnowledgeBase | Self::InspectEvidence => Effect::Reads,
        }
    }

    /// The JSON Schema (2020-12) of its arguments, as published.
    #[must_use]
    pub fn input_schema(self) -> &'static Value {
        self.schema().map_or(&Value::Null, PublishedSchema::value)
    }

    /// What is wrong with arguments, by the schema; empty where nothing is. Pointers begin at the arguments.
    #[must_use]
    pub fn problems(self, arguments: &Map<String, Value>) -> Vec<ContentProblem> {
        match self.schema() {
            Some(schema) => schema.problems(&Value::Object(arguments.clone())),
            // A test shows that all of them compile.
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

/// A schema; `None` where it does not compile.
type Schema = Option<PublishedSchema>;

static EXECUTE_FLOW: LazyLock<Schema> =
    LazyLock::new(|| PublishedSchema::of(include_str!("tool/schemas/execute_flow.json")));
static QUERY_KNOWLEDGE_BASE: LazyLock<Schema> =
    LazyLock::new(|| PublishedSchema::of(include_str!("tool/schemas/query_knowledge_base.json")));
static INSPECT_EVIDENCE: LazyLock<Schema> =
    LazyLock::new(|| PublishedSchema::of(include_str!("tool/schemas/inspect_evidence.json")));

#[cfg(test)]
mod tests;
