//! Tests of the messages about values and fields that a schema does not list.

use super::super::*;
use super::model_policy;
use serde_json::json;

#[test]
fn message_lists_permitted_values_but_not_given_value() {
    let mut content = model_policy();
    *content.pointer_mut("/provider_route/state").unwrap() = json!("canary");
    let Err(ContentRefusal::Invalid(problems)) = check(AssetKind::ModelPolicy, &content) else { panic!("accepted") };
    let message = problems[0].message.to_string();
    assert!(message.contains("schema lists: ") && message.contains("approved"), "{message}");
    assert!(!message.contains("canary"), "{message}");
}

#[test]
fn message_lists_schema_fields_but_not_unknown_field() {
    let mut content = model_policy();
    content["max_canary"] = json!(1);
    let Err(ContentRefusal::Invalid(problems)) = check(AssetKind::ModelPolicy, &content) else { panic!("accepted") };
    let ContentProblem { message, valid_names, .. } = &problems[0];
    assert!(message.starts_with("unknown field; the fields are ") && message.contains("max_tokens, "), "{message}");
    assert!(valid_names.iter().any(|name| name == "max_tokens"), "{valid_names:?}");
    assert!(!message.contains("canary"), "{message}");
}
