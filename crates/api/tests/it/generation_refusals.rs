//! The generator of bundle plans is a governed workload. Its release, its policy and its mode determine whether it
//! runs.

use crate::{
    access_tokens::WithToken as _,
    provider_calls::{ProviderAccounts, chat_response},
    support::workspace_fixture::{WORKSPACE, WorkspaceFixture},
};
use fairway_testkit::{
    TestApp, TestIssuer,
    app::{Client, Request, Response},
};
use serde_json::{Value, json};

const DESCRIPTION: &str = "Sort tickets by their urgency.";
const OPERATOR: &str = "user:operator";
const APPROVER: &str = "user:second-operator";

fn generate(app: &Client) -> Request {
    app.post(format!("/v1/use-cases/generate?workspace_id={WORKSPACE}"), json!({ "description": DESCRIPTION }))
}

/// Refines a new draft use case of a workspace.
async fn refine(fixture: &WorkspaceFixture<'_>) -> Response {
    let draft = fixture.create_use_case(&[]).await;
    let body = json!({ "description": DESCRIPTION, "refinement_context": [], "idempotency_key": draft });
    fixture.app.post(fixture.use_case_path(&format!("/{draft}/refine")), body).await
}

/// Creates a new release of the generator, as platform operators do. The content of the asset of one kind is replaced.
async fn release_generator(app: &TestApp, kind: &str, content: Value) {
    for operator in [OPERATOR, APPROVER] {
        app.fixtures().bind_role(operator, "platform_admin", "platform", None).await;
    }
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "SELECT asset_kind, asset_id::text, asset_version_id::text FROM asset JOIN asset_version
        USING (tenant_id, asset_id) WHERE slug LIKE 'fairway-generator-%'";
    let mut bindings = Vec::new();
    for row in owner.query(sql, &[]).await.unwrap() {
        let (role, asset, mut version): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        if role == kind {
            let path = format!("/v1/assets/{asset}/versions");
            let created = app.post(path, json!({ "content": content })).as_actor(OPERATOR).await.expect(201);
            version = created["asset_version_id"].as_str().unwrap().to_owned();
        }
        bindings.push(json!({ "role": role, "asset_version_id": version }));
    }
    let sql = "SELECT workload_id::text FROM workload WHERE slug = 'fairway-generator'";
    let workload: String = owner.query_one(sql, &[]).await.unwrap().get(0);
    let draft = json!({ "workload_id": workload, "environment": "production" });
    let created = app.post("/v1/releases", draft).as_actor(OPERATOR).await.expect(201);
    let path = |suffix: &str| format!("/v1/releases/{}/{suffix}", created["release_id"].as_str().unwrap());
    for binding in bindings {
        app.post(path("bindings"), binding).as_actor(OPERATOR).await.expect(201);
    }
    let transition = async |state: &str| {
        app.post(path("transition"), json!({ "to_state": state })).as_actor(OPERATOR).await.expect(200);
    };
    transition("review_ready").await;
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": created["release_id"] });
    app.post(path("approvals"), verdict).as_actor(APPROVER).await.expect(201);
    transition("approved").await;
    transition("active").await;
}

/// With verified identities, `production` serves real users, so drafts of the built-in rule-based model are refused
/// there.
#[tokio::test]
async fn verified_identities_need_a_generator_with_a_model() {
    let accounts = ProviderAccounts::start().await;
    let issuer = TestIssuer::start().await.unwrap();
    let local = TestApp::builder().config_file(accounts.settings()).start().await;
    local.services().draft_generator.provision_generators().await.unwrap();
    let plan = generate(&local).await.expect(200)["bundle"].clone();
    let app =
        TestApp::builder().config_file(accounts.settings()).sharing_storage_of(&local).oidc(&issuer).start().await;
    let root = issuer.person_token("root", &[]);
    generate(&app).token(&root).await.expect_refusal(503, "generator_unavailable");
    let route = json!({
        "route_id": "model", "provider": "acme", "model": "small", "account_slot": "first", "state": "approved",
    });
    release_generator(&local, "model_policy", json!({ "provider_route": route })).await;
    accounts.openai.respond_with(chat_response(&plan.to_string()));
    let generated = generate(&app).token(&root).await.expect(200);
    assert_eq!(generated["bundle"], plan);
    let codes = generated["warnings"].to_string();
    assert!(!codes.contains("local_provider"), "{codes}");
}

#[tokio::test]
async fn policy_of_the_generator_denies_generation() {
    let app = TestApp::start().await;
    app.services().draft_generator.provision_generators().await.unwrap();
    let fixture = WorkspaceFixture::create(&app).await;
    let rule = json!({
        "id": "stop", "condition": "actor.ref == 'system:generator'", "outcome": "deny", "reason_code": "stopped",
    });
    release_generator(&app, "policy_bundle", json!({ "rules": [rule] })).await;
    for response in [generate(&app).await, refine(&fixture).await] {
        let detail = response.expect_refusal(403, "policy_denied");
        assert_eq!(detail["reason_code"], "stopped", "{response}");
    }
}

#[tokio::test]
async fn queued_dispatch_and_missing_releases_refuse_generation() {
    for (setting, value, status, code) in [
        ("FAIRWAY_DISPATCH", "queued", 409, "inline_dispatch_unavailable"),
        ("FAIRWAY_GENERATOR", "off", 503, "generator_unavailable"),
    ] {
        let local = TestApp::start().await;
        let fixture = WorkspaceFixture::create(&local).await;
        let draft = fixture.create_use_case(&[]).await;
        let app = TestApp::builder().sharing_storage_of(&local).setting(setting, value).start().await;
        generate(&app).await.expect_refusal(status, code);
        let body = json!({ "description": DESCRIPTION, "refinement_context": [], "idempotency_key": "k" });
        let path = fixture.use_case_path(&format!("/{draft}/refine"));
        app.post(&path, body.clone()).await.expect_refusal(status, code);
        // A refused request does not consume its idempotency key.
        local.services().draft_generator.provision_generators().await.unwrap();
        local.post(&path, body).await.expect(201);
    }
}
