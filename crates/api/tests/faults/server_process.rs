//! Starts, signals and observes `fairway-server` processes.

use crate::api_client::ApiClient;
use fairway_managed_postgres::parent_death::{self, DeathSignal};
use fairway_testkit::unused_address;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    env,
    fs::{self, File, Permissions},
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Time limit for a started server to become ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Poll interval of [`wait_until`] and of waits for a process.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The unit of processor times in `/proc`: 1/100 s (`USER_HZ`) on Linux.
const CPU_TICK: Duration = Duration::from_millis(10);
/// Name of the optional settings file.
const CONFIG_FILE: &str = "fairway.toml";
/// Environment variables that the server inherits. They locate the PostgreSQL binaries, which a server needs for its
/// managed PostgreSQL.
const INHERITED_VARIABLES: [&str; 2] = ["FAIRWAY_STATE_DIR", "FAIRWAY_POSTGRES_BIN"];

/// The settings of a server. The server can be started repeatedly, always on the same address.
pub(crate) struct ServerSetup {
    pub(crate) address: SocketAddr,
    pub(crate) work_dir: TempDir,
    settings: Vec<(&'static str, String)>,
}

impl ServerSetup {
    /// Settings with a free port, an empty data directory, and this database.
    pub(crate) fn new(database_url: &str) -> Self {
        let work_dir = tempfile::tempdir().unwrap();
        // If the test runs as root, the managed PostgreSQL runs under another account, which needs access to this
        // directory.
        fs::set_permissions(work_dir.path(), Permissions::from_mode(0o755)).unwrap();
        let settings = vec![
            ("FAIRWAY_DATABASE_URL", database_url.to_owned()),
            ("FAIRWAY_DATA_DIR", work_dir.path().join("data").display().to_string()),
            ("FAIRWAY_WORKER_LEASE", "2s".to_owned()),
            // The generator would add rows to the tables that tests count.
            ("FAIRWAY_GENERATOR", "off".to_owned()),
            // These limits are high, so that load shedding on a busy machine does not affect the tests.
            ("FAIRWAY_WAITING_LINE", "10000".to_owned()),
            ("FAIRWAY_MEMORY_LIMIT_MIB", "8192".to_owned()),
        ];
        Self { address: unused_address().unwrap(), work_dir, settings }
    }

    /// Settings of another server with its own port and directory, but with the same database, artifacts and
    /// checkpoint archive.
    pub(crate) fn sharing_storage_of(other: &Self) -> Self {
        let mut setup = Self::new(&other.settings[0].1);
        let artifacts = format!("file://{}", other.artifacts_dir().display());
        setup.settings.push(("FAIRWAY_ARTIFACTS_URL", artifacts));
        setup.settings.push(("FAIRWAY_FACTS_URL", format!("file://{}", other.archive_dir().display())));
        setup
    }

    /// Adds an environment variable to the settings of the server.
    pub(crate) fn setting(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.settings.push((name, value.into()));
        self
    }

    /// Writes the settings file that the server reads.
    pub(crate) fn config_file(self, text: &str) -> Self {
        fs::write(self.work_dir.path().join(CONFIG_FILE), text).unwrap();
        self
    }

    /// Runs a subcommand of the server executable with these settings until it exits.
    pub(crate) fn run_command(&self, name: &str) -> Output {
        self.run_with(&[name])
    }

    /// Like [`Self::run_command`], but with arguments.
    pub(crate) fn run_with(&self, arguments: &[&str]) -> Output {
        let mut command = parent_death::command(env!("CARGO_BIN_EXE_fairway-server"), DeathSignal::Terminate);
        self.configure(&mut command);
        command.args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    fn configure(&self, command: &mut Command) {
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if (name.starts_with("FAIRWAY_") && !INHERITED_VARIABLES.contains(&name.as_str()))
                || name.starts_with("OTEL_")
            {
                command.env_remove(name);
            }
        }
        command.current_dir(self.work_dir.path()).env("FAIRWAY_BIND", self.address.to_string());
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
    }

    /// The directory of the artifacts.
    pub(crate) fn artifacts_dir(&self) -> PathBuf {
        self.work_dir.path().join("data/artifacts")
    }

    /// The directory of the published checkpoints.
    pub(crate) fn archive_dir(&self) -> PathBuf {
        self.work_dir.path().join("data/facts")
    }

    /// Starts the server without waiting until it is ready.
    pub(crate) fn spawn(&self) -> Server {
        self.spawn_role(&["serve"])
    }

    /// Starts a rollout controller (`fairway-server rollout-pilot`).
    pub(crate) fn spawn_rollout_controller(&self) -> Server {
        self.spawn_role(&["rollout-pilot"])
    }

    /// Starts a server without workers, which executes no queued runs.
    pub(crate) fn spawn_without_worker(&self) -> Server {
        self.spawn_role(&["serve", "--no-worker"])
    }

    /// Starts a worker, which executes queued runs and has no HTTP API.
    pub(crate) fn spawn_worker(&self) -> Server {
        self.spawn_role(&["worker"])
    }

    fn spawn_role(&self, role: &[&str]) -> Server {
        let log = self.work_dir.path().join(format!("{}-{}.log", role.concat(), self.address.port()));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = parent_death::command(env!("CARGO_BIN_EXE_fairway-server"), DeathSignal::Terminate);
        self.configure(&mut command);
        command.args(role);
        if self.work_dir.path().join(CONFIG_FILE).exists() {
            command.args(["--config", CONFIG_FILE]);
        }
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Server {
            child: command.spawn().unwrap(),
            address: self.address,
            client: ApiClient::for_address(self.address),
            log_path: log,
        }
    }

    /// Starts the server and waits until it is ready.
    pub(crate) async fn start(&self) -> Server {
        let mut server = self.spawn();
        server.wait_until_ready().await;
        server
    }
}

/// A server process. It is killed when dropped.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    log_path: PathBuf,
    pub(crate) client: ApiClient,
}

impl Server {
    /// Waits until `/readyz` responds with 200.
    ///
    /// # Panics
    /// When the process exits before it is ready, or after [`START_TIMEOUT`].
    pub(crate) async fn wait_until_ready(&mut self) {
        let started_at = Instant::now();
        loop {
            if self.client.get("/readyz").await.is_ok_and(|response| response.status == 200) {
                return;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server exited with {status} before it was ready: {}", self.read_log());
            }
            assert!(
                started_at.elapsed() < START_TIMEOUT,
                "the server is not ready after {START_TIMEOUT:?}: {}",
                self.read_log()
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The address on which the server listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The log: standard output and standard error of all processes that were started with this role and port.
    pub(crate) fn read_log(&self) -> String {
        fs::read_to_string(&self.log_path).unwrap()
    }

    /// Kills the process (`SIGKILL`), as the OOM killer does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The current resident memory, and its peak since the last [`Self::reset_peak_memory`].
    pub(crate) fn memory(&self) -> MemoryUsage {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let read_field = |name: &str| -> u64 {
            let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            value.trim().trim_end_matches(" kB").parse().unwrap()
        };
        MemoryUsage { resident_kib: read_field("VmRSS:"), peak_kib: read_field("VmHWM:") }
    }

    /// Resets the peak of the resident memory to the current value.
    pub(crate) fn reset_peak_memory(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    /// Requests a graceful shutdown (`SIGTERM`).
    pub(crate) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Pauses the process (`SIGSTOP`), which simulates a swapping machine.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Resumes the process (`SIGCONT`).
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Total processor time in user and kernel mode (proc(5), fields 14 and 15).
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The program name in parentheses may contain any character, so fields are counted after the last parenthesis.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u32>().unwrap());
        CPU_TICK * ticks.sum::<u32>()
    }

    /// Waits until the process exits.
    ///
    /// # Panics
    /// When the process still runs after `timeout`.
    pub(crate) async fn wait_for_exit(&mut self, timeout: Duration) -> ExitStatus {
        let started_at = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(started_at.elapsed() < timeout, "the process still runs after {timeout:?}: {}", self.read_log());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Resident memory of a process, in KiB.
pub(crate) struct MemoryUsage {
    pub(crate) resident_kib: u64,
    pub(crate) peak_kib: u64,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both calls fail if the process has already exited, which is harmless.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until `condition` returns true.
///
/// # Panics
/// When `condition` is still false after `timeout`.
pub(crate) async fn wait_until(description: &str, timeout: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let started_at = Instant::now();
    while !condition().await {
        assert!(started_at.elapsed() < timeout, "condition not met within {timeout:?}: {description}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
