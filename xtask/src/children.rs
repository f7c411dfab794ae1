//! Child processes that are stopped in an orderly way.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::signals::Signals;

/// How long one look at the signals lasts, and so how late the end of a child may be noticed.
const GLANCE: Duration = Duration::from_millis(20);

/// Runs `command` to its end and hands it what it would miss: Ctrl-C reaches it through the terminal, as it shares
/// this process's group, but a request to this process alone does not.
pub(crate) fn run(mut command: Command, signals: &Signals) -> Result<ExitStatus> {
    let mut child = command.spawn().with_context(|| format!("starting {}", command.get_program().display()))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match signals.within(GLANCE) {
            None | Some(Signal::SIGINT) => {}
            Some(signal) => send(&child, signal),
        }
    }
}

/// What happened first.
pub(crate) enum Event {
    Ended(ExitStatus),
    Asked,
    NothingYet,
}

/// Looks for a moment whether the child ended or somebody asked to stop.
pub(crate) fn glance(child: &mut Child, signals: &Signals) -> Result<Event> {
    if let Some(status) = child.try_wait()? {
        return Ok(Event::Ended(status));
    }
    Ok(signals.within(GLANCE).map_or(Event::NothingYet, |_| Event::Asked))
}

/// Sends a signal to a child that has not been waited for; its id is therefore its own still.
pub(crate) fn send(child: &Child, signal: Signal) {
    if let Ok(process) = i32::try_from(child.id()) {
        // The one failure possible is that it has just ended, which the next look at it tells.
        let _ = kill(Pid::from_raw(process), signal);
    }
}

/// The exit code to pass on: the child's own, or as shells say it, 128 and the signal that ended it.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
