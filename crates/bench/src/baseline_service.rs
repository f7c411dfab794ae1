//! The baseline: a minimal service with the same database driver and pool settings as the server.
//!
//! `/read/{id}` renders a point read as JSON. `/commit` inserts two rows in one transaction. `/commit-cte` inserts
//! two rows in a single statement. The service has no checks, log, tenants or limits.

use actix_web::error::ErrorInternalServerError;
use actix_web::web::{self, Data};
use actix_web::{App, HttpResponse, HttpServer};
use anyhow::{Context, Result};
use clap::Args;
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use serde::Serialize;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls};
use uuid::Uuid;

/// The environment variable with the URL of the baseline's database. The URL contains a password, which other
/// processes could read from a command-line argument.
pub(crate) const DATABASE_URL_VARIABLE: &str = "FAIRWAY_BENCH_FLOOR_DATABASE_URL";

/// The number of stored rows that reads select from.
pub(crate) const ROWS: u32 = 1_000;

/// Size of a text column, which makes a row about as large as an active release as JSON.
const NOTE_BYTES: u32 = 1_200;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The address to listen on
    #[arg(long)]
    bind: SocketAddr,
    /// The number of worker threads
    #[arg(long)]
    workers: usize,
    /// The maximum number of connections in each worker's pool
    #[arg(long)]
    connections: usize,
}

/// Creates the baseline's tables, and fills the table for reads.
pub(crate) async fn create_tables(client: &Client) -> Result<()> {
    let sql = format!(
        "CREATE TABLE document (
            document_id uuid PRIMARY KEY,
            owner_id uuid NOT NULL,
            state text NOT NULL,
            environment text NOT NULL,
            revision bigint NOT NULL,
            created_by text NOT NULL,
            note text NOT NULL
         );
         INSERT INTO document
         SELECT lpad(to_hex(number), 32, '0')::uuid, lpad(to_hex(number * 7), 32, '0')::uuid, 'active', 'dev', number,
            'user:local', repeat(md5(number::text), {NOTE_BYTES} / 32)
         FROM generate_series(0, {ROWS} - 1) AS number;
         CREATE TABLE entry (entry_id uuid PRIMARY KEY, subject_id uuid NOT NULL, body text NOT NULL);
         CREATE TABLE line (line_id uuid PRIMARY KEY, entry_id uuid NOT NULL, body text NOT NULL);
         ANALYZE;"
    );
    client.batch_execute(&sql).await.context("creating the baseline's tables")
}

/// The path that reads a row by number.
pub(crate) fn read_path(number: u32) -> String {
    format!("/read/{}", Uuid::from_u128(u128::from(number)))
}

/// Serves the baseline until the process receives a signal.
pub(crate) fn serve(arguments: &Arguments) -> Result<()> {
    let url = std::env::var(DATABASE_URL_VARIABLE).with_context(|| format!("{DATABASE_URL_VARIABLE} is not set"))?;
    let config = Config::from_str(&url).context("parsing the URL of the baseline's database")?;
    let connections = arguments.connections;
    // Validates the pool once here. The factory below runs on every worker and cannot report errors.
    pool(&config, connections)?;
    let server = HttpServer::new(move || {
        let app = App::new()
            .route("/read/{id}", web::get().to(read))
            .route("/commit", web::post().to(commit))
            .route("/commit-cte", web::post().to(commit_cte));
        match pool(&config, connections) {
            Ok(pool) => app.app_data(Data::new(pool)),
            Err(_) => app,
        }
    });
    let server = server.workers(arguments.workers).shutdown_timeout(1).bind(arguments.bind)?.run();
    Ok(actix_web::rt::System::new().block_on(server)?)
}

/// Creates the pool of one worker, with the settings of the server's pools.
fn pool(config: &Config, connections: usize) -> Result<Pool> {
    let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(config.clone(), NoTls, manager);
    let set_timeouts = Hook::async_fn(|client, _| {
        Box::pin(async move {
            let sql = "SET statement_timeout = '5s'; SET lock_timeout = '2s'";
            client.batch_execute(sql).await.map_err(HookError::Backend)
        })
    });
    let wait = Some(Duration::from_secs(2));
    let timeouts = Timeouts { wait, create: wait, recycle: wait };
    let builder = Pool::builder(manager).max_size(connections).runtime(Runtime::Tokio1);
    Ok(builder.timeouts(timeouts).post_create(set_timeouts).build()?)
}

#[derive(Serialize)]
struct Document<'a> {
    document_id: Uuid,
    owner_id: Uuid,
    state: &'a str,
    environment: &'a str,
    revision: i64,
    created_by: &'a str,
    note: &'a str,
}

async fn read(pool: Data<Pool>, id: web::Path<Uuid>) -> actix_web::Result<HttpResponse> {
    let sql = "SELECT document_id, owner_id, state, environment, revision, created_by, note FROM document
        WHERE document_id = $1";
    let client = pool.get().await.map_err(ErrorInternalServerError)?;
    let statement = client.prepare_cached(sql).await.map_err(ErrorInternalServerError)?;
    let row = client.query_one(&statement, &[&*id]).await.map_err(ErrorInternalServerError)?;
    let body = render(&row).map_err(ErrorInternalServerError)?;
    Ok(HttpResponse::Ok().content_type("application/json").body(body))
}

fn render(row: &tokio_postgres::Row) -> Result<String> {
    Ok(serde_json::to_string(&Document {
        document_id: row.try_get(0)?,
        owner_id: row.try_get(1)?,
        state: row.try_get(2)?,
        environment: row.try_get(3)?,
        revision: row.try_get(4)?,
        created_by: row.try_get(5)?,
        note: row.try_get(6)?,
    })?)
}

async fn commit(pool: Data<Pool>) -> actix_web::Result<HttpResponse> {
    let rows = NewRows::new();
    rows.commit(&pool).await.map_err(ErrorInternalServerError)?;
    rows.created_response()
}

async fn commit_cte(pool: Data<Pool>) -> actix_web::Result<HttpResponse> {
    let rows = NewRows::new();
    rows.commit_in_one_statement(&pool).await.map_err(ErrorInternalServerError)?;
    rows.created_response()
}

/// The body of a commit request: two rows to insert.
struct NewRows {
    entry: Uuid,
    line: Uuid,
    subject: Uuid,
    body: &'static str,
}

impl NewRows {
    fn new() -> NewRows {
        let body = "two hundred bytes of something that somebody may want to read again one day, which is about what a \
                    small row of a service holds beside its identifiers and its times, so here it stands, once in each";
        NewRows { entry: Uuid::now_v7(), line: Uuid::now_v7(), subject: Uuid::from_u128(7), body }
    }

    async fn commit(&self, pool: &Pool) -> Result<()> {
        let entry: &[&(dyn ToSql + Sync)] = &[&self.entry, &self.subject, &self.body];
        let line: &[&(dyn ToSql + Sync)] = &[&self.line, &self.entry, &self.body];
        let client = pool.get().await?;
        for (sql, params) in [
            ("BEGIN", &[] as &[&(dyn ToSql + Sync)]),
            ("INSERT INTO entry (entry_id, subject_id, body) VALUES ($1, $2, $3)", entry),
            ("INSERT INTO line (line_id, entry_id, body) VALUES ($1, $2, $3)", line),
            ("COMMIT", &[]),
        ] {
            let statement = client.prepare_cached(sql).await?;
            client.execute(&statement, params).await?;
        }
        Ok(())
    }

    async fn commit_in_one_statement(&self, pool: &Pool) -> Result<()> {
        let sql = "WITH inserted AS (
                INSERT INTO entry (entry_id, subject_id, body) VALUES ($1, $2, $3) RETURNING entry_id
            )
            INSERT INTO line (line_id, entry_id, body) SELECT $4, entry_id, $3 FROM inserted";
        let client = pool.get().await?;
        let statement = client.prepare_cached(sql).await?;
        client.execute(&statement, &[&self.entry, &self.subject, &self.body, &self.line]).await?;
        Ok(())
    }

    fn created_response(&self) -> actix_web::Result<HttpResponse> {
        let body = format!("{{\"entry_id\":\"{}\"}}", self.entry);
        Ok(HttpResponse::Created().content_type("application/json").body(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_path_contains_the_row_s_uuid() {
        assert_eq!(read_path(0), "/read/00000000-0000-0000-0000-000000000000");
        assert_eq!(read_path(ROWS - 1), "/read/00000000-0000-0000-0000-0000000003e7");
    }

    #[test]
    fn new_rows_differ_only_in_their_ids() {
        let (first, second) = (NewRows::new(), NewRows::new());
        assert!(first.entry != second.entry && first.line != first.entry);
        assert!((180..220).contains(&first.body.len()));
    }
}
