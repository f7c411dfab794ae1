//! Visibility of assets: namespaces, grants, and built-in assets.

use crate::fixture::WORKSPACE;
use fairway_testkit::TestApp;
use serde_json::{Value, json};

const UNKNOWN_WORKSPACE: &str = "0190f000-0000-7000-8000-00000000dead";

/// The slugs in a list response, in order.
fn slugs(listed: &Value) -> Vec<&str> {
    listed.as_array().unwrap().iter().map(|row| row["slug"].as_str().unwrap()).collect()
}

async fn create_grant(app: &TestApp, asset: &str, from: &str, grantee: Value) -> String {
    let path = format!("/v1/assets/{asset}/grants?workspace_id={from}");
    app.post(path, grantee).await.expect(201)["grant_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn viewers_see_assets_of_the_whole_namespace() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let one = fixtures.workspace("one", "shared").await;
    let two = fixtures.workspace("two", "shared").await;
    let three = fixtures.workspace("three", "elsewhere").await;
    let asset = fixtures.in_workspace(&one).asset_without_versions("skill", "shared-skill").await;
    fixtures.bind_role("user:ada", "author", "workspace", Some(&two)).await;
    for (from, status) in [(&one, 200), (&two, 200), (&three, 404)] {
        let response = app.get(format!("/v1/assets/{asset}?workspace_id={from}")).as_actor("user:ada").await;
        assert_eq!(response.status, status, "{response}");
        let listed = app.get(format!("/v1/assets?workspace_id={from}")).as_actor("user:ada").await;
        assert_eq!(listed.status, status, "{listed}");
    }
    let all = app.get("/v1/assets").as_actor("user:ada").await.expect(200);
    assert_eq!(slugs(&all), ["shared-skill"]);
    // A change requires a role in the asset's own workspace.
    let retire =
        app.post(format!("/v1/assets/{asset}/retire?workspace_id={two}"), json!({})).as_actor("user:ada").await;
    assert_eq!(retire.expect_refusal(403, "forbidden")["permission"], "asset.edit");
    let version = json!({ "content": { "system_prompt": "x" } });
    let version = app.post(format!("/v1/assets/{asset}/versions"), version).as_actor("user:ada").await;
    assert_eq!(version.expect_refusal(403, "forbidden")["permission"], "asset.edit");
}

#[tokio::test]
async fn principal_grant_reveals_only_its_asset_until_revoked() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let here = fixtures.workspace("here", "here").await;
    let there = fixtures.workspace("there", "there").await;
    let home = fixtures.in_workspace(&here);
    let (shown, hidden) = (home.prompt("shown").await, home.prompt("hidden").await);
    fixtures.bind_role("user:ada", "viewer", "workspace", Some(&there)).await;
    // The only role of this caller was revoked.
    let revoked = fixtures.bind_role("user:bob", "viewer", "workspace", Some(&there)).await;
    app.delete(format!("/v1/role-bindings/{revoked}")).await.expect(204);
    let read =
        |actor: &str, id: &str, from: &str| app.get(format!("/v1/assets/{id}?workspace_id={from}")).as_actor(actor);
    for actor in ["user:ada", "user:bob"] {
        read(actor, &shown.asset_id, &there).await.expect_refusal(404, "not_found");
        let granted = create_grant(&app, &shown.asset_id, &here, json!({ "principal": actor })).await;
        for from in [&here, &there] {
            assert_eq!(read(actor, &shown.asset_id, from).await.expect(200)["slug"], "shown");
            read(actor, &hidden.asset_id, from).await.expect_refusal(404, "not_found");
            let listed = app.get(format!("/v1/assets?workspace_id={from}")).as_actor(actor).await.expect(200);
            assert_eq!(slugs(&listed), ["shown"], "{actor} from {from}");
        }
        read(actor, &shown.asset_id, UNKNOWN_WORKSPACE).await.expect_refusal(404, "not_found");
        let (asset, version) = (&shown.asset_id, &shown.asset_version_id);
        let path = format!("/v1/assets/{asset}/versions/{version}?workspace_id={there}");
        app.get(path).as_actor(actor).await.expect(200);
        assert_eq!(slugs(&app.get("/v1/assets").as_actor(actor).await.expect(200)), ["shown"]);
        app.get(format!("/v1/assets/{asset}/blast-radius")).as_actor(actor).await.expect(200);
        // A grant allows neither changes of the asset nor listing its grants.
        for verb in ["retire", "archive", "activate", "grants"] {
            let path = format!("/v1/assets/{asset}/{verb}?workspace_id={there}");
            let body = if verb == "grants" { json!({ "principal": "user:x" }) } else { json!({}) };
            app.post(path, body).as_actor(actor).await.expect_refusal(403, "forbidden");
        }
        app.get(format!("/v1/assets/{asset}/grants?workspace_id={there}"))
            .as_actor(actor)
            .await
            .expect_refusal(403, "forbidden");
        let path = format!("/v1/assets/{asset}/grants/{granted}");
        app.delete(format!("{path}?workspace_id={there}")).as_actor(actor).await.expect_refusal(403, "forbidden");
        app.delete(format!("{path}?workspace_id={here}")).await.expect(204);
        app.delete(format!("{path}?workspace_id={here}")).await.expect_refusal(404, "not_found");
        for from in [&here, &there] {
            read(actor, asset, from).await.expect_refusal(404, "not_found");
        }
    }
    app.get("/v1/assets").as_actor("user:bob").await.expect_refusal(403, "forbidden");
}

#[tokio::test]
async fn workspace_grant_permits_reading_and_binding_there() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let here = fixtures.workspace("here", "here").await;
    let there = fixtures.workspace("there", "there").await;
    let beside = fixtures.workspace("beside", "there").await;
    let policy = fixtures.in_workspace(&here).policy("policy").await;
    let guest = fixtures.in_workspace(&there);
    let (theirs, next) = (guest.workload("theirs").await, fixtures.in_workspace(&beside).workload("next").await);
    fixtures.bind_role("user:ada", "viewer", "workspace", Some(&there)).await;
    fixtures.bind_role("user:bob", "viewer", "workspace", Some(&beside)).await;
    let bind = async |workload: &str| {
        let draft = fixtures.draft(workload, &[]).await;
        let body = json!({ "asset_version_id": policy.asset_version_id, "role": "policy_bundle" });
        app.post(format!("/v1/releases/{draft}/bindings"), body).await
    };
    bind(&theirs).await.expect_refusal(404, "not_found");
    let granted = create_grant(&app, &policy.asset_id, &here, json!({ "grantee_workspace_id": there })).await;
    bind(&theirs).await.expect(201);
    bind(&next).await.expect_refusal(404, "not_found");
    let read = |actor: &str, from: &str| {
        app.get(format!("/v1/assets/{}?workspace_id={from}", policy.asset_id)).as_actor(actor)
    };
    read("user:ada", &there).await.expect(200);
    read("user:ada", &beside).await.expect_refusal(404, "not_found");
    read("user:bob", &there).await.expect_refusal(404, "not_found");
    for (actor, seen) in [("user:ada", 1), ("user:bob", 0)] {
        for query in ["".to_owned(), format!("?workspace_id={there}")] {
            let listed = app.get(format!("/v1/assets{query}")).as_actor(actor).await;
            assert_eq!(listed.expect(200).as_array().unwrap().len(), seen, "{actor}{query}");
            assert_eq!(listed.header("x-total-count"), Some(seen.to_string().as_str()));
        }
    }
    app.delete(format!("/v1/assets/{}/grants/{granted}?workspace_id={here}", policy.asset_id)).await.expect(204);
    bind(&theirs).await.expect_refusal(404, "not_found");
    read("user:ada", &there).await.expect_refusal(404, "not_found");
}

#[tokio::test]
async fn grants_are_unique_listed_and_validated() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let asset = fixtures.asset_without_versions("skill", "thing").await;
    let other = fixtures.asset_without_versions("skill", "other").await;
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
    app.delete(format!("/v1/assets/{other}/grants/{grant}?workspace_id={WORKSPACE}"))
        .await
        .expect_refusal(404, "not_found");
    app.delete(format!("/v1/assets/{asset}/grants/{grant}")).await.expect_refusal(422, "validation_error");
    app.delete(format!("/v1/assets/{asset}/grants/{grant}?workspace_id={WORKSPACE}")).await.expect(204);
}

#[tokio::test]
async fn builtin_assets_are_visible_everywhere_and_changed_by_operators() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let elsewhere = fixtures.workspace("elsewhere", "elsewhere").await;
    let builtin = fixtures.prompt("builtin").await;
    let own = fixtures.in_workspace(&elsewhere).prompt("own").await;
    let owner = app.database().connect_as_owner().await.unwrap();
    // No request can set the ownership tier, so the test sets it in the database.
    let set = format!("UPDATE asset SET ownership_tier = 'platform_builtin' WHERE asset_id = '{}'", builtin.asset_id);
    owner.batch_execute(&set).await.unwrap();
    let body = json!({
        "slug": "x", "asset_kind": "skill", "owner_ref": "team:a", "ownership_tier": "platform_builtin",
    });
    app.post("/v1/assets", body).await.expect_refusal(422, "validation_error");
    fixtures.bind_role("user:ada", "workspace_admin", "workspace", Some(&elsewhere)).await;
    fixtures.bind_role("user:home", "workspace_admin", "workspace", Some(WORKSPACE)).await;
    let read = app.get(format!("/v1/assets/{}?workspace_id={elsewhere}", builtin.asset_id)).as_actor("user:ada").await;
    assert_eq!(read.expect(200)["ownership_tier"], "platform_builtin");
    for query in ["".to_owned(), format!("?workspace_id={elsewhere}"), "?asset_kind=prompt_template".to_owned()] {
        let listed = app.get(format!("/v1/assets{query}")).as_actor("user:ada").await.expect(200);
        assert_eq!(slugs(&listed), ["own", "builtin"], "{query}");
    }
    for actor in ["user:ada", "user:home"] {
        let retire = format!("/v1/assets/{}/retire?workspace_id={elsewhere}", builtin.asset_id);
        let from = if actor == "user:home" { retire.replace(&elsewhere, WORKSPACE) } else { retire };
        app.post(from, json!({})).as_actor(actor).await.expect_refusal(403, "forbidden");
    }
    app.post(format!("/v1/assets/{}/retire?workspace_id={WORKSPACE}", builtin.asset_id), json!({})).await.expect(200);
    assert_eq!(own.slug, "own");
    // A caller without a role in the tenant does not see built-in assets.
    let revoked = fixtures.bind_role("user:nobody", "viewer", "workspace", Some(WORKSPACE)).await;
    app.delete(format!("/v1/role-bindings/{revoked}")).await.expect(204);
    let path = format!("/v1/assets/{}?workspace_id={WORKSPACE}", builtin.asset_id);
    app.get(path).as_actor("user:nobody").await.expect_refusal(404, "not_found");
}
