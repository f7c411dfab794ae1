//! Idempotency keys: a repeated request returns the effect of the first request and causes no second effect.

use crate::support::{
    documented_routes::routes,
    workspace_fixture::{WORKSPACE, WorkspaceFixture},
};
use fairway_testkit::{ProviderBehaviour, StubProvider, TestApp, app::Response};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const AFTER_RETENTION: i64 = 24 * 60 * 60 + 60;

fn is_replayed(response: &Response) -> bool {
    response.header("idempotency-replayed") == Some("true")
}

async fn row_count(app: &TestApp, table: &str) -> i64 {
    let owner = app.database().connect_as_owner().await.unwrap();
    owner.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn every_keyed_request_has_one_effect() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let mut keyed = 0;
    for route in routes().iter().filter(|route| route.has_parameter("Idempotency-Key")) {
        keyed += 1;
        let request = fixture.successful_request(route.operation_id()).await.idempotency_key("once");
        let first_response = request.clone().await;
        assert!([200, 201].contains(&first_response.status), "{first_response}");
        assert!(!is_replayed(&first_response), "{first_response}");
        let facts = row_count(&app, "fact").await;
        for _ in 0..2 {
            let second_response = request.clone().await;
            assert_eq!(second_response.status, first_response.status, "{second_response}");
            assert!(is_replayed(&second_response), "{second_response}");
            assert_eq!(second_response.header("location"), first_response.header("location"), "{second_response}");
            assert_eq!(second_response.header("etag"), first_response.header("etag"), "{second_response}");
            let (mut first_body, mut second_body) = (first_response.json(), second_response.json());
            if route.operation_id() == "create_share_link" {
                // Only the first response contains the token.
                assert!(first_body["token"].is_string() && second_body["token"].is_null(), "{second_response}");
                first_body["token"] = Value::Null;
            }
            if route.operation_id() == "retry_delivery" {
                // The sender may have attempted the delivery between the two responses, so only the identifier is
                // compared.
                (first_body, second_body) = (first_body["delivery_id"].clone(), second_body["delivery_id"].clone());
            }
            assert_eq!(first_body, second_body, "{}", route.operation_id());
        }
        assert_eq!(row_count(&app, "fact").await, facts, "{}: a replay writes no fact", route.operation_id());
        // A key identifies one request body. These operations have an empty body, so they are excluded.
        const WITHOUT_MEMBERS: [&str; 12] = [
            "bind_version",
            "advance_rollout",
            "cancel_execution",
            "mark_inbox_read",
            "retry_delivery",
            "check_connection",
            "publish_use_case",
            "activate_use_case",
            "archive_use_case",
            "reopen_use_case",
            "approve_erasure",
            "refuse_erasure",
        ];
        if !WITHOUT_MEMBERS.contains(&route.operation_id()) {
            let mut other_body = fixture.successful_body(route.operation_id());
            match route.operation_id() {
                "transition_release" => other_body["to_state"] = json!("draft"),
                "activate_asset" | "retire_asset" | "archive_asset" => {
                    // This body has another spelling but the same meaning.
                    other_body["workspace_id"] = json!(fixture.workspace.to_uppercase());
                }
                "roll_back_release" => other_body["reason"] = json!("another"),
                "review_release" | "review_execution" | "settle_execution" => other_body["note"] = json!("another"),
                "reembed_documents" => other_body["max_chunks"] = json!(1),
                "run_code" => other_body["code"] = json!("result = 2"),
                "call_tool" => other_body["arguments"]["inputs"] = json!({ "ticket": "another" }),
                "execute_workload" => other_body["inputs"] = json!({ "ticket": "another" }),
                "generate_asset_draft" | "generate_use_case" => {
                    other_body["description"] = json!("Sort letters by their urgency.")
                }
                "create_release" => other_body["environment"] = json!("test"),
                "create_use_case" => other_body["source_description"] = json!("Another description."),
                "grant_access_request" => other_body["connector_kind"] = json!("smtp"),
                "deny_access_request" => other_body["reason"] = json!("another"),
                "create_flow_version" => other_body["version_label"] = json!("another"),
                _ => {}
            }
            request.clone().json(other_body).await.expect_refusal(409, "idempotency_key_conflict");
        }
        assert_eq!(row_count(&app, "fact").await, facts, "{}: a conflict writes no fact", route.operation_id());
    }
    assert_eq!(keyed, 48, "the number of routes with keys differs");
}

#[tokio::test]
async fn replayed_transition_returns_its_own_time() {
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("main").await;
    let policy = app.fixtures().allow_all_policy("policy").await;
    let release = app.fixtures().draft(&workload, &[policy]).await;
    let path = format!("/v1/releases/{release}/transition");
    let submit = || app.post(&path, json!({ "to_state": "review_ready" })).idempotency_key("submit");
    let first_response = submit().await.expect(200);
    let reopened = app.post(&path, json!({ "to_state": "draft" })).await.expect(200);
    assert_ne!(reopened["transitioned_at"], first_response["transitioned_at"]);
    let second_response = submit().await;
    assert!(is_replayed(&second_response), "{second_response}");
    let second_body = second_response.expect(200);
    for field in ["transitioned_at", "transitioned_by", "previous_state"] {
        assert_eq!(second_body[field], first_response[field], "{field}");
    }
    // A replay returns the release in its current state.
    assert_eq!((&second_body["state"], &second_body["updated_at"]), (&json!("draft"), &reopened["updated_at"]));
}

#[tokio::test]
async fn equivalent_json_bodies_are_the_same_request() {
    let app = TestApp::start().await;
    let first_body = r#"{"slug":"same","asset_kind":"skill","owner_ref":"team:a"}"#;
    let same_value_body = "{ \"owner_ref\": \"team:a\",\n \"asset_kind\": \"sk\\u0069ll\", \"slug\": \"same\" }";
    let send =
        |body: &str| app.post("/v1/assets", Value::Null).with_body("application/json", body).idempotency_key("k");
    let first_response = send(first_body).await.expect(201);
    let second_response = send(same_value_body).await;
    assert_eq!(second_response.expect(201), first_response);
    assert!(is_replayed(&second_response));
}

#[tokio::test]
async fn keys_are_scoped_to_caller_tenant_route_and_resource() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let tenant = fixtures.tenant("acme").await;
    fixtures.in_tenant(&tenant, "").workspace("there", "there").await;
    let asset = |slug: &str| json!({ "slug": slug, "asset_kind": "skill", "owner_ref": "team:a" });
    let create_asset = |slug: &str| app.post("/v1/assets", asset(slug)).idempotency_key("shared");
    let mut asset_ids = BTreeSet::new();
    for response in [
        create_asset("one").as_actor("user:ada").await,
        create_asset("two").as_actor("user:grace").await,
        create_asset("three").await,
    ] {
        assert!(!is_replayed(&response));
        asset_ids.insert(response.expect(201)["asset_id"].to_string());
    }
    assert_eq!(asset_ids.len(), 3);
    let workload = json!({ "slug": "one", "owner_ref": "team:a", "invocation_mode": "api" });
    assert!(!is_replayed(&app.post("/v1/workloads", workload).as_actor("user:ada").idempotency_key("shared").await));
    let workspaces = app.get("/v1/workspaces").in_tenant(&tenant).await.expect(200);
    let other_workspace = workspaces[0]["workspace_id"].as_str().unwrap();
    let in_other_tenant = app
        .post(format!("/v1/assets?workspace_id={other_workspace}"), asset("one"))
        .in_tenant(&tenant)
        .idempotency_key("shared");
    assert!(!is_replayed(&in_other_tenant.await));
    // Keys are scoped to the resource in the path.
    let (first_asset, second_asset) = (
        fixtures.asset_without_versions("prompt_template", "a").await,
        fixtures.asset_without_versions("prompt_template", "b").await,
    );
    for asset in [first_asset, second_asset] {
        let body = json!({ "content": { "system_prompt": "x" } });
        let response = app.post(format!("/v1/assets/{asset}/versions"), body).idempotency_key("v").await;
        assert_eq!(response.expect(201)["asset_id"], asset);
    }
}

/// A workspace in the query is part of the identified request, like a workspace in the body.
#[tokio::test]
async fn a_key_belongs_to_the_workspace_of_the_query() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let flow = crate::support::workspace_fixture::ECHO_FLOW;
    for (path, body) in [
        ("/v1/assets", json!({ "slug": "keyed", "asset_kind": "skill", "owner_ref": "team:a" })),
        ("/v1/workloads", json!({ "slug": "keyed", "owner_ref": "team:a", "invocation_mode": "api" })),
        ("/v1/flows", json!({ "slug": "keyed-flow", "owner_ref": "team:a", "content_yaml": flow })),
        ("/v1/connections", json!({ "name": "keyed", "connector_kind": "other" })),
    ] {
        let create = |workspace: &str| {
            app.post(format!("{path}?workspace_id={workspace}"), body.clone()).idempotency_key("workspace")
        };
        let first_asset = create(WORKSPACE).await;
        assert_eq!(first_asset.expect(201)["workspace_id"], WORKSPACE, "{path}");
        create(&fixture.workspace).await.expect_refusal(409, "idempotency_key_conflict");
        app.post(path, body.clone()).idempotency_key("workspace").await.expect_refusal(409, "idempotency_key_conflict");
        assert!(is_replayed(&create(WORKSPACE).await), "{path}");
    }
}

#[tokio::test]
async fn rejects_malformed_keys() {
    let app = TestApp::start().await;
    let create_asset = || app.post("/v1/assets", json!({ "slug": "k", "asset_kind": "skill", "owner_ref": "team:a" }));
    let long_key = "k".repeat(256);
    for key in ["", " ", "a b", "a\tb", "é", &long_key] {
        let refusal = create_asset().idempotency_key(key).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], "Idempotency-Key", "{key:?}");
    }
    create_asset().idempotency_key("a").idempotency_key("a").await.expect_refusal(422, "validation_error");
    create_asset().idempotency_key(&"!".repeat(255)).await.expect(201);
}

#[tokio::test]
async fn refused_request_does_not_consume_its_key() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    fixtures.asset_without_versions("skill", "taken").await;
    let create_asset =
        |slug: &str| app.post("/v1/assets", json!({ "slug": slug, "asset_kind": "skill", "owner_ref": "team:a" }));
    create_asset("taken").idempotency_key("k").await.expect_refusal(409, "duplicate_slug");
    assert!(!is_replayed(&create_asset("free").idempotency_key("k").await));
    let prompt = fixtures.asset_without_versions("prompt_template", "prompt").await;
    let version = |content: Value| app.post(format!("/v1/assets/{prompt}/versions"), json!({ "content": content }));
    version(json!({ "system_prompt": 1 })).idempotency_key("v").await.expect_refusal(400, "invalid_content");
    assert!(!is_replayed(&version(json!({ "system_prompt": "x" })).idempotency_key("v").await));
    let workload = fixtures.workload("main").await;
    let policy = fixtures.allow_all_policy("policy").await;
    let release = fixtures.draft(&workload, &[policy]).await;
    let path = format!("/v1/releases/{release}/transition");
    app.post(&path, json!({ "to_state": "active" }))
        .idempotency_key("t")
        .await
        .expect_refusal(409, "invalid_transition");
    assert!(!is_replayed(&app.post(&path, json!({ "to_state": "review_ready" })).idempotency_key("t").await));
    app.post("/v1/workloads/by-slug/main/execute", json!({ "environment": "dev" }))
        .idempotency_key("x")
        .await
        .expect_refusal(409, "no_active_release");
}

#[tokio::test]
async fn keys_expire_after_one_day() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    let create_asset = |slug: &str| {
        app.post("/v1/assets", json!({ "slug": slug, "asset_kind": "skill", "owner_ref": "team:a" }))
            .idempotency_key("k")
    };
    let run = || {
        app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": { "ticket": "x" } }))
            .idempotency_key("k")
    };
    let (first_asset, first_run) = (create_asset("one").await.expect(201), run().await.expect(200));
    app.database().set_clock_offset(AFTER_RETENTION - 120).await.unwrap();
    create_asset("two").await.expect_refusal(409, "idempotency_key_conflict");
    assert_eq!(run().await.expect(200), first_run);
    app.database().set_clock_offset(AFTER_RETENTION).await.unwrap();
    let second_asset = create_asset("two").await;
    assert!(!is_replayed(&second_asset));
    assert_ne!(second_asset.expect(201)["asset_id"], first_asset["asset_id"]);
    let second_response = run().await;
    assert!(!is_replayed(&second_response));
    assert_ne!(second_response.expect(200)["execution_id"], first_run["execution_id"]);
}

#[tokio::test]
async fn replays_require_current_permissions() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workspace = Some(WORKSPACE);
    let workload = app.active_workload("main").await;
    let author = fixtures.bind_role("user:ada", "author", "workspace", workspace).await;
    fixtures.bind_role("user:ada", "runtime_user", "workspace", workspace).await;
    let create_asset = || app.post("/v1/assets", json!({ "slug": "x", "asset_kind": "skill", "owner_ref": "team:a" }));
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let run = || app.post(workload.execute_path(), body.clone()).as_actor("user:ada").idempotency_key("k");
    create_asset().as_actor("user:ada").idempotency_key("k").await.expect(201);
    let response = run().await.expect(200);
    app.delete(format!("/v1/role-bindings/{author}")).await.expect(204);
    let refused_response = create_asset().as_actor("user:ada").idempotency_key("k").await;
    assert!([403, 404].contains(&refused_response.status), "{refused_response}");
    assert!(!refused_response.text().contains("asset_id"), "{refused_response}");
    // A replay requires the current permission for the operation. Without it the request is refused.
    assert_eq!(run().await.expect(200), response);
    let listed = app.get(format!("/v1/role-bindings?workspace_id={WORKSPACE}")).await.expect(200);
    for binding in listed.as_array().unwrap() {
        let id = binding["role_binding_id"].as_str().unwrap();
        app.delete(format!("/v1/role-bindings/{id}")).await.expect(204);
    }
    run().await.expect_refusal(404, "not_found");
    // A replay returns the current state of the resource.
    let workload = json!({ "slug": "moving", "owner_ref": "team:a", "invocation_mode": "api" });
    let first_response = app.post("/v1/workloads", workload.clone()).idempotency_key("w").await.expect(201);
    let path = format!("/v1/workloads/{}", first_response["workload_id"].as_str().unwrap());
    let changed_workload = app.patch(&path, json!({ "description": "Changed." })).await.expect(200);
    let replay = app.post("/v1/workloads", workload).idempotency_key("w").await;
    assert_eq!(replay.expect(201), changed_workload);
    assert_eq!(replay.header("etag"), Some("\"2\""));
}

#[tokio::test]
async fn concurrent_duplicates_have_one_effect() {
    let app = TestApp::start().await;
    let prompt = app.fixtures().asset_without_versions("prompt_template", "prompt").await;
    let version = json!({ "content": { "system_prompt": "x" } });
    let asset = json!({ "slug": "one", "asset_kind": "skill", "owner_ref": "team:a" });
    let facts_before = row_count(&app, "fact").await;
    let cases = [("/v1/assets".to_owned(), asset), (format!("/v1/assets/{prompt}/versions"), version)];
    for (path, body) in cases {
        let responses =
            join_all((0..100).map(|_| app.post(&path, body.clone()).idempotency_key("k").into_future())).await;
        let bodies: BTreeSet<String> = responses.iter().map(|response| response.expect(201).to_string()).collect();
        assert_eq!(bodies.len(), 1, "{bodies:?}");
        assert_eq!(responses.iter().filter(|response| !is_replayed(response)).count(), 1);
    }
    assert_eq!(row_count(&app, "fact").await, facts_before + 2);
    assert_eq!(row_count(&app, "asset_version").await, 1);
}

#[tokio::test]
async fn concurrent_duplicates_of_every_change_happen_once() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    for route in routes().iter().filter(|route| route.has_parameter("Idempotency-Key")) {
        let request = fixture.successful_request(route.operation_id()).await.idempotency_key("at-once");
        let facts_before = row_count(&app, "fact").await;
        let responses = join_all((0..10).map(|_| request.clone().into_future())).await;
        let mut new_runs = 0;
        for response in &responses {
            match response.status {
                200 | 201 => new_runs += usize::from(!is_replayed(response)),
                // Concurrent duplicates of a script compete for script permits, as other scripts do.
                429 if route.operation_id() == "run_code" => drop(response.expect_refusal(429, "too_many_scripts")),
                _ => {
                    // Operations with external effects reserve their key before they start.
                    let reserving = [
                        "execute_workload",
                        "run_code",
                        "call_tool",
                        "generate_asset_draft",
                        "generate_use_case",
                        "add_documents",
                        "check_connection",
                        "reembed_documents",
                    ];
                    let is_reserving = reserving.contains(&route.operation_id());
                    assert!(is_reserving, "{}: {response}", route.operation_id());
                    response.expect_refusal(409, "request_in_progress");
                }
            }
        }
        assert_eq!(new_runs, 1, "{}: {responses:?}", route.operation_id());
        // A script writes an additional fact about its acceptance.
        let facts = if route.operation_id() == "run_code" { 2 } else { 1 };
        assert_eq!(row_count(&app, "fact").await, facts_before + facts, "{}", route.operation_id());
    }
}

#[tokio::test]
async fn concurrent_duplicates_of_a_run_are_one_run() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let workload = app.active_workload("main").await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let run = || app.post(workload.execute_path(), body.clone()).idempotency_key("k");
    let first_request = tokio::spawn(run().into_future());
    provider.wait_for_calls(1).await;
    for response in join_all((0..100).map(|_| run().into_future())).await {
        response.expect_refusal(409, "request_in_progress");
    }
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    let first_run = first_request.await.unwrap().expect(200);
    let responses = join_all((0..100).map(|_| run().into_future())).await;
    for response in &responses {
        assert_eq!(response.expect(200), first_run);
        assert!(is_replayed(response));
    }
    assert_eq!(provider.call_count(), 1);
    assert_eq!(row_count(&app, "execution").await, 1);
    // Of many concurrent requests with one key, exactly one executes.
    let body = json!({ "environment": "dev", "inputs": { "ticket": "y" } });
    let requests =
        (0..100).map(|_| app.post(workload.execute_path(), body.clone()).idempotency_key("other").into_future());
    let responses = join_all(requests).await;
    let mut ids = BTreeSet::new();
    for response in &responses {
        match response.status {
            200 => drop(ids.insert(response.json()["execution_id"].to_string())),
            _ => drop(response.expect_refusal(409, "request_in_progress")),
        }
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(row_count(&app, "execution").await, 2);
}

#[tokio::test]
async fn refusals_that_name_a_run_are_replayed() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let rules = json!([{ "id": "no", "condition": "never", "outcome": "allow", "reason_code": "ok" }]);
    let policy = fixtures.policy_with_rules("deny", rules).await;
    let denied_workload = fixtures.active_workload_with_policy("denied", policy).await;
    let workload_with_invalid_input = app.active_workload("mistaken").await;
    for (workload, inputs, status, code) in [
        (&denied_workload, json!({ "ticket": "x" }), 403, "policy_denied"),
        (&workload_with_invalid_input, json!({}), 422, "prompt_argument_missing"),
    ] {
        let body = json!({ "environment": "dev", "inputs": inputs });
        let run = || app.post(workload.execute_path(), body.clone()).idempotency_key("k");
        let first_response = run().await;
        let detail = first_response.expect_refusal(status, code);
        assert!(detail["execution_id"].is_string());
        let second_response = run().await;
        assert_eq!(second_response.expect_refusal(status, code), detail);
        assert!(is_replayed(&second_response), "{second_response}");
        // Suspending the workload does not affect replays.
        let path = format!("/v1/workloads/{}", workload.workload_id);
        app.patch(&path, json!({ "status": "suspended" })).await.expect(200);
        assert_eq!(run().await.expect_refusal(status, code), detail);
    }
    assert_eq!(row_count(&app, "execution").await, 2);
}
