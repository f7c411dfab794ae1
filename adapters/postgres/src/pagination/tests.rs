//! Tests of the statements of pages, and of their size limits.

use super::*;
use crate::database::DatabaseOptions;
use fairway_testkit::TestDatabase;
use std::time::Duration;

fn things_query(lateral: Option<&str>) -> ListQuery {
    let mut values = Input::without_rows();
    let conditions =
        vec![format!("tenant_id = {}", values.bind("tenant_id", 1)), format!("kind = {}", values.bind("kind", "x"))];
    let mut query = ListQuery::single(
        "thing_id, name",
        SortKey::Id("thing_id", "thing_id"),
        "FROM thing",
        PageByteLimit::Small,
        conditions,
        values,
    );
    query.arms[0].lateral = lateral.map(str::to_owned);
    query
}

#[test]
fn places_limits_and_cursors_inside_each_arm() {
    let bounds = |after: Option<&str>| PageBounds {
        rows: "{page_rows}".to_owned(),
        arm_limit: "{arm_rows}".to_owned(),
        offset: "{skipped_rows}".to_owned(),
        after: after.map(str::to_owned),
    };
    insta::assert_snapshot!(things_query(None).page_sql(&bounds(None)).trim(), @"SELECT * FROM ((SELECT thing_id, name FROM thing WHERE tenant_id = {tenant_id} AND kind = {kind} ORDER BY thing_id DESC LIMIT {arm_rows})) AS found ORDER BY thing_id DESC LIMIT {page_rows} OFFSET {skipped_rows}");
    insta::assert_snapshot!(things_query(Some("visible_workspace")).page_sql(&bounds(Some("{cursor}"))).trim(), @"SELECT * FROM ((SELECT item.* FROM visible_workspace CROSS JOIN LATERAL (SELECT thing_id, name FROM thing WHERE tenant_id = {tenant_id} AND kind = {kind} AND thing_id < {cursor} ORDER BY thing_id DESC LIMIT {arm_rows}) AS item)) AS found ORDER BY thing_id DESC LIMIT {page_rows} OFFSET {skipped_rows}");
    insta::assert_snapshot!(things_query(None).count_sql().trim(), @"SELECT count(*) FROM (SELECT FROM ((SELECT FROM thing WHERE tenant_id = {tenant_id} AND kind = {kind} LIMIT 10001)) AS found LIMIT 10001) AS few");
}

/// The test's SQL function is declared `IMMUTABLE`, like the size expressions of real lists.
#[tokio::test]
async fn computes_the_size_of_each_row_once() {
    let clone = TestDatabase::create().await.unwrap();
    let owner = clone.connect_as_owner().await.unwrap();
    let things = "
        CREATE TABLE thing (tenant_id int, thing_id uuid, content text);
        INSERT INTO thing SELECT 1, gen_random_uuid(), repeat('x', 100) FROM generate_series(1, 30);
        CREATE SEQUENCE weighed;
        CREATE FUNCTION weigh(content text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
        BEGIN
            PERFORM nextval('weighed');
            RETURN length(content);
        END
        $$;
        GRANT SELECT ON thing TO fairway_service;
        GRANT USAGE ON SEQUENCE weighed TO fairway_service;";
    owner.batch_execute(things).await.unwrap();
    let options =
        DatabaseOptions { url: clone.url_for_owner(), connections: 2, result_retention: Duration::from_secs(600) };
    let database = Database::new(&options).unwrap();
    let mut values = Input::without_rows();
    let conditions = vec![format!("tenant_id = {}", values.bind("tenant_id", 1_i32))];
    let byte_limit = PageByteLimit::Measured { sql: "weigh(content)", largest: UNBOUNDED_ROW_BYTES };
    let query = ListQuery::single(
        "thing_id, content",
        SortKey::Id("thing_id", "thing_id"),
        "FROM thing",
        byte_limit,
        conditions,
        values,
    );
    let page = PageRequest { limit: 20, start: PageStart::Skip(0) };
    let fetched_page = database.fetch_page(query, page, |row| row.column::<Uuid>("thing_id")).await.unwrap();
    assert_eq!((fetched_page.rows.len(), fetched_page.next.is_some()), (20, true));
    let weighed: i64 = owner.query_one("SELECT last_value FROM weighed", &[]).await.unwrap().get(0);
    assert_eq!(weighed, 21, "the size of each row of the page and of the extra row is computed once");
}
