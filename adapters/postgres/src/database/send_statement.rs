//! Sends statements on pooled connections. Its errors state whether PostgreSQL may have executed a statement.

use super::{
    MAX_RECEIVED_BYTES, MAX_SENT_BYTES, STATEMENT_TIMEOUT, TASK_STATEMENT_BYTES,
    pool::{PooledConnection, StatementPool},
};
use crate::{
    error_redaction,
    param::Param,
    row::Row,
    store_error::{self, commit_from_driver, from_driver, is_outcome_unknown, outcome_unknown, unavailable},
};
use fairway_domain::store::{CommitError, StoreError};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::{Instant, error::Elapsed, timeout_at};
use tracing::Instrument as _;

/// The reason why a statement has no result.
#[derive(Debug)]
pub(super) enum StatementError {
    /// No connection was available in time, so the statement was not sent.
    NoConnection(StoreError),
    /// PostgreSQL did not respond in time.
    Timeout {
        /// The error of the timer.
        elapsed: Elapsed,
        /// Whether the statement itself, and not only its preparation, may have been sent.
        is_sent: bool,
    },
    /// PostgreSQL refused the statement, or the connection broke.
    Driver {
        /// The error of the driver.
        error: tokio_postgres::Error,
        /// Whether the statement itself, and not only its preparation, may have been sent.
        is_sent: bool,
    },
}

impl StatementError {
    /// Whether the connection was closed before the response.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Driver { error, .. } if error.is_closed())
    }

    /// Whether PostgreSQL refused the statement and rolled it back.
    pub(super) fn is_rolled_back(&self) -> bool {
        matches!(self, Self::Driver { error, .. } if error.as_db_error().is_some() && !is_outcome_unknown(error))
    }

    /// Converts to the error of a read, or of a write that may be repeated.
    pub(super) fn into_read_error(self) -> StoreError {
        match self {
            Self::NoConnection(error) => error,
            Self::Timeout { elapsed, .. } => unavailable(Box::new(elapsed)),
            Self::Driver { error, .. } => from_driver(error),
        }
    }

    /// Converts to the error of a batch of commits, which may report that the outcome is unknown.
    pub(super) fn into_batch_error(self) -> StoreError {
        match self {
            Self::Timeout { elapsed, is_sent: true } => outcome_unknown(Box::new(elapsed)),
            Self::Driver { error, is_sent: true } if is_outcome_unknown(&error) => {
                outcome_unknown(error_redaction::redact_driver_error(error))
            }
            error @ (Self::NoConnection(_) | Self::Timeout { .. } | Self::Driver { .. }) => error.into_read_error(),
        }
    }

    /// Converts to the error of a commit, which may report a conflict or that the outcome is unknown.
    pub(super) fn into_commit_error(self) -> CommitError {
        match self {
            Self::Driver { error, .. } if error.as_db_error().is_some() && !is_outcome_unknown(&error) => {
                commit_from_driver(error)
            }
            error @ (Self::NoConnection(_) | Self::Timeout { .. } | Self::Driver { .. }) => {
                CommitError::Store(error.into_batch_error())
            }
        }
    }
}

/// Acquires a pooled connection and sends a statement on it, both within [`STATEMENT_TIMEOUT`].
pub(super) async fn try_query(
    pool: &StatementPool,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Vec<Row>, StatementError> {
    try_query_until(pool, Instant::now() + STATEMENT_TIMEOUT, sql, params).await
}

/// Acquires a pooled connection and sends a statement on it, both before `until`. A connection that does not answer
/// in time is closed, because later statements on it would queue behind the pending one.
pub(super) async fn try_query_until(
    pool: &StatementPool,
    until: Instant,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Vec<Row>, StatementError> {
    let connection = pool.connection(until).await.map_err(StatementError::NoConnection)?;
    let mut connection = CancelSafeConnection::new(connection);
    let result = connection.send_until(until, sql, params).await;
    let received_bytes = result.iter().flatten().map(Row::raw_size_bytes).fold(0, usize::saturating_add);
    if matches!(result, Err(StatementError::Timeout { .. }))
        || received_bytes > MAX_RECEIVED_BYTES
        || TASK_STATEMENT_BYTES.try_with(|bytes| *bytes > MAX_SENT_BYTES).unwrap_or_default()
    {
        connection.close();
    }
    result
}

/// A connection that executes a statement. If its caller is cancelled while PostgreSQL prepares the statement, the
/// connection is closed. Otherwise the prepared statement would stay in PostgreSQL, because the driver does not
/// know of it.
pub(super) struct CancelSafeConnection {
    connection: Option<PooledConnection>,
    is_prepared: AtomicBool,
}

impl CancelSafeConnection {
    pub(super) const fn new(connection: PooledConnection) -> Self {
        Self { connection: Some(connection), is_prepared: AtomicBool::new(false) }
    }

    /// Sends a statement and waits for its result until `until`.
    pub(super) async fn send_until(
        &self,
        until: Instant,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StatementError> {
        let Some(connection) = &self.connection else {
            return Err(StatementError::NoConnection(store_error::inconsistent("the connection is closed".into())));
        };
        let is_sent = AtomicBool::new(false);
        let result = timeout_at(until, send(connection, &is_sent, &self.is_prepared, sql, params)).await;
        let is_sent = is_sent.into_inner();
        match result {
            Ok(result) => result.map_err(|error| StatementError::Driver { error, is_sent }),
            Err(elapsed) => Err(StatementError::Timeout { elapsed, is_sent }),
        }
    }

    /// Takes the connection out of this value. The flag is true if no preparation is in progress on the connection.
    pub(super) fn take(&mut self) -> Option<(PooledConnection, bool)> {
        let is_prepared = AtomicBool::load(&self.is_prepared, Ordering::Relaxed);
        self.connection.take().map(|connection| (connection, is_prepared))
    }

    pub(super) fn close(&mut self) {
        drop(self.connection.take().map(PooledConnection::take));
    }
}

impl Drop for CancelSafeConnection {
    fn drop(&mut self) {
        if let Some((connection, false)) = self.take() {
            drop(PooledConnection::take(connection));
        }
    }
}

async fn send(
    connection: &PooledConnection,
    is_sent: &AtomicBool,
    is_prepared: &AtomicBool,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let span = tracing::debug_span!(
        "statement",
        otel.kind = "client",
        db.system.name = "postgresql",
        db.query.summary = summary(sql),
    );
    let query = async {
        let statement = connection.prepare_cached(sql).await;
        is_prepared.store(true, Ordering::Relaxed);
        let statement = statement?;
        // On a closed connection the driver sends nothing.
        is_sent.store(!connection.is_closed(), Ordering::Relaxed);
        Ok(connection.query(&statement, params).await?.into_iter().map(Row::from).collect())
    };
    query.instrument(span).await
}

/// The first words of a statement, to shorten it for traces. Statements contain no values, so this reveals none.
fn summary(sql: &str) -> String {
    const WORDS: usize = 8;
    sql.split_whitespace().take(WORDS).collect::<Vec<_>>().join(" ")
}
