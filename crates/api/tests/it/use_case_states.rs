//! Every operation in every status of a use case, and the filters of its list.

use crate::support::workspace_fixture::WorkspaceFixture;
use fairway_testkit::{TestApp, app::Response};
use serde_json::{Value, json};

const DESCRIPTION: &str = "Sort tickets by their urgency.";
const STATUSES: [&str; 4] = ["draft", "pending_access", "active", "archived"];

async fn post_action(fixture: &WorkspaceFixture<'_>, use_case: &str, verb: &str) -> Response {
    let body = match verb {
        "refine" => json!({ "description": DESCRIPTION, "refinement_context": [], "idempotency_key": use_case }),
        _ => json!({}),
    };
    fixture.app.post(fixture.use_case_path(&format!("/{use_case}/{verb}")), body).await
}

/// Creates a use case in this status.
async fn in_status(fixture: &WorkspaceFixture<'_>, status: &str) -> String {
    if status == "pending_access" {
        return fixture.create_pending_use_case(&fixture.unique_name()).await;
    }
    let use_case = fixture.create_use_case(&[]).await;
    match status {
        "active" => assert_eq!(post_action(fixture, &use_case, "publish").await.expect(200)["status"], "active"),
        "archived" => assert_eq!(post_action(fixture, &use_case, "archive").await.expect(200)["status"], "archived"),
        _ => {}
    }
    use_case
}

#[tokio::test]
async fn each_status_allows_exactly_its_operations() {
    let app = TestApp::start().await;
    app.services().draft_generator.provision_generators().await.unwrap();
    let fixture = WorkspaceFixture::create(&app).await;
    for (state, valid) in [
        ("draft", json!(["pending_access", "active", "archived"])),
        ("pending_access", json!(["active", "draft", "archived"])),
        ("active", json!(["archived"])),
        ("archived", json!([])),
    ] {
        for verb in ["publish", "activate", "reopen", "refine", "archive"] {
            let use_case = in_status(&fixture, state).await;
            let response = post_action(&fixture, &use_case, verb).await;
            let use_case_view = app.get(fixture.use_case_path(&format!("/{use_case}"))).await.expect(200);
            let expected_state = match (state, verb) {
                ("draft", "publish") => "active",
                ("draft", "refine") => {
                    assert_eq!(response.expect(201)["use_case"]["use_case_id"], use_case_view["superseded_by"]);
                    "archived"
                }
                ("pending_access", "reopen") => "draft",
                ("draft" | "pending_access" | "active", "archive") => "archived",
                ("pending_access", "activate") => {
                    response.expect_refusal(409, "connections_unresolved");
                    state
                }
                _ => {
                    let detail = response.expect_refusal(409, "invalid_transition");
                    assert_eq!((&detail["current_state"], &detail["valid_transitions"]), (&json!(state), &valid));
                    state
                }
            };
            assert_eq!(use_case_view["status"], expected_state, "{verb} of {state}: {response}");
            assert_eq!(
                use_case_view["superseded_by"].is_string(),
                (state, verb) == ("draft", "refine"),
                "{verb} of {state}"
            );
        }
    }
}

/// `If-Match` refers to the revision of the resource in the path.
#[tokio::test]
async fn every_transition_checks_the_revision() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    for (operation, status) in [
        ("publish_use_case", 200),
        ("activate_use_case", 200),
        ("archive_use_case", 200),
        ("reopen_use_case", 200),
        ("refine_use_case", 201),
        ("grant_access_request", 200),
        ("deny_access_request", 200),
    ] {
        let request = fixture.successful_request(operation).await;
        // A draft and a pending access request have revision 1. A published use case has revision 2.
        let revision = if matches!(operation, "activate_use_case" | "reopen_use_case") { 2 } else { 1 };
        for stale in [revision - 1, revision + 1] {
            let response = request.clone().header("If-Match", format!("\"{stale}\"")).await;
            response.expect_refusal(412, "precondition_failed");
        }
        let response = request.clone().header("If-Match", format!("\"{revision}\"")).await;
        response.expect(status);
        assert!(response.header("etag").is_some(), "{operation}: {response}");
        if operation != "refine_use_case" {
            let second_response = request.header("If-Match", format!("\"{revision}\"")).await;
            second_response.expect_refusal(412, "precondition_failed");
        }
    }
}

#[tokio::test]
async fn archiving_withdraws_requests() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let use_case = in_status(&fixture, "pending_access").await;
    assert_eq!(fixture.request_of(&use_case).await["status"], "pending");
    post_action(&fixture, &use_case, "archive").await.expect(200);
    assert_eq!(fixture.request_of(&use_case).await["status"], "withdrawn");
}

#[tokio::test]
async fn list_filters_by_status_and_readiness() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let other_fixture = WorkspaceFixture::in_other_workspace(&app).await;
    other_fixture.create_use_case(&[]).await;
    let list_ids = async |filter: &str| {
        let use_cases = app.get(format!("{}{filter}", fixture.use_case_path(""))).await.expect(200);
        let ids = use_cases.as_array().unwrap().iter().map(|row| row["use_case_id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<String>>()
    };
    let mut created = Vec::new();
    for status in STATUSES {
        created.push(in_status(&fixture, status).await);
    }
    for (status, use_case) in STATUSES.iter().zip(&created) {
        assert_eq!(list_ids(&format!("&status={status}")).await, [use_case.as_str()], "{status}");
    }
    let newest_first: Vec<String> = created.iter().rev().cloned().collect();
    assert_eq!(list_ids("").await, newest_first);
    assert_eq!(list_ids("&activation_ready=false").await, newest_first);
    assert_eq!(list_ids("&activation_ready=true").await, Vec::<String>::new());
    let request = fixture.request_of(&created[1]).await;
    fixture.create_connection(request["connection_name"].as_str().unwrap()).await;
    assert_eq!(list_ids("&activation_ready=true").await, [created[1].as_str()]);
    assert_eq!(list_ids("&activation_ready=true&status=draft").await, Vec::<String>::new());
    for (name, value) in [("status", "canary"), ("status", ""), ("activation_ready", "canary")] {
        let response = app.get(format!("{}&{name}={value}", fixture.use_case_path(""))).await;
        let detail = response.expect_refusal(422, "validation_error");
        assert_eq!(detail["fields"][0]["path"], name);
        assert!(!response.text().contains("canary"), "{response}");
    }
}

/// Listing use cases costs as much with large bundle plans as with small ones.
#[tokio::test]
async fn lists_do_not_read_the_bundles() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let use_case = in_status(&fixture, "active").await;
    let use_case_view = app.get(fixture.use_case_path(&format!("/{use_case}"))).await.expect(200);
    let owner = app.database().connect_as_owner().await.unwrap();
    assert_eq!(owner.execute("UPDATE use_case SET bundle = '{}'", &[]).await.unwrap(), 1);
    assert_eq!(app.get(fixture.use_case_path("")).await.expect(200), json!([use_case_view]));
}

/// If no route of the model policy has an account on this server, the policy is unreachable.
#[tokio::test]
async fn publication_requires_a_reachable_model_policy() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let route = |slot: &str| {
        json!({
            "route_id": "main", "provider": "acme", "model": "small", "account_slot": slot, "state": "approved",
        })
    };
    let policy =
        fixture.fixtures.asset_with_version("model_policy", "far", json!({ "provider_route": route("far") })).await;
    let mut bundle = fixture.bundle(&[]);
    bundle["model_policy_ref"] = json!("far");
    let body = json!({ "source_description": DESCRIPTION, "bundle": bundle });
    let created = app.post(fixture.use_case_path(""), body).await.expect(201);
    let use_case = created["use_case_id"].as_str().unwrap();
    post_action(&fixture, use_case, "publish").await.expect_refusal(422, "model_policy_unavailable");
    let use_case_view: Value = app.get(fixture.use_case_path(&format!("/{use_case}"))).await.expect(200);
    assert_eq!(use_case_view["status"], "draft");
    fixture.fixtures.add_version(&policy.asset_id, json!({ "provider_route": route("local") })).await;
    assert_eq!(post_action(&fixture, use_case, "publish").await.expect(200)["status"], "active");
}
