//! Creates monthly partitions in advance, and drops expired ones.

use crate::migration::{MigrationError, connect};
use std::time::Duration;
use tokio_postgres::{Client, error::SqlState};

/// Maximum number of attempts to create partitions while long-running reads hold locks on their tables.
const PARTITION_ATTEMPTS: u32 = 20;
/// Pause between two attempts. Statements that wait for the lock run meanwhile.
const PARTITION_RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Number of months for which partitions are created in advance.
const MONTHS_AHEAD: i32 = 3;

/// Creates the missing partitions of the coming months and returns their number. The owner of the schema runs this
/// daily.
///
/// # Errors
/// When the database is unreachable or rejects a statement.
pub async fn create_partitions(owner_url: &str) -> Result<i32, MigrationError> {
    create_missing_partitions(&connect(owner_url).await?).await
}

/// Creates the missing partitions, each in its own transaction, so that a table is locked only while one partition
/// is created. Waits for long-running reads up to [`PARTITION_ATTEMPTS`] times in total. The next daily run creates
/// the remaining partitions, months before they are needed.
pub(crate) async fn create_missing_partitions(client: &Client) -> Result<i32, MigrationError> {
    let sql = format!("SELECT fairway_make_partition({MONTHS_AHEAD}, 1)");
    let (mut created, mut lock_failures) = (0, 0);
    loop {
        match client.query_one(&sql, &[]).await {
            Ok(row) if row.try_get::<_, Option<&str>>(0)?.is_none() => return Ok(created),
            Ok(_) => created += 1,
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) && lock_failures < PARTITION_ATTEMPTS => {
                lock_failures += 1;
                tokio::time::sleep(PARTITION_RETRY_PAUSE).await;
            }
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                tracing::warn!(
                    created,
                    attempts = PARTITION_ATTEMPTS,
                    "failed to create all future partitions, because queries lock a table; a server retries within 24 h"
                );
                return Ok(created);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The result of [`expire_payloads`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PayloadExpiryReport {
    /// The months whose partitions were dropped, oldest first.
    pub months: Vec<String>,
    /// Whether a lock was not available, so that some expired months may remain. The caller retries later.
    pub is_incomplete: bool,
}

/// Drops the monthly partitions with the payloads (inputs and outputs) of runs that ended more than `retention` ago.
/// Each partition is dropped in its own transaction. The owner of the schema runs this daily; concurrent calls are
/// safe.
///
/// # Errors
/// When the database is unreachable or rejects a statement.
pub async fn expire_payloads(owner_url: &str, retention: Duration) -> Result<PayloadExpiryReport, MigrationError> {
    let sql = format!("SELECT fairway_expire_payloads(make_interval(secs => {}))", retention.as_secs());
    let client = connect(owner_url).await?;
    let mut months = Vec::new();
    loop {
        match client.query_one(&sql, &[]).await {
            Ok(row) => match row.try_get(0)? {
                Some(month) => months.push(month),
                None => return Ok(PayloadExpiryReport { months, is_incomplete: false }),
            },
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                return Ok(PayloadExpiryReport { months, is_incomplete: true });
            }
            Err(error) => return Err(error.into()),
        }
    }
}
