//! A server dies between two batches of an approved erasure. Another process completes the erasure exactly once.

use crate::{
    api_client::execute_body,
    server_process::{ServerSetup, wait_until},
};
use fairway_testkit::TestDatabase;
use serde_json::json;
use std::time::Duration;
use tokio_postgres::Client;

const STEP_TIMEOUT: Duration = Duration::from_secs(30);
const SUBJECT: &str = "user:eve";
/// Number of copies of the subject's run: more than three batches.
const COPIES: i64 = 1_600;
/// Number of runs in the first two batches.
const TWO_BATCHES: i64 = 1_000;

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// SQL for the identifier of a copy. It is an hour older than the original run, so that the erasure processes the
/// copies first.
fn copy_id(number: &str) -> String {
    format!(
        "(left(fairway_uuid_floor(now() - interval '1 hour')::text, 8)
            || '-0000-7000-8000-' || lpad(to_hex({number}), 12, '0'))::uuid"
    )
}

#[tokio::test]
async fn killed_server_leaves_an_erasure_that_the_next_one_completes() {
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner());
    let owner = database.connect_as_owner().await.unwrap();
    let mut server = setup.start().await;
    let path = server.client.create_active_workload().await;
    let run = server.client.acting_as(Some(SUBJECT)).post(&path, &execute_body(), None).await.unwrap();
    let run = run.execution_id().unwrap();
    for table in ["execution", "execution_input", "execution_result"] {
        let copy = format!(
            "INSERT INTO {table} SELECT (jsonb_populate_record(run, jsonb_build_object('execution_id', {}))).*
             FROM {table} AS run, generate_series(1, {COPIES}) AS number WHERE execution_id = '{run}'",
            copy_id("number")
        );
        owner.batch_execute(&copy).await.unwrap();
    }
    // Locks a row of the third batch, so that the erasure waits there.
    let lock = database.connect_as_owner().await.unwrap();
    lock.batch_execute(&format!(
        "BEGIN; SELECT FROM execution_input WHERE execution_id = {} FOR UPDATE",
        copy_id("1200")
    ))
    .await
    .unwrap();
    let (ada, grace) = (server.client.acting_as(Some("user:ada")), server.client.acting_as(Some("user:grace")));
    let erasure = ada.create("/v1/erasures", &json!({ "subject": SUBJECT })).await.required_id("erasure_id");
    grace.create(&format!("/v1/erasures/{erasure}/approve"), &json!({})).await;
    let erased = "SELECT runs FROM subject_erasure";
    wait_until("two batches are committed", STEP_TIMEOUT, async || count(&owner, erased).await == TWO_BATCHES).await;
    let waiting_sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND application_name = 'fairway'";
    wait_until("the third batch waits", STEP_TIMEOUT, async || count(&owner, waiting_sql).await == 1).await;
    server.kill();
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'fairway'";
    wait_until("the server's connections end", STEP_TIMEOUT, async || count(&owner, connections).await == 0).await;
    lock.batch_execute("ROLLBACK").await.unwrap();
    let remaining_sql = "SELECT count(*) FROM execution_input";
    let marked = "SELECT count(*) FROM execution WHERE erased_at IS NOT NULL";
    let completed = "SELECT count(*) FROM fact WHERE kind = 'erasure.completed'";
    assert_eq!(count(&owner, remaining_sql).await, COPIES + 1 - TWO_BATCHES);
    assert_eq!((count(&owner, marked).await, count(&owner, completed).await), (TWO_BATCHES, 0));

    let server = setup.start().await;
    wait_until("every copy is erased", STEP_TIMEOUT, async || count(&owner, erased).await == COPIES + 1).await;
    assert_eq!(count(&owner, completed).await, 0, "what was in progress at the approval may follow");
    database.set_clock_offset(200).await.unwrap();
    let is_completed = "SELECT count(*) FROM subject_erasure WHERE status = 'completed'";
    wait_until("the erasure completes", STEP_TIMEOUT, async || count(&owner, is_completed).await == 1).await;
    let response = server.client.acting_as(Some("user:ada")).get(&format!("/v1/erasures/{erasure}")).await.unwrap();
    assert_eq!(response.body["erased_runs"], COPIES + 1, "{response:?}");
    for table in ["execution_input", "execution_result", "execution_progress"] {
        assert_eq!(count(&owner, &format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
    assert_eq!((count(&owner, marked).await, count(&owner, completed).await), (COPIES + 1, 1));
}
