//! A managed server: its options, start and stop.

mod cluster;
mod pid_file;
mod process;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::binaries::Binaries;
use crate::os_account::Account;
use crate::temporary_directories;
use crate::unused_port::unused_address;
use cluster::{Cluster, ExistingCluster};
pub(crate) use pid_file::stop_leftover_server;
use process::Process;

/// The database superuser of every managed server.
pub const SUPERUSER: &str = "fairway";

/// Attempts to start on a free port. Another program may take a port after it was found to be free.
const MAX_PORT_ATTEMPTS: u32 = 5;

/// The durability of a server's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterLifetime {
    /// PostgreSQL's default durability, with a password: committed data survives a power loss.
    Default,
    /// No `fsync` and no password; the directory is removed when the server stops. For tests only.
    Temporary,
}

/// The options of a managed server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The programs to run.
    pub binaries: Binaries,
    /// The directory with all files of the server: `cluster/`, `password`, `log`, `lock`. Created if missing. If
    /// the server's account cannot enter it, another directory is used; [`ManagedServer::server_directory`] returns the
    /// actual one.
    pub server_directory: PathBuf,
    /// The port on 127.0.0.1; `None` chooses a free one.
    pub port: Option<u16>,
    /// Configuration parameters by name; they override the defaults of this crate.
    pub settings: Vec<(String, String)>,
    /// The durability of the data.
    pub durability: ClusterLifetime,
}

impl Options {
    /// Options of the server in Fairway's data directory (`FAIRWAY_DATA_DIR`): durable, on a free port.
    pub fn of_data_directory(binaries: Binaries, data_directory: &Path) -> Options {
        Options {
            binaries,
            server_directory: data_directory.join("postgres"),
            port: None,
            settings: Vec::new(),
            durability: ClusterLifetime::Default,
        }
    }
}

/// Reason why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another live process owns the directory.
    #[error("the PostgreSQL in {} already belongs to another running Fairway{}", .path.display(), owner_suffix(*.owner))]
    InUse {
        /// The server directory that the process owns.
        path: PathBuf,
        /// The process id of its owner, if known.
        owner: Option<u32>,
    },
    /// The directory has no cluster, and the caller did not permit creating one.
    #[error("{} has no PostgreSQL cluster of a Fairway", .0.display())]
    NoCluster(PathBuf),
    /// The server of another process accepts no connections at the moment.
    #[error("the PostgreSQL in {} is starting or stopping", .0.display())]
    NotAccepting(PathBuf),
    /// The caller is root, and the machine has no unprivileged account for the server.
    #[error("root cannot run PostgreSQL, and this machine has neither a `postgres` nor a `nobody` account")]
    NoAccount,
    /// The data was written by another major version of PostgreSQL.
    #[error("{} was written by PostgreSQL {written_by}, and {programs} was found: set FAIRWAY_POSTGRES_BIN to the \
             programs of that version, or dump and restore", .path.display())]
    OtherMajor {
        /// The server directory that contains the data.
        path: PathBuf,
        /// The major version that wrote the data.
        written_by: u32,
        /// The major version of the programs.
        programs: u32,
    },
    /// The directory chosen for a temporary server already contains data, which the server's stop would delete.
    #[error("{} already has data, and a temporary server would delete it", .0.display())]
    NotEmpty(PathBuf),
    /// `initdb` failed.
    #[error("initdb failed: {0}")]
    Initdb(String),
    /// The server ended during its start. Contains the last lines of its log.
    #[error("PostgreSQL ended while starting: {0}")]
    Ended(String),
    /// The server runs but accepted no connections in time.
    #[error("PostgreSQL was not ready within {} s: {log}", .waited.as_secs())]
    NotReady {
        /// How long the caller waited for the server.
        waited: Duration,
        /// The last lines of the server's log.
        log: String,
    },
    /// A server was left running by a killed owner, and cannot be stopped.
    #[error("an abandoned PostgreSQL (process {0}) does not stop")]
    Abandoned(u32),
    /// An operation on a file or process failed.
    #[error("{operation}: {source}")]
    Io {
        /// The failed operation, in words for the error message.
        operation: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

fn owner_suffix(owner: Option<u32>) -> String {
    owner.map_or_else(String::new, |process| format!(" (process {process})"))
}

impl StartError {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            StartError::InUse { .. } => "private_postgres_in_use",
            StartError::NoCluster(_) => "private_postgres_no_cluster",
            StartError::NotAccepting(_) => "private_postgres_not_accepting",
            StartError::NoAccount => "private_postgres_no_account",
            StartError::OtherMajor { .. } => "private_postgres_other_major",
            StartError::NotEmpty(_) => "private_postgres_not_empty",
            StartError::Initdb(_) => "private_postgres_initdb_failed",
            StartError::Ended(_) => "private_postgres_ended",
            StartError::NotReady { .. } => "private_postgres_not_ready",
            StartError::Abandoned(_) => "private_postgres_abandoned",
            StartError::Io { .. } => "private_postgres_io",
        }
    }

    pub(crate) fn io(operation: &'static str) -> impl FnOnce(io::Error) -> StartError {
        move |source| StartError::Io { operation, source }
    }
}

/// Reason why a server did not stop as requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// The shutdown timed out, and the server was terminated. Its next start recovers from the write-ahead log.
    #[error("PostgreSQL did not shut down in time and was terminated; its next start recovers")]
    Forced,
    /// Signalling or waiting failed.
    #[error("PostgreSQL could not be stopped: {0}")]
    Io(#[from] io::Error),
}

/// A running managed server. Dropping it stops it.
pub struct ManagedServer {
    process: Process,
    cluster: Cluster,
    port: u16,
}

impl ManagedServer {
    /// Starts the server on its directory, and waits until it accepts connections. The first start creates the
    /// cluster. This call blocks: asynchronous code must run it on a blocking thread.
    ///
    /// The cluster uses UTF-8, the C locale and UTC. It has the superuser [`SUPERUSER`] and no databases besides
    /// those of PostgreSQL. The server listens on 127.0.0.1 only. If a killed owner left a server running on the
    /// directory, that server is stopped first.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(options: Options) -> Result<ManagedServer, StartError> {
        let account = Account::choose().map_err(|_| StartError::NoAccount)?;
        let cluster = Cluster::open(&options, account)?;
        stop_leftover_server(cluster.data_directory())?;
        let mut attempt = 1;
        loop {
            let port = match options.port {
                Some(port) => port,
                None => unused_address().map_err(StartError::io("finding an unused port"))?.port(),
            };
            match Process::start(&options, &cluster, port) {
                Ok(process) => return Ok(ManagedServer { process, cluster, port }),
                // Another program may take the port before the server listens on it. The last children of a killed
                // postmaster also hold its shared memory for a short time. A retry succeeds in both cases.
                Err(StartError::Ended(log))
                    if attempt < MAX_PORT_ATTEMPTS && is_temporary_failure(&log, options.port) =>
                {
                    attempt += 1
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts the server of an existing cluster, and never creates a cluster.
    ///
    /// # Errors
    /// [`StartError::NoCluster`] if no cluster exists; otherwise see [`StartError`].
    pub fn start_existing(options: Options) -> Result<ManagedServer, StartError> {
        let account = Account::choose().map_err(|_| StartError::NoAccount)?;
        ExistingCluster::find(&options.server_directory, &account)?;
        ManagedServer::start(options)
    }

    /// The `postgres://` URL of `database` on the server that another process runs on this directory. It contains
    /// the password and must not be logged. That server stops when its process ends, even if other connections are
    /// open.
    ///
    /// # Errors
    /// [`StartError::NoCluster`] or [`StartError::NotAccepting`]; otherwise see [`StartError`].
    pub fn url_of_running(server_directory: &Path, database: &str) -> Result<String, StartError> {
        let account = Account::choose().map_err(|_| StartError::NoAccount)?;
        let cluster = ExistingCluster::find(server_directory, &account)?;
        let port = pid_file::accepting_port(cluster.data_directory());
        let port = port.ok_or_else(|| StartError::NotAccepting(cluster.server_directory().to_owned()))?;
        Ok(url(Some(&cluster.password()?), port, database))
    }

    /// Starts a temporary server in a new directory. The directory is in memory if enough is free, otherwise below
    /// the state directory. Servers and directories left behind by killed processes are stopped and removed first.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_temporary(binaries: Binaries, settings: Vec<(String, String)>) -> Result<ManagedServer, StartError> {
        let server_directory =
            temporary_directories::fresh_directory().map_err(StartError::io("creating a temporary directory"))?;
        ManagedServer::start(Options {
            binaries,
            server_directory,
            port: None,
            settings,
            durability: ClusterLifetime::Temporary,
        })
    }

    /// The `postgres://` URL of `database` for the superuser. It contains the password and must not be logged.
    pub fn url(&self, database: &str) -> String {
        url(self.cluster.password(), self.port, database)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the server.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// The directory in use. This is the requested directory, or a substitute below the state directory if the
    /// server's account cannot enter the requested one.
    pub fn server_directory(&self) -> &Path {
        self.cluster.server_directory()
    }

    /// Whether the server is running.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Stops the server: it closes its connections and writes committed data to disk.
    ///
    /// # Errors
    /// See [`StopError`]. The server has also ended after [`StopError::Forced`].
    pub fn stop(mut self) -> Result<(), StopError> {
        self.process.stop()
    }

    /// Terminates the server immediately, like a crash; its next start recovers from the write-ahead log. For fault
    /// tests.
    ///
    /// # Errors
    /// [`StopError::Io`].
    pub fn stop_immediately(mut self) -> Result<(), StopError> {
        self.process.stop_immediately()
    }
}

impl Drop for ManagedServer {
    fn drop(&mut self) {
        // A destructor cannot report errors; the next start on the directory cleans up.
        let _ = self.process.stop();
        match self.cluster.durability() {
            ClusterLifetime::Default => {}
            ClusterLifetime::Temporary => {
                let _ = fs::remove_dir_all(self.cluster.server_directory());
            }
        }
    }
}

impl fmt::Debug for ManagedServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ManagedServer")
            .field("server_directory", &self.cluster.server_directory())
            .field("port", &self.port)
            .field("process", &self.process.id())
            .finish_non_exhaustive()
    }
}

fn url(password: Option<&str>, port: u16, database: &str) -> String {
    let password = password.map_or_else(String::new, |password| format!(":{password}"));
    format!("postgres://{SUPERUSER}{password}@127.0.0.1:{port}/{}", percent_encoded(database))
}

/// Whether a start failed for a temporary reason, so that a retry may succeed.
fn is_temporary_failure(log: &str, fixed_port: Option<u16>) -> bool {
    let port_taken = log.contains("could not bind") && fixed_port.is_none();
    port_taken || log.contains("pre-existing shared memory block")
}

/// Percent-encodes all but unreserved characters (RFC 3986).
fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_a_taken_port_only_if_it_was_chosen_here() {
        let log = "LOG:  could not bind IPv4 address \"127.0.0.1\": Address already in use";
        assert!(is_temporary_failure(log, None));
        assert!(!is_temporary_failure(log, Some(5432)));
        assert!(!is_temporary_failure("FATAL:  unrecognized configuration parameter", None));
    }

    #[test]
    fn database_names_are_escaped_in_urls() {
        assert_eq!(percent_encoded("fairway_1"), "fairway_1");
        assert_eq!(percent_encoded("a/b?c d"), "a%2Fb%3Fc%20d");
    }
}
