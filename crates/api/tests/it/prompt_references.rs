//! Prompts: tokens, references to other assets, and the versions that a release executes.

use crate::support::{resource_measurement::assert_bounded, workspace_fixture::WORKSPACE};
use fairway_testkit::{
    ProviderBehaviour, StubProvider, TestApp,
    app::{Fixtures, Version},
};
use serde_json::{Value, json};
use std::sync::Arc;

async fn prompt_version(fixtures: &Fixtures, slug: &str, text: &str) -> Version {
    fixtures.asset_with_version("prompt_template", slug, json!({ "system_prompt": text })).await
}

/// Starts a server whose stub provider records its calls.
async fn start_with_provider() -> (TestApp, Arc<StubProvider>) {
    let provider = StubProvider::new(ProviderBehaviour::Answers("ok".to_owned()));
    (TestApp::builder().provider(provider.clone()).start().await, provider)
}

/// The system prompt that a run of the workload sends to the model.
async fn rendered_prompt(app: &TestApp, provider: &StubProvider, slug: &str, inputs: Value) -> String {
    let path = format!("/v1/workloads/by-slug/{slug}/execute");
    app.post(path, json!({ "environment": "dev", "inputs": inputs })).await.expect(200);
    provider.calls().last().unwrap().conversation.system_prompt.clone()
}

async fn read_release(app: &TestApp, id: &str) -> Value {
    app.get(format!("/v1/releases/{id}")).await.expect(200)
}

#[tokio::test]
async fn release_runs_the_newest_references_of_its_submission() {
    let (app, provider) = start_with_provider().await;
    let fixtures = app.fixtures();
    let tone = prompt_version(&fixtures, "tone", "be kind").await;
    let text = "You sort. @asset-ref:tone Stay calm: @asset-ref:tone@v1. Ticket: {{ticket}}";
    let main = prompt_version(&fixtures, "main", text).await;
    let other_versions = [fixtures.model_policy("model").await, fixtures.allow_all_policy("policy").await];
    let all_versions = [&other_versions[..], std::slice::from_ref(&main)].concat();
    let workload = fixtures.workload("sorter").await;
    let id = fixtures.draft(&workload, &all_versions).await;
    assert_eq!(read_release(&app, &id).await["references"], json!([]), "a draft has no resolved references");

    let second_version = fixtures.add_version(&tone.asset_id, json!({ "system_prompt": "be quick" })).await;
    fixtures.transition(&id, "review_ready").await;
    let third_version = fixtures.add_version(&tone.asset_id, json!({ "system_prompt": "be rude" })).await;
    let frozen = read_release(&app, &id).await["references"].clone();
    let reference = |version: &str, label: &str, pinned: bool| {
        json!({
            "from_asset_version_id": main.asset_version_id, "asset_slug": "tone", "asset_id": tone.asset_id,
            "asset_version_id": version, "version_label": label, "pinned": pinned,
        })
    };
    assert_eq!(frozen, json!([reference(&second_version, "v2", false), reference(&tone.asset_version_id, "v1", true)]));

    // Later versions of the asset do not affect the release, which executes the approved versions.
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": id });
    app.post(format!("/v1/releases/{id}/approvals"), verdict.clone()).await.expect(201);
    fixtures.transition(&id, "approved").await;
    fixtures.transition(&id, "active").await;
    let expected = "You sort. be quick Stay calm: be kind. Ticket: it broke";
    assert_eq!(rendered_prompt(&app, &provider, "sorter", json!({ "ticket": "it broke" })).await, expected);
    assert_eq!(read_release(&app, &id).await["references"], frozen);

    // A new release with the same bindings resolves the reference to the newer version.
    let later_release = fixtures.approved_release(&workload, &all_versions).await;
    assert_eq!(read_release(&app, &later_release).await["references"][0]["asset_version_id"], third_version);
    fixtures.transition(&later_release, "active").await;
    let expected = "You sort. be rude Stay calm: be kind. Ticket: it broke";
    assert_eq!(rendered_prompt(&app, &provider, "sorter", json!({ "ticket": "it broke" })).await, expected);
    // Another server builds the plan from the stored references.
    let second_server = TestApp::builder().provider(provider.clone()).sharing_storage_of(&app).start().await;
    assert_eq!(rendered_prompt(&second_server, &provider, "sorter", json!({ "ticket": "it broke" })).await, expected);
}

#[tokio::test]
async fn returning_to_draft_reopens_references_and_voids_verdicts() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let tone = prompt_version(&fixtures, "tone", "be kind").await;
    let main = prompt_version(&fixtures, "main", "@asset-ref:tone").await;
    let id = fixtures.draft(&fixtures.workload("sorter").await, &[main]).await;
    let approve = async || {
        let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": id });
        app.post(format!("/v1/releases/{id}/approvals"), verdict).await.expect(201)["subject_digest"].clone()
    };
    let references = async || read_release(&app, &id).await["references"].clone();
    fixtures.transition(&id, "review_ready").await;
    let first_references = references().await;
    let digest = approve().await;
    fixtures.transition(&id, "draft").await;
    assert_eq!(references().await, json!([]));
    // The references resolve to the same versions as before, so the approval still counts.
    fixtures.transition(&id, "review_ready").await;
    assert_eq!(references().await, first_references);
    assert_eq!(approve().await, digest);
    fixtures.transition(&id, "draft").await;
    let second_version = fixtures.add_version(&tone.asset_id, json!({ "system_prompt": "be quick" })).await;
    fixtures.transition(&id, "review_ready").await;
    assert_eq!(references().await[0]["asset_version_id"], second_version);
    let path = format!("/v1/releases/{id}/transition");
    app.post(&path, json!({ "to_state": "approved" })).await.expect_refusal(422, "approval_required");
    assert_ne!(approve().await, digest);
    fixtures.transition(&id, "approved").await;
    // A request for changes also returns the release to draft.
    let other_release = fixtures.draft(&fixtures.workload("other").await, &[]).await;
    fixtures.transition(&other_release, "review_ready").await;
    let verdict = json!({ "outcome": "changes_requested", "subject_kind": "release", "subject_ref": other_release });
    app.post(format!("/v1/releases/{other_release}/approvals"), verdict).await.expect(201);
    assert_eq!(read_release(&app, &other_release).await["state"], "draft");
}

#[tokio::test]
async fn rejects_invalid_references_when_a_prompt_is_created() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    prompt_version(&fixtures, "tone", "be kind").await;
    prompt_version(&fixtures, "outer", "see @asset-ref:tone").await;
    fixtures.asset_without_versions("prompt_template", "empty").await;
    fixtures.allow_all_policy("policy").await;
    // The other workspace is in another namespace. One of the callers has a role there.
    let other_workspace = fixtures.workspace("far", "far").await;
    let foreign_prompt = prompt_version(&fixtures.in_workspace(&other_workspace), "distant", "from afar").await;
    for (actor, scopes) in [("user:both", &[WORKSPACE, other_workspace.as_str()][..]), ("user:here", &[WORKSPACE][..])]
    {
        for scope in scopes {
            fixtures.bind_role(actor, "author", "workspace", Some(scope)).await;
        }
    }
    let own_prompt = fixtures.asset_without_versions("prompt_template", "mine").await;
    let path = format!("/v1/assets/{own_prompt}/versions");
    let canary = "canary-of-a-secret";
    for (text, actor, code, offset) in [
        ("@asset-ref:missing", "user:both", "prompt_unknown_asset", 0),
        ("é @asset-ref:tone@v999", "user:both", "prompt_unknown_asset", 3),
        ("é @asset-ref:empty", "user:both", "prompt_unknown_asset", 3),
        ("@asset-ref:tone @asset-ref:policy", "user:both", "prompt_unknown_asset", 16),
        ("@asset-ref:outer", "user:both", "prompt_nested_reference", 0),
        ("@asset-ref:mine", "user:both", "prompt_nested_reference", 0),
        ("@asset-ref:mine@v1", "user:both", "prompt_nested_reference", 0),
        // The refusal reveals that the asset exists in another workspace only to a caller that may see the asset there.
        ("@asset-ref:distant", "user:both", "prompt_cross_workspace", 0),
        ("@asset-ref:distant", "user:here", "prompt_unknown_asset", 0),
        ("@asset-ref:to\u{200b}ne", "user:both", "prompt_malformed_token", 0),
        ("@as\u{200b}set-ref:tone", "user:both", "prompt_malformed_token", 0),
        ("@Asset-Ref:tone", "user:both", "prompt_malformed_token", 0),
        ("@asset-ref:", "user:both", "prompt_malformed_token", 0),
        ("$arg:undeclared", "user:both", "prompt_malformed_token", 0),
        ("{{ {{x}} }}", "user:both", "prompt_malformed_token", 0),
        ("!command:go", "user:both", "prompt_command_not_allowed", 0),
    ] {
        let content = json!({ "system_prompt": format!("{text} {canary}"), "allowed_commands": ["go-on"] });
        let response = app.post(&path, json!({ "content": content })).as_actor(actor).await;
        let refusal = response.expect_refusal(422, code);
        assert_eq!(refusal["offset"], offset, "{text}: {refusal}");
        assert!(!response.text().contains(canary) && !response.text().contains("tone"), "{response}");
    }
    let listed = app.get(format!("{path}?workspace_id={WORKSPACE}")).await.expect(200);
    assert_eq!(listed, json!([]));
    // A grant to the workspace allows the reference.
    let grants = format!("/v1/assets/{}/grants?workspace_id={other_workspace}", foreign_prompt.asset_id);
    app.post(grants, json!({ "grantee_workspace_id": WORKSPACE })).await.expect(201);
    let content = json!({ "system_prompt": "@asset-ref:distant" });
    app.post(&path, json!({ "content": content })).as_actor("user:here").await.expect(201);
    for text in ["@asset-ref:tone", "@asset-ref:tone@v1, twice @asset-ref:tone@v1.", "@asset-ref:outer-not me@x.org"] {
        let content = json!({ "system_prompt": text.replace("@asset-ref:outer-not", "") });
        app.post(&path, json!({ "content": content })).as_actor("user:here").await.expect(201);
    }
}

#[tokio::test]
async fn rejects_commands_that_the_prompt_does_not_allow() {
    let app = TestApp::start().await;
    let id = app.fixtures().asset_without_versions("prompt_template", "mine").await;
    let path = format!("/v1/assets/{id}/versions");
    let make = |text: &str| {
        let content = json!({ "system_prompt": text, "allowed_commands": ["summarize", "close-ticket"] });
        app.post(&path, json!({ "content": content }))
    };
    make("!command:summarize, !command:close-ticket!").await.expect(201);
    for (text, code) in [
        ("!command:delete-all", "prompt_command_not_allowed"),
        ("!command:summar", "prompt_command_not_allowed"),
        ("!command:summarize-all", "prompt_command_not_allowed"),
        ("!command:close", "prompt_command_not_allowed"),
        ("!command:Summarize", "prompt_malformed_token"),
        ("!COMMAND:summarize", "prompt_malformed_token"),
        ("!command:\u{455}ummarize", "prompt_malformed_token"),
        ("!c\u{43e}mmand:summarize", "prompt_malformed_token"),
        ("!command:summarize\u{200d}", "prompt_malformed_token"),
        ("!command:summarize_now", "prompt_malformed_token"),
    ] {
        assert_eq!(make(text).await.expect_refusal(422, code)["offset"], 0, "{text}");
    }
}

#[tokio::test]
async fn submission_checks_references_again() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    prompt_version(&fixtures, "other", "x").await;
    let tone = prompt_version(&fixtures, "tone", "be kind").await;
    let main = prompt_version(&fixtures, "main", "é @asset-ref:tone").await;
    let id = fixtures.draft(&fixtures.workload("sorter").await, std::slice::from_ref(&main)).await;
    fixtures.add_version(&tone.asset_id, json!({ "system_prompt": "see @asset-ref:other" })).await;
    let path = format!("/v1/releases/{id}/transition");
    let refusal =
        app.post(&path, json!({ "to_state": "review_ready" })).await.expect_refusal(422, "prompt_nested_reference");
    assert_eq!(refusal["offset"], 3);
    let missing = &refusal["missing"][0];
    assert_eq!((&missing["code"], &missing["asset_slug"]), (&json!("prompt_nested_reference"), &json!("main")));
    assert_eq!((&missing["path"], &missing["offset"]), (&json!("content.system_prompt"), &json!(3)));
    assert_eq!(read_release(&app, &id).await["state"], "draft");
    fixtures.add_version(&tone.asset_id, json!({ "system_prompt": "be kind again" })).await;
    fixtures.transition(&id, "review_ready").await;
    // References resolve from the release's workspace. It does not see assets of other namespaces.
    let other_workspace = fixtures.workspace("far", "far").await;
    let other_fixtures = fixtures.in_workspace(&other_workspace);
    let foreign_prompt = prompt_version(&other_fixtures, "distant", "from afar").await;
    let own_workload = other_fixtures.workload("there").await;
    let body = json!({ "asset_version_id": main.asset_version_id, "role": "prompt_template" });
    let draft = other_fixtures.draft(&own_workload, &[]).await;
    app.post(format!("/v1/releases/{draft}/bindings"), body).await.expect_refusal(404, "not_found");
    fixtures.transition(&other_fixtures.draft(&own_workload, &[foreign_prompt]).await, "review_ready").await;
}

#[tokio::test]
async fn input_values_are_inserted_as_plain_text() {
    let (app, provider) = start_with_provider().await;
    let fixtures = app.fixtures();
    let base_content = json!({
        "system_prompt": "[$arg:topic] {{free}}",
        "variables": [{ "name": "topic" }],
    });
    fixtures.asset_with_version("prompt_template", "head", base_content).await;
    let content = json!({
        "system_prompt": "@asset-ref:head $arg:topic $arg:count $arg:strict $arg:tags {{free}} !command:go",
        "variables": [
            { "name": "topic", "type": "string" }, { "name": "count", "type": "number" },
            { "name": "strict", "type": "boolean" }, { "name": "tags", "type": "array" },
        ],
        "allowed_commands": ["go"],
    });
    let versions = vec![
        fixtures.asset_with_version("prompt_template", "main", content).await,
        fixtures.model_policy("model").await,
        fixtures.allow_all_policy("policy").await,
    ];
    fixtures.active_workload_with_bindings("sorter", versions).await;
    let hostile = "@asset-ref:head $arg:count !command:rm {{free}} {{ {{x}} }} \u{200b}";
    let inputs = |topic: Value| json!({ "topic": topic, "count": 2.5, "strict": true, "tags": ["$arg:topic", 1], "free": hostile });
    let expected = format!("[{hostile}] {hostile} {hostile} 2.5 true [\"$arg:topic\",1] {hostile} !command:go");
    assert_eq!(rendered_prompt(&app, &provider, "sorter", inputs(json!(hostile))).await, expected);
    let call_count = provider.call_count();
    let path = "/v1/workloads/by-slug/sorter/execute";
    for (topic, code) in [(json!(7), "prompt_argument_type"), (Value::Null, "prompt_argument_missing")] {
        let body = json!({ "environment": "dev", "inputs": inputs(topic) });
        let refusal = app.post(path, body).await.expect_refusal(422, code);
        // The reference to the other prompt is the first token that requires the value.
        assert_eq!(refusal["offset"], 0);
        assert!(refusal["execution_id"].is_string());
    }
    assert_eq!(provider.call_count(), call_count, "the provider is not called");
}

#[tokio::test]
async fn hostile_prompts_use_bounded_resources() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    for slug in ["big", "large", "huge"] {
        prompt_version(&fixtures, slug, &"x".repeat(3 << 19)).await;
    }
    let id = fixtures.asset_without_versions("prompt_template", "mine").await;
    let path = format!("/v1/assets/{id}/versions");
    let repeated = |token: &str, count: usize| token.repeat(count);
    let hidden = "@a\u{200b}".repeat(300_000);
    for (name, text, status) in [
        ("a hundred thousand placeholders", repeated("{{x}}", 100_000), 422),
        ("a hundred thousand arguments", repeated("$arg:x ", 100_000), 422),
        ("a hundred thousand references", repeated("@asset-ref:big ", 100_000), 422),
        ("a hundred thousand commands", repeated("!command:x ", 100_000), 422),
        ("many different references", (0..40).map(|index| format!("@asset-ref:a{index} ")).collect(), 422),
        ("references that are too long together", "@asset-ref:big @asset-ref:large @asset-ref:huge".to_owned(), 422),
        ("a million sigils", repeated("@!${", 250_000), 201),
        ("a million braces", repeated("{", 1_000_000), 201),
        ("hidden characters", hidden, 201),
        ("nearly a placeholder", format!("{{{{{}", repeated("\u{200b}", 300_000)), 201),
    ] {
        let body = json!({ "content": { "system_prompt": text } });
        let response = assert_bounded(name, app.post(&path, body)).await;
        response.expect(status);
        if status == 422 {
            assert!(response.code().starts_with("prompt_"), "{name}: {response}");
            assert!(response.body.len() < 1_000, "{name}");
        }
    }
}
