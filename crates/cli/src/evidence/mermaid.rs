//! Evidence as a Mermaid flowchart.

use super::{Graph, Line};
use std::fmt::Write as _;

/// The text of a diagram. Writing into a string cannot fail.
pub(super) fn drawn(graph: &Graph) -> String {
    let mut text = "flowchart LR\n".to_owned();
    for (place, node) in graph.nodes.iter().enumerate() {
        let _ = writeln!(text, "  n{place}[\"{}<br/>{}\"]", escaped(&node.kind), escaped(&node.label));
    }
    for edge in &graph.edges {
        let arrow = match edge.line {
            Line::Solid => "-->",
            Line::Dashed => "-.->",
        };
        let _ = writeln!(text, "  n{} {arrow}|\"{}\"| n{}", edge.from, escaped(&edge.relationship), edge.to);
    }
    text
}

/// Whatever is not plainly a letter, as the number of the character: nothing in it ends a label or begins an element.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if letter.is_alphanumeric() || matches!(letter, ' ' | '_' | '-' | '.' | '/' | '@' | ':') {
            escaped.push(letter);
        } else {
            let _ = write!(escaped, "#{};", u32::from(letter));
        }
    }
    escaped
}
