//! Renders evidence as one HTML page with a diagram. The page loads no resources and executes no scripts, which its
//! Content-Security-Policy enforces. The template library maud escapes every text.

use super::{EdgeStyle, Graph, Node};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Dimensions of the diagram in SVG user units.
const BOX_WIDTH: usize = 190;
const BOX_HEIGHT: usize = 46;
const COLUMN_STEP: usize = 300;
const ROW_STEP: usize = 66;
const MARGIN: usize = 20;

/// Blocks every fetch, script and form submission; allows the page's inline styles.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color:#1c2733}svg{max-width:100%;height:auto;\
    border:1px solid #d5dde5;border-radius:8px}rect{fill:#f3f8fb;stroke:#0b7285;rx:6px}path{fill:none;stroke:#7a8b9a}.dashed{stroke-dasharray:4 3}\
    text{font:12px system-ui,sans-serif;fill:#1c2733}.kind,.edge{fill:#5b6b7a;font-size:10px}.edge{text-anchor:end}\
    h2{margin:2rem 0 .3rem;font-size:1.2rem}h3{margin:1.2rem 0 .2rem;font-size:1rem}.summary{margin-bottom:1.5rem}td,th{padding:.1rem .8rem .1rem 0;text-align:left;vertical-align:top;\
    overflow-wrap:anywhere}th{font-weight:500;color:#5b6b7a}";

pub(super) fn page(execution: &str, summary: &[(&'static str, Vec<String>)], graph: &Graph) -> String {
    let title = format!("Evidence of {execution}");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(CONTENT_SECURITY_POLICY);
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                table class="summary" {
                    @for (label, lines) in summary.iter().filter(|(_, lines)| !lines.is_empty()) {
                        tr { th scope="row" { (label) } td { @for line in lines { div { (line) } } } }
                    }
                }
                (diagram(&title, graph))
                h2 { "Records" }
                @for node in &graph.nodes { (node_table(node)) }
            }
        }
    };
    page.into_string()
}

fn node_table(node: &Node) -> Markup {
    html! {
        h3 { (in_words(&node.kind)) ": " (node.label) }
        table {
            @for (name, value) in &node.data { tr { th scope="row" { (in_words(name)) } td { (value) } } }
        }
    }
}

fn diagram(title: &str, graph: &Graph) -> Markup {
    let positions = layout(graph);
    let columns = positions.iter().map(|(column, _)| column + 1).max().unwrap_or(0);
    let rows = positions.iter().map(|(_, row)| row + 1).max().unwrap_or(0);
    let (width, height) =
        (2 * MARGIN + columns.saturating_sub(1) * COLUMN_STEP + BOX_WIDTH, 2 * MARGIN + rows * ROW_STEP);
    let corner = |(column, row): (usize, usize)| (MARGIN + column * COLUMN_STEP, MARGIN + row * ROW_STEP);
    html! {
        svg role="img" aria-label=(title) xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {height}")) width=(width) {
            @for edge in &graph.edges {
                @if let (Some(from), Some(to)) = (positions.get(edge.from), positions.get(edge.to)) {
                    @let ((left, from_top), (right, to_top)) = (corner(*from), corner(*to));
                    @let (x1, y1, x2, y2) = (left + BOX_WIDTH, from_top + BOX_HEIGHT / 2, right, to_top + BOX_HEIGHT / 2);
                    @let middle = (x1 + x2) / 2;
                    path class=[(edge.style == EdgeStyle::Dashed).then_some("dashed")] d=(format!("M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}")) {}
                    text class="edge" x=(x2 - 6) y=(y2 - 4) { (in_words(&edge.relationship)) }
                }
            }
            @for (node, position) in graph.nodes.iter().zip(&positions) {
                @let (x, y) = corner(*position);
                rect x=(x) y=(y) width=(BOX_WIDTH) height=(BOX_HEIGHT) {}
                text class="kind" x=(x + 10) y=(y + 17) { (in_words(&node.kind)) }
                text x=(x + 10) y=(y + 35) { (shorten(&node.label)) }
            }
        }
    }
}

/// Converts a name of the API such as `policy_decision` to words.
fn in_words(name: &str) -> String {
    name.replace('_', " ")
}

/// Shortens a label to the width of its box.
fn shorten(label: &str) -> String {
    if label.chars().count() <= 27 { label.to_owned() } else { label.chars().take(26).chain(['…']).collect() }
}

/// Column and row of each node. The column is the longest distance from a node without incoming edges.
fn layout(graph: &Graph) -> Vec<(usize, usize)> {
    let mut columns = vec![0_usize; graph.nodes.len()];
    // Each iteration extends the paths by one edge, and an acyclic path has fewer edges than the graph has nodes. The
    // bound terminates the loop if the graph has a cycle.
    for _ in 0..graph.nodes.len().min(16) {
        for edge in &graph.edges {
            let next_column = columns.get(edge.from).map_or(0, |column| column + 1);
            if let Some(column) = columns.get_mut(edge.to) {
                *column = next_column.max(*column).min(15);
            }
        }
    }
    let mut rows = [0_usize; 16];
    let mut assign_position = |column: usize| {
        let row = rows.get_mut(column).map_or(0, |row| {
            *row += 1;
            *row - 1
        });
        (column, row)
    };
    columns.into_iter().map(&mut assign_position).collect()
}
