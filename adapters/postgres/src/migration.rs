//! Schema migrations and the setup of the database.

use crate::{
    database::tls_connector,
    error_redaction::redact_driver_error,
    guarded_commit::{Input, Query},
    partition::create_missing_partitions,
};
use sha2::{Digest, Sha256};
use std::{error::Error, str::FromStr, time::Duration};
use tokio_postgres::{Client, Config, error::SqlState};

mod runner;

/// The SHA-256 of each migration, in the format of `sha256sum`. A test compares them with the files.
const CHECKSUMS: &str = include_str!("../../../migrations/checksums.txt");

/// Adds a `vector` column if the extension `vector` is available. This is not a numbered migration, because the
/// extension may be installed after all migrations were applied.
const VECTOR_COLUMN_SQL: &str = include_str!("migration/vectors.sql");

/// Limits how long a migration waits for one lock. Later statements on the table queue behind the migration's lock
/// request. Statements of the servers fail after 1.2 s, so the migration must withdraw its request earlier.
const LOCK_TIMEOUT_SQL: &str = "SET lock_timeout = '500ms'";
/// Pause before the next attempt to acquire a lock. The queued statements run meanwhile.
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(1_500);
/// Maximum number of attempts until the start fails, which take two minutes.
const LOCK_ATTEMPTS: u32 = 60;

/// Error of a migration or of partition maintenance.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The database is unreachable or rejected a statement.
    #[error("the database is unreachable or rejected a statement")]
    Database(#[source] Box<dyn Error + Send + Sync>),
    /// A migration failed, or the schema is newer than this program.
    #[error("the schema does not match this program")]
    Schema(#[source] Box<dyn Error + Send + Sync>),
}

/// The database has the migrations of an unreleased build, which a different migration runner applied from
/// different files.
#[derive(Debug, thiserror::Error)]
#[error("an unreleased build created this database; create it anew")]
struct UnreleasedSchema;

impl From<tokio_postgres::Error> for MigrationError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(redact_driver_error(error))
    }
}

/// Migrates the schema as its owner, creates partitions, and inserts the first tenant. It is safe at every start
/// and when several processes run it concurrently. It refuses a schema that is newer than this program.
///
/// # Errors
/// When the database is unreachable, a migration fails, or the schema is newer.
pub async fn migrate(owner_url: &str) -> Result<(), MigrationError> {
    let client = connect(owner_url).await?;
    if client.query_one("SELECT to_regclass('refinery_schema_history') IS NOT NULL", &[]).await?.try_get(0)? {
        return Err(MigrationError::Schema(Box::new(UnreleasedSchema)));
    }
    let lock = runner::run(owner_url).await?;
    create_missing_partitions(&client).await?;
    client.batch_execute(LOCK_TIMEOUT_SQL).await?;
    for sql in [VECTOR_COLUMN_SQL, GRANTS, FIRST_TENANT] {
        execute_with_lock_retries(&client, sql).await?;
    }
    drop(lock);
    Ok(())
}

/// No attempt could acquire the lock.
#[derive(Debug, thiserror::Error)]
#[error(
    "a table that the database setup changes was locked at each of {LOCK_ATTEMPTS} attempts; end the session that holds \
     the lock, such as a dump, and start again"
)]
struct LockedSetUp;

/// Executes statements, and repeats them while a lock that they need is not available.
async fn execute_with_lock_retries(client: &Client, sql: &str) -> Result<(), MigrationError> {
    let mut attempt = 1;
    loop {
        match client.batch_execute(sql).await {
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) && attempt < LOCK_ATTEMPTS => {
                tracing::warn!(attempt, "a table is locked during database setup; retrying in 1.5 s");
                attempt += 1;
                tokio::time::sleep(LOCK_RETRY_PAUSE).await;
            }
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                return Err(MigrationError::Schema(Box::new(LockedSetUp)));
            }
            result => return Ok(result?),
        }
    }
}

/// Whether the database exists and contains a Fairway schema.
///
/// # Errors
/// When the server is unreachable or rejects the statement.
pub async fn has_schema(url: &str) -> Result<bool, MigrationError> {
    let client = match connect(url).await {
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_DATABASE) => return Ok(false),
        client => client?,
    };
    // The query works for every role, because every role may read the catalogue.
    let sql = "SELECT FROM pg_tables WHERE schemaname = 'public' AND tablename = 'asset_version'";
    Ok(client.query_opt(sql, &[]).await?.is_some())
}

/// Whether the schema has the version that this program was built for. Tools check this before they write to a
/// database that servers use.
///
/// # Errors
/// When the server is unreachable or rejects the statement.
pub async fn matches_schema(url: &str) -> Result<bool, MigrationError> {
    const SQL: &str = "SELECT max(version) FROM __diesel_schema_migrations";
    let client = connect(url).await?;
    let newest = match client.query_one(SQL, &[]).await {
        Ok(row) => row.try_get::<_, Option<String>>(0)?,
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(newest == runner::newest_version()?)
}

/// A hash of the embedded migrations. It is the key of template databases and caches.
#[must_use]
pub fn migrations_hash() -> u64 {
    let digest = Sha256::digest(CHECKSUMS);
    digest.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Creates a database on a managed server, unless the database exists.
///
/// # Errors
/// When the server is unreachable or rejects the statement.
pub async fn create_database(server_url: &str, name: &str) -> Result<(), MigrationError> {
    let client = connect(server_url).await?;
    static FIND: Query = Query::new("SELECT FROM pg_database WHERE datname = {name}");
    let input = Input::without_rows().with_param("name", name);
    let sql = FIND.text(&input).map_err(|error| MigrationError::Database(Box::new(error)))?;
    if client.query_opt(sql, &input.params()).await?.is_none() {
        client.batch_execute(&format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\""))).await?;
    }
    Ok(())
}

pub(crate) async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = Config::from_str(url)?.connect(tls_connector()).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(
                error = %redact_driver_error(error),
                "the connection of the database owner failed; its statements fail"
            );
        }
    });
    Ok(client)
}

/// Lets the connecting role act as `fairway_service`, the role of the servers. Lets `fairway_service` read the
/// schema version, which tools compare. The message level is raised, because PostgreSQL sends a notice for a grant
/// that already exists, and the driver would log it at every start.
const GRANTS: &str = "
    SET client_min_messages = warning;
    GRANT fairway_service TO CURRENT_USER;
    GRANT SELECT ON __diesel_schema_migrations TO fairway_service;
";

/// Inserts the first tenant with its namespace, workspace and assistant, under the identifiers that the
/// documentation uses.
const FIRST_TENANT: &str = "
    INSERT INTO tenant (tenant_id, slug, name, notifications_enabled, advanced_notifications_enabled, public_hosts,
        revision, created_at, created_by)
    VALUES ('00000000-0000-7000-8000-000000000001', 'default', 'Default', true, false, '{}', 1, fairway_now(),
        'system:bootstrap')
    ON CONFLICT DO NOTHING;
    INSERT INTO namespace (tenant_id, namespace_id, slug)
    VALUES ('00000000-0000-7000-8000-000000000001', '00000000-0000-7000-8000-000000000002', 'default')
    ON CONFLICT DO NOTHING;
    INSERT INTO workspace (tenant_id, workspace_id, namespace_id, slug, name, created_at, created_by)
    VALUES ('00000000-0000-7000-8000-000000000001', '00000000-0000-7000-8000-000000000003',
        '00000000-0000-7000-8000-000000000002', 'default', 'Default', fairway_now(), 'system:bootstrap')
    ON CONFLICT DO NOTHING;
    INSERT INTO workload (tenant_id, workload_id, slug, name, description, owner_ref, status, invocation_mode,
        workspace_id, revision, created_at, created_by, updated_at, management_source)
    VALUES ('00000000-0000-7000-8000-000000000001', '00000000-0000-7000-8000-000000000004',
        'knowledge-assistant-default', 'Knowledge assistant default', '', 'team:default', 'registered', 'chat',
        '00000000-0000-7000-8000-000000000003', 1, fairway_now(), 'system:bootstrap', fairway_now(),
        'workspace_builtin')
    ON CONFLICT DO NOTHING;
    INSERT INTO fact_log (tenant_id, size) VALUES ('00000000-0000-7000-8000-000000000001', 0)
    ON CONFLICT DO NOTHING;
";
