//! Paths: on every route, an invalid identifier gets 404 with the same message as an unknown identifier.

use crate::support::{documented_routes::routes, workspace_fixture::WorkspaceFixture};
use fairway_domain::{memory::ConversationSessionId, slug::Slug};
use fairway_testkit::TestApp;
use serde_json::json;

const ID: &str = "0190f000-0000-7000-8000-00000000abcd";

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn invalid_identifiers_are_not_found_on_every_route() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let bare = ID.replace('-', "");
    let segments = [
        ID.to_owned(),
        ID.to_uppercase(),
        bare.clone(),
        bare[1..].to_owned(),
        format!("{bare}0"),
        format!("%7B{ID}%7D"),
        format!("{{{ID}}}"),
        format!("urn:uuid:{ID}"),
        format!("{ID}%00"),
        format!("%00{ID}"),
        format!("{ID}%0d%0aX:1"),
        format!("{ID}%20"),
        format!("..%2f{ID}"),
        format!("..%252f{ID}"),
        "..".to_owned(),
        "%2e%2e".to_owned(),
        ".".to_owned(),
        "%ff".to_owned(),
        "%".to_owned(),
        "%zz".to_owned(),
        "0".to_owned(),
        "-1".to_owned(),
        "9223372036854775808".to_owned(),
        "null".to_owned(),
        "x".repeat(2_000),
    ];
    // Without the advanced tier, the server refuses announcements before it looks them up.
    fixture.enable_advanced_tier().await;
    let mut checked = 0;
    for route in routes() {
        for name in route.placeholders() {
            let mut messages = Vec::new();
            for segment in &segments {
                if name == "slug" && segment.eq_ignore_ascii_case(&fixture.workload.slug) {
                    continue;
                }
                // Every valid slug is an environment, so this case cannot be unknown.
                if name == "environment" && Slug::parse(segment).is_ok() {
                    continue;
                }
                // Every valid session identifier is a session, so this case cannot be unknown.
                if name == "session_id" && ConversationSessionId::parse(segment).is_ok() {
                    continue;
                }
                let path = fixture.fill_path(&route.path).replacen(&fixture.path_parameter(name), segment, 1)
                    + &fixture.required_query(&route);
                let (target, body) = if route.takes_body() {
                    let mut body = fixture.successful_body(route.operation_id());
                    if route.operation_id() == "review_release" {
                        // The body must name the same release as the path. Otherwise the server refuses the request
                        // for the mismatch.
                        body["subject_ref"] = ID.into();
                    }
                    (path, body.to_string())
                } else {
                    (path, String::new())
                };
                let response = app
                    .send_raw_bytes(format!(
                        "{} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
                         Content-Length: {}\r\n\r\n{body}",
                        route.method.to_uppercase(),
                        app.address(),
                        body.len()
                    ))
                    .await;
                // The HTTP layer may already reject the request target.
                if response.status == 400 {
                    response.expect_refusal(400, "bad_request");
                    assert!(segment.contains(['{', '}']), "{response}");
                    continue;
                }
                messages.push(response.expect_refusal(404, "not_found")["message"].clone());
                assert!(!response.text().contains(segment) || segment.len() < 3, "{response}");
                checked += 1;
            }
            messages.dedup();
            assert_eq!(messages.len(), 1, "{} {}: {messages:?}", route.method, route.path);
        }
    }
    assert!(checked > 400, "only {checked} paths");
}

/// A fixed segment is not parsed as an identifier, even for methods that only the route with the identifier supports.
#[tokio::test]
async fn fixed_segment_beside_identifiers_reports_its_allowed_methods() {
    let app = TestApp::start().await;
    let response = app.patch("/v1/workloads/runtime-enabled", json!({})).await;
    response.expect_refusal(405, "method_not_allowed");
    assert_eq!(response.header("allow"), Some("GET, HEAD"));
    app.patch("/v1/workloads/by-slug", json!({})).await.expect_refusal(404, "not_found");
}

#[tokio::test]
async fn only_documented_paths_exist() {
    let app = TestApp::start().await;
    for path in [
        "/v1",
        "/v1/",
        "/v2/assets",
        "/v1/asset",
        "/v1/assets/",
        "//v1/assets",
        "/v1//assets",
        "/V1/assets",
        "/v1/%61ssets/",
        "/healthz/",
        "/.env",
        "/docs/../v1/assets",
        "/v1/assets;x=1",
        "/metrics/x",
        "/_app",
        "/_app/",
        "/workload-runtime/",
        "/workload-runtime/a/b",
        "/v1/workloads/by-slug",
        "/v1/workloads/by-slug/x",
        "/favicon.ico",
    ] {
        app.send_raw_path("GET", path).await.expect_refusal(404, "not_found");
    }
    // Middleware treats percent-encoded spellings as the same path.
    for path in ["/v1/%61ssets", "/%76%31/assets", "/%761/as%73ets"] {
        app.send_raw_path("GET", path).await.expect(200);
        app.send_raw_path("GET", &format!("{path}?workspace_idd=x")).await.expect_refusal(422, "validation_error");
        app.send_raw_path("PUT", path).await.expect_refusal(405, "method_not_allowed");
    }
    // Another method on an existing path gets 405 with the allowed methods.
    for (method, path, allow) in [
        ("DELETE", "/v1/assets", "GET, HEAD, POST"),
        ("PUT", "/v1/assets", "GET, HEAD, POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("GET", "/v1/workloads/by-slug/x/execute", "POST"),
        ("TRACE", "/v1/assets", "GET, HEAD, POST"),
        ("OPTIONS", "/v1/assets", "GET, HEAD, POST"),
        ("BREW", "/v1/assets", "GET, HEAD, POST"),
    ] {
        let response = app.send_raw_path(method, path).await;
        response.expect_refusal(405, "method_not_allowed");
        assert_eq!(response.header("allow"), Some(allow), "{response}");
    }
    let head_response = app.request("HEAD".parse().unwrap(), "/v1/assets").await;
    assert_eq!((head_response.status, head_response.body.len()), (200, 0));
}
