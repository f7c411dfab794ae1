//! The OpenAPI document: it is current and consistent, and the server returns it.

use crate::support::documented_routes::{openapi_document, routes};
use fairway_testkit::TestApp;
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path};

#[test]
fn document_in_the_repository_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let stored = fs::read_to_string(path).unwrap_or_default();
    let generated = fairway_api::openapi::as_json().unwrap();
    assert!(stored == generated, "docs/openapi.json is not current: run `cargo xtask openapi`");
}

/// Collects every `$ref` of a value.
fn collect_references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(target)) = members.get("$ref") {
                found.insert(target.clone());
            }
            members.values().for_each(|member| collect_references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, read from its start to its end")]
fn document_is_consistent() {
    let document = openapi_document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."), "{}", document["openapi"]);
    for name in ["title", "version", "description"] {
        assert!(document["info"][name].as_str().is_some_and(|text| !text.is_empty()), "info.{name}");
    }
    let mut found = BTreeSet::new();
    collect_references(&document, &mut found);
    assert!(found.len() > 20);
    for target in &found {
        let resolved = target.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
        assert!(resolved.is_some(), "{target} does not resolve");
    }
    let used_schemas: BTreeSet<&str> = found.iter().filter_map(|target| target.rsplit('/').next()).collect();
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(used_schemas.contains(name.as_str()), "nothing uses the schema {name}");
    }
    let tags: BTreeSet<&str> =
        document["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    let mut ids = BTreeSet::new();
    for route in routes() {
        let (operation, location) = (&route.operation, format!("{} {}", route.method, route.path));
        assert!(ids.insert(route.operation_id().to_owned()), "{location}: the operation's id is used twice");
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{location} has no summary");
        for tag in operation["tags"].as_array().unwrap() {
            assert!(tags.contains(tag.as_str().unwrap()), "{location}: {tag} is not declared");
        }
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let mut operation_ids = BTreeSet::new();
        for parameter in &parameters {
            let (name, place_in) = (parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap());
            assert!(
                operation_ids.insert((name.to_owned(), place_in.to_owned())),
                "{location}: {name} is declared twice"
            );
            assert!(["path", "query", "header"].contains(&place_in), "{location}: {name} in {place_in}");
            assert!(parameter["schema"].is_object(), "{location}: {name} has no schema");
            assert_eq!(
                place_in == "path",
                parameter["required"] == true && route.placeholders().contains(&name) && place_in == "path",
                "{location}: {name}"
            );
        }
        let declared: Vec<&str> = parameters
            .iter()
            .filter(|parameter| parameter["in"] == "path")
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        assert_eq!(declared, route.placeholders(), "{location}: path parameters");
        let responses = operation["responses"].as_object().unwrap();
        let mut succeeds = 0;
        for (status, response) in responses {
            let number: u16 = status.parse().unwrap();
            assert!((200..600).contains(&number), "{location}: {status}");
            assert!(response["description"].as_str().is_some_and(|text| !text.is_empty()), "{location}: {status}");
            if number < 300 {
                succeeds += 1;
                assert_eq!(number == 204, response.get("content").is_none(), "{location}: {status} and its body");
            } else if route.operation_id() == "read_page" && [401, 429, 500, 503].contains(&number) {
                assert!(response["content"]["text/html"].is_object(), "{location}: {status} has no HTML page");
            } else if number != 503 || route.path.starts_with("/v1/") {
                let schema = &response["content"]["application/json"]["schema"]["$ref"];
                assert_eq!(schema, "#/components/schemas/Error", "{location}: {status}");
            }
        }
        assert!(succeeds >= 1, "{location} has no success response");
        let mut refusals = vec!["400", "408", "421", "431", "500"];
        if route.path.starts_with("/v1/") {
            refusals.extend(["403", "404", "422", "503"]);
        }
        if route.method != "get" {
            refusals.push("409");
        }
        if route.takes_body() {
            refusals.extend(["413", "415"]);
        }
        for status in refusals {
            assert!(responses.contains_key(status), "{location} lacks {status}");
        }
        for (status, expected) in [
            // `read_evidence_bundle` is the only read with 409, because the evidence of an active run is incomplete.
            ("409", route.method != "get" || route.operation_id() == "read_evidence_bundle"),
            ("412", route.has_parameter("If-Match")),
            ("413", route.takes_body()),
            ("415", route.takes_body()),
        ] {
            assert_eq!(responses.contains_key(status), expected, "{location}: {status}");
        }
        if route.takes_body() {
            let schema = route.body_schema(&document);
            assert_eq!(schema["additionalProperties"], false, "{location}: the schema does not forbid unknown fields");
        }
        // These operations and dry runs need no idempotency key. A repeated sign-out finds no session to end. A
        // refinement has its key in the body. A repeated test of a destination is a new test.
        let keyless = ["end_session", "refine_use_case", "test_organization_destination", "test_workspace_destination"];
        if route.method == "post" && !route.is_dry_run() && !keyless.contains(&route.operation_id()) {
            assert!(route.has_parameter("Idempotency-Key"), "{location} takes no key");
        }
    }
}

/// The default of a form field and the result of a run can be any JSON value.
#[test]
fn values_of_any_type_have_an_unrestricted_schema() {
    let document = openapi_document();
    for (schema, field) in [
        ("InputField", "default"),
        ("ExecutionResult", "output"),
        ("QueuedResult", "result"),
        ("CodeResult", "result"),
        ("AwaitingReview", "output"),
        ("EvidenceArtifact", "payload"),
    ] {
        let described = &document["components"]["schemas"][schema]["properties"][field];
        let keywords: BTreeSet<&str> = described.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(keywords.is_subset(&BTreeSet::from(["description"])), "{schema}.{field}: {described}");
    }
}

#[tokio::test]
async fn serves_the_document() {
    let app = TestApp::start().await;
    let response = app.get("/openapi.json").await;
    assert_eq!(response.expect(200), openapi_document());
    assert!(response.header("content-type").unwrap().starts_with("application/json"));
}

#[tokio::test]
async fn reference_page_loads_only_local_files() {
    let app = TestApp::start().await;
    let redirect = app.get("/docs").await;
    assert!([301, 302, 307, 308].contains(&redirect.status), "{redirect}");
    assert_eq!(redirect.header("location"), Some("/docs/"));
    let page = app.get("/docs/").await;
    assert_eq!(page.status, 200, "{page}");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("http"), "{policy}");
    let text = page.text();
    let mut loaded = 0;
    for attribute in ["src=\"", "href=\""] {
        for (offset, _) in text.match_indices(attribute) {
            let target = text[offset + attribute.len()..].split('"').next().unwrap();
            let relative = target.strip_prefix("./").unwrap_or(target);
            assert!(!target.contains("//") && !target.starts_with("data:"), "{target}");
            let asset = app.get(format!("/docs/{relative}")).await;
            assert_eq!(asset.status, 200, "{asset}");
            assert_eq!(asset.header("x-content-type-options"), Some("nosniff"));
            loaded += 1;
        }
    }
    assert!(loaded >= 3, "the page loads {loaded} files");
    let script = app.get("/docs/swagger-initializer.js").await.text();
    assert!(script.contains("/openapi.json"), "{script}");
    assert!(!script.contains("https://"), "{script}");
    app.get("/docs/nothing.js").await.expect_refusal(404, "not_found");
}
