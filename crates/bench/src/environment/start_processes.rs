//! Starts the processes of a benchmark run: the baseline, servers, workers, stubs and gateways.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fairway_managed_postgres::parent_death::{self, DeathSignal};
use fairway_managed_postgres::unused_port::unused_address;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::{BASELINE_DATABASE, DATABASE, Postgres, RunDirectory};
use crate::baseline_service;
use crate::child_process::ChildProcess;
use crate::provider_benchmark::GATEWAY_KEY;
use crate::queued_runs::WORKERS;
use crate::stub_provider;
use crate::stub_webhook_receiver;
use crate::verified_tokens::{self, Issuer};

/// Connections in the pool of each worker thread of the baseline; the server uses the same number.
const POOL_SIZE: usize = 8;

/// Number of worker threads of the baseline; the server uses the same number.
fn worker_thread_count() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Starts this executable as the baseline service.
pub(crate) async fn start_baseline(run_directory: &RunDirectory, postgres: &Postgres) -> Result<ChildProcess> {
    let address = unused_address()?;
    let executable = std::env::current_exe().context("finding this program")?;
    let mut command = parent_death::command(executable, DeathSignal::Terminate);
    command.arg("floor").arg("--bind").arg(address.to_string());
    command.arg("--workers").arg(worker_thread_count().to_string()).arg("--connections").arg(POOL_SIZE.to_string());
    command.env(baseline_service::DATABASE_URL_VARIABLE, postgres.server.url(BASELINE_DATABASE));
    let mut floor = ChildProcess::start(command, address, run_directory.join("floor.log"))?;
    floor.wait_until_ready(&baseline_service::read_path(1), Instant::now()).await.context("starting the baseline")?;
    Ok(floor)
}

/// Time from a server's start to its first responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstResponseTimes {
    /// Time to the health check.
    pub(crate) health: Duration,
    /// Time to a read from the database.
    pub(crate) read: Duration,
}

/// Starts a server over a database, and waits for its first responses.
pub(crate) async fn start_server(
    run_directory: &RunDirectory,
    postgres: &Postgres,
    database: &str,
    program: &Path,
) -> Result<(ChildProcess, FirstResponseTimes)> {
    let address = unused_address()?;
    let mut command = server_command(run_directory, postgres, database, program, address);
    command.arg("serve");
    let since = Instant::now();
    let mut server = ChildProcess::start(
        command,
        address,
        run_directory.join(&format!("server-{database}-{}.log", address.port())),
    )?;
    let health = server.wait_until_ready("/healthz", since).await.context("starting the server")?;
    let read = server.wait_until_ready("/v1/workspaces?limit=1", since).await.context("reading from the server")?;
    Ok((server, FirstResponseTimes { health, read }))
}

/// Runs the migrations of a server executable.
pub(crate) fn run_migrations(
    run_directory: &RunDirectory,
    postgres: &Postgres,
    database: &str,
    program: &Path,
) -> Result<()> {
    let mut command = server_command(run_directory, postgres, database, program, unused_address()?);
    let status = command.arg("migrate").status().context("starting the migrations")?;
    ensure!(status.success(), "the migrations failed ({status})");
    Ok(())
}

/// Starts a server that executes no queued runs, and separate worker processes.
pub(crate) async fn start_server_and_workers(
    run_directory: &RunDirectory,
    postgres: &Postgres,
    program: &Path,
) -> Result<(ChildProcess, Vec<ChildProcess>)> {
    let start = |arguments: &[&str], log: &str| -> Result<ChildProcess> {
        let address = unused_address()?;
        let mut command = server_command(run_directory, postgres, DATABASE, program, address);
        command.args(arguments).env("FAIRWAY_DISPATCH", "queued");
        ChildProcess::start(command, address, run_directory.join(log))
    };
    let mut server = start(&["serve", "--no-worker"], "queue.log")?;
    server
        .wait_until_ready("/v1/workspaces?limit=1", Instant::now())
        .await
        .context("starting the server of queued runs")?;
    let workers = (0..WORKERS).map(|number| start(&["worker"], &format!("worker-{number}.log")));
    Ok((server, workers.collect::<Result<_>>()?))
}

/// Starts this executable as a model provider, and a server with an account for that provider.
pub(crate) async fn start_provider_and_server(
    run_directory: &RunDirectory,
    postgres: &Postgres,
    program: &Path,
) -> Result<(ChildProcess, ChildProcess)> {
    let address = unused_address()?;
    let executable = std::env::current_exe().context("finding this program")?;
    let mut command = parent_death::command(executable, DeathSignal::Terminate);
    command.arg("provider").arg("--bind").arg(address.to_string());
    let mut provider = ChildProcess::start(command, address, run_directory.join("provider.log"))?;
    provider.wait_until_ready(stub_provider::READINESS_PATH, Instant::now()).await.context("starting the provider")?;
    let settings = run_directory.join("accounts.toml");
    let account = format!(
        "[[providers]]\naccount_slot = \"{}\"\nkind = \"openai\"\nbase_url = \"http://{address}/v1\"\n\
         residency = \"eu\"\n",
        stub_provider::ACCOUNT_SLOT
    );
    fs::write(&settings, account).with_context(|| format!("writing {}", settings.display()))?;
    let address = unused_address()?;
    let mut command = server_command(run_directory, postgres, DATABASE, program, address);
    command.arg("serve").arg("--config").arg(settings);
    let mut server = ChildProcess::start(command, address, run_directory.join("asking.log"))?;
    server
        .wait_until_ready("/v1/workspaces?limit=1", Instant::now())
        .await
        .context("starting the server with an account")?;
    Ok((provider, server))
}

/// Starts a server with these command-line options.
pub(crate) async fn start_server_with(
    run_directory: &RunDirectory,
    postgres: &Postgres,
    program: &Path,
    options: &[&str],
) -> Result<ChildProcess> {
    let address = unused_address()?;
    let mut command = server_command(run_directory, postgres, DATABASE, program, address);
    command.arg("serve").args(options);
    let log = run_directory.join(&format!("server-{}.log", address.port()));
    let mut server = ChildProcess::start(command, address, log)?;
    server.wait_until_ready("/v1/workspaces?limit=1", Instant::now()).await.context("starting a server")?;
    Ok(server)
}

/// Starts a server that verifies the access tokens of an issuer.
pub(crate) async fn start_verifying_server(
    run_directory: &RunDirectory,
    postgres: &Postgres,
    program: &Path,
    issuer: &Issuer,
) -> Result<ChildProcess> {
    let address = unused_address()?;
    let mut command = server_command(run_directory, postgres, DATABASE, program, address);
    command.arg("serve").env("FAIRWAY_AUTH_MODE", "oidc").env("FAIRWAY_OIDC_ISSUER", issuer.url());
    command.env("FAIRWAY_OIDC_AUDIENCE", verified_tokens::AUDIENCE);
    command.env("FAIRWAY_BOOTSTRAP_ADMINS", verified_tokens::ADMINISTRATORS);
    let mut server = ChildProcess::start(command, address, run_directory.join("verifying.log"))?;
    server.wait_until_ready("/healthz", Instant::now()).await.context("starting the server that verifies tokens")?;
    Ok(server)
}

/// Starts this executable as a receiver of webhooks.
pub(crate) async fn start_receiver(run_directory: &RunDirectory) -> Result<ChildProcess> {
    let address = unused_address()?;
    let executable = std::env::current_exe().context("finding this program")?;
    let mut command = parent_death::command(executable, DeathSignal::Terminate);
    command.arg("receiver").arg("--bind").arg(address.to_string());
    let mut receiver = ChildProcess::start(command, address, run_directory.join("receiver.log"))?;
    receiver
        .wait_until_ready(stub_webhook_receiver::DELAYS_PATH, Instant::now())
        .await
        .context("starting the receiver")?;
    Ok(receiver)
}

/// Starts a server whose egress guard allows receivers on this machine.
pub(crate) async fn start_server_with_local_egress(
    run_directory: &RunDirectory,
    postgres: &Postgres,
    program: &Path,
) -> Result<ChildProcess> {
    let address = unused_address()?;
    let mut command = server_command(run_directory, postgres, DATABASE, program, address);
    command.arg("serve").env("FAIRWAY_EGRESS_ALLOW", "127.0.0.0/8");
    let log = run_directory.join(&format!("notifier-{}.log", address.port()));
    let mut server = ChildProcess::start(command, address, log)?;
    server
        .wait_until_ready("/v1/workspaces?limit=1", Instant::now())
        .await
        .context("starting the server with local egress")?;
    Ok(server)
}

/// Starts a LiteLLM gateway with this number of workers and these settings.
pub(crate) async fn start_gateway(
    run_directory: &RunDirectory,
    python: &Path,
    settings: &str,
    workers: usize,
) -> Result<Gateway> {
    let folder = run_directory.join("gateway");
    fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let file = folder.join("settings.yaml");
    fs::write(&file, settings).with_context(|| format!("writing {}", file.display()))?;
    let address = unused_address()?;
    let mut command = parent_death::command(python, DeathSignal::Terminate);
    command.arg(python.with_file_name("litellm")).args(["--host", "127.0.0.1", "--port", &address.port().to_string()]);
    command.arg("--config").arg(file).arg("--num_workers").arg(workers.to_string());
    // Prevents LiteLLM from downloading model prices.
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("NO_PROXY", "*").env("LITELLM_MASTER_KEY", GATEWAY_KEY);
    command.current_dir(&folder).env("HOME", &folder).process_group(0);
    let mut gateway = Gateway(ChildProcess::start(command, address, run_directory.join("gateway.log"))?);
    gateway.0.wait_until_ready("/health/liveliness", Instant::now()).await.context("starting the gateway")?;
    Ok(gateway)
}

/// A gateway with its worker processes; all are killed when dropped.
pub(crate) struct Gateway(pub(crate) ChildProcess);

impl Drop for Gateway {
    fn drop(&mut self) {
        let Ok(group) = i32::try_from(self.0.id()) else { return };
        // The call fails if the process group has ended, which is harmless.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

/// The server command with the settings of this run and one of its databases.
fn server_command(
    run_directory: &RunDirectory,
    postgres: &Postgres,
    database: &str,
    program: &Path,
    address: SocketAddr,
) -> Command {
    let mut command = parent_death::command(program, DeathSignal::Terminate);
    command.current_dir(&run_directory.path);
    remove_settings(&mut command);
    command.envs(BTreeMap::from([
        ("FAIRWAY_BIND", OsString::from(address.to_string())),
        ("FAIRWAY_DATABASE_URL", OsString::from(postgres.server.url(database))),
        ("FAIRWAY_DATA_DIR", run_directory.join(&format!("data-{database}")).into_os_string()),
    ]));
    command
}

/// Removes Fairway's settings from the environment, so that the server runs with defaults.
fn remove_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"FAIRWAY_") || name.as_encoded_bytes().starts_with(b"OTEL_") {
            command.env_remove(name);
        }
    }
}
