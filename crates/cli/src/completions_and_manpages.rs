//! Shell completions and manual pages.

use crate::{command_line::CommandLine, dynamic_completion, failure::Failure, output};
use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, env::Shells};
use std::{fs, path::PathBuf};

/// Arguments of `completions`.
#[derive(Args)]
#[command(after_help = "Example:\n  fairway completions bash > ~/.local/share/bash-completion/completions/fairway")]
pub(crate) struct CompletionArguments {
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Args)]
#[command(after_help = "Example:\n  fairway man ~/.local/share/man/man1")]
pub(crate) struct ManualArguments {
    /// The directory; created when missing
    directory: PathBuf,
}

pub(crate) fn print_completion_script(arguments: &CompletionArguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    if let Some(shell) = shells.completer(&arguments.shell.to_string()) {
        let written = shell.write_registration(
            dynamic_completion::COMPLETION_VARIABLE,
            "fairway",
            "fairway",
            "fairway",
            &mut script,
        );
        output::ignore_closed_pipe(written)?;
    }
    output::write(&String::from_utf8_lossy(&script))
}

pub(crate) fn write_manual_pages(arguments: &ManualArguments) -> Result<(), Failure> {
    let failed = |cause| Failure::Io { path: arguments.directory.clone(), cause };
    fs::create_dir_all(&arguments.directory).map_err(failed)?;
    clap_mangen::generate_to(CommandLine::command(), &arguments.directory).map_err(failed)
}
