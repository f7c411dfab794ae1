//! Releases that are too large: by the number of their bindings, by their compiled size, and by the size of their plan.

use crate::release_bindings_and_gates::{bind, transition_to, unbind};
use fairway_testkit::{TestApp, app::Version};
use serde_json::{Value, json};

/// Maximum number of bindings of a release.
const MAX_BINDINGS: usize = 100;
/// Maximum number of guardrail patterns within the 32 MiB compile limit of a release. Each pattern counts as 768 KiB.
const MAX_PATTERNS: usize = 42;

/// A guardrail configuration with `count` short patterns.
async fn guardrails_with_patterns(app: &TestApp, slug: &str, count: usize) -> Version {
    let guardrail = |number| {
        json!({ "id": format!("r{number}"), "detector": "regex", "stage": "input", "action": "mask",
            "reason_code": "listed", "pattern": format!("word{number}") })
    };
    let content = json!({ "guardrails": (0..count).map(guardrail).collect::<Vec<_>>() });
    app.fixtures().asset_with_version("guardrail_config", slug, content).await
}

#[tokio::test]
async fn release_has_at_most_a_hundred_bindings() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let (workload, policy) = (fixtures.workload("main").await, fixtures.allow_all_policy("policy").await);
    let release = fixtures.draft(&workload, &[policy]).await;
    let guardrails = guardrails_with_patterns(&app, "rails", 1).await;
    let mut last_binding = Value::Null;
    for _ in 1..MAX_BINDINGS {
        last_binding = bind(&app, &release, &guardrails).await.expect(201)["binding_id"].clone();
    }
    bind(&app, &release, &guardrails).await.expect_refusal(409, "too_many_bindings");
    let release_view = app.get(format!("/v1/releases/{release}")).await.expect(200);
    assert_eq!(release_view["bindings"].as_array().unwrap().len(), MAX_BINDINGS);
    assert_eq!(unbind(&app, &release, &last_binding).await.status, 204);
    bind(&app, &release, &guardrails).await.expect(201);
}

/// The patterns of all bound contents are added up. A refused release remains an editable draft.
#[tokio::test]
async fn refuses_release_whose_patterns_compile_too_large() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let (workload, policy) = (fixtures.workload("main").await, fixtures.allow_all_policy("policy").await);
    let (max_patterns, one_pattern) =
        (guardrails_with_patterns(&app, "most", MAX_PATTERNS).await, guardrails_with_patterns(&app, "one", 1).await);
    let release = fixtures.draft(&workload, &[policy, max_patterns]).await;
    let excess = bind(&app, &release, &one_pattern).await.expect(201)["binding_id"].clone();
    transition_to(&app, &release, "review_ready").await.expect_refusal(409, "release_too_large");
    assert_eq!(app.get(format!("/v1/releases/{release}")).await.expect(200)["state"], "draft");
    assert_eq!(unbind(&app, &release, &excess).await.status, 204);
    transition_to(&app, &release, "review_ready").await.expect(200);
}

/// The schemas of a tool are counted for each binding of the tool. Each pattern of a schema counts as 512 KiB.
#[tokio::test]
async fn refuses_release_whose_schemas_compile_too_large() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let (workload, policy) = (fixtures.workload("main").await, fixtures.allow_all_policy("policy").await);
    let content = json!({
        "name": "look_up", "binding": { "kind": "http", "ref": "https://api.example.com/orders" },
        "input_schema": { "anyOf": vec![json!({ "pattern": "a{1,9}" }); 33] },
    });
    let tool = fixtures.asset_with_version("tool_definition", "look-up", content).await;
    let release = fixtures.draft(&workload, &[policy, tool.clone()]).await;
    let second_binding = bind(&app, &release, &tool).await.expect(201)["binding_id"].clone();
    transition_to(&app, &release, "review_ready").await.expect_refusal(409, "release_too_large");
    assert_eq!(unbind(&app, &release, &second_binding).await.status, 204);
    transition_to(&app, &release, "review_ready").await.expect(200);
}

#[tokio::test]
async fn refuses_release_whose_plan_exceeds_plan_cache() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.workload("main").await;
    // This tool has half a megabyte of text and a negligible compiled size. A run plan counts as four times its text.
    let schema = json!({ "type": "object", "description": "x".repeat(250 << 10) });
    let content = json!({
        "name": "wordy", "input_schema": schema, "output_schema": schema,
        "annotations": { "read_only": true }, "binding": { "kind": "builtin", "ref": "query_knowledge_base" },
    });
    let tool = fixtures.asset_with_version("tool_definition", "wordy", content).await;
    let mut versions = vec![fixtures.allow_all_policy("policy").await];
    versions.extend(vec![tool.clone(); 17]);
    transition_to(&app, &fixtures.draft(&workload, &versions).await, "review_ready").await.expect(200);
    versions.extend(vec![tool.clone(); 5]);
    let large = fixtures.draft(&workload, &versions).await;
    transition_to(&app, &large, "review_ready").await.expect_refusal(409, "release_too_large");
    assert_eq!(app.get(format!("/v1/releases/{large}")).await.expect(200)["state"], "draft");

    // The policies of hooks are counted as well: 16 MiB for 50 patterns.
    let rule = |number: usize| {
        let condition = format!("lane.matches('^x{number}$')");
        json!({ "id": format!("r{number}"), "condition": condition, "outcome": "deny", "reason_code": "no" })
    };
    let patterns = json!({ "rules": (0..50).map(rule).collect::<Vec<_>>() });
    let mut versions = vec![fixtures.asset_with_version("policy_bundle", "patterns", patterns).await];
    let hook = json!({ "event": "post_llm", "handler": { "type": "policy", "ref": { "slug": "patterns" } } });
    let hook = fixtures.asset_with_version("hook_definition", "hook", hook).await;
    let ready = async |versions: &[Version]| {
        transition_to(&app, &fixtures.draft(&workload, versions).await, "review_ready").await
    };
    ready(&[versions.clone(), vec![hook.clone()]].concat()).await.expect(200);
    versions.extend(vec![tool; 5]);
    ready(&versions).await.expect(200);
    versions.push(hook);
    ready(&versions).await.expect_refusal(409, "release_too_large");
}
