//! Commands for erasures of a person's texts.

use crate::{command_context::CommandContext, dynamic_completion, failure::Failure, output::Column};
use clap::{Subcommand, builder::PossibleValuesParser};
use fairway_domain::erasure::ErasureStatus;
use serde_json::json;

const COLUMNS: [Column; 6] = [
    ("ERASURE", "/erasure_id"),
    ("SUBJECT", "/subject"),
    ("STATUS", "/status"),
    ("RUNS", "/erased_runs"),
    ("REQUESTED BY", "/requested_by"),
    ("REQUESTED", "/requested_at"),
];

/// The subcommands of `fairway erasures`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the erasures of the tenant, newest first
    #[command(after_help = "Example:\n  fairway erasures list --status requested")]
    List {
        /// Only erasures in this status
        #[arg(long, value_parser =
            PossibleValuesParser::new(ErasureStatus::ALL.iter().map(|status| status.as_str())))]
        status: Option<String>,
    },
    /// Show an erasure with its status and the number of erased texts
    #[command(after_help = "Example:\n  fairway erasures show 019a...")]
    Show {
        /// The id of the erasure
        #[arg(add = dynamic_completion::erasures())]
        id: String,
    },
    /// Request the erasure of the texts of one actor, which another person approves
    #[command(
        after_help = "The texts are inputs, results and payloads of the actor's runs, its conversations, and the \
        documents that it added. Evidence keeps their digests, so bundles still verify.\n\n\
        Example:\n  fairway erasures request user:ada@example.org"
    )]
    Request {
        /// The actor: `user:NAME`, `service:NAME` or `share_link:ID`
        subject: String,
    },
    /// Approve an erasure that another person requested; the texts cannot be restored
    #[command(after_help = "Example:\n  fairway erasures approve 019a...")]
    Approve {
        /// The id of the erasure
        #[arg(add = dynamic_completion::erasures())]
        id: String,
    },
    /// Refuse an erasure, or withdraw your own request
    #[command(after_help = "Example:\n  fairway erasures refuse 019a...")]
    Refuse {
        /// The id of the erasure
        #[arg(add = dynamic_completion::erasures())]
        id: String,
    },
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        Command::List { status } => {
            let query: Vec<(&str, &str)> = status.as_deref().map(|status| ("status", status)).into_iter().collect();
            output.list(&server.list(&["erasures"], &query)?, &COLUMNS)
        }
        Command::Show { id } => output.record(&server.get(&["erasures", id], &[])?),
        Command::Request { subject } => {
            let requested = server.post(&["erasures"], &json!({ "subject": subject }))?;
            output.change_result(&requested, "fairway erasures list --status requested")
        }
        Command::Approve { id } => {
            let approved = server.post(&["erasures", id, "approve"], &json!({}))?;
            output.change_result(&approved, &format!("fairway erasures show {id}"))
        }
        Command::Refuse { id } => {
            let refused = server.post(&["erasures", id, "refuse"], &json!({}))?;
            output.change_result(&refused, "fairway erasures list")
        }
    }
}
