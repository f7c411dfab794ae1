//! Scheduled checks of connections: once a day, according to the database's clock.

use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, TestApp};
use futures_util::future::join_all;
use serde_json::{Value, json};

const DAY: i64 = 24 * 60 * 60;

/// Runs the scheduled checks several times concurrently, as several servers do. Returns the number of checked
/// connections.
async fn run_due_checks(app: &TestApp) -> u64 {
    let checks = (0..4).map(|_| app.services().connections.run_due_checks());
    join_all(checks).await.into_iter().map(Result::unwrap).sum()
}

#[tokio::test]
async fn active_connections_are_checked_once_a_day() {
    let app = TestApp::builder().setting("FAIRWAY_EGRESS_ALLOW", "127.0.0.0/8").start().await;
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_with(ScriptedResponse::status(500, "{}"));
    let create = async |name: &str, body: Value| {
        let mut connection = json!({ "name": name, "connector_kind": "http", "endpoint": endpoint.url("/health") });
        connection.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        app.post("/v1/connections", connection).await.expect(201)["connection_id"].as_str().unwrap().to_owned()
    };
    let checked = create("crm", json!({})).await;
    let disabled = create("disabled", json!({ "status": "disabled" })).await;
    let other_connection = create("other", json!({ "connector_kind": "other" })).await;
    assert_eq!(run_due_checks(&app).await, 0, "a new connection is a day old first");
    app.database().set_clock_offset(DAY + 60).await.unwrap();
    assert_eq!(run_due_checks(&app).await, 1);
    let read = async |id: &str| app.get(format!("/v1/connections/{id}")).await.expect(200);
    let connection = read(&checked).await;
    assert_eq!(
        (&connection["health"], &connection["checks"][0]["checked_by"]),
        (&json!("unhealthy"), &json!("system:clock"))
    );
    for unchecked in [disabled, other_connection] {
        assert_eq!(read(&unchecked).await["health"], "unchecked");
    }
    let owner = app.database().connect_as_owner().await.unwrap();
    let facts = "SELECT count(*) FROM fact WHERE kind = 'connection.checked' AND position('connector_health' IN
        convert_from(body, 'UTF8')) > 0";
    assert_eq!(owner.query_one(facts, &[]).await.unwrap().get::<_, i64>(0), 1, "its changed health concerns people");
}

#[tokio::test]
async fn failed_check_does_not_stop_other_checks() {
    let app = TestApp::builder().setting("FAIRWAY_EGRESS_ALLOW", "127.0.0.0/8").start().await;
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_with(ScriptedResponse::status(200, "{}"));
    let mut connections = Vec::new();
    for name in ["broken", "first", "second"] {
        let body = json!({ "name": name, "connector_kind": "http", "endpoint": endpoint.url("/health") });
        connections.push(app.post("/v1/connections", body).await.expect(201)["connection_id"].clone());
    }
    let owner = app.database().connect_as_owner().await.unwrap();
    // Corrupts a connection so that no server version can read it. Its check is due before the others.
    let damage_sql = "UPDATE connection SET created_by = 'nobody', updated_at = updated_at - interval '1 hour'
        WHERE name = 'broken'";
    assert_eq!(owner.execute(damage_sql, &[]).await.unwrap(), 1);
    app.database().set_clock_offset(DAY + 60).await.unwrap();
    assert_eq!(run_due_checks(&app).await, 2);
    for checked in &connections[1..] {
        let connection = app.get(format!("/v1/connections/{}", checked.as_str().unwrap())).await.expect(200);
        assert_eq!(connection["health"], "healthy");
    }
    let checks = "SELECT count(*) FROM connection_check";
    assert_eq!(owner.query_one(checks, &[]).await.unwrap().get::<_, i64>(0), 2);
}
