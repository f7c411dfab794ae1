//! The inputs of a use case become the input form of its workload.

use crate::support::workspace_fixture::WorkspaceFixture;
use fairway_testkit::{
    TestApp,
    app::{Request, Response},
};
use serde_json::{Map, Value, json};

const DESCRIPTION: &str = "Sort tickets by their urgency.";

fn create(fixture: &WorkspaceFixture<'_>, bundle: &Value) -> Request {
    fixture.app.post(fixture.use_case_path(""), json!({ "source_description": DESCRIPTION, "bundle": bundle }))
}

async fn publish(fixture: &WorkspaceFixture<'_>, created: &Value) -> Response {
    let path = fixture.use_case_path(&format!("/{}/publish", created["use_case_id"].as_str().unwrap()));
    fixture.app.post(path, json!({})).await
}

/// Takes the release of a published use case to `active`. Returns its workload.
async fn activate(fixture: &WorkspaceFixture<'_>, published: &Value) -> Value {
    let release = published["release_id"].as_str().unwrap();
    fixture.fixtures.transition(release, "review_ready").await;
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
    fixture.app.post(format!("/v1/releases/{release}/approvals"), verdict).await.expect(201);
    fixture.fixtures.transition(release, "approved").await;
    fixture.fixtures.transition(release, "active").await;
    fixture.app.get(format!("/v1/workloads/{}", published["workload_id"].as_str().unwrap())).await.expect(200)
}

/// A bundle plan whose flow declares these inputs.
fn bundle_with_inputs(fixture: &WorkspaceFixture<'_>, inputs: Value) -> Value {
    let mut bundle = fixture.bundle(&[]);
    bundle["flow"]["trigger"] = json!({ "type": "api_request", "inputs_schema": inputs });
    bundle
}

#[tokio::test]
async fn typed_inputs_are_published_as_typed_fields_and_run() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let types = json!({ "ticket": "text", "amount": "number", "count": "integer", "urgent": "boolean", "due": "date" });
    let mut bundle = bundle_with_inputs(&fixture, types);
    bundle["prompt_template"]["template"] =
        json!("Sort $arg:ticket: $arg:amount euro, $arg:count items, urgent $arg:urgent, due $arg:due.");
    let created = create(&fixture, &bundle).await.expect(201);
    let published = publish(&fixture, &created).await.expect(200);
    let workload = activate(&fixture, &published).await;
    let fields = workload["interface_config"]["input_fields"].as_array().unwrap();
    let types: Map<String, Value> =
        fields.iter().map(|field| (field["name"].as_str().unwrap().to_owned(), field["type"].clone())).collect();
    let expected =
        json!({ "ticket": "textarea", "amount": "number", "count": "number", "urgent": "boolean", "due": "date" });
    assert_eq!(json!(types), expected);
    let run = |inputs: Value| {
        let path = format!("/v1/workloads/by-slug/{}/execute", workload["slug"].as_str().unwrap());
        app.post(path, json!({ "environment": "dev", "inputs": inputs }))
    };
    let inputs = json!({ "ticket": "A refund.", "amount": 12.5, "count": 2, "urgent": true, "due": "2026-12-01" });
    assert_eq!(run(inputs.clone()).await.expect(200)["status"], "completed");
    for (name, value) in
        [("amount", json!("12")), ("count", json!("2")), ("urgent", json!("yes")), ("due", json!("tomorrow"))]
    {
        let mut invalid_inputs = inputs.clone();
        invalid_inputs[name] = value;
        let response = run(invalid_inputs).await;
        assert_eq!(response.status, 422, "{name}: {response}");
    }
}

#[tokio::test]
async fn inputs_without_a_form_field_are_refused_at_creation() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let bundle_with = |pointer: &str, value: Value| {
        let mut bundle = fixture.bundle(&[]);
        *bundle.pointer_mut(pointer).unwrap() = value;
        bundle
    };
    let mut many_inputs = json!({ "ticket": "text" });
    for number in 1..=50 {
        many_inputs[format!("i{number}")] = json!("text");
    }
    let path = "bundle.flow.trigger.inputs_schema";
    for (bundle, path, code) in [
        (
            bundle_with("/prompt_template/template", json!("Sort $arg:Ticket")),
            "bundle.flow".to_owned(),
            "invalid_field_name",
        ),
        (
            bundle_with("/flow/steps/0/inputs/ticket", json!("{{trigger._t}}")),
            "bundle.flow".to_owned(),
            "invalid_field_name",
        ),
        (
            bundle_with_inputs(&fixture, json!({ "ticket": "text", "Due": "date" })),
            format!("{path}.Due"),
            "invalid_field_name",
        ),
        (bundle_with_inputs(&fixture, json!({ "ticket": "object" })), format!("{path}.ticket"), "not_one_of"),
        (
            bundle_with_inputs(&fixture, json!({ "ticket": "text", "tags": "array" })),
            format!("{path}.tags"),
            "not_one_of",
        ),
        (bundle_with_inputs(&fixture, many_inputs), path.to_owned(), "invalid_flow"),
    ] {
        let refusal = create(&fixture, &bundle).await.expect_refusal(422, "validation_error");
        assert_eq!((&refusal["fields"][0]["path"], &refusal["fields"][0]["code"]), (&json!(path), &json!(code)));
    }
    assert_eq!(app.get(fixture.use_case_path("")).await.expect(200), json!([]));
}

/// The built-in provider copies names of inputs from the description, in any spelling.
#[tokio::test]
async fn generated_inputs_with_capitals_are_published_and_run() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let description = "Answer a `Letter` of a customer in the tone {{ _Tone }}.";
    let generate = app.post(fixture.use_case_path("/generate"), json!({ "description": description }));
    let generated = generate.await.expect(200);
    let created = create(&fixture, &generated["bundle"]).await.expect(201);
    let published = publish(&fixture, &created).await.expect(200);
    let workload = activate(&fixture, &published).await;
    let path = format!("/v1/workloads/by-slug/{}/execute", workload["slug"].as_str().unwrap());
    let run = app.post(path, json!({ "environment": "dev", "inputs": { "letter": "Hello.", "tone": "kind" } }));
    assert_eq!(run.await.expect(200)["status"], "completed");
}

/// A stored bundle plan that current rules refuse cannot be published. The refusal names the cause.
#[tokio::test]
async fn stored_bundles_of_earlier_rules_name_the_cause() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let created = create(&fixture, &fixture.bundle(&[])).await.expect(201);
    let owner = app.database().connect_as_owner().await.unwrap();
    let earlier = "UPDATE use_case SET bundle = replace(bundle::text, 'ticket', 'Ticket')::jsonb";
    assert_eq!(owner.execute(earlier, &[]).await.unwrap(), 1);
    publish(&fixture, &created).await.expect_refusal(422, "bundle_not_publishable");
}
