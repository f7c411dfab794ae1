//! An upgrade under load: two builds of the server serve one database while the newer one migrates it.
//!
//! Clients send runs, reads, lists and new versions to the older server throughout, and to the newer server as
//! soon as it is ready. No response may be a server error, and no connection may end before its response.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::closed_loop_clients::ClientScript;
use crate::connection::Connection;
use crate::environment::start_processes::{run_migrations, start_server};
use crate::environment::{DATABASE, Postgres, RunDirectory};
use crate::fixtures::Fixtures;
use crate::scenario::{KeyMode, Scenario, WorkloadSpread};

/// Clients of each kind of request, for each server.
const CLIENTS: usize = 2;
/// Minimum number of requests of each kind that each server answers, which shows that the two were under load together.
const MIN_REQUESTS: u64 = 20;
/// The scenarios whose requests form the load.
const LOAD: [Scenario; 5] = [
    Scenario::Execute { keys: KeyMode::On, workloads: WorkloadSpread::All },
    Scenario::ActiveRelease,
    Scenario::VersionCreate,
    Scenario::Transition,
    Scenario::AuditList,
];

#[derive(Args)]
pub(crate) struct Arguments {
    /// The server executable of the build before
    #[arg(long)]
    from: PathBuf,
    /// The server executable of the new build
    #[arg(long)]
    to: PathBuf,
    /// Seconds of load in each phase: on the earlier server, on both servers, and on the new server alone
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

/// The responses and failures that one client observed.
#[derive(Default)]
struct Tally {
    requests: u64,
    /// The first server errors and broken connections.
    failures: Vec<String>,
}

/// A client that sends requests until the upgrade ends.
struct LoadClient {
    stop: Rc<Cell<bool>>,
    task: JoinHandle<Tally>,
}

/// Performs the upgrade under load, and prints the responses of both servers.
///
/// # Errors
/// When a server does not start, a response is a server error, or a second migration changes anything.
pub(crate) async fn run(arguments: &Arguments, run_directory: &RunDirectory, postgres: &Postgres) -> Result<String> {
    let pause = Duration::from_secs(arguments.seconds);
    let admin = crate::cost_meter::connect(&postgres.url()).await?;
    postgres.create_databases(&admin).await?;
    let [database, _] = postgres.databases(DATABASE).await?;
    let (mut old, _) = start_server(run_directory, postgres, DATABASE, &arguments.from).await?;
    let before = applied_migrations(&database).await?;
    let fixtures = Fixtures::create(old.address, None).await.with_context(|| old.log_tail())?;
    let old_clients = start_clients(old.address, &fixtures)?;
    sleep(pause).await;
    // The newer server migrates the database before it listens, while the older server still serves.
    let (mut new, _) = start_server(run_directory, postgres, DATABASE, &arguments.to).await?;
    let after = applied_migrations(&database).await?;
    let new_clients = start_clients(new.address, &fixtures)?;
    sleep(pause).await;
    run_migrations(run_directory, postgres, DATABASE, &arguments.to)?;
    ensure!(applied_migrations(&database).await? == after, "a second migration changed the list of migrations");
    let old_seen = finish(old_clients).await?;
    ensure!(old.stop().await?.success(), "the older server did not stop cleanly: {}", old.log_tail());
    sleep(pause).await;
    let new_seen = finish(new_clients).await?;
    ensure!(new.stop().await?.success(), "the newer server did not stop cleanly: {}", new.log_tail());
    judge(&[("older", &old_seen), ("newer", &new_seen)])?;
    let added = after.len().saturating_sub(before.len());
    Ok(format!(
        "{} and {} responses of the older and the newer server, no server error; {added} migrations while both served",
        old_seen.requests, new_seen.requests
    ))
}

async fn applied_migrations(database: &Client) -> Result<Vec<String>> {
    let rows = database.query("SELECT version FROM __diesel_schema_migrations ORDER BY version", &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

fn start_clients(address: SocketAddr, fixtures: &Fixtures) -> Result<Vec<LoadClient>> {
    let mut clients = Vec::new();
    for kind in LOAD {
        for script in kind.client_scripts(fixtures, CLIENTS)? {
            let stop = Rc::new(Cell::new(false));
            let task = spawn_local(send_until_stopped(address, script, Rc::clone(&stop)));
            clients.push(LoadClient { stop, task });
        }
    }
    Ok(clients)
}

async fn send_until_stopped(address: SocketAddr, mut script: ClientScript, stop: Rc<Cell<bool>>) -> Tally {
    let mut tally = Tally::default();
    let mut connection = match Connection::open(address).await {
        Ok(connection) => connection,
        Err(error) => return Tally { failures: vec![format!("{error:#}")], ..tally },
    };
    while !stop.get() && tally.failures.len() < 3 {
        let request = (script.next)();
        let request_line = format!("{} {}", request.method(), request.uri());
        match connection.send(request).await {
            Ok(response) if response.status >= 500 => tally.failures.push(format!("{request_line}: {response}")),
            Ok(_) => tally.requests += 1,
            Err(error) => {
                tally.failures.push(format!("{request_line}: {error:#}"));
                break;
            }
        }
    }
    tally
}

async fn finish(clients: Vec<LoadClient>) -> Result<Tally> {
    clients.iter().for_each(|client| client.stop.set(true));
    let mut all = Tally::default();
    for client in clients {
        let tally = client.task.await?;
        ensure!(
            tally.requests >= MIN_REQUESTS || !tally.failures.is_empty(),
            "a client had {} responses only; the load needs more time",
            tally.requests
        );
        all.requests += tally.requests;
        all.failures.extend(tally.failures);
    }
    Ok(all)
}

fn judge(servers: &[(&str, &Tally)]) -> Result<()> {
    for (name, tally) in servers {
        if let Some(first) = tally.failures.first() {
            bail!("{} failures of the {name} server during the upgrade; the first: {first}", tally.failures.len());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_error_of_either_server_fails_the_upgrade() {
        let clean = Tally { requests: 40, failures: Vec::new() };
        let failed = Tally { requests: 40, failures: vec!["GET /: 503".to_owned()] };
        judge(&[("older", &clean), ("newer", &clean)]).unwrap();
        let error = judge(&[("older", &clean), ("newer", &failed)]).unwrap_err();
        assert_eq!(error.to_string(), "1 failures of the newer server during the upgrade; the first: GET /: 503");
    }
}
