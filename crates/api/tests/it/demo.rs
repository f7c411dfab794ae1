//! The demo: applied as `cargo xtask up` applies it, twice, and run.

use fairway_testkit::TestApp;
use serde_json::json;
use std::path::Path;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo");

#[tokio::test]
async fn the_demo_answers_and_applying_it_again_changes_nothing() {
    let app = TestApp::start().await;
    let url = format!("http://{}", app.address());
    fairway_api::seed::seed(&url, Path::new(DEMO)).await.unwrap();
    let releases = app.get("/v1/releases").await.expect(200);
    assert_eq!(releases.as_array().unwrap().len(), 1, "{releases}");

    let ticket = "I was charged twice on my last invoice.";
    let inputs = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
    let answer = app.post("/v1/workloads/by-slug/ticket-classifier/execute", inputs).await.expect(200);
    let said = serde_json::to_string(&answer["output"]).unwrap();
    assert!(said.contains("billing"), "{answer}");

    let listed = app.get("/v1/workloads/runtime-enabled?q=desk").await.expect(200);
    assert_eq!(listed[0]["slug"], "ticket-classifier", "{listed}");
    let page = app.get("/v1/workloads/by-slug/ticket-classifier").await.expect(200);
    assert_eq!(page["interface_config"]["input_fields"][0]["name"], "ticket", "{page}");

    let id = answer["execution_id"].as_str().unwrap();
    let evidence = app.get(format!("/v1/executions/{id}/evidence-graph")).await.expect(200);
    assert_eq!(evidence["approvals"][0]["approved_by"], "user:demo-approver");

    fairway_api::seed::seed(&url, Path::new(DEMO)).await.unwrap();
    let again = app.get("/v1/releases").await.expect(200);
    assert_eq!(releases, again, "an applied demo is left as it is");
}
