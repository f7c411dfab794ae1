//! How many statements a request sends, by PostgreSQL's own count.
//!
//! Counting costs time, so it is switched on for a short stretch of its own and never while something is timed.

use anyhow::{Context, Result, bail};
use tokio_postgres::Client;

use crate::stage::DATABASE;

/// How much of a statement's text is kept.
const SHOWN: i32 = 160;

/// Counts statements, where this build of PostgreSQL can.
pub(crate) struct Accounting {
    counting: Counting,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Counting {
    Possible,
    Unavailable,
}

/// One statement of the server, prepared or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statement {
    /// The beginning of its text, on one line.
    pub(crate) text: String,
    /// How often it was sent.
    pub(crate) calls: u64,
    /// Milliseconds that PostgreSQL spent executing it, in all.
    pub(crate) milliseconds: f64,
    /// Bytes of write-ahead log that it wrote.
    pub(crate) log_bytes: u64,
}

/// What one stretch of requests sent.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// Requests that were answered meanwhile.
    pub(crate) requests: u64,
    /// The statements, the most frequent first.
    pub(crate) statements: Vec<Statement>,
}

impl Accounting {
    /// Finds out whether statements can be counted, and stops the counting that goes on from the server's start.
    pub(crate) async fn open(admin: &Client) -> Result<Accounting> {
        let counting = match admin.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await {
            // The extension may be there without having been loaded at start: then its view refuses.
            Ok(()) => match admin.query_one("SELECT count(*) FROM pg_stat_statements", &[]).await {
                Ok(_) => {
                    track(admin, "none").await?;
                    Counting::Possible
                }
                Err(_) => Counting::Unavailable,
            },
            Err(_) => Counting::Unavailable,
        };
        Ok(Accounting { counting })
    }

    /// Starts counting from nothing. `false` where it cannot be done.
    pub(crate) async fn start(&self, admin: &Client) -> Result<bool> {
        match self.counting {
            Counting::Unavailable => Ok(false),
            Counting::Possible => {
                track(admin, "top").await?;
                admin.batch_execute("SELECT pg_stat_statements_reset()").await?;
                Ok(true)
            }
        }
    }

    /// Stops counting and says what was counted during that many requests.
    pub(crate) async fn stop(&self, admin: &Client, requests: u64) -> Result<Account> {
        track(admin, "none").await?;
        let sql = format!(
            "SELECT left(regexp_replace(query, '\\s+', ' ', 'g'), {SHOWN}), calls, total_exec_time, wal_bytes::bigint
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
                })
            })
            .collect::<Result<Vec<_>, tokio_postgres::Error>>()?;
        if statements.is_empty() {
            bail!("{requests} requests were answered and PostgreSQL counted no statement");
        }
        Ok(Account { requests, statements })
    }
}

/// Running sessions take the setting over with their next statement.
async fn track(admin: &Client, what: &str) -> Result<()> {
    admin.batch_execute(&format!("ALTER SYSTEM SET pg_stat_statements.track = '{what}'")).await?;
    admin.batch_execute("SELECT pg_reload_conf()").await?;
    Ok(())
}

impl Account {
    /// Statements for each request, whoever sent them.
    pub(crate) fn all(&self) -> f64 {
        self.per_request(self.statements.iter().map(|statement| statement.calls).sum())
    }

    /// Statements that a request itself waits for: those sent at least for every second request. What relays send in
    /// batches is rarer.
    pub(crate) fn on_the_way(&self) -> f64 {
        self.per_request(self.frequent().map(|statement| statement.calls).sum())
    }

    /// How many of those wrote.
    pub(crate) fn writing(&self) -> f64 {
        self.per_request(
            self.frequent().filter(|statement| statement.log_bytes > 0).map(|statement| statement.calls).sum(),
        )
    }

    fn frequent(&self) -> impl Iterator<Item = &Statement> {
        self.statements.iter().filter(|statement| statement.calls.saturating_mul(2) >= self.requests)
    }

    /// A count as a share of the requests.
    #[expect(clippy::cast_precision_loss, reason = "counts of a few seconds lie far below 2^53")]
    pub(crate) fn per_request(&self, count: u64) -> f64 {
        count as f64 / self.requests.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batched_statements_are_told_apart() {
        let statement = |calls, log_bytes| Statement { text: String::new(), calls, milliseconds: 1.0, log_bytes };
        let account =
            Account { requests: 100, statements: vec![statement(100, 5), statement(99, 0), statement(20, 9)] };
        assert!((account.all() - 2.19).abs() < 1e-9);
        assert!((account.on_the_way() - 1.99).abs() < 1e-9);
        assert!((account.writing() - 1.0).abs() < 1e-9);
    }
}
