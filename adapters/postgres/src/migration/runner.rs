//! Runs the embedded migrations under an advisory lock, each in its own transaction.

use super::MigrationError;
use crate::database::tls;
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
    sync::{Arc, Mutex, PoisonError},
};
use tokio_postgres::Config;

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../migrations");

/// Takes the advisory lock that serializes migrations of concurrently starting servers. The number is arbitrary.
const LOCK_SQL: &str = "SELECT pg_advisory_lock(16389287)";

/// The migrating connection. It holds the advisory lock until it is dropped.
pub(super) struct MigrationLock(#[expect(dead_code, reason = "its drop releases the lock")] AsyncPgConnection);

/// Why the schema of a database does not match this program.
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
    /// PostgreSQL's message quotes rows, so the error has only the place; PostgreSQL's log has the message.
    #[error("error applying migration {migration}: {place}; PostgreSQL's log has its message")]
    Failed { migration: String, place: String },
}

impl From<SchemaMismatch> for MigrationError {
    fn from(mismatch: SchemaMismatch) -> Self {
        Self::Schema(Box::new(mismatch))
    }
}

/// Applies all pending migrations and returns the lock, which the caller holds for the rest of the set-up.
///
/// # Errors
/// When the database is unreachable, a migration fails, or the schema is newer than this program.
pub(super) async fn run(owner_url: &str) -> Result<MigrationLock, MigrationError> {
    let last_error = LastError::default();
    let mut connection = connect(owner_url, &last_error).await?;
    let locked = connection.batch_execute(LOCK_SQL).await;
    locked.map_err(|_| MigrationError::Database(last_error.description().into()))?;
    // The harness blocks its thread. On a thread for blocking work it needs no multi-threaded runtime.
    let migrated = tokio::task::spawn_blocking(move || {
        let mut harness = AsyncMigrationHarness::new(connection);
        apply(&mut harness, &last_error).map(|()| harness.into_inner())
    });
    match migrated.await {
        Ok(connection) => Ok(MigrationLock(connection?)),
        Err(panicked) => Err(MigrationError::Schema(Box::new(panicked))),
    }
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
            Err(_) => return Err(SchemaMismatch::Failed { migration: name, place: last_error.description() }),
        }
    }
    Ok(())
}

async fn connect(owner_url: &str, last_error: &LastError) -> Result<AsyncPgConnection, MigrationError> {
    let (client, connection) = Config::from_str(owner_url)?.connect(tls()).await?;
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

/// The place of the last failed statement, without PostgreSQL's message, which quotes rows. The runner of migrations
/// returns errors whose only public content is that message.
#[derive(Clone, Default)]
struct LastError(Arc<Mutex<Option<String>>>);

impl LastError {
    fn record(&self, error: &DieselError) {
        let DieselError::DatabaseError(kind, details) = error else {
            return;
        };
        let mut place = format!("PostgreSQL refused it ({kind:?})");
        let names = [
            ("table", details.table_name()),
            ("column", details.column_name()),
            ("constraint", details.constraint_name()),
        ];
        for (label, name) in names {
            place.extend(name.map(|name| format!(", {label} `{name}`")));
        }
        place.extend(details.statement_position().map(|position| format!(", at character {position}")));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
    }

    fn description(&self) -> String {
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        recorded.unwrap_or_else(|| "the connection failed".to_owned())
    }
}
