//! Renders evidence as a Mermaid flowchart.

use super::{EdgeStyle, Graph};
use std::fmt::Write as _;

/// Renders the Mermaid source of a graph.
pub(super) fn render(graph: &Graph) -> String {
    let mut text = "flowchart LR\n".to_owned();
    for (index, node) in graph.nodes.iter().enumerate() {
        let _ = writeln!(text, "  n{index}[\"{}<br/>{}\"]", escape(&node.kind), escape(&node.label));
    }
    for edge in &graph.edges {
        let arrow = match edge.style {
            EdgeStyle::Solid => "-->",
            EdgeStyle::Dashed => "-.->",
        };
        let _ = writeln!(text, "  n{} {arrow}|\"{}\"| n{}", edge.from, escape(&edge.relationship), edge.to);
    }
    text
}

/// Encodes every character outside a safe set as a numeric entity, so that a text cannot end its label or begin markup.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if character.is_alphanumeric() || matches!(character, ' ' | '_' | '-' | '.' | '/' | '@' | ':') {
            escaped.push(character);
        } else {
            let _ = write!(escaped, "#{};", u32::from(character));
        }
    }
    escaped
}
