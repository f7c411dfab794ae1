//! Evidence as a Mermaid flowchart.

use super::Graph;
use std::fmt::Write as _;

/// The text of a diagram. Writing into a string cannot fail.
pub(super) fn drawn(graph: &Graph) -> String {
    let mut text = "flowchart LR\n".to_owned();
    for (place, node) in graph.nodes.iter().enumerate() {
        let _ = writeln!(text, "  n{place}[\"{}<br/>{}\"]", escaped(&node.kind), escaped(&node.label));
    }
    for (from, to, relationship) in &graph.edges {
        let _ = writeln!(text, "  n{from} -->|\"{}\"| n{to}", escaped(relationship));
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
