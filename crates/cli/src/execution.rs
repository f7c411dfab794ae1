//! Commands for executions.

pub(crate) mod explain;
mod list;

use crate::{
    command_context::CommandContext,
    dynamic_completion,
    failure::Failure,
    http_client::{ServerClient, string_or_empty},
    release_and_run_references::find_execution,
    run,
    terminal_text::sanitize,
};
use clap::{Args, Subcommand};
use serde_json::json;

/// The subcommands of `fairway executions`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List executions, newest first
    #[command(
        after_help = "Examples:\n  fairway executions list --workload ticket-classifier --status failed\n  fairway executions list --since 2h --error deadline_exceeded --by user:ada"
    )]
    List(list::Arguments),
    /// Show one execution
    #[command(after_help = "Example:\n  fairway executions show 019a... --output json")]
    Show(ExecutionArgument),
    /// Explain on one page why an execution ended as it did, and what to do next
    #[command(after_help = "Examples:\n  fairway executions explain latest\n  fairway executions explain 019a...")]
    Explain(ExecutionArgument),
    /// Wait for an execution to end, and print its answer
    #[command(after_help = "Example:\n  fairway executions wait 019a... --wait 10m")]
    Wait {
        #[command(flatten)]
        execution: ExecutionArgument,
        #[command(flatten)]
        wait_options: run::WaitOptions,
    },
    /// Cancel an execution
    #[command(after_help = "Example:\n  fairway executions cancel 019a...")]
    Cancel(ExecutionArgument),
}

/// Argument that names an execution.
#[derive(Args)]
pub(crate) struct ExecutionArgument {
    /// The execution's id or its unique beginning, or `latest`
    #[arg(value_name = "EXECUTION", add = dynamic_completion::executions())]
    reference: String,
}

impl ExecutionArgument {
    /// Resolves the reference to the execution's id.
    pub(crate) fn find(&self, server: &ServerClient) -> Result<String, Failure> {
        find_execution(server, &self.reference)
    }
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        Command::List(arguments) => list::run(arguments, &server, output),
        Command::Show(execution) => output.record(&server.get(&["executions", &execution.find(&server)?], &[])?),
        Command::Explain(execution) => explain::run(&execution.find(&server)?, &server, output),
        Command::Wait { execution, wait_options } => {
            run::wait_for_run(&server, output, &execution.find(&server)?, wait_options)
        }
        Command::Cancel(execution) => {
            let id = execution.find(&server)?;
            let cancelled = server.post(&["executions", &id, "cancel"], &json!({}));
            output.record(&cancelled.map_err(|failure| explain_cancellation(&server, &id, failure))?)
        }
    }
}

/// Adds the status of the run to the server's refusal to cancel it.
fn explain_cancellation(server: &ServerClient, id: &str, failure: Failure) -> Failure {
    let Failure::Refused(mut refusal) = failure else { return failure };
    if refusal.code != "execution_not_cancellable" {
        return Failure::Refused(refusal);
    }
    let execution = server.get(&["executions", id], &[]).unwrap_or_default();
    let status = string_or_empty(&execution, "status");
    if !status.is_empty() {
        refusal.message = format!("{}; its status is {}", refusal.message, sanitize(status));
    }
    Failure::Refused(refusal).with_next(format!("fairway executions explain {}", sanitize(id)))
}
