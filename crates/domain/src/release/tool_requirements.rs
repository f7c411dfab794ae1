//! The requirements on the tools of the flow's agents. Each tool must be bound and callable.

use super::activate::{UnmetRequirement, unmet};
use crate::flow::ToolChoice;

/// A bound tool, and whether this server can call it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToolStatus {
    /// The slug of the tool's asset.
    pub slug: String,
    /// The name by which models call the tool.
    pub name: String,
    /// Whether this server can call a tool of this kind.
    pub is_available: bool,
}

/// The requirements on the tools of these agents that the release does not meet.
pub(super) fn unmet_tool_requirements(agents: &[ToolChoice], bound: &[ToolStatus]) -> Vec<UnmetRequirement> {
    let mut requirements = Vec::new();
    for name in agents.iter().flat_map(tool_names) {
        if !bound.iter().any(|tool| matches_name(tool, name)) {
            let message = format!("an agent uses the tool `{name}`, which is not bound");
            requirements.push(unmet("references", "reference_unresolved", message));
        }
    }
    let is_used = |tool: &ToolStatus| {
        agents.iter().any(|choice| match choice {
            ToolChoice::All => true,
            ToolChoice::Named(names) => names.iter().any(|name| matches_name(tool, name)),
        })
    };
    for (index, tool) in bound.iter().enumerate().filter(|(_, tool)| is_used(tool)) {
        if !tool.is_available {
            let message = format!("this server cannot call the tool `{}`", tool.slug);
            requirements.push(unmet("flow", "step_type_unavailable", message));
        }
        // Two used tools with the same name would make a model's call ambiguous.
        if bound.iter().take(index).any(|other| other.name == tool.name && is_used(other)) {
            let message = format!("two bound tools have the name `{}`", tool.name);
            requirements.push(unmet("references", "reference_unresolved", message));
        }
    }
    requirements.dedup();
    requirements
}

fn tool_names(choice: &ToolChoice) -> &[String] {
    match choice {
        ToolChoice::All => &[],
        ToolChoice::Named(names) => names,
    }
}

fn matches_name(tool: &ToolStatus, name: &str) -> bool {
    tool.name == name || tool.slug == name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(slug: &str, name: &str, is_available: bool) -> ToolStatus {
        ToolStatus { slug: slug.to_owned(), name: name.to_owned(), is_available }
    }

    fn codes(agents: &[ToolChoice], bound: &[ToolStatus]) -> Vec<&'static str> {
        unmet_tool_requirements(agents, bound).into_iter().map(|requirement| requirement.code).collect()
    }

    #[test]
    fn requires_named_tools_to_be_bound_once_and_callable() {
        let names = |names: &[&str]| ToolChoice::Named(names.iter().map(|name| (*name).to_owned()).collect());
        let bound = [tool("weather-tool", "weather", true), tool("remote", "remote_tool", false)];
        for (agents, expected) in [
            (vec![], vec![]),
            (vec![names(&["weather"])], vec![]),
            (vec![names(&["weather-tool"])], vec![]),
            (vec![names(&["stocks"])], vec!["reference_unresolved"]),
            (vec![names(&["remote"])], vec!["step_type_unavailable"]),
            (vec![ToolChoice::All], vec!["step_type_unavailable"]),
            (vec![names(&[])], vec![]),
        ] {
            assert_eq!(codes(&agents, &bound), expected, "{agents:?}");
        }
        let twice = [tool("one", "weather", true), tool("two", "weather", true)];
        assert_eq!(codes(&[ToolChoice::All], &twice), ["reference_unresolved"]);
        assert_eq!(codes(&[names(&["one"])], &twice), Vec::<&str>::new());
    }
}
