//! References between assets of every kind. Submitting a release resolves and freezes them transitively.

use crate::support::workspace_fixture::WORKSPACE;
use fairway_testkit::{ProviderBehaviour, StubProvider, TestApp};
use serde_json::{Value, json};
use std::{fs, future::IntoFuture, path::Path};

fn example_content(kind: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/assets/{kind}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test]
async fn freezes_transitive_references() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let agent = json!({
        "name": "Support", "instructions": "Solve it.",
        "model_policy_ref": { "slug": "models", "version": "v1" }, "skills": [{ "slug": "triage" }],
    });
    let agent = fixtures.asset_with_version("agent", "support", agent).await;
    let release = fixtures.draft(&fixtures.workload("desk").await, std::slice::from_ref(&agent)).await;
    let path = format!("/v1/releases/{release}/transition");
    let submit = || app.post(&path, json!({ "to_state": "review_ready" }));
    // The refusal lists every unresolved reference with its path.
    let refusal = submit().await.expect_refusal(422, "reference_unresolved");
    let missing: Vec<_> = refusal["missing"].as_array().unwrap().iter().map(|reference| &reference["path"]).collect();
    assert_eq!(missing, ["content.model_policy_ref", "content.skills[0]"]);
    assert!(refusal["missing"].as_array().unwrap().iter().all(|reference| reference["asset_slug"] == "support"));

    let models = fixtures.model_policy("models").await;
    let mut skill = json!({ "name": "triage", "description": "Sorts.", "body": "Read it.", "license": "MIT" });
    skill["sandbox_profile_ref"] = json!({ "slug": "sandbox" });
    let triage = fixtures.asset_with_version("skill", "triage", skill.clone()).await;
    // The skill now exists, but a reference in the skill does not resolve.
    let refusal = submit().await.expect_refusal(422, "reference_unresolved");
    assert_eq!(refusal["missing"].as_array().unwrap().len(), 1, "{refusal}");
    let open_reference = &refusal["missing"][0];
    assert_eq!(
        (&open_reference["asset_slug"], &open_reference["path"]),
        (&json!("triage"), &json!("content.sandbox_profile_ref"))
    );
    let sandbox = fixtures.asset_with_version("sandbox_profile", "sandbox", example_content("sandbox_profile")).await;
    submit().await.expect(200);

    let frozen = || async { app.get(format!("/v1/releases/{release}")).await.expect(200)["references"].clone() };
    let references_before = frozen().await;
    let mut resolved: Vec<(String, String, String)> = references_before
        .as_array()
        .unwrap()
        .iter()
        .map(|reference| {
            let text = |name: &str| reference[name].as_str().unwrap().to_owned();
            (text("asset_slug"), text("from_asset_version_id"), text("asset_version_id"))
        })
        .collect();
    resolved.sort();
    let expected = [("models", &agent, &models), ("sandbox", &triage, &sandbox), ("triage", &agent, &triage)];
    let expected = expected.map(|(slug, source, target)| {
        (slug.to_owned(), source.asset_version_id.clone(), target.asset_version_id.clone())
    });
    assert_eq!(resolved, expected);
    // A newer version does not change the frozen references.
    fixtures.add_version(&triage.asset_id, skill).await;
    assert_eq!(frozen().await, references_before);
}

/// The response of a transition describes the release that the next read returns.
#[tokio::test]
async fn transition_returns_the_release_as_it_is_read() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    fixtures.asset_with_version("prompt_template", "text", json!({ "system_prompt": "Be brief." })).await;
    let agent = fixtures
        .asset_with_version("agent", "short", json!({ "name": "Short", "prompt_ref": { "slug": "text" } }))
        .await;
    let release = fixtures.draft(&fixtures.workload("hall").await, &[agent]).await;
    let path = format!("/v1/releases/{release}");
    for (state, references) in [("review_ready", 1), ("draft", 0), ("review_ready", 1), ("retired", 1)] {
        let transitioned = app.post(format!("{path}/transition"), json!({ "to_state": state })).await.expect(200);
        assert_eq!(transitioned["references"].as_array().unwrap().len(), references, "{transitioned}");
        let release_view = app.get(&path).await.expect(200);
        let differing: Vec<_> = release_view
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, value)| transitioned[name.as_str()] != **value)
            .collect();
        assert!(differing.is_empty(), "{differing:?} instead of {transitioned}");
    }
}

/// A referenced asset can be visible and active but still have the wrong kind.
#[tokio::test]
async fn reference_to_a_wrong_kind_blocks_submission() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let text = json!({ "slug": "text" });
    let agent = json!({
        "name": "Support", "prompt_ref": text, "model_policy_ref": text, "tools": [text], "memory_ref": text,
    });
    let agent = fixtures.asset_with_version("agent", "support", agent).await;
    fixtures.asset_with_version("prompt_template", "text", json!({ "system_prompt": "Be brief." })).await;
    let release = fixtures.draft(&fixtures.workload("desk").await, std::slice::from_ref(&agent)).await;
    let path = format!("/v1/releases/{release}");
    let submit = || app.post(format!("{path}/transition"), json!({ "to_state": "review_ready" }));
    let gates = || async { app.get(format!("{path}/gates")).await.expect(200) };

    let refusal = submit().await.expect_refusal(422, "reference_unresolved");
    let paths: Vec<_> = refusal["missing"].as_array().unwrap().iter().map(|reference| &reference["path"]).collect();
    assert_eq!(paths, ["content.memory_ref", "content.model_policy_ref", "content.tools[0]"], "{refusal}");
    let blocked = gates().await;
    let blocked: Vec<_> = blocked.as_array().unwrap().iter().filter(|gate| gate["gate"] == "references").collect();
    assert!(!blocked.is_empty());
    assert!(blocked.iter().all(|gate| gate["code"] == "reference_unresolved"), "{blocked:?}");

    // A reference to an asset of the right kind does not block the submission.
    let agent = json!({ "name": "Short", "prompt_ref": text });
    let agent = fixtures.asset_with_version("agent", "short", agent).await;
    let release = fixtures.draft(&fixtures.workload("hall").await, &[agent]).await;
    fixtures.transition(&release, "review_ready").await;
}

/// The same reference occurs twice in a content. A new version appears between the two resolutions.
#[tokio::test]
async fn equal_references_resolve_to_one_version_under_concurrent_changes() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let agent = |name: &str| json!({ "name": name, "instructions": "Solve it." });
    let helper = fixtures.asset_with_version("agent", "helper", agent("Helper")).await;
    // To resolve an asset of another workspace, the server reads its grants. The test blocks this read with a lock.
    let other_workspace = fixtures.workspace("elsewhere", "elsewhere").await;
    let far_agent = fixtures.in_workspace(&other_workspace).asset_with_version("agent", "far", agent("Far")).await;
    let grants = format!("/v1/assets/{}/grants?workspace_id={other_workspace}", far_agent.asset_id);
    app.post(grants, json!({ "grantee_workspace_id": WORKSPACE })).await.expect(201);
    let mut lead_content = agent("Lead");
    lead_content["sub_agents"] = json!([
        { "ref": { "slug": "helper" } }, { "ref": { "slug": "far" } }, { "ref": { "slug": "helper" } },
    ]);
    let lead_agent = fixtures.asset_with_version("agent", "lead", lead_content).await;
    let release = fixtures.draft(&fixtures.workload("desk").await, std::slice::from_ref(&lead_agent)).await;

    let owner = app.database().connect_as_owner().await.unwrap();
    owner.batch_execute("BEGIN; LOCK TABLE asset_grant").await.unwrap();
    let observer = app.database().connect_as_owner().await.unwrap();
    let path = format!("/v1/releases/{release}");
    let submitted = app.post(format!("{path}/transition"), json!({ "to_state": "review_ready" }));
    let commit_when_blocked = async {
        let waiting_sql =
            "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'asset_grant'::regclass AND NOT granted)";
        while !observer.query_one(waiting_sql, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::task::yield_now().await;
        }
        fixtures.add_version(&helper.asset_id, agent("Helper of tomorrow")).await;
        owner.batch_execute("COMMIT").await.unwrap();
    };
    let (submitted, ()) = tokio::join!(submitted.into_future(), commit_when_blocked);
    submitted.expect(200);

    let read_release = || async { app.get(&path).await.expect(200) };
    let references = read_release().await["references"].clone();
    let resolved = references.as_array().unwrap().iter();
    let resolved: Vec<_> = resolved.filter(|reference| reference["asset_slug"] == "helper").collect();
    assert_eq!(resolved.len(), 1, "{references}");
    assert_eq!(resolved[0]["asset_version_id"], json!(helper.asset_version_id));
    // One approval is sufficient, because the content is the same at approval and at submission.
    app.post(
        format!("{path}/approvals"),
        json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release }),
    )
    .await
    .expect(201);
    app.post(format!("{path}/transition"), json!({ "to_state": "approved" })).await.expect(200);
}

#[tokio::test]
async fn skill_body_is_inserted_into_a_prompt_verbatim() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("ok".to_owned()));
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let fixtures = app.fixtures();
    let body = "Use {{topic}}, $arg:topic and !command:anything as they stand.";
    let skill = json!({ "name": "style", "description": "How to write.", "body": body });
    fixtures.asset_with_version("skill", "style", skill).await;
    let nested = json!({ "name": "nested", "description": "Includes more.", "body": "see @asset-ref:style" });
    fixtures.asset_with_version("skill", "nested", nested).await;
    let prompt = |text: &str| json!({ "system_prompt": text, "variables": [{ "name": "topic" }] });
    let main = fixtures.asset_with_version("prompt_template", "main", prompt("$arg:topic: @asset-ref:style")).await;
    let path = format!("/v1/assets/{}/versions", main.asset_id);
    let response = app.post(&path, json!({ "content": prompt("@asset-ref:nested") })).await;
    response.expect_refusal(422, "prompt_nested_reference");
    let versions = vec![main, fixtures.model_policy("model").await, fixtures.allow_all_policy("policy").await];
    let workload = fixtures.active_workload_with_bindings("writer", versions).await;
    let run = json!({ "environment": "dev", "inputs": { "topic": "cats" } });
    app.post(workload.execute_path(), run).await.expect(200);
    assert_eq!(provider.calls()[0].conversation.system_prompt, format!("cats: {body}"));
}
