//! Dry runs of content: previews of prompts and trials of policies. They decide like versions and runs do, but store
//! nothing.

use crate::{
    audit::audit_log,
    support::{
        resource_measurement::{assert_bounded, measure_polls},
        workspace_fixture::WORKSPACE,
    },
};
use fairway_domain::access::ActorRef;
use fairway_operations::access::{IdentityClaims, IdentityMode};
use fairway_testkit::{
    ArtifactFault, FaultyArtifactStore, ProviderBehaviour, StubProvider, TestApp,
    app::{Request, Response},
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// Tables that a change or a run would write.
const TABLES: [&str; 8] = [
    "asset",
    "asset_version",
    "asset_reference",
    "execution",
    "policy_decision",
    "evidence_artifact",
    "fact",
    "idempotency_key",
];

/// The number of rows in each of [`TABLES`], after every committed fact is sequenced.
async fn row_counts(app: &TestApp) -> Vec<i64> {
    audit_log(app).await;
    let owner = app.database().connect_as_owner().await.unwrap();
    let mut counts = Vec::new();
    for table in TABLES {
        counts.push(owner.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0));
    }
    counts
}

fn preview(app: &TestApp, asset: &str, content: Value, arguments: Value) -> Request {
    app.post(format!("/v1/assets/{asset}/prompt-preview"), json!({ "content": content, "arguments": arguments }))
}

fn try_policy(app: &TestApp, asset: &str, content: &Value, input: Value) -> Request {
    app.post(format!("/v1/assets/{asset}/policy-trial"), json!({ "content": content, "input": input }))
}

/// The detail of a refusal, without its request identifier.
fn detail(response: &Response) -> Value {
    response.json()["detail"].clone()
}

#[tokio::test]
async fn a_preview_is_the_text_that_a_run_sends_and_nothing_is_stored() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("ok".to_owned()));
    let artifacts = FaultyArtifactStore::new(ArtifactFault::None);
    let app = TestApp::builder().provider(provider.clone()).faulty_artifacts(&artifacts).start().await;
    let fixtures = app.fixtures();
    fixtures.asset_with_version("prompt_template", "tone", json!({ "system_prompt": "be kind to {{who}}" })).await;
    fixtures
        .asset_with_version(
            "skill",
            "steps",
            json!({ "name": "steps", "description": "Steps.", "body": "First $arg:who." }),
        )
        .await;
    let content = json!({
        "system_prompt": "@asset-ref:tone @asset-ref:steps $arg:who $arg:count $arg:tags {{free}} !command:go",
        "variables": [{ "name": "who" }, { "name": "count", "type": "number" }, { "name": "tags", "type": "array" }],
        "allowed_commands": ["go"],
    });
    let arguments = json!({ "who": "@asset-ref:tone", "count": 2.5, "tags": ["a", 1], "free": true, "unused": 1 });
    let empty = fixtures.asset_without_versions("prompt_template", "main").await;
    let state_before = (row_counts(&app).await, artifacts.put_count());
    let preview_text = preview(&app, &empty, content.clone(), arguments.clone()).await.expect(200);
    let expected = "be kind to @asset-ref:tone First $arg:who. @asset-ref:tone 2.5 [\"a\",1] true !command:go";
    assert_eq!(preview_text, json!({ "text": expected }));
    // The idempotency key has no effect: the same key renders a different text.
    let replay = preview(&app, &empty, json!({ "system_prompt": "x" }), json!({})).idempotency_key("one").await;
    assert_eq!(replay.expect(200), json!({ "text": "x" }));
    let response = preview(&app, &empty, json!({ "system_prompt": "$arg:x" }), json!({})).await;
    response.expect_refusal(422, "prompt_malformed_token");
    assert_eq!((row_counts(&app).await, artifacts.put_count()), state_before, "{TABLES:?}");

    fixtures.add_version(&empty, content).await;
    let main =
        fixtures.asset_with_version("prompt_template", "other", json!({ "system_prompt": "@asset-ref:tone" })).await;
    let policies = [fixtures.model_policy("model").await, fixtures.allow_all_policy("policy").await];
    let workload =
        fixtures.active_workload_with_bindings("sorter", [&policies[..], std::slice::from_ref(&main)].concat()).await;
    app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": { "who": "all" } })).await.expect(200);
    let sent_prompt = provider.calls().last().unwrap().conversation.system_prompt.clone();
    let content = json!({ "system_prompt": "@asset-ref:tone" });
    let preview_text = preview(&app, &main.asset_id, content, json!({ "who": "all" })).await.expect(200);
    assert_eq!(preview_text["text"], json!(sent_prompt));
}

#[tokio::test]
async fn a_preview_refuses_what_a_version_refuses() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let canary = "canary-of-a-secret";
    fixtures.ticket_prompt("tone").await;
    fixtures.asset_with_version("prompt_template", "outer", json!({ "system_prompt": "see @asset-ref:tone" })).await;
    fixtures.asset_without_versions("prompt_template", "empty").await;
    fixtures.allow_all_policy("policy").await;
    let asset = fixtures.asset_without_versions("prompt_template", "mine").await;
    for (text, code, offset) in [
        ("@asset-ref:missing", "prompt_unknown_asset", 0),
        ("é @asset-ref:tone@v999", "prompt_unknown_asset", 3),
        ("@asset-ref:empty", "prompt_unknown_asset", 0),
        ("é @asset-ref:policy", "prompt_unknown_asset", 3),
        ("@asset-ref:outer", "prompt_nested_reference", 0),
        ("@asset-ref:mine@v1", "prompt_nested_reference", 0),
        ("$arg:undeclared", "prompt_malformed_token", 0),
        ("!command:go", "prompt_command_not_allowed", 0),
    ] {
        let content = json!({ "system_prompt": format!("{text} {canary}") });
        let response = preview(&app, &asset, content.clone(), json!({})).await;
        assert_eq!(response.expect_refusal(422, code)["offset"], offset, "{response}");
        assert!(!response.text().contains(canary), "{response}");
        let created = app.post(format!("/v1/assets/{asset}/versions"), json!({ "content": content })).await;
        assert_eq!(detail(&response), detail(&created), "{text}");
    }
    let invalid = json!({ "system_prompt": 3, "bogus": canary });
    let response = preview(&app, &asset, invalid.clone(), json!({})).await;
    response.expect_refusal(400, "invalid_content");
    let created = app.post(format!("/v1/assets/{asset}/versions"), json!({ "content": invalid })).await;
    assert_eq!(detail(&response), detail(&created));
    assert!(!response.text().contains(canary), "{response}");

    // Cases for arguments. The reported offset is that of the token that needs a value, or of the reference to the
    // prompt with that token.
    let content =
        json!({ "system_prompt": "é $arg:n @asset-ref:tone", "variables": [{ "name": "n", "type": "number" }] });
    for (arguments, code, offset) in [
        (json!({}), "prompt_argument_missing", 3),
        (json!({ "n": canary }), "prompt_argument_type", 3),
        (json!({ "n": 1 }), "prompt_argument_missing", 10),
        (json!({ "n": 1, "ticket": [canary] }), "prompt_argument_type", 10),
    ] {
        let response = preview(&app, &asset, content.clone(), arguments).await;
        assert_eq!(response.expect_refusal(422, code)["offset"], offset, "{response}");
        assert!(!response.text().contains(canary) && !response.text().contains("billing"), "{response}");
    }
    for (content, arguments, path) in [(json!("x"), json!({}), "content"), (json!({}), json!([]), "arguments")] {
        let response = preview(&app, &asset, content, arguments).await.expect_refusal(422, "validation_error");
        assert_eq!(response["fields"][0]["path"], path);
    }
    // The asset is not a prompt template.
    let skill = fixtures.asset_without_versions("skill", "skill").await;
    for response in [
        preview(&app, &skill, json!({ "system_prompt": "x" }), json!({})).await,
        try_policy(&app, &asset, &json!({ "rules": [] }), json!({})).await,
    ] {
        let refusal = response.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["code"], "wrong_asset_kind", "{response}");
    }
}

/// A preview checks the visibility of each included asset for the caller. Otherwise a caller with a grant for one
/// template could read every prompt of its workspace.
#[tokio::test]
async fn a_preview_shows_only_included_assets_that_the_caller_sees() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let (own_workspace, other_workspace) =
        (fixtures.workspace("here", "here").await, fixtures.workspace("there", "there").await);
    let workspace_fixtures = fixtures.in_workspace(&own_workspace);
    let visible_prompt = workspace_fixtures.ticket_prompt("shown").await;
    workspace_fixtures.asset_with_version("prompt_template", "hidden", json!({ "system_prompt": "a secret" })).await;
    workspace_fixtures
        .asset_with_version("prompt_template", "nested", json!({ "system_prompt": "@asset-ref:hidden" }))
        .await;
    fixtures.bind_role("user:ada", "viewer", "workspace", Some(&other_workspace)).await;
    for workspace in [&own_workspace, &other_workspace] {
        fixtures.bind_role("user:both", "viewer", "workspace", Some(workspace)).await;
    }
    let grants = format!("/v1/assets/{}/grants?workspace_id={own_workspace}", visible_prompt.asset_id);
    app.post(&grants, json!({ "principal": "user:ada" })).await.expect(201);
    let ask = |slug: &str, actor: &str, workspace: Option<&str>| {
        let query = workspace.map(|workspace_id| format!("?workspace_id={workspace_id}")).unwrap_or_default();
        let body = json!({ "content": { "system_prompt": format!("@asset-ref:{slug}") }, "arguments": {} });
        app.post(format!("/v1/assets/{}/prompt-preview{query}", visible_prompt.asset_id), body).as_actor(actor)
    };
    for workspace_id in [None, Some(own_workspace.as_str()), Some(other_workspace.as_str())] {
        // For a hidden asset, the response does not show whether it exists, includes other assets, or is unknown.
        let responses = [ask("hidden", "user:ada", workspace_id).await, ask("nested", "user:ada", workspace_id).await];
        let unknown = ask("unknown", "user:ada", workspace_id).await;
        unknown.expect_refusal(422, "prompt_unknown_asset");
        for response in responses {
            assert_eq!(detail(&response), detail(&unknown), "{response}");
        }
    }
    for workspace_id in [None, Some(own_workspace.as_str())] {
        assert_eq!(ask("hidden", "user:both", workspace_id).await.expect(200)["text"], "a secret");
    }
    ask("hidden", "user:both", Some(&other_workspace)).await.expect_refusal(404, "not_found");
    // The caller sees both assets, but this workspace sees only the template. The refusal therefore says that the
    // asset is in another workspace.
    app.post(&grants, json!({ "grantee_workspace_id": other_workspace })).await.expect(201);
    ask("hidden", "user:both", Some(&other_workspace)).await.expect_refusal(422, "prompt_cross_workspace");
    ask("hidden", "user:ada", Some(&other_workspace)).await.expect_refusal(422, "prompt_unknown_asset");
}

#[tokio::test]
async fn a_trial_explains_the_decision_rule_by_rule_and_nothing_is_stored() {
    let artifacts = FaultyArtifactStore::new(ArtifactFault::None);
    let app = TestApp::builder().faulty_artifacts(&artifacts).start().await;
    let policy = app.fixtures().allow_all_policy("policy").await.asset_id;
    let rule = |id: &str, condition: &str, outcome: &str| json!({ "id": id, "condition": condition, "outcome": outcome, "reason_code": id });
    let mut reviewed = rule("reviewed", "inputs.n > 5", "allow_with_obligations");
    reviewed["obligations"] = json!(["human_review"]);
    let content = json!({
        "rules": [rule("dev", "environment == \"dev\" && inputs.n > 9", "deny"), reviewed],
        // A trial accepts a bundle whose tests fail, because authors use trials to find the cause.
        "tests": [{ "name": "t", "input": { "inputs": { "n": 1 } }, "expect": { "outcome": "allow" } }],
    });
    let state_before = (row_counts(&app).await, artifacts.put_count());
    let decision =
        try_policy(&app, &policy, &content, json!({ "environment": "dev", "inputs": { "n": 7 } })).await.expect(200);
    let clause = |source: &str, holds: &str, missing: Value| json!({ "source": source, "holds": holds, "missing_field": missing });
    let dev = |holds: &str, second_condition: Value| {
        json!({
            "rule": "dev", "holds": holds, "outcome": "deny", "reason_code": "dev", "operator": "&&",
            "clauses": [clause("environment == \"dev\"", "yes", Value::Null), second_condition],
        })
    };
    assert_eq!(
        decision,
        json!({
            "decision": {
                "outcome": "allow_with_obligations", "reason_code": "reviewed", "obligations": ["human_review"],
                "matched_rules": ["reviewed"], "failed_rules": [],
            },
            "rules": [dev("no", clause("inputs.n > 9", "no", Value::Null)), {
                "rule": "reviewed", "holds": "yes", "outcome": "allow_with_obligations", "reason_code": "reviewed",
                "operator": null, "clauses": [clause("inputs.n > 5", "yes", Value::Null)],
            }],
        })
    );
    let failed = try_policy(&app, &policy, &content, json!({ "environment": "dev" })).await.expect(200);
    assert_eq!(failed["decision"]["reason_code"], "policy_evaluation_error");
    let failure = |rule: &str| json!({ "rule": rule, "missing_field": "n" });
    assert_eq!(failed["decision"]["failed_rules"], json!([failure("dev"), failure("reviewed")]));
    assert_eq!(failed["rules"][0], dev("failed", clause("inputs.n > 9", "failed", json!("n"))));
    let canary = "canary-of-a-secret";
    for invalid_input in [json!({ "input": canary }), json!({ "inputs": { "n": 9_007_199_254_740_993_i64 } })] {
        let response = try_policy(&app, &policy, &content, invalid_input).await;
        let refusal = response.expect_refusal(422, "validation_error");
        let field = (&refusal["fields"][0]["path"], &refusal["fields"][0]["code"]);
        assert_eq!(field, (&json!("input"), &json!("invalid_policy_input")), "{response}");
        assert!(!response.text().contains(canary), "{response}");
    }
    // A trial refuses a bundle that is invalid as a version.
    let invalid = json!({ "rules": [rule("a", &format!("1 + {canary}"), "allow"), rule("a", "inputs.n", "allow")] });
    let response = try_policy(&app, &policy, &invalid, json!({})).await;
    response.expect_refusal(400, "invalid_content");
    let created = app.post(format!("/v1/assets/{policy}/versions"), json!({ "content": invalid })).await;
    assert_eq!(detail(&response), detail(&created));
    assert_eq!((row_counts(&app).await, artifacts.put_count()), state_before, "{TABLES:?}");
    let listed = app.get(format!("/v1/assets/{policy}/versions?workspace_id={WORKSPACE}")).await.expect(200);
    assert_eq!(listed.as_array().unwrap().len(), 1);
}

/// Content and input of a dry run are untrusted. They use bounded time and memory, on the blocking pool (threats T12
/// and T13 in `docs/security.md`).
#[tokio::test]
async fn heavy_dry_runs_are_bounded_and_do_not_block_the_thread() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let policy = fixtures.allow_all_policy("policy").await.asset_id;
    let costly = "inputs.list.exists(x, inputs.list.exists(y, x == y + 1000))";
    let rule = |index: usize| {
        let condition = format!("{costly} || {costly}");
        json!({ "id": format!("r{index}"), "condition": condition, "outcome": "allow", "reason_code": "x" })
    };
    let content = json!({ "rules": (0..200).map(rule).collect::<Vec<_>>() });
    // The estimate counts every value of the input, so a few rules exhaust the permitted steps.
    let numbers: Vec<usize> = (0..45).collect();
    let input = json!({ "inputs": { "list": numbers, "unread": numbers } });
    let decision =
        assert_bounded("a costly policy", try_policy(&app, &policy, &content, input.clone())).await.expect(200);
    assert_eq!(decision["rules"].as_array().unwrap().len(), 200);

    let asset = fixtures.asset_without_versions("prompt_template", "mine").await;
    let repeated = json!({ "system_prompt": "$arg:x ".repeat(9_000), "variables": [{ "name": "x" }] });
    let long_arguments = json!({ "x": "y".repeat(1 << 20) });
    let response = assert_bounded("a long rendering", preview(&app, &asset, repeated, long_arguments)).await;
    response.expect_refusal(422, "prompt_too_large");

    let claims = IdentityClaims { actor: ActorRef::parse("user:local").unwrap(), groups: Vec::new(), tenant: None };
    let services = app.services();
    let caller =
        services.identities.resolve_caller(IdentityMode::Local, &claims, Uuid::from_u128(1).into()).await.unwrap();
    let id = policy.parse::<Uuid>().unwrap().into();
    let (decision, longest_poll, took) =
        measure_polls(services.assets.try_policy(&caller, id, None, content, input)).await;
    assert_eq!(decision.unwrap().rules.len(), 200);
    assert!(longest_poll < took / 2, "the thread was blocked for {longest_poll:?} of {took:?}");
    let id = asset.parse::<Uuid>().unwrap().into();
    let content = json!({ "system_prompt": "@!${".repeat(500_000) });
    let (text, longest_poll, took) =
        measure_polls(services.assets.preview_prompt(&caller, id, None, content, Map::new())).await;
    assert_eq!(text.unwrap().len(), 2_000_000);
    assert!(longest_poll < took / 2, "the thread was blocked for {longest_poll:?} of {took:?}");
}
