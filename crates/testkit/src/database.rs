//! A separate database for each test.

use anyhow::Context as _;
use fairway_managed_postgres::{Binaries, ManagedServer, state_directories};
use std::{env, sync::OnceLock};
use tokio_postgres::{Client, Config, NoTls};
use uuid::Uuid;

/// The environment variable with the URL of the server that `cargo xtask test` started for the whole test run.
const SERVER_VARIABLE: &str = "FAIRWAY_TEST_POSTGRES_URL";
/// The advisory lock for creating the template; any fixed number works.
const TEMPLATE_LOCK: i64 = 0x7E57;

/// The PostgreSQL server that this process starts when the test run provides none.
static OWN_SERVER: OnceLock<ManagedServer> = OnceLock::new();

/// A clone of the migrated template database; dropped with the value.
pub struct TestDatabase {
    name: String,
    server_url: String,
}

impl TestDatabase {
    /// Clones the migrated template.
    ///
    /// # Errors
    /// When PostgreSQL is unavailable or refuses.
    pub async fn create() -> anyhow::Result<Self> {
        crate::install_crypto_provider();
        let server_url = server_url()?;
        let template = template(&server_url).await?;
        let name = format!("test_{}", Uuid::now_v7().simple());
        let client = connect(&server_url).await?;
        client.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await?;
        Ok(Self { name, server_url })
    }

    /// The database URL for the owner role.
    #[must_use]
    pub fn url_for_owner(&self) -> String {
        url_of_database(&self.server_url, &self.name)
    }

    /// A connection as the owner, to inspect stored data.
    ///
    /// # Errors
    /// When PostgreSQL refuses.
    pub async fn connect_as_owner(&self) -> anyhow::Result<Client> {
        connect(&self.url_for_owner()).await
    }

    /// Sets this database's clock: `fairway_now()` returns the transaction time plus this many seconds.
    ///
    /// # Errors
    /// When PostgreSQL refuses.
    pub async fn set_clock_offset(&self, seconds: i64) -> anyhow::Result<()> {
        let sql = format!(
            "CREATE OR REPLACE FUNCTION fairway_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
             RETURN now() + make_interval(secs => {seconds})"
        );
        Ok(self.connect_as_owner().await?.batch_execute(&sql).await?)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server_url, name) = (self.server_url.clone(), self.name.clone());
        // Runs in a thread with its own runtime, because the test's runtime may be shutting down.
        let dropped = std::thread::spawn(move || -> anyhow::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let client = connect(&server_url).await?;
                client.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
                Ok(())
            })
        });
        // A failed drop is harmless: the temporary server removes all its databases.
        let _ = dropped.join();
    }
}

fn server_url() -> anyhow::Result<String> {
    if let Ok(url) = env::var(SERVER_VARIABLE) {
        return Ok(url);
    }
    if let Some(server) = OWN_SERVER.get() {
        return Ok(server.url("postgres"));
    }
    let binaries = Binaries::find(&state_directories::directory()?)
        .context("no PostgreSQL; run the tests by `cargo xtask test`")?;
    let started = ManagedServer::start_temporary(binaries, Vec::new())?;
    Ok(OWN_SERVER.get_or_init(|| started).url("postgres"))
}

/// The name of the migrated template database. The first test that needs the template creates it. The name
/// contains the fingerprint of the migrations, and the month, because the template has partitions from its month on.
async fn template(server_url: &str) -> anyhow::Result<String> {
    let today = time::OffsetDateTime::now_utc().date();
    let (hash, year, month) = (fairway_postgres::migrations_hash(), today.year(), u8::from(today.month()));
    let name = format!("template_{hash:016x}_{year}_{month}");
    let client = connect(server_url).await?;
    let template_exists_sql = "SELECT FROM pg_database WHERE datname = $1 AND datistemplate";
    if client.query_opt(template_exists_sql, &[&name]).await?.is_some() {
        return Ok(name);
    }
    client.execute("SELECT pg_advisory_lock($1)", &[&TEMPLATE_LOCK]).await?;
    if client.query_opt(template_exists_sql, &[&name]).await?.is_none() {
        // A killed test run can leave an incomplete template, which has no `datistemplate` flag yet. It is dropped
        // and created again.
        client.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        client.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        fairway_postgres::migrate(&url_of_database(server_url, &name)).await?;
        client.batch_execute(&format!("ALTER DATABASE {name} IS_TEMPLATE true ALLOW_CONNECTIONS false")).await?;
    }
    client.execute("SELECT pg_advisory_unlock($1)", &[&TEMPLATE_LOCK]).await?;
    Ok(name)
}

/// Connects to a database URL.
///
/// # Errors
/// When PostgreSQL refuses.
pub async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = url.parse::<Config>()?.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The URL of another database on the same server.
fn url_of_database(server_url: &str, name: &str) -> String {
    let (address, parameters) = server_url.split_once('?').unwrap_or((server_url, ""));
    let server = address.rsplit_once('/').map_or(address, |(server, _)| server);
    let separator = if parameters.is_empty() { "" } else { "?" };
    format!("{server}/{name}{separator}{parameters}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_the_database_in_the_url() {
        assert_eq!(url_of_database("postgres://a@h:1/postgres", "x"), "postgres://a@h:1/x");
        assert_eq!(
            url_of_database("postgres://a@h:1/postgres?sslmode=disable", "x"),
            "postgres://a@h:1/x?sslmode=disable"
        );
    }

    #[tokio::test]
    async fn clones_are_migrated_and_isolated() {
        let (first, second) = (TestDatabase::create().await.unwrap(), TestDatabase::create().await.unwrap());
        first
            .connect_as_owner()
            .await
            .unwrap()
            .batch_execute("DELETE FROM workload; DELETE FROM workspace")
            .await
            .unwrap();
        let count = "SELECT count(*) FROM workspace";
        let workspaces: i64 = second.connect_as_owner().await.unwrap().query_one(count, &[]).await.unwrap().get(0);
        assert_eq!(workspaces, 1);
    }
}
