//! Tests of the checks of bundle plans.

use super::*;
use crate::workload::interface::MAX_FIELDS;

/// Returns a bundle plan that passes all checks.
pub(crate) fn plan() -> Value {
    json!({
        "name": "Ticket triage",
        "summary": "Sorts tickets by urgency.",
        "flow": {
            "entry_step": "answer",
            "steps": [
                {
                    "id": "answer", "type": "llm_call", "model_policy": "{{release.model_policy}}",
                    "inputs": { "prompt": "{{release.prompt_template}}", "ticket": "{{trigger.ticket}}" },
                },
                { "id": "done", "type": "return", "output": "{{steps.answer.output}}" },
            ],
        },
        "prompt_template": { "template": "Sort this ticket: $arg:ticket" },
        "model_policy_ref": "main-model",
        "connections": ["crm"],
    })
}

fn codes(document: &Value) -> Vec<(String, &'static str)> {
    match BundlePlan::parse(document) {
        Err(BundleRefusal::Invalid(problems)) => {
            problems.into_iter().map(|problem| (problem.path, problem.code)).collect()
        }
        result => panic!("{result:?}"),
    }
}

#[test]
fn keeps_the_plan_as_written() {
    let parsed = BundlePlan::parse(&plan()).unwrap();
    assert_eq!(parsed.to_document(), plan());
    assert_eq!(parsed.inputs(), [PlanInput::text("ticket")]);
    assert_eq!(parsed.flow_steps()[0], ("answer".to_owned(), "llm_call".to_owned()));
    assert_eq!(parsed.flow_content()["trigger"]["inputs_schema"], json!({ "ticket": "string" }));
    assert_eq!(BundlePlan::parse(&parsed.to_redacted_document()), Err(BundleRefusal::Redacted));
    assert_eq!(BundlePlan::from_stored(&plan()), Some(parsed));
}

#[test]
fn refuses_hostile_members() {
    let codes_with = |pointer: &str, value: Value| {
        let mut document = plan();
        *document.pointer_mut(pointer).unwrap() = value;
        codes(&document)
    };
    let problem_at = |path: &str, code| vec![(format!("bundle.{path}"), code)];
    assert_eq!(codes_with("/name", json!("<script>alert(1)</script>")), problem_at("name", "invalid_text"));
    // The full path contains a name that the author chose. The path of the member does not.
    let result = BundlePlan::parse(&{
        let mut document = plan();
        document["flow"]["steps"][0]["canary"] = json!(1);
        document
    });
    let Err(BundleRefusal::Invalid(problems)) = result else { panic!("{result:?}") };
    assert!(problems.iter().all(|problem| problem.member_path() == "bundle.flow"), "{problems:?}");
    assert!(problems.iter().all(|problem| problem.message != "the flow is invalid here"), "{problems:?}");
    assert_eq!(codes_with("/summary", json!("key sk-abcdefghijklmnop")), problem_at("summary", "contains_secret"));
    assert_eq!(codes_with("/model_policy_ref", json!("../other")), problem_at("model_policy_ref", "invalid_slug"));
    assert_eq!(codes_with("/connections", json!(["crm", "crm"])), problem_at("connections[1]", "duplicate_item"));
    let template = "/prompt_template/template";
    let path = "prompt_template.template";
    assert_eq!(codes_with(template, json!("Use @asset-ref:secret-prompt")), problem_at(path, "reference_not_allowed"));
    assert_eq!(codes_with("/flow/entry_step", json!("nowhere")).first().unwrap().0, "bundle.flow.entry_step");
    let mut with_actions = plan();
    with_actions["actions"] = json!(["approve", "activate"]);
    assert_eq!(codes(&with_actions), [("bundle".to_owned(), "unknown_field")]);
    assert_eq!(codes(&json!({})).len(), 6);
    assert_eq!(codes(&json!("x")), [("bundle".to_owned(), "invalid")]);
}

#[test]
fn refuses_inputs_that_no_form_asks_for() {
    let codes_with = |pointer: &str, value: Value| {
        let mut document = plan();
        *document.pointer_mut(pointer).unwrap() = value;
        codes(&document)
    };
    let problem_at = |path: &str, code| vec![(format!("bundle.flow{path}"), code)];
    let invalid_name = problem_at("", "invalid_field_name");
    assert_eq!(codes_with("/prompt_template/template", json!("Sort $arg:Ticket")), invalid_name);
    assert_eq!(codes_with("/flow/steps/0/inputs/ticket", json!("{{trigger._ticket}}")), invalid_name);
    let with_inputs = |inputs: Value| {
        let mut document = plan();
        document["flow"]["trigger"] = json!({ "type": "api_request", "inputs_schema": inputs });
        document
    };
    let path = ".trigger.inputs_schema";
    let problems = codes(&with_inputs(json!({ "ticket": "string", "Due": "date", "tags": "array" })));
    assert_eq!(
        problems,
        [problem_at(&format!("{path}.Due"), "invalid_field_name"), problem_at(&format!("{path}.tags"), "not_one_of"),]
            .concat()
    );
    // The schema of flows permits as many inputs as a form has fields.
    let mut many_inputs = json!({ "ticket": "text" });
    for number in 1..=MAX_FIELDS {
        many_inputs[format!("i{number}")] = json!("text");
    }
    assert_eq!(codes(&with_inputs(many_inputs)), problem_at(path, "invalid_flow"));
    // A stored plan can still be read if it violates newer rules.
    let stored = BundlePlan::from_stored(&with_inputs(json!({ "ticket": "object" }))).unwrap();
    assert_eq!(stored.inputs().first().unwrap().field_type(), None);
}

#[test]
fn arguments_of_the_prompt_have_the_types_of_their_values() {
    let mut document = plan();
    document["flow"]["trigger"] = json!({
        "type": "api_request",
        "inputs_schema": { "ticket": "text", "amount": "number", "urgent": "boolean", "due": "date" },
    });
    document["flow"]["steps"][0]["inputs"]["total"] = json!("{{ trigger.amount }}");
    document["flow"]["steps"][0]["inputs"]["urgent"] = json!("urgent: {{trigger.urgent}}");
    document["flow"]["steps"][0]["inputs"]["limit"] = json!(3);
    document["prompt_template"]["template"] =
        json!("$arg:ticket $arg:amount $arg:urgent $arg:due $arg:total $arg:limit");
    let content = BundlePlan::parse(&document).unwrap().prompt_content();
    let types: Vec<&str> =
        content["variables"].as_array().unwrap().iter().map(|variable| variable["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["string", "number", "string", "string", "number", "number"]);
}
