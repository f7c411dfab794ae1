//! Commands for the audit log.

use crate::{command_context::CommandContext, failure::Failure, output::Column};
use clap::Subcommand;

const COLUMNS: [Column; 6] = [
    ("INDEX", "/index"),
    ("WHEN", "/occurred_at"),
    ("KIND", "/kind"),
    ("ACTOR", "/actor"),
    ("SUBJECT", "/subject/kind"),
    ("ID", "/subject/id"),
];

const KEY_COLUMNS: [Column; 2] = [("STATUS", "/status"), ("KEY", "/verifier_key")];

/// The subcommands of `fairway audit`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the newest entries
    #[command(after_help = "Example:\n  fairway audit list --limit 200 --output json")]
    List {
        /// The maximum number of entries
        #[arg(long, default_value_t = 50)]
        limit: usize,
        /// Only entries about this resource
        #[arg(long, value_name = "ID")]
        subject: Option<String>,
    },
    /// List the public keys that sign the checkpoints of the log, for `fairway verify`
    #[command(after_help = "Example:\n  fairway audit keys --output json")]
    Keys,
    /// Show the proof that an entry is part of the log
    #[command(after_help = "Example:\n  fairway audit proof 019a... --output json")]
    Proof {
        /// The id of the entry
        id: String,
    },
    /// Show the proof that the log only grew between two sizes
    #[command(after_help = "Example:\n  fairway audit consistency 1200 3400 --output json")]
    Consistency {
        /// The number of entries of the earlier log
        from: u64,
        /// The number of entries of the later log
        to: u64,
    },
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        Command::Keys => {
            let keys = server.get(&["audit", "keys"], &[])?;
            output.list(keys.as_array().map_or(&[], Vec::as_slice), &KEY_COLUMNS)
        }
        Command::Proof { id } => {
            output.record(&server.get_when_covered_by_checkpoint(&["audit", "events", id, "inclusion-proof"])?)
        }
        Command::Consistency { from, to } => {
            let (from, to) = (from.to_string(), to.to_string());
            output
                .record(&server.get(&["audit", "consistency-proof"], &[("from", from.as_str()), ("to", to.as_str())])?)
        }
        Command::List { limit, subject } => {
            let query: Vec<_> = subject.iter().map(|id| ("subject_id", id.as_str())).collect();
            output.list(&server.list_first(&["audit", "events"], &query, *limit)?, &COLUMNS)
        }
    }
}
