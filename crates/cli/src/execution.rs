//! Commands for executions.

use crate::{failure::Failure, output::Column, run, server::required_string, session::Session, workload};
use clap::Subcommand;
use serde_json::json;

const COLUMNS: [Column; 6] = [
    ("EXECUTION", "/execution_id"),
    ("STATUS", "/status"),
    ("ENVIRONMENT", "/environment"),
    ("LANE", "/lane"),
    ("BY", "/submitted_by"),
    ("STARTED", "/started_at"),
];

/// Execution commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List executions, newest first
    #[command(after_help = "Example:\n  fairway executions list --workload ticket-classifier --status failed")]
    List {
        /// Only executions of this workload
        #[arg(long, value_name = "SLUG")]
        workload: Option<String>,
        /// Only executions of this release
        #[arg(long, value_name = "ID")]
        release: Option<String>,
        /// Only executions in this status, such as running
        #[arg(long)]
        status: Option<String>,
        /// The maximum number of executions
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one execution
    #[command(after_help = "Example:\n  fairway executions show 019a... --output json")]
    Show {
        /// The execution's id
        id: String,
    },
    /// Wait for an execution to end, and print its answer
    #[command(after_help = "Example:\n  fairway executions wait 019a... --wait 10m")]
    Wait {
        /// The execution's id
        id: String,
        #[command(flatten)]
        wait_options: run::WaitOptions,
    },
    /// Cancel an execution
    #[command(after_help = "Example:\n  fairway executions cancel 019a...")]
    Cancel {
        /// The execution's id
        id: String,
    },
}

pub(crate) fn run(command: &Command, session: &Session) -> Result<(), Failure> {
    let (output, server) = session.open()?;
    match command {
        Command::List { workload, release, status, limit } => {
            let of_workload = workload.as_deref().map(|slug| workload::find_workload(&server, slug)).transpose()?;
            let mut query = Vec::new();
            if let Some(workload) = &of_workload {
                query.push(("workload_id", required_string(workload, "workload_id")?));
            }
            query.extend(release.as_deref().map(|id| ("release_id", id)));
            query.extend(status.as_deref().map(|status| ("status", status)));
            output.list(&server.list_first(&["executions"], &query, *limit)?, &COLUMNS)
        }
        Command::Show { id } => output.one(&server.get(&["executions", id], &[])?),
        Command::Wait { id, wait_options: patience } => run::wait_for_run(&server, output, id, patience),
        Command::Cancel { id } => output.one(&server.post(&["executions", id, "cancel"], &json!({}))?),
    }
}
