//! Tests of typed statements over PostgreSQL.

use crate::{
    database::{
        Database, DatabaseOptions, MAX_TYPED_STATEMENTS, PageBounds, RowSizeMeasure, StoredRow, typed_list::CappedCount,
    },
    schema::{memory_session, role_binding, workspace},
};
use diesel::{
    ExpressionMethods as _, QueryDsl as _, Queryable, Selectable, SelectableHelper as _, TextExpressionMethods as _,
    dsl::sql, pg::Pg, sql_types::Integer,
};
use fairway_domain::store::{PageRequest, StoreError, StoreFault};
use fairway_testkit::TestDatabase;
use std::time::Duration;
use uuid::Uuid;

/// Creates a store with one connection of each kind.
async fn store() -> (TestDatabase, Database) {
    let database = TestDatabase::create().await.unwrap();
    let options =
        DatabaseOptions { url: database.url_for_owner(), connections: 1, result_retention: Duration::from_secs(3_600) };
    let store = Database::new(&options).unwrap();
    (database, store)
}

/// The process id of the PostgreSQL backend that serves the only typed connection.
async fn backend_pid(store: &Database) -> i32 {
    store.first("backend", || diesel::select(sql::<Integer>("pg_backend_pid()"))).await.unwrap().unwrap()
}

/// Sends a read with one of 512 combinations of filters.
async fn read_filtered(store: &Database, combination: usize) {
    let find = move || {
        let mut query = role_binding::table.select(role_binding::role_binding_id).into_boxed::<'static, Pg>();
        for filter in 0..9_u8 {
            if combination & (1 << filter) != 0 {
                query = query.filter(role_binding::principal.ne(format!("user:{filter}")));
            }
            if combination & (1 << filter) == 0 {
                query = query.filter(role_binding::role.ne(format!("role-{filter}")));
            }
        }
        query
    };
    let _: Vec<Uuid> = store.load("combination of filters", find).await.unwrap();
}

#[tokio::test]
async fn connection_with_many_statements_is_closed() {
    let (_database, store) = store().await;
    let first_pid = backend_pid(&store).await;
    for combination in 0..MAX_TYPED_STATEMENTS {
        read_filtered(&store, combination).await;
    }
    assert_eq!(backend_pid(&store).await, first_pid, "{MAX_TYPED_STATEMENTS} statements fit");
    for combination in MAX_TYPED_STATEMENTS..2 * MAX_TYPED_STATEMENTS {
        read_filtered(&store, combination).await;
    }
    assert_ne!(backend_pid(&store).await, first_pid, "diesel drops no statement, so the connection is closed");
}

/// The first read may fail, because it receives PostgreSQL's last message on the closed connection, without an
/// SQLSTATE. Every later read uses a new connection.
#[tokio::test]
async fn closed_connection_is_replaced() {
    let (database, store) = store().await;
    let owner = database.connect_as_owner().await.unwrap();
    for _ in 0..20 {
        let closed_pid = backend_pid(&store).await;
        owner.batch_execute(&format!("SELECT pg_terminate_backend({closed_pid})")).await.unwrap();
        let find = || diesel::select(sql::<Integer>("pg_backend_pid()"));
        if let Err(error) = store.first::<_, i32>("backend", find).await {
            assert_eq!(error.fault, StoreFault::Unavailable, "{error:?}");
        }
        assert_ne!(backend_pid(&store).await, closed_pid);
    }
}

/// A typed error has no SQLSTATE, so a time-out must be distinguished from an inconsistent store in another way.
#[tokio::test]
async fn read_that_waits_too_long_is_unavailable() {
    let (database, store) = store().await;
    let owner = database.connect_as_owner().await.unwrap();
    owner.batch_execute("BEGIN; LOCK TABLE role_binding IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let count = || role_binding::table.count();
    let error = store.first::<_, i64>("count", count).await.unwrap_err();
    assert_eq!(error.fault, StoreFault::Unavailable, "{error:?}");
    owner.batch_execute("ROLLBACK").await.unwrap();
    assert!(store.first::<_, i64>("count", count).await.unwrap().is_some());
}

/// PostgreSQL's messages quote values, so errors must not contain them.
#[tokio::test]
async fn refused_statement_is_reported_without_its_message() {
    let (_database, store) = store().await;
    let invalid_cast = || diesel::select(sql::<Integer>("'secret-value'::text::integer"));
    let error = store.first::<_, i32>("broken cast", invalid_cast).await.unwrap_err();
    assert!(!format!("{:?} {}", error, error.source).contains("secret-value"), "{error:?}");
}

/// Two queries of one Rust type can have different texts. Their prepared statements must differ.
#[tokio::test]
async fn queries_of_one_type_do_not_share_a_statement() {
    let (_database, store) = store().await;
    for _ in 0..2 {
        for (slug, expected) in [("default", 1), ("other", 0)] {
            let find = move || {
                let all = workspace::table.into_boxed::<'static, Pg>();
                CappedCount(if slug == "default" {
                    all.filter(workspace::slug.eq(slug))
                } else {
                    all.filter(workspace::slug.eq(slug)).filter(workspace::name.ne("x"))
                })
            };
            assert_eq!(store.load::<_, i64>("count", find).await.unwrap(), [expected], "{slug}");
        }
    }
}

#[tokio::test]
async fn constraint_that_fails_at_the_commit_fails_a_typed_write() {
    let (database, store) = store().await;
    let owner = database.connect_as_owner().await.unwrap();
    let sql = "
        CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'rejected at the commit' USING ERRCODE = 'check_violation';
        END $$;
        CREATE CONSTRAINT TRIGGER rejected AFTER INSERT ON memory_session DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION reject();";
    owner.batch_execute(sql).await.unwrap();
    let insert = || {
        diesel::insert_into(memory_session::table).values((
            memory_session::tenant_id.eq(Uuid::nil()),
            memory_session::workload_id.eq(Uuid::nil()),
            memory_session::owner.eq("user:ada"),
            memory_session::session_id.eq("s"),
            memory_session::touched_at.eq(time::OffsetDateTime::UNIX_EPOCH),
        ))
    };
    store.execute("insert of a session", insert).await.unwrap_err();
    let rows = "SELECT count(*) FROM memory_session";
    assert_eq!(owner.query_one(rows, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = workspace, check_for_backend(Pg))]
struct StoredSlug {
    workspace_id: Uuid,
    slug: String,
}

impl StoredRow for StoredSlug {
    type Value = String;

    fn id(&self) -> Uuid {
        self.workspace_id
    }

    fn into_value(self) -> Result<String, StoreError> {
        Ok(self.slug)
    }
}

#[tokio::test]
async fn page_of_large_rows_ends_at_its_limit_of_bytes() {
    let (database, store) = store().await;
    let insert = "INSERT INTO workspace SELECT tenant_id, lpad(to_hex(n), 32, '0')::uuid, namespace_id, 'w-' || n, 'x',
            now(), 'user:ada'
        FROM namespace, generate_series(1, 5) AS n WHERE slug = 'default'";
    database.connect_as_owner().await.unwrap().batch_execute(insert).await.unwrap();
    let all = || workspace::table.filter(workspace::slug.like("w-%"));
    for (bytes, limit, expected) in [
        // The second row exceeds the byte limit and ends the page.
        ("600000", 5, vec!["w-5", "w-4"]),
        // The first row is returned regardless of its size.
        ("5000000", 5, vec!["w-5"]),
        ("1", 2, vec!["w-5", "w-4"]),
        ("NULL", 5, vec!["w-5", "w-4", "w-3", "w-2", "w-1"]),
    ] {
        let measured = RowSizeMeasure { key: "workspace_id", sql: bytes, largest: 5_000_000 };
        let rows = |bounds: PageBounds| {
            all().select(StoredSlug::as_select()).order(workspace::workspace_id.desc()).limit(bounds.limit)
        };
        let ids = || all().select(workspace::workspace_id);
        let page = store.typed_measured_page("page", measured, PageRequest::first(limit), ids, rows).await.unwrap();
        assert_eq!((page.rows, page.total), (expected.iter().map(ToString::to_string).collect(), 5), "{bytes}");
        assert_eq!(page.next.is_some(), expected.len() < 5, "{bytes}");
    }
}
