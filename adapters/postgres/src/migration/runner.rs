//! Runs the embedded migrations under an advisory lock, each in its own transaction.

use super::{LOCK_ATTEMPTS, LOCK_RETRY_PAUSE, LOCK_TIMEOUT_SQL, MigrationError};
use crate::database::tls_connector;
use diesel::{
    connection::InstrumentationEvent,
    migration::{Migration, MigrationSource, MigrationVersion},
    pg::Pg,
    result::Error as DieselError,
};
use diesel_async::{AsyncConnection, AsyncMigrationHarness, AsyncPgConnection, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use std::{
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio_postgres::{Config, error::SqlState};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../migrations");

/// Acquires the advisory lock that serializes migrations of servers that start concurrently. The number is
/// arbitrary.
const LOCK_SQL: &str = "SELECT pg_advisory_lock(16389287)";

/// The connection that applied the migrations. It holds the advisory lock until it is dropped.
pub(super) struct MigrationLock(#[expect(dead_code, reason = "its drop releases the lock")] AsyncPgConnection);

/// Reason why the schema of a database does not match this program.
#[derive(Debug, thiserror::Error)]
enum SchemaMismatch {
    #[error("the database has migration {0}, which this program does not know; use a newer program")]
    Newer(String),
    #[error("migration {0} is missing although a later one was applied")]
    OutOfOrder(String),
    #[error("the embedded migrations are unreadable")]
    Unreadable,
    #[error("the applied migrations are unreadable ({0})")]
    UnreadableHistory(String),
    /// PostgreSQL's message quotes rows, so this error has only the position. The message is in PostgreSQL's log.
    #[error("error applying migration {migration}: {summary}; PostgreSQL's log has its message")]
    Failed { migration: String, summary: String },
    #[error(
        "a table that migration {migration} changes was locked at each of {LOCK_ATTEMPTS} attempts; end the session that \
         holds the lock, such as a dump, and start again"
    )]
    Locked { migration: String },
}

impl From<SchemaMismatch> for MigrationError {
    fn from(mismatch: SchemaMismatch) -> Self {
        Self::Schema(Box::new(mismatch))
    }
}

/// Applies all pending migrations. Returns the lock, which the caller holds during the remaining setup.
///
/// # Errors
/// When the database is unreachable, a migration fails, or the schema is newer than this program.
pub(super) async fn run(owner_url: &str) -> Result<MigrationLock, MigrationError> {
    let last_error = LastError::default();
    let mut connection = connect(owner_url, &last_error).await?;
    // The advisory lock is acquired before the lock time-out is set: this wait may be long, because it blocks no
    // other statement.
    for sql in [LOCK_SQL, LOCK_TIMEOUT_SQL] {
        let result = connection.batch_execute(sql).await;
        result.map_err(|_| MigrationError::Database(last_error.description().into()))?;
    }
    for attempt in 1.. {
        // The migration harness blocks its thread, so it runs on a thread for blocking work. It then works in a
        // single-threaded runtime too.
        let errors = last_error.clone();
        let task = tokio::task::spawn_blocking(move || {
            let mut harness = AsyncMigrationHarness::new(connection);
            let applied = apply(&mut harness, &errors);
            (harness.into_inner(), applied)
        });
        let (returned, applied) = task.await.map_err(|error| MigrationError::Schema(Box::new(error)))?;
        connection = returned;
        let migration = match applied {
            Ok(()) => break,
            Err(SchemaMismatch::Failed { migration, .. }) if last_error.is_lock_timeout(owner_url).await => migration,
            Err(mismatch) => return Err(mismatch.into()),
        };
        if attempt == LOCK_ATTEMPTS {
            return Err(SchemaMismatch::Locked { migration }.into());
        }
        tracing::warn!(migration, attempt, "a table of a migration is locked; retrying in 1.5 s");
        tokio::time::sleep(LOCK_RETRY_PAUSE).await;
    }
    Ok(MigrationLock(connection))
}

/// Determines the message that PostgreSQL sends when a lock is not available in time. Diesel's errors contain the
/// message but not the SQLSTATE, and the message is in the server's language.
///
/// # Errors
/// When the database is unreachable.
async fn lock_timeout_message(owner_url: &str) -> Result<Option<String>, MigrationError> {
    let client = super::connect(owner_url).await?;
    client.batch_execute("SET lock_timeout = '1ms'").await?;
    // This fails, because the migrating connection holds the advisory lock.
    let lock_error = client.batch_execute(LOCK_SQL).await.err();
    let error = lock_error.as_ref().and_then(tokio_postgres::Error::as_db_error);
    Ok(error.filter(|error| *error.code() == SqlState::LOCK_NOT_AVAILABLE).map(|error| error.message().to_owned()))
}

/// The version of the last embedded migration.
///
/// # Errors
/// When the embedded migrations are unreadable.
pub(super) fn newest_version() -> Result<Option<String>, MigrationError> {
    Ok(embedded()?.iter().map(|migration| migration.name().version().to_string()).max())
}

fn embedded() -> Result<Vec<Box<dyn Migration<Pg>>>, SchemaMismatch> {
    let mut migrations = MIGRATIONS.migrations().map_err(|_| SchemaMismatch::Unreadable)?;
    migrations.sort_unstable_by_key(|migration| migration.name().version().as_owned());
    Ok(migrations)
}

fn apply(harness: &mut AsyncMigrationHarness<AsyncPgConnection>, last_error: &LastError) -> Result<(), SchemaMismatch> {
    let applied =
        harness.applied_migrations().map_err(|_| SchemaMismatch::UnreadableHistory(last_error.description()))?;
    let (known, pending): (Vec<_>, Vec<_>) =
        embedded()?.into_iter().partition(|migration| applied.contains(&migration.name().version()));
    let is_known = |version: &MigrationVersion<'_>| known.iter().any(|known| known.name().version() == *version);
    if let Some(newer) = applied.iter().find(|version| !is_known(version)) {
        return Err(SchemaMismatch::Newer(newer.to_string()));
    }
    for migration in pending {
        let name = migration.name().to_string();
        if applied.iter().any(|version| *version > migration.name().version()) {
            return Err(SchemaMismatch::OutOfOrder(name));
        }
        match harness.run_migration(&*migration) {
            Ok(_) => tracing::info!(migration = name, "applied a migration"),
            Err(_) => return Err(SchemaMismatch::Failed { migration: name, summary: last_error.description() }),
        }
    }
    Ok(())
}

async fn connect(owner_url: &str, last_error: &LastError) -> Result<AsyncPgConnection, MigrationError> {
    let (client, connection) = Config::from_str(owner_url)?.connect(tls_connector()).await?;
    let opened = AsyncPgConnection::try_from_client_and_connection(client, connection).await;
    let mut connection = opened.map_err(|error| MigrationError::Database(Box::new(error)))?;
    let recorder = last_error.clone();
    connection.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::FinishQuery { error: Some(error), .. } = event {
            recorder.record(error);
        }
    });
    Ok(connection)
}

/// The last failed statement. It is recorded here, because the migration harness returns errors of which only
/// PostgreSQL's message is accessible, and the message quotes rows.
#[derive(Clone, Default)]
struct LastError(Arc<Mutex<Option<FailedStatement>>>);

struct FailedStatement {
    /// The kind of the error and the position in the schema, for people.
    summary: String,
    /// PostgreSQL's message. It is only compared, and never logged.
    message: String,
}

impl LastError {
    fn record(&self, error: &DieselError) {
        let DieselError::DatabaseError(kind, details) = error else {
            return;
        };
        let mut summary = format!("PostgreSQL refused it ({kind:?})");
        let names = [
            ("table", details.table_name()),
            ("column", details.column_name()),
            ("constraint", details.constraint_name()),
        ];
        for (label, name) in names {
            summary.extend(name.map(|name| format!(", {label} `{name}`")));
        }
        summary.extend(details.statement_position().map(|position| format!(", at character {position}")));
        *self.failed() = Some(FailedStatement { summary, message: details.message().to_owned() });
    }

    fn failed(&self) -> MutexGuard<'_, Option<FailedStatement>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn description(&self) -> String {
        self.failed().as_ref().map_or_else(|| "the connection failed".to_owned(), |failed| failed.summary.clone())
    }

    /// Whether the statement failed because a lock was not available in time.
    async fn is_lock_timeout(&self, owner_url: &str) -> bool {
        // If the expected message cannot be determined, the result is false. The caller then reports the failed
        // migration, which is more useful than this second failure.
        let expected = lock_timeout_message(owner_url).await.ok().flatten();
        expected.is_some() && expected == self.failed().as_ref().map(|failed| failed.message.clone())
    }
}
