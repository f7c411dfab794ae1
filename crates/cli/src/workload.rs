//! Commands for workloads.

use crate::{
    failure::Failure,
    output::Column,
    server::{Method, Server, required_string, string_or_empty},
    session::Session,
};
use clap::{Subcommand, builder::PossibleValuesParser};
use fairway_domain::workload::Status;
use serde_json::Value;

const COLUMNS: [Column; 5] = [
    ("SLUG", "/slug"),
    ("STATUS", "/status"),
    ("MODE", "/invocation_mode"),
    ("OWNER", "/owner_ref"),
    ("UPDATED", "/updated_at"),
];

/// Workload commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the workloads of the workspace
    #[command(after_help = "Example:\n  fairway workloads list --output json")]
    List {
        /// Only workloads with this status
        #[arg(long, value_parser = PossibleValuesParser::new(Status::ALL.map(Status::as_str)))]
        status: Option<String>,
    },
    /// Show one workload
    #[command(after_help = "Example:\n  fairway workloads show ticket-classifier")]
    Show {
        /// The workload's slug or id
        slug: String,
    },
    /// Suspend a workload: refuses new runs and cancels active ones
    #[command(after_help = "Example:\n  fairway workloads suspend ticket-classifier")]
    Suspend {
        /// The workload's slug or id
        slug: String,
    },
    /// Resume a suspended workload
    #[command(after_help = "Example:\n  fairway workloads resume ticket-classifier")]
    Resume {
        /// The workload's slug or id
        slug: String,
    },
}

pub(crate) fn run(command: &Command, session: &Session) -> Result<(), Failure> {
    let (output, server) = session.open()?;
    match command {
        Command::List { status } => {
            let mut query = vec![("workspace_id", server.workspace_id()?)];
            query.extend(status.as_deref().map(|status| ("status", status)));
            output.list(&server.list(&["workloads"], &query)?, &COLUMNS)
        }
        Command::Show { slug } => output.one(&find_workload(&server, slug)?),
        Command::Suspend { slug } => output.one(&set_status(&server, slug, Status::Suspended)?),
        Command::Resume { slug } => output.one(&set_status(&server, slug, Status::Registered)?),
    }
}

fn set_status(server: &Server, slug: &str, status: Status) -> Result<Value, Failure> {
    let workload = find_workload(server, slug)?;
    let path = ["workloads", required_string(&workload, "workload_id")?];
    server.update(&Method::PATCH, &path, &serde_json::json!({ "status": status.as_str() }))
}

/// Finds a workload by its slug or id.
pub(crate) fn find_workload(server: &Server, slug: &str) -> Result<Value, Failure> {
    let found = match uuid::Uuid::parse_str(slug) {
        Ok(_) => server.find(&["workloads", slug], &[])?,
        Err(_) => find_by_slug(server, slug)?,
    };
    found.ok_or_else(|| Failure::Failed("this workspace has no such visible workload".to_owned()))
}

/// Finds a workload by its slug in the workspace.
pub(crate) fn find_by_slug(server: &Server, slug: &str) -> Result<Option<Value>, Failure> {
    let listed = server.list(&["workloads"], &[("workspace_id", server.workspace_id()?)])?;
    Ok(listed.into_iter().find(|workload| string_or_empty(workload, "slug") == slug))
}
