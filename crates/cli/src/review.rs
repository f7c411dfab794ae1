//! Commands for runs that await a human review of their result.

use crate::{
    command_context::CommandContext,
    failure::{Candidate, Failure},
    http_client::{ServerClient, required_string, string_or_empty},
    output::Column,
    terminal_text::{sanitize, shorten},
};
use clap::{ArgGroup, Args, Subcommand};
use fairway_domain::execution::review::AnswerVerdict;
use serde_json::{Value, json};

const COLUMNS: [Column; 5] = [
    ("EXECUTION", "/execution_id"),
    ("ENV", "/environment"),
    ("LANE", "/lane"),
    ("BY", "/submitted_by"),
    ("STARTED", "/started_at"),
];

/// The subcommands of `fairway reviews`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the runs that await a review, newest first
    #[command(after_help = "Example:\n  fairway reviews list")]
    List {
        /// The maximum number of runs
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show the result that awaits a review
    #[command(after_help = "Examples:\n  fairway reviews show latest\n  fairway reviews show 019a...")]
    Show(RunArgument),
    /// Approve or reject the result of a run
    #[command(
        after_help = "An approved run completes with its result. The result of a rejected run is never shown.\n\n\
        Examples:\n  fairway reviews answer 019a... --approve\n  \
        fairway reviews answer latest --reject --note 'It names a customer'"
    )]
    Answer(AnswerArguments),
}

/// A run that awaits a review.
#[derive(Args)]
pub(crate) struct RunArgument {
    /// The run's id or its unique beginning, or `latest`
    #[arg(value_name = "RUN")]
    reference: String,
}

/// The verdict of a review.
#[derive(Args)]
#[command(group = ArgGroup::new("verdict").required(true).args(["approve", "reject"]))]
pub(crate) struct AnswerArguments {
    #[command(flatten)]
    run: RunArgument,
    /// Complete the run with its result
    #[arg(long)]
    approve: bool,
    /// Deny the run; its result is erased
    #[arg(long)]
    reject: bool,
    /// An explanation, stored with the evidence
    #[arg(long)]
    note: Option<String>,
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        Command::List { limit } => {
            output.list(&server.list_first(&["executions"], &[("review", "pending")], *limit)?, &COLUMNS)
        }
        Command::Show(run) => output.record(&server.get(&["executions", &run.find(&server)?, "review"], &[])?),
        Command::Answer(answer) => {
            let id = answer.run.find(&server)?;
            let verdict = if answer.approve { AnswerVerdict::Approved } else { AnswerVerdict::Rejected };
            let body = json!({ "outcome": verdict.as_str(), "note": answer.note });
            let answered = server.post(&["executions", &id, "review"], &body)?;
            output.change_result(&answered, &format!("fairway evidence graph {id}"))
        }
    }
}

impl RunArgument {
    /// Resolves the reference to the run's id.
    fn find(&self, server: &ServerClient) -> Result<String, Failure> {
        let reference = self.reference.as_str();
        if uuid::Uuid::parse_str(reference).is_ok() {
            return Ok(reference.to_owned());
        }
        let pending = server.list(&["executions"], &[("review", "pending")])?;
        let fits = |run: &&Value| string_or_empty(run, "execution_id").starts_with(&reference.to_ascii_lowercase());
        let found: Vec<&Value> = if reference == "latest" {
            pending.iter().take(1).collect()
        } else {
            pending.iter().filter(fits).collect()
        };
        if let [only] = found.as_slice() {
            return required_string(only, "execution_id").map(str::to_owned);
        }
        let name = shorten(&sanitize(reference)).into_owned();
        let message = match found.len() {
            0 => format!("no run `{name}` awaits a review that you can see; `fairway reviews list` lists all"),
            count => format!("`{name}` is the beginning of {count} runs"),
        };
        let candidate = |run: &&Value| Candidate {
            name: string_or_empty(run, "execution_id").to_owned(),
            note: Some(format!("{}, by {}", string_or_empty(run, "environment"), string_or_empty(run, "submitted_by"))),
        };
        Err(Failure::Unknown { message, candidates: found.iter().take(5).map(candidate).collect() })
    }
}
