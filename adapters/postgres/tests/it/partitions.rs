//! Monthly partitions are created in advance and selected by identifiers. Missing partitions are reported.

use crate::fixture::{Fixture, RETENTION, acceptance, connect, ending, scope};
use fairway_domain::execution::{
    Acceptance,
    ports::{ExecutionReadStore, RunStore},
};
use fairway_postgres::{PayloadExpiryReport, create_partitions, expire_payloads};
use std::{collections::BTreeSet, time::Duration};

const DAY: i64 = 24 * 60 * 60;
const PARTITIONED_TABLES: i64 = 15;

async fn partition_bounds(fixture: &Fixture) -> Vec<(String, String, String)> {
    let sql = "SELECT parent.relname::text, child.relname::text, pg_get_expr(child.relpartbound, child.oid)
        FROM pg_inherits JOIN pg_class AS parent ON parent.oid = inhparent
        JOIN pg_class AS child ON child.oid = inhrelid
        WHERE child.relkind = 'r' ORDER BY 1, 2";
    fixture.owner.query(sql, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[tokio::test]
async fn creates_last_to_third_next_month_once() {
    let fixture = Fixture::new().await;
    let before = partition_bounds(&fixture).await;
    let families: BTreeSet<&String> = before.iter().map(|(family, _, _)| family).collect();
    assert_eq!(i64::try_from(families.len()).unwrap(), PARTITIONED_TABLES);
    assert_eq!(i64::try_from(before.len()).unwrap(), PARTITIONED_TABLES * 5);
    assert_eq!(create_partitions(&fixture.database.url_for_owner()).await.unwrap(), 0);
    let url = fixture.database.url_for_owner();
    let results = tokio::join!(create_partitions(&url), create_partitions(&url));
    assert_eq!((results.0.unwrap(), results.1.unwrap()), (0, 0));
    assert_eq!(partition_bounds(&fixture).await, before);
    let unmaintained = "SELECT count(*) FROM pg_partitioned_table
        WHERE NOT partrelid::regclass::text = ANY(fairway_partitioned_families())";
    assert_eq!(fixture.query_number(unmaintained).await, 0, "a partitioned table without partition maintenance");
    assert_eq!(fixture.query_number("SELECT count(*) FROM pg_partitioned_table WHERE partdefid <> 0").await, 0);
}

#[tokio::test]
async fn readiness_ends_a_week_before_the_last_partition() {
    let fixture = Fixture::new().await;
    assert!(fixture.store.has_partitions_ahead().await.unwrap());
    let seconds_left =
        fixture.query_number("SELECT extract(epoch FROM fairway_partitions_until() - now())::bigint").await;
    assert!(seconds_left > 89 * DAY, "partitions exist for three months ahead");
    fixture.database.set_clock_offset(seconds_left - 8 * DAY).await.unwrap();
    assert!(fixture.store.has_partitions_ahead().await.unwrap());
    fixture.database.set_clock_offset(seconds_left - 6 * DAY).await.unwrap();
    assert!(!fixture.store.has_partitions_ahead().await.unwrap());
    let created = create_partitions(&fixture.database.url_for_owner()).await.unwrap();
    assert_eq!(i64::from(created) % PARTITIONED_TABLES, 0);
    assert!(created > 0);
    assert!(fixture.store.has_partitions_ahead().await.unwrap());
}

#[tokio::test]
async fn readiness_ends_when_one_table_lacks_partitions() {
    let fixture = Fixture::new().await;
    fixture
        .run(
            "DO $$ DECLARE name text; BEGIN
                FOR name IN SELECT inhrelid::regclass::text FROM pg_inherits
                    WHERE inhparent = 'execution_step'::regclass LOOP
                    EXECUTE 'DROP TABLE ' || name;
                END LOOP;
             END $$",
        )
        .await;
    assert!(!fixture.store.has_partitions_ahead().await.unwrap());
}

#[tokio::test]
async fn identifiers_map_to_the_partition_of_their_millisecond() {
    let fixture = Fixture::new().await;
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
    assert_eq!(fixture.query_number(sql).await, 8);
    let out_of_range = "INSERT INTO execution_step SELECT '00000000-0000-7000-8000-000000000001',
        fairway_uuid_floor(now() + interval '5 months'), 1, 'x', 'x', NULL, 1";
    let error = fixture.owner.batch_execute(out_of_range).await.unwrap_err();
    assert_eq!(error.code().map(|code| code.code()), Some("23514"));
    // The boundary of the month, computed independently with the `uuid` crate.
    let now = time::OffsetDateTime::now_utc();
    let seconds = u64::try_from(now.unix_timestamp()).unwrap();
    let floor: uuid::Uuid = fixture
        .owner
        .query_one(&format!("SELECT fairway_uuid_floor(to_timestamp({seconds}))"), &[])
        .await
        .unwrap()
        .get(0);
    let expected = uuid::Builder::from_unix_timestamp_millis(seconds * 1_000, &[0; 10]).into_uuid();
    assert_eq!(floor.as_bytes()[..6], expected.as_bytes()[..6]);
}

#[tokio::test]
async fn readiness_ends_when_a_payload_table_lacks_partitions() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.query_number("SELECT cardinality(fairway_payload_families())::bigint").await, 4);
    let newest_partitions = "SELECT child FROM (SELECT inhrelid::regclass::text AS child FROM pg_inherits
        WHERE inhparent = 'evidence_payload'::regclass) AS months ORDER BY child DESC LIMIT 4";
    for row in fixture.owner.query(newest_partitions, &[]).await.unwrap() {
        fixture.run(&format!("DROP TABLE {}", row.get::<_, String>(0))).await;
    }
    assert!(!fixture.store.has_partitions_ahead().await.unwrap());
    assert_eq!(create_partitions(&fixture.database.url_for_owner()).await.unwrap(), 4);
    assert!(fixture.store.has_partitions_ahead().await.unwrap());
}

async fn store_completed_run(fixture: &Fixture) -> Acceptance {
    let (workload, deployed_release) = fixture.active().await;
    let run = acceptance(&deployed_release);
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    fixture.store.accept(scope(), &run, revisions, None).await.unwrap();
    fixture.store.finish(scope(), &ending(&run)).await.unwrap();
    run
}

async fn count_payloads_and_evidence(fixture: &Fixture) -> (i64, i64) {
    let payloads = "SELECT (SELECT count(*) FROM execution_input) + (SELECT count(*) FROM execution_result)
        + (SELECT count(*) FROM execution_progress)";
    let evidence = "SELECT (SELECT count(*) FROM execution) + (SELECT count(*) FROM policy_decision)
        + (SELECT count(*) FROM execution_step) + (SELECT count(*) FROM evidence_artifact)";
    (fixture.query_number(payloads).await, fixture.query_number(evidence).await)
}

/// Moves the database's clock to this number of days after the end of the current month.
async fn move_past_month(fixture: &Fixture, days: i64) {
    let to_end = "SELECT extract(epoch FROM (date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month')
        AT TIME ZONE 'UTC' - now())::bigint";
    fixture.database.set_clock_offset(fixture.query_number(to_end).await + days * DAY).await.unwrap();
}

#[tokio::test]
async fn expired_payload_partitions_are_dropped_and_evidence_stays() {
    let fixture = Fixture::new().await;
    let run = store_completed_run(&fixture).await;
    let url = fixture.database.url_for_owner();
    let (payloads, evidence) = count_payloads_and_evidence(&fixture).await;
    assert_eq!(payloads, 3);
    let first_partitions = partition_bounds(&fixture).await;
    let empty_report = PayloadExpiryReport { months: Vec::new(), is_incomplete: false };
    assert_eq!(expire_payloads(&url, RETENTION).await.unwrap(), empty_report);
    // The month ended 30 days ago. Its payloads are kept for one more day, because runs that began in its last hours
    // ended later.
    move_past_month(&fixture, 30).await;
    create_partitions(&url).await.unwrap();
    let before = partition_bounds(&fixture).await;
    assert!(before.len() > first_partitions.len());
    // Only the partitions before this month have expired, and they are empty.
    assert_eq!(expire_payloads(&url, RETENTION).await.unwrap().months.len(), 4);
    assert_eq!(count_payloads_and_evidence(&fixture).await, (payloads, evidence));
    move_past_month(&fixture, 32).await;
    let results = tokio::join!(expire_payloads(&url, RETENTION), expire_payloads(&url, RETENTION));
    let (first, second) = (results.0.unwrap(), results.1.unwrap());
    let mut dropped: Vec<String> = first.months.into_iter().chain(second.months).collect();
    let is_incomplete = first.is_incomplete || second.is_incomplete;
    if is_incomplete {
        dropped.extend(expire_payloads(&url, RETENTION).await.unwrap().months);
    }
    assert_eq!(dropped.len(), 4, "each table drops one month, once: {dropped:?}");
    assert_eq!(count_payloads_and_evidence(&fixture).await, (0, evidence));
    let after: BTreeSet<String> = partition_bounds(&fixture).await.into_iter().map(|(_, name, _)| name).collect();
    let dropped_names: BTreeSet<String> =
        before.into_iter().map(|(_, name, _)| name).filter(|name| !after.contains(name)).collect();
    assert!(
        dropped_names.iter().all(|name| [
            "execution_input_2",
            "execution_result_2",
            "execution_progress_2",
            "evidence_payload_2"
        ]
        .iter()
        .any(|family| name.starts_with(family))),
        "{dropped_names:?}"
    );
    assert_eq!(expire_payloads(&url, RETENTION).await.unwrap(), empty_report);
    // Partitions of expired months are not created again.
    create_partitions(&url).await.unwrap();
    assert!(partition_bounds(&fixture).await.iter().all(|(_, name, _)| !dropped_names.contains(name)));
    assert!(fixture.store.has_partitions_ahead().await.unwrap());
    let evidence_record = fixture.store.evidence(scope(), run.execution_id).await.unwrap().unwrap();
    assert_eq!((evidence_record.artifacts.len(), evidence_record.execution.status.as_str()), (1, "completed"));
    let found = ExecutionReadStore::find(&*fixture.store, scope(), run.execution_id).await.unwrap().unwrap();
    assert_eq!(found.output, None);
}

#[tokio::test]
async fn last_month_is_kept_under_any_retention() {
    let fixture = Fixture::new().await;
    store_completed_run(&fixture).await;
    let (url, second) = (fixture.database.url_for_owner(), Duration::from_secs(1));
    assert_eq!(expire_payloads(&url, second).await.unwrap().months, [""; 0]);
    move_past_month(&fixture, 3).await;
    create_partitions(&url).await.unwrap();
    assert_eq!(expire_payloads(&url, second).await.unwrap().months.len(), 4, "each table drops the month before last");
    assert_eq!(count_payloads_and_evidence(&fixture).await.0, 3);
}

#[tokio::test]
async fn locked_partitions_are_skipped_without_blocking_readers() {
    let fixture = Fixture::new().await;
    store_completed_run(&fixture).await;
    move_past_month(&fixture, 40).await;
    let url = fixture.database.url_for_owner();
    let reader = connect(&url).await;
    reader.batch_execute("BEGIN; SELECT FROM execution_result").await.unwrap();
    let expired = expire_payloads(&url, RETENTION).await.unwrap();
    assert!(expired.is_incomplete, "{expired:?}");
    assert!(expired.months.iter().all(|month| !month.starts_with("execution_result")), "{expired:?}");
    // While expiry waits for the lock, a concurrent read succeeds within the statement timeout of one second.
    let mut results = Vec::new();
    for _ in 0..3 {
        let (expired, read) = tokio::join!(
            expire_payloads(&url, RETENTION),
            fixture.owner.batch_execute("SET statement_timeout = '1s'; SELECT FROM execution_result"),
        );
        results.push((expired.unwrap().is_incomplete, read.is_ok()));
    }
    assert_eq!(results, [(true, true); 3]);
    reader.batch_execute("COMMIT").await.unwrap();
    assert!(!expire_payloads(&url, RETENTION).await.unwrap().is_incomplete);
    assert_eq!(count_payloads_and_evidence(&fixture).await.0, 0);
}

/// Creating a partition locks its table briefly. The statement waits only briefly for a long reader, and other
/// tables stay available meanwhile. The missing partition is created after the reader has ended.
#[tokio::test]
async fn creating_a_partition_locks_one_table_and_does_not_wait() {
    let fixture = Fixture::new().await;
    move_past_month(&fixture, 40).await;
    let url = fixture.database.url_for_owner();
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
        fixture.owner.batch_execute(read).await.unwrap();
    };
    assert_eq!(code, "55P03");
    reader.batch_execute("COMMIT").await.unwrap();
    assert!(create_partitions(&url).await.unwrap() > 0);
    assert!(fixture.store.has_partitions_ahead().await.unwrap());
}

/// Under every query plan, PostgreSQL must read a month from the names of partitions only, and not from names of other
/// relations.
#[tokio::test]
async fn expiry_works_under_any_plan() {
    let fixture = Fixture::new().await;
    store_completed_run(&fixture).await;
    move_past_month(&fixture, 40).await;
    fixture.run("ANALYZE").await;
    for setting in ["", "SET enable_nestloop = off", "SET enable_hashjoin = off; SET enable_mergejoin = off"] {
        let owner = connect(&fixture.database.url_for_owner()).await;
        owner.batch_execute(setting).await.unwrap();
        owner.query_one("SELECT fairway_expire_payloads(interval '1 second')", &[]).await.unwrap();
    }
}

#[tokio::test]
async fn detached_partition_is_kept() {
    let fixture = Fixture::new().await;
    store_completed_run(&fixture).await;
    move_past_month(&fixture, 40).await;
    let month = "SELECT tableoid::regclass::text FROM execution_result";
    let month: String = fixture.owner.query_one(month, &[]).await.unwrap().get(0);
    fixture.run(&format!("ALTER TABLE execution_result DETACH PARTITION {month}")).await;
    expire_payloads(&fixture.database.url_for_owner(), RETENTION).await.unwrap();
    assert_eq!(fixture.query_number(&format!("SELECT count(*) FROM {month}")).await, 1);
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution_input").await, 0);
}
