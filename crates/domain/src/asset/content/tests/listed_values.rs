//! Refusals of values that a schema does not list.

use super::super::*;
use super::model_policy;
use serde_json::json;

#[test]
fn names_the_listed_values_and_never_the_given_one() {
    let mut content = model_policy();
    *content.pointer_mut("/provider_route/state").unwrap() = json!("canary");
    let Err(ContentRefusal::Invalid(problems)) = check(AssetKind::ModelPolicy, &content) else { panic!("accepted") };
    let message = problems[0].message.to_string();
    assert!(message.contains("schema lists: ") && message.contains("approved"), "{message}");
    assert!(!message.contains("canary"), "{message}");
}
