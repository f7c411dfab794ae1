//! `fairway`: operates a server from a shell, synchronizes a directory with it, and checks content offline.

mod asset;
mod audit;
mod command_line;
mod completions_and_manpages;
mod evidence;
mod execution;
mod failure;
mod file;
mod flow;
mod login;
mod measure;
mod output;
mod policy;
mod profile;
mod prompt;
mod release;
mod run;
mod server;
mod session;
mod sync;
mod text;
mod usage;
mod workload;

use command_line::CommandLine;
use failure::Failure;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

fn main() -> ExitCode {
    let ended = match CommandLine::from_process() {
        Ok(line) => command_line::run(line),
        // Usage errors go to standard error, with clap's exit code.
        Err(misread) if misread.use_stderr() => misread.exit(),
        Err(help) => output::ignore_closed_pipe(help.print().and_then(|()| io::stdout().flush())),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::eprint(&match &failure {
                // These lines begin with the file, so that editors can jump to it.
                Failure::Files(_) => failure.to_string(),
                Failure::Refused(_)
                | Failure::Unreachable { .. }
                | Failure::NotFairway { .. }
                | Failure::Usage(_)
                | Failure::Failed(_)
                | Failure::StillRunning { .. }
                | Failure::WatchTimedOut
                | Failure::OutOfSync
                | Failure::Io { .. }
                | Failure::OutputClosed => format!("fairway: {failure}"),
            });
            failure.exit_code()
        }
    }
}
