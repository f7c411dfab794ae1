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

use clap::Parser as _;
use command_line::CommandLine;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    match command_line::run(CommandLine::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that left has seen what it wanted to.
        Err(Failure::Unheard) => ExitCode::SUCCESS,
        Err(failure) => {
            output::tell(&match &failure {
                // Lines that begin with the file, so that editors jump to them.
                Failure::Files(_) => failure.to_string(),
                Failure::Refused(_)
                | Failure::Unreachable { .. }
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
