//! Child processes of the benchmark.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::connection::{Connection, get};

/// Timeout of a process's start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a process's shutdown.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum bytes of a log in an error message.
const MAX_LOG_TAIL_BYTES: usize = 2_000;

/// A child process; killed when dropped.
pub(crate) struct ChildProcess {
    child: Child,
    log: PathBuf,
    /// The address that the process listens on.
    pub(crate) address: SocketAddr,
}

impl ChildProcess {
    /// Starts a command that listens on `address`. Its output is written to the file `log`.
    pub(crate) fn start(mut command: Command, address: SocketAddr, log: PathBuf) -> Result<ChildProcess> {
        let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let program = command.get_program().to_owned();
        let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        Ok(ChildProcess { child, log, address })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `path` responds with 200. Returns the time that has passed since `since`.
    pub(crate) async fn wait_until_ready(&mut self, path: &str, since: Instant) -> Result<Duration> {
        loop {
            if let Ok(mut connection) = Connection::open(self.address).await
                && connection.send(get(path)).await.is_ok_and(|response| response.status == 200)
            {
                return Ok(since.elapsed());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} exited with {status}: {}", self.address, self.log_tail());
            }
            if since.elapsed() > START_TIMEOUT {
                bail!("{}{path} does not respond with 200: {}", self.address, self.log_tail());
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// The end of the process's log.
    pub(crate) fn log_tail(&self) -> String {
        file_tail(&self.log).unwrap_or_else(|error| format!("(its log cannot be read: {error})"))
    }

    /// Sends SIGTERM and waits for the process to exit.
    pub(crate) async fn stop(&mut self) -> Result<ExitStatus> {
        if self.child.try_wait()?.is_none() {
            let process = i32::try_from(self.child.id()).context("the process id is out of range")?;
            kill(Pid::from_raw(process), Signal::SIGTERM)?;
        }
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if since.elapsed() > STOP_TIMEOUT {
                bail!("a process did not exit within {} s: {}", STOP_TIMEOUT.as_secs(), self.log_tail());
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // Both calls fail if the process has ended, which is harmless.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn file_tail(log: &Path) -> io::Result<String> {
    let bytes = fs::read(log)?;
    let start = bytes.len().saturating_sub(MAX_LOG_TAIL_BYTES);
    let (_, end) = bytes.split_at(start);
    Ok(String::from_utf8_lossy(end).into_owned())
}

/// Waits for SIGINT or SIGTERM, and returns its name.
pub(crate) async fn wait_for_stop_signal() -> io::Result<&'static str> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => Ok("interrupted"),
        _ = terminate.recv() => Ok("terminated"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_tail_is_bounded() {
        let path = std::env::temp_dir().join(format!("fairway-bench-log-{}", std::process::id()));
        fs::write(&path, "x".repeat(MAX_LOG_TAIL_BYTES).to_owned() + "last").unwrap();
        let end = file_tail(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(end.len(), MAX_LOG_TAIL_BYTES);
        assert!(end.ends_with("last"));
    }
}
