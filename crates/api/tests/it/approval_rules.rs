//! Environment settings and the approval rules that follow from them.

use crate::support::workspace_fixture::WORKSPACE;
use fairway_testkit::{TestApp, app::Response};
use serde_json::{Value, json};

fn settings_path(environment: &str) -> String {
    format!("/v1/workspaces/{WORKSPACE}/environments/{environment}/settings")
}

async fn put_settings(app: &TestApp, body: Value) -> Response {
    app.put(settings_path("dev"), body).await
}

/// Sets the approval rule of `dev`. Documents are not pinned.
async fn set_approval_rule(app: &TestApp, min_approvals: u8, allow_self_approval: bool) {
    let body = json!({
        "min_approvals": min_approvals, "allow_self_approval": allow_self_approval, "pin_documents": false,
    });
    put_settings(app, body).await.expect(200);
}

async fn approve(app: &TestApp, release: &str, actor: &str) -> Response {
    let body = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
    app.post(format!("/v1/releases/{release}/approvals"), body).as_actor(actor).await
}

async fn transition(app: &TestApp, release: &str, state: &str) -> Response {
    app.post(format!("/v1/releases/{release}/transition"), json!({ "to_state": state })).await
}

#[tokio::test]
async fn settings_return_defaults_until_configured() {
    let app = TestApp::start().await;
    let initial = app.get(settings_path("dev")).await;
    let defaults = json!({
        "workspace_id": WORKSPACE, "environment": "dev", "min_approvals": 1, "allow_self_approval": true,
        "pin_documents": false,
    });
    assert_eq!((initial.expect(200), initial.header("etag")), (defaults, None));
    let stricter_rule = json!({ "min_approvals": 2, "allow_self_approval": false, "pin_documents": true });
    app.put(settings_path("dev"), stricter_rule.clone())
        .header("If-Match", "\"1\"")
        .await
        .expect_refusal(412, "precondition_failed");
    let first_response = put_settings(&app, stricter_rule.clone()).await;
    assert_eq!(
        (&first_response.expect(200)["min_approvals"], first_response.header("etag")),
        (&json!(2), Some("\"1\""))
    );
    // A request that repeats the settings changes nothing.
    assert_eq!(put_settings(&app, stricter_rule).await.header("etag"), Some("\"1\""));
    let second_rule = json!({ "min_approvals": 3, "allow_self_approval": false, "pin_documents": false });
    let replaced = app.put(settings_path("dev"), second_rule).header("If-Match", "\"1\"").await;
    assert_eq!((&replaced.expect(200)["pin_documents"], replaced.header("etag")), (&json!(false), Some("\"2\"")));
    assert_eq!(app.get(settings_path("dev")).await.expect(200), replaced.json());
    // Production pins documents by default.
    let initial = app.get(settings_path("production")).await.expect(200);
    assert_eq!((&initial["min_approvals"], &initial["pin_documents"]), (&json!(1), &json!(true)));
    // Outside `dev`, a second person must approve a release by default.
    assert_eq!(initial["allow_self_approval"], false);
    assert_eq!(app.get(settings_path("staging")).await.expect(200)["allow_self_approval"], false);
    // The request replaces all settings, so every field is required.
    let valid_rule = json!({ "min_approvals": 2, "allow_self_approval": true, "pin_documents": true });
    for field in ["min_approvals", "allow_self_approval", "pin_documents"] {
        let mut body = valid_rule.clone();
        body.as_object_mut().unwrap().remove(field);
        let refusal = put_settings(&app, body).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"].as_array().unwrap().len(), 1, "{refusal}");
        assert_eq!((&refusal["fields"][0]["path"], &refusal["fields"][0]["code"]), (&json!(field), &json!("missing")));
    }
    assert_eq!(app.put(settings_path("production"), valid_rule.clone()).await.expect(200)["pin_documents"], true);
    for (field, invalid_value) in [
        ("min_approvals", json!(0)),
        ("min_approvals", json!(11)),
        ("min_approvals", json!(-1)),
        ("min_approvals", json!(1.5)),
        ("allow_self_approval", json!("yes")),
        ("pin_documents", Value::Null),
        ("more", json!(1)),
    ] {
        let mut body = valid_rule.clone();
        body[field] = invalid_value;
        assert_eq!(put_settings(&app, body).await.expect_refusal(422, "validation_error")["fields"][0]["path"], field);
    }
    app.get(settings_path("Dev")).await.expect_refusal(404, "not_found");
    let owner = app.database().connect_as_owner().await.unwrap();
    let configured = "SELECT count(*) FROM fact WHERE kind = 'environment.configured'";
    assert_eq!(owner.query_one(configured, &[]).await.unwrap().get::<_, i64>(0), 3);
}

#[tokio::test]
async fn quorum_counts_distinct_approvers_other_than_the_author() {
    let app = TestApp::start().await;
    set_approval_rule(&app, 2, false).await;
    let fixtures = app.fixtures().as_actor("user:ada");
    let workload = fixtures.workload("main").await;
    let release = fixtures.draft(&workload, &[fixtures.allow_all_policy("policy").await]).await;
    transition(&app, &release, "review_ready").await.expect(200);
    approve(&app, &release, "user:ada").await.expect_refusal(403, "self_approval_not_allowed");
    for _ in 0..2 {
        approve(&app, &release, "user:bob").await.expect(201);
        let refusal = transition(&app, &release, "approved").await.expect_refusal(422, "approval_required");
        assert_eq!((&refusal["approvals"], &refusal["min_approvals"]), (&json!(1), &json!(2)));
        assert!(refusal["message"].as_str().unwrap().contains("`allow_self_approval`"), "{refusal}");
    }
    approve(&app, &release, "user:cy").await.expect(201);
    transition(&app, &release, "approved").await.expect(200);
    // Activation checks the current rule, even if it became stricter after the approval.
    set_approval_rule(&app, 3, false).await;
    let gates = app.get(format!("/v1/releases/{release}/gates")).await.expect(200);
    assert_eq!((&gates[0]["gate"], &gates[0]["code"]), (&json!("approvals"), &json!("approval_required")));
    assert!(gates[0]["message"].as_str().unwrap().contains("`allow_self_approval`"), "{gates}");
    transition(&app, &release, "active").await.expect_refusal(422, "approval_required");
    set_approval_rule(&app, 2, false).await;
    transition(&app, &release, "active").await.expect(200);
}

#[tokio::test]
async fn releases_outside_dev_need_a_second_person_by_default() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures().as_actor("user:ada");
    let (workload, policy) = (fixtures.workload("main").await, fixtures.allow_all_policy("policy").await);
    for environment in ["staging", "production"] {
        let release = fixtures.draft_in(&workload, environment, std::slice::from_ref(&policy)).await;
        transition(&app, &release, "review_ready").await.expect(200);
        let refusal = approve(&app, &release, "user:ada").await.expect_refusal(403, "self_approval_not_allowed");
        assert_eq!(refusal["setting"], "allow_self_approval");
        transition(&app, &release, "approved").await.expect_refusal(422, "approval_required");
        approve(&app, &release, "user:bob").await.expect(201);
        transition(&app, &release, "approved").await.expect(200);
    }
    // With this setting, the author may approve alone.
    let alone = json!({ "min_approvals": 1, "allow_self_approval": true, "pin_documents": false });
    app.put(settings_path("staging"), alone).await.expect(200);
    let release = fixtures.draft_in(&workload, "staging", &[policy]).await;
    transition(&app, &release, "review_ready").await.expect(200);
    approve(&app, &release, "user:ada").await.expect(201);
}

#[tokio::test]
async fn bound_profile_only_tightens_the_approval_rule() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures().as_actor("user:ada");
    let workload = fixtures.workload("main").await;
    let policy = fixtures.allow_all_policy("policy").await;
    let strict_content =
        json!({ "risk_tier": "high", "approval_policy": { "min_approvals": 2, "separation_of_duties": true } });
    let strict_profile = fixtures.asset_with_version("workload_profile", "strict", strict_content).await;
    let release = fixtures.draft(&workload, &[policy.clone(), strict_profile]).await;
    transition(&app, &release, "review_ready").await.expect(200);
    approve(&app, &release, "user:ada").await.expect_refusal(403, "self_approval_not_allowed");
    approve(&app, &release, "user:bob").await.expect(201);
    transition(&app, &release, "approved").await.expect_refusal(422, "approval_required");
    approve(&app, &release, "user:cy").await.expect(201);
    transition(&app, &release, "approved").await.expect(200);

    set_approval_rule(&app, 3, true).await;
    let lax_content = json!({ "risk_tier": "minimal", "approval_policy": { "min_approvals": 1 } });
    let lax_profile = fixtures.asset_with_version("workload_profile", "lax", lax_content).await;
    let release = fixtures.draft(&workload, &[policy, lax_profile]).await;
    transition(&app, &release, "review_ready").await.expect(200);
    for actor in ["user:ada", "user:bob"] {
        approve(&app, &release, actor).await.expect(201);
    }
    let refusal = transition(&app, &release, "approved").await.expect_refusal(422, "approval_required");
    assert_eq!((&refusal["approvals"], &refusal["min_approvals"]), (&json!(2), &json!(3)));
}

#[tokio::test]
async fn bound_profile_limits_approver_roles_and_validity() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    for (actor, role) in [("user:bob", "approver"), ("user:cy", "workspace_admin"), ("user:cy", "approver")] {
        fixtures.bind_role(actor, role, "workspace", Some(WORKSPACE)).await;
    }
    let workload = fixtures.workload("main").await;
    let profile =
        json!({ "risk_tier": "high", "approval_policy": { "roles": ["workspace_admin"], "expires_hours": 2 } });
    let profile = fixtures.asset_with_version("workload_profile", "careful", profile).await;
    let release = fixtures.draft(&workload, &[fixtures.allow_all_policy("policy").await, profile]).await;
    transition(&app, &release, "review_ready").await.expect(200);
    let refusal = approve(&app, &release, "user:bob").await.expect_refusal(403, "approver_role_required");
    assert_eq!(refusal["roles"], json!(["workspace_admin"]));
    // Only approvals require the role. Rejections do not.
    let rejected = json!({ "outcome": "rejected", "subject_kind": "release", "subject_ref": release });
    app.post(format!("/v1/releases/{release}/approvals"), rejected).as_actor("user:bob").await.expect(201);
    approve(&app, &release, "user:cy").await.expect(201);

    // Nearly two hours pass on the database's clock, so the approval is still valid.
    app.database().set_clock_offset(2 * 3_600 - 60).await.unwrap();
    transition(&app, &release, "approved").await.expect(200);
    app.database().set_clock_offset(2 * 3_600 + 60).await.unwrap();
    let refusal = transition(&app, &release, "active").await.expect_refusal(422, "approval_required");
    assert_eq!((&refusal["approvals"], &refusal["min_approvals"]), (&json!(0), &json!(1)));
    approve(&app, &release, "user:cy").await.expect(201);
    transition(&app, &release, "active").await.expect(200);
}
