//! Monthly partitions are created in advance and selected by identifiers. Missing partitions are reported.

use crate::fixture::{Fixture, RETENTION, acceptance, connect, ending, scope};
use fairway_domain::execution::{
    Acceptance,
    ports::{ExecutionStore, RunStore},
};
use fairway_postgres::{PayloadExpiryReport, create_partitions, expire_payloads};
use std::{collections::BTreeSet, time::Duration};

const DAY: i64 = 24 * 60 * 60;
/// Number of partitioned tables.
const PARTITIONED_TABLES: i64 = 15;

async fn partition_bounds(stage: &Fixture) -> Vec<(String, String, String)> {
    let sql = "SELECT parent.relname::text, child.relname::text, pg_get_expr(child.relpartbound, child.oid)
        FROM pg_inherits JOIN pg_class AS parent ON parent.oid = inhparent
        JOIN pg_class AS child ON child.oid = inhrelid
        WHERE child.relkind = 'r' ORDER BY 1, 2";
    stage.owner.query(sql, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[tokio::test]
async fn creates_last_to_third_next_month_once() {
    let stage = Fixture::new().await;
    let before = partition_bounds(&stage).await;
    let families: BTreeSet<&String> = before.iter().map(|(family, _, _)| family).collect();
    assert_eq!(i64::try_from(families.len()).unwrap(), PARTITIONED_TABLES);
    assert_eq!(i64::try_from(before.len()).unwrap(), PARTITIONED_TABLES * 5);
    assert_eq!(create_partitions(&stage.database.url()).await.unwrap(), 0);
    let url = stage.database.url();
    let both = tokio::join!(create_partitions(&url), create_partitions(&url));
    assert_eq!((both.0.unwrap(), both.1.unwrap()), (0, 0));
    assert_eq!(partition_bounds(&stage).await, before);
    let unknown = "SELECT count(*) FROM pg_partitioned_table
        WHERE NOT partrelid::regclass::text = ANY(fairway_partitioned_families())";
    assert_eq!(stage.query_number(unknown).await, 0, "a partitioned table without partition maintenance");
    assert_eq!(stage.query_number("SELECT count(*) FROM pg_partitioned_table WHERE partdefid <> 0").await, 0);
}

#[tokio::test]
async fn readiness_ends_a_week_before_the_last_partition() {
    let stage = Fixture::new().await;
    assert!(stage.store.has_partitions_ahead().await.unwrap());
    let left = stage.query_number("SELECT extract(epoch FROM fairway_partitions_until() - now())::bigint").await;
    assert!(left > 89 * DAY, "partitions exist for three months ahead");
    stage.database.move_clock(left - 8 * DAY).await.unwrap();
    assert!(stage.store.has_partitions_ahead().await.unwrap());
    stage.database.move_clock(left - 6 * DAY).await.unwrap();
    assert!(!stage.store.has_partitions_ahead().await.unwrap());
    let made = create_partitions(&stage.database.url()).await.unwrap();
    assert_eq!(i64::from(made) % PARTITIONED_TABLES, 0);
    assert!(made > 0);
    assert!(stage.store.has_partitions_ahead().await.unwrap());
}

#[tokio::test]
async fn readiness_ends_when_one_table_lacks_partitions() {
    let stage = Fixture::new().await;
    stage
        .run(
            "DO $$ DECLARE name text; BEGIN
                FOR name IN SELECT inhrelid::regclass::text FROM pg_inherits
                    WHERE inhparent = 'execution_step'::regclass LOOP
                    EXECUTE 'DROP TABLE ' || name;
                END LOOP;
             END $$",
        )
        .await;
    assert!(!stage.store.has_partitions_ahead().await.unwrap());
}

#[tokio::test]
async fn identifiers_map_to_the_partition_of_their_millisecond() {
    let stage = Fixture::new().await;
    let sql = "WITH moments AS (
            SELECT date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => ahead) AS start
            FROM generate_series(0, 3) AS ahead
         ), edges AS (
            SELECT start AS moment, start FROM moments
            UNION ALL SELECT start + interval '1 month' - interval '1 ms', start FROM moments
         ), written AS (
            INSERT INTO execution_step
            SELECT '00000000-0000-7000-8000-000000000001', fairway_uuid_floor(moment AT TIME ZONE 'UTC'), 1, 'x', 'x',
                NULL, 1
            FROM edges RETURNING tableoid::regclass::text AS month, execution_id
         )
         SELECT count(*) FROM written JOIN edges
            ON execution_id = fairway_uuid_floor(moment AT TIME ZONE 'UTC')
            AND month = 'execution_step_' || to_char(start, 'YYYYMM')";
    assert_eq!(stage.query_number(sql).await, 8);
    let beyond = "INSERT INTO execution_step SELECT '00000000-0000-7000-8000-000000000001',
        fairway_uuid_floor(now() + interval '5 months'), 1, 'x', 'x', NULL, 1";
    let error = stage.owner.batch_execute(beyond).await.unwrap_err();
    assert_eq!(error.code().map(|code| code.code()), Some("23514"));
    // The boundary of the month, computed independently with the `uuid` crate.
    let moment = time::OffsetDateTime::now_utc();
    let seconds = u64::try_from(moment.unix_timestamp()).unwrap();
    let floor: uuid::Uuid = stage
        .owner
        .query_one(&format!("SELECT fairway_uuid_floor(to_timestamp({seconds}))"), &[])
        .await
        .unwrap()
        .get(0);
    let ours = uuid::Builder::from_unix_timestamp_millis(seconds * 1_000, &[0; 10]).into_uuid();
    assert_eq!(floor.as_bytes()[..6], ours.as_bytes()[..6]);
}

#[tokio::test]
async fn readiness_ends_when_a_payload_table_lacks_partitions() {
    let stage = Fixture::new().await;
    assert_eq!(stage.query_number("SELECT cardinality(fairway_payload_families())::bigint").await, 4);
    let ahead = "SELECT child FROM (SELECT inhrelid::regclass::text AS child FROM pg_inherits
        WHERE inhparent = 'evidence_payload'::regclass) AS months ORDER BY child DESC LIMIT 4";
    for row in stage.owner.query(ahead, &[]).await.unwrap() {
        stage.run(&format!("DROP TABLE {}", row.get::<_, String>(0))).await;
    }
    assert!(!stage.store.has_partitions_ahead().await.unwrap());
    assert_eq!(create_partitions(&stage.database.url()).await.unwrap(), 4);
    assert!(stage.store.has_partitions_ahead().await.unwrap());
}

/// Stores a completed run.
async fn store_completed_run(stage: &Fixture) -> Acceptance {
    let (workload, placed) = stage.active().await;
    let run = acceptance(&placed);
    let on = stage.accepted_on(&workload, &placed).await;
    stage.store.accept(scope(), &run, on, None).await.unwrap();
    stage.store.finish(scope(), &ending(&run)).await.unwrap();
    run
}

async fn count_payloads_and_evidence(stage: &Fixture) -> (i64, i64) {
    let payloads = "SELECT (SELECT count(*) FROM execution_input) + (SELECT count(*) FROM execution_result)
        + (SELECT count(*) FROM execution_progress)";
    let evidence = "SELECT (SELECT count(*) FROM execution) + (SELECT count(*) FROM policy_decision)
        + (SELECT count(*) FROM execution_step) + (SELECT count(*) FROM evidence_artifact)";
    (stage.query_number(payloads).await, stage.query_number(evidence).await)
}

/// Moves the database's clock to this number of days after the end of the current month.
async fn move_past_month(stage: &Fixture, days: i64) {
    let to_end = "SELECT extract(epoch FROM (date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month')
        AT TIME ZONE 'UTC' - now())::bigint";
    stage.database.move_clock(stage.query_number(to_end).await + days * DAY).await.unwrap();
}

#[tokio::test]
async fn expired_payload_partitions_are_dropped_and_evidence_stays() {
    let stage = Fixture::new().await;
    let run = store_completed_run(&stage).await;
    let url = stage.database.url();
    let (payloads, evidence) = count_payloads_and_evidence(&stage).await;
    assert_eq!(payloads, 3);
    let families = partition_bounds(&stage).await;
    let nothing = PayloadExpiryReport { months: Vec::new(), is_incomplete: false };
    assert_eq!(expire_payloads(&url, RETENTION).await.unwrap(), nothing);
    // The month ended 30 days ago. Its payloads are kept for one more day, because runs that began in its last hours
    // ended later.
    move_past_month(&stage, 30).await;
    create_partitions(&url).await.unwrap();
    let before = partition_bounds(&stage).await;
    assert!(before.len() > families.len());
    // Only the partitions before this month have expired, and they are empty.
    assert_eq!(expire_payloads(&url, RETENTION).await.unwrap().months.len(), 4);
    assert_eq!(count_payloads_and_evidence(&stage).await, (payloads, evidence));
    move_past_month(&stage, 32).await;
    let both = tokio::join!(expire_payloads(&url, RETENTION), expire_payloads(&url, RETENTION));
    let (one, other) = (both.0.unwrap(), both.1.unwrap());
    let mut dropped: Vec<String> = one.months.into_iter().chain(other.months).collect();
    let busy = one.is_incomplete || other.is_incomplete;
    if busy {
        dropped.extend(expire_payloads(&url, RETENTION).await.unwrap().months);
    }
    assert_eq!(dropped.len(), 4, "each table drops one month, once: {dropped:?}");
    assert_eq!(count_payloads_and_evidence(&stage).await, (0, evidence));
    let after: BTreeSet<String> = partition_bounds(&stage).await.into_iter().map(|(_, name, _)| name).collect();
    let gone: BTreeSet<String> =
        before.into_iter().map(|(_, name, _)| name).filter(|name| !after.contains(name)).collect();
    assert!(
        gone.iter().all(|name| [
            "execution_input_2",
            "execution_result_2",
            "execution_progress_2",
            "evidence_payload_2"
        ]
        .iter()
        .any(|family| name.starts_with(family))),
        "{gone:?}"
    );
    assert_eq!(expire_payloads(&url, RETENTION).await.unwrap(), nothing);
    // Partitions of expired months are not created again.
    create_partitions(&url).await.unwrap();
    assert!(partition_bounds(&stage).await.iter().all(|(_, name, _)| !gone.contains(name)));
    assert!(stage.store.has_partitions_ahead().await.unwrap());
    let read = stage.store.evidence(scope(), run.execution_id).await.unwrap().unwrap();
    assert_eq!((read.artifacts.len(), read.execution.status.as_str()), (1, "completed"));
    let found = ExecutionStore::find(&*stage.store, scope(), run.execution_id).await.unwrap().unwrap();
    assert_eq!(found.output, None);
}

#[tokio::test]
async fn last_month_is_kept_under_any_retention() {
    let stage = Fixture::new().await;
    store_completed_run(&stage).await;
    let (url, second) = (stage.database.url(), Duration::from_secs(1));
    assert_eq!(expire_payloads(&url, second).await.unwrap().months, [""; 0]);
    move_past_month(&stage, 3).await;
    create_partitions(&url).await.unwrap();
    assert_eq!(expire_payloads(&url, second).await.unwrap().months.len(), 4, "each table drops the month before last");
    assert_eq!(count_payloads_and_evidence(&stage).await.0, 3);
}

#[tokio::test]
async fn locked_partitions_are_skipped_without_blocking_readers() {
    let stage = Fixture::new().await;
    store_completed_run(&stage).await;
    move_past_month(&stage, 40).await;
    let url = stage.database.url();
    let reader = connect(&url).await;
    reader.batch_execute("BEGIN; SELECT FROM execution_result").await.unwrap();
    let expired = expire_payloads(&url, RETENTION).await.unwrap();
    assert!(expired.is_incomplete, "{expired:?}");
    assert!(expired.months.iter().all(|month| !month.starts_with("execution_result")), "{expired:?}");
    // While expiry waits for the lock, a concurrent read succeeds within the statement timeout of one second.
    let mut told = Vec::new();
    for _ in 0..3 {
        let (expired, read) = tokio::join!(
            expire_payloads(&url, RETENTION),
            stage.owner.batch_execute("SET statement_timeout = '1s'; SELECT FROM execution_result"),
        );
        told.push((expired.unwrap().is_incomplete, read.is_ok()));
    }
    assert_eq!(told, [(true, true); 3]);
    reader.batch_execute("COMMIT").await.unwrap();
    assert!(!expire_payloads(&url, RETENTION).await.unwrap().is_incomplete);
    assert_eq!(count_payloads_and_evidence(&stage).await.0, 0);
}

/// Creating a partition locks its table briefly. The statement waits only briefly for a long reader, and other
/// tables stay available meanwhile. The missing partition is created after the reader has ended.
#[tokio::test]
async fn creating_a_partition_locks_one_table_and_does_not_wait() {
    let stage = Fixture::new().await;
    move_past_month(&stage, 40).await;
    let url = stage.database.url();
    let reader = connect(&url).await;
    reader.batch_execute("BEGIN; SELECT FROM execution_step").await.unwrap();
    let owner = connect(&url).await;
    let code = loop {
        match owner.query_one("SELECT fairway_make_partition(3, 1)", &[]).await {
            Ok(row) => assert!(row.get::<_, Option<String>>(0).is_some(), "the locked table must lack a partition"),
            Err(error) => break error.code().unwrap().code().to_owned(),
        }
        // Between the creation of two partitions, no lock is held.
        let read = "SET lock_timeout = '1s'; SELECT FROM execution; SELECT FROM policy_decision";
        stage.owner.batch_execute(read).await.unwrap();
    };
    assert_eq!(code, "55P03");
    reader.batch_execute("COMMIT").await.unwrap();
    assert!(create_partitions(&url).await.unwrap() > 0);
    assert!(stage.store.has_partitions_ahead().await.unwrap());
}

/// The result must not depend on the query plan. With statistics, an earlier version tried to parse a month from
/// partition names that contain none.
#[tokio::test]
async fn expiry_works_under_any_plan() {
    let stage = Fixture::new().await;
    store_completed_run(&stage).await;
    move_past_month(&stage, 40).await;
    stage.run("ANALYZE").await;
    for setting in ["", "SET enable_nestloop = off", "SET enable_hashjoin = off; SET enable_mergejoin = off"] {
        let owner = connect(&stage.database.url()).await;
        owner.batch_execute(setting).await.unwrap();
        owner.query_one("SELECT fairway_expire_payloads(interval '1 second')", &[]).await.unwrap();
    }
}

#[tokio::test]
async fn detached_partition_is_kept() {
    let stage = Fixture::new().await;
    store_completed_run(&stage).await;
    move_past_month(&stage, 40).await;
    let month = "SELECT tableoid::regclass::text FROM execution_result";
    let month: String = stage.owner.query_one(month, &[]).await.unwrap().get(0);
    stage.run(&format!("ALTER TABLE execution_result DETACH PARTITION {month}")).await;
    expire_payloads(&stage.database.url(), RETENTION).await.unwrap();
    assert_eq!(stage.query_number(&format!("SELECT count(*) FROM {month}")).await, 1);
    assert_eq!(stage.query_number("SELECT count(*) FROM execution_input").await, 0);
}
