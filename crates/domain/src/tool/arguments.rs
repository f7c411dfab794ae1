//! Arguments of tool calls.

use super::BuiltinTool;
use crate::{
    asset::content::ContentProblem,
    id::{ExecutionId, WorkspaceId},
    slug::Slug,
};
use serde_json::{Map, Value};
use uuid::Uuid;

/// A tool call.
#[derive(Clone, PartialEq, Debug)]
pub enum ToolCall {
    /// Runs a workload by the tool of its own.
    Workload {
        /// Workload.
        workload: Slug,
        /// Environment whose active release runs.
        environment: Slug,
        /// Values of the workload's input form.
        inputs: Map<String, Value>,
    },
    /// Runs any workload, with or without an input form.
    ExecuteFlow {
        /// Workload.
        workload: Slug,
        /// Environment whose active release runs.
        environment: Slug,
        /// Field names and values.
        inputs: Map<String, Value>,
    },
    /// Searches a knowledge base.
    QueryKnowledgeBase {
        /// Knowledge base.
        knowledge_base: Slug,
        /// Query text.
        query: String,
        /// Maximum number of chunks, at most the knowledge base's own limit.
        top_k: Option<u32>,
        /// Workspace of the request; `None` uses the caller's home workspace.
        workspace: Option<WorkspaceId>,
    },
    /// Reads the evidence of a run.
    InspectEvidence {
        /// Run.
        execution: ExecutionId,
        /// Representation.
        format: EvidenceFormat,
    },
}

/// Representation of evidence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvidenceFormat {
    /// Sections.
    Flat,
    /// Nodes and edges.
    Graph,
}

impl ToolCall {
    /// Parses the arguments of a built-in tool.
    ///
    /// # Errors
    /// Returns every violation of the tool's schema, with pointers from the arguments.
    pub fn parse(tool: BuiltinTool, mut arguments: Map<String, Value>) -> Result<Self, Vec<ContentProblem>> {
        let problems = tool.find_problems(&arguments);
        if !problems.is_empty() {
            return Err(problems);
        }
        match tool {
            BuiltinTool::ExecuteFlow => Ok(Self::ExecuteFlow {
                workload: parse_slug(&arguments, "workload_slug")?,
                environment: parse_slug(&arguments, "environment")?,
                inputs: match arguments.remove("inputs") {
                    Some(Value::Object(inputs)) => inputs,
                    Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_))
                    | None => Map::new(),
                },
            }),
            BuiltinTool::QueryKnowledgeBase => Ok(Self::QueryKnowledgeBase {
                knowledge_base: parse_slug(&arguments, "knowledge_base_slug")?,
                query: text_argument(&arguments, "query").to_owned(),
                top_k: arguments.get("top_k").and_then(Value::as_u64).and_then(|limit| u32::try_from(limit).ok()),
                workspace: match arguments.get("workspace_id") {
                    Some(_) => Some(parse_id(&arguments, "workspace_id")?.into()),
                    None => None,
                },
            }),
            BuiltinTool::InspectEvidence => Ok(Self::InspectEvidence {
                execution: parse_id(&arguments, "execution_id")?.into(),
                format: if text_argument(&arguments, "format") == "graph" {
                    EvidenceFormat::Graph
                } else {
                    EvidenceFormat::Flat
                },
            }),
        }
    }
}

fn text_argument<'a>(arguments: &'a Map<String, Value>, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Parses a slug. A text that matches the schema's pattern may still be reserved.
fn parse_slug(arguments: &Map<String, Value>, name: &str) -> Result<Slug, Vec<ContentProblem>> {
    Slug::parse(text_argument(arguments, name))
        .map_err(|refusal| vec![ContentProblem::new(format!("/{name}"), refusal.code(), refusal.to_string())])
}

fn parse_id(arguments: &Map<String, Value>, name: &str) -> Result<Uuid, Vec<ContentProblem>> {
    Uuid::try_parse(text_argument(arguments, name))
        .map_err(|_| vec![ContentProblem::new(format!("/{name}"), "wrong_form", "expected an identifier")])
}
