//! Counts the statements of a request with pg_stat_statements.
//!
//! Counting costs time, so it is enabled only for separate runs, and never during a timed measurement.

use anyhow::{Context, Result, bail};
use tokio_postgres::Client;

use crate::environment::DATABASE;

/// Maximum number of characters of a statement's text in the report.
const MAX_TEXT_CHARS: i32 = 160;

/// Counts statements, if this build of PostgreSQL supports it.
pub(crate) struct StatementCounter {
    availability: Availability,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Availability {
    Available,
    Unavailable,
}

/// A counted statement of the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statement {
    /// The beginning of its text, on one line.
    pub(crate) text: String,
    /// The number of executions.
    pub(crate) calls: u64,
    /// Total execution time in PostgreSQL, in milliseconds.
    pub(crate) milliseconds: f64,
    /// Bytes of write-ahead log that the statement wrote. A read can write some when it removes dead rows from a page.
    pub(crate) log_bytes: u64,
    /// Whether the statement's text changes rows.
    pub(crate) changes_rows: bool,
}

impl Statement {
    fn is_commit(&self) -> bool {
        self.changes_rows && self.log_bytes > 0
    }
}

/// The statements of one counted run.
#[derive(Clone, Debug)]
pub(crate) struct StatementCounts {
    /// The number of requests completed during the run.
    pub(crate) requests: u64,
    /// The statements, most frequent first.
    pub(crate) statements: Vec<Statement>,
}

impl StatementCounter {
    /// Detects whether counting is available. Stops the tracking, which is active after the start of PostgreSQL.
    pub(crate) async fn open(admin: &Client) -> Result<StatementCounter> {
        let availability = match admin.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await {
            // If the library is not preloaded, the extension can be created, but reading its view fails.
            Ok(()) => match admin.query_one("SELECT count(*) FROM pg_stat_statements", &[]).await {
                Ok(_) => {
                    set_tracking(admin, "none").await?;
                    Availability::Available
                }
                Err(_) => Availability::Unavailable,
            },
            Err(_) => Availability::Unavailable,
        };
        Ok(StatementCounter { availability })
    }

    /// Resets the counters and starts counting. Returns `false` when counting is unavailable.
    pub(crate) async fn start(&self, admin: &Client) -> Result<bool> {
        match self.availability {
            Availability::Unavailable => Ok(false),
            Availability::Available => {
                set_tracking(admin, "top").await?;
                admin.batch_execute("SELECT pg_stat_statements_reset()").await?;
                Ok(true)
            }
        }
    }

    /// Stops counting. Returns the statements of this many requests.
    pub(crate) async fn stop(&self, admin: &Client, requests: u64) -> Result<StatementCounts> {
        set_tracking(admin, "none").await?;
        let sql = format!(
            "SELECT left(regexp_replace(query, '\\s+', ' ', 'g'), {MAX_TEXT_CHARS}), calls, total_exec_time, wal_bytes::bigint,
                query ~* '\\m(insert\\s+into|delete\\s+from|fairway_commit|update\\s+\\w+\\s+(as\\s+\\w+\\s+)?set)\\M'
             FROM pg_stat_statements AS counted
             JOIN pg_database ON pg_database.oid = counted.dbid
             WHERE datname = $1
             ORDER BY calls DESC"
        );
        let rows = admin.query(&sql, &[&DATABASE]).await.context("reading the counted statements")?;
        let statements = rows
            .iter()
            .map(|row| {
                Ok(Statement {
                    text: row.try_get(0)?,
                    calls: row.try_get::<_, i64>(1)?.unsigned_abs(),
                    milliseconds: row.try_get(2)?,
                    log_bytes: row.try_get::<_, i64>(3)?.unsigned_abs(),
                    changes_rows: row.try_get(4)?,
                })
            })
            .collect::<Result<Vec<_>, tokio_postgres::Error>>()?;
        if statements.is_empty() {
            bail!("PostgreSQL counted no statement for {requests} requests");
        }
        Ok(StatementCounts { requests, statements })
    }
}

/// Sets the tracking mode. Sessions apply the mode at their next statement.
async fn set_tracking(admin: &Client, mode: &str) -> Result<()> {
    admin.batch_execute(&format!("ALTER SYSTEM SET pg_stat_statements.track = '{mode}'")).await?;
    admin.batch_execute("SELECT pg_reload_conf()").await?;
    Ok(())
}

impl StatementCounts {
    /// Statements for each request, including those of background tasks.
    pub(crate) fn statements_per_request(&self) -> f64 {
        self.per_request(self.statements.iter().map(|statement| statement.calls).sum())
    }

    /// Statements on a request's critical path. A statement counts if it was executed at least half as often as
    /// requests were sent. This excludes statements of background tasks, which one execution does for many requests.
    pub(crate) fn round_trips_per_request(&self) -> f64 {
        self.per_request(self.frequent().map(|statement| statement.calls).sum())
    }

    /// Statements on a request's critical path that change rows. Each is a transaction of its own. A locking read
    /// is not counted.
    pub(crate) fn commits_per_request(&self) -> f64 {
        self.per_request(
            self.frequent().filter(|statement| statement.is_commit()).map(|statement| statement.calls).sum(),
        )
    }

    fn frequent(&self) -> impl Iterator<Item = &Statement> {
        self.statements.iter().filter(|statement| statement.calls.saturating_mul(2) >= self.requests)
    }

    /// A count divided by the number of requests.
    #[expect(clippy::cast_precision_loss, reason = "counts of a few seconds lie far below 2^53")]
    pub(crate) fn per_request(&self, count: u64) -> f64 {
        count as f64 / self.requests.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separates_frequent_from_batched_statements() {
        let statement = |calls, log_bytes, changes_rows| Statement {
            text: String::new(),
            calls,
            milliseconds: 1.0,
            log_bytes,
            changes_rows,
        };
        // The second statement is a read that wrote log because it removed dead rows from a page.
        let statements = vec![statement(100, 5, true), statement(99, 3, false), statement(20, 9, true)];
        let account = StatementCounts { requests: 100, statements };
        assert!((account.statements_per_request() - 2.19).abs() < 1e-9);
        assert!((account.round_trips_per_request() - 1.99).abs() < 1e-9);
        assert!((account.commits_per_request() - 1.0).abs() < 1e-9);
    }
}
