//! Commands for executions.

pub(crate) mod explain;
mod list;

use crate::{completion, failure::Failure, run, session::Session};
use clap::Subcommand;
use serde_json::json;

/// Execution commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List executions, newest first
    #[command(
        after_help = "Examples:\n  fairway executions list --workload ticket-classifier --status failed\n  fairway executions list --since 2h --error deadline_exceeded --by user:ada"
    )]
    List(list::Arguments),
    /// Show one execution
    #[command(after_help = "Example:\n  fairway executions show 019a... --output json")]
    Show {
        /// The execution's id
        #[arg(add = completion::executions())]
        id: String,
    },
    /// Explain on one page why an execution ended as it did, and what to do next
    #[command(after_help = "Example:\n  fairway executions explain 019a...")]
    Explain {
        /// The execution's id
        #[arg(add = completion::executions())]
        id: String,
    },
    /// Wait for an execution to end, and print its answer
    #[command(after_help = "Example:\n  fairway executions wait 019a... --wait 10m")]
    Wait {
        /// The execution's id
        #[arg(add = completion::executions())]
        id: String,
        #[command(flatten)]
        wait_options: run::WaitOptions,
    },
    /// Cancel an execution
    #[command(after_help = "Example:\n  fairway executions cancel 019a...")]
    Cancel {
        /// The execution's id
        #[arg(add = completion::executions())]
        id: String,
    },
}

pub(crate) fn run(command: &Command, session: &Session) -> Result<(), Failure> {
    let (output, server) = session.open()?;
    match command {
        Command::List(arguments) => list::run(arguments, &server, output),
        Command::Show { id } => output.one(&server.get(&["executions", id], &[])?),
        Command::Explain { id } => explain::run(id, &server, output),
        Command::Wait { id, wait_options: patience } => run::wait_for_run(&server, output, id, patience),
        Command::Cancel { id } => output.one(&server.post(&["executions", id, "cancel"], &json!({}))?),
    }
}
