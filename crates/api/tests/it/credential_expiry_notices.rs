//! Notices about expiring credentials: 14, 3 and 0 days before expiry, each given once, according to the database's
//! clock.

use fairway_testkit::TestApp;
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::time::Duration;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

const DAY: i64 = 24 * 60 * 60;

fn in_days(days: i64) -> String {
    (OffsetDateTime::now_utc() + time::Duration::days(days)).format(&Rfc3339).unwrap()
}

async fn create(app: &TestApp, name: &str, expires_at: Option<String>) -> String {
    let body = json!({ "name": name, "connector_kind": "other", "expires_at": expires_at });
    app.post("/v1/connections", body).await.expect(201)["connection_id"].as_str().unwrap().to_owned()
}

/// Gives due notices several times concurrently, as several servers do. Returns the days of all notices about a
/// connection, in order.
async fn notices(app: &TestApp, connection: &str) -> Vec<i64> {
    let checks = (0..4).map(|_| app.services().connections.create_due_notices());
    join_all(checks).await.into_iter().for_each(|result| assert!(result.is_ok()));
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "SELECT convert_from(body, 'UTF8')::jsonb FROM fact WHERE kind = 'connection.expiring' ORDER BY fact_id";
    let facts: Vec<Value> = owner.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let connection_facts = facts.iter().filter(|fact| fact["subject"]["id"] == connection);
    connection_facts
        .map(|fact| {
            assert_eq!((&fact["actor"], &fact["categories"]), (&json!("system:clock"), &json!(["credential_expiry"])));
            fact["detail"]["days"].as_i64().unwrap()
        })
        .collect()
}

#[tokio::test]
async fn each_notice_is_created_once_by_the_database_clock() {
    let app = TestApp::start().await;
    let connection = create(&app, "crm", Some(in_days(20))).await;
    let (expiring, unlimited) = (create(&app, "soon", Some(in_days(2))).await, create(&app, "endless", None).await);
    let disabled = create(&app, "disabled", Some(in_days(1))).await;
    let path = |id: &str| format!("/v1/connections/{id}");
    app.patch(path(&disabled), json!({ "status": "disabled" })).await.expect(200);
    let mut expected = Vec::new();
    for (day, notice) in
        [(0, None), (5, None), (7, Some(14)), (12, None), (18, Some(3)), (19, None), (21, Some(0)), (40, None)]
    {
        app.database().set_clock_offset(day * DAY).await.unwrap();
        expected.extend(notice);
        for _ in 0..2 {
            assert_eq!(notices(&app, &connection).await, expected, "day {day}");
        }
    }
    // Of several due notices, only the closest one is given. Connections that are disabled or never expire get none.
    assert_eq!(notices(&app, &expiring).await, [3, 0]);
    assert_eq!(notices(&app, &unlimited).await, Vec::<i64>::new());
    assert_eq!(notices(&app, &disabled).await, Vec::<i64>::new());
    // Renewed credentials cause new notices.
    app.patch(path(&connection), json!({ "expires_at": in_days(50) })).await.expect(200);
    expected.push(14);
    assert_eq!(notices(&app, &connection).await, expected);
    app.patch(path(&connection), json!({ "name": "crm-2" })).await.expect(200);
    assert_eq!(notices(&app, &connection).await, expected);
}

#[tokio::test]
async fn failed_notice_does_not_stop_other_notices() {
    let app = TestApp::start().await;
    let broken_connection = create(&app, "broken", None).await;
    // Corrupts a connection that expires first, so that no server version can read it. A single statement does this,
    // because the server's own job could give a notice between two statements.
    let owner = app.database().connect_as_owner().await.unwrap();
    let damage_sql = "UPDATE connection SET created_by = 'nobody', expires_at = now() - interval '3 days'";
    owner.batch_execute(damage_sql).await.unwrap();
    let second_connection = create(&app, "crm", Some(in_days(-1))).await;
    for _ in 0..2 {
        assert_eq!(notices(&app, &broken_connection).await, Vec::<i64>::new());
        assert_eq!(notices(&app, &second_connection).await, [0]);
    }
    owner.batch_execute("UPDATE connection SET created_by = 'user:local'").await.unwrap();
    assert_eq!(notices(&app, &broken_connection).await, [0], "its notice follows once it can be read");
}

#[tokio::test]
async fn notices_reach_those_who_manage_connections() {
    let app = TestApp::start().await;
    app.fixtures()
        .bind_role("user:reader", "viewer", "workspace", Some(crate::support::workspace_fixture::WORKSPACE))
        .await;
    let connection = create(&app, "crm", Some(in_days(-1))).await;
    assert_eq!(notices(&app, &connection).await, [0]);
    let inbox = "/v1/notifications/inbox?category=credential_expiry";
    let arrived = async {
        loop {
            let inbox_page = app.get(inbox).await.expect(200);
            if let Some(notification) = inbox_page.as_array().unwrap().first() {
                return notification.clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let notification = tokio::time::timeout(Duration::from_secs(60), arrived).await.unwrap();
    assert_eq!(notification["title"], "The credentials of a connection have expired");
    assert_eq!(notification["source_event"]["kind"], "connection.expiring");
    let reader = app.get(inbox).as_actor("user:reader").await.expect(200);
    assert_eq!(reader, json!([]));
}
