//! The descriptions of tools that agents receive.

use super::{BuiltinTool, SideEffect};
use crate::{slug::Slug, workload::Workload};
use serde_json::Value;

/// The prefix of the names of workload tools.
const WORKLOAD_TOOL_PREFIX: &str = "run_";

/// The description of a tool that agents receive.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolDescription {
    /// The name by which agents call the tool.
    pub name: String,
    /// The title of the tool, for people.
    pub title: String,
    /// The description of the tool, for models.
    pub description: String,
    /// The JSON Schema (2020-12) of the tool's arguments.
    pub input_schema: Value,
    /// The effect of the tool on the state of the system.
    pub effect: SideEffect,
}

impl BuiltinTool {
    /// The description of the built-in tool that agents receive.
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

/// The description of a workload's own tool; `None` for a workload without an input form. The arguments of the tool are
/// the fields of the form.
#[must_use]
pub fn describe_workload_tool(workload: &Workload) -> Option<ToolDescription> {
    let interface = workload.interface_config.as_ref()?;
    let text = if interface.description().is_empty() { &workload.description } else { interface.description() };
    let description = if text.is_empty() { format!("Runs the workload {}.", workload.slug) } else { text.to_owned() };
    Some(ToolDescription {
        // Slugs contain no underscores, so the names of two workloads' tools are never equal.
        name: format!("{WORKLOAD_TOOL_PREFIX}{}", workload.slug.as_str().replace('-', "_")),
        title: format!("{} ({})", workload.name, workload.slug),
        description,
        input_schema: interface.input_schema(),
        effect: SideEffect::StartsRun,
    })
}

/// The slug of the workload whose tool has this name; `None` for any other name.
#[must_use]
pub fn workload_slug_of_tool_name(name: &str) -> Option<Slug> {
    let name = name.strip_prefix(WORKLOAD_TOOL_PREFIX).filter(|name| !name.contains('-'))?;
    Slug::parse(&name.replace('_', "-")).ok()
}
