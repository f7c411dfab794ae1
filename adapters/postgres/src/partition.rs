//! Creation and expiry of monthly partitions.

use crate::migration::{MigrationError, connect};
use std::time::Duration;
use tokio_postgres::{Client, error::SqlState};

/// Attempts to create a partition while readers hold a lock on its table.
const PARTITION_ATTEMPTS: u32 = 20;
/// Pause between two attempts, in which queued statements obtain the lock.
const PARTITION_RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Months for which partitions are created in advance.
const MONTHS_AHEAD: i32 = 3;

/// Creates the missing partitions of the coming months and returns their number. The owner runs this daily.
///
/// # Errors
/// When the database is unreachable or rejects a statement.
pub async fn create_partitions(owner_url: &str) -> Result<i32, MigrationError> {
    create_missing_partitions(&connect(owner_url).await?).await
}

/// Creates the missing partitions, each in its own transaction, so that a table is locked for one partition only.
/// Waits for long readers up to [`PARTITION_ATTEMPTS`] times in total; the next daily run creates the rest, months
/// before it is needed.
pub(crate) async fn create_missing_partitions(client: &Client) -> Result<i32, MigrationError> {
    let sql = format!("SELECT fairway_make_partition({MONTHS_AHEAD}, 1)");
    let (mut made, mut busy) = (0, 0);
    loop {
        match client.query_one(&sql, &[]).await {
            Ok(row) if row.try_get::<_, Option<&str>>(0)?.is_none() => return Ok(made),
            Ok(_) => made += 1,
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) && busy < PARTITION_ATTEMPTS => {
                busy += 1;
                tokio::time::sleep(PARTITION_RETRY_PAUSE).await;
            }
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                tracing::warn!(
                    created = made,
                    attempts = PARTITION_ATTEMPTS,
                    "partition table locked by long readers; creating missing partitions in the next run"
                );
                return Ok(made);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The result of [`expire_payloads`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PayloadExpiryReport {
    /// The dropped months, oldest first.
    pub months: Vec<String>,
    /// Whether a lock was not available, so that expired months may remain. Retry later.
    pub is_incomplete: bool,
}

/// Drops the monthly partitions of payloads (inputs and outputs of runs) that ended more than `kept` ago, each in its
/// own transaction. The owner runs this daily; concurrent calls are safe.
///
/// # Errors
/// When the database is unreachable or rejects a statement.
pub async fn expire_payloads(owner_url: &str, kept: Duration) -> Result<PayloadExpiryReport, MigrationError> {
    let sql = format!("SELECT fairway_expire_payloads(make_interval(secs => {}))", kept.as_secs());
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
