//! `fairway-server` as a process of its own, and its end.

use crate::remote::Remote;
use fairway_private_postgres::deathbound::{self, Farewell};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    env,
    fs::{self, File, Permissions},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How long a started server may take until it is ready.
const START: Duration = Duration::from_secs(60);
/// Between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(5);
/// One tick of the kernel's accounting: Linux shows processor times in hundredths of a second on every machine.
const TICK: Duration = Duration::from_millis(10);
/// The settings file, where there is one.
const FILE: &str = "fairway.toml";
/// Variables that say where this machine keeps PostgreSQL; a server that starts its own needs them.
const KEPT: [&str; 2] = ["FAIRWAY_STATE_DIR", "FAIRWAY_POSTGRES_BIN"];

/// How a server is started, again and again on the same address.
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) home: TempDir,
    settings: Vec<(&'static str, String)>,
}

impl Place {
    /// A free port and an empty data directory, over this database.
    pub(crate) fn new(database_url: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        // Root's private PostgreSQL runs under an account that must be able to enter.
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        let settings = vec![
            ("FAIRWAY_DATABASE_URL", database_url.to_owned()),
            ("FAIRWAY_DATA_DIR", home.path().join("data").display().to_string()),
            ("FAIRWAY_WORKER_LEASE", "2s".to_owned()),
            // What comes with Fairway would be among what is counted here.
            ("FAIRWAY_GENERATOR", "off".to_owned()),
            // Whatever a busy machine makes of it, what is looked for here is no refusal for load.
            ("FAIRWAY_WAITING_LINE", "10000".to_owned()),
            ("FAIRWAY_MEMORY_LIMIT_MIB", "8192".to_owned()),
        ];
        Self { address: free_address(), home, settings }
    }

    /// Another server's port and directory, over the same database and artifacts.
    pub(crate) fn beside(other: &Self) -> Self {
        let mut place = Self::new(&other.settings[0].1);
        let artifacts = format!("file://{}", other.artifacts().display());
        place.settings.push(("FAIRWAY_ARTIFACTS_URL", artifacts));
        place
    }

    /// With this setting besides.
    pub(crate) fn setting(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.settings.push((name, value.into()));
        self
    }

    /// With a settings file.
    pub(crate) fn file(self, text: &str) -> Self {
        fs::write(self.home.path().join(FILE), text).unwrap();
        self
    }

    /// Runs another command of the program to its end, with the server's settings.
    pub(crate) fn command(&self, name: &str) -> Output {
        let mut command = deathbound::command(env!("CARGO_BIN_EXE_fairway-server"), Farewell::Terminate);
        self.prepare(&mut command);
        command.arg(name).stdin(Stdio::null()).output().unwrap()
    }

    fn prepare(&self, command: &mut Command) {
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if (name.starts_with("FAIRWAY_") && !KEPT.contains(&name.as_str())) || name.starts_with("OTEL_") {
                command.env_remove(name);
            }
        }
        command.current_dir(self.home.path()).env("FAIRWAY_BIND", self.address.to_string());
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
    }

    /// Where the artifacts lie.
    pub(crate) fn artifacts(&self) -> PathBuf {
        self.home.path().join("data/artifacts")
    }

    /// Starts the server; it may not be ready yet.
    pub(crate) fn spawn(&self) -> Server {
        self.spawn_as(&["serve"])
    }

    /// Starts a rollout pilot beside the servers.
    pub(crate) fn pilot(&self) -> Server {
        self.spawn_as(&["rollout-pilot"])
    }

    /// Starts a server that runs nothing out of the line.
    pub(crate) fn front(&self) -> Server {
        self.spawn_as(&["serve", "--no-worker"])
    }

    /// Starts a worker beside the servers.
    pub(crate) fn worker(&self) -> Server {
        self.spawn_as(&["worker"])
    }

    fn spawn_as(&self, role: &[&str]) -> Server {
        let log = self.home.path().join(format!("{}-{}.log", role.concat(), self.address.port()));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = deathbound::command(env!("CARGO_BIN_EXE_fairway-server"), Farewell::Terminate);
        self.prepare(&mut command);
        command.args(role);
        if self.home.path().join(FILE).exists() {
            command.args(["--config", FILE]);
        }
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Server { child: command.spawn().unwrap(), address: self.address, remote: Remote::to(self.address), log }
    }

    /// Starts the server and waits until it is ready.
    pub(crate) async fn start(&self) -> Server {
        let mut server = self.spawn();
        server.ready().await;
        server
    }
}

/// A running server. Killed when dropped.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
    pub(crate) remote: Remote,
}

impl Server {
    /// Waits until it is ready.
    pub(crate) async fn ready(&mut self) {
        let since = Instant::now();
        loop {
            if self.remote.get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
                return;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server ended with {status} before it was ready: {}", self.said());
            }
            assert!(since.elapsed() < START, "the server does not get ready: {}", self.said());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything that it said.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Ends it at once, as the kernel does when memory runs out.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// How much memory it holds, and the most it held since it was last told to forget that.
    pub(crate) fn memory(&self) -> Memory {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = |name: &str| -> u64 {
            let rest = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            rest.trim().trim_end_matches(" kB").parse().unwrap()
        };
        Memory { now: line("VmRSS:"), peak: line("VmHWM:") }
    }

    /// Makes the most that it held what it holds now.
    pub(crate) fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Stops it where it is, as a machine that swaps does.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Processor time that it has taken so far, in user and kernel mode together, as the kernel accounts for it
    /// (proc(5), fields 14 and 15).
    pub(crate) fn processor_time(&self) -> Duration {
        let line = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The program's name is in parentheses and may hold anything, so fields are counted behind it.
        let (_, fields) = line.rsplit_once(')').unwrap();
        let ticks = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u32>().unwrap());
        TICK * ticks.sum::<u32>()
    }

    /// Waits for its end.
    pub(crate) async fn ended_within(&mut self, patience: Duration) -> ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(since.elapsed() < patience, "still there after {patience:?}: {}", self.said());
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Resident memory, in KiB.
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended refuses both, rightly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks until it is so.
pub(crate) async fn until(what: &str, patience: Duration, mut so: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !so().await {
        assert!(since.elapsed() < patience, "not within {patience:?}: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}
