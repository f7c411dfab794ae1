//! Tests that different spellings of a number in JSON do not change the content.

use super::super::*;
use crate::asset::canonical::Canonical;
use serde_json::json;

/// The published example of each asset kind.
const fn example(kind: AssetKind) -> &'static str {
    match kind {
        AssetKind::PromptTemplate => include_str!("../../../../../../examples/assets/prompt_template.json"),
        AssetKind::KnowledgeBase => include_str!("../../../../../../examples/assets/knowledge_base.json"),
        AssetKind::ModelPolicy => include_str!("../../../../../../examples/assets/model_policy.json"),
        AssetKind::ModelConfig => include_str!("../../../../../../examples/assets/model_config.json"),
        AssetKind::PolicyBundle => include_str!("../../../../../../examples/assets/policy_bundle.json"),
        AssetKind::ToolDefinition => include_str!("../../../../../../examples/assets/tool_definition.json"),
        AssetKind::HookDefinition => include_str!("../../../../../../examples/assets/hook_definition.json"),
        AssetKind::McpServer => include_str!("../../../../../../examples/assets/mcp_server.json"),
        AssetKind::Skill => include_str!("../../../../../../examples/assets/skill.json"),
        AssetKind::Agent => include_str!("../../../../../../examples/assets/agent.json"),
        AssetKind::OrchestrationFlow => include_str!("../../../../../../examples/assets/orchestration_flow.json"),
        AssetKind::Memory => include_str!("../../../../../../examples/assets/memory.json"),
        AssetKind::EvaluationSuite => include_str!("../../../../../../examples/assets/evaluation_suite.json"),
        AssetKind::GuardrailConfig => include_str!("../../../../../../examples/assets/guardrail_config.json"),
        AssetKind::ConnectorDefinition => include_str!("../../../../../../examples/assets/connector_definition.json"),
        AssetKind::SovereigntyProfile => include_str!("../../../../../../examples/assets/sovereignty_profile.json"),
        AssetKind::WorkloadProfile => include_str!("../../../../../../examples/assets/workload_profile.json"),
        AssetKind::SandboxProfile => include_str!("../../../../../../examples/assets/sandbox_profile.json"),
        AssetKind::WorkloadHarness => include_str!("../../../../../../examples/assets/workload_harness.json"),
    }
}

/// Writes a number in the JSON spelling that `spelling` selects.
fn write_number(number: &serde_json::Number, spelling: u8) -> String {
    let plain = number.to_string();
    let double = number.as_f64().unwrap();
    match (spelling % 5, plain.contains(['.', 'e'])) {
        (0, _) => plain,
        (1, _) => format!("{double:e}"),
        (2, _) => format!("{double:E}"),
        (_, true) => format!("{plain}0"),
        (3, false) => format!("{plain}.0"),
        (_, false) => format!("{plain}.00E+0"),
    }
}

/// Writes a value as JSON. Each number has the spelling that the next item of `spellings` selects.
fn write_value(value: &Value, spellings: &mut impl Iterator<Item = u8>) -> String {
    match value {
        Value::Number(number) => write_number(number, spellings.next().unwrap_or_default()),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| write_value(item, spellings)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let member =
                |(key, member): (&String, &Value)| format!("{}: {}", json!(key), write_value(member, spellings));
            let members: Vec<String> = members.iter().map(member).collect();
            format!("{{{}}}", members.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.to_string(),
    }
}

/// The example of a kind, with numbers added where the kind permits them and the example has none.
pub(super) fn example_with_numbers(kind: AssetKind) -> Value {
    let mut content: Value = serde_json::from_str(example(kind)).unwrap();
    if kind == AssetKind::OrchestrationFlow {
        content["steps"][1]["type"] = json!("agent");
        content["steps"][1]["max_steps"] = json!(5);
        content["steps"][1]["inputs"]["weights"] = json!([10, -3, 0.5]);
    } else if kind == AssetKind::PolicyBundle {
        content["rules"] = json!([
            {"id": "odd", "condition": "inputs.n % 2 == 1", "outcome": "allow", "reason_code": "odd"},
        ]);
        content["tests"] = json!([{"name": "odd", "input": {"inputs": {"n": 7}}, "expect": {"outcome": "allow"}}]);
    }
    content
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

    #[test]
    fn checksum_ignores_number_spelling(spellings in proptest::collection::vec(0_u8..5, 64)) {
        for kind in AssetKind::ALL {
            let content = example_with_numbers(kind);
            let checksum = |content: &Value| Canonical::of(content).unwrap().checksum().clone();
            let text = write_value(&content, &mut spellings.iter().copied().cycle());
            let respelled: Value = serde_json::from_str(&text).unwrap();
            let checked = check(kind, &respelled);
            proptest::prop_assert!(checked.is_ok(), "{}: {:?} of {}", kind, checked, text);
            proptest::prop_assert_eq!(checksum(&respelled), checksum(&content), "{}: {}", kind, text);
            if kind == AssetKind::OrchestrationFlow {
                // The JSON text is also valid YAML.
                let from_yaml = crate::flow::parse_yaml(&text).unwrap().to_content();
                let expected = Flow::from_content(&content).unwrap().to_content();
                proptest::prop_assert_eq!(checksum(&from_yaml), checksum(&expected), "{}", text);
            }
        }
    }
}
