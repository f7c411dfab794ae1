//! `fairway`: operates a server from a shell, keeps a directory of files in step with it, and checks content without one.

mod asset;
mod audit;
mod command_line;
mod evidence;
mod execution;
mod failure;
mod file;
mod flow;
mod login;
mod output;
mod page;
mod policy;
mod profile;
mod prompt;
mod release;
mod run;
mod server;
mod session;
mod sync;
mod text;
mod workload;

use command_line::CommandLine;
use failure::Failure;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

fn main() -> ExitCode {
    let ended = match CommandLine::said() {
        Ok(line) => command_line::run(line),
        // A wrong usage is told on standard error, with the exit code that goes with it.
        Err(misread) if misread.use_stderr() => misread.exit(),
        Err(help) => output::heard(help.print().and_then(|()| io::stdout().flush())),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::tell(&match &failure {
                // Lines that begin with the file, so that editors jump to them.
                Failure::Files(_) => failure.to_string(),
                Failure::Refused(_)
                | Failure::Unreachable { .. }
                | Failure::Foreign { .. }
                | Failure::Usage(_)
                | Failure::Unfit(_)
                | Failure::StillRunning { .. }
                | Failure::Unsettled
                | Failure::Differs
                | Failure::Io { .. }
                | Failure::Unheard => format!("fairway: {failure}"),
            });
            failure.exit_code()
        }
    }
}
