//! Rules for the values of request bodies. Invalid values are refused before the operation, all in one response, and
//! never echoed.

use crate::support::{
    documented_routes::{openapi_document, routes},
    workspace_fixture::{WORKSPACE, WorkspaceFixture, knowledge_content},
};
use fairway_testkit::{
    TestApp,
    app::{Client, Response},
};
use serde_json::{Value, json};

/// Word that every text beyond a bound repeats. No response may contain the word.
const SECRET: &str = "hunter2";

/// Each reported field as `path code`.
fn reported_errors(response: &Response) -> Vec<String> {
    let refusal = response.expect_refusal(422, "validation_error");
    let fields = refusal["fields"].as_array().unwrap().iter();
    fields.map(|field| format!("{} {}", field["path"].as_str().unwrap(), field["code"].as_str().unwrap())).collect()
}

/// A text of this length in characters, made of [`SECRET`].
fn text_of(length: u64) -> String {
    SECRET.chars().cycle().take(usize::try_from(length).unwrap()).collect()
}

/// Values that violate a documented bound of a property.
fn values_beyond(property: &Value) -> Vec<Value> {
    let bound = |name: &str| property[name].as_u64();
    let list = |length: u64| Value::from(vec![text_of(8); usize::try_from(length).unwrap()]);
    [
        bound("maxLength").map(|limit| json!(text_of(limit + 1))),
        bound("minLength").filter(|limit| *limit > 0).map(|limit| json!(text_of(limit - 1))),
        bound("maximum").map(|limit| json!(limit + 1)),
        bound("minimum").filter(|limit| *limit > 0).map(|limit| json!(limit - 1)),
        bound("maxItems").filter(|_| property["items"]["type"] == "string").map(|limit| list(limit + 1)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[tokio::test]
async fn every_value_beyond_a_documented_bound_is_refused_with_its_path() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let document = openapi_document();
    let mut refusal_count = 0;
    for route in routes().iter().filter(|route| route.takes_body()) {
        let properties = route.body_schema(&document)["properties"].clone();
        for (field, property) in properties.as_object().into_iter().flatten() {
            // `content_yaml` is excluded, because the response lists the problems of the flow instead of the field.
            for value in values_beyond(property).into_iter().filter(|_| field != "content_yaml") {
                let mut body = fixture.successful_body(route.operation_id());
                let (object, prefix) = route.described_object(&mut body);
                object[field] = value;
                let field = format!("{prefix}{field}");
                let path = format!("{}{}", fixture.fill_path(&route.path), fixture.required_query(route));
                let response = app.request_by_method_name(&route.method, path).json(body).await;
                let location = format!("{} {field}", route.operation_id());
                assert!(
                    reported_errors(&response).iter().all(|problem| problem.starts_with(&format!("{field} "))),
                    "{location}"
                );
                assert!(!response.text().contains(SECRET), "{location}: {response}");
                refusal_count += 1;
            }
        }
    }
    assert!(refusal_count > 50, "only {refusal_count} values");
}

#[tokio::test]
async fn lengths_count_characters() {
    let app = TestApp::start().await;
    let send = |slug: &str, name: String| app.post("/v1/tenants", json!({ "slug": slug, "name": name }));
    send("umlauts", "ä".repeat(200)).await.expect(201);
    assert_eq!(reported_errors(&send("more", "ä".repeat(201)).await), ["name invalid_name"]);
}

#[tokio::test]
async fn reports_values_of_nested_items_and_rules_between_fields_together() {
    let app = TestApp::start().await;
    let base = app.fixtures().asset_with_version("knowledge_base", "handbook", knowledge_content("handbook")).await;
    let path = format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", base.asset_id);
    let documents = json!([
        { "document_id": "good", "text": "x" },
        { "document_id": SECRET, "title": format!("{SECRET}\n"), "text": " ", "source_ref": "" },
        { "document_id": format!("-{SECRET}") },
    ]);
    let response = app.post(&path, json!({ "documents": documents })).await;
    let expected = [
        "documents[1].source_ref source_not_found",
        "documents[1].source_ref invalid",
        "documents[1].text empty_document",
        "documents[1].title invalid_title",
        "documents[2].document_id invalid_document_id",
        "documents[2].text missing",
    ];
    assert_eq!(reported_errors(&response), expected);
    assert!(!response.text().contains(SECRET), "{response}");
    let workload = app.fixtures().active_workload("main").await;
    let path = format!("/v1/releases/{}/transition", workload.release_id);
    let plan = json!({ "lane_sequence": ["guided", "guided"], "soak_duration_minutes": 43_201 });
    let body = json!({ "to_state": "retired", "lane": "canary", "rollout_plan": plan });
    let mut problems = reported_errors(&app.post(&path, body).await);
    problems.sort();
    let expected = [
        "lane invalid",
        "lane invalid",
        "rollout_plan invalid",
        "rollout_plan.lane_sequence invalid",
        "rollout_plan.soak_duration_minutes invalid",
    ];
    assert_eq!(problems, expected);
    let plan = json!({ "lane_sequence": ["guided"], "soak_duration_minutes": 0 });
    let body = json!({ "to_state": "active", "lane": "standard", "rollout_plan": plan });
    assert_eq!(reported_errors(&app.post(&path, body).await), ["lane invalid"]);
}

/// For large bodies, the server checks the permission first, so that a caller without permission cannot make it read
/// them.
#[tokio::test]
async fn large_bodies_are_validated_after_authorization() {
    let app = TestApp::start().await;
    let asset = app.fixtures().asset_without_versions("prompt_template", "greeting").await;
    app.fixtures().bind_role("user:reader", "viewer", "workspace", Some(WORKSPACE)).await;
    let path = format!("/v1/assets/{asset}/versions?workspace_id={WORKSPACE}");
    let send = |app: &Client, actor: &'static str, note: usize| {
        let body = json!({ "content": { "system_prompt": "x" }, "change_note": "n".repeat(note) });
        app.post(&path, body).as_actor(actor)
    };
    send(&app, "user:reader", 70_000).await.expect_refusal(403, "forbidden");
    assert_eq!(reported_errors(&send(&app, "user:local", 70_000).await), ["change_note invalid_text"]);
    // A small body is read and validated before authorization.
    assert_eq!(reported_errors(&send(&app, "user:reader", 2_001).await), ["change_note invalid_text"]);
    send(&app, "user:reader", 2_000).await.expect_refusal(403, "forbidden");
}

#[tokio::test]
async fn forbidden_names_are_refused_before_values() {
    let app = TestApp::start().await;
    let mut body = json!({
        "workspace_id": WORKSPACE, "workload_slug": "-", "environment": "-", "language": "perl", "code": "result = 1",
    });
    let expected = ["environment invalid_slug", "language invalid", "workload_slug invalid_slug"];
    assert_eq!(reported_errors(&app.post("/v1/runtime/code", body.clone()).await), expected);
    body["actor_ref"] = json!("user:mia");
    app.post("/v1/runtime/code", body).await.expect_refusal(422, "forbidden_field");
}
