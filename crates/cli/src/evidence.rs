//! Shows the evidence for a run's answer as sections, a graph, a diagram or an HTML page.

mod documents;
mod html_page;
mod mermaid;
mod version_labels;

use crate::{
    command_context::CommandContext,
    execution::{ExecutionArgument, explain},
    failure::Failure,
    http_client::string_or_empty,
    output::{Output, print},
};
use clap::{Subcommand, ValueEnum};
use serde_json::Value;
use version_labels::VersionLabels;

/// The subcommands of `fairway evidence`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the governance chain of an execution
    #[command(
        after_help = "Examples:\n  fairway evidence graph latest\n  fairway evidence graph 019a... --format html > evidence.html"
    )]
    Graph {
        #[command(flatten)]
        execution: ExecutionArgument,
        /// The format: sections, nodes and edges, a Mermaid diagram, or an HTML page
        #[arg(long, value_enum, default_value_t = GraphFormat::Flat)]
        format: GraphFormat,
    },
    /// Write the signed evidence of an ended execution, which `fairway verify` checks
    #[command(after_help = "Example:\n  fairway evidence bundle 019a... > evidence.json")]
    Bundle(ExecutionArgument),
    /// List the documents that a run retrieved from knowledge bases
    #[command(after_help = "Example:\n  fairway evidence documents 019a...")]
    Documents(ExecutionArgument),
    /// Show the sources of each part of an answer
    #[command(after_help = "Example:\n  fairway evidence lineage 019a... --output json")]
    Lineage(ExecutionArgument),
}

/// The format of an evidence graph.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum GraphFormat {
    /// One section after another
    Flat,
    /// Nodes and edges
    Graph,
    /// A Mermaid flowchart
    Mermaid,
    /// A self-contained HTML page
    Html,
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        // A bundle must be canonical JSON. The server sends canonical JSON, and this serialization reproduces it.
        Command::Bundle(execution) => {
            let id = execution.find(&server)?;
            print(&server.get_when_covered_by_checkpoint(&["executions", &id, "evidence-bundle"])?.to_string())
        }
        Command::Documents(execution) => documents::show(&server, output, &execution.find(&server)?),
        Command::Lineage(execution) => {
            let id = execution.find(&server)?;
            let query = [("workspace_id", server.workspace_id()?)];
            output.record(&server.get(&["executions", &id, "context-lineage"], &query)?)
        }
        Command::Graph { execution, format } => {
            let id = execution.find(&server)?;
            let path = ["executions", id.as_str(), "evidence-graph"];
            let graph = || server.get(&path, &[("format", "graph")]).map(|graph| Graph::parse(&graph));
            let labelled_graph = |flat: &Value| {
                let mut graph = graph()?;
                graph.add_version_labels(&version_labels::read(&server, flat)?);
                Ok::<Graph, Failure>(graph)
            };
            match format {
                GraphFormat::Flat => print_sections(output, &server.get(&path, &[])?),
                GraphFormat::Graph => output.value(&server.get(&path, &[("format", "graph")])?),
                GraphFormat::Mermaid => print(mermaid::render(&labelled_graph(&server.get(&path, &[])?)?).trim_end()),
                GraphFormat::Html => {
                    let flat = server.get(&path, &[])?;
                    let summary = explain::summarize(&id, &flat, &server)?;
                    print(&html_page::page(&id, &summary, &labelled_graph(&flat)?))
                }
            }
        }
    }
}

/// Prints each section under its name.
fn print_sections(output: Output, flat: &Value) -> Result<(), Failure> {
    let (true, Value::Object(sections)) = (output.is_for_people(), flat) else { return output.record(flat) };
    for (name, section) in sections {
        print(&format!("# {}", crate::terminal_text::sanitize(name)))?;
        match section {
            Value::Array(items) if items.is_empty() => print("none")?,
            Value::Array(items) => {
                for item in items {
                    output.record(item)?;
                    print("")?;
                }
                continue;
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                output.record(section)?
            }
        }
        print("")?;
    }
    Ok(())
}

/// Evidence as nodes and edges.
#[derive(Debug)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
}

/// An edge between two nodes, which are given by their indexes in the graph.
#[derive(Debug)]
struct Edge {
    from: usize,
    to: usize,
    relationship: String,
    style: EdgeStyle,
}

/// The line style of an edge, by the origin of the relationship.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EdgeStyle {
    /// The relationship is part of the server's graph.
    Solid,
    /// The relationship is derived from node fields, because the server's graph has no edges
    /// between bindings and assets.
    Dashed,
}

#[derive(Debug)]
struct Node {
    kind: String,
    /// The display name.
    label: String,
    /// All known fields.
    data: Vec<(String, String)>,
}

impl Graph {
    /// Reads the server's response. Skips malformed nodes, and edges to unknown nodes.
    fn parse(response: &Value) -> Self {
        let list = |name: &str| response.get(name).and_then(Value::as_array).into_iter().flatten();
        let ids: Vec<&str> = list("nodes").map(|node| string_or_empty(node, "id")).collect();
        let nodes = list("nodes").map(Node::parse).collect();
        let node_index = |id: &str| ids.iter().position(|known| *known == id);
        let edge = |edge: &Value| {
            let (from, to) =
                (node_index(string_or_empty(edge, "source"))?, node_index(string_or_empty(edge, "target"))?);
            Some(Edge {
                from,
                to,
                relationship: string_or_empty(edge, "relationship").to_owned(),
                style: EdgeStyle::Solid,
            })
        };
        let mut graph = Self { nodes, edges: list("edges").filter_map(edge).collect() };
        graph.edges.extend(graph.binding_edges());
        graph
    }

    /// Replaces identifiers of versions in node labels by `SLUG LABEL`, and adds the version label
    /// to the node's fields.
    fn add_version_labels(&mut self, labels: &VersionLabels) {
        for node in &mut self.nodes {
            let Some(slug) = node.field("asset_slug").map(str::to_owned) else { continue };
            let mut found_labels = Vec::new();
            for (name, value) in &mut node.data {
                if !matches!(name.as_str(), "asset_version_id" | "asset_version_ids") {
                    continue;
                }
                let with_label = |id: &str| match labels.get(id) {
                    Some(label) => format!("{label} ({id})"),
                    None => id.to_owned(),
                };
                found_labels.extend(value.split(", ").filter_map(|id| labels.get(id).cloned()));
                *value = value.split(", ").map(with_label).collect::<Vec<_>>().join(", ");
            }
            if !found_labels.is_empty() && node.kind == "asset" {
                node.label = format!("{slug} {}", found_labels.join(", ")).chars().take(60).collect();
            }
        }
    }

    /// Derives an edge from each asset to each of its bindings.
    fn binding_edges(&self) -> Vec<Edge> {
        let nodes_of_kind =
            |kind: &'static str| self.nodes.iter().enumerate().filter(move |(_, node)| node.kind == kind);
        let asset_of = |binding: &Node| {
            let slug = binding.field("asset_slug")?;
            nodes_of_kind("asset").find(|(_, asset)| asset.field("asset_slug") == Some(slug)).map(|(index, _)| index)
        };
        let edge = |(to, binding): (usize, &Node)| {
            Some(Edge { from: asset_of(binding)?, to, relationship: "bound as".to_owned(), style: EdgeStyle::Dashed })
        };
        nodes_of_kind("binding").filter_map(edge).collect()
    }
}

/// The fields that provide a node's display name, in order of preference.
const LABEL_FIELDS: [&str; 10] = [
    "slug",
    "asset_slug",
    "obligation_name",
    "artifact_kind",
    "outcome",
    "approved_by",
    "environment",
    "status",
    "query_text",
    "role",
];

impl Node {
    fn parse(node: &Value) -> Self {
        let data = node.get("data").unwrap_or(&Value::Null);
        let kind = string_or_empty(node, "type").to_owned();
        // The label of a binding is its role, because bindings of one asset differ only in the role.
        let names = if kind == "binding" { &["role"] } else { LABEL_FIELDS.as_slice() };
        let label = names.iter().find_map(|name| data.get(*name)?.as_str());
        let to_text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let field_text = |value: &Value| match value.as_array() {
            Some(several) => several.iter().map(to_text).collect::<Vec<_>>().join(", "),
            None => to_text(value),
        };
        let members = data.as_object().into_iter().flatten();
        Self {
            kind,
            label: label.unwrap_or_else(|| string_or_empty(node, "id")).chars().take(60).collect(),
            data: members.map(|(name, value)| (name.clone(), field_text(value))).collect(),
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.data.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests;
