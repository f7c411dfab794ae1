//! Prerequisites of a use case's release: access to its connections, and the policy bundle that publication reuses.

use crate::support::workspace_fixture::WorkspaceFixture;
use fairway_testkit::{TestApp, app::Response};
use serde_json::{Value, json};

/// Submits the release of a use case. Returns the release's identifier.
async fn submit(fixture: &WorkspaceFixture<'_>, use_case: &str) -> String {
    let use_case_view = fixture.app.get(fixture.use_case_path(&format!("/{use_case}"))).await.expect(200);
    let release = use_case_view["release_id"].as_str().unwrap().to_owned();
    fixture.fixtures.transition(&release, "review_ready").await;
    release
}

async fn approve(fixture: &WorkspaceFixture<'_>, release: &str) {
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
    fixture.app.post(format!("/v1/releases/{release}/approvals"), verdict).await.expect(201);
    fixture.fixtures.transition(release, "approved").await;
}

async fn activate(fixture: &WorkspaceFixture<'_>, release: &str) -> Response {
    fixture.app.post(format!("/v1/releases/{release}/transition"), json!({ "to_state": "active" })).await
}

/// The gate of the release that concerns its use case.
async fn gate(fixture: &WorkspaceFixture<'_>, release: &str) -> Value {
    let gates = fixture.app.get(format!("/v1/releases/{release}/gates")).await.expect(200);
    gates.as_array().unwrap().iter().find(|gate| gate["gate"] == "use_case").unwrap().clone()
}

#[tokio::test]
async fn only_releases_of_active_use_cases_take_lanes() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    for ending in ["pending", "denied", "reopened", "archived", "granted"] {
        let use_case = fixture.create_pending_use_case(&fixture.unique_name()).await;
        let release = submit(&fixture, &use_case).await;
        let warning = gate(&fixture, &release).await;
        assert_eq!((&warning["to_state"], &warning["verdict"]), (&json!("approved"), &json!("warn")), "{ending}");
        let release_view = app.get(format!("/v1/releases/{release}")).await.expect(200);
        assert_eq!(release_view["use_case_id"], use_case.as_str(), "{ending}");
        approve(&fixture, &release).await;
        let decide = async |decision: &str, body: Value| {
            let request = fixture.request_of(&use_case).await["access_request_id"].as_str().unwrap().to_owned();
            app.post(format!("/v1/access-requests/{request}/{decision}"), body).await.expect(200)
        };
        let change = async |verb: &str| {
            app.post(fixture.use_case_path(&format!("/{use_case}/{verb}")), json!({})).await.expect(200)
        };
        match ending {
            "denied" => drop(decide("deny", json!({ "reason": "Not yet." })).await),
            "granted" => drop(decide("grant", json!({})).await),
            "reopened" => drop(change("reopen").await),
            "archived" => drop(change("archive").await),
            _ => {}
        }
        let (gate, response) = (gate(&fixture, &release).await, activate(&fixture, &release).await);
        if ending == "granted" {
            assert_eq!((&gate["verdict"], &response.expect(200)["state"]), (&json!("pass"), &json!("active")));
        } else {
            assert_eq!(
                (&gate["verdict"], &gate["code"]),
                (&json!("blocked"), &json!("use_case_not_active")),
                "{ending}"
            );
            let detail = response.expect_refusal(422, "activation_blocked");
            assert!(detail.to_string().contains("use_case_not_active"), "{ending}: {detail}");
        }
    }
}

#[tokio::test]
async fn releases_of_use_cases_that_become_active_later_take_lanes() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let name = fixture.unique_name();
    let use_case = fixture.create_pending_use_case(&name).await;
    let release = submit(&fixture, &use_case).await;
    approve(&fixture, &release).await;
    activate(&fixture, &release).await.expect_refusal(422, "activation_blocked");
    fixture.create_connection(&name).await;
    app.post(fixture.use_case_path(&format!("/{use_case}/activate")), json!({})).await.expect(200);
    activate(&fixture, &release).await.expect(200);
    // Archiving the use case does not affect the active release.
    app.post(fixture.use_case_path(&format!("/{use_case}/archive")), json!({})).await.expect(200);
    assert_eq!(app.get(format!("/v1/releases/{release}")).await.expect(200)["state"], "active");
}

#[tokio::test]
async fn generation_warns_about_policy_inputs_that_the_plan_lacks() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let warnings = async |description: &str| {
        let generate = app.post(fixture.use_case_path("/generate"), json!({ "description": description }));
        let warnings = generate.await.expect(200)["warnings"].clone();
        warnings.as_array().unwrap().clone()
    };
    let undeclared = |warnings: &[Value]| {
        let found = warnings.iter().find(|warning| warning["code"] == "policy_input_undeclared");
        found.map(|warning| warning["message"].as_str().unwrap().to_owned())
    };
    assert_eq!(undeclared(&warnings("Answer each `letter` of a customer.").await), None);
    let rules =
        json!([{ "id": "small", "condition": "inputs.amount < 10", "outcome": "allow", "reason_code": "small" }]);
    let policy = fixture.workload.versions.iter().find(|version| version.kind == "policy_bundle").unwrap();
    let body = json!({ "content": { "rules": rules } });
    app.post(format!("/v1/assets/{}/versions", policy.asset_id), body).await.expect(201);
    let message = undeclared(&warnings("Answer each `letter` of a customer.").await).unwrap();
    assert!(message.contains("`small`") && message.contains("`amount`"), "{message}");
    assert_eq!(undeclared(&warnings("Answer each `letter` with its `amount`.").await), None);
}

#[tokio::test]
async fn credentials_in_texts_are_refused_without_echo() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let canary = "sk-canary0123456789abc";
    let description = "Sort tickets by their urgency.";
    let draft = fixture.create_use_case(&[]).await;
    let submitted_text = format!("Sort the tickets of {canary} by urgency.");
    let refine = |description: &str, note: &str| json!({ "description": description, "refinement_context": [{ "note": note }], "idempotency_key": "k" });
    let connection = json!({
        "name": "crm", "connector_kind": "other", "workspace_id": fixture.workspace, "secret_bindings": { canary: "env:A" },
    });
    let pending = fixture.create_pending_use_case("mail").await;
    let request = fixture.request_of(&pending).await["access_request_id"].as_str().unwrap().to_owned();
    let deny = format!("/v1/access-requests/{request}/deny");
    let requests = [
        (
            fixture.use_case_path(""),
            json!({ "source_description": submitted_text, "bundle": fixture.bundle(&[]) }),
            "contains_secret",
        ),
        (fixture.use_case_path("/generate"), json!({ "description": submitted_text }), "contains_secret"),
        (fixture.use_case_path(&format!("/{draft}/refine")), refine(description, &submitted_text), "contains_secret"),
        ("/v1/connections".to_owned(), connection, "invalid_binding_name"),
        (deny, json!({ "reason": submitted_text }), "contains_secret"),
    ];
    for (path, body, code) in requests {
        let response = app.post(&path, body).await;
        let detail = response.expect_refusal(422, "validation_error");
        assert_eq!(detail["fields"][0]["code"], code, "{path}: {response}");
        assert!(!response.text().contains(canary), "{path}: {response}");
    }
}
