//! What a tool is called with, read.

use super::BuiltIn;
use crate::{
    asset::content::ContentProblem,
    id::{ExecutionId, WorkspaceId},
    slug::Slug,
};
use serde_json::{Map, Value};
use uuid::Uuid;

/// A call of a tool.
#[derive(Clone, PartialEq, Debug)]
pub enum ToolCall {
    /// Runs a workload by the tool that it is.
    Workload {
        /// Which.
        workload: Slug,
        /// The environment whose active release runs.
        environment: Slug,
        /// What its form asks for: the arguments of the call.
        inputs: Map<String, Value>,
    },
    /// Runs a workload, whether it is a tool or not.
    ExecuteFlow {
        /// Which.
        workload: Slug,
        /// The environment whose active release runs.
        environment: Slug,
        /// Field names and values.
        inputs: Map<String, Value>,
    },
    /// Looks something up in a knowledge base.
    QueryKnowledgeBase {
        /// Which.
        base: Slug,
        /// What to look for.
        query: String,
        /// Most pieces, where fewer are wanted than the knowledge base gives.
        top_k: Option<u32>,
        /// From which workspace; the caller's home where nothing is said.
        workspace: Option<WorkspaceId>,
    },
    /// Reads what stands behind a run.
    InspectEvidence {
        /// Which run.
        execution: ExecutionId,
        /// In which form.
        form: EvidenceForm,
    },
}

/// In which form evidence is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvidenceForm {
    /// As sections.
    Flat,
    /// As nodes and edges.
    Graph,
}

impl ToolCall {
    /// Reads the arguments of a tool that is always there.
    ///
    /// # Errors
    /// With everything that the tool's schema does not allow; pointers begin at the arguments.
    pub fn read(tool: BuiltIn, mut arguments: Map<String, Value>) -> Result<Self, Vec<ContentProblem>> {
        let problems = tool.problems(&arguments);
        if !problems.is_empty() {
            return Err(problems);
        }
        match tool {
            BuiltIn::ExecuteFlow => Ok(Self::ExecuteFlow {
                workload: slug(&arguments, "workload_slug")?,
                environment: slug(&arguments, "environment")?,
                inputs: match arguments.remove("inputs") {
                    Some(Value::Object(inputs)) => inputs,
                    Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_))
                    | None => Map::new(),
                },
            }),
            BuiltIn::QueryKnowledgeBase => Ok(Self::QueryKnowledgeBase {
                base: slug(&arguments, "knowledge_base_slug")?,
                query: text(&arguments, "query").to_owned(),
                top_k: arguments.get("top_k").and_then(Value::as_u64).and_then(|most| u32::try_from(most).ok()),
                workspace: match arguments.get("workspace_id") {
                    Some(_) => Some(identifier(&arguments, "workspace_id")?.into()),
                    None => None,
                },
            }),
            BuiltIn::InspectEvidence => Ok(Self::InspectEvidence {
                execution: identifier(&arguments, "execution_id")?.into(),
                form: if text(&arguments, "format") == "graph" { EvidenceForm::Graph } else { EvidenceForm::Flat },
            }),
        }
    }
}

fn text<'a>(arguments: &'a Map<String, Value>, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A name that the schema lets through may still be one that nothing can have.
fn slug(arguments: &Map<String, Value>, name: &str) -> Result<Slug, Vec<ContentProblem>> {
    Slug::parse(text(arguments, name))
        .map_err(|refusal| vec![ContentProblem::new(format!("/{name}"), refusal.code(), refusal.to_string())])
}

fn identifier(arguments: &Map<String, Value>, name: &str) -> Result<Uuid, Vec<ContentProblem>> {
    Uuid::try_parse(text(arguments, name))
        .map_err(|_| vec![ContentProblem::new(format!("/{name}"), "wrong_form", "expected an identifier")])
}
