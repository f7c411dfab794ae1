mod bounds_before_compilation;
mod number_spelling;
mod unlisted_value_messages;

use super::*;
use number_spelling::example_with_numbers;
use serde_json::json;

/// The pointers and codes of the problems; empty if the content is valid.
fn problems(kind: AssetKind, content: &Value) -> Vec<(String, &'static str)> {
    match check(kind, content) {
        Ok(_) => Vec::new(),
        Err(ContentRefusal::Invalid(problems)) => {
            problems.into_iter().map(|problem| (problem.pointer, problem.code)).collect()
        }
        Err(other @ ContentRefusal::Prompt(_)) => panic!("{other:?}"),
    }
}

fn one_problem(pointer: &str, code: &'static str) -> Vec<(String, &'static str)> {
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
fn published_schemas_compile_and_mark_enforcement() {
    for kind in AssetKind::ALL {
        assert!(schema::compiled_schema(kind).is_some(), "{kind}");
        let parsed: Value = serde_json::from_str(schema_text(kind)).unwrap();
        assert!(parsed["title"].is_string() && parsed["description"].is_string(), "{kind}");
        for field in ["description", "labels"] {
            assert!(parsed["properties"].get(field).is_some(), "{kind} may carry {field}");
        }
        assert_properties_marked(&parsed, kind.as_str());
        assert_no_nested_branches(&parsed, false, kind.as_str());
    }
}

fn assert_properties_marked(node: &Value, path: &str) {
    if let Some(properties) = node.get("properties").and_then(Value::as_object) {
        for (name, property) in properties {
            let marked = property.get("x-enforcement").and_then(Value::as_str);
            assert!(matches!(marked, Some("enforced" | "recorded")), "{path}/{name}");
            assert!(property.get("description").is_some(), "{path}/{name}");
        }
    }
    match node {
        Value::Object(members) => {
            members.iter().for_each(|(key, member)| assert_properties_marked(member, &format!("{path}/{key}")));
        }
        Value::Array(items) => items.iter().for_each(|item| assert_properties_marked(item, path)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Checks that no branch of a schema (`oneOf` and similar) contains another. Otherwise a traversal might never end.
fn assert_no_nested_branches(node: &Value, nested: bool, path: &str) {
    let Value::Object(members) = node else {
        node.as_array().into_iter().flatten().for_each(|item| assert_no_nested_branches(item, nested, path));
        return;
    };
    for (key, member) in members {
        let branches = matches!(key.as_str(), "anyOf" | "oneOf" | "allOf") && member.is_array();
        assert!(!(branches && nested), "{path}/{key}");
        assert_no_nested_branches(member, nested || branches, &format!("{path}/{key}"));
    }
}

#[test]
fn reads_model_policy() {
    let Ok(CheckedContent::ModelPolicy(policy)) = check(AssetKind::ModelPolicy, &model_policy()) else {
        panic!("the policy is valid");
    };
    assert!(policy.provider_route.is_approved());
    assert_eq!(policy.routes().count(), 2);
    assert_eq!(policy.max_tokens, Some(800));
    let mut without_state = model_policy();
    without_state["provider_route"].as_object_mut().unwrap().remove("state");
    let policy = ModelPolicy::parse(&without_state).unwrap();
    assert!(!policy.provider_route.is_approved() && !policy.provider_route.state.is_withdrawal());
}

#[test]
fn reports_every_problem_of_a_model_policy() {
    let kind = AssetKind::ModelPolicy;
    let changed = |pointer: &str, value: Value| {
        let mut content = model_policy();
        *content.pointer_mut(pointer).unwrap() = value;
        problems(kind, &content)
    };
    assert_eq!(problems(kind, &json!({})), one_problem("/provider_route", "missing_field"));
    assert_eq!(problems(kind, &json!([])), one_problem("", "wrong_type"));
    assert_eq!(changed("/temperature", json!(2.1)), one_problem("/temperature", "out_of_bounds"));
    assert_eq!(changed("/max_tokens", json!(0)), one_problem("/max_tokens", "out_of_bounds"));
    assert_eq!(changed("/max_tokens", json!(1.5)), one_problem("/max_tokens", "wrong_type"));
    assert_eq!(changed("/provider_route/state", json!("ok")), one_problem("/provider_route/state", "not_one_of"));
    assert_eq!(changed("/provider_route/logging", json!({})), one_problem("/provider_route/logging", "wrong_type"));
    assert_eq!(changed("/provider_route/model", json!("")), one_problem("/provider_route/model", "wrong_form"));
    let duplicate = changed("/fallback_routes/0/route_id", json!("primary"));
    assert_eq!(duplicate, one_problem("/fallback_routes/0/route_id", "duplicate_route_id"));
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
fn rejects_skill_paths_that_some_platform_cannot_create() {
    let problems_of = |path: &str| {
        let file = json!({ "path": path, "sha256": "0".repeat(64), "content_ref": "a" });
        problems(AssetKind::Skill, &json!({ "name": "a", "description": "a", "body": "a", "files": [file] }))
    };
    for good in ["a", "a b.txt", "a/b.c/d-", "conf/console.md", "com0", "com10/nulls", "lpt", "v1.2/a_"] {
        assert_eq!(problems_of(good), [], "{good}");
    }
    for bad in ["a ", "a.", "a /b", "a./b", "CON", "a/con.txt", "nul.tar.gz", "a/Com1", "lpt9.md/b", "aux .txt"] {
        assert_eq!(problems_of(bad), one_problem("/files/0/path", "wrong_form"), "{bad}");
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
fn validates_prompt_templates() {
    let kind = AssetKind::PromptTemplate;
    let good = json!({
        "system_prompt": "Answer $arg:question.", "variables": [{"name": "question", "description": "what is asked"}],
        "allowed_commands": ["summarize"], "output_schema": {"type": "object"}, "description": "x",
    });
    assert!(matches!(check(kind, &good), Ok(CheckedContent::PromptTemplate(_))));
    assert_eq!(problems(kind, &json!({"system_prompt": 1})), one_problem("/system_prompt", "wrong_type"));
    let repeated = json!({
        "system_prompt": "x", "variables": [{"name": "a"}, {"name": "a"}], "output_schema": {"$ref": "#"},
    });
    let expected =
        [("/output_schema".to_owned(), "schema_recursive"), ("/variables/1/name".to_owned(), "duplicate_name")];
    assert_eq!(problems(kind, &repeated), expected);
    let refusal = check(kind, &json!({"system_prompt": "Hi $arg:nobody"})).unwrap_err();
    assert_eq!(refusal.code(), "prompt_malformed_token");
    let unknown_type = json!({"system_prompt": "x", "variables": [{"name": "a", "type": "date"}]});
    assert_eq!(problems(kind, &unknown_type), one_problem("/variables/0/type", "not_one_of"));
}

#[test]
fn validates_policy_bundles() {
    let kind = AssetKind::PolicyBundle;
    let rule = json!({"id": "r", "condition": "always", "outcome": "allow", "reason_code": "open"});
    assert!(matches!(check(kind, &json!({"rules": [rule]})), Ok(CheckedContent::PolicyBundle(_))));
    assert_eq!(problems(kind, &json!({"rules": []})), one_problem("/rules", "out_of_bounds"));
    let mut unknown = rule.clone();
    unknown["outcome"] = json!("maybe");
    assert_eq!(problems(kind, &json!({"rules": [unknown]})), one_problem("/rules/0/outcome", "not_one_of"));
    let mut broken = rule.clone();
    broken["condition"] = json!("actor.ref ==");
    assert_eq!(problems(kind, &json!({"rules": [broken]})), one_problem("/rules/0/condition", "policy_syntax"));
    let test = json!({"name": "t", "input": {"user": {}}, "expect": {"outcome": "allow"}});
    let with_test = json!({"rules": [rule], "tests": [test]});
    assert_eq!(problems(kind, &with_test), one_problem("/tests/0/input/user", "unknown_field"));
}

#[test]
fn validates_flows() {
    let kind = AssetKind::OrchestrationFlow;
    let implicit = Flow::implicit().to_content();
    assert_eq!(check(kind, &implicit), Ok(CheckedContent::Flow(Flow::implicit())));
    let mut dangling = implicit.clone();
    dangling["steps"][0]["on_failure"] = json!("gone");
    assert_eq!(problems(kind, &dangling), one_problem("/steps/0/on_failure", "unknown_step"));
    let mut extended = implicit;
    extended["steps"][0]["retries"] = json!(3);
    assert_eq!(problems(kind, &extended), one_problem("/steps/0/retries", "unknown_field"));
}

#[test]
fn lists_recorded_fields() {
    let pointers: Vec<String> =
        recorded_fields(AssetKind::ModelPolicy, &model_policy()).into_iter().map(|field| field.pointer).collect();
    assert!(pointers.contains(&"/provider_route/cost_class".to_owned()), "{pointers:?}");
    for enforced in
        ["/temperature", "/fallback_routes", "/provider_route/residency", "/supports_streaming", "/supports_tool_use"]
    {
        assert!(!pointers.contains(&enforced.to_owned()), "{enforced}");
    }
    let agent = json!({"entry_step": "a", "steps": [{"id": "a", "type": "agent", "tools": ["x"], "max_steps": 3}]});
    let pointers: Vec<String> =
        recorded_fields(AssetKind::OrchestrationFlow, &agent).into_iter().map(|field| field.pointer).collect();
    assert_eq!(pointers, ["/steps/0/max_steps", "/steps/0/tools"], "agent steps are only recorded");
    assert!(recorded_fields(AssetKind::Skill, &json!({"a": 1})).is_empty());
}

#[test]
fn shared_definitions_are_equal_in_every_kind() {
    let mut shared: std::collections::BTreeMap<String, Value> = std::collections::BTreeMap::new();
    for kind in AssetKind::ALL {
        let parsed = schema_value(kind).unwrap();
        let definition = |name: &str| parsed.get("$defs").and_then(|definitions| definitions.get(name));
        for (name, found) in [
            ("labels", parsed["properties"].get("labels")),
            ("reference", definition("reference")),
            ("secret_ref", definition("secret_ref")),
        ] {
            let Some(found) = found else { continue };
            let first = shared.entry(name.to_owned()).or_insert_with(|| found.clone());
            assert_eq!(first, found, "{kind} defines `{name}` differently");
        }
    }
    assert_eq!(shared.len(), 3);
}

#[test]
fn reports_schema_and_rule_problems_together() {
    let content = json!({
        "provider_route": {"route_id": "a", "provider": "x", "model": "y", "account_slot": "z"},
        "fallback_routes": [{"route_id": "a", "provider": "x", "model": "y", "account_slot": "z", "key": 1}],
        "temperature": 9,
    });
    let mut found = problems(AssetKind::ModelPolicy, &content);
    found.sort();
    assert_eq!(
        found,
        [
            ("/fallback_routes/0/key".to_owned(), "unknown_field"),
            ("/fallback_routes/0/route_id".to_owned(), "duplicate_route_id"),
            ("/temperature".to_owned(), "out_of_bounds"),
        ]
    );
    let rule = |condition: &str| json!({"id": "r", "condition": condition, "outcome": "allow", "reason_code": "x"});
    let mut bundle = json!({"rules": [rule("nobody == 1"), rule("always")], "extra": 1});
    bundle["rules"][1]["outcome"] = json!("maybe");
    let mut found = problems(AssetKind::PolicyBundle, &bundle);
    found.sort();
    assert_eq!(
        found,
        [
            ("/extra".to_owned(), "unknown_field"),
            ("/rules/0/condition".to_owned(), "policy_unknown_variable"),
            ("/rules/1/id".to_owned(), "duplicate_rule_id"),
            ("/rules/1/outcome".to_owned(), "not_one_of"),
        ]
    );
}

#[test]
fn rejects_non_boolean_conditions_in_new_bundles() {
    let bundle = |condition: &str| json!({"rules": [{"id": "r", "condition": condition, "outcome": "deny", "reason_code": "x"}]});
    for condition in [
        "1",
        "'x'",
        "1.5",
        "null",
        "[true]",
        "{'a': true}",
        "1 + 2",
        "-inputs.n",
        "size(actor.groups)",
        "string(true)",
        "actor.ref",
        "actor.groups",
        "!1",
        "1 && 'x'",
        "inputs.a ? 1 : 'x'",
        "actor.groups.map(g, g == 'a')",
        "actor.groups.filter(g, true)",
        "now.getHours()",
        "timestamp('2026-01-01T00:00:00Z')",
    ] {
        let kind = AssetKind::PolicyBundle;
        assert_eq!(
            problems(kind, &bundle(condition)),
            one_problem("/rules/0/condition", "policy_not_boolean"),
            "{condition}"
        );
        assert!(parse_existing(kind, &bundle(condition)).is_ok(), "existing versions stay readable: {condition}");
    }
    for condition in [
        "true",
        "inputs.a",
        "inputs['a']",
        "has(inputs.a)",
        "inputs.a ? 1 : true",
        "!inputs.a",
        "1 == 2",
        "bool('true')",
        "actor.groups.exists(g, g == 'a')",
        "actor.groups.all(g, g == 'a')",
        "actor.groups.exists_one(g, g == 'a')",
        "'a' in actor.groups",
        "actor.ref.startsWith('a')",
        "inputs.l[0]",
        "dyn(inputs.a)",
        "1 < 2 || inputs.a",
        "always",
    ] {
        assert_eq!(problems(AssetKind::PolicyBundle, &bundle(condition)), [], "{condition}");
    }
    let rule =
        |id: &str, condition: &str| json!({"id": id, "condition": condition, "outcome": "deny", "reason_code": "x"});
    let two_rules = json!({"rules": [rule("r", "1"), rule("s", "((")]});
    let expected =
        [("/rules/1/condition".to_owned(), "policy_syntax"), ("/rules/0/condition".to_owned(), "policy_not_boolean")];
    assert_eq!(problems(AssetKind::PolicyBundle, &two_rules), expected);
}

#[test]
fn reports_at_most_one_hundred_problems() {
    let step = |index: usize| json!({"id": format!("s{index}"), "type": "return", "output": "{{trigger.q}}"});
    let flow = json!({"entry_step": "s0", "steps": (0..150).map(step).collect::<Vec<_>>()});
    let rule = json!({"id": "r", "condition": "nobody", "outcome": "deny", "reason_code": "x"});
    for (kind, content) in
        [(AssetKind::OrchestrationFlow, flow), (AssetKind::PolicyBundle, json!({"rules": vec![rule; 150]}))]
    {
        assert_eq!(problems(kind, &content).len(), 100, "{kind}");
    }
}

#[test]
fn rejects_duplicate_policy_test_names() {
    let test = json!({"name": "t", "expect": {"outcome": "allow"}});
    let rule = json!({"id": "r", "condition": "always", "outcome": "allow", "reason_code": "x"});
    let duplicates = json!({"rules": [rule], "tests": [test, test]});
    assert_eq!(problems(AssetKind::PolicyBundle, &duplicates), one_problem("/tests/1/name", "duplicate_name"));
}

#[test]
fn accepts_lower_case_timestamps() {
    let mut base = example_with_numbers(AssetKind::KnowledgeBase);
    base["access_contract"]["revoked"] = json!(true);
    for (time_text, is_valid) in [
        ("2026-11-21T10:00:00Z", true),
        ("2026-11-21t10:00:00.5z", true),
        ("2026-11-21T10:00:00z", true),
        ("2026-11-21 10:00:00z", false),
        ("2026-13-21T10:00:00z", false),
    ] {
        base["access_contract"]["revoked_at"] = json!(time_text);
        assert_eq!(problems(AssetKind::KnowledgeBase, &base).is_empty(), is_valid, "{time_text}");
        let policy = json!({
            "rules": [{"id": "r", "condition": "now > timestamp('2026-11-20T00:00:00Z')", "outcome": "allow", "reason_code": "x"}],
            "tests": [{"name": "t", "input": {"now": time_text}, "expect": {"outcome": "allow"}}],
        });
        assert_eq!(problems(AssetKind::PolicyBundle, &policy).is_empty(), is_valid, "{time_text}");
    }
}

#[test]
fn schema_problems_do_not_hide_rule_problems_elsewhere() {
    let bundle = json!({"rules": [
        {"id": "a", "condition": "((", "outcome": "x"},
        {"id": "a", "condition": 7, "outcome": "deny", "obligations": ["human_review"], "reason_code": "r"},
        {"id": "b", "condition": "always", "outcome": 1, "obligations": ["shred", 7], "reason_code": "r"},
    ]});
    let mut found = problems(AssetKind::PolicyBundle, &bundle);
    found.sort();
    let expected = [
        ("/rules/0/condition", "policy_syntax"),
        ("/rules/0/outcome", "not_one_of"),
        ("/rules/0/reason_code", "missing_field"),
        ("/rules/1/condition", "wrong_type"),
        ("/rules/1/id", "duplicate_rule_id"),
        ("/rules/1/obligations", "obligations_not_allowed"),
        ("/rules/2/obligations/0", "unknown_obligation"),
        ("/rules/2/obligations/1", "wrong_type"),
        ("/rules/2/outcome", "not_one_of"),
    ];
    assert_eq!(found, expected.map(|(pointer, code)| (pointer.to_owned(), code)));
    let flow = json!({"entry_step": "gone", "extra": 1, "steps": [
        {"id": "a", "type": "return", "output": "{{trigger.q}} {{release.zz}}"},
    ]});
    let mut found = problems(AssetKind::OrchestrationFlow, &flow);
    found.sort();
    let expected = [
        ("/entry_step", "unknown_step"),
        ("/extra", "unknown_field"),
        ("/steps/0/output", "unknown_input"),
        ("/steps/0/output", "unknown_role"),
    ];
    assert_eq!(found, expected.map(|(pointer, code)| (pointer.to_owned(), code)));
}

#[test]
fn rejects_content_with_too_many_values() {
    let content = json!({"guardrails": vec![json!(0); MAX_VALUES]});
    assert_eq!(problems(AssetKind::GuardrailConfig, &content), one_problem("", "too_many_values"));
    let content = json!({"guardrails": vec![json!(0); 2_000], "extra": 1});
    assert_eq!(problems(AssetKind::GuardrailConfig, &content), one_problem("/guardrails", "out_of_bounds"));
}

#[test]
fn lists_unenforced_fail_closed_controls() {
    let controls = |kind, content: Value| unenforced_controls(kind, &content, BindingPath::Bound);
    let indirect = |content: Value| unenforced_controls(AssetKind::GuardrailConfig, &content, BindingPath::Referenced);
    let guardrail = |extra: Value| {
        let mut item = json!({"id": "pii", "detector": "pii", "stage": "input", "action": "mask"});
        item.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"guardrails": [item]})
    };
    let kind = AssetKind::GuardrailConfig;
    assert!(controls(kind, guardrail(json!({"on_error": "fail_closed"}))).is_empty(), "runs enforce it");
    assert_eq!(indirect(guardrail(json!({"on_error": "fail_closed"}))), ["/guardrails/0/on_error"], "by reference");
    assert_eq!(indirect(guardrail(json!({}))), ["/guardrails/0/on_error"], "the default fails closed");
    assert!(indirect(guardrail(json!({"on_error": "fail_open"}))).is_empty());
    assert!(indirect(guardrail(json!({"mode": "logging_only"}))).is_empty());
    assert_eq!(controls(AssetKind::McpServer, json!({"on_drift": "deny"})), ["/on_drift"]);
    assert_eq!(controls(AssetKind::McpServer, json!({"denied_tools": ["drop"]})), ["/denied_tools"]);
    assert!(controls(AssetKind::McpServer, json!({"denied_tools": [], "tool_pins": {}})).is_empty());
    assert_eq!(controls(AssetKind::McpServer, json!({"allowed_tools": ["read"]})), ["/allowed_tools"]);
    assert_eq!(controls(AssetKind::McpServer, json!({"allowed_tools": []})), ["/allowed_tools"], "an empty allow list");
    assert_eq!(controls(AssetKind::McpServer, json!({"tool_pins": {"read": "0"}})), ["/tool_pins"]);
    let strict = json!({"on_drift": "deny", "denied_tools": ["drop"], "tool_pins": {"read": "0"}, "egress_hosts": []});
    let referenced = unenforced_controls(AssetKind::McpServer, &strict, BindingPath::Referenced);
    assert!(referenced.is_empty(), "runs enforce a referenced server");
    for kind in [AssetKind::McpServer, AssetKind::ConnectorDefinition] {
        assert_eq!(controls(kind, json!({"egress_hosts": ["a.example"]})), ["/egress_hosts"], "{kind}");
        assert_eq!(controls(kind, json!({"egress_hosts": []})), ["/egress_hosts"], "{kind}: an empty list");
        assert!(controls(kind, json!({})).is_empty(), "{kind}");
    }
    assert!(controls(AssetKind::SovereigntyProfile, json!({})).is_empty(), "runs refuse routes that do not comply");
    assert_eq!(controls(AssetKind::EvaluationSuite, json!({"required_for": ["dev", "production"]})), ["/required_for"]);
    assert!(controls(AssetKind::EvaluationSuite, json!({"required_for": ["dev"]})).is_empty());
    let policy = json!({"approval_policy": {"min_approvals": 2, "roles": ["auditor"], "expires_hours": 1}});
    assert!(controls(AssetKind::WorkloadProfile, policy).is_empty());
    assert!(controls(AssetKind::WorkloadHarness, json!({"permissions": {"deny": []}})).is_empty());
    assert!(controls(AssetKind::ModelPolicy, model_policy()).is_empty());
}

#[test]
fn reads_existing_versions_despite_stricter_rules() {
    let mut policy = model_policy();
    policy["temperature"] = json!(9);
    policy["extra"] = json!(true);
    assert!(check(AssetKind::ModelPolicy, &policy).is_err());
    assert!(matches!(parse_existing(AssetKind::ModelPolicy, &policy), Ok(CheckedContent::ModelPolicy(_))));
    let bundle = json!({
        "rules": [{"id": "r", "condition": "always", "outcome": "allow", "reason_code": "x"}],
        "tests": [{"name": "t", "expect": {"outcome": "deny"}}],
        "extra": true,
    });
    assert!(check(AssetKind::PolicyBundle, &bundle).is_err());
    assert!(matches!(parse_existing(AssetKind::PolicyBundle, &bundle), Ok(CheckedContent::PolicyBundle(_))));
    let mut test_failing = bundle;
    test_failing.as_object_mut().unwrap().remove("extra");
    assert_eq!(problems(AssetKind::PolicyBundle, &test_failing), one_problem("/tests/0", "policy_test_failed"));
    // Even the content of an existing version is refused if it cannot be parsed.
    assert!(parse_existing(AssetKind::ModelPolicy, &json!({})).is_err());
    assert!(parse_existing(AssetKind::PolicyBundle, &json!({"rules": [{"id": "r"}]})).is_err());
}

#[test]
fn reads_model_config_as_policy_with_one_route() {
    let content = json!({"provider": "local", "model": "rules/2", "temperature": 0.3, "max_tokens": 9, "retries": 2});
    let Ok(CheckedContent::ModelPolicy(policy)) = check(AssetKind::ModelConfig, &content) else { panic!("refused") };
    let route = &policy.provider_route;
    assert!(route.is_approved(), "approving the release approves its only route");
    assert_eq!((route.provider.as_str(), route.model.as_str()), ("local", "rules/2"));
    assert_eq!((route.account_slot.as_str(), route.route_id.as_str()), ("local", "rules-2"));
    assert_eq!((policy.temperature, policy.max_tokens, policy.fallback_routes.len()), (Some(0.3), Some(9), 0));
}

#[test]
fn warns_about_legacy_kind_with_conversion() {
    let content =
        json!({"provider": "open ai", "model": "gpt/4.1", "temperature": 0.3, "top_p": 0.9, "labels": {"a": "b"}});
    let found = warnings(AssetKind::ModelConfig, &content);
    assert_eq!((found[0].code, found[0].pointer.as_str()), ("legacy_kind", ""));
    let conversion = found[0].conversion.clone().unwrap();
    let Ok(CheckedContent::ModelPolicy(policy)) = check(AssetKind::ModelPolicy, &conversion) else {
        panic!("{conversion}")
    };
    assert!(!policy.provider_route.is_approved());
    assert_eq!((policy.temperature, policy.provider_route.model.as_str()), (Some(0.3), "gpt/4.1"));
    assert!(found.iter().skip(1).all(|warning| warning.code == "recorded_only" && warning.conversion.is_none()));
    assert!(warnings(AssetKind::ModelPolicy, &model_policy()).iter().all(|warning| warning.code == "recorded_only"));
}
