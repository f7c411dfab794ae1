//! A call of an offered tool, with its parsed arguments.

use super::BuiltinTool;
use crate::{
    asset::content::ContentProblem,
    id::{ExecutionId, WorkspaceId},
    slug::Slug,
};
use serde_json::{Map, Value};
use uuid::Uuid;

/// A call of one of Fairway's tools.
#[derive(Clone, PartialEq, Debug)]
pub enum OfferedToolCall {
    /// Runs a workload through the workload's own tool.
    Workload {
        /// The slug of the workload to run, from the name of the tool.
        workload: Slug,
        /// The environment whose active release serves the run.
        environment: Slug,
        /// The values of the fields in the workload's input form.
        inputs: Map<String, Value>,
    },
    /// Runs a workload through the built-in tool, which does not require an input form.
    ExecuteFlow {
        /// The slug of the workload to run.
        workload: Slug,
        /// The environment whose active release serves the run.
        environment: Slug,
        /// The inputs of the run, by name.
        inputs: Map<String, Value>,
    },
    /// Searches a knowledge base.
    QueryKnowledgeBase {
        /// The slug of the knowledge base to search.
        knowledge_base: Slug,
        /// The text of the query.
        query: String,
        /// The maximum number of chunks; the knowledge base's own limit applies too.
        top_k: Option<u32>,
        /// The workspace from which the query comes; `None` selects the workspace that the caller's roles determine.
        workspace: Option<WorkspaceId>,
    },
    /// Reads the evidence of a run.
    InspectEvidence {
        /// The identifier of the run.
        execution: ExecutionId,
        /// The form of the evidence in the response.
        format: EvidenceFormat,
    },
}

/// The form of evidence in the response of a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvidenceFormat {
    /// Sections, such as decisions and steps.
    Flat,
    /// A graph of nodes and edges.
    Graph,
}

impl OfferedToolCall {
    /// Parses the arguments of a built-in tool.
    ///
    /// # Errors
    /// Returns every violation of the tool's schema, with JSON pointers into the arguments.
    pub fn parse_builtin(tool: BuiltinTool, mut arguments: Map<String, Value>) -> Result<Self, Vec<ContentProblem>> {
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

/// Parses a slug. The schema has already checked its form, but the slug may still be reserved.
fn parse_slug(arguments: &Map<String, Value>, name: &str) -> Result<Slug, Vec<ContentProblem>> {
    Slug::parse(text_argument(arguments, name))
        .map_err(|refusal| vec![ContentProblem::new(format!("/{name}"), refusal.code(), refusal.to_string())])
}

fn parse_id(arguments: &Map<String, Value>, name: &str) -> Result<Uuid, Vec<ContentProblem>> {
    Uuid::try_parse(text_argument(arguments, name))
        .map_err(|_| vec![ContentProblem::new(format!("/{name}"), "wrong_form", "expected an identifier")])
}
