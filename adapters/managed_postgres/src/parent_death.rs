//! Child processes that end with their parent.

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

/// A command for `program` that the kernel signals when the spawning **thread** ends, if this machine supports it.
///
/// Linux with util-linux does: `setpriv` registers the signal and then becomes the program, so the process id is the
/// program's own. Elsewhere the plain command is returned, and the child may outlive its parent. The kernel watches
/// the thread, so spawn from one that lives as long as the child should.
pub fn command(program: impl AsRef<OsStr>, farewell: DeathSignal) -> Command {
    if !is_supported() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", farewell.name(), "--"]).arg(program);
    command
}

/// Whether [`command`] binds its children on this machine. Determined once per process.
pub fn is_supported() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        // Other implementations of `setpriv` lack the option, so the option itself is tested.
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
