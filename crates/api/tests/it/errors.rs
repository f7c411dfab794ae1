//! Errors: one body format for refusals and server errors, and the documented list of codes.

use async_trait::async_trait;
use fairway_domain::asset::{
    artifact_integrity::UnverifiedBytes,
    artifact_store::{ArtifactPath, ArtifactStore, ArtifactStoreError, ObjectListing, PutOutcome},
};
use fairway_testkit::{ArtifactFault, FaultyArtifactStore, TestApp};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

#[tokio::test]
async fn every_refusal_has_the_same_body_format() {
    let app = TestApp::start().await;
    let address = app.address();
    app.get("/nowhere").await.expect_refusal(404, "not_found");
    app.get("/nowhere").header("Accept", "application/problem+json").await.expect_refusal(404, "not_found");
    let response = app.delete("/v1/assets").await;
    response.expect_refusal(405, "method_not_allowed");
    assert_eq!(response.header("allow"), Some("GET, HEAD, POST"));
    app.get("/v1/workloads").header("Host", "evil.example").await.expect_refusal(421, "misdirected_request");
    app.get("/healthz").header("Host", "evil.example").await.expect_refusal(421, "misdirected_request");
    let request =
        format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    app.send_raw_bytes(request).await.expect_refusal(400, "bad_request");
    let absolute = "GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    app.send_raw_bytes(absolute).await.expect_refusal(421, "misdirected_request");
    app.post("/v1/assets", Value::Null)
        .with_body("text/plain", "{}")
        .await
        .expect_refusal(415, "unsupported_media_type");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ] {
        assert_eq!(app.get("/nowhere").await.header(name), Some(value));
        assert_eq!(app.get("/v1/workloads").await.header(name), Some(value));
    }
}

#[tokio::test]
async fn malformed_requests_end_only_their_connection() {
    let app = TestApp::start().await;
    let address = app.address();
    let head = format!("POST /v1/assets HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n");
    for malformed in [
        "nonsense\r\n\r\n".to_owned(),
        format!("{head}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}"),
        format!("{head}Content-Length: x\r\n\r\n{{}}"),
        format!("{head}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n{{}}\r\n0\r\n\r\n"),
        "GET /healthz HTTP/9.9\r\n\r\n".to_owned(),
        format!("GET /healthz HTTP/1.1\nHost: {address}\n\n"),
        format!("GET /healthz HTTP/1.1\r\nHost: {address}\nX: y\r\n\r\n"),
        format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n\r\n", "a".repeat(300_000)),
    ] {
        let response = app.send_raw_bytes(&malformed).await;
        assert!((400..500).contains(&response.status), "{response}");
        app.get("/healthz").await.expect(200);
    }
}

/// An artifact store that panics on every write.
struct PanickingStore;

#[async_trait]
impl ArtifactStore for PanickingStore {
    async fn put_if_absent(&self, _: &ArtifactPath, _: Vec<u8>) -> Result<PutOutcome, ArtifactStoreError> {
        panic!("canary-of-a-panic");
    }

    async fn read(&self, _: &ArtifactPath, _: usize) -> Result<Option<UnverifiedBytes>, ArtifactStoreError> {
        Ok(None)
    }

    fn list(&self, _: &'static str) -> Box<dyn ObjectListing + '_> {
        panic!("canary")
    }

    async fn remove(&self, _: &ArtifactPath) -> Result<(), ArtifactStoreError> {
        panic!("canary")
    }

    async fn ready(&self) -> Result<(), ArtifactStoreError> {
        Ok(())
    }
}

#[tokio::test]
async fn panic_ends_only_its_request() {
    let app = TestApp::builder().artifacts(Arc::new(PanickingStore)).start().await;
    let asset = app.fixtures().asset_without_versions("prompt_template", "prompt").await;
    let path = format!("/v1/assets/{asset}/versions");
    for _ in 0..5 {
        let response = app.post(&path, json!({ "content": { "system_prompt": "x" } })).await;
        response.expect_refusal(500, "internal");
        assert!(!response.text().contains("canary"), "{response}");
    }
    app.get("/v1/workloads").await.expect(200);
    let listed =
        app.get(format!("{path}?workspace_id={}", crate::support::workspace_fixture::WORKSPACE)).await.expect(200);
    assert_eq!(listed, json!([]));
}

#[tokio::test]
async fn unavailable_artifact_store_returns_503_and_stores_nothing() {
    let faults = FaultyArtifactStore::new(ArtifactFault::None);
    let app = TestApp::builder().faulty_artifacts(&faults).start().await;
    let asset = app.fixtures().asset_without_versions("prompt_template", "prompt").await;
    let path = format!("/v1/assets/{asset}/versions");
    let list_path = format!("{path}?workspace_id={}", crate::support::workspace_fixture::WORKSPACE);
    let body = json!({ "content": { "system_prompt": "x" }, "version_label": "v1" });
    for fault in [ArtifactFault::Unavailable, ArtifactFault::FailsAfterPut] {
        faults.set_fault(fault);
        let response = app.post(&path, body.clone()).idempotency_key("try").await;
        response.expect_refusal(503, "unavailable");
        assert_eq!(response.header("retry-after"), Some("1"));
        assert_eq!(app.get(&list_path).await.expect(200), json!([]));
    }
    faults.set_fault(ArtifactFault::Unavailable);
    let ready = app.get("/readyz").await;
    assert_eq!(ready.expect(503)["artifacts"], "unavailable");
    app.get("/healthz").await.expect(200);
    // The refused request did not consume its key: the retry executes once the store is available.
    faults.set_fault(ArtifactFault::None);
    let created = app.post(&path, body).idempotency_key("try").await;
    assert_eq!(created.expect(201)["version_label"], "v1");
    assert_eq!(created.header("idempotency-replayed"), None);
    app.get("/readyz").await.expect(200);
}

#[tokio::test]
async fn unavailable_database_returns_503() {
    let app = TestApp::start().await;
    app.get("/v1/workloads").await.expect(200);
    let owner = app.database().connect_as_owner().await.unwrap();
    let name: String = owner.query_one("SELECT current_database()::text", &[]).await.unwrap().get(0);
    drop(owner);
    // Terminates the server's connections from the `postgres` database, as database maintenance does.
    let url = app.database().url_for_owner().replace(&name, "postgres");
    let maintenance = fairway_testkit::connect(&url).await.unwrap();
    maintenance.batch_execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).await.unwrap();
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1";
    maintenance.query(kill, &[&name]).await.unwrap();
    let body = json!({ "slug": "x", "asset_kind": "skill", "owner_ref": "team:a" });
    for _ in 0..4 {
        let response = app.get("/v1/workloads").await;
        response.expect_refusal(503, "unavailable");
        assert_eq!(response.header("retry-after"), Some("1"));
        app.post("/v1/assets", body.clone()).await.expect_refusal(503, "unavailable");
    }
    assert_eq!(app.get("/readyz").await.expect(503)["database"], "unavailable");
    app.get("/healthz").await.expect(200);
    maintenance.batch_execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true")).await.unwrap();
    app.post("/v1/assets", body).await.expect(201);
}

/// The codes in the first column of a marked table of docs/errors.md.
fn documented_codes(text: &str, table: &str) -> BTreeSet<String> {
    let begin = format!("<!-- codes:{table} -->");
    let end = format!("<!-- /codes:{table} -->");
    let rows = text.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end)).map(|(rows, _)| rows);
    let rows = rows.unwrap_or_else(|| panic!("no table `{table}` in docs/errors.md"));
    let code = |row: &str| Some(row.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    rows.lines().filter_map(code).collect()
}

/// The source texts of the crates that define error codes, without their tests.
fn error_defining_sources() -> Vec<String> {
    fn collect_sources(folder: &Path, texts: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            // Excluded: errors of settings are printed at startup, and health probes return status words, so neither
            // has an error code.
            if name == "config" || name == "config.rs" || name == "operator_endpoints.rs" {
                continue;
            }
            if path.is_dir() {
                collect_sources(&path, texts);
            } else if name.to_string_lossy().ends_with(".rs") && name != "tests.rs" {
                let text = fs::read_to_string(&path).unwrap();
                texts.push(text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned());
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = Vec::new();
    for folder in
        ["crates/api/src", "crates/domain/src", "crates/operations/src", "crates/egress/src", "adapters/oidc/src"]
    {
        collect_sources(&root.join(folder), &mut texts);
    }
    texts
}

/// The string literals in `source` that have the form of an error code.
fn code_literals(source: &str) -> impl Iterator<Item = &str> {
    let code = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    source.split('"').skip(1).step_by(2).filter(code)
}

/// For each occurrence of `text`, up to `length` bytes of the source that follow it.
fn excerpts_after<'s>(source: &'s str, text: &'static str, length: usize) -> impl Iterator<Item = &'s str> {
    source.match_indices(text).map(move |(at, _)| {
        let remaining = &source[at + text.len()..];
        let end = (0..=length.min(remaining.len())).rev().find(|end| remaining.is_char_boundary(*end)).unwrap_or(0);
        &remaining[..end]
    })
}

#[test]
fn documented_codes_match_the_sources() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md")).unwrap();
    let tables: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("<!-- codes:")?.strip_suffix(" -->")).collect();
    // The command line's own tests compare its table.
    let tables = tables.iter().filter(|table| **table != "cli");
    let documented: BTreeSet<String> = tables.flat_map(|table| documented_codes(&text, table)).collect();
    let sources = error_defining_sources();
    let mut known_codes = BTreeSet::new();
    for source in &sources {
        // An error code is a return value of a function `code`, or the first string literal after a `StatusCode`.
        for body in excerpts_after(source, "fn code(", 4_000) {
            let body = body.split("\n    }\n").next().unwrap();
            known_codes.extend(code_literals(body).map(str::to_owned));
        }
        for excerpt in excerpts_after(source, "StatusCode::", 120).filter(|text| !text.starts_with("from_u16")) {
            let first_argument = excerpt.split_once(',').map(|(_, after_comma)| after_comma.trim_start());
            if let Some(literal) = first_argument.filter(|argument| argument.starts_with('"')) {
                known_codes.extend(code_literals(literal).next().map(str::to_owned));
            }
        }
    }
    assert!(known_codes.len() > 60, "the scan finds only {} codes", known_codes.len());
    let missing: Vec<_> = known_codes.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/errors.md does not list {missing:?}");
    let everything = sources.concat();
    let unknown: Vec<_> = documented.iter().filter(|code| !everything.contains(&format!("\"{code}\""))).collect();
    assert!(unknown.is_empty(), "docs/errors.md lists unknown codes: {unknown:?}");
}

#[tokio::test]
async fn all_invalid_fields_are_reported_at_once() {
    let app = TestApp::start().await;
    let reported = |response: &fairway_testkit::app::Response| {
        let refusal = response.expect_refusal(422, "validation_error");
        let fields = refusal["fields"].as_array().unwrap().clone();
        let mut reported: Vec<String> = fields
            .iter()
            .map(|field| format!("{} {}", field["path"].as_str().unwrap(), field["code"].as_str().unwrap()))
            .collect();
        reported.sort();
        reported
    };
    let workload = app.fixtures().workload("main").await;
    let links = format!("/v1/workloads/{workload}/share-links");
    for (path, body, expected) in [
        // Cases with wrong types, missing fields and unknown fields.
        (
            "/v1/assets",
            json!({ "slug": 1, "owner_ref": [], "kind": "skill" }),
            vec!["asset_kind missing", "kind unknown_field", "owner_ref invalid", "slug invalid"],
        ),
        (
            "/v1/releases",
            json!({ "workload_id": "main", "environment": 1, "target_lane": {} }),
            vec!["environment invalid", "target_lane invalid", "workload_id invalid"],
        ),
        ("/v1/role-bindings", json!({}), vec!["principal missing", "role missing", "scope_kind missing"]),
        // Cases with invalid values.
        (
            "/v1/role-bindings",
            json!({ "principal": "x", "role": "nope", "scope_kind": "galaxy", "scope_ref": "q" }),
            vec!["principal invalid_principal", "role invalid", "scope_kind invalid", "scope_ref invalid"],
        ),
        (
            "/v1/role-bindings",
            json!({ "principal": "user:x", "role": "nope", "scope_kind": "tenant" }),
            vec!["role invalid", "scope_ref missing"],
        ),
        (
            "/v1/role-bindings",
            json!({ "principal": "x", "scope_ref": 1 }),
            vec!["role missing", "scope_kind missing", "scope_ref invalid"],
        ),
        ("/v1/tenants", json!({ "slug": "-", "name": "" }), vec!["name invalid_name", "slug invalid_slug"]),
        (
            "/v1/workspaces",
            json!({ "slug": "a".repeat(44), "name": " ", "namespace": "docs" }),
            vec!["name invalid_name", "namespace reserved_slug", "slug slug_too_long"],
        ),
        (
            "/v1/workloads",
            json!({ "slug": "-", "owner_ref": "me", "invocation_mode": "telepathy" }),
            vec!["invocation_mode invalid", "owner_ref invalid", "slug invalid_slug"],
        ),
        (
            &links,
            json!({ "ttl_hours": 0, "max_uses": 0, "label": "", "lane": "fast" }),
            vec!["label invalid_label", "lane invalid", "max_uses out_of_bounds", "ttl_hours out_of_bounds"],
        ),
    ] {
        let response = app.post(path, body).await;
        assert_eq!(reported(&response), expected, "{response}");
    }
    let reserved = app.post("/v1/tenants", json!({ "slug": "docs", "name": "Docs" })).await;
    let refusal = reserved.expect_refusal(422, "validation_error");
    assert_eq!(refusal["fields"][0]["message"], "this slug is reserved");
}
