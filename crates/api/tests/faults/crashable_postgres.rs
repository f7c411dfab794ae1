//! A durable PostgreSQL for one test, which the test can crash or freeze.

use crate::server_process::ServerSetup;
use fairway_managed_postgres::{Binaries, ClusterLifetime, ManagedServer, Options, state_directories};
use fairway_testkit::unused_address;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
};
use tempfile::TempDir;

/// A PostgreSQL server that the test can stop, and start again on the same port and data.
pub(crate) struct CrashablePostgres {
    options: Options,
    server: Option<ManagedServer>,
    _folder: TempDir,
}

impl CrashablePostgres {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let options = Options {
            binaries: Binaries::find(&state_directories::directory().unwrap()).unwrap(),
            server_directory: folder.path().join("postgres"),
            port: Some(unused_address().unwrap().port()),
            settings: Vec::new(),
            durability: ClusterLifetime::Default,
        };
        let mut postgres = Self { options, server: None, _folder: folder };
        postgres.start();
        postgres.disable_password_authentication();
        postgres
    }

    /// Disables password authentication. A pool that reconnects after an outage authenticates many connections at once.
    /// Each SCRAM authentication takes thousands of hash rounds, which are about 100 times slower in a test build.
    fn disable_password_authentication(&mut self) {
        let rules = self.server.as_ref().unwrap().server_directory().join("cluster/pg_hba.conf");
        let text = fs::read_to_string(&rules).unwrap();
        assert!(text.contains("scram-sha-256"), "{text}");
        fs::write(rules, text.replace("scram-sha-256", "trust")).unwrap();
        self.crash();
        self.start();
    }

    pub(crate) fn start(&mut self) {
        self.server = Some(ManagedServer::start(self.options.clone()).unwrap());
    }

    pub(crate) fn crash(&mut self) {
        self.server.take().unwrap().stop_immediately().unwrap();
    }

    pub(crate) fn url(&self, database: &str) -> String {
        self.server.as_ref().unwrap().url(database)
    }

    pub(crate) async fn connect_as_superuser(&self, database: &str) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url(database), tokio_postgres::NoTls).await.unwrap();
        // The connection task ends when the client is dropped or the database stops.
        tokio::spawn(connection);
        client
    }

    /// Creates an empty database and the settings of a server on it.
    pub(crate) async fn create_server_setup(&self) -> ServerSetup {
        fairway_postgres::create_database(&self.url("postgres"), "fairway").await.unwrap();
        ServerSetup::new(&self.url("fairway"))
    }

    /// Pauses all processes of the server (`SIGSTOP`). Connections stay open but receive no response.
    pub(crate) fn pause(&self) -> PausedProcesses {
        let server = self.server.as_ref().unwrap().process_id();
        let mut frozen = PausedProcesses(vec![to_pid(server)]);
        kill(frozen.0[0], Signal::SIGSTOP).unwrap();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A process may exit while its entry in `/proc` is read.
            let Ok(stat) = fs::read_to_string(format!("/proc/{child}/stat")) else { continue };
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
            if parent == Some(server) && kill(to_pid(child), Signal::SIGSTOP).is_ok() {
                frozen.0.push(to_pid(child));
            }
        }
        frozen
    }
}

fn to_pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap())
}

/// Paused processes. Dropping the value resumes them.
pub(crate) struct PausedProcesses(Vec<Pid>);

impl Drop for PausedProcesses {
    fn drop(&mut self) {
        for process in &self.0 {
            // Sending the signal fails if the process has exited, which is harmless.
            let _ = kill(*process, Signal::SIGCONT);
        }
    }
}
