use super::*;
use serde_json::json;

fn graph() -> Graph {
    let hostile = "</text><script>alert(1)</script>\"]; click n0 \"javascript:x\"";
    Graph::parse(&json!({
        "format": "graph",
        "nodes": [
            { "id": "e", "type": "execution", "data": { "execution_id": "e", "status": "completed" } },
            { "id": "r", "type": "release", "data": { "environment": "dev" } },
            { "id": "a", "type": "asset", "data": {
                "asset_slug": "prompt", "asset_kind": "prompt_template", "asset_version_ids": ["v-1", "<v-2>"] } },
            { "id": "b", "type": "binding", "data": { "asset_slug": "prompt", "role": "prompt_template" } },
            { "id": "w", "type": "workload", "data": { "slug": hostile, "owner_ref": "team:<b>x</b>" } },
        ],
        "edges": [
            { "source": "e", "target": "r", "relationship": "executed_under" },
            { "source": "r", "target": "w", "relationship": "belongs_to" },
            { "source": "r", "target": "a", "relationship": "binds" },
            { "source": "r", "target": "gone", "relationship": "binds" },
        ],
    }))
}

#[test]
fn html_page_escapes_values_and_loads_nothing() {
    let page =
        html_page::page("<e>", &[("Models", vec!["model <m> of x".to_owned()]), ("Checks", Vec::new())], &graph());
    assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
    assert!(
        page.contains("&lt;script&gt;") && page.contains("executed under") && page.contains("Evidence of &lt;e&gt;")
    );
    assert!(page.contains("default-src 'none'"), "the page loads nothing");
    assert!(!page.contains("src=") && !page.contains("href="), "{page}");
    assert_eq!(page.matches("<rect").count(), 5);
    assert!(page.contains("<th scope=\"row\">asset version ids</th><td>v-1, &lt;v-2&gt;</td>"), "{page}");
    assert!(page.contains("<th scope=\"row\">Models</th><td><div>model &lt;m&gt; of x</div></td>"), "{page}");
    assert!(!page.contains("Checks"), "an empty section is omitted");
    assert_eq!(page.matches("<path").count(), 4, "an edge with an unknown end is skipped");
    assert_eq!(page.matches("<path class=\"dashed\"").count(), 1, "a binding is linked to its asset");
}

#[test]
fn mermaid_diagram_escapes_labels() {
    let text = mermaid::render(&graph());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 5 + 4, "{text}");
    assert_eq!(lines[1], "  n0[\"execution<br/>completed\"]");
    assert_eq!(lines[6], "  n0 -->|\"executed_under\"| n1");
    let label = "#60;/text#62;#60;script#62;alert#40;1#41;#60;/script#62;#34;#93;#59; click n0 #34;javascript:x#34;";
    assert_eq!(
        lines[5],
        format!("  n4[\"workload<br/>{label}\"]"),
        "the escaped label cannot end early or start an element"
    );
    assert_eq!(lines[9], "  n2 -.->|\"bound as\"| n3");
}

#[test]
fn adds_version_labels_to_identifiers() {
    let mut graph = graph();
    graph.add_version_labels(&VersionLabels::from([("<v-2>".to_owned(), "v2".to_owned())]));
    let asset = graph.nodes.iter().find(|node| node.kind == "asset").unwrap();
    assert_eq!((asset.label.as_str(), asset.field("asset_version_ids")), ("prompt v2", Some("v-1, v2 (<v-2>)")));
    assert_eq!(graph.nodes.iter().find(|node| node.kind == "binding").unwrap().label, "prompt_template");
}
