//! The state of a server process, as its `postmaster.pid` file describes it.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::StartError;

/// Timeouts for stopping a server without an owner: first for a fast shutdown with a checkpoint, then for an
/// immediate shutdown.
const FAST_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
const IMMEDIATE_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The content of `postmaster.pid`. PostgreSQL documents its lines in `pidfile.h`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PidFile {
    pub(crate) process: u32,
    /// The TCP port, from the fourth line of the file.
    pub(crate) port: Option<u16>,
    /// Whether the server accepts connections, from the eighth line of the file.
    pub(crate) is_ready: bool,
}

impl PidFile {
    /// Reads the file of a data directory; `None` if it is missing or incomplete.
    pub(crate) fn read(data: &Path) -> Option<PidFile> {
        PidFile::parse(&fs::read_to_string(data.join("postmaster.pid")).ok()?)
    }

    fn parse(text: &str) -> Option<PidFile> {
        let mut lines = text.lines();
        // A server in single-user mode writes a negative process id, which does not parse. Such a server must not
        // be stopped.
        let process = lines.next()?.trim().parse().ok()?;
        let port = lines.nth(2).and_then(|port| port.trim().parse().ok());
        let is_ready = lines.nth(3).is_some_and(|status| status.trim() == "ready");
        Some(PidFile { process, port, is_ready })
    }
}

/// The port of the server on this directory, if it accepts connections.
pub(crate) fn accepting_port(data: &Path) -> Option<u16> {
    let PidFile { process, port, is_ready } = PidFile::read(data)?;
    port.filter(|_| is_ready && is_server_on(process, data))
}

/// Ensures that no server runs on this directory. The caller holds the directory's lock, so a server that still
/// runs has lost its owner.
pub(crate) fn stop_leftover_server(data: &Path) -> Result<(), StartError> {
    let file = data.join("postmaster.pid");
    if !file.exists() {
        return Ok(());
    }
    if let Some(PidFile { process, .. }) = PidFile::read(data)
        && is_server_on(process, data)
    {
        return stop_abandoned(process, data);
    }
    // The server has ended. PostgreSQL removes the file of an ended process itself, with two exceptions: another
    // process has the same id (common in containers, where ids restart), or a power loss left the file empty.
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
    .map_err(StartError::io("removing a dead server's process file"))
}

fn stop_abandoned(process: u32, data: &Path) -> Result<(), StartError> {
    for (signal, timeout) in [(Signal::SIGINT, FAST_SHUTDOWN_TIMEOUT), (Signal::SIGQUIT, IMMEDIATE_SHUTDOWN_TIMEOUT)] {
        send_signal(process, signal).map_err(StartError::io("stopping an abandoned server"))?;
        let since = Instant::now();
        while since.elapsed() < timeout {
            if !is_server_on(process, data) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    Err(StartError::Abandoned(process))
}

/// Sends a signal. A process that has already ended is not an error.
pub(crate) fn send_signal(process: u32, signal: Signal) -> io::Result<()> {
    let Ok(process) = i32::try_from(process) else { return Err(io::ErrorKind::InvalidInput.into()) };
    match kill(Pid::from_raw(process), signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether this process is a server on this directory. The kernel reuses process ids, so the command line must
/// contain the directory.
fn is_server_on(process: u32, data: &Path) -> bool {
    command_line(process).is_some_and(|line| {
        let directory = data.as_os_str().as_encoded_bytes();
        line.windows(directory.len()).any(|part| part == directory)
    })
}

/// The command line of a process; `None` if the process has ended. The command line of a zombie is empty.
fn command_line(process: u32) -> Option<Vec<u8>> {
    if Path::new("/proc/self/cmdline").exists() {
        return fs::read(format!("/proc/{process}/cmdline")).ok();
    }
    let output = Command::new("ps")
        .args(["-ww", "-o", "args=", "-p", &process.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    Some(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_process_id_port_and_readiness() {
        let starting = "4711\n/data\n1795258000\n5433\n\n127.0.0.1\n  123  0\nstarting\n";
        let ready = "4711\n/data\n1795258000\n5433\n\n127.0.0.1\n  123  0\nready   \n";
        assert_eq!(PidFile::parse(starting), Some(PidFile { process: 4711, port: Some(5433), is_ready: false }));
        assert_eq!(PidFile::parse(ready), Some(PidFile { process: 4711, port: Some(5433), is_ready: true }));
        assert_eq!(PidFile::parse("4711\n"), Some(PidFile { process: 4711, port: None, is_ready: false }));
        assert_eq!(PidFile::parse(""), None);
        assert_eq!(PidFile::parse("-4711\n"), None);
    }

    #[test]
    fn spares_other_processes_and_removes_the_pid_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("postmaster.pid");
        // The file names this test process, which is alive but is not a server on that folder.
        fs::write(&file, format!("{}\n{}\n", std::process::id(), folder.path().display())).unwrap();
        stop_leftover_server(folder.path()).unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn stops_an_abandoned_server_of_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        // A program whose command line contains the directory, as that of a server does.
        let script = "trap 'exit 0' INT; while :; do read -r line < \"${0}/pipe\"; done";
        nix::unistd::mkfifo(&folder.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut child = Command::new("sh").arg("-c").arg(script).arg(folder.path()).spawn().unwrap();
        fs::write(folder.path().join("postmaster.pid"), format!("{}\n", child.id())).unwrap();
        // A new process has no command line for a short time.
        while !is_server_on(child.id(), folder.path()) {
            thread::yield_now();
        }
        stop_leftover_server(folder.path()).unwrap();
        assert!(child.wait().is_ok());
    }
}
