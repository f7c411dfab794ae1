//! `fairway`: operates a server from a shell, synchronizes a directory with it, and checks content offline.

mod access_request;
mod asset;
mod audit;
mod command_context;
mod command_line;
mod completions_and_manpages;
mod connection;
mod document;
mod dynamic_completion;
mod environment;
mod erasure;
mod evidence;
mod execution;
mod failure;
mod flow;
mod format_units;
mod http_client;
mod init;
mod login;
mod logout;
mod missing_permission;
mod notification;
mod output;
mod policy;
mod profile;
mod prompt;
mod release;
mod release_and_run_references;
mod review;
mod role;
mod run;
mod share_link;
mod sign_in;
mod similar_names;
mod sync;
mod terminal_text;
mod time_argument;
mod unknown_names_in_files;
mod unknown_tenant;
mod untrusted_file;
mod usage;
mod use_case;
mod verify;
mod whoami;
mod workload;

use command_line::CommandLine;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

fn main() -> ExitCode {
    match dynamic_completion::write_completions_if_requested() {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        Err(_) => return ExitCode::FAILURE,
    }
    let result = match CommandLine::from_process() {
        Ok(line) => command_line::run(line),
        // Usage errors are printed on standard error, with clap's exit code.
        Err(error) if error.use_stderr() => command_line::report_misuse(error),
        Err(help) => output::ignore_closed_pipe(help.print().and_then(|()| io::stdout().flush())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::eprint_failure(&failure);
            failure.exit_code()
        }
    }
}
