//! Grants of access requests, and their effects on the connection, the use case and its other requests.

use crate::support::workspace_fixture::WorkspaceFixture;
use fairway_testkit::{TestApp, app::Request};
use serde_json::{Value, json};

/// Creates a use case that waits for access to these connections, because its author may not create connections.
async fn create_pending_use_case(fixture: &WorkspaceFixture<'_>, connections: &[&str]) -> String {
    let use_case = fixture.create_use_case(connections).await;
    fixture.fixtures.bind_role("user:author", "author", "workspace", Some(&fixture.workspace)).await;
    let path = fixture.use_case_path(&format!("/{use_case}/publish"));
    let published = fixture.app.post(path, json!({})).as_actor("user:author").await.expect(200);
    assert_eq!(published["status"], "pending_access");
    use_case
}

/// The access request of a use case for a connection.
async fn request_for(fixture: &WorkspaceFixture<'_>, use_case: &str, connection: &str) -> Value {
    let path = format!("/v1/access-requests?workspace_id={}&limit=200", fixture.workspace);
    let requests = fixture.app.get(path).await.expect(200);
    let is_sought = |row: &&Value| row["use_case_id"] == use_case && row["connection_name"] == connection;
    requests.as_array().unwrap().iter().find(is_sought).unwrap().clone()
}

fn grant(fixture: &WorkspaceFixture<'_>, request: &Value, body: Value) -> Request {
    fixture.app.post(format!("/v1/access-requests/{}/grant", request["access_request_id"].as_str().unwrap()), body)
}

async fn status(fixture: &WorkspaceFixture<'_>, use_case: &str) -> Value {
    fixture.app.get(fixture.use_case_path(&format!("/{use_case}"))).await.expect(200)["status"].clone()
}

/// The detail of the audit fact about the last grant.
async fn granted_fact(app: &TestApp) -> Value {
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "SELECT convert_from(body, 'UTF8')::jsonb -> 'detail' FROM fact
        WHERE kind = 'access_request.granted' ORDER BY fact_id DESC LIMIT 1";
    owner.query_one(sql, &[]).await.unwrap().get(0)
}

const ENDPOINT: &str = "https://crm.example/api";
const FAR: &str = "2099-01-01T00:00:00Z";

/// Creates the connection `crm` with all settings, changes it, and returns its path.
async fn connection(fixture: &WorkspaceFixture<'_>, change: Value) -> String {
    let body = json!({
        "name": "crm", "connector_kind": "http", "endpoint": ENDPOINT, "expires_at": FAR,
        "secret_bindings": { "token": "env:CRM_TOKEN" }, "workspace_id": fixture.workspace,
    });
    let created = fixture.app.post("/v1/connections", body).await.expect(201);
    let path = format!("/v1/connections/{}", created["connection_id"].as_str().unwrap());
    fixture.app.patch(&path, change).await.expect(200);
    path
}

#[tokio::test]
async fn grant_keeps_the_settings_of_a_usable_connection() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let use_case = create_pending_use_case(&fixture, &["crm"]).await;
    let path = connection(&fixture, json!({ "status": "active" })).await;
    let before = app.get(&path).await;
    let request = request_for(&fixture, &use_case, "crm").await;
    grant(&fixture, &request, json!({})).await.expect(200);
    let after = app.get(&path).await;
    assert_eq!((after.header("etag"), after.expect(200)), (before.header("etag"), before.expect(200)));
    assert_eq!(status(&fixture, &use_case).await, "active");
    assert_eq!(granted_fact(&app).await["connection"], json!({ "change": "kept" }));
}

#[tokio::test]
async fn grant_changes_the_named_settings_and_makes_the_connection_usable() {
    for (unusable, body, expected, keys) in [
        (json!({ "status": "disabled" }), json!({}), json!({}), json!(["status"])),
        (
            json!({ "expires_at": "2020-01-01T00:00:00Z" }),
            json!({}),
            json!({ "expires_at": null }),
            json!(["expires_at"]),
        ),
        (
            json!({ "status": "disabled" }),
            json!({ "secret_bindings": { "token": "env:OTHER" } }),
            json!({ "secret_bindings": { "token": "env:OTHER" } }),
            json!(["secret_bindings", "status"]),
        ),
        (
            json!({ "status": "disabled" }),
            json!({ "connector_kind": "s3", "endpoint": "https://store.example" }),
            json!({ "connector_kind": "s3", "endpoint": "https://store.example" }),
            json!(["connector_kind", "endpoint", "status"]),
        ),
    ] {
        let app = TestApp::start().await;
        let fixture = WorkspaceFixture::create(&app).await;
        let use_case = create_pending_use_case(&fixture, &["crm"]).await;
        let path = connection(&fixture, unusable).await;
        let request = request_for(&fixture, &use_case, "crm").await;
        grant(&fixture, &request, body.clone()).await.expect(200);
        let mut settings = json!({
            "connector_kind": "http", "endpoint": ENDPOINT, "expires_at": FAR, "status": "active",
            "secret_bindings": { "token": "env:CRM_TOKEN" },
        });
        settings.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
        let after = app.get(&path).await.expect(200);
        for (name, value) in settings.as_object().unwrap() {
            assert_eq!(&after[name], value, "{name} after {body}");
        }
        assert_eq!(status(&fixture, &use_case).await, "active");
        let fact = granted_fact(&app).await;
        assert_eq!((&fact["connection"]["change"], &fact["connection"]["keys"]), (&json!("changed"), &keys));
    }
}

#[tokio::test]
async fn grant_that_activates_withdraws_the_other_requests() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let use_case = create_pending_use_case(&fixture, &["crm", "mail"]).await;
    let (crm, mail) = (request_for(&fixture, &use_case, "crm").await, request_for(&fixture, &use_case, "mail").await);
    // The connection already exists before its access request is decided.
    fixture.create_connection("mail").await;
    let response = grant(&fixture, &crm, json!({ "connector_kind": "http" })).await.expect(200);
    assert_eq!((&response["status"], status(&fixture, &use_case).await), (&json!("granted"), json!("active")));
    let withdrawn = request_for(&fixture, &use_case, "mail").await;
    assert_eq!((&withdrawn["status"], &withdrawn["decided_by"]), (&json!("withdrawn"), &response["decided_by"]));
    assert!(withdrawn["decided_at"].is_string());
    let refusal = grant(&fixture, &mail, json!({})).await.expect_refusal(409, "invalid_transition");
    assert_eq!(refusal["current_state"], "withdrawn");
    let fact = granted_fact(&app).await;
    assert_eq!((&fact["activates"], &fact["connection"]["change"]), (&json!(true), &json!("created")));
    assert_eq!(fact["connection"]["connector_kind"], "http");
}

/// The clocks of servers differ, so only the database's clock decides whether a request has expired.
#[tokio::test]
async fn database_clock_decides_on_expiry() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let use_case = create_pending_use_case(&fixture, &["crm"]).await;
    let owner = app.database().connect_as_owner().await.unwrap();
    let expiry_sql = "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '1 hour', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')";
    let expires_at: String = owner.query_one(expiry_sql, &[]).await.unwrap().get(0);
    let path = connection(&fixture, json!({ "expires_at": expires_at })).await;
    app.database().set_clock_offset(2 * 60 * 60).await.unwrap();
    let activate = app.post(fixture.use_case_path(&format!("/{use_case}/activate")), json!({}));
    activate.await.expect_refusal(409, "connections_unresolved");
    let bundle = app.get(fixture.use_case_path(&format!("/{use_case}/bundle"))).await.expect(200);
    assert_eq!(bundle["open_connection_gaps"], json!([{ "kind": "mint_fresh", "ref": "crm" }]));
    let request = request_for(&fixture, &use_case, "crm").await;
    grant(&fixture, &request, json!({})).await.expect(200);
    let connection = app.get(&path).await.expect(200);
    assert_eq!((&connection["expires_at"], status(&fixture, &use_case).await), (&json!(null), json!("active")));
}
