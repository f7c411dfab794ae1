//! Egress allowances of the operator, and the components that they apply to.

use crate::{
    knowledge::documents_path,
    support::{
        captured_telemetry::CapturedServer,
        workspace_fixture::{WORKSPACE, knowledge_content},
    },
};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, TestApp};
use serde_json::json;

/// The script gateway may have a private address. Tenants cannot reach it through other components.
#[tokio::test]
async fn only_scripts_reach_the_runtime_gateway() {
    let gateway = ScriptedEndpoint::start().await;
    gateway.respond_with(ScriptedResponse::json(&json!({ "result": 1 })));
    let app = TestApp::builder().setting("FAIRWAY_RUNTIME_GATEWAY_URL", gateway.url("/scripts")).start().await;
    app.active_workload("main").await;
    let script = json!({ "workspace_id": WORKSPACE, "workload_slug": "main", "environment": "dev",
        "language": "starlark", "code": "result = 1" });
    assert_eq!(app.post("/v1/runtime/code", script).await.expect(200)["result"], 1);
    assert_eq!(gateway.request_count(), 1);
    let mut content = knowledge_content("handbook");
    content["source_type"] = json!("http");
    content["source_ref"] = json!("https://example.org/handbook");
    let base = app.fixtures().asset_with_version("knowledge_base", "handbook", content).await;
    for path in ["/scripts", "/"] {
        let source = json!({ "documents": [{ "document_id": "a", "source_ref": gateway.url(path) }] });
        let detail = app.post(documents_path(&base), source).await.expect_refusal(422, "validation_error");
        assert_eq!(detail["fields"][0]["code"], "source_not_fetched");
    }
    assert_eq!(gateway.request_count(), 1, "only scripts reach the gateway");
}

#[tokio::test]
async fn warns_of_allowances_that_open_every_port() {
    let settings =
        "[egress]\nallow = [\"10.0.0.0/8\", \"10.1.0.0/16:8443\", \"house.internal\", \"gate.internal:9000\"]";
    let (output, _) = CapturedServer::start_with("warn", settings).await.shut_down().await;
    let lines = output.log_lines();
    let allowances: Vec<&str> = lines
        .iter()
        .filter(|line| line["level"] == "WARN" && line["setting"] == "FAIRWAY_EGRESS_ALLOW")
        .map(|line| line["allowance"].as_str().unwrap())
        .collect();
    assert_eq!(allowances, ["10.0.0.0/8", "house.internal"], "{}", output.log);
}
