//! Threat T49 in `docs/security.md`: an approval counts only for the release that it names, with the bindings that were
//! reviewed.

use crate::support::workspace_fixture::WORKSPACE;
use fairway_testkit::{
    TestApp,
    app::{Request, Version},
};
use serde_json::{Value, json};

fn review_with(app: &TestApp, release: &str, field: &str, value: Value) -> Request {
    let mut body = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
    body[field] = value;
    app.post(format!("/v1/releases/{release}/approvals"), body)
}

fn approve(app: &TestApp, release: &str) -> Request {
    review_with(app, release, "outcome", json!("approved"))
}

fn transition(app: &TestApp, release: &str, state: &str) -> Request {
    app.post(format!("/v1/releases/{release}/transition"), json!({ "to_state": state }))
}

async fn release_in_review(app: &TestApp, workload: &str, policy: &Version) -> String {
    let release = app.fixtures().draft(workload, std::slice::from_ref(policy)).await;
    transition(app, &release, "review_ready").await.expect(200);
    release
}

#[tokio::test]
async fn approval_requires_its_own_release_and_a_valid_outcome() {
    let app = TestApp::start().await;
    let (workload, policy) = (app.fixtures().workload("main").await, app.fixtures().allow_all_policy("policy").await);
    let (release, other_release) =
        (release_in_review(&app, &workload, &policy).await, release_in_review(&app, &workload, &policy).await);
    for (field, value) in [
        ("subject_ref", json!(other_release)),
        ("subject_ref", json!(workload)),
        ("subject_ref", Value::Null),
        ("subject_kind", json!("use_case")),
        ("subject_kind", json!("Release")),
        ("outcome", json!("Approved")),
        ("outcome", json!("approve")),
        ("outcome", json!("")),
        ("outcome", json!(true)),
    ] {
        let refusal = review_with(&app, &release, field, value.clone()).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], field, "{value}");
    }
    // None of the requests above approved this release. An approval of the other release does not either.
    approve(&app, &other_release).await.expect(201);
    transition(&app, &release, "approved").await.expect_refusal(422, "approval_required");
    transition(&app, &other_release, "approved").await.expect(200);
    assert_eq!(app.get(format!("/v1/releases/{release}/approvals")).await.expect(200), json!([]));
}

#[tokio::test]
async fn only_an_approving_outcome_approves_the_release() {
    let app = TestApp::start().await;
    let (workload, policy) = (app.fixtures().workload("main").await, app.fixtures().allow_all_policy("policy").await);
    let rejected = release_in_review(&app, &workload, &policy).await;
    review_with(&app, &rejected, "outcome", json!("rejected")).await.expect(201);
    transition(&app, &rejected, "approved").await.expect_refusal(422, "approval_required");
    // A later rejection overrides an approval of the same reviewer.
    let reversed_release = release_in_review(&app, &workload, &policy).await;
    approve(&app, &reversed_release).await.expect(201);
    review_with(&app, &reversed_release, "outcome", json!("rejected")).await.expect(201);
    transition(&app, &reversed_release, "approved").await.expect_refusal(422, "approval_required");
    // A request for changes returns the release to draft.
    let returned_release = release_in_review(&app, &workload, &policy).await;
    review_with(&app, &returned_release, "outcome", json!("changes_requested")).await.expect(201);
    assert_eq!(app.get(format!("/v1/releases/{returned_release}")).await.expect(200)["state"], "draft");
    transition(&app, &returned_release, "approved").await.expect_refusal(409, "invalid_transition");
}

#[tokio::test]
async fn changed_bindings_invalidate_the_approval() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let (workload, policy) = (fixtures.workload("main").await, fixtures.allow_all_policy("policy").await);
    let prompt = fixtures.ticket_prompt("prompt").await;
    let bind = |release: &str| {
        let body = json!({ "asset_version_id": prompt.asset_version_id, "role": "prompt_template" });
        app.post(format!("/v1/releases/{release}/bindings"), body)
    };
    let release = release_in_review(&app, &workload, &policy).await;
    approve(&app, &release).await.expect(201);
    // Bindings are immutable once the release is in review.
    bind(&release).await.expect_refusal(409, "release_not_editable");
    let bindings = app.get(format!("/v1/releases/{release}")).await.expect(200)["bindings"].clone();
    let binding = bindings[0]["binding_id"].as_str().unwrap();
    app.delete(format!("/v1/releases/{release}/bindings/{binding}")).await.expect_refusal(409, "release_not_editable");
    // In draft, the bindings can change again. A change invalidates the approval.
    transition(&app, &release, "draft").await.expect(200);
    bind(&release).await.expect(201);
    transition(&app, &release, "review_ready").await.expect(200);
    transition(&app, &release, "approved").await.expect_refusal(422, "approval_required");
    approve(&app, &release).await.expect(201);
    transition(&app, &release, "approved").await.expect(200);
}

#[tokio::test]
async fn approval_excludes_later_releases_and_refused_self_approvals() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let (workload, policy) = (fixtures.workload("main").await, fixtures.allow_all_policy("policy").await);
    let first_release = release_in_review(&app, &workload, &policy).await;
    let approved = approve(&app, &first_release).idempotency_key("verdict").await.expect(201);
    transition(&app, &first_release, "approved").await.expect(200);
    transition(&app, &first_release, "active").await.expect(200);
    // The successor has the same bindings and digest, but still needs its own approval. The idempotency key of the
    // first approval does not apply, because keys are scoped to a release.
    let second_release = release_in_review(&app, &workload, &policy).await;
    transition(&app, &second_release, "approved").await.expect_refusal(422, "approval_required");
    let independent = approve(&app, &second_release).idempotency_key("verdict").await;
    assert_ne!(independent.expect(201)["approval_id"], approved["approval_id"]);
    assert_eq!(independent.header("idempotency-replayed"), None);
    // In an environment that does not allow self-approval, the author of a release cannot approve it.
    let settings = json!({ "min_approvals": 1, "allow_self_approval": false, "pin_documents": false });
    app.put(format!("/v1/workspaces/{WORKSPACE}/environments/dev/settings"), settings).await.expect(200);
    let own_release = release_in_review(&app, &workload, &policy).await;
    approve(&app, &own_release).await.expect_refusal(403, "self_approval_not_allowed");
    transition(&app, &own_release, "approved").await.expect_refusal(422, "approval_required");
    approve(&app, &own_release).as_actor("user:ada").await.expect(201);
    transition(&app, &own_release, "approved").await.expect(200);
}
