//! Child processes with an orderly shutdown.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::signals::Signals;

/// Poll interval for signals and for the exit of a child.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a command to its end and forwards signals. Ctrl-C reaches the child through the terminal, because both share
/// a process group; other signals would reach only this process.
pub(crate) fn run(mut command: Command, signals: &Signals) -> Result<ExitStatus> {
    let mut child = command.spawn().with_context(|| format!("starting {}", command.get_program().display()))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match signals.recv_timeout(POLL_INTERVAL) {
            None | Some(Signal::SIGINT) => {}
            Some(signal) => send_signal(&child, signal),
        }
    }
}

/// The exit of a child, or the request of a user to stop it.
pub(crate) enum ChildEvent {
    Exited(ExitStatus),
    StopRequested,
    Running,
}

/// Polls whether the child has exited or a stop was requested.
pub(crate) fn poll(child: &mut Child, signals: &Signals) -> Result<ChildEvent> {
    if let Some(status) = child.try_wait()? {
        return Ok(ChildEvent::Exited(status));
    }
    Ok(signals.recv_timeout(POLL_INTERVAL).map_or(ChildEvent::Running, |_| ChildEvent::StopRequested))
}

/// Sends a signal to a child that has not been waited for, so its process id is still valid.
pub(crate) fn send_signal(child: &Child, signal: Signal) {
    if let Ok(process) = i32::try_from(child.id()) {
        // The call fails only if the child has just exited, which the next poll reports.
        let _ = kill(Pid::from_raw(process), signal);
    }
}

/// The exit code of this process: that of the child, or 128 plus the number of the signal that
/// ended the child, as in shells.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
