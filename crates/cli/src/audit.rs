//! Commands for the audit log.

use crate::{failure::Failure, output::Column, session::Session};
use clap::Subcommand;

const COLUMNS: [Column; 6] = [
    ("INDEX", "/index"),
    ("WHEN", "/occurred_at"),
    ("KIND", "/kind"),
    ("ACTOR", "/actor"),
    ("SUBJECT", "/subject/kind"),
    ("ID", "/subject/id"),
];

/// Audit log commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the newest entries
    #[command(after_help = "Example:\n  fairway audit list --limit 200 --output json")]
    List {
        /// The maximum number of entries
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
}

pub(crate) fn run(command: &Command, session: &Session) -> Result<(), Failure> {
    let (output, server) = session.open()?;
    match command {
        Command::List { limit } => output.list(&server.list_first(&["audit", "events"], &[], *limit)?, &COLUMNS),
    }
}
