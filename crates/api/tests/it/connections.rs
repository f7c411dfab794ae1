//! Connections: settings, secret references, and checks of their endpoints.

use crate::support::workspace_fixture::{WORKSPACE, WorkspaceFixture};
use fairway_testkit::TestApp;
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

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
    let created = create(&app, body.clone()).await;
    assert_eq!(
        (&created["workspace_id"], &created["status"], &created["health"]),
        (&json!(WORKSPACE), &json!("active"), &json!("unchecked"))
    );
    assert_eq!(created["secret_bindings"], json!({ "token": "env:CRM_TOKEN" }));
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
        let response = app.post("/v1/connections", body).await;
        let refusal = response.expect_refusal(422, "validation_error");
        assert!(refusal["fields"][0]["path"].as_str().unwrap().starts_with(field), "{response}");
        assert!(!response.text().contains("canary"), "{response}");
    }
    let path = format!("/v1/connections/{}", created["connection_id"].as_str().unwrap());
    // The endpoint's scheme must match the connector kind, whichever of the two a request changes.
    for mismatch in [
        json!({ "connector_kind": "postgres" }),
        json!({ "endpoint": "smtp://mail.example" }),
        json!({ "connector_kind": "s3", "endpoint": "ftp://store.example" }),
    ] {
        let refusal = app.patch(&path, mismatch).await.expect_refusal(422, "validation_error");
        let field = &refusal["fields"][0];
        assert_eq!((&field["path"], &field["code"]), (&json!("endpoint"), &json!("endpoint_scheme_mismatch")));
    }
    let response = app.get(&path).await;
    let disable =
        app.patch(&path, json!({ "status": "disabled" })).header("If-Match", response.header("etag").unwrap());
    assert_eq!(disable.await.expect(200)["status"], "disabled");
    let stale = app.patch(&path, json!({ "status": "active" })).header("If-Match", response.header("etag").unwrap());
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
    // The same endpoint is now checked as PostgreSQL, but it responds in SMTP.
    app.patch(&path, json!({ "connector_kind": "postgres", "endpoint": format!("postgres://{address}") }))
        .await
        .expect(200);
    assert_eq!(app.get(&path).await.expect(200)["health"], "unchecked");
    let checked = app.post(format!("{path}/check"), json!({})).await.expect(200);
    assert_eq!(checked["health_code"], "endpoint_malformed_answer");
    // The egress guard refuses addresses that no setting allows.
    app.patch(&path, json!({ "connector_kind": "smtp", "endpoint": "smtp://127.0.0.1:1" })).await.expect(200);
    let checked = app.post(format!("{path}/check"), json!({})).await.expect(200);
    assert_eq!((&checked["health"], &checked["health_code"]), (&json!("unhealthy"), &json!("endpoint_forbidden")));
    let history = checked["checks"].as_array().unwrap();
    let codes: Vec<&Value> = history.iter().map(|check| &check["health_code"]).collect();
    assert_eq!(codes, [&json!("endpoint_forbidden"), &json!("endpoint_malformed_answer"), &json!(null)]);
    let other_connection =
        create(&app, json!({ "name": "other", "connector_kind": "other", "endpoint": "https://x.example" })).await;
    let path = format!("/v1/connections/{}/check", other_connection["connection_id"].as_str().unwrap());
    assert_eq!(app.post(path, json!({})).await.expect(200)["health"], "not_checkable");
}

/// While a slow check runs, its idempotency key is reserved. A repeated request therefore does not call the endpoint
/// again.
#[tokio::test]
async fn concurrent_checks_with_one_key_call_the_endpoint_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = TestApp::builder().setting("FAIRWAY_EGRESS_ALLOW", address.to_string()).start().await;
    let body = json!({ "name": "mail", "connector_kind": "smtp", "endpoint": format!("smtp://{address}") });
    let path = format!("/v1/connections/{}/check", create(&app, body).await["connection_id"].as_str().unwrap());
    let check = || app.post(&path, json!({})).idempotency_key("check");
    let first_request = tokio::spawn(check().into_future());
    let (mut stream, _) = listener.accept().await.unwrap();
    for response in join_all((0..5).map(|_| check().into_future())).await {
        response.expect_refusal(409, "request_in_progress");
    }
    stream.write_all(b"220 mail.example\r\n").await.unwrap();
    let first_response = first_request.await.unwrap();
    assert_eq!(first_response.expect(200)["health"], "healthy");
    let second_response = check().await;
    assert_eq!(
        (second_response.header("idempotency-replayed"), second_response.expect(200)),
        (Some("true"), first_response.json())
    );
    assert_eq!(second_response.json()["checks"].as_array().unwrap().len(), 1);
}

/// Starts a web service on loopback. It responds with `status` to requests with the token, and with 401 to all others.
async fn web_service(status: &'static str, token: Option<&'static str>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut head, mut part) = (String::new(), [0_u8; 1024]);
            while !head.contains("\r\n\r\n") {
                let length = stream.read(&mut part).await.unwrap_or(0);
                if length == 0 {
                    break;
                }
                head.push_str(&String::from_utf8_lossy(&part[..length]));
            }
            let is_known = token.is_none_or(|token| head.contains(&format!("Bearer {token}")));
            let status = if is_known { status } else { "401 Unauthorized" };
            let response = format!(
                "HTTP/1.1 {status}\r\nContent-Length: 2\r\nLocation: http://127.0.0.1:1/\r\nConnection: close\r\n\r\n{{}}"
            );
            // A client that has disconnected gets no response, which is ignored.
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    address
}

#[tokio::test]
async fn probes_of_web_services_and_object_stores_judge_the_status() {
    for (kind, status, health, code) in [
        ("http", "200 OK", "healthy", None),
        ("http", "404 Not Found", "unhealthy", Some("endpoint_refused")),
        ("http", "500 Internal Server Error", "unhealthy", Some("endpoint_refused")),
        ("http", "302 Found", "unhealthy", Some("endpoint_refused")),
        ("s3", "200 OK", "healthy", None),
        // An object store that refuses an anonymous request is healthy, because it responds.
        ("s3", "403 Forbidden", "healthy", None),
        ("s3", "503 Service Unavailable", "unhealthy", Some("endpoint_refused")),
        ("s3", "307 Temporary Redirect", "unhealthy", Some("endpoint_refused")),
    ] {
        let address = web_service(status, None).await;
        let app = TestApp::builder().setting("FAIRWAY_EGRESS_ALLOW", address.to_string()).start().await;
        let body = json!({ "name": "service", "connector_kind": kind, "endpoint": format!("http://{address}/health") });
        let path = format!("/v1/connections/{}/check", create(&app, body).await["connection_id"].as_str().unwrap());
        let checked = app.post(path, json!({})).await.expect(200);
        assert_eq!((&checked["health"], &checked["health_code"]), (&json!(health), &json!(code)), "{kind} {status}");
    }
}

/// The server reads the token of a web service at each check. No response contains the token.
#[tokio::test]
async fn probes_of_web_services_send_the_token() {
    const TOKEN: &str = "canary-token-0123456789";
    let address = web_service("200 OK", Some(TOKEN)).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("default")).unwrap();
    std::fs::write(folder.path().join("default/crm"), TOKEN).unwrap();
    let app = TestApp::builder()
        .setting("FAIRWAY_EGRESS_ALLOW", address.to_string())
        .setting("FAIRWAY_SECRETS_DIR", folder.path().display().to_string())
        .start()
        .await;
    for (bindings, code) in [
        (json!({ "token": "file:crm" }), None),
        (json!({}), Some("endpoint_refused")),
        (json!({ "token": "file:absent" }), Some("secret_unavailable")),
        // Only the binding `token` is sent, so another binding does not authenticate the check.
        (json!({ "password": "file:crm" }), Some("endpoint_refused")),
    ] {
        let body = json!({
            "name": bindings.to_string(), "connector_kind": "http", "endpoint": format!("http://{address}"),
            "secret_bindings": bindings,
        });
        let path = format!("/v1/connections/{}/check", create(&app, body).await["connection_id"].as_str().unwrap());
        let checked = app.post(path, json!({})).await;
        assert_eq!(checked.expect(200)["health_code"], json!(code), "{bindings}");
        assert!(!checked.text().contains(TOKEN));
    }
}

#[tokio::test]
async fn connections_stay_in_their_workspace_and_tenant() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let foreign_fixture = WorkspaceFixture::in_other_tenant(&app).await;
    let path = format!("/v1/connections/{}", fixture.create_connection("crm").await);
    app.get(&path).in_tenant(&foreign_fixture.tenant).await.expect_refusal(404, "not_found");
    app.get(format!("{path}?workspace_id={WORKSPACE}")).await.expect_refusal(404, "not_found");
    app.delete(&path).in_tenant(&foreign_fixture.tenant).await.expect_refusal(404, "not_found");
    app.get(format!("{path}?workspace_id={}", fixture.workspace)).await.expect(200);
}
