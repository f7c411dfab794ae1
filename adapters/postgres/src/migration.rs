//! Bringing a database up to date, and keeping partitions ahead of time.

use crate::{
    database::tls,
    driver_error::{of_driver, of_runner},
};
use std::{error::Error, str::FromStr, time::Duration};
use tokio_postgres::{Client, Config, error::SqlState};

mod embedded {
    refinery::embed_migrations!("../../migrations");
}

/// Vectors as the database's own values, where it has or may have the extension for them. No numbered migration: the
/// extension may come to a database that is up to date.
const VECTORS: &str = include_str!("migration/vectors.sql");
/// Keeps two starting servers from migrating at once; any fixed number does.
const MIGRATION_LOCK: i64 = 0x00FA_14A7;
/// How often a month is tried while somebody reads the family that it is for.
const MONTH_TRIES: u32 = 20;
/// How long is waited between two tries: those who had to wait get their turn.
const MONTH_PAUSE: Duration = Duration::from_millis(250);
/// Partitions are made this many months ahead.
const MONTHS_AHEAD: i32 = 3;

/// Why a database could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// It cannot be reached, or refused a statement.
    #[error("the database refused")]
    Database(#[source] Box<dyn Error + Send + Sync>),
    /// A migration failed, or the database is newer than this program.
    #[error("the schema and this program do not agree")]
    Schema(#[source] Box<dyn Error + Send + Sync>),
}

impl From<tokio_postgres::Error> for MigrationError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(of_driver(error))
    }
}

impl From<refinery::Error> for MigrationError {
    fn from(error: refinery::Error) -> Self {
        Self::Schema(of_runner(error))
    }
}

/// Brings the schema up to date as the owner, makes partitions, and the first tenant. Safe to run at every start and
/// from several processes at once. A schema newer than this program is refused.
///
/// # Errors
/// When the database cannot be reached, a migration fails, or the schema is newer.
pub async fn migrate(owner_url: &str) -> Result<(), MigrationError> {
    let mut client = connect(owner_url).await?;
    client.execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK]).await?;
    // The lock ends with the connection, whatever happens in between.
    embedded::migrations::runner().run_async(&mut client).await?;
    make_months(&client).await?;
    client.batch_execute(VECTORS).await?;
    client.batch_execute("GRANT fairway_service TO CURRENT_USER").await?;
    client.batch_execute(FIRST_TENANT).await?;
    Ok(())
}

/// Whether there is a database at this address, and a schema of Fairway in it.
///
/// # Errors
/// When the server cannot be reached or refuses.
pub async fn holds_schema(url: &str) -> Result<bool, MigrationError> {
    let client = match connect(url).await {
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_DATABASE) => return Ok(false),
        client => client?,
    };
    // By the catalogue, which everybody may read.
    let held = "SELECT FROM pg_tables WHERE schemaname = 'public' AND tablename = 'asset_version'";
    Ok(client.query_opt(held, &[]).await?.is_some())
}

/// Whether the schema at this address is the one that this program was built with: a program beside the servers must not
/// write to another one.
///
/// # Errors
/// When the server cannot be reached or refuses, or the schema is another one.
pub async fn agrees_with_schema(url: &str) -> Result<bool, MigrationError> {
    let client = connect(url).await?;
    let row = client.query_one("SELECT max(version) FROM refinery_schema_history", &[]).await?;
    let ours =
        embedded::migrations::runner().get_migrations().iter().map(|migration| i64::from(migration.version())).max();
    Ok(row.try_get::<_, Option<i32>>(0)?.map(i64::from) == ours)
}

/// Makes the partitions of the coming months; answers how many were missing. To be run daily by the owner.
///
/// # Errors
/// When the database cannot be reached or refuses.
pub async fn prepare_partitions(owner_url: &str) -> Result<i32, MigrationError> {
    make_months(&connect(owner_url).await?).await
}

/// Makes the missing months, each in a transaction of its own, so that no family is closed for longer than that takes. Who
/// reads for long is waited for a little; what is still missing then is made another day, months before it is needed.
async fn make_months(client: &Client) -> Result<i32, MigrationError> {
    let (mut made, mut busy) = (0, 0);
    loop {
        match client.query_one("SELECT fairway_make_partition($1, 1)", &[&MONTHS_AHEAD]).await {
            Ok(row) if row.try_get::<_, Option<&str>>(0)?.is_none() => return Ok(made),
            Ok(_) => made += 1,
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) && busy < MONTH_TRIES => {
                busy += 1;
                tokio::time::sleep(MONTH_PAUSE).await;
            }
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                tracing::warn!("somebody reads for long; months that are missing are made another day");
                return Ok(made);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What became of payloads whose time is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expired {
    /// The months that were dropped, oldest first.
    pub months: Vec<String>,
    /// Whether somebody was in the way, so that more may be left: to be tried again later.
    pub busy: bool,
}

/// Drops the months of what people and models said that ended longer than `kept` ago, each in a transaction of its own.
/// To be run daily by the owner; several at once do no harm.
///
/// # Errors
/// When the database cannot be reached or refuses.
pub async fn expire_payloads(owner_url: &str, kept: Duration) -> Result<Expired, MigrationError> {
    const SQL: &str = "SELECT fairway_expire_payloads(make_interval(secs => $1))";
    let client = connect(owner_url).await?;
    let mut months = Vec::new();
    loop {
        match client.query_one(SQL, &[&kept.as_secs_f64()]).await {
            Ok(row) => match row.try_get(0)? {
                Some(month) => months.push(month),
                None => return Ok(Expired { months, busy: false }),
            },
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                return Ok(Expired { months, busy: true });
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A number that tells one set of migrations from another, for templates and caches.
#[must_use]
pub fn schema_fingerprint() -> u64 {
    let runner = embedded::migrations::runner();
    let migrations = runner.get_migrations();
    migrations.iter().fold(0, |all, migration| all.rotate_left(7) ^ migration.checksum())
}

/// Makes a database on a server that is ours alone, unless it is there.
///
/// # Errors
/// When the server cannot be reached or refuses.
pub async fn create_database(server_url: &str, name: &str) -> Result<(), MigrationError> {
    let client = connect(server_url).await?;
    let known = client.query_opt("SELECT FROM pg_database WHERE datname = $1", &[&name]).await?;
    if known.is_none() {
        client.batch_execute(&format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\""))).await?;
    }
    Ok(())
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = Config::from_str(url)?.connect(tls()).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = %of_driver(error), "the owner's connection ended");
        }
    });
    Ok(client)
}

/// The first start's tenant, namespace, workspace and its assistant, with the identifiers that the documents name.
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
