//! Tests of bundle plans.

use super::*;

/// A plan that is valid.
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
        other => panic!("{other:?}"),
    }
}

#[test]
fn keeps_the_plan_as_written() {
    let parsed = BundlePlan::parse(&plan()).unwrap();
    assert_eq!(parsed.to_document(), plan());
    assert_eq!(parsed.inputs(), ["ticket"]);
    assert_eq!(parsed.steps()[0], ("answer".to_owned(), "llm_call".to_owned()));
    assert_eq!(parsed.flow_content()["trigger"]["inputs_schema"], json!({ "ticket": "string" }));
    assert_eq!(BundlePlan::parse(&parsed.to_redacted_document()), Err(BundleRefusal::Redacted));
    assert_eq!(BundlePlan::from_stored(&plan()), Some(parsed));
}

#[test]
fn refuses_hostile_members() {
    let with = |pointer: &str, value: Value| {
        let mut document = plan();
        *document.pointer_mut(pointer).unwrap() = value;
        codes(&document)
    };
    let at = |path: &str, code| vec![(format!("bundle.{path}"), code)];
    assert_eq!(with("/name", json!("<script>alert(1)</script>")), at("name", "invalid_text"));
    assert_eq!(with("/summary", json!("key sk-abcdefghijklmnop")), at("summary", "contains_secret"));
    assert_eq!(with("/model_policy_ref", json!("../other")), at("model_policy_ref", "invalid_slug"));
    assert_eq!(with("/connections", json!(["crm", "crm"])), at("connections[1]", "duplicate_item"));
    let template = "/prompt_template/template";
    let path = "prompt_template.template";
    assert_eq!(with(template, json!("Use @asset-ref:secret-prompt")), at(path, "reference_not_allowed"));
    assert_eq!(with("/flow/entry_step", json!("nowhere")).first().unwrap().0, "bundle.flow.entry_step");
    let mut more = plan();
    more["actions"] = json!(["approve", "activate"]);
    assert_eq!(codes(&more), [("bundle".to_owned(), "unknown_field")]);
    assert_eq!(codes(&json!({})).len(), 6);
    assert_eq!(codes(&json!("x")), [("bundle".to_owned(), "invalid")]);
}
