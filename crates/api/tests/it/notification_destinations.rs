//! Destinations of notifications over HTTP: both scopes (workspace and organization), redaction, preconditions and
//! management.

use crate::support::workspace_fixture::{TENANT, WORKSPACE, WorkspaceFixture};
use fairway_testkit::{TestApp, app::Client};
use serde_json::{Value, json};

const ORGANIZATION: &str = "/v1/notifications/organization/destinations";
const SECRET: &str = "hunter2-canary";

fn in_workspace(workspace: &str) -> String {
    format!("/v1/notifications/workspaces/{workspace}/destinations")
}

fn webhook(name: &str) -> Value {
    json!({
        "destination_type": "webhook", "display_name": name, "redacted_metadata": { "url": "https://hooks.example/in" },
        "secret_ref": "env:HOOK_KEY", "is_enabled": true,
    })
}

async fn create(app: &Client, folder: &str, body: Value) -> (String, Value) {
    let created = app.post(folder, body).await.expect(201);
    (format!("{folder}/{}", created["destination_id"].as_str().unwrap()), created)
}

/// The stored facts about a destination, read from the database because the audit log over HTTP shows no details.
async fn facts_about(app: &TestApp, destination: &Value) -> Vec<Value> {
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql =
        "SELECT convert_from(body, 'UTF8') FROM fact WHERE kind LIKE 'notification.destination\\_%' ORDER BY fact_id";
    let rows = owner.query(sql, &[]).await.unwrap();
    let facts = rows.iter().map(|row| serde_json::from_str::<Value>(row.get(0)).unwrap());
    facts.filter(|fact| fact.to_string().contains(destination.as_str().unwrap())).collect()
}

#[tokio::test]
async fn destination_lives_in_its_scope_from_creation_to_deletion() {
    let app = TestApp::start().await;
    let workspace = in_workspace(WORKSPACE);
    for (folder, scope, workspace_id, other_id) in [
        (ORGANIZATION, "organization", Value::Null, workspace.as_str()),
        (workspace.as_str(), "workspace", json!(WORKSPACE), ORGANIZATION),
    ] {
        let created = app.post(folder, webhook("Incidents")).idempotency_key(scope).await;
        let destination = created.expect(201);
        let id = destination["destination_id"].as_str().unwrap();
        let path = format!("{folder}/{id}");
        assert_eq!((created.header("location"), created.header("etag")), (Some(path.as_str()), Some("\"1\"")));
        assert_eq!((&destination["scope"], &destination["workspace_id"]), (&json!(scope), &workspace_id));
        assert_eq!((&destination["has_secret_ref"], &destination["is_enabled"]), (&json!(true), &json!(true)));
        let replay = app.post(folder, webhook("Incidents")).idempotency_key(scope).await;
        assert_eq!((replay.expect(201), replay.header("idempotency-replayed")), (destination.clone(), Some("true")));
        app.post(folder, webhook("Incidents")).await.expect_refusal(409, "duplicate_destination");

        let changes =
            json!({ "is_enabled": false, "secret_ref": null, "redacted_metadata": { "url": "https://b.example" } });
        let change_response = app.patch(&path, changes).header("If-Match", "\"1\"").await;
        assert_eq!(change_response.header("etag"), Some("\"2\""));
        let changed_destination = change_response.expect(200);
        assert_eq!(
            (&changed_destination["has_secret_ref"], &changed_destination["is_enabled"]),
            (&json!(false), &json!(false))
        );
        assert_eq!(changed_destination["display_name"], "Incidents", "an omitted field stays unchanged");
        let stale = app.patch(&path, json!({ "is_enabled": true })).header("If-Match", "\"1\"").await;
        stale.expect_refusal(412, "precondition_failed");
        let (response, _) = create(&app, folder, webhook("Approvals")).await;
        let rename = app.patch(&response, json!({ "display_name": "Incidents" })).await;
        rename.expect_refusal(409, "duplicate_destination");

        let read_response = app.get(&path).await;
        assert_eq!((read_response.expect(200), read_response.header("etag")), (changed_destination, Some("\"2\"")));
        let listed = app.get(folder).await;
        assert_eq!((listed.expect(200).as_array().unwrap().len(), listed.header("x-total-count")), (2, Some("2")));
        // The destination does not exist in the other scope.
        for request in [
            app.get(format!("{other_id}/{id}")),
            app.patch(format!("{other_id}/{id}"), json!({ "is_enabled": true })),
            app.delete(format!("{other_id}/{id}")),
        ] {
            request.await.expect_refusal(404, "not_found");
        }
        app.delete(&path).await.expect(204);
        app.delete(&path).await.expect_refusal(404, "not_found");
        app.get(&path).await.expect_refusal(404, "not_found");
        app.delete(&response).await.expect(204);
    }
}

#[tokio::test]
async fn responses_and_facts_contain_no_secret() {
    let app = TestApp::start().await;
    let metadata = json!({
        "url": format!("https://ada:{SECRET}@hooks.example/in?token={SECRET}&room=7"),
        "apiKey": SECRET,
        "API-KEY": SECRET,
        "routing": { "signing_secret": SECRET, "retries": [{ "Password": SECRET }] },
        "format": "slack",
    });
    let body = json!({
        "destination_type": "chat_a", "display_name": "Room", "redacted_metadata": metadata,
        "secret_ref": "vault:chat/room#hunter2-canary", "is_enabled": true,
    });
    let (path, created) = create(&app, ORGANIZATION, body).await;
    assert_eq!(created["redacted_metadata"]["apiKey"], "[redacted]");
    assert_eq!(created["redacted_metadata"]["format"], "slack");
    let changed_destination = app.patch(&path, json!({ "redacted_metadata": { "x_token": SECRET } })).await.expect(200);
    assert_eq!(changed_destination["redacted_metadata"], json!({ "x_token": "[redacted]" }));
    let listed = app.get(ORGANIZATION).await.expect(200);
    let destination = app.get(&path).await.expect(200);
    for view in [&created, &changed_destination, &listed, &destination] {
        assert!(!view.to_string().contains(SECRET), "{view}");
        assert!(view.get("secret_ref").is_none(), "{view}");
    }
    let facts = facts_about(&app, &created["destination_id"]).await;
    assert_eq!(facts.len(), 2, "{facts:?}");
    assert!(!json!(facts).to_string().contains(SECRET), "{facts:?}");
    // A secret in place of a secret reference is refused, and the response does not echo it.
    for invalid_reference in [SECRET, "env:../X", "vault:/etc#x", "file:../other/key", ""] {
        let response = app.patch(&path, json!({ "secret_ref": invalid_reference })).await;
        let detail = response.expect_refusal(422, "validation_error");
        assert_eq!(detail["fields"][0]["code"], "invalid_secret_ref", "{response}");
        assert!(invalid_reference.is_empty() || !response.text().contains(invalid_reference), "{response}");
    }
}

#[tokio::test]
async fn fact_holds_key_names_and_a_deletion_holds_the_id() {
    let app = TestApp::start().await;
    let (path, destination) = create(&app, ORGANIZATION, webhook("Incidents")).await;
    app.patch(&path, json!({ "is_enabled": false })).await.expect(200);
    app.delete(&path).await.expect(204);
    let facts = facts_about(&app, &destination["destination_id"]).await;
    assert_eq!(facts.len(), 3, "{facts:?}");
    let find = |kind: &str| facts.iter().find(|fact| fact["kind"] == kind).unwrap()["detail"].clone();
    let created = find("notification.destination_created");
    assert_eq!((&created["keys"], &created["has_secret_ref"]), (&json!(["url"]), &json!(true)));
    assert_eq!(find("notification.destination_changed")["is_enabled"], false);
    assert_eq!(find("notification.destination_deleted"), json!({}));
}

#[tokio::test]
async fn hostile_destinations_are_refused_and_addresses_are_saved() {
    let app = TestApp::start().await;
    let long_name = "x".repeat(201);
    for (field, value, code) in [
        ("destination_type", json!("portal"), "invalid"),
        ("destination_type", json!("slack"), "invalid"),
        ("display_name", json!(""), "invalid_name"),
        ("display_name", json!(long_name), "invalid_name"),
        ("display_name", json!("a\nb"), "invalid_name"),
        ("redacted_metadata", json!({ "a key": 1 }), "invalid"),
        ("redacted_metadata", json!({ "nested": [{ "https://x": 1 }] }), "invalid"),
        ("redacted_metadata", json!({ "note": "x".repeat(9 << 10) }), "too_long"),
        ("secret_ref", json!("plain"), "invalid_secret_ref"),
    ] {
        let mut body = webhook("Hostile");
        body[field] = value;
        let refusal = app.post(ORGANIZATION, body).await.expect_refusal(422, "validation_error");
        let fields = refusal["fields"].as_array().unwrap();
        assert!(fields.iter().all(|error| error["path"] == field), "{refusal}");
        assert!(fields.iter().any(|error| error["code"] == code), "{refusal}");
    }
    let extra = json!({ "destination_type": "webhook", "display_name": "x", "secret": SECRET });
    let response = app.post(ORGANIZATION, extra).await;
    response.expect_refusal(422, "validation_error");
    assert!(!response.text().contains(SECRET), "{response}");
    // Creation accepts these addresses, because the server checks them at each delivery (threat T35 in
    // `docs/security.md`).
    for (turn, url) in
        ["http://127.1", "http://[::1]", "file:///etc/passwd", "http://169.254.169.254/"].iter().enumerate()
    {
        let mut body = webhook(&format!("Address {turn}"));
        body["redacted_metadata"]["url"] = json!(url);
        assert_eq!(create(&app, ORGANIZATION, body).await.1["redacted_metadata"]["url"], *url);
    }
}

#[tokio::test]
async fn tenants_and_workspaces_do_not_see_each_others_destinations() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let workspace = Some(fixture.workspace.as_str());
    for role in ["viewer", "operator", "workspace_admin"] {
        fixture.fixtures.bind_role(&format!("user:{}", role.replace('_', "-")), role, "workspace", workspace).await;
    }
    let other_workspace = fixture.fixtures.workspace("next-door", "next-door").await;
    fixture.fixtures.bind_role("user:neighbour", "workspace_admin", "workspace", Some(&other_workspace)).await;
    let other_tenant = fixture.fixtures.tenant("abroad").await;
    let foreign_fixtures = app.fixtures().in_tenant(&other_tenant, "");
    foreign_fixtures.bind_role("user:stranger", "tenant_admin", "tenant", Some(&other_tenant)).await;
    let folder = in_workspace(&fixture.workspace);
    let (path, created) = create(&app, &folder, webhook("Incidents")).await;
    let (shared, _) = create(&app, ORGANIZATION, webhook("Incidents")).await;
    app.get(&path).as_actor("user:workspace-admin").await.expect(200);
    for caller in ["user:viewer", "user:operator", "user:neighbour"] {
        app.get(&path).as_actor(caller).await.expect_refusal(403, "forbidden");
        app.delete(&path).as_actor(caller).await.expect_refusal(403, "forbidden");
    }
    // An administrator of a workspace may not manage destinations of the organization.
    app.get(&shared).as_actor("user:workspace-admin").await.expect_refusal(403, "forbidden");
    // The identifier does not exist within another administrator's workspace.
    let path_in_other_workspace =
        format!("{}/{}", in_workspace(&other_workspace), created["destination_id"].as_str().unwrap());
    app.get(&path_in_other_workspace).as_actor("user:neighbour").await.expect_refusal(404, "not_found");
    for path in [&path, &shared] {
        app.get(path).as_actor("user:stranger").in_tenant(&other_tenant).await.expect_refusal(404, "not_found");
        app.delete(path).as_actor("user:stranger").in_tenant(&other_tenant).await.expect_refusal(404, "not_found");
    }
    let foreign_destinations =
        app.get(ORGANIZATION).as_actor("user:stranger").in_tenant(&other_tenant).await.expect(200);
    assert_eq!(foreign_destinations, json!([]));
}

#[tokio::test]
async fn disabled_notifications_refuse_destinations() {
    let app = TestApp::start().await;
    let (path, _) = create(&app, ORGANIZATION, webhook("Incidents")).await;
    app.patch(format!("/v1/tenants/{TENANT}/settings"), json!({ "notifications_enabled": false })).await.expect(200);
    for request in [
        app.get(ORGANIZATION),
        app.get(in_workspace(WORKSPACE)),
        app.post(ORGANIZATION, webhook("More")),
        app.get(&path),
        app.patch(&path, json!({ "is_enabled": false })),
        app.delete(&path),
    ] {
        let detail = request.await.expect_refusal(403, "enterprise_capability_required");
        assert_eq!(detail["setting"], "notifications_enabled");
    }
}

#[tokio::test]
async fn destinations_without_required_fields_are_refused_with_the_field() {
    let app = TestApp::start().await;
    for (kind, metadata, secret_ref, path, code) in [
        ("webhook", json!({}), Value::Null, "redacted_metadata.url", "missing"),
        ("paging", json!({ "format": "x" }), json!("env:KEY"), "redacted_metadata.url", "missing"),
        ("email", json!({ "url": "https://hooks.example" }), Value::Null, "redacted_metadata.address", "missing"),
        ("chat_a", json!({ "format": "slack" }), Value::Null, "redacted_metadata.url", "missing"),
        ("chat_b", json!({ "format": "irc" }), json!("env:CHAT"), "redacted_metadata.format", "invalid"),
        ("chat_c", json!({ "format": 7 }), json!("env:CHAT"), "redacted_metadata.format", "invalid"),
    ] {
        let body = json!({
            "destination_type": kind, "display_name": kind, "redacted_metadata": metadata, "secret_ref": secret_ref,
        });
        let refusal = app.post(ORGANIZATION, body).await.expect_refusal(422, "validation_error");
        assert_eq!(
            (&refusal["fields"][0]["path"], &refusal["fields"][0]["code"]),
            (&json!(path), &json!(code)),
            "{kind}"
        );
    }
    let (path, _) = create(&app, ORGANIZATION, webhook("Incidents")).await;
    let refusal = app.patch(&path, json!({ "redacted_metadata": {} })).await.expect_refusal(422, "validation_error");
    assert_eq!(refusal["fields"][0]["path"], "redacted_metadata.url");
}

#[tokio::test]
async fn deletion_checks_the_revision() {
    let app = TestApp::start().await;
    let (path, _) = create(&app, ORGANIZATION, webhook("Incidents")).await;
    app.patch(&path, json!({ "is_enabled": false })).await.expect(200);
    app.delete(&path).header("If-Match", "\"1\"").await.expect_refusal(412, "precondition_failed");
    app.get(&path).await.expect(200);
    app.delete(&path).header("If-Match", "\"2\"").await.expect(204);
    app.delete(&path).await.expect_refusal(404, "not_found");
}

#[tokio::test]
async fn scope_has_at_most_a_hundred_destinations() {
    let app = TestApp::start().await;
    let workspace = format!("/v1/notifications/workspaces/{WORKSPACE}/destinations");
    for number in 0..100 {
        app.post(ORGANIZATION, webhook(&format!("hook {number}"))).await.expect(201);
    }
    app.post(ORGANIZATION, webhook("one more")).await.expect_refusal(409, "too_many_destinations");
    create(&app, &workspace, webhook("of the workspace")).await;
    let newest_id = app.get(format!("{ORGANIZATION}?limit=1")).await.expect(200)[0]["destination_id"].clone();
    app.delete(format!("{ORGANIZATION}/{}", newest_id.as_str().unwrap())).await.expect(204);
    create(&app, ORGANIZATION, webhook("one more")).await;
}
