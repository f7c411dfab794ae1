//! One private server: its options, its life, its end.

mod cluster;
mod port;
mod postmaster;
mod process;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::account::Account;
use crate::binaries::Binaries;
use crate::throwaway;
use cluster::{Cluster, Found};
pub(crate) use postmaster::settle;
use process::Process;

/// The database superuser of every private server.
pub const SUPERUSER: &str = "fairway";

/// How often another port is tried after a stranger took the one that was free a moment ago.
const ATTEMPTS: u32 = 5;

/// What the server's data is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// PostgreSQL's own defaults, and a password: what was acknowledged survives a power cut.
    Default,
    /// No `fsync`, no password, and the directory is removed when the server stops. For tests alone.
    Throwaway,
}

/// How to start a private server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The programs to run.
    pub binaries: Binaries,
    /// The directory that holds all of the server: `cluster/`, `password`, `log`, `lock`. Created when missing; see
    /// [`PrivateServer::data_dir`] for where it ends up when root's server could not reach it.
    pub data_dir: PathBuf,
    /// The port on 127.0.0.1; a free one is chosen when there is none.
    pub port: Option<u16>,
    /// Configuration parameters by name; they win over this crate's own.
    pub settings: Vec<(String, String)>,
    /// What the data is worth.
    pub durability: Durability,
}

impl Options {
    /// The server that belongs to Fairway's own data directory (`FAIRWAY_DATA_DIR`): durable, on a free port.
    pub fn of_data_directory(binaries: Binaries, data_directory: &Path) -> Options {
        Options {
            binaries,
            data_dir: data_directory.join("postgres"),
            port: None,
            settings: Vec::new(),
            durability: Durability::Default,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another live process owns the directory.
    #[error("the PostgreSQL in {} already belongs to another running Fairway{}", .path.display(), holder(*.owner))]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process id of its owner, where it is known.
        owner: Option<u32>,
    },
    /// There was to be a cluster, and there is none.
    #[error("{} holds no PostgreSQL of a Fairway", .0.display())]
    NoCluster(PathBuf),
    /// Another process's server accepts nothing at the moment.
    #[error("the PostgreSQL in {} is starting or stopping just now", .0.display())]
    NotAccepting(PathBuf),
    /// The caller is root, and there is no account to hand the server to.
    #[error("root cannot run PostgreSQL, and this machine has neither a `postgres` nor a `nobody` account")]
    NoAccount,
    /// The data was written by another major version.
    #[error("{} was written by PostgreSQL {written_by}, and {programs} was found: name that one's programs in \
             FAIRWAY_POSTGRES_BIN, or dump and restore", .path.display())]
    OtherMajor {
        /// The directory.
        path: PathBuf,
        /// The major version that wrote the data.
        written_by: u32,
        /// The major version of the programs.
        programs: u32,
    },
    /// A directory that was asked to be removed on stop holds somebody's data already.
    #[error("{} exists already, and a throw-away server would delete it", .0.display())]
    NotEmpty(PathBuf),
    /// `initdb` refused.
    #[error("initdb failed: {0}")]
    Initdb(String),
    /// The server ended instead of starting; the last lines of its log.
    #[error("PostgreSQL ended while starting: {0}")]
    Ended(String),
    /// The server runs but accepts nothing; the last lines of its log.
    #[error("PostgreSQL did not get ready within {} s: {log}", .waited.as_secs())]
    NotReady {
        /// How long it was waited for.
        waited: Duration,
        /// The end of its log.
        log: String,
    },
    /// The server of a killed owner does not stop.
    #[error("an abandoned PostgreSQL (process {0}) does not stop")]
    Abandoned(u32),
    /// A file or process could not be handled.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

fn holder(owner: Option<u32>) -> String {
    owner.map_or_else(String::new, |process| format!(" (process {process})"))
}

impl StartError {
    /// A stable name of the refusal.
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

    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> StartError {
        move |source| StartError::Io { doing, source }
    }
}

/// Why a server did not stop as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// It did not finish its shutdown in time and was ended without; the next start replays its log.
    #[error("PostgreSQL did not shut down in time and was ended; its next start recovers")]
    Forced,
    /// It could not be signalled or waited for.
    #[error("PostgreSQL could not be stopped: {0}")]
    Io(#[from] io::Error),
}

/// A running private server. Stopped when dropped.
pub struct PrivateServer {
    process: Process,
    cluster: Cluster,
    port: u16,
}

impl PrivateServer {
    /// Starts the server on its directory, making a new cluster there the first time, and waits until it accepts
    /// connections. Blocks: from asynchronous code call it on a thread for blocking work.
    ///
    /// The cluster is UTF-8 in the C locale, in UTC, with the superuser [`SUPERUSER`]; nothing is created in it. It
    /// listens on 127.0.0.1 alone. A server that a killed owner left behind on the directory is stopped first.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(options: Options) -> Result<PrivateServer, StartError> {
        let account = Account::choose().map_err(|_| StartError::NoAccount)?;
        let cluster = Cluster::open(&options, account)?;
        settle(cluster.directory())?;
        let mut attempt = 1;
        loop {
            let port = match options.port {
                Some(port) => port,
                None => port::free().map_err(StartError::io("finding a free port"))?,
            };
            match Process::start(&options, &cluster, port) {
                Ok(process) => return Ok(PrivateServer { process, cluster, port }),
                // Between finding a port and listening on it another program may have taken it; and the last children
                // of a killed postmaster hold its shared memory for a moment.
                Err(StartError::Ended(log)) if attempt < ATTEMPTS && passes(&log, options.port) => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The same for a cluster that is there already: none is made.
    ///
    /// # Errors
    /// [`StartError::NoCluster`], and see [`StartError`].
    pub fn start_existing(options: Options) -> Result<PrivateServer, StartError> {
        let account = Account::choose().map_err(|_| StartError::NoAccount)?;
        Found::look(&options.data_dir, &account)?;
        PrivateServer::start(options)
    }

    /// A `postgres://` URL of `database` on the server that another process runs on this directory. It carries the
    /// password: not for logs. The server ends with its owner, whoever else is connected.
    ///
    /// # Errors
    /// [`StartError::NoCluster`], [`StartError::NotAccepting`], or the password cannot be read.
    pub fn url_of_running(data_dir: &Path, database: &str) -> Result<String, StartError> {
        let account = Account::choose().map_err(|_| StartError::NoAccount)?;
        let found = Found::look(data_dir, &account)?;
        let port = postmaster::accepting(found.directory());
        let port = port.ok_or_else(|| StartError::NotAccepting(found.home().to_owned()))?;
        Ok(url(Some(&found.password()?), port, database))
    }

    /// Starts a throw-away server in a fresh directory below the state directory. What killed runs left there is
    /// stopped and removed first.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn throwaway(binaries: Binaries, settings: Vec<(String, String)>) -> Result<PrivateServer, StartError> {
        let data_dir = throwaway::fresh_directory().map_err(StartError::io("making a throw-away directory"))?;
        PrivateServer::start(Options { binaries, data_dir, port: None, settings, durability: Durability::Throwaway })
    }

    /// A `postgres://` URL of `database` for the superuser. It carries the password: not for logs.
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

    /// The directory in use: the one asked for, or the substitute below the state directory when the caller is root
    /// and the server's account cannot reach the one asked for.
    pub fn data_dir(&self) -> &Path {
        self.cluster.home()
    }

    /// Whether the server still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Stops the server: open connections are ended, everything acknowledged is on disk.
    ///
    /// # Errors
    /// See [`StopError`]; the server is gone in either case of [`StopError::Forced`].
    pub fn stop(mut self) -> Result<(), StopError> {
        self.process.stop()
    }

    /// Ends the server at once, as a crash would: the next start recovers from its log. For fault tests.
    ///
    /// # Errors
    /// [`StopError::Io`].
    pub fn stop_immediately(mut self) -> Result<(), StopError> {
        self.process.stop_immediately()
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        // A destructor has nobody to tell; whatever stays behind is settled by the next start.
        let _ = self.process.stop();
        match self.cluster.durability() {
            Durability::Default => {}
            Durability::Throwaway => {
                let _ = fs::remove_dir_all(self.cluster.home());
            }
        }
    }
}

impl fmt::Debug for PrivateServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PrivateServer")
            .field("data_dir", &self.cluster.home())
            .field("port", &self.port)
            .field("process", &self.process.id())
            .finish_non_exhaustive()
    }
}

fn url(password: Option<&str>, port: u16, database: &str) -> String {
    let password = password.map_or_else(String::new, |password| format!(":{password}"));
    format!("postgres://{SUPERUSER}{password}@127.0.0.1:{port}/{}", percent_encoded(database))
}

/// Whether the cause of a failed start is one that passes by itself.
fn passes(log: &str, fixed_port: Option<u16>) -> bool {
    let port_taken = log.contains("could not bind") && fixed_port.is_none();
    port_taken || log.contains("pre-existing shared memory block")
}

/// RFC 3986: everything but unreserved characters is escaped.
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
    fn a_taken_port_is_left_only_when_it_was_our_choice() {
        let log = "LOG:  could not bind IPv4 address \"127.0.0.1\": Address already in use";
        assert!(passes(log, None));
        assert!(!passes(log, Some(5432)));
        assert!(!passes("FATAL:  unrecognized configuration parameter", None));
    }

    #[test]
    fn database_names_cannot_break_out_of_the_url() {
        assert_eq!(percent_encoded("fairway_1"), "fairway_1");
        assert_eq!(percent_encoded("a/b?c d"), "a%2Fb%3Fc%20d");
    }
}
