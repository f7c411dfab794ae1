use super::*;
use serde_json::json;

/// The problems of a refusal, as pointers and codes.
fn problems(kind: AssetKind, content: &Value) -> Vec<(String, &'static str)> {
    match check(kind, content) {
        Ok(_) => Vec::new(),
        Err(ContentRefusal::Invalid(problems)) => {
            problems.into_iter().map(|problem| (problem.pointer, problem.code)).collect()
        }
        Err(other) => panic!("{other:?}"),
    }
}

fn one(pointer: &str, code: &'static str) -> Vec<(String, &'static str)> {
    vec![(pointer.to_owned(), code)]
}

fn model_policy() -> Value {
    let route = |id: &str| {
        json!({
            "route_id": id, "provider": "openai", "model": "gpt-4.1", "account_slot": "main", "region": "eu-west-1",
            "residency": "eu", "state": "approved", "sensitivity_tiers": ["internal"], "capability_tags": ["chat"],
            "cost_class": "standard", "prompt_caching": true, "logging": "metadata",
        })
    };
    json!({
        "provider_route": route("primary"), "fallback_routes": [route("second")], "supports_streaming": true,
        "supports_tool_use": false, "temperature": 0.2, "max_tokens": 800, "labels": {"team": "x"},
    })
}

#[test]
fn the_published_schemas_compile_and_say_what_is_enforced() {
    for kind in AssetKind::ALL {
        let Some(text) = schema(kind) else {
            assert_eq!(check(kind, &json!({})), Err(ContentRefusal::SchemaUnavailable(kind)));
            continue;
        };
        assert!(schema::validator(kind).is_some(), "{kind}");
        let parsed: Value = serde_json::from_str(text).unwrap();
        every_property_is_marked(&parsed, kind.as_str());
    }
}

fn every_property_is_marked(node: &Value, path: &str) {
    if let Some(properties) = node.get("properties").and_then(Value::as_object) {
        for (name, property) in properties {
            let marked = property.get("x-enforcement").and_then(Value::as_str);
            assert!(matches!(marked, Some("enforced" | "recorded")), "{path}/{name}");
            assert!(property.get("description").is_some(), "{path}/{name}");
        }
    }
    match node {
        Value::Object(members) => {
            members.iter().for_each(|(key, member)| every_property_is_marked(member, &format!("{path}/{key}")));
        }
        Value::Array(items) => items.iter().for_each(|item| every_property_is_marked(item, path)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_model_policy_is_read() {
    let Ok(CheckedContent::ModelPolicy(policy)) = check(AssetKind::ModelPolicy, &model_policy()) else {
        panic!("the policy is good");
    };
    assert!(policy.provider_route.is_approved());
    assert_eq!(policy.routes().count(), 2);
    assert_eq!(policy.max_tokens, Some(800));
    let mut silent = model_policy();
    silent["provider_route"].as_object_mut().unwrap().remove("state");
    let policy = ModelPolicy::parse(&silent).unwrap();
    assert!(!policy.provider_route.is_approved() && !policy.provider_route.state.withdraws());
}

#[test]
fn a_model_policy_is_refused_with_every_problem() {
    let kind = AssetKind::ModelPolicy;
    let changed = |pointer: &str, value: Value| {
        let mut content = model_policy();
        *content.pointer_mut(pointer).unwrap() = value;
        problems(kind, &content)
    };
    assert_eq!(problems(kind, &json!({})), one("/provider_route", "missing_field"));
    assert_eq!(problems(kind, &json!([])), one("", "wrong_type"));
    assert_eq!(changed("/temperature", json!(2.1)), one("/temperature", "out_of_bounds"));
    assert_eq!(changed("/max_tokens", json!(0)), one("/max_tokens", "out_of_bounds"));
    assert_eq!(changed("/max_tokens", json!(1.5)), one("/max_tokens", "wrong_type"));
    assert_eq!(changed("/provider_route/state", json!("ok")), one("/provider_route/state", "not_one_of"));
    assert_eq!(changed("/provider_route/logging", json!({})), one("/provider_route/logging", "wrong_type"));
    assert_eq!(changed("/provider_route/model", json!("")), one("/provider_route/model", "wrong_form"));
    let twice = changed("/fallback_routes/0/route_id", json!("primary"));
    assert_eq!(twice, one("/fallback_routes/0/route_id", "duplicate_route_id"));
    let mut content = model_policy();
    content["workspace_id"] = json!("x");
    content["provider_route"] = json!({"route_id": "a", "api_key": "secret"});
    let found = problems(kind, &content);
    assert_eq!(found.len(), 5);
    for expected in ["/workspace_id", "/provider_route/api_key", "/provider_route/model"] {
        assert!(found.iter().any(|(pointer, _)| pointer == expected), "{expected}");
    }
}

#[test]
fn messages_never_repeat_values() {
    let secret = "hunter2\u{7}";
    let content = json!({
        "provider_route": {"route_id": secret, "provider": [secret], "model": secret, "account_slot": secret, "state": secret},
        "temperature": secret, "max_tokens": -5, "fallback_routes": {secret: secret},
    });
    let Err(ContentRefusal::Invalid(problems)) = check(AssetKind::ModelPolicy, &content) else { panic!("refused") };
    assert!(problems.len() > 6);
    assert!(problems.iter().all(|problem| !problem.message.contains("hunter2") && !problem.message.contains("-5")));
}

#[test]
fn a_prompt_template_is_checked() {
    let kind = AssetKind::PromptTemplate;
    let good = json!({
        "system_prompt": "Answer $arg:question.", "variables": [{"name": "question", "description": "what is asked"}],
        "allowed_commands": ["summarize"], "output_schema": {"type": "object"}, "description": "x",
    });
    assert!(matches!(check(kind, &good), Ok(CheckedContent::PromptTemplate(_))));
    assert_eq!(problems(kind, &json!({"system_prompt": 1})), one("/system_prompt", "wrong_type"));
    let repeated = json!({
        "system_prompt": "x", "variables": [{"name": "a"}, {"name": "a"}], "output_schema": {"$ref": "#"},
    });
    let expected =
        [("/variables/1/name".to_owned(), "duplicate_name"), ("/output_schema".to_owned(), "schema_recursive")];
    assert_eq!(problems(kind, &repeated), expected);
    let refusal = check(kind, &json!({"system_prompt": "Hi $arg:nobody"})).unwrap_err();
    assert_eq!(refusal.code(), "prompt_malformed_token");
    let unknown_type = json!({"system_prompt": "x", "variables": [{"name": "a", "type": "date"}]});
    assert_eq!(problems(kind, &unknown_type), one("/variables/0/type", "not_one_of"));
}

#[test]
fn a_policy_bundle_is_checked() {
    let kind = AssetKind::PolicyBundle;
    let rule = json!({"id": "r", "condition": "always", "outcome": "allow", "reason_code": "open"});
    assert!(matches!(check(kind, &json!({"rules": [rule]})), Ok(CheckedContent::PolicyBundle(_))));
    assert_eq!(problems(kind, &json!({"rules": []})), one("/rules", "out_of_bounds"));
    let mut unknown = rule.clone();
    unknown["outcome"] = json!("maybe");
    assert_eq!(problems(kind, &json!({"rules": [unknown]})), one("/rules/0/outcome", "not_one_of"));
    let mut broken = rule.clone();
    broken["condition"] = json!("actor.ref ==");
    assert_eq!(problems(kind, &json!({"rules": [broken]})), one("/rules/0/condition", "policy_syntax"));
    let test = json!({"name": "t", "input": {"user": {}}, "expect": {"outcome": "allow"}});
    let tested = json!({"rules": [rule], "tests": [test]});
    assert_eq!(problems(kind, &tested), one("/tests/0/input/user", "unknown_field"));
}

#[test]
fn a_flow_is_checked() {
    let kind = AssetKind::OrchestrationFlow;
    let implicit = Flow::implicit().to_content();
    assert_eq!(check(kind, &implicit), Ok(CheckedContent::Flow(Flow::implicit())));
    let mut open = implicit.clone();
    open["steps"][0]["on_failure"] = json!("gone");
    assert_eq!(problems(kind, &open), one("/steps/0/on_failure", "unknown_step"));
    let mut odd = implicit;
    odd["steps"][0]["retries"] = json!(3);
    assert_eq!(problems(kind, &odd), one("/steps/0/retries", "unknown_field"));
}

#[test]
fn what_is_only_recorded_is_named() {
    let pointers: Vec<String> =
        recorded_only(AssetKind::ModelPolicy, &model_policy()).into_iter().map(|field| field.pointer).collect();
    assert!(pointers.contains(&"/provider_route/residency".to_owned()), "{pointers:?}");
    assert!(pointers.contains(&"/fallback_routes".to_owned()), "nothing tries a second route yet: {pointers:?}");
    assert!(!pointers.contains(&"/temperature".to_owned()));
    assert!(recorded_only(AssetKind::Skill, &json!({"a": 1})).is_empty());
}
