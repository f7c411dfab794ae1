//! Connections: settings, secret references, and checks of their endpoints.

use crate::fixture::{WORKSPACE, WorkspaceFixture};
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpListener};

async fn create(app: &TestApp, body: Value) -> Value {
    app.post("/v1/connections", body).await.expect(201)
}

#[tokio::test]
async fn keeps_references_and_refuses_secrets() {
    let app = TestApp::start().await;
    let body = json!({
        "name": "crm", "connector_kind": "http", "endpoint": "https://crm.example/api",
        "secret_bindings": { "token": "env:CRM_TOKEN" }, "expires_at": "2099-01-01T00:00:00Z",
    });
    let made = create(&app, body.clone()).await;
    assert_eq!(
        (&made["workspace_id"], &made["status"], &made["health"]),
        (&json!(WORKSPACE), &json!("active"), &json!("unchecked"))
    );
    assert_eq!(made["secret_bindings"], json!({ "token": "env:CRM_TOKEN" }));
    app.post("/v1/connections", body).await.expect_refusal(409, "duplicate_connection");
    let secret = "sk-canary-0123456789";
    for (field, value) in [
        ("secret_bindings", json!({ "token": secret })),
        ("endpoint", json!("https://user:canary@crm.example")),
        ("endpoint", json!("https://crm.example/?key=canary")),
        ("connector_kind", json!("canary")),
        ("status", json!("canary")),
        ("expires_at", json!("canary")),
    ] {
        let mut body = json!({ "name": "other", "connector_kind": "http" });
        body[field] = value;
        let answer = app.post("/v1/connections", body).await;
        let refused = answer.expect_refusal(422, "validation_error");
        assert!(refused["fields"][0]["path"].as_str().unwrap().starts_with(field), "{answer}");
        assert!(!answer.text().contains("canary"), "{answer}");
    }
    let path = format!("/v1/connections/{}", made["connection_id"].as_str().unwrap());
    let read = app.get(&path).await;
    let changed = app.patch(&path, json!({ "status": "disabled" })).header("If-Match", read.header("etag").unwrap());
    assert_eq!(changed.await.expect(200)["status"], "disabled");
    let stale = app.patch(&path, json!({ "status": "active" })).header("If-Match", read.header("etag").unwrap());
    stale.await.expect_refusal(412, "precondition_failed");
    app.delete(&path).await.expect(204);
    app.get(&path).await.expect_refusal(404, "not_found");
}

#[tokio::test]
async fn checks_endpoints_through_the_egress_guard() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"220 mail.example\r\n").await.unwrap();
        }
    });
    let app = TestApp::builder().setting("FAIRWAY_EGRESS_ALLOW", address.to_string()).start().await;
    let smtp =
        create(&app, json!({ "name": "mail", "connector_kind": "smtp", "endpoint": format!("smtp://{address}") }))
            .await;
    let path = format!("/v1/connections/{}", smtp["connection_id"].as_str().unwrap());
    let checked = app.post(format!("{path}/check"), json!({})).await.expect(200);
    assert_eq!((&checked["health"], &checked["health_code"]), (&json!("healthy"), &json!(null)), "{checked}");
    // The same server speaks another protocol than this one.
    app.patch(&path, json!({ "connector_kind": "postgres", "endpoint": format!("postgres://{address}") }))
        .await
        .expect(200);
    assert_eq!(app.get(&path).await.expect(200)["health"], "unchecked");
    let checked = app.post(format!("{path}/check"), json!({})).await.expect(200);
    assert_eq!(checked["health_code"], "endpoint_malformed_answer");
    // The guard refuses addresses that no setting allows.
    app.patch(&path, json!({ "connector_kind": "smtp", "endpoint": "smtp://127.0.0.1:1" })).await.expect(200);
    let checked = app.post(format!("{path}/check"), json!({})).await.expect(200);
    assert_eq!((&checked["health"], &checked["health_code"]), (&json!("unhealthy"), &json!("endpoint_forbidden")));
    let history = checked["checks"].as_array().unwrap();
    let codes: Vec<&Value> = history.iter().map(|check| &check["health_code"]).collect();
    assert_eq!(codes, [&json!("endpoint_forbidden"), &json!("endpoint_malformed_answer"), &json!(null)]);
    let other =
        create(&app, json!({ "name": "other", "connector_kind": "other", "endpoint": "https://x.example" })).await;
    let path = format!("/v1/connections/{}/check", other["connection_id"].as_str().unwrap());
    assert_eq!(app.post(path, json!({})).await.expect(200)["health"], "not_checkable");
}

#[tokio::test]
async fn connections_stay_in_their_workspace_and_tenant() {
    let app = TestApp::start().await;
    let stage = WorkspaceFixture::create(&app).await;
    let abroad = WorkspaceFixture::in_other_tenant(&app).await;
    let path = format!("/v1/connections/{}", stage.create_connection("crm").await);
    app.get(&path).in_tenant(&abroad.tenant).await.expect_refusal(404, "not_found");
    app.get(format!("{path}?workspace_id={WORKSPACE}")).await.expect_refusal(404, "not_found");
    app.delete(&path).in_tenant(&abroad.tenant).await.expect_refusal(404, "not_found");
    app.get(format!("{path}?workspace_id={}", stage.workspace)).await.expect(200);
}
