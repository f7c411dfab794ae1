//! The built-in assistant workload of every workspace.

use crate::support::workspace_fixture::WORKSPACE;
use fairway_testkit::TestApp;
use serde_json::json;

#[tokio::test]
async fn every_workspace_has_a_builtin_assistant() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let slug = "a".repeat(43);
    let workspace = fixtures.workspace(&slug, "elsewhere").await;
    for (workspace, slug) in [(WORKSPACE, "default"), (&workspace, slug.as_str())] {
        let listed = app.get(format!("/v1/workloads?workspace_id={workspace}")).await.expect(200);
        let assistant = &listed[0];
        assert_eq!(assistant["slug"], format!("knowledge-assistant-{slug}"));
        assert_eq!(assistant["management_source"], "workspace_builtin");
        assert_eq!((&assistant["status"], &assistant["invocation_mode"]), (&json!("registered"), &json!("chat")));
        assert_eq!(listed.as_array().unwrap().len(), 1);
    }
    let ordinary_workload = fixtures.workload("ordinary").await;
    assert_eq!(
        app.get(format!("/v1/workloads/{ordinary_workload}")).await.expect(200)["management_source"],
        json!(null)
    );
}

#[tokio::test]
async fn assistant_can_be_released_and_suspended_but_not_retired() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let listed = app.get("/v1/workloads").await.expect(200);
    let id = listed[0]["workload_id"].as_str().unwrap();
    assert_eq!(
        id, "00000000-0000-7000-8000-000000000004",
        "the assistant of the first workspace has the documented identifier"
    );
    let path = format!("/v1/workloads/{id}");
    app.patch(&path, json!({ "status": "retired" })).await.expect_refusal(409, "builtin_workload");
    assert_eq!(app.patch(&path, json!({ "status": "suspended" })).await.expect(200)["status"], "suspended");
    app.patch(&path, json!({ "status": "retired" })).await.expect_refusal(409, "builtin_workload");
    app.patch(&path, json!({ "status": "registered", "description": "Ours" })).await.expect(200);
    let versions =
        [fixtures.ticket_prompt("p").await, fixtures.model_policy("m").await, fixtures.allow_all_policy("l").await];
    let release = fixtures.approved_release(id, &versions).await;
    fixtures.transition(&release, "active").await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    app.post("/v1/workloads/by-slug/knowledge-assistant-default/execute", body).await.expect(200);
}

#[tokio::test]
async fn slugs_of_assistants_are_reserved() {
    let app = TestApp::start().await;
    let body = json!({ "slug": "knowledge-assistant-mine", "owner_ref": "team:a", "invocation_mode": "chat" });
    let refusal = app.post("/v1/workloads", body).await.expect_refusal(422, "validation_error");
    let field = &refusal["fields"][0];
    assert_eq!((&field["path"], &field["code"]), (&json!("slug"), &json!("reserved_slug")));
    app.fixtures().workspace("mine", "mine").await;
}
