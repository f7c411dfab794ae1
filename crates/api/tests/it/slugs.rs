//! Validation of slugs, names and labels.

use crate::support::workspace_fixture::ECHO_FLOW;
use fairway_testkit::TestApp;
use serde_json::{Value, json};

const INVALID_SLUGS: [&str; 24] = [
    "",
    "-",
    "-a",
    "a-",
    "A",
    "Caf\u{e9}",
    "cafe\u{301}",
    "caf\u{e9}",
    "\u{430}bc",
    "a\u{202e}b",
    "a\u{200b}b",
    "a.",
    "a ",
    " a",
    "a b",
    "a/b",
    "a_b",
    "a\tb",
    "a\nb",
    "\u{ff41}",
    "\u{131}",
    "a%2fb",
    "..",
    "ß",
];
const RESERVED_SLUGS: [&str; 12] = [
    "v1",
    "healthz",
    "readyz",
    "metrics",
    "docs",
    "mcp",
    "workload-runtime",
    "runtime-enabled",
    "by-slug",
    "console",
    "sign-in",
    "sign-out",
];

fn create_body(path: &str, slug: &str) -> Value {
    match path {
        "/v1/tenants" => json!({ "slug": slug, "name": "x" }),
        "/v1/workspaces" => json!({ "slug": slug, "name": "x", "namespace": "x" }),
        "/v1/assets" => json!({ "slug": slug, "asset_kind": "skill", "owner_ref": "team:a" }),
        "/v1/flows" => json!({ "slug": slug, "owner_ref": "team:a", "content_yaml": ECHO_FLOW }),
        _ => json!({ "slug": slug, "owner_ref": "team:a", "invocation_mode": "api" }),
    }
}

const CREATE_PATHS: [&str; 5] = ["/v1/tenants", "/v1/workspaces", "/v1/assets", "/v1/flows", "/v1/workloads"];

#[tokio::test]
async fn rejects_invalid_and_reserved_slugs_on_every_route() {
    let app = TestApp::start().await;
    let long_slug = "a".repeat(64);
    for path in CREATE_PATHS {
        for slug in INVALID_SLUGS.into_iter().chain([long_slug.as_str()]) {
            let response = app.post(path, create_body(path, slug)).await;
            let refusal = response.expect_refusal(422, "validation_error");
            assert_eq!(refusal["fields"][0]["path"], "slug", "{path} {slug:?}");
            assert_eq!(refusal["fields"][0]["code"], "invalid_slug", "{path} {slug:?}");
            assert!(slug.len() < 4 || !response.text().contains(slug), "{response}");
        }
        for slug in RESERVED_SLUGS {
            let refusal = app.post(path, create_body(path, slug)).await.expect_refusal(422, "validation_error");
            assert_eq!(refusal["fields"][0]["code"], "reserved_slug", "{path} {slug}");
        }
        // A flow is an asset, so its slug must be unique among all assets.
        let longest_slug = "b".repeat(if path == "/v1/workspaces" { 43 } else { 62 });
        let suffix = if path == "/v1/flows" { "f" } else { "" };
        for slug in ["a", "0", "a--b", "x1-2", longest_slug.as_str()] {
            let slug = if slug.len() == 43 { slug.to_owned() } else { format!("{slug}{suffix}") };
            let created = app.post(path, create_body(path, &slug)).await.expect(201);
            assert_eq!(created["slug"], slug);
            app.post(path, create_body(path, &slug)).await.expect_refusal(409, "duplicate_slug");
        }
    }
}

#[tokio::test]
async fn taken_slugs_conflict_before_reserved_slugs_are_refused() {
    let app = TestApp::start().await;
    let post = |slug: &'static str| app.post("/v1/workloads", create_body("/v1/workloads", slug));
    post("knowledge-assistant-default").await.expect_refusal(409, "duplicate_slug");
    for allowed_slug in ["knowledge-assistant-elsewhere", "fairway-generator-of-mine"] {
        let refusal = post(allowed_slug).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["code"], "reserved_slug", "{allowed_slug}");
    }
    app.fixtures().workspace("elsewhere", "elsewhere").await;
    post("knowledge-assistant-elsewhere").await.expect_refusal(409, "duplicate_slug");
}

#[tokio::test]
async fn assets_and_flows_share_slugs_and_workloads_do_not() {
    let app = TestApp::start().await;
    for (path, status) in [("/v1/assets", 201), ("/v1/flows", 409), ("/v1/workloads", 201)] {
        let response = app.post(path, create_body(path, "same")).await;
        assert_eq!(response.status, status, "{response}");
    }
}

#[tokio::test]
async fn rejects_invalid_environments_owners_labels_and_names() {
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("main").await;
    for environment in ["", "Dev", "dev ", "v1", "a/b", "..", "dev\u{200b}"] {
        let body = json!({ "workload_id": workload, "environment": environment });
        let refusal = app.post("/v1/releases", body).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], "environment");
        let run = json!({ "environment": environment, "inputs": {} });
        app.post("/v1/workloads/by-slug/main/execute", run).await.expect_refusal(422, "validation_error");
    }
    for owner in ["", "team:", "ada", "group:ops", "service:x", "team:A", "team:a b", "user:", "Team:a"] {
        let refusal = app
            .post("/v1/assets", json!({ "slug": "o", "asset_kind": "skill", "owner_ref": owner }))
            .await
            .expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], "owner_ref", "{owner}");
    }
    let asset = app.fixtures().asset_without_versions("prompt_template", "labelled").await;
    for label in ["", "v 1", "v/1", "\u{fc}", "v\u{202e}1", &"v".repeat(65), "v1\n"] {
        let body = json!({ "content": { "system_prompt": "x" }, "version_label": label });
        let refusal =
            app.post(format!("/v1/assets/{asset}/versions"), body).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], "version_label", "{label:?}");
    }
    for name in ["", " ", "\u{7}", "a\u{202e}b", "a\u{200b}b", "\u{feff}a", "a\nb", &"n".repeat(201)] {
        let response = app.patch(format!("/v1/workloads/{workload}"), json!({ "name": name })).await;
        assert_eq!(response.expect_refusal(422, "validation_error")["fields"][0]["path"], "name");
    }
    for description in ["x".repeat(2_001), "a\u{2066}b".to_owned(), "\u{1b}[31m".to_owned()] {
        let body = json!({ "description": description });
        let response = app.patch(format!("/v1/workloads/{workload}"), body).await;
        assert_eq!(response.expect_refusal(422, "validation_error")["fields"][0]["path"], "description");
    }
    let lines = json!({ "description": "one\n\ttwo" });
    app.patch(format!("/v1/workloads/{workload}"), lines).await.expect(200);
    for path in ["/v1/tenants", "/v1/workspaces"] {
        let mut body = create_body(path, "named");
        body["name"] = json!("a\u{202e}b");
        let refusal = app.post(path, body).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], "name", "{path}");
    }
    let release = app.fixtures().draft(&workload, &[]).await;
    for note in ["a\u{202e}b".to_owned(), "a\u{200d}b".to_owned(), "x".repeat(2_001)] {
        let verdict = json!({ "outcome": "rejected", "subject_kind": "release", "subject_ref": release, "note": note });
        let response = app.post(format!("/v1/releases/{release}/approvals"), verdict).await;
        assert_eq!(response.expect_refusal(422, "validation_error")["fields"][0]["path"], "note");
    }
}

#[tokio::test]
async fn refused_environments_explain_the_slug_format() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    let draft = json!({ "workload_id": workload.workload_id, "environment": "Production" });
    let run = json!({ "environment": "Production", "inputs": {} });
    for response in [
        app.post("/v1/releases", draft).await,
        app.post(workload.execute_path(), run).await,
        app.get("/v1/executions?environment=Production").await,
    ] {
        let detail = response.expect_refusal(422, "validation_error");
        let problem = &detail["fields"][0];
        let message = problem["message"].as_str().unwrap();
        assert_eq!(problem["code"], "invalid_slug");
        assert!(
            message.starts_with("an environment must be a slug: a slug has 1 to 63 lower-case letters"),
            "{message}"
        );
        assert!(!message.contains("Production"), "{message}");
    }
}
