//! Tool descriptions for agents.

use super::{BuiltinTool, SideEffect};
use crate::{slug::Slug, workload::Workload};
use serde_json::Value;

/// Prefix of the tool name of a workload.
const WORKLOAD_TOOL_PREFIX: &str = "run_";

/// Description of a tool for an agent.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolDescription {
    /// Name of the tool.
    pub name: String,
    /// Title for people.
    pub title: String,
    /// Description for models.
    pub description: String,
    /// JSON Schema (2020-12) of the arguments.
    pub input_schema: Value,
    /// Side effect.
    pub effect: SideEffect,
}

impl BuiltinTool {
    /// The description of the tool.
    #[must_use]
    pub fn description(self) -> ToolDescription {
        let (title, description) = match self {
            Self::ExecuteFlow => (
                "Run a workload",
                "Runs the active release of a governed workload with these inputs and returns its result. The \
                 workload's policy applies to the run, and the evidence of the result is recorded.",
            ),
            Self::QueryKnowledgeBase => (
                "Search a knowledge base",
                "Finds the chunks of a governed knowledge base that match a query, if its access contract permits \
                 retrieval. The audit log records the query.",
            ),
            Self::InspectEvidence => (
                "Inspect the evidence of a run",
                "Reads the evidence of a run: its release, bindings, policy decision, obligations, retrievals, \
                 artifacts and approvals.",
            ),
        };
        ToolDescription {
            name: self.as_str().to_owned(),
            title: title.to_owned(),
            description: description.to_owned(),
            input_schema: self.input_schema().clone(),
            effect: self.effect(),
        }
    }
}

/// The tool description of a workload; `None` without an input form. The arguments are the inputs of the form.
#[must_use]
pub fn describe_workload(workload: &Workload) -> Option<ToolDescription> {
    let interface = workload.interface_config.as_ref()?;
    let own = if interface.description().is_empty() { &workload.description } else { interface.description() };
    let description = if own.is_empty() { format!("Runs the workload {}.", workload.slug) } else { own.to_owned() };
    Some(ToolDescription {
        // Slugs contain no underscores, so the tool names of two workloads differ.
        name: format!("{WORKLOAD_TOOL_PREFIX}{}", workload.slug.as_str().replace('-', "_")),
        title: format!("{} ({})", workload.name, workload.slug),
        description,
        input_schema: interface.input_schema(),
        effect: SideEffect::StartsRun,
    })
}

/// The workload that a tool name refers to.
#[must_use]
pub fn parse_workload_tool(name: &str) -> Option<Slug> {
    let name = name.strip_prefix(WORKLOAD_TOOL_PREFIX).filter(|name| !name.contains('-'))?;
    Slug::parse(&name.replace('_', "-")).ok()
}
