//! What agents are told of tools.

use super::{BuiltIn, Effect};
use crate::{slug::Slug, workload::Workload};
use serde_json::Value;

/// What stands in front of a workload's slug in the name of its tool.
const PREFIX: &str = "run_";

/// What an agent is told of a tool.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolDescription {
    /// By which it is called.
    pub name: String,
    /// For people.
    pub title: String,
    /// For models.
    pub description: String,
    /// The JSON Schema (2020-12) of its arguments.
    pub input_schema: Value,
    /// What it does to the world.
    pub effect: Effect,
}

impl BuiltIn {
    /// What an agent is told of it.
    #[must_use]
    pub fn description(self) -> ToolDescription {
        let (title, description) = match self {
            Self::ExecuteFlow => (
                "Run a workload",
                "Runs the active release of a governed workload with these inputs and answers with its result. The run is \
                 subject to the workload's policy, and all that stands behind its answer is kept as evidence.",
            ),
            Self::QueryKnowledgeBase => (
                "Search a knowledge base",
                "Finds the pieces of a governed knowledge base that fit a query, where its access contract allows you to \
                 retrieve them. That it was read is written into the audit log.",
            ),
            Self::InspectEvidence => (
                "Inspect the evidence of a run",
                "Reads what stands behind a run: its release, bindings, policy decision, obligations, retrievals, artifacts \
                 and approvals.",
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

/// What an agent is told of the tool that a workload is; `None` of one without a form. What it is called with are the inputs
/// of the form.
#[must_use]
pub fn of_workload(workload: &Workload) -> Option<ToolDescription> {
    let interface = workload.interface_config.as_ref()?;
    let said = if interface.description().is_empty() { &workload.description } else { interface.description() };
    let description = if said.is_empty() { format!("Runs the workload {}.", workload.slug) } else { said.to_owned() };
    Some(ToolDescription {
        // A slug has no underscores, so two workloads never share a name.
        name: format!("{PREFIX}{}", workload.slug.as_str().replace('-', "_")),
        title: format!("{} ({})", workload.name, workload.slug),
        description,
        input_schema: interface.input_schema(),
        effect: Effect::Runs,
    })
}

/// The workload that a tool of this name would be.
#[must_use]
pub fn workload_of(name: &str) -> Option<Slug> {
    let name = name.strip_prefix(PREFIX).filter(|name| !name.contains('-'))?;
    Slug::parse(&name.replace('_', "-")).ok()
}
