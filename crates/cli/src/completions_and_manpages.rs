//! Shell completions and manual pages.

use crate::{command_line::CommandLine, failure::Failure, output};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
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

pub(crate) fn print_completions(arguments: &CompletionArguments) -> Result<(), Failure> {
    // Generated into memory first, because clap_complete panics when the reader has closed standard output.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut CommandLine::command(), "fairway", &mut script);
    output::write(&String::from_utf8_lossy(&script))
}

pub(crate) fn write_manual_pages(arguments: &ManualArguments) -> Result<(), Failure> {
    let failed = |cause| Failure::Io { path: arguments.directory.clone(), cause };
    fs::create_dir_all(&arguments.directory).map_err(failed)?;
    clap_mangen::generate_to(CommandLine::command(), &arguments.directory).map_err(failed)
}
