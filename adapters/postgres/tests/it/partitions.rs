//! Months: made ahead, found by identifiers of their time, and missed in time.

use crate::stage::Stage;
use fairway_postgres::prepare_partitions;
use std::collections::BTreeSet;

const DAY: i64 = 24 * 60 * 60;
/// Families that are cut by month.
const FAMILIES: i64 = 10;

async fn bounds(stage: &Stage) -> Vec<(String, String, String)> {
    let sql = "SELECT parent.relname::text, child.relname::text, pg_get_expr(child.relpartbound, child.oid)
        FROM pg_inherits JOIN pg_class AS parent ON parent.oid = inhparent
        JOIN pg_class AS child ON child.oid = inhrelid
        WHERE child.relkind = 'r' ORDER BY 1, 2";
    stage.owner.query(sql, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[tokio::test]
async fn last_month_this_one_and_three_more_are_there_and_making_them_again_makes_none() {
    let stage = Stage::new().await;
    let before = bounds(&stage).await;
    let families: BTreeSet<&String> = before.iter().map(|(family, _, _)| family).collect();
    assert_eq!(i64::try_from(families.len()).unwrap(), FAMILIES);
    assert_eq!(i64::try_from(before.len()).unwrap(), FAMILIES * 5);
    assert_eq!(prepare_partitions(&stage.database.url()).await.unwrap(), 0);
    let url = stage.database.url();
    let both = tokio::join!(prepare_partitions(&url), prepare_partitions(&url));
    assert_eq!((both.0.unwrap(), both.1.unwrap()), (0, 0));
    assert_eq!(bounds(&stage).await, before);
    let unknown = "SELECT count(*) FROM pg_partitioned_table
        WHERE NOT partrelid::regclass::text = ANY(fairway_partitioned_families())";
    assert_eq!(stage.number(unknown).await, 0, "a partitioned table that nobody makes months for");
    assert_eq!(stage.number("SELECT count(*) FROM pg_partitioned_table WHERE partdefid <> 0").await, 0);
}

#[tokio::test]
async fn readiness_ends_a_week_before_the_months_do_and_comes_back_with_them() {
    let stage = Stage::new().await;
    assert!(stage.store.partitions_reach_far().await.unwrap());
    let left = stage.number("SELECT extract(epoch FROM fairway_partitions_until() - now())::bigint").await;
    assert!(left > 89 * DAY, "three months ahead are there");
    stage.database.move_clock(left - 8 * DAY).await.unwrap();
    assert!(stage.store.partitions_reach_far().await.unwrap());
    stage.database.move_clock(left - 6 * DAY).await.unwrap();
    assert!(!stage.store.partitions_reach_far().await.unwrap());
    let made = prepare_partitions(&stage.database.url()).await.unwrap();
    assert_eq!(i64::from(made) % FAMILIES, 0);
    assert!(made > 0);
    assert!(stage.store.partitions_reach_far().await.unwrap());
}

#[tokio::test]
async fn readiness_ends_when_one_family_alone_runs_out() {
    let stage = Stage::new().await;
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
    assert!(!stage.store.partitions_reach_far().await.unwrap());
}

#[tokio::test]
async fn identifiers_lie_in_the_month_of_their_time_to_the_millisecond() {
    let stage = Stage::new().await;
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
    assert_eq!(stage.number(sql).await, 8);
    let beyond = "INSERT INTO execution_step SELECT '00000000-0000-7000-8000-000000000001',
        fairway_uuid_floor(now() + interval '5 months'), 1, 'x', 'x', NULL, 1";
    let error = stage.owner.batch_execute(beyond).await.unwrap_err();
    assert_eq!(error.code().map(|code| code.code()), Some("23514"));
    // The same boundary in our own spelling of UUIDv7, not the database's.
    let moment = time::OffsetDateTime::now_utc();
    let seconds = u64::try_from(moment.unix_timestamp()).unwrap();
    let floor: uuid::Uuid = stage
        .owner
        .query_one("SELECT fairway_uuid_floor($1)", &[&moment.replace_nanosecond(0).unwrap()])
        .await
        .unwrap()
        .get(0);
    let ours = uuid::Builder::from_unix_timestamp_millis(seconds * 1_000, &[0; 10]).into_uuid();
    assert_eq!(floor.as_bytes()[..6], ours.as_bytes()[..6]);
}
