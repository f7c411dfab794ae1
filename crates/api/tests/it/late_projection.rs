//! Facts that the projector processes late, because it starts after them in another server.

use crate::support::workspace_fixture::{ECHO_FLOW, TENANT, WORKSPACE, WorkspaceFixture};
use fairway_testkit::{TestApp, app::Client};
use serde_json::{Value, json};

async fn inbox(app: &Client, actor: &str) -> Vec<Value> {
    app.get("/v1/notifications/inbox").as_actor(actor).await.expect(200).as_array().unwrap().clone()
}

async fn set_enabled(app: &Client, is_enabled: bool) {
    let settings = json!({ "notifications_enabled": is_enabled });
    app.patch(format!("/v1/tenants/{TENANT}/settings"), settings).await.expect(200);
}

async fn set_status(fixture: &WorkspaceFixture<'_>, status: &str) {
    let path = fixture.fill_path("/v1/workloads/{workload_id}");
    fixture.app.patch(path, json!({ "status": status })).await.expect(200);
}

fn is_suspension(notification: &Value) -> bool {
    notification["source_event"]["kind"] == "workload.changed"
}

/// Sends anonymous runs to a public workload whose policy denies every run.
async fn deny_guests(app: &Client, runs: usize) {
    let fixtures = app.fixtures();
    let rules = json!([{ "id": "no", "condition": "always", "outcome": "deny", "reason_code": "never" }]);
    let flow = fixtures.flow("denied-flow", ECHO_FLOW).await;
    let policy = fixtures.policy_with_rules("denied-policy", rules).await;
    let workload = fixtures.active_workload_with_bindings("denied", vec![flow, policy]).await;
    let config = json!({ "interface_config": { "presentation_mode": "form", "access_mode": "public", "input_fields": [
        { "name": "ticket", "type": "text" },
    ] } });
    app.patch(format!("/v1/workloads/{}", workload.workload_id), config).await.expect(200);
    for _ in 0..runs {
        let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
        app.post(workload.execute_path(), body).as_actor("anonymous").await.expect_refusal(403, "policy_denied");
    }
}

#[tokio::test]
async fn server_without_notifications_leaves_them_to_another() {
    let app = TestApp::builder().without_notifications().start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    set_status(&fixture, "suspended").await;
    let is_sequenced = async || {
        let events = app.get("/v1/audit/events?limit=200").await.expect(200);
        events.as_array().unwrap().iter().any(|event| event["kind"] == "workload.changed")
    };
    while !is_sequenced().await {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(inbox(&app, "user:local").await, Vec::<Value>::new());
    let _other_server = TestApp::builder().sharing_storage_of(&app).start().await;
    fixture.await_notification("user:local", is_suspension).await;
}

#[tokio::test]
async fn facts_of_disabled_notifications_are_recorded_and_not_sent_later() {
    let app = TestApp::builder().without_notifications().start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    app.fixtures().bind_role("user:operator", "operator", "workspace", Some(WORKSPACE)).await;
    set_enabled(&app, false).await;
    set_status(&fixture, "suspended").await;
    // Denials of guests are aggregated into one event, so they share one suppression record for each recipient and
    // category.
    deny_guests(&app, 3).await;
    set_enabled(&app, true).await;
    set_status(&fixture, "registered").await;
    set_status(&fixture, "suspended").await;
    let _other_server = TestApp::builder().sharing_storage_of(&app).start().await;
    fixture.await_notification("user:local", is_suspension).await;
    let suspensions = inbox(&app, "user:local").await.into_iter().filter(is_suspension).count();
    assert_eq!(suspensions, 1, "the one after the settings went on");
    let owner = app.database().connect_as_owner().await.unwrap();
    let records = "SELECT event_kind, count(*), count(DISTINCT (recipient, category)) FROM suppressed_decision
        WHERE event_kind IN ('execution.denied', 'workload.changed') GROUP BY event_kind ORDER BY event_kind";
    let rows = owner.query(records, &[]).await.unwrap();
    let kinds: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(kinds, ["execution.denied", "workload.changed"]);
    for row in &rows {
        let (records, recipients): (i64, i64) = (row.get(1), row.get(2));
        assert_eq!(records, recipients, "one for each recipient and category: {}", row.get::<_, &str>(0));
    }
}
