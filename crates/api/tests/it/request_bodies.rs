//! Request bodies: malformed JSON, size limits, unknown fields and invalid values.

use crate::support::{
    documented_routes::{openapi_document, routes},
    workspace_fixture::WorkspaceFixture,
};
use fairway_domain::execution::script::is_forbidden_request_field;
use fairway_testkit::TestApp;
use serde_json::{Value, json};

const ASSETS: &str = "/v1/assets";

#[tokio::test]
async fn rejects_ambiguous_json_on_every_write() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let documents: [&[u8]; 19] = [
        b"{\"slug\":\"\xff\"}",
        b"{\"slug\":\"\xc0\xaf\"}",
        b"{\"slug\":\"\xed\xa0\x80\"}",
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\x00}\x00",
        b"{\"slug\": NaN}",
        b"{\"slug\": -Infinity}",
        b"{\"slug\": 1e400}",
        b"{\"slug\": 01}",
        b"{\"slug\":\"a\",}",
        b"{\"slug\":\"a\" /* no */}",
        b"{'slug':'a'}",
        b"{\"slug\":\"a\",\"slug\":\"a\"}",
        b"{\"slug\":\"a\",\"\\u0073lug\":\"a\"}",
        b"{\"slug\":\"\\ud800\"}",
        b"{\"slug\":\"\\udc00\\ud800\"}",
        b"{\"slug\":\"\\u0000\"}",
        b"{\"slug\":\"a\"} {}",
        b"{\"slug\":\"a\"",
    ];
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let deep_body = format!("{{\"slug\":{}}}", nested(64));
    let deepest = nested(100_000);
    for route in routes().iter().filter(|route| route.takes_body()) {
        let path = format!("{}{}", fixture.fill_path(&route.path), fixture.required_query(route));
        let send =
            |bytes: &[u8]| app.request_by_method_name(&route.method, path.clone()).with_body("application/json", bytes);
        for document in documents.into_iter().chain([deep_body.as_bytes(), deepest.as_bytes()]) {
            let response = send(document).await;
            response.expect_refusal(400, "malformed_json");
            assert!(!response.text().contains("slug"), "{response}");
        }
        // These documents are well-formed JSON, but not objects with the required fields.
        let allowed = format!("{{\"slug\":{}}}", nested(63));
        for document in ["null", "[]", "\"{}\"", "1", "true", &allowed] {
            if document == "[]" && route.takes_list() {
                continue;
            }
            send(document.as_bytes()).await.expect_refusal(422, "validation_error");
        }
    }
}

#[tokio::test]
async fn every_write_names_unknown_fields() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let document = openapi_document();
    let server_fields = [
        "surprise",
        "asset_id",
        "asset_version_id",
        "release_id",
        "binding_id",
        "execution_id",
        "role_binding_id",
        "tenant_id",
        "workspace_id",
        "namespace_id",
        "lifecycle_state",
        "ownership_tier",
        "state",
        "status",
        "created_at",
        "created_by",
        "updated_at",
        "approved_by",
        "approved_at",
        "transitioned_by",
        "submitted_by",
        "actor_ref",
        "execution_mode",
        "checksum",
        "artifact_ref",
        "revision",
        "supersedes_release_id",
        "management_source",
        "subject_digest",
        "__proto__",
        "Slug",
    ];
    let mut writes = 0;
    for route in routes().iter().filter(|route| route.takes_body()) {
        writes += 1;
        let known_properties = &route.body_schema(&document)["properties"];
        for field in server_fields.into_iter().filter(|field| known_properties.get(field).is_none()) {
            let mut body = fixture.successful_body(route.operation_id());
            let (object, prefix) = route.described_object(&mut body);
            object[field] = json!("x");
            let response = app
                .request_by_method_name(
                    &route.method,
                    format!("{}{}", fixture.fill_path(&route.path), fixture.required_query(route)),
                )
                .json(body)
                .await;
            if route.operation_id() == "run_code" && is_forbidden_request_field(field) {
                response.expect_refusal(422, "forbidden_field");
                continue;
            }
            let refusal = response.expect_refusal(422, "validation_error");
            assert_eq!(refusal["fields"][0]["path"], format!("{prefix}{field}"), "{response}");
            assert_eq!(refusal["fields"][0]["code"], "unknown_field", "{response}");
        }
    }
    assert!(writes >= 13, "only {writes} writes");
}

#[tokio::test]
async fn every_write_names_missing_and_invalid_required_fields() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let document = openapi_document();
    for route in routes().iter().filter(|route| route.takes_body()) {
        let required = route.body_schema(&document)["required"].as_array().cloned().unwrap_or_default();
        for field in required.iter().filter_map(Value::as_str) {
            for (wrong, code) in
                [(None, "missing"), (Some(Value::Null), "invalid"), (Some(json!({"a": []})), "invalid")]
            {
                // These fields accept every JSON object.
                if ["content", "bundle", "arguments", "input"].contains(&field)
                    && wrong.as_ref().is_some_and(Value::is_object)
                {
                    continue;
                }
                let mut body = fixture.successful_body(route.operation_id());
                let (object, prefix) = route.described_object(&mut body);
                match wrong {
                    None => drop(object.as_object_mut().unwrap().remove(field)),
                    Some(value) => object[field] = value,
                }
                let response = app
                    .request_by_method_name(
                        &route.method,
                        format!("{}{}", fixture.fill_path(&route.path), fixture.required_query(route)),
                    )
                    .json(body)
                    .await;
                let refusal = response.expect_refusal(422, "validation_error");
                assert_eq!(refusal["fields"][0]["path"], format!("{prefix}{field}"), "{response}");
                assert_eq!(refusal["fields"][0]["code"], code, "{response}");
            }
        }
    }
}

#[tokio::test]
async fn accepts_only_uncompressed_utf8_json() {
    let app = TestApp::start().await;
    let body = json!({ "slug": "x", "asset_kind": "skill", "owner_ref": "team:a" }).to_string();
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=iso-8859-1",
        "application/json; charset=utf-16",
        "application/xml",
        "application/json, text/plain",
        "application/jsonp",
        "json",
        "",
    ] {
        let response = app.post(ASSETS, Value::Null).with_body(kind, body.clone()).await;
        response.expect_refusal(415, "unsupported_media_type");
    }
    for encoding in ["gzip", "br", "zstd", "deflate", "identity", "IDENTITY", "identity, gzip", "", "x"] {
        let request = app.post(ASSETS, Value::Null).with_body("application/json", body.clone());
        request.header("Content-Encoding", encoding).await.expect_refusal(415, "unsupported_media_type");
    }
    let two_types = app.post(ASSETS, Value::Null).header("Content-Type", "text/plain").await;
    two_types.expect_refusal(415, "unsupported_media_type");
    // Without a content type, only an absent body is accepted. It is equivalent to an empty object.
    let address = app.address();
    let head_without_type = format!("POST {ASSETS} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let untyped_response =
        app.send_raw_bytes(format!("{head_without_type}Content-Length: {}\r\n\r\n{body}", body.len())).await;
    untyped_response.expect_refusal(415, "unsupported_media_type");
    let absent = app.send_raw_bytes(format!("{head_without_type}\r\n")).await.expect_refusal(422, "validation_error");
    assert_eq!(absent["fields"][0]["code"], "missing");
    for kind in ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=\"UTF-8\""] {
        let other_kind = format!("x{}", kind.len());
        let body = json!({ "slug": other_kind, "asset_kind": "skill", "owner_ref": "team:a" }).to_string();
        app.post(ASSETS, Value::Null).with_body(kind, body).await.expect(201);
    }
}

#[tokio::test]
async fn rejects_bodies_over_the_size_limit() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let address = app.address();
    let slug = |length: usize| json!({ "slug": "a".repeat(length) }).to_string();
    for route in routes().iter().filter(|route| route.takes_body()) {
        let path = format!("{}{}", fixture.fill_path(&route.path), fixture.required_query(route));
        let contents = [
            "create_asset_version",
            "create_flow",
            "create_flow_version",
            "validate_flow",
            "preview_prompt",
            "try_policy",
            "add_documents",
        ];
        let holds_content = contents.contains(&route.operation_id());
        let limit = if holds_content { 4 << 20 } else { 1 << 20 };
        let send = |length: usize| {
            app.request_by_method_name(&route.method, path.clone()).with_body("application/json", slug(length))
        };
        // The size limit is part of a route's type. One route for each limit is tested to the byte.
        if ["create_tenant", "create_asset_version"].contains(&route.operation_id()) {
            send(limit - "{\"slug\":\"\"}".len()).await.expect_refusal(422, "validation_error");
        }
        send(limit).await.expect_refusal(413, "payload_too_large");
        // The server refuses a body by its announced length. It counts the bytes of a chunked body.
        if route.operation_id() == "create_tenant" {
            let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
            let head = format!("{head}Content-Type: application/json\r\n");
            app.send_raw_bytes(format!("{head}Content-Length: 50000000\r\n\r\n"))
                .await
                .expect_refusal(413, "payload_too_large");
            let chunk = format!("10000\r\n{}\r\n", "a".repeat(0x10000));
            let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(20));
            app.send_raw_bytes(chunked).await.expect_refusal(413, "payload_too_large");
        }
    }
    let members: Vec<String> = (0..100_000).map(|index| format!("\"k{index}\":1")).collect();
    let many_members = format!("{{{}}}", members.join(","));
    app.post("/v1/tenants", Value::Null)
        .with_body("application/json", many_members)
        .await
        .expect_refusal(413, "payload_too_large");
}

#[tokio::test]
async fn rejects_cross_site_writes() {
    let app = TestApp::start().await;
    let own_origin = format!("http://{}", app.address());
    let body = |slug: &str| json!({ "slug": slug, "asset_kind": "skill", "owner_ref": "team:a" });
    for (name, value) in [
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://127.0.0.1:1"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        app.post(ASSETS, body("x")).header(name, value).await.expect_refusal(403, "cross_site_request");
        app.get(ASSETS).header(name, value).await.expect(200);
    }
    app.post(ASSETS, body("ours"))
        .header("Origin", own_origin)
        .header("Sec-Fetch-Site", "same-origin")
        .await
        .expect(201);
    let response = app.get(ASSETS).header("Origin", "https://evil.example").await;
    assert!(response.headers.keys().all(|name| !name.as_str().starts_with("access-control-")), "{response}");
}

#[tokio::test]
async fn rejects_numbers_out_of_bounds() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let lists: Vec<_> = routes().into_iter().filter(|route| route.has_parameter("limit")).collect();
    assert!(lists.len() >= 9);
    for route in &lists {
        let path = fixture.fill_path(&route.path) + &route.query(&[("workspace_id", &fixture.workspace)]);
        for (query, field) in [
            ("limit=0", "limit"),
            ("limit=201", "limit"),
            ("limit=-1", "limit"),
            ("limit=1000000000000", "limit"),
            ("limit=1e1", "limit"),
            ("limit=", "limit"),
            ("limit=1&limit=2", "limit"),
            ("limits=1", "limits"),
            ("cursor=", "cursor"),
            ("cursor=00000000000000000000000000000000", "cursor"),
            ("offset=-1", "offset"),
            ("offset=x", "offset"),
            ("offset=99999999999999999999", "offset"),
        ] {
            let refusal = app.get(format!("{path}&{query}")).await.expect_refusal(422, "validation_error");
            assert_eq!(refusal["fields"][0]["path"], field, "{path}&{query}");
        }
        for offset in ["10001", "1000000000000000000"] {
            app.get(format!("{path}&offset={offset}")).await.expect_refusal(422, "offset_too_deep");
        }
        for query in ["limit=1&offset=0", "limit=200&offset=10000"] {
            app.get(format!("{path}&{query}")).await.expect(200);
        }
    }
    // Integers that a double cannot represent exactly are refused.
    let model = fixture.fixtures.model_policy("bounds").await;
    let path = format!("/v1/assets/{}/versions", model.asset_id);
    let route = json!({
        "route_id": "local", "provider": "local", "model": "m", "account_slot": "local", "state": "approved",
    });
    for max_tokens in ["9007199254740993", "9223372036854775808", "1e400", "-1", "0", "1.5", "\"1\""] {
        let body = format!("{{\"content\":{{\"provider_route\":{route},\"max_tokens\":{max_tokens}}}}}");
        let response = app.post(&path, Value::Null).with_body("application/json", body).await;
        let code = if max_tokens == "1e400" { "malformed_json" } else { "invalid_content" };
        response.expect_refusal(400, code);
    }
    for (temperature, status) in [("-0", 201), ("0.30000000000000004", 201), ("2", 201), ("2.1", 400), ("-0.1", 400)] {
        let body = format!("{{\"content\":{{\"provider_route\":{route},\"temperature\":{temperature}}}}}");
        let response = app.post(&path, Value::Null).with_body("application/json", body).await;
        assert_eq!(response.status, status, "{temperature}: {response}");
    }
}

#[tokio::test]
async fn rejects_content_that_violates_its_kind() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let rule = json!({ "id": "a", "condition": "always", "outcome": "allow", "reason_code": "ok" });
    let body_with = |name: &str, value: Value| {
        let mut rule = rule.clone();
        rule[name] = value;
        json!({ "rules": [rule] })
    };
    let cases = [
        ("prompt_template", json!({})),
        ("prompt_template", json!({ "system_prompt": 1 })),
        ("prompt_template", json!({ "system_prompt": "x", "lifecycle_state": "archived" })),
        ("prompt_template", json!({ "system_prompt": "x", "variables": [{ "name": "a", "type": "date" }] })),
        ("model_policy", json!({})),
        ("model_policy", json!({ "provider_route": {} })),
        ("model_policy", json!({ "provider_route": "local" })),
        ("policy_bundle", json!({ "rules": "all" })),
        ("policy_bundle", body_with("outcome", json!("maybe"))),
        ("policy_bundle", body_with("condition", json!("1 +"))),
        ("policy_bundle", body_with("condition", json!("unheard_of == 1"))),
        ("policy_bundle", body_with("obligations", json!(["smile"]))),
        ("policy_bundle", body_with("created_by", json!("user:root"))),
        ("orchestration_flow", json!({ "name": "x" })),
    ];
    for (index, (kind, content)) in cases.into_iter().enumerate() {
        let asset = fixtures.asset_without_versions(kind, &format!("content-{index}")).await;
        let response = app.post(format!("/v1/assets/{asset}/versions"), json!({ "content": content })).await;
        let refusal = response.expect_refusal(400, "invalid_content");
        let first_error = &refusal["fields"][0];
        assert!(first_error["path"].as_str().is_some_and(|path| path.starts_with("content")), "{response}");
        assert!(first_error["code"].is_string() && first_error["message"].is_string(), "{response}");
        let listed = app
            .get(format!("/v1/assets/{asset}/versions?workspace_id={}", crate::support::workspace_fixture::WORKSPACE))
            .await;
        assert_eq!(listed.expect(200), json!([]), "refused content must not be stored");
    }
    // Each kind of prompt error has its own code. The response never repeats the template.
    let prompt = fixtures.asset_without_versions("prompt_template", "grammar").await;
    for (text, code) in [
        ("secret $arg:unheard", "prompt_malformed_token"),
        ("secret $arg:", "prompt_malformed_token"),
        ("secret !command:drop", "prompt_command_not_allowed"),
    ] {
        let content = json!({ "content": { "system_prompt": text } });
        let response = app.post(format!("/v1/assets/{prompt}/versions"), content).await;
        assert_eq!(response.expect_refusal(422, code)["offset"], 7, "{response}");
        assert!(!response.text().contains("secret"), "{response}");
    }
    for content in [json!([]), json!("x"), json!(1)] {
        let response = app.post(format!("/v1/assets/{prompt}/versions"), json!({ "content": content })).await;
        assert_eq!(response.expect_refusal(422, "validation_error")["fields"][0]["path"], "content");
    }
    // Flow errors contain line and column.
    let yaml = "name: x\nentry_step: a\nentry_step: b\nsteps: []\n";
    let response = app.post("/v1/flows", json!({ "slug": "bad", "owner_ref": "team:a", "content_yaml": yaml })).await;
    let refusal = response.expect_refusal(400, "invalid_flow");
    let first_error = &refusal["errors"][0];
    assert!(
        first_error["line"].is_u64() && first_error["column"].is_u64() && first_error["code"].is_string(),
        "{response}"
    );
    let kind = json!({ "slug": "x", "asset_kind": "spreadsheet", "owner_ref": "team:a" });
    app.post("/v1/assets", kind).await.expect_refusal(400, "invalid_asset_kind");
    app.get("/v1/assets?asset_kind=spreadsheet").await.expect_refusal(422, "validation_error");
}
