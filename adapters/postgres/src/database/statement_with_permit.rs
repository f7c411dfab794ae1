//! Statements that hold a permit. PostgreSQL continues a statement after its caller was cancelled. The permit and
//! the connection are therefore released only when the statement ends or its time limit has passed.

use super::{
    pool::{PooledConnection, StatementPool},
    send_statement::{CancelSafeConnection, StatementError},
};
use crate::{param::Param, row::Row, store_error};
use std::time::Duration;
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

/// A statement that PostgreSQL may still execute, with its connection and its permit.
struct HeldStatement<P: Send + 'static> {
    resources: Option<(CancelSafeConnection, P)>,
    /// The time after which the connection is closed, even if the statement has not ended.
    deadline: Instant,
}

impl<P: Send + 'static> Drop for HeldStatement<P> {
    fn drop(&mut self) {
        let (Some((mut cancel_safe, permit)), Ok(runtime)) = (self.resources.take(), Handle::try_current()) else {
            return;
        };
        let Some((connection, is_prepared)) = cancel_safe.take() else { return };
        let until = self.deadline;
        runtime.spawn(async move {
            // PostgreSQL answers in order, so the empty query returns only after the pending statement has ended.
            match timeout_at(until, connection.batch_execute("")).await {
                Ok(Ok(())) if is_prepared => drop(connection),
                Ok(_) | Err(_) => drop(PooledConnection::take(connection)),
            }
            drop(permit);
        });
    }
}

/// Sends a statement on a pooled connection, and returns the result with the permit. If PostgreSQL does not answer
/// within `time_limit`, the connection is closed.
pub(super) async fn try_query_with_permit<P: Send + 'static>(
    pool: &StatementPool,
    time_limit: Duration,
    permit: P,
    sql: &str,
    params: &[Param<'_>],
) -> Result<(Result<Vec<Row>, StatementError>, P), StatementError> {
    let until = Instant::now() + time_limit;
    let connection = pool.connection(until).await.map_err(StatementError::NoConnection)?;
    let mut statement =
        HeldStatement { resources: Some((CancelSafeConnection::new(connection), permit)), deadline: until };
    let result = match &statement.resources {
        Some((connection, _)) => Some(connection.send_until(until, sql, params).await),
        None => None,
    };
    if let Some(Err(timeout @ StatementError::Timeout { .. })) = result {
        return Err(timeout);
    }
    match result.zip(statement.resources.take()) {
        Some((result, (_, permit))) => Ok((result, permit)),
        None => {
            Err(StatementError::NoConnection(store_error::inconsistent("the statement lost its connection".into())))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::database::{Database, DatabaseOptions};
    use fairway_domain::tenant::TenantScope;
    use fairway_testkit::TestDatabase;
    use std::time::Duration;
    use tokio::time::sleep;
    use uuid::Uuid;

    const SLEEPING: &str = "SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'active' AND query LIKE 'SELECT pg_sleep%'";

    #[tokio::test]
    async fn cancelled_commit_keeps_its_permit_until_postgresql_ends_it() {
        let clone = TestDatabase::create().await.unwrap();
        let owner = clone.connect_as_owner().await.unwrap();
        let options =
            DatabaseOptions { url: clone.url_for_owner(), connections: 1, result_retention: Duration::from_secs(600) };
        let database = Database::new(&options).unwrap();
        let scope = TenantScope::for_background_task(Uuid::from_u128(1).into());
        let commit = |sql: &'static str| {
            let database = database.clone();
            tokio::spawn(async move { database.commit_ingest(scope, sql, &[]).await.map(|rows| rows.len()) })
        };
        let first = commit("SELECT pg_sleep(600)");
        let sleeping_pid: i32 = loop {
            if let Some(row) = owner.query_opt(SLEEPING, &[]).await.unwrap() {
                break row.get(0);
            }
            sleep(Duration::from_millis(10)).await;
        };
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let second = commit("SELECT 1");
        while database.ingest_permits.waiting_count_of(&scope.tenant()) == 0 {
            assert!(!second.is_finished(), "the second commit started while PostgreSQL executed the first");
            sleep(Duration::from_millis(10)).await;
        }
        owner.batch_execute(&format!("SELECT pg_cancel_backend({sleeping_pid})")).await.unwrap();
        assert_eq!(second.await.unwrap().unwrap(), 1);
    }
}
