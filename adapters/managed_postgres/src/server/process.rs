//! Starts and stops the server process.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::cluster::{Cluster, isolate_environment, last_lines};
use super::pid_file::{PidFile, send_signal};
use super::{ClusterLifetime, Options, StartError, StopError};
use crate::parent_death::{self, DeathSignal};

/// Timeout of a start. It is long, because recovery after a crash may replay a long write-ahead log.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout of a stop. It is long, because a fast shutdown writes a checkpoint.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The server process, and the thread that spawned it.
pub(crate) struct Process {
    child: Child,
    /// Dropping the sender ends the thread that spawned the server. The thread must live as long as the server,
    /// because the kernel signals the server when the thread ends.
    _spawner: Sender<()>,
}

impl Process {
    /// Starts the server and waits until it accepts connections.
    pub(crate) fn start(options: &Options, cluster: &Cluster, port: u16) -> Result<Process, StartError> {
        let log = cluster.new_log().map_err(StartError::io("opening the server's log"))?;
        let mut command = command(options, cluster, port);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut process = spawn(command).map_err(StartError::io("starting the server"))?;
        process.wait_until_ready(cluster)?;
        Ok(process)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn stop(&mut self) -> Result<(), StopError> {
        if !self.is_running() {
            return Ok(());
        }
        send_signal(self.id(), Signal::SIGINT)?;
        if self.ends_within(STOP_TIMEOUT)? {
            return Ok(());
        }
        self.stop_immediately()?;
        Err(StopError::Forced)
    }

    pub(crate) fn stop_immediately(&mut self) -> Result<(), StopError> {
        // The kernel does not reuse the id until `try_wait` has collected the exit status, so the signal cannot
        // reach another process.
        if self.is_running() {
            send_signal(self.id(), Signal::SIGQUIT)?;
            if !self.ends_within(STOP_TIMEOUT)? {
                self.child.kill()?;
                self.child.wait()?;
            }
        }
        Ok(())
    }

    fn ends_within(&mut self, timeout: Duration) -> io::Result<bool> {
        let since = Instant::now();
        while self.child.try_wait()?.is_none() {
            if since.elapsed() > timeout {
                return Ok(false);
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(true)
    }

    fn wait_until_ready(&mut self, cluster: &Cluster) -> Result<(), StartError> {
        let since = Instant::now();
        let log = || last_lines(&fs::read_to_string(cluster.log_file()).unwrap_or_default());
        loop {
            if PidFile::read(cluster.data_directory()).is_some_and(|file| file.is_ready && file.process == self.id()) {
                return Ok(());
            }
            if !self.is_running() {
                return Err(StartError::Ended(log()));
            }
            if since.elapsed() > START_TIMEOUT {
                // A failure to stop is ignored, because the failure to start is more important to the caller.
                let _ = self.stop_immediately();
                return Err(StartError::NotReady { waited: START_TIMEOUT, log: log() });
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

fn command(options: &Options, cluster: &Cluster, port: u16) -> Command {
    let mut command = parent_death::command(options.binaries.postgres(), DeathSignal::Interrupt);
    command.arg("-D").arg(cluster.data_directory());
    let default_settings = [
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
        ("timezone", "UTC"),
        ("log_timezone", "UTC"),
        ("logging_collector", "off"),
        ("log_destination", "stderr"),
    ];
    let temporary_settings: &[(&str, &str)] = match cluster.durability() {
        ClusterLifetime::Default => &[],
        ClusterLifetime::Temporary => &[
            ("fsync", "off"),
            ("synchronous_commit", "off"),
            ("full_page_writes", "off"),
            // Limits the write-ahead log, which may be in memory.
            ("max_wal_size", "1GB"),
            // Tests run in parallel, each with its own connection pool.
            ("max_connections", "300"),
        ],
    };
    let settings = options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in default_settings.into_iter().chain(temporary_settings.iter().copied()).chain(settings) {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    command.arg("-p").arg(port.to_string());
    isolate_environment(&mut command, cluster.data_directory());
    cluster.account().apply(&mut command);
    // The server gets its own process group. Ctrl-C in the terminal signals the foreground group only, so the owner
    // can drain before it stops the server.
    command.process_group(0);
    command
}

/// Spawns the command on a thread that lives until the `Process` is dropped.
fn spawn(mut command: Command) -> io::Result<Process> {
    let (child_sender, child_receiver) = channel();
    let (spawner, drop_receiver) = channel::<()>();
    thread::Builder::new().name("managed-postgres".to_owned()).spawn(move || {
        // A failed send means that the caller no longer waits. Nothing is ever sent to `drop_receiver`: its channel
        // closes when the `Process` is dropped.
        let _ = child_sender.send(command.spawn());
        let _ = drop_receiver.recv();
    })?;
    let child = child_receiver.recv().map_err(|_| io::Error::other("the spawning thread ended"))??;
    Ok(Process { child, _spawner: spawner })
}
