//! Tests of prepared statements and of commits.

use super::{pool::USES_PER_STATEMENT_CHECK, *};
use fairway_domain::{
    access::rights::VisibleScopes,
    execution::{
        Status,
        ports::{ExecutionFilter, ExecutionReadStore},
    },
    release::{
        StateName,
        ports::{ReleaseFilter, ReleaseStore},
    },
    slug::Slug,
    store::{Cursor, PageRequest, PageStart},
    tenant::{DEFAULT_TENANT_ID, DEFAULT_WORKSPACE_ID},
    time::Timestamp,
};
use fairway_testkit::TestDatabase;
use uuid::Uuid;

/// Creates a store with one list connection and one point connection.
async fn store() -> (TestDatabase, Database) {
    let database = TestDatabase::create().await.unwrap();
    let options =
        DatabaseOptions { url: database.url_for_owner(), connections: 1, result_retention: Duration::from_secs(3_600) };
    let store = Database::new(&options).unwrap();
    (database, store)
}

/// The number of prepared statements on the pool's only connection.
async fn prepared_statement_count(pool: &StatementPool) -> usize {
    let rows = read(pool, "SELECT count(*) FROM pg_prepared_statements", &[]).await.unwrap();
    usize::try_from(rows[0].column::<i64>("count").unwrap()).unwrap()
}

fn scope() -> TenantScope {
    TenantScope::for_background_task(DEFAULT_TENANT_ID.into())
}

/// Pages that need different statements: the first page, a page by offset, and a page after a cursor.
fn pages() -> [PageRequest; 3] {
    [PageStart::Skip(0), PageStart::Skip(7), PageStart::After(Cursor::new(7))]
        .map(|start| PageRequest { limit: 2, start })
}

fn none_and_some<T: Clone>(value: T) -> [Option<T>; 2] {
    [None, Some(value)]
}

#[tokio::test]
async fn limits_prepared_statements_of_lists() {
    let (_database, store) = store().await;
    let visible_scopes = VisibleScopes { workspaces: vec![DEFAULT_WORKSPACE_ID.into()], ..VisibleScopes::default() };
    let mut peak = 0;
    for workspace in none_and_some(DEFAULT_WORKSPACE_ID.into()) {
        for workload in none_and_some(Uuid::nil().into()) {
            for environment in none_and_some(Slug::parse("dev").unwrap()) {
                for state in none_and_some(StateName::Draft) {
                    for visible_scopes in none_and_some(visible_scopes.clone()) {
                        let environment = environment.clone();
                        let filter = ReleaseFilter {
                            workspace,
                            workload,
                            environment,
                            state,
                            visible_scopes,
                            excludes_builtin: true,
                        };
                        for page in pages() {
                            ReleaseStore::list(&store, scope(), &filter, page).await.unwrap();
                            peak = peak.max(prepared_statement_count(&store.list_pool).await);
                        }
                    }
                }
            }
        }
    }
    assert!(peak > MAX_LIST_STATEMENTS / 2, "the filters produce {peak} statements");
    assert!(peak <= MAX_LIST_STATEMENTS + USES_PER_STATEMENT_CHECK + 1, "one connection keeps {peak} statements");
}

#[tokio::test]
async fn limits_prepared_statements_of_lists_by_month() {
    let (_database, store) = store().await;
    let visible_scopes = VisibleScopes { workspaces: vec![DEFAULT_WORKSPACE_ID.into()], ..VisibleScopes::default() };
    let timestamp: Timestamp = serde_json::from_value("2026-01-01T00:00:00Z".into()).unwrap();
    let mut peak = 0;
    for status in [None].into_iter().chain(Status::ALL.map(Some)) {
        for (since, until) in
            [(None, None), (Some(timestamp), None), (None, Some(timestamp)), (Some(timestamp), Some(timestamp))]
        {
            for workload in none_and_some(Uuid::nil().into()) {
                for release in none_and_some(Uuid::nil().into()) {
                    for visible_scopes in none_and_some(visible_scopes.clone()) {
                        let filter = ExecutionFilter {
                            workload,
                            release,
                            status,
                            since,
                            until,
                            visible_scopes,
                            ..ExecutionFilter::default()
                        };
                        for page in pages() {
                            ExecutionReadStore::list(&store, scope(), &filter, page).await.unwrap();
                        }
                        peak = peak.max(prepared_statement_count(&store.point_pool).await);
                    }
                }
            }
        }
    }
    assert!(peak > MAX_POINT_STATEMENTS / 2, "the filters produce {peak} statements");
    assert!(peak <= MAX_POINT_STATEMENTS + USES_PER_STATEMENT_CHECK + 1, "one connection keeps {peak} statements");
}

/// A deferred constraint, which PostgreSQL checks when a change of `idempotency_key` commits.
const DEFERRED: &str = "
    CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'rejected at the commit' USING ERRCODE = 'check_violation';
    END $$;
    CREATE CONSTRAINT TRIGGER rejected AFTER INSERT OR DELETE ON idempotency_key DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION reject();
";

#[tokio::test]
async fn constraint_that_fails_at_the_commit_fails_the_statement() {
    static INSERT: Query = Query::new(
        "INSERT INTO idempotency_key (tenant_id, caller, route, key, body_digest, created_at)
         VALUES ({tenant_id}, 'user:ada', 'r', 'k', 'x', now()) RETURNING key",
    );
    let (database, store) = store().await;
    let owner = database.connect_as_owner().await.unwrap();
    owner.batch_execute(DEFERRED).await.unwrap();
    let input = Input::of_params(scope());
    let (sql, params) = (INSERT.text(&input).unwrap(), input.params());
    let refusal = store.commit(sql, &params).await.unwrap_err();
    assert!(matches!(&refusal, CommitError::Store(error) if error.fault != StoreFault::OutcomeUnknown), "{refusal:?}");
    assert!(commit_batch(&store.point_pool, sql, &params).await.unwrap().is_none(), "the batch is rolled back");
    assert!(store.write_idempotent(sql, &params).await.is_err());
    let rows = "SELECT count(*) FROM idempotency_key";
    assert_eq!(owner.query_one(rows, &[]).await.unwrap().get::<_, i64>(0), 0);
}

/// Drops a statement's future after each number of polls, so that some drops happen while PostgreSQL prepares the
/// statement.
#[tokio::test]
async fn cancelled_preparation_leaves_no_statement() {
    let (_database, store) = store().await;
    read(&store.point_pool, "SELECT 1", &[]).await.unwrap();
    let count_before = prepared_statement_count(&store.point_pool).await;
    for polls in 0..200_u32 {
        let sql = format!("SELECT {polls}::integer AS number, pg_sleep(0)");
        let mut read_future = Box::pin(store.read(&sql, &[]));
        for _ in 0..polls % 20 {
            if futures_util::poll!(read_future.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(read_future);
    }
    let known_count =
        store.point_pool.connection(Instant::now() + STATEMENT_TIMEOUT).await.unwrap().statement_cache.size();
    let server_count = prepared_statement_count(&store.point_pool).await;
    assert!(
        server_count <= count_before + known_count,
        "PostgreSQL holds {server_count} statements and the connection knows {known_count}"
    );
}
