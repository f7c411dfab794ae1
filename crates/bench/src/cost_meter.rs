//! Measures cost: processor time of the processes, and bytes of PostgreSQL's write-ahead log (WAL).

mod process;

use std::ops::Sub;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio_postgres::types::PgLsn;
use tokio_postgres::{Client, NoTls};

pub(crate) use process::{peak_resident_memory, processor_time, processor_time_with_children, resident_memory};

/// Reads all cost counters. Its own connection is otherwise idle.
pub(crate) struct CostMeter {
    client: Client,
    postmaster: u32,
    log_inspection: LogInspection,
}

/// Whether PostgreSQL can report the contents of its write-ahead log (extension `pg_walinspect`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogInspection {
    Available,
    Unavailable,
}

/// All counters at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    at: Instant,
    log: PgLsn,
    postgres: Duration,
    machine: Duration,
    program: Duration,
    own: Duration,
}

/// The difference between two readings.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    /// Time between the two readings.
    pub(crate) elapsed: Duration,
    /// Processor time of the measured program.
    pub(crate) program: Duration,
    /// Processor time of all PostgreSQL processes.
    pub(crate) postgres: Duration,
    /// Processor time of the benchmark itself, which generates the load.
    pub(crate) own: Duration,
    /// Processor time of the whole machine.
    pub(crate) machine: Duration,
    /// Bytes of write-ahead log written.
    pub(crate) log_bytes: u64,
    /// Bytes and commits in the written WAL, by kind; `None` if PostgreSQL cannot report them.
    pub(crate) log: Option<LogContents>,
}

/// Bytes and commits in a range of the write-ahead log, by kind.
#[derive(Clone, Copy)]
pub(crate) struct LogContents {
    /// Bytes of records without full-page images.
    pub(crate) record_bytes: u64,
    /// Bytes of full-page images, which the first change of a page after a checkpoint writes.
    pub(crate) image_bytes: u64,
    /// Commit records, one for each writing transaction.
    pub(crate) commits: u64,
}

impl CostMeter {
    /// Connects to the administrative database of the server with this process id.
    pub(crate) async fn open(url: &str, postmaster: u32) -> Result<CostMeter> {
        let client = connect(url).await?;
        let contents = match client.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect").await {
            Ok(()) => LogInspection::Available,
            // A PostgreSQL build without the contributed extensions reports only total bytes.
            Err(_) => LogInspection::Unavailable,
        };
        Ok(CostMeter { client, postmaster, log_inspection: contents })
    }

    /// The administrative connection, for use between measurements.
    pub(crate) fn admin_client(&self) -> &Client {
        &self.client
    }

    /// Reads all counters, including the processor time of the process `program`.
    pub(crate) async fn read(&self, program: u32) -> Result<Reading> {
        let row = self.client.query_one("SELECT pg_current_wal_flush_lsn()", &[]).await?;
        Ok(Reading {
            at: Instant::now(),
            log: row.try_get(0)?,
            postgres: process::processor_time_with_children(self.postmaster)?,
            machine: process::machine_time()?,
            program: process::processor_time(program)?,
            own: process::processor_time(std::process::id())?,
        })
    }

    /// The cost between two readings, with the contents of the log.
    pub(crate) async fn cost(&self, from: Reading, to: Reading) -> Result<Cost> {
        let log = match self.log_inspection {
            // `pg_walinspect` fails when the range starts at a page boundary without a following record. The
            // contents are then omitted, so that a benchmark of half an hour does not fail.
            LogInspection::Available if from.log < to.log => self.log_contents(from.log, to.log).await.ok(),
            LogInspection::Available => Some(LogContents { record_bytes: 0, image_bytes: 0, commits: 0 }),
            LogInspection::Unavailable => None,
        };
        Ok(Cost { log, ..to - from })
    }

    async fn log_contents(&self, from: PgLsn, to: PgLsn) -> Result<LogContents> {
        let sql = r#"SELECT coalesce(sum(record_size), 0)::bigint, coalesce(sum(fpi_size), 0)::bigint,
                coalesce(sum(count) FILTER (WHERE "resource_manager/record_type" = 'Transaction/COMMIT'), 0)::bigint
            FROM pg_get_wal_stats($1, $2, true)"#;
        let row = self.client.query_one(sql, &[&from, &to]).await.context("reading the write-ahead log")?;
        let number = |index: usize| row.try_get::<_, i64>(index).map(i64::unsigned_abs);
        Ok(LogContents { record_bytes: number(0)?, image_bytes: number(1)?, commits: number(2)? })
    }
}

impl Cost {
    /// Processor time of all other programs on the machine.
    pub(crate) fn other_programs(&self) -> Duration {
        self.machine.saturating_sub(self.program).saturating_sub(self.postgres).saturating_sub(self.own)
    }
}

impl Sub for Reading {
    type Output = Cost;

    fn sub(self, before: Reading) -> Cost {
        Cost {
            elapsed: self.at.saturating_duration_since(before.at),
            program: self.program.saturating_sub(before.program),
            own: self.own.saturating_sub(before.own),
            postgres: self.postgres.saturating_sub(before.postgres),
            machine: self.machine.saturating_sub(before.machine),
            log_bytes: u64::from(self.log).saturating_sub(u64::from(before.log)),
            log: None,
        }
    }
}

/// Connects to PostgreSQL, and drives the connection in a separate task.
pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("connecting to PostgreSQL")?;
    // An error of the connection task also fails the pending query.
    tokio::task::spawn_local(connection);
    Ok(client)
}

#[cfg(test)]
impl Reading {
    /// A reading with all counters at zero.
    pub(crate) fn zero() -> Reading {
        Reading {
            at: Instant::now(),
            log: PgLsn::from(0),
            postgres: Duration::ZERO,
            machine: Duration::ZERO,
            program: Duration::ZERO,
            own: Duration::ZERO,
        }
    }
}
