//! Visibility of assets: namespaces, grants, and built-in assets.

use crate::support::workspace_fixture::WORKSPACE;
use fairway_testkit::TestApp;
use serde_json::{Value, json};

const UNKNOWN_WORKSPACE: &str = "0190f000-0000-7000-8000-00000000dead";

/// The slugs in a list response, in order.
fn slugs(listed: &Value) -> Vec<&str> {
    listed.as_array().unwrap().iter().map(|row| row["slug"].as_str().unwrap()).collect()
}

async fn create_grant(app: &TestApp, asset: &str, workspace_id: &str, grantee: Value) -> String {
    let path = format!("/v1/assets/{asset}/grants?workspace_id={workspace_id}");
    app.post(path, grantee).await.expect(201)["grant_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn viewers_see_assets_of_the_whole_namespace() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let first_workspace = fixtures.workspace("one", "shared").await;
    let second_workspace = fixtures.workspace("two", "shared").await;
    let other_namespace_workspace = fixtures.workspace("three", "elsewhere").await;
    let asset = fixtures.in_workspace(&first_workspace).asset_without_versions("skill", "shared-skill").await;
    fixtures.bind_role("user:ada", "author", "workspace", Some(&second_workspace)).await;
    for (workspace, status) in [(&first_workspace, 200), (&second_workspace, 200), (&other_namespace_workspace, 404)] {
        let response = app.get(format!("/v1/assets/{asset}?workspace_id={workspace}")).as_actor("user:ada").await;
        assert_eq!(response.status, status, "{response}");
        let listed = app.get(format!("/v1/assets?workspace_id={workspace}")).as_actor("user:ada").await;
        assert_eq!(listed.status, status, "{listed}");
    }
    let assets = app.get("/v1/assets").as_actor("user:ada").await.expect(200);
    assert_eq!(slugs(&assets), ["shared-skill"]);
    // A change requires a role in the asset's own workspace.
    let retire = app
        .post(format!("/v1/assets/{asset}/retire?workspace_id={second_workspace}"), json!({}))
        .as_actor("user:ada")
        .await;
    assert_eq!(retire.expect_refusal(403, "forbidden")["permission"], "asset.edit");
    let version = json!({ "content": { "system_prompt": "x" } });
    let version = app.post(format!("/v1/assets/{asset}/versions"), version).as_actor("user:ada").await;
    assert_eq!(version.expect_refusal(403, "forbidden")["permission"], "asset.edit");
}

#[tokio::test]
async fn principal_grant_reveals_only_its_asset_until_revoked() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workspace = fixtures.workspace("here", "here").await;
    let other_workspace = fixtures.workspace("there", "there").await;
    let workspace_fixtures = fixtures.in_workspace(&workspace);
    let (visible, hidden) =
        (workspace_fixtures.ticket_prompt("shown").await, workspace_fixtures.ticket_prompt("hidden").await);
    fixtures.bind_role("user:ada", "viewer", "workspace", Some(&other_workspace)).await;
    // The only role of this caller was revoked.
    let revoked = fixtures.bind_role("user:bob", "viewer", "workspace", Some(&other_workspace)).await;
    app.delete(format!("/v1/role-bindings/{revoked}")).await.expect(204);
    let read = |actor: &str, id: &str, workspace_id: &str| {
        app.get(format!("/v1/assets/{id}?workspace_id={workspace_id}")).as_actor(actor)
    };
    for actor in ["user:ada", "user:bob"] {
        read(actor, &visible.asset_id, &other_workspace).await.expect_refusal(404, "not_found");
        let grant = create_grant(&app, &visible.asset_id, &workspace, json!({ "principal": actor })).await;
        for workspace_id in [&workspace, &other_workspace] {
            assert_eq!(read(actor, &visible.asset_id, workspace_id).await.expect(200)["slug"], "shown");
            read(actor, &hidden.asset_id, workspace_id).await.expect_refusal(404, "not_found");
            let listed = app.get(format!("/v1/assets?workspace_id={workspace_id}")).as_actor(actor).await.expect(200);
            assert_eq!(slugs(&listed), ["shown"], "{actor} from {workspace_id}");
        }
        read(actor, &visible.asset_id, UNKNOWN_WORKSPACE).await.expect_refusal(404, "not_found");
        let (asset, version) = (&visible.asset_id, &visible.asset_version_id);
        let path = format!("/v1/assets/{asset}/versions/{version}?workspace_id={other_workspace}");
        app.get(path).as_actor(actor).await.expect(200);
        assert_eq!(slugs(&app.get("/v1/assets").as_actor(actor).await.expect(200)), ["shown"]);
        app.get(format!("/v1/assets/{asset}/blast-radius")).as_actor(actor).await.expect(200);
        // A grant allows neither changes of the asset nor listing its grants.
        for verb in ["retire", "archive", "activate", "grants"] {
            let path = format!("/v1/assets/{asset}/{verb}?workspace_id={other_workspace}");
            let body = if verb == "grants" { json!({ "principal": "user:x" }) } else { json!({}) };
            app.post(path, body).as_actor(actor).await.expect_refusal(403, "forbidden");
        }
        app.get(format!("/v1/assets/{asset}/grants?workspace_id={other_workspace}"))
            .as_actor(actor)
            .await
            .expect_refusal(403, "forbidden");
        let path = format!("/v1/assets/{asset}/grants/{grant}");
        app.delete(format!("{path}?workspace_id={other_workspace}"))
            .as_actor(actor)
            .await
            .expect_refusal(403, "forbidden");
        app.delete(format!("{path}?workspace_id={workspace}")).await.expect(204);
        app.delete(format!("{path}?workspace_id={workspace}")).await.expect_refusal(404, "not_found");
        for workspace_id in [&workspace, &other_workspace] {
            read(actor, asset, workspace_id).await.expect_refusal(404, "not_found");
        }
    }
    app.get("/v1/assets").as_actor("user:bob").await.expect_refusal(403, "forbidden");
}

#[tokio::test]
async fn workspace_grant_permits_reading_and_binding_there() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workspace = fixtures.workspace("here", "here").await;
    let other_workspace = fixtures.workspace("there", "there").await;
    let neighbour_workspace = fixtures.workspace("beside", "there").await;
    let policy = fixtures.in_workspace(&workspace).allow_all_policy("policy").await;
    let other_fixtures = fixtures.in_workspace(&other_workspace);
    let (other_workload, neighbour_workload) =
        (other_fixtures.workload("theirs").await, fixtures.in_workspace(&neighbour_workspace).workload("next").await);
    fixtures.bind_role("user:ada", "viewer", "workspace", Some(&other_workspace)).await;
    fixtures.bind_role("user:bob", "viewer", "workspace", Some(&neighbour_workspace)).await;
    let bind = async |workload: &str| {
        let draft = fixtures.draft(workload, &[]).await;
        let body = json!({ "asset_version_id": policy.asset_version_id, "role": "policy_bundle" });
        app.post(format!("/v1/releases/{draft}/bindings"), body).await
    };
    bind(&other_workload).await.expect_refusal(404, "not_found");
    let grant =
        create_grant(&app, &policy.asset_id, &workspace, json!({ "grantee_workspace_id": other_workspace })).await;
    bind(&other_workload).await.expect(201);
    bind(&neighbour_workload).await.expect_refusal(404, "not_found");
    let read = |actor: &str, workspace_id: &str| {
        app.get(format!("/v1/assets/{}?workspace_id={workspace_id}", policy.asset_id)).as_actor(actor)
    };
    read("user:ada", &other_workspace).await.expect(200);
    read("user:ada", &neighbour_workspace).await.expect_refusal(404, "not_found");
    read("user:bob", &other_workspace).await.expect_refusal(404, "not_found");
    for (actor, visible_count) in [("user:ada", 1), ("user:bob", 0)] {
        for query in ["".to_owned(), format!("?workspace_id={other_workspace}")] {
            let listed = app.get(format!("/v1/assets{query}")).as_actor(actor).await;
            assert_eq!(listed.expect(200).as_array().unwrap().len(), visible_count, "{actor}{query}");
            assert_eq!(listed.header("x-total-count"), Some(visible_count.to_string().as_str()));
        }
    }
    app.delete(format!("/v1/assets/{}/grants/{grant}?workspace_id={workspace}", policy.asset_id)).await.expect(204);
    bind(&other_workload).await.expect_refusal(404, "not_found");
    read("user:ada", &other_workspace).await.expect_refusal(404, "not_found");
}

#[tokio::test]
async fn grants_are_unique_listed_and_validated() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let asset = fixtures.asset_without_versions("skill", "thing").await;
    let other_asset = fixtures.asset_without_versions("skill", "other").await;
    let path = format!("/v1/assets/{asset}/grants?workspace_id={WORKSPACE}");
    let created = app.post(&path, json!({ "principal": "group:readers" })).idempotency_key("g").await;
    let body = created.expect(201);
    let expected = json!({
        "grant_id": body["grant_id"], "asset_id": asset, "principal": "group:readers", "grantee_workspace_id": null,
        "created_at": body["created_at"], "created_by": "user:local",
    });
    assert_eq!(body, expected);
    let replay = app.post(&path, json!({ "principal": "group:readers" })).idempotency_key("g").await;
    assert_eq!((replay.expect(201), replay.header("idempotency-replayed")), (expected.clone(), Some("true")));
    app.post(&path, json!({ "principal": "group:readers" })).await.expect_refusal(409, "duplicate_grant");
    let workspace = app.post(&path, json!({ "grantee_workspace_id": WORKSPACE })).await.expect(201);
    app.post(&path, json!({ "grantee_workspace_id": WORKSPACE })).await.expect_refusal(409, "duplicate_grant");
    assert_eq!(app.get(&path).await.expect(200), json!([workspace, expected]));
    for (body, field) in [
        (json!({}), "principal"),
        (json!({ "principal": "ada" }), "principal"),
        (json!({ "principal": "system:x" }), "principal"),
        (json!({ "principal": "anonymous" }), "principal"),
        (json!({ "principal": "user:x", "grantee_workspace_id": WORKSPACE }), "grantee_workspace_id"),
        (json!({ "principal": "user:x", "role": "viewer" }), "role"),
        (json!({ "grantee_workspace_id": "x" }), "grantee_workspace_id"),
    ] {
        let refusal = app.post(&path, body.clone()).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], field, "{body}");
    }
    app.post(&path, json!({ "grantee_workspace_id": UNKNOWN_WORKSPACE })).await.expect_refusal(404, "not_found");
    let other_tenant = fixtures.tenant("abroad").await;
    let foreign = fixtures.in_tenant(&other_tenant, WORKSPACE).workspace("foreign", "foreign").await;
    app.post(&path, json!({ "grantee_workspace_id": foreign })).await.expect_refusal(404, "not_found");
    // A grant is found only under its own asset.
    let grant = expected["grant_id"].as_str().unwrap();
    app.delete(format!("/v1/assets/{other_asset}/grants/{grant}?workspace_id={WORKSPACE}"))
        .await
        .expect_refusal(404, "not_found");
    app.delete(format!("/v1/assets/{asset}/grants/{grant}")).await.expect_refusal(422, "validation_error");
    app.delete(format!("/v1/assets/{asset}/grants/{grant}?workspace_id={WORKSPACE}")).await.expect(204);
}

#[tokio::test]
async fn builtin_assets_are_visible_everywhere_and_changed_by_operators() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let other_workspace = fixtures.workspace("elsewhere", "elsewhere").await;
    let builtin = fixtures.ticket_prompt("builtin").await;
    let own_prompt = fixtures.in_workspace(&other_workspace).ticket_prompt("own").await;
    let owner = app.database().connect_as_owner().await.unwrap();
    // No request can set the ownership tier, so the test sets it in the database.
    let set_builtin_sql =
        format!("UPDATE asset SET ownership_tier = 'platform_builtin' WHERE asset_id = '{}'", builtin.asset_id);
    owner.batch_execute(&set_builtin_sql).await.unwrap();
    let body = json!({
        "slug": "x", "asset_kind": "skill", "owner_ref": "team:a", "ownership_tier": "platform_builtin",
    });
    app.post("/v1/assets", body).await.expect_refusal(422, "validation_error");
    fixtures.bind_role("user:ada", "workspace_admin", "workspace", Some(&other_workspace)).await;
    fixtures.bind_role("user:home", "workspace_admin", "workspace", Some(WORKSPACE)).await;
    let response =
        app.get(format!("/v1/assets/{}?workspace_id={other_workspace}", builtin.asset_id)).as_actor("user:ada").await;
    assert_eq!(response.expect(200)["ownership_tier"], "platform_builtin");
    for query in ["".to_owned(), format!("?workspace_id={other_workspace}"), "?asset_kind=prompt_template".to_owned()] {
        let listed = app.get(format!("/v1/assets{query}")).as_actor("user:ada").await.expect(200);
        assert_eq!(slugs(&listed), ["own", "builtin"], "{query}");
    }
    for actor in ["user:ada", "user:home"] {
        let retire = format!("/v1/assets/{}/retire?workspace_id={other_workspace}", builtin.asset_id);
        let path = if actor == "user:home" { retire.replace(&other_workspace, WORKSPACE) } else { retire };
        app.post(path, json!({})).as_actor(actor).await.expect_refusal(403, "forbidden");
    }
    app.post(format!("/v1/assets/{}/retire?workspace_id={WORKSPACE}", builtin.asset_id), json!({})).await.expect(200);
    assert_eq!(own_prompt.slug, "own");
    // A caller without a role in the tenant does not see built-in assets.
    let revoked = fixtures.bind_role("user:nobody", "viewer", "workspace", Some(WORKSPACE)).await;
    app.delete(format!("/v1/role-bindings/{revoked}")).await.expect(204);
    let path = format!("/v1/assets/{}?workspace_id={WORKSPACE}", builtin.asset_id);
    app.get(path).as_actor("user:nobody").await.expect_refusal(404, "not_found");
}
