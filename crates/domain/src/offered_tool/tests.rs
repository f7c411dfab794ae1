use super::*;
use serde_json::json;

fn arguments(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn every_schema_compiles() {
    for tool in BuiltinTool::ALL {
        assert!(tool.schema().is_some(), "{tool:?}");
        assert_eq!(BuiltinTool::parse(tool.as_str()), Some(tool));
        let description = tool.description();
        assert_eq!(&description.input_schema, tool.input_schema());
        assert!(description.input_schema["properties"].is_object() && !description.title.is_empty());
    }
    assert_eq!(BuiltinTool::parse("Execute_flow"), None);
}

#[test]
fn validates_arguments_against_the_schema() {
    let id = "01a1fdf0-23a9-7303-867c-1c910ca11510";
    for (tool, arguments_json, expected) in [
        (BuiltinTool::ExecuteFlow, json!({ "workload_slug": "a", "environment": "dev" }), None),
        (BuiltinTool::ExecuteFlow, json!({ "workload_slug": "a" }), Some(("/environment", "missing_field"))),
        (
            BuiltinTool::ExecuteFlow,
            json!({ "workload_slug": "A", "environment": "dev" }),
            Some(("/workload_slug", "wrong_form")),
        ),
        (
            BuiltinTool::ExecuteFlow,
            json!({ "workload_slug": "a", "environment": "dev", "actor_ref": "user:x" }),
            Some(("/actor_ref", "unknown_field")),
        ),
        (
            BuiltinTool::ExecuteFlow,
            json!({ "workload_slug": "a", "environment": "dev", "inputs": [] }),
            Some(("/inputs", "wrong_type")),
        ),
        (
            BuiltinTool::ExecuteFlow,
            json!({ "workload_slug": "v1", "environment": "dev" }),
            Some(("/workload_slug", "reserved_slug")),
        ),
        (BuiltinTool::QueryKnowledgeBase, json!({ "knowledge_base_slug": "a", "query": "x", "top_k": 3 }), None),
        (
            BuiltinTool::QueryKnowledgeBase,
            json!({ "knowledge_base_slug": "a", "query": "x", "top_k": 0 }),
            Some(("/top_k", "out_of_bounds")),
        ),
        (
            BuiltinTool::QueryKnowledgeBase,
            json!({ "knowledge_base_slug": "a", "query": "" }),
            Some(("/query", "out_of_bounds")),
        ),
        (BuiltinTool::InspectEvidence, json!({ "execution_id": id, "format": "graph" }), None),
        (BuiltinTool::InspectEvidence, json!({ "execution_id": "x" }), Some(("/execution_id", "wrong_form"))),
        (BuiltinTool::InspectEvidence, json!({ "execution_id": id, "format": "xml" }), Some(("/format", "not_one_of"))),
    ] {
        let parsed = OfferedToolCall::parse_builtin(tool, arguments(arguments_json.clone()));
        let problem = parsed.err().map(|problems| (problems[0].pointer.clone(), problems[0].code));
        assert_eq!(problem, expected.map(|(pointer, code): (&str, _)| (pointer.to_owned(), code)), "{arguments_json}");
    }
}

#[test]
fn parses_workload_tool_names() {
    assert_eq!(workload_slug_of_tool_name("run_ticket_sorter").unwrap().as_str(), "ticket-sorter");
    for name in ["ticket_sorter", "run_", "run_ticket-sorter", "run__a", "run_V", "execute_flow"] {
        assert_eq!(workload_slug_of_tool_name(name), None, "{name}");
    }
}
