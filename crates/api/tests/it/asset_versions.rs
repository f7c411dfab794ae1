//! Versions of assets: labels, notes and diffs.

use crate::support::{
    resource_measurement::measure_polls,
    workspace_fixture::{ECHO_FLOW, WORKSPACE},
};
use fairway_domain::{access::ActorRef, asset::content::ContentRefusal};
use fairway_operations::{
    Failure,
    access::{IdentityClaims, IdentityMode},
    asset::CreateVersionParams,
};
use fairway_testkit::{TestApp, app::Response};
use serde_json::{Value, json};
use uuid::Uuid;

async fn create_version(app: &TestApp, asset: &str, body: Value) -> Response {
    app.post(format!("/v1/assets/{asset}/versions"), body).await
}

fn prompt_content(text: &str) -> Value {
    json!({ "system_prompt": text })
}

#[tokio::test]
async fn versions_carry_labels_and_notes() {
    let app = TestApp::start().await;
    let asset = app.fixtures().asset_without_versions("prompt_template", "prompt").await;
    let mut labels = Vec::new();
    for body in [
        json!({ "content": prompt_content("1") }),
        json!({ "content": prompt_content("2"), "version_label": "2026.11", "change_note": "for autumn" }),
        json!({ "content": prompt_content("3"), "change_note": "" }),
        json!({ "content": prompt_content("4"), "change_note": null }),
    ] {
        let note = body["change_note"].clone();
        let created = create_version(&app, &asset, body).await.expect(201);
        assert_eq!(created["change_note"], note);
        labels.push(created["version_label"].clone());
        let id = created["asset_version_id"].as_str().unwrap();
        let version_view =
            app.get(format!("/v1/assets/{asset}/versions/{id}?workspace_id={WORKSPACE}")).await.expect(200);
        assert_eq!(version_view, created);
    }
    assert_eq!(labels, ["v1", "2026.11", "v2", "v3"]);
    let path = format!("/v1/assets/{asset}/versions");
    let listed = app.get(format!("{path}?workspace_id={WORKSPACE}")).await.expect(200);
    let notes: Vec<&Value> = listed.as_array().unwrap().iter().map(|version| &version["change_note"]).collect();
    assert_eq!(notes, [&json!(null), &json!(""), &json!("for autumn"), &json!(null)]);
    assert_eq!(app.get(&path).await.expect_refusal(422, "validation_error")["fields"][0]["path"], "workspace_id");
    let second_response =
        create_version(&app, &asset, json!({ "content": prompt_content("x"), "version_label": "2026.11" })).await;
    second_response.expect_refusal(409, "duplicate_version_label");
    create_version(&app, &asset, json!({ "content": prompt_content("x"), "change_note": "ä".repeat(2_000) }))
        .await
        .expect(201);
    for note in [json!("ä".repeat(2_001)), json!(7), json!("a\u{0}")] {
        let response =
            create_version(&app, &asset, json!({ "content": prompt_content("x"), "change_note": note })).await;
        assert!([400, 422].contains(&response.status), "{response}");
    }
    create_version(&app, &asset, json!({ "content": prompt_content("x"), "change_note": "two\n\tlines" }))
        .await
        .expect(201);
    let hidden =
        create_version(&app, &asset, json!({ "content": prompt_content("x"), "change_note": "x\u{202e}" })).await;
    assert_eq!(field_errors(&hidden), [("change_note".to_owned(), "invalid_text".to_owned())]);
}

/// The paths and codes of the field errors in a refusal.
fn field_errors(response: &Response) -> Vec<(String, String)> {
    let refusal = response.expect_refusal(422, "validation_error");
    let text = |problem: &Value, name: &str| problem[name].as_str().unwrap().to_owned();
    refusal["fields"].as_array().unwrap().iter().map(|problem| (text(problem, "path"), text(problem, "code"))).collect()
}

/// All violated rules of the body's fields are reported together, ordered by path. Rules that relate the body to
/// other parts of the request are checked afterwards.
#[tokio::test]
async fn reports_every_invalid_field_of_a_body_at_once() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let asset = fixtures.asset_without_versions("prompt_template", "prompt").await;
    let flow = fixtures.flow("flow", ECHO_FLOW).await.asset_id;
    let workload = fixtures.workload("worker").await;
    let release = fixtures.draft(&workload, &[]).await;
    let unknown_id = Uuid::now_v7();
    let unknown_workspace = "?workspace_id=00000000-0000-7000-8000-0000000000ff";
    let invalid_note = "a\u{202e}";
    for (path, body, expected) in [
        (
            format!("/v1/assets{unknown_workspace}"),
            json!({ "slug": "Bad Slug", "asset_kind": "skill", "owner_ref": "x", "workspace_id": WORKSPACE }),
            &["owner_ref", "slug"][..],
        ),
        (
            format!("/v1/assets/{asset}/versions{unknown_workspace}"),
            json!({ "content": [], "version_label": "v 1", "change_note": invalid_note, "workspace_id": WORKSPACE }),
            &["change_note", "version_label"],
        ),
        (format!("/v1/assets/{asset}/grants"), json!({}), &["principal"]),
        (
            format!("/v1/flows{unknown_workspace}"),
            json!({
                "slug": "Bad Slug", "owner_ref": "x", "version_label": "v 1", "change_note": invalid_note, "content_yaml": "a: [",
                "workspace_id": WORKSPACE,
            }),
            &["change_note", "owner_ref", "slug", "version_label"],
        ),
        (
            format!("/v1/flows/{flow}/versions"),
            json!({ "content_yaml": "a: [", "version_label": "v 1", "change_note": invalid_note }),
            &["change_note", "version_label"],
        ),
        (
            "/v1/workloads".to_owned(),
            json!({ "slug": "Bad Slug", "owner_ref": "x", "invocation_mode": "x", "name": "", "description": invalid_note }),
            &["description", "invocation_mode", "name", "owner_ref", "slug"],
        ),
        (
            "/v1/releases".to_owned(),
            json!({ "workload_id": workload, "environment": "Not So", "target_lane": "x" }),
            &["environment", "target_lane"],
        ),
        (format!("/v1/releases/{release}/transition"), json!({ "to_state": "x", "lane": "y" }), &["lane", "to_state"]),
        (
            format!("/v1/releases/{release}/approvals"),
            json!({ "outcome": "x", "subject_kind": "asset", "subject_ref": unknown_id, "note": invalid_note }),
            &["note", "outcome", "subject_kind"],
        ),
    ] {
        let response = app.post(&path, body).await;
        let paths: Vec<String> = field_errors(&response).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, expected, "{path}");
    }
    let listed = app.get("/v1/assets?asset_kind=x&lifecycle_state=y").await;
    assert_eq!(field_errors(&listed).len(), 2, "{listed}");
    let listed = app.get("/v1/releases?environment=Not%20So&state=y").await;
    assert_eq!(field_errors(&listed).len(), 2, "{listed}");
}

/// A version can be created from any workspace that sees its asset. The body or the query may name the workspace.
#[tokio::test]
async fn creates_versions_from_a_workspace() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let asset = fixtures.asset_without_versions("prompt_template", "prompt").await;
    let flow = fixtures.flow("flow", ECHO_FLOW).await.asset_id;
    let other_workspace = fixtures.workspace("afar", "another").await;
    for (path, body) in [
        (format!("/v1/assets/{asset}/versions"), json!({ "content": prompt_content("x") })),
        (format!("/v1/flows/{flow}/versions"), json!({ "content_yaml": ECHO_FLOW })),
    ] {
        let create_in = |workspace: &str| {
            let mut body = body.clone();
            body["workspace_id"] = json!(workspace);
            body
        };
        let path_in = |workspace: &str| format!("{path}?workspace_id={workspace}");
        app.post(path_in(WORKSPACE), body.clone()).await.expect(201);
        app.post(&path, create_in(WORKSPACE)).await.expect(201);
        app.post(path_in(WORKSPACE), create_in(WORKSPACE)).await.expect(201);
        app.post(path_in(&other_workspace), body.clone()).await.expect_refusal(404, "not_found");
        app.post(&path, create_in(&other_workspace)).await.expect_refusal(404, "not_found");
        app.post(path_in(&other_workspace), create_in(WORKSPACE)).await.expect_refusal(422, "validation_error");
    }
}

/// Errors that repeat member names of the content truncate long names.
#[tokio::test]
async fn error_paths_truncate_long_member_names() {
    let app = TestApp::start().await;
    let asset = app.fixtures().asset_without_versions("prompt_template", "prompt").await;
    let name = |number: usize| format!("{number}{}", "ä".repeat(10_000));
    let mut content = prompt_content("x");
    for number in 0..100 {
        content[name(number)] = json!(1);
    }
    let response = create_version(&app, &asset, json!({ "content": content })).await;
    let refusal = response.expect_refusal(400, "invalid_content");
    assert_eq!(refusal["fields"].as_array().unwrap().len(), 100);
    assert!(response.body.len() < 100 * 1_000, "{} bytes", response.body.len());
    let path = refusal["fields"][0]["path"].as_str().unwrap();
    assert!(path.starts_with("content.") && path.ends_with('…'), "{path}");
    let response =
        create_version(&app, &asset, json!({ "content": { "system_prompt": "x", "labels": { name(0): "x\u{7}" } } }))
            .await;
    assert!(response.body.len() < 2_000, "{} bytes", response.body.len());
    let response =
        create_version(&app, &asset, json!({ "content": { "system_prompt": "x", "metadata": { name(0): 1e300 } } }))
            .await;
    assert!(response.status == 201 || response.body.len() < 2_000, "{} bytes", response.body.len());
}

/// A change note is free text. Facts do not contain it, and it can be erased without erasing the version.
#[tokio::test]
async fn change_notes_can_be_erased() {
    let app = TestApp::start().await;
    let asset = app.fixtures().asset_without_versions("prompt_template", "prompt").await;
    let created = create_version(&app, &asset, json!({ "content": prompt_content("x"), "change_note": "canary" }))
        .await
        .expect(201);
    let owner = app.database().connect_as_owner().await.unwrap();
    let count = "SELECT count(*) FROM fact WHERE position('canary'::bytea IN body) > 0";
    assert_eq!(owner.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 0);
    owner.batch_execute("SET ROLE fairway_service; DELETE FROM asset_version_note; RESET ROLE").await.unwrap();
    let id = created["asset_version_id"].as_str().unwrap();
    let version_view = app.get(format!("/v1/assets/{asset}/versions/{id}?workspace_id={WORKSPACE}")).await.expect(200);
    assert_eq!((&version_view["change_note"], &version_view["checksum"]), (&json!(null), &created["checksum"]));
}

#[tokio::test]
async fn diffs_any_two_versions_of_an_asset() {
    let app = TestApp::start().await;
    let asset = app.fixtures().asset_without_versions("prompt_template", "prompt").await;
    let contents = [
        json!({ "system_prompt": "Sort the ticket.\nBe kind.\nTicket: $arg:a", "variables": [{ "name": "a", "type": "string" }] }),
        json!({ "system_prompt": "Sort the ticket.\nBe quick." }),
        json!({
            "system_prompt": "x $arg:a", "variables": [{ "name": "b", "type": "number" }, { "name": "a", "type": "string" }],
        }),
    ];
    let mut versions = Vec::new();
    for content in &contents {
        let created = create_version(&app, &asset, json!({ "content": content })).await.expect(201);
        versions.push(created["asset_version_id"].as_str().unwrap().to_owned());
    }
    let path = |from_version: &str, to_version: &str| {
        format!("/v1/assets/{asset}/versions/{from_version}/diff/{to_version}?workspace_id={WORKSPACE}")
    };
    for (old_content, old_version) in contents.iter().zip(&versions) {
        for (new_content, new_version) in contents.iter().zip(&versions) {
            let diff = app.get(path(old_version, new_version)).await.expect(200);
            let patch: json_patch::Patch = serde_json::from_value(diff["patch"].clone()).unwrap();
            let mut document = old_content.clone();
            json_patch::patch(&mut document, &patch).unwrap();
            assert_eq!(&document, new_content);
            assert_eq!(diff["readable"].as_str().unwrap().is_empty(), old_content == new_content, "{diff}");
        }
    }
    let readable = app.get(path(&versions[0], &versions[1])).await.expect(200)["readable"].clone();
    let lines: Vec<&str> = readable.as_str().unwrap().lines().collect();
    assert!(lines.contains(&"    - Be kind.") && lines.contains(&"    + Be quick."), "{readable}");
    // Both versions must belong to the asset.
    let other_asset = app.prompt("other").await.asset_version_id;
    for (from_id, to_id) in [(&versions[0], &other_asset), (&other_asset, &versions[0])] {
        app.get(path(from_id, to_id)).await.expect_refusal(404, "not_found");
    }
}

/// The size of versions also limits a page. The remaining versions are on further pages.
#[tokio::test]
async fn pages_of_large_versions_are_bounded_by_size() {
    let app = TestApp::start().await;
    let asset = app.fixtures().asset_without_versions("prompt_template", "prompt").await;
    for number in 0..12 {
        let text = format!("{number}{}", "x".repeat(255 << 10));
        create_version(&app, &asset, json!({ "content": prompt_content(&text) })).await.expect(201);
    }
    let mut next_path = Some(format!("/v1/assets/{asset}/versions?workspace_id={WORKSPACE}&limit=11"));
    let mut labels = Vec::new();
    let mut pages = 0;
    while let Some(path) = next_path {
        let page = app.get(path).await;
        let rows = page.expect(200);
        assert!(page.body.len() < 3 << 20, "{}", page.body.len());
        assert_eq!(page.header("x-total-count"), Some("12"));
        labels.extend(rows.as_array().unwrap().iter().map(|row| row["version_label"].clone()));
        pages += 1;
        next_path = page.header("link").map(|link| link[1..link.find('>').unwrap()].to_owned());
    }
    let expected: Vec<String> = (1..=12).rev().map(|number| format!("v{number}")).collect();
    assert_eq!(labels, expected);
    assert_eq!(pages, 3, "five versions of 255 KiB on a page");
}

/// Policy tests run up to their time limit, and a flow is read value by value (threats T12 and T13 in
/// `docs/security.md`). The worker thread must serve other requests meanwhile.
#[tokio::test]
async fn validation_of_heavy_content_does_not_block_the_thread() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let asset = fixtures.asset_without_versions("policy_bundle", "heavy").await.parse::<Uuid>().unwrap();
    let flow = fixtures.flow("echo", ECHO_FLOW).await.asset_id.parse::<Uuid>().unwrap();
    let claims = IdentityClaims { actor: ActorRef::parse("user:local").unwrap(), groups: Vec::new(), tenant: None };
    let services = app.services();
    let caller =
        services.identities.resolve_caller(IdentityMode::Local, &claims, Uuid::from_u128(1).into()).await.unwrap();

    let numbers: Vec<usize> = (0..50).collect();
    let test = |index: usize| json!({ "name": format!("t{index}"), "input": { "inputs": { "list": numbers } }, "expect": { "outcome": "deny" } });
    let rule = json!({
        "id": "r", "condition": "inputs.list.exists(x, inputs.list.exists(y, x == y + 1000))", "outcome": "allow",
        "reason_code": "x",
    });
    let content = json!({ "rules": [rule], "tests": (0..100).map(test).collect::<Vec<_>>() });
    let draft = CreateVersionParams { content, label: None, change_note: None };
    let (created, longest_poll, took) =
        measure_polls(services.assets.create_asset_version(&caller, asset.into(), None, draft, None)).await;
    assert!(matches!(created, Err(Failure::Content(ContentRefusal::Invalid(_)))));
    assert!(longest_poll < took / 2, "the thread was blocked for {longest_poll:?} of {took:?}");

    let text = format!("entry_step: a\nsteps:\n  - {{id: a, type: return, output: [{}]}}\n", "x, ".repeat(15_000));
    let (found, longest_poll, took) =
        measure_polls(services.flows.validate_flow(&caller, flow.into(), None, text)).await;
    assert_eq!(found.unwrap(), []);
    assert!(longest_poll < took / 2, "the thread was blocked for {longest_poll:?} of {took:?}");
}

#[tokio::test]
async fn location_of_a_created_version_is_readable() {
    let app = TestApp::start().await;
    let prompt = app.fixtures().asset_without_versions("prompt_template", "prompt").await;
    let flow = json!({ "slug": "echo", "owner_ref": "team:a", "content_yaml": ECHO_FLOW });
    let flow = app.post("/v1/flows", flow).await;
    assert_eq!(app.get(flow.header("location").unwrap()).await.expect(200), flow.expect(201));
    let flow_content = json!({ "content_yaml": ECHO_FLOW });
    let path = format!("/v1/flows/{}/versions", flow.json()["asset_id"].as_str().unwrap());
    for created in [
        create_version(&app, &prompt, json!({ "content": prompt_content("x") })).await,
        app.post(path, flow_content).await,
    ] {
        assert_eq!(app.get(created.header("location").unwrap()).await.expect(200), created.expect(201));
    }
}
