//! `GET /v1/session/can`: whether an actor may perform an operation, and which roles decide.

use crate::{
    access_by_role::{CALLERS, EXPECTED_ACCESS, bind_roles},
    support::workspace_fixture::{TENANT, WORKSPACE, WorkspaceFixture},
};
use fairway_testkit::TestApp;
use serde_json::{Value, json};

/// Operations whose responses depend on more than their own permission. An inbox entry belongs to its recipient.
/// Fetching is a part of adding documents, which also requires `asset.edit`.
const BEYOND_ROLES: &[&str] = &["change_inbox_status", "fetch_documents"];

#[tokio::test]
async fn explanations_agree_with_the_responses_of_every_operation() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    bind_roles(&fixture).await;
    let mut differences = Vec::new();
    for &(operation, expected) in EXPECTED_ACCESS.iter().filter(|(operation, _)| !BEYOND_ROLES.contains(operation)) {
        // The remaining callers belong to other workspaces and tenants and do not see the scope, so they are excluded.
        for (caller, expected) in CALLERS.iter().zip(expected.split(' ')).take(10) {
            let scope = format!("scope_kind=workload&scope_ref={}", fixture.workload.workload_id);
            let path = format!("/v1/session/can?operation={operation}&actor={caller}&{scope}");
            let explained = app.get(path).await.expect(200);
            if explained["allowed"] != json!(["+", "e"].contains(&expected)) {
                differences.push(format!("{operation} by {caller}: expected {expected}, got {explained}"));
            }
        }
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

#[tokio::test]
async fn names_the_deciding_permission_and_the_role_bindings_that_give_it() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let viewer = fixtures.bind_role("user:ada", "viewer", "workspace", Some(WORKSPACE)).await;
    let operator = fixtures.bind_role("user:ada", "operator", "tenant", Some(TENANT)).await;
    let scope = format!("scope_kind=workspace&scope_ref={WORKSPACE}");
    let ask = |query: String| app.get(format!("/v1/session/can?{query}")).as_actor("user:ada");
    let explanation = ask(format!("operation=list_workloads&{scope}")).await.expect(200);
    assert_eq!((&explanation["allowed"], &explanation["permission"]), (&json!(true), &json!("workload.view")));
    let ids: Vec<&Value> =
        explanation["by"].as_array().unwrap().iter().map(|source| &source["role_binding_id"]).collect();
    assert_eq!(ids.len(), 2, "{explanation}");
    assert!(ids.contains(&&json!(viewer)) && ids.contains(&&json!(operator)), "{explanation}");
    // A role in one workspace grants nothing in the scope of the tenant.
    let tenant_wide = ask("operation=list_workloads".to_owned()).await.expect(200);
    let expected = json!([{
        "role_binding_id": operator, "role": "operator", "scope_kind": "tenant", "scope_ref": TENANT,
    }]);
    assert_eq!(tenant_wide["by"], expected);
    let denial = ask(format!("operation=create_workload&{scope}")).await.expect(200);
    assert_eq!(denial, json!({"allowed": false, "permission": "workload.create", "by": []}));
    // A revoked role binding grants nothing.
    app.delete(format!("/v1/role-bindings/{operator}")).await.expect(204);
    let tenant_wide = ask("operation=list_workloads".to_owned()).await.expect(200);
    assert_eq!(tenant_wide, json!({"allowed": false, "permission": "workload.view", "by": []}));
    // These operations require no permission.
    let explanation = ask("operation=read_session".to_owned()).await.expect(200);
    assert_eq!(explanation, json!({"allowed": true, "permission": null, "by": []}));
    let member = ask("operation=list_workspaces".to_owned()).await.expect(200);
    assert_eq!((&member["allowed"], &member["by"][0]["role_binding_id"]), (&json!(true), &json!(viewer)));
    // In local mode, the server itself gives the local user its role, so the explanation contains no role binding.
    let local = app.get("/v1/session/can?operation=create_tenant").await.expect(200);
    assert_eq!((&local["allowed"], &local["by"][0]["role_binding_id"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn questions_about_others_require_workspace_manage_in_a_visible_scope() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = app.active_workload("main").await.workload_id;
    fixtures.bind_role("user:weak", "viewer", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:admin", "workspace_admin", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:runner", "runtime_user", "workspace", Some(WORKSPACE)).await;
    let other_workspace = fixtures.workspace("next-door", "next-door").await;
    fixtures.bind_role("user:neighbour", "workspace_admin", "workspace", Some(&other_workspace)).await;
    let tenant = fixtures.tenant("acme").await;
    let foreign_workspace = fixtures.in_tenant(&tenant, "").workspace("there", "there").await;
    let ask = |actor: &str, scope: &str| {
        app.get(format!("/v1/session/can?operation=list_workloads&actor=user:runner&{scope}")).as_actor(actor)
    };
    let workspace_scope = format!("scope_kind=workspace&scope_ref={WORKSPACE}");
    let refusal = ask("user:weak", &workspace_scope).await.expect_refusal(403, "forbidden");
    assert_eq!(refusal["permission"], "workspace.manage");
    ask("user:neighbour", &workspace_scope).await.expect_refusal(403, "forbidden");
    ask("user:admin", "").await.expect_refusal(403, "forbidden");
    assert_eq!(ask("user:admin", &workspace_scope).await.expect(200)["allowed"], true);
    // A role in one workspace does not make workloads of another workspace visible. Other tenants do not see scopes
    // of this tenant.
    let of_workload = format!("scope_kind=workload&scope_ref={workload}");
    assert_eq!(ask("user:admin", &of_workload).await.expect(200)["allowed"], true);
    ask("user:neighbour", &of_workload).await.expect_refusal(404, "not_found");
    for scope in
        [format!("scope_kind=workspace&scope_ref={foreign_workspace}"), format!("scope_kind=tenant&scope_ref={tenant}")]
    {
        ask("user:admin", &scope).await.expect_refusal(404, "not_found");
    }
    for actor in ["user:nobody-here", "anonymous"] {
        let explanation =
            app.get(format!("/v1/session/can?operation=list_workloads&{workspace_scope}")).as_actor(actor).await;
        match actor {
            "anonymous" => explanation.expect_refusal(404, "not_found"),
            _ => explanation.expect(200),
        };
    }
}

#[tokio::test]
async fn refuses_malformed_questions_without_an_echo() {
    let app = TestApp::start().await;
    let cases = [
        ("operation=sesame", "operation", "unknown_operation"),
        ("operation=list_assets&scope_kind=planet", "scope_kind", "invalid"),
        ("operation=list_assets&scope_kind=workspace", "scope_ref", "missing"),
        ("operation=list_assets&scope_kind=workspace&scope_ref=sesame", "scope_ref", "invalid"),
        ("operation=list_assets&scope_ref=00000000-0000-7000-8000-000000000001", "scope_kind", "missing"),
        ("operation=list_assets&actor=sesame", "actor", "invalid"),
    ];
    for (query, path, code) in cases {
        let response = app.get(format!("/v1/session/can?{query}")).await;
        let text = String::from_utf8_lossy(&response.body).into_owned();
        let refusal = response.expect_refusal(422, "validation_error");
        assert_eq!((&refusal["fields"][0]["path"], &refusal["fields"][0]["code"]), (&json!(path), &json!(code)));
        assert!(!text.contains("sesame"), "{text}");
    }
    app.get("/v1/session/can").await.expect_refusal(422, "validation_error");
}
