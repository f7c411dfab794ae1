//! Use cases from draft to active, with their connections and access requests.

use crate::support::workspace_fixture::{WORKSPACE, WorkspaceFixture};
use fairway_testkit::TestApp;
use serde_json::{Value, json};

async fn status(fixture: &WorkspaceFixture<'_>, use_case: &str) -> String {
    let use_case_view = fixture.app.get(fixture.use_case_path(&format!("/{use_case}"))).await.expect(200);
    use_case_view["status"].as_str().unwrap().to_owned()
}

async fn post_action(fixture: &WorkspaceFixture<'_>, use_case: &str, verb: &str) -> fairway_testkit::app::Response {
    fixture.app.post(fixture.use_case_path(&format!("/{use_case}/{verb}")), json!({})).await
}

#[tokio::test]
async fn published_use_case_without_connections_is_active_and_runs() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let use_case = fixture.create_use_case(&[]).await;
    let bundle_before = app.get(fixture.use_case_path(&format!("/{use_case}/bundle"))).await.expect(200);
    assert_eq!(
        bundle_before["pieces"][0],
        json!({ "piece": "flow", "kind": "orchestration_flow", "ref": null, "id": null })
    );
    let published = post_action(&fixture, &use_case, "publish").await.expect(200);
    assert_eq!(published["status"], "active");
    let release = published["release_id"].as_str().unwrap();
    let release_view = app.get(format!("/v1/releases/{release}")).await.expect(200);
    assert_eq!(
        (&release_view["state"], &release_view["environment"], &release_view["target_lane"]),
        (&json!("draft"), &json!("dev"), &json!("all"))
    );
    let roles: Vec<&str> =
        release_view["bindings"].as_array().unwrap().iter().map(|binding| binding["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["orchestration_flow", "prompt_template", "model_policy", "policy_bundle"]);
    let workload = app.get(format!("/v1/workloads/{}", published["workload_id"].as_str().unwrap())).await.expect(200);
    assert_eq!(workload["interface_config"]["input_fields"][0]["name"], "ticket");
    let bundle = app.get(fixture.use_case_path(&format!("/{use_case}/bundle"))).await.expect(200);
    let pieces = bundle["pieces"].as_array().unwrap();
    assert_eq!(pieces.len(), 4);
    assert!(pieces.iter().all(|piece| piece["id"].is_string() && piece["ref"].is_string()), "{bundle}");
    assert_eq!(bundle["flow_steps"][0], json!({ "id": "answer", "type": "llm_call" }));
    // Publication reuses the workspace's policy bundle, because there is only one.
    assert_eq!(pieces[3]["ref"], "main-policy");
    // From here on, the release is approved and activated like any other.
    fixture.fixtures.transition(release, "review_ready").await;
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
    app.post(format!("/v1/releases/{release}/approvals"), verdict).await.expect(201);
    fixture.fixtures.transition(release, "approved").await;
    fixture.fixtures.transition(release, "active").await;
    let run = format!("/v1/workloads/by-slug/{}/execute", workload["slug"].as_str().unwrap());
    let response =
        app.post(run, json!({ "environment": "dev", "inputs": { "ticket": "A refund." } })).await.expect(200);
    assert_eq!(response["status"], "completed", "{response}");
    for verb in ["publish", "reopen", "activate"] {
        let refusal = post_action(&fixture, &use_case, verb).await.expect_refusal(409, "invalid_transition");
        assert_eq!(
            (&refusal["current_state"], &refusal["valid_transitions"]),
            (&json!("active"), &json!(["archived"]))
        );
    }
    assert_eq!(post_action(&fixture, &use_case, "archive").await.expect(200)["status"], "archived");
    post_action(&fixture, &use_case, "archive").await.expect_refusal(409, "invalid_transition");
}

#[tokio::test]
async fn last_grant_activates_in_one_commit() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let use_case = fixture.create_use_case(&["crm", "mail"]).await;
    // A caller that may create the connections gets the names of the missing ones.
    let refusal = post_action(&fixture, &use_case, "publish").await.expect_refusal(422, "connections_missing");
    assert_eq!(refusal["connections"], json!(["crm", "mail"]));
    assert_eq!(status(&fixture, &use_case).await, "draft");
    fixture.fixtures.bind_role("user:author", "author", "workspace", Some(&fixture.workspace)).await;
    let publish = app.post(fixture.use_case_path(&format!("/{use_case}/publish")), json!({})).as_actor("user:author");
    assert_eq!(publish.await.expect(200)["status"], "pending_access");
    let bundle =
        app.get(fixture.use_case_path(&format!("/{use_case}/bundle"))).as_actor("user:author").await.expect(200);
    let gap = |name: &str| json!({ "kind": "needs_access", "ref": name });
    assert_eq!(bundle["open_connection_gaps"], json!([gap("crm"), gap("mail")]));
    let unresolved = post_action(&fixture, &use_case, "activate").await.expect_refusal(409, "connections_unresolved");
    assert_eq!(unresolved["connections"], json!(["crm", "mail"]));
    let list_path = format!("/v1/access-requests?workspace_id={}&status=pending", fixture.workspace);
    let requests = app.get(&list_path).await.expect(200);
    let grant = |request: &Value, body: Value| {
        app.post(format!("/v1/access-requests/{}/grant", request["access_request_id"].as_str().unwrap()), body)
    };
    let secret = "sk-live-0123456789abcdef";
    let leaked = grant(&requests[0], json!({ "secret_bindings": { "token": secret } })).await;
    leaked.expect_refusal(422, "validation_error");
    assert!(!leaked.text().contains(secret));
    let response = grant(&requests[0], json!({ "secret_bindings": { "token": "env:A" } })).await.expect(200);
    assert_eq!(
        (&response["status"], status(&fixture, &use_case).await.as_str()),
        (&json!("granted"), "pending_access")
    );
    grant(&requests[0], json!({})).await.expect_refusal(409, "invalid_transition");
    grant(&requests[1], json!({ "connector_kind": "smtp" })).await.expect(200);
    assert_eq!(status(&fixture, &use_case).await, "active");
    let connection =
        app.get(format!("/v1/connections/{}", response["connection_id"].as_str().unwrap())).await.expect(200);
    assert_eq!((&connection["connector_kind"], &connection["status"]), (&json!("other"), &json!("active")));
}

#[tokio::test]
async fn reopening_withdraws_requests_and_republishing_reuses_pieces() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let use_case = fixture.create_pending_use_case("crm").await;
    let first_response = app.get(fixture.use_case_path(&format!("/{use_case}"))).await.expect(200);
    let request = fixture.request_of(&use_case).await;
    assert_eq!(post_action(&fixture, &use_case, "reopen").await.expect(200)["status"], "draft");
    assert_eq!(fixture.request_of(&use_case).await["status"], "withdrawn");
    let grant = format!("/v1/access-requests/{}/grant", request["access_request_id"].as_str().unwrap());
    let refusal = app.post(grant, json!({})).await.expect_refusal(409, "invalid_transition");
    assert_eq!(refusal["current_state"], "withdrawn");
    fixture.create_connection("crm").await;
    let republished = post_action(&fixture, &use_case, "publish").await.expect(200);
    assert_eq!((&republished["status"], &republished["release_id"]), (&json!("active"), &first_response["release_id"]));
}

#[tokio::test]
async fn denial_keeps_the_use_case_pending_until_the_connection_exists() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let use_case = fixture.create_pending_use_case("crm").await;
    let request = fixture.request_of(&use_case).await["access_request_id"].as_str().unwrap().to_owned();
    let deny = app.post(format!("/v1/access-requests/{request}/deny"), json!({ "reason": "Not yet." }));
    let denial = deny.clone().await.expect(200);
    assert_eq!((&denial["status"], &denial["reason"]), (&json!("denied"), &json!("Not yet.")));
    deny.await.expect_refusal(409, "invalid_transition");
    assert_eq!(status(&fixture, &use_case).await, "pending_access");
    let ready = format!("{}&activation_ready=true", fixture.use_case_path(""));
    assert_eq!(app.get(&ready).await.expect(200), json!([]));
    let connection = fixture.create_connection("crm").await;
    assert_eq!(app.get(&ready).await.expect(200)[0]["use_case_id"], use_case.as_str());
    // A disabled connection and an expired connection are not usable.
    let change = |body: Value| app.patch(format!("/v1/connections/{connection}"), body);
    for unusable in
        [json!({ "status": "disabled" }), json!({ "status": "active", "expires_at": "2020-01-01T00:00:00Z" })]
    {
        change(unusable).await.expect(200);
        assert_eq!(app.get(&ready).await.expect(200), json!([]));
        post_action(&fixture, &use_case, "activate").await.expect_refusal(409, "connections_unresolved");
    }
    change(json!({ "expires_at": null })).await.expect(200);
    assert_eq!(post_action(&fixture, &use_case, "activate").await.expect(200)["status"], "active");
}

#[tokio::test]
async fn publication_requires_an_approved_model_policy() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let use_case = fixture.create_use_case(&[]).await;
    let model = fixture.workload.versions.iter().find(|version| version.kind == "model_policy").unwrap();
    let retire = |verb: &str| {
        app.post(format!("/v1/assets/{}/{verb}", model.asset_id), json!({ "workspace_id": fixture.workspace }))
    };
    retire("retire").await.expect(200);
    post_action(&fixture, &use_case, "publish").await.expect_refusal(422, "model_policy_unavailable");
    assert_eq!(status(&fixture, &use_case).await, "draft");
    retire("activate").await.expect(200);
    post_action(&fixture, &use_case, "publish").await.expect(200);
}

#[tokio::test]
async fn hostile_bundles_are_refused_without_echo() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let foreign = WorkspaceFixture::in_other_workspace(&app).await;
    let create = |bundle: Value| {
        app.post(fixture.use_case_path(""), json!({ "source_description": "Sort tickets.", "bundle": bundle }))
    };
    let bundle_with = |pointer: &str, value: Value| {
        let mut bundle = fixture.bundle(&["crm"]);
        *bundle.pointer_mut(pointer).unwrap() = value;
        bundle
    };
    let secret = "sk-canary0123456789ab";
    for hostile in [
        bundle_with("/model_policy_ref", json!(format!("{}-model", foreign.workload.slug))),
        bundle_with("/model_policy_ref", json!("main-policy")),
        bundle_with("/name", json!("<img src=x onerror=canary()>")),
        bundle_with("/summary", json!(secret)),
        bundle_with("/connections", json!(["canary", "canary"])),
        bundle_with("/prompt_template/template", json!("Read @asset-ref:canary")),
        bundle_with("/flow/steps/1/output", json!("{{steps.canary.output}}")),
        bundle_with("/flow", json!("canary")),
    ] {
        let response = create(hostile).await;
        response.expect_refusal(422, "validation_error");
        assert!(!response.text().contains("canary"), "{response}");
    }
    create(bundle_with("/connections", json!(["[redacted]"]))).await.expect_refusal(422, "redacted_bundle");
    let listed = app.get(fixture.use_case_path("")).await.expect(200);
    assert_eq!(listed, json!([]), "nothing is kept");
}

#[tokio::test]
async fn use_cases_stay_in_their_workspace_and_tenant() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let other_fixture = WorkspaceFixture::in_other_workspace(&app).await;
    let foreign_fixture = WorkspaceFixture::in_other_tenant(&app).await;
    let use_case = fixture.create_pending_use_case("crm").await;
    let request = fixture.request_of(&use_case).await["access_request_id"].as_str().unwrap().to_owned();
    app.get(other_fixture.use_case_path(&format!("/{use_case}"))).await.expect_refusal(404, "not_found");
    app.get(foreign_fixture.use_case_path(&format!("/{use_case}")))
        .in_tenant(&foreign_fixture.tenant)
        .await
        .expect_refusal(404, "not_found");
    let grant = format!("/v1/access-requests/{request}/grant");
    let grant_in_other_workspace = app.post(format!("{grant}?workspace_id={}", other_fixture.workspace), json!({}));
    grant_in_other_workspace.await.expect_refusal(404, "not_found");
    app.post(&grant, json!({})).in_tenant(&foreign_fixture.tenant).await.expect_refusal(404, "not_found");
    app.get("/v1/use-cases").await.expect_refusal(422, "validation_error");
}

#[tokio::test]
async fn readers_without_connection_read_get_a_redacted_bundle() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let use_case = fixture.create_use_case(&["crm"]).await;
    fixture.fixtures.bind_role("user:viewer", "viewer", "workspace", Some(&fixture.workspace)).await;
    let path = fixture.use_case_path(&format!("/{use_case}/bundle"));
    let use_case_view = app.get(path).as_actor("user:viewer").await.expect(200);
    let empty = json!({ "pieces": [], "flow_steps": [], "open_connection_gaps": [], "redacted": true });
    assert_eq!(use_case_view, empty);
}

/// Publishes a new use case. Returns the slug of its policy bundle.
async fn published_policy(fixture: &WorkspaceFixture<'_>) -> String {
    let use_case = fixture.create_use_case(&[]).await;
    post_action(fixture, &use_case, "publish").await.expect(200);
    let bundle = fixture.app.get(fixture.use_case_path(&format!("/{use_case}/bundle"))).await.expect(200);
    bundle["pieces"][3]["ref"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_sole_policy_bundle_of_the_workspace_is_reused() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    // Other workspaces of the namespace have more policy bundles than fit on a list page. All of them are newer.
    let owner = app.database().connect_as_owner().await.unwrap();
    let insert_assets_sql = format!(
        "INSERT INTO asset (tenant_id, asset_id, slug, asset_kind, owner_ref, lifecycle_state, ownership_tier, workspace_id,
            namespace_id, revision, created_at, created_by)
         SELECT tenant_id, ('ffffffff-ffff-7fff-bfff-' || lpad(number::text, 12, '0'))::uuid, 'other-' || number, asset_kind,
            owner_ref, lifecycle_state, ownership_tier, '{WORKSPACE}', namespace_id, 1, created_at, created_by
         FROM asset, generate_series(1, 250) AS number WHERE slug = 'main-policy'"
    );
    assert_eq!(owner.execute(&insert_assets_sql, &[]).await.unwrap(), 250);
    assert_eq!(published_policy(&fixture).await, "main-policy");
    // The workspace now has two bundles, so publication cannot select one and creates a new bundle.
    fixture.fixtures.allow_all_policy("second-policy").await;
    let new_policy = published_policy(&fixture).await;
    assert!(new_policy.starts_with("ticket-triage-") && new_policy.ends_with("-policy"), "{new_policy}");
}
