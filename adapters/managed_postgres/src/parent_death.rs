//! Starts child processes that end when their parent ends.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The signal that a child receives when its parent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeathSignal {
    /// `SIGINT`: PostgreSQL's fast shutdown.
    Interrupt,
    /// `SIGTERM`: the default request to terminate.
    Terminate,
}

impl DeathSignal {
    fn name(self) -> &'static str {
        match self {
            DeathSignal::Interrupt => "INT",
            DeathSignal::Terminate => "TERM",
        }
    }
}

/// Returns a command for `program`. Where the machine supports it, the kernel signals the child when the spawning
/// **thread** ends.
///
/// Linux with util-linux supports it: `setpriv` registers the signal and then executes the program in the same
/// process, so the process id is that of the program. On other machines the result is a plain command, whose child
/// may outlive its parent. The kernel watches the thread, so spawn the child from a thread that lives as long as
/// the child should.
pub fn command(program: impl AsRef<OsStr>, signal: DeathSignal) -> Command {
    if !is_supported() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal.name(), "--"]).arg(program);
    command
}

/// Whether the kernel ends the children of [`command`] on this machine. Determined once per process.
pub fn is_supported() -> bool {
    static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();
    *IS_SUPPORTED.get_or_init(|| {
        // Some implementations of `setpriv` lack the option, so this runs the program with the option.
        cfg!(target_os = "linux")
            && Command::new("setpriv")
                .args(["--pdeathsig", "INT", "--", "true"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
    })
}
