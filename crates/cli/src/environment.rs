//! Commands for the settings of environments.

use crate::{
    completion,
    failure::Failure,
    server::{Method, Server},
    session::Session,
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// Environment commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the settings of an environment
    #[command(after_help = "Example:\n  fairway environments show dev")]
    Show {
        /// The environment; else the profile's
        #[arg(add = completion::environments())]
        environment: Option<String>,
        /// The environment, as other commands take it
        #[arg(long, short, value_name = "ENVIRONMENT", conflicts_with = "environment", add = completion::environments())]
        env: Option<String>,
    },
    /// Change settings of an environment; the others stay
    #[command(
        after_help = "Example:\n  fairway environments set production --min-approvals 2 --allow-self-approval false"
    )]
    Set(Settings),
}

/// The settings to change.
#[derive(Args)]
pub(crate) struct Settings {
    /// The environment
    #[arg(add = completion::environments())]
    environment: String,
    /// The number of approvals that a release needs
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10))]
    min_approvals: Option<u32>,
    /// Whether the authors of a release may approve it
    #[arg(long, value_name = "true|false")]
    allow_self_approval: Option<bool>,
    /// Whether runs use the document index of the approval instead of the current one
    #[arg(long, value_name = "true|false")]
    pin_documents: Option<bool>,
}

pub(crate) fn run(command: &Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Show { environment, env } => {
            let environment = session.environment(environment.as_deref().or(env.as_deref()))?;
            let (output, server) = session.open()?;
            output.one(&server.get(&path(&server, &environment)?, &[])?)
        }
        Command::Set(settings) => {
            let (output, server) = session.open()?;
            let changed = settings.apply(&server)?;
            output.changed(&changed, &format!("fairway environments show {}", settings.environment))
        }
    }
}

fn path<'p>(server: &'p Server, environment: &'p str) -> Result<[&'p str; 5], Failure> {
    Ok(["workspaces", server.workspace_id()?, "environments", environment, "settings"])
}

impl Settings {
    /// Replaces the settings by themselves with the changes. The entity tag detects a concurrent change.
    fn apply(&self, server: &Server) -> Result<Value, Failure> {
        if self.min_approvals.is_none() && self.allow_self_approval.is_none() && self.pin_documents.is_none() {
            let message = "nothing to change: pass --min-approvals, --allow-self-approval or --pin-documents";
            return Err(Failure::Usage(message.to_owned()));
        }
        let path = path(server, &self.environment)?;
        let (tag, found) = server.get_with_etag(&path)?;
        let kept = |name: &str| found.get(name).cloned().unwrap_or_default();
        let body = json!({
            "min_approvals": self.min_approvals.map_or_else(|| kept("min_approvals"), |count| json!(count)),
            "allow_self_approval":
                self.allow_self_approval.map_or_else(|| kept("allow_self_approval"), |allowed| json!(allowed)),
            "pin_documents": self.pin_documents.map_or_else(|| kept("pin_documents"), |pinned| json!(pinned)),
        });
        server.update_if_match(&Method::PUT, tag.as_deref(), &path, &body)
    }
}
