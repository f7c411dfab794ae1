//! Child processes that do not outlive the process that started them.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The signal a child receives when its parent is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// `SIGINT`: PostgreSQL's fast shutdown.
    Interrupt,
    /// `SIGTERM`: the ordinary request to end.
    Terminate,
}

impl Farewell {
    fn name(self) -> &'static str {
        match self {
            Farewell::Interrupt => "INT",
            Farewell::Terminate => "TERM",
        }
    }
}

/// A command for `program` that the kernel signals when the spawning **thread** ends, where this machine can do that.
///
/// It can on Linux with util-linux, whose `setpriv` asks the kernel and then becomes the program, so the process id is
/// the program's own. Elsewhere the plain command is returned: callers must bear a child that lives on. Because the
/// kernel watches the thread, spawn from one that lives as long as the child should.
pub fn command(program: impl AsRef<OsStr>, farewell: Farewell) -> Command {
    if !is_possible() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", farewell.name(), "--"]).arg(program);
    command
}

/// Whether [`command`] binds its children here. Asked of the machine once per process.
pub fn is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        // Other makers' `setpriv` lack the option, so the option itself is tried.
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
