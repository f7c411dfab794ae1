//! Pagination: following the cursors of any list returns each row exactly once.

use crate::support::{
    documented_routes::routes,
    workspace_fixture::{WORKSPACE, WorkspaceFixture},
};
use fairway_testkit::{TestApp, app::Response};
use serde_json::{Value, json};

/// The path of the next page, from the `Link` header; `None` on the last page.
fn next_page_path(response: &Response) -> Option<String> {
    let link = response.header("link")?;
    Some(link.strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap().to_owned())
}

/// All rows of a list, read page by page.
pub(crate) async fn all_rows(app: &TestApp, first_path: String) -> Vec<Value> {
    let mut rows = Vec::new();
    let mut path = Some(first_path);
    while let Some(page_path) = path {
        let page = app.get(page_path).await;
        rows.extend(page.expect(200).as_array().unwrap().clone());
        path = next_page_path(&page);
        assert!(rows.len() < 2_000, "pagination does not end");
    }
    rows
}

#[tokio::test]
async fn cursors_visit_every_row_of_every_list_once() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    for number in 0..5 {
        fixture.fixtures.draft(&fixture.workload.workload_id, &[]).await;
        fixture.fixtures.flow(&format!("more-{number}"), crate::support::workspace_fixture::ECHO_FLOW).await;
        for operation in ["create_tenant", "create_workspace", "create_role_binding", "create_workload"] {
            fixture.successful_request(operation).await.await.expect(201);
        }
        let visible_workload = fixture.fixtures.workload(&format!("shown-{number}")).await;
        let form = json!({ "interface_config": { "presentation_mode": "form" } });
        app.patch(format!("/v1/workloads/{visible_workload}"), form).await.expect(200);
        fixture.successful_request("create_asset_version").await.await.expect(201);
        fixture.successful_request("create_asset_grant").await.await.expect(201);
        fixture.successful_request("review_release").await.await.expect(201);
        fixture.successful_request("create_share_link").await.await.expect(201);
        for operation in
            ["create_connection", "create_workspace_destination", "create_organization_destination", "request_erasure"]
        {
            fixture.successful_request(operation).await.await.expect(201);
        }
        fixture.create_pending_use_case(&format!("crm-{number}")).await;
        fixture.successful_request("add_documents").await.await.expect(201);
        fixture.successful_request("set_principal_binding").await.await.expect(200);
        fixture.successful_request("execute_workload").await.await.expect(200);
    }
    fixture.suppress_decisions(5).await;
    for _ in 0..3 {
        fixture.create_failed_delivery().await;
    }
    let mut lists = 0;
    for route in routes().into_iter().filter(|route| route.has_parameter("cursor")) {
        // These two lists have tests of their own. A release has at most three artifacts, because it is rolled back at
        // most once from each lane (see `rollback`). The manifest wraps its page in an object (see `memory_bounds`).
        if matches!(route.operation_id(), "list_release_artifacts" | "read_runtime_mcp_manifest") {
            continue;
        }
        // Only the knowledge base of the fixture has documents.
        let list_path = if route.operation_id() == "list_documents" {
            fixture.documents_path()
        } else {
            fixture.fill_path(&route.path)
        };
        let path = list_path + &route.query(&[("workspace_id", &fixture.workspace)]);
        let whole_list = app.get(format!("{path}limit=200")).await;
        let rows = whole_list.expect(200).as_array().unwrap().clone();
        assert!(rows.len() >= 5, "{path}: {}", rows.len());
        assert_eq!(next_page_path(&whole_list), None, "{path}");
        if route.operation_id() != "list_audit_events" {
            assert_eq!(whole_list.header("x-total-count"), Some(rows.len().to_string().as_str()), "{path}");
            for limit in [1, 2, rows.len() - 1] {
                assert_eq!(all_rows(&app, format!("{path}limit={limit}")).await, rows, "{path} by {limit}");
            }
        }
        let offset = app.get(format!("{path}limit=2&offset=2")).await.expect(200);
        assert_eq!(offset.as_array().unwrap()[..], rows[2..4], "{path}");
        let unknown = app.get(format!("{path}nonsense=1")).await.expect_refusal(422, "validation_error");
        let field = &unknown["fields"][0];
        assert_eq!((&field["path"], &field["code"]), (&json!("nonsense"), &json!("unknown_parameter")), "{path}");
        lists += 1;
    }
    assert!(lists >= 11, "{lists} lists");
}

#[tokio::test]
async fn pagination_neither_misses_nor_repeats_rows_of_a_growing_list() {
    let app = TestApp::start().await;
    for number in 0..6 {
        app.fixtures().asset_without_versions("skill", &format!("old-{number}")).await;
    }
    let first_response = app.get("/v1/assets?limit=4").await;
    let mut seen_rows: Vec<Value> = first_response.expect(200).as_array().unwrap().clone();
    for number in 0..3 {
        app.fixtures().asset_without_versions("skill", &format!("new-{number}")).await;
    }
    seen_rows.extend(all_rows(&app, next_page_path(&first_response).unwrap()).await);
    let slugs: Vec<&str> = seen_rows.iter().map(|row| row["slug"].as_str().unwrap()).collect();
    assert_eq!(slugs, ["old-5", "old-4", "old-3", "old-2", "old-1", "old-0"]);
}

#[tokio::test]
async fn asset_filters_apply_alone_and_combined() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let other_workspace = fixtures.workspace("other", "other").await;
    let mut expected = Vec::new();
    for (number, kind) in ["skill", "skill", "policy_bundle", "memory", "skill"].into_iter().enumerate() {
        for (prefix, workspace) in [("a", WORKSPACE), ("b", other_workspace.as_str())] {
            let slug = format!("{prefix}-{number}");
            let asset = fixtures.in_workspace(workspace).asset_without_versions(kind, &slug).await;
            let state = if number % 2 == 0 { "active" } else { "retired" };
            if state == "retired" {
                app.post(format!("/v1/assets/{asset}/retire?workspace_id={workspace}"), json!({})).await.expect(200);
            }
            expected.push((slug, kind, state, workspace.to_owned()));
        }
    }
    expected.reverse();
    // One actor may view everything. The other may view one of the two workspaces.
    fixtures.bind_role("user:ada", "viewer", "workspace", Some(WORKSPACE)).await;
    for actor in ["user:local", "user:ada"] {
        for workspace in [None, Some(WORKSPACE), Some(other_workspace.as_str())] {
            for kind in [None, Some("skill"), Some("policy_bundle"), Some("agent")] {
                for state in [None, Some("active"), Some("retired"), Some("archived")] {
                    let mut query = Vec::new();
                    query.extend(workspace.map(|id| format!("workspace_id={id}")));
                    query.extend(kind.map(|kind| format!("asset_kind={kind}")));
                    query.extend(state.map(|state| format!("lifecycle_state={state}")));
                    let path = format!("/v1/assets?{}&limit=2", query.join("&"));
                    if actor == "user:ada" && workspace == Some(other_workspace.as_str()) {
                        app.get(path).as_actor(actor).await.expect_refusal(404, "not_found");
                        continue;
                    }
                    let expected_slugs: Vec<&str> = expected
                        .iter()
                        .filter(|(_, has_kind, has_state, is_in)| {
                            kind.is_none_or(|kind| kind == *has_kind)
                                && state.is_none_or(|state| state == *has_state)
                                && workspace.is_none_or(|id| id == is_in)
                                && (actor == "user:local" || is_in == WORKSPACE)
                        })
                        .map(|(slug, ..)| slug.as_str())
                        .collect();
                    let mut found = Vec::new();
                    let mut next_path = Some(path.clone());
                    while let Some(path) = next_path {
                        let page = app.get(path).as_actor(actor).await;
                        assert_eq!(
                            page.header("x-total-count"),
                            Some(expected_slugs.len().to_string().as_str()),
                            "{page}"
                        );
                        found.extend(page.expect(200).as_array().unwrap().clone());
                        next_path = next_page_path(&page);
                    }
                    let slugs: Vec<&str> = found.iter().map(|row| row["slug"].as_str().unwrap()).collect();
                    assert_eq!(slugs, expected_slugs, "{actor} {path}");
                }
            }
        }
    }
}

#[tokio::test]
async fn rejects_invalid_filter_values_including_sql() {
    let app = TestApp::start().await;
    app.fixtures().asset_without_versions("skill", "thing").await;
    for value in
        ["'; DROP TABLE asset; --", "skill' OR '1'='1", "%25", "_", "skill%00", "SKILL", "skill ", "(a|b)*c", "🙂"]
    {
        for name in ["asset_kind", "lifecycle_state", "workspace_id", "cursor"] {
            let value: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let response = app.get(format!("/v1/assets?{name}={value}")).await;
            assert_eq!(response.expect_refusal(422, "validation_error")["fields"][0]["path"], name);
        }
    }
    let long_text = "x".repeat(32 << 10);
    assert!([414, 422, 431, 400].contains(&app.get(format!("/v1/assets?cursor={long_text}")).await.status));
    assert_eq!(app.get("/v1/assets").await.expect(200).as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_cursor_is_valid_only_for_its_own_list() {
    let app = TestApp::start().await;
    for number in 0..3 {
        app.fixtures().asset_without_versions("skill", &format!("thing-{number}")).await;
    }
    let first_response = app.get("/v1/assets?limit=1&asset_kind=skill").await;
    let linked = next_page_path(&first_response).unwrap();
    let cursor = linked.split("cursor=").nth(1).unwrap();
    app.get(&linked).await.expect(200);
    // A cursor contains a position but no permissions, so each page is authorized anew.
    app.get(&linked).as_actor("anonymous").await.expect_refusal(403, "forbidden");
    for path in [
        format!("/v1/assets?cursor={cursor}"),
        format!("/v1/assets?cursor={cursor}&asset_kind=memory"),
        format!("/v1/flows?cursor={cursor}"),
        format!("/v1/workloads?cursor={cursor}&asset_kind=skill"),
        format!("/v1/assets?asset_kind=skill&cursor={cursor}&offset=1"),
        format!("/v1/assets?asset_kind=skill&cursor={}", cursor.replace(&cursor[20..24], "0000")),
    ] {
        app.get(path).await.expect_refusal(422, "validation_error");
    }
    // Another server on the same database accepts the cursor.
    let second_server = TestApp::builder().sharing_storage_of(&app).start().await;
    assert_eq!(second_server.get(&linked).await.expect(200), app.get(&linked).await.expect(200));
}
