//! Statements that hold a permit. PostgreSQL continues a statement after its caller was cancelled. The permit and
//! the connection are therefore released only when the statement ends.

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
    /// Deadline of the statement.
    deadline: Instant,
}

impl<P: Send + 'static> Drop for HeldStatement<P> {
    fn drop(&mut self) {
        let (Some((mut held, permit)), Ok(runtime)) = (self.resources.take(), Handle::try_current()) else { return };
        let Some((connection, is_prepared)) = held.take() else { return };
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
/// within the duration `answer`, the connection is closed.
pub(super) async fn try_query_with_permit<P: Send + 'static>(
    pool: &StatementPool,
    answer: Duration,
    permit: P,
    sql: &str,
    params: &[Param<'_>],
) -> Result<(Result<Vec<Row>, StatementError>, P), StatementError> {
    let until = Instant::now() + answer;
    let connection = pool.connection(until).await.map_err(StatementError::NoConnection)?;
    let mut in_flight =
        HeldStatement { resources: Some((CancelSafeConnection::new(connection), permit)), deadline: until };
    let answer = match &in_flight.resources {
        Some((held, _)) => Some(held.send_until(until, sql, params).await),
        None => None,
    };
    if let Some(Err(timeout @ StatementError::Timeout { .. })) = answer {
        return Err(timeout);
    }
    match answer.zip(in_flight.resources.take()) {
        Some((answer, (_, permit))) => Ok((answer, permit)),
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
        let options = DatabaseOptions { url: clone.url(), connections: 1, result_retention: Duration::from_secs(600) };
        let database = Database::new(&options).unwrap();
        let scope = TenantScope::for_background_task(Uuid::from_u128(1).into());
        let commit = |sql: &'static str| {
            let database = database.clone();
            tokio::spawn(async move { database.commit_ingest(scope, sql, &[]).await.map(|rows| rows.len()) })
        };
        let first = commit("SELECT pg_sleep(600)");
        let sleeping: i32 = loop {
            if let Some(row) = owner.query_opt(SLEEPING, &[]).await.unwrap() {
                break row.get(0);
            }
            sleep(Duration::from_millis(10)).await;
        };
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let second = commit("SELECT 1");
        while database.ingest_permits.waiting_count(&scope.tenant()) == 0 {
            assert!(!second.is_finished(), "the second commit started while PostgreSQL executed the first");
            sleep(Duration::from_millis(10)).await;
        }
        owner.batch_execute(&format!("SELECT pg_cancel_backend({sleeping})")).await.unwrap();
        assert_eq!(second.await.unwrap().unwrap(), 1);
    }
}
