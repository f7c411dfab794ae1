//! Commands for access requests, by which use cases ask for connections.

use crate::{
    command_context::CommandContext,
    connection::{connector_kind_parser, parse_secret_references},
    dynamic_completion,
    failure::Failure,
    output::Column,
};
use clap::{Subcommand, builder::PossibleValuesParser};
use fairway_domain::access_request::AccessRequestStatus;
use serde_json::{Value, json};

const COLUMNS: [Column; 6] = [
    ("REQUEST", "/access_request_id"),
    ("CONNECTION", "/connection_name"),
    ("STATUS", "/status"),
    ("USE CASE", "/use_case_id"),
    ("REQUESTED BY", "/requested_by"),
    ("CREATED", "/created_at"),
];

/// The subcommands of `fairway access-requests`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the access requests of the workspace, newest first
    #[command(after_help = "Example:\n  fairway access-requests list --status pending")]
    List {
        /// Only requests in this status
        #[arg(long, value_parser =
            PossibleValuesParser::new(AccessRequestStatus::ALL.iter().map(|status| status.as_str())))]
        status: Option<String>,
    },
    /// Show a request with its decision and the reason of a denial
    #[command(after_help = "Example:\n  fairway access-requests show 019a...")]
    Show {
        /// The request's id
        #[arg(add = dynamic_completion::access_requests())]
        id: String,
    },
    /// Grant a request: its connection is created, and the last grant activates the use case
    #[command(
        after_help = "Example:\n  fairway access-requests grant 019a... --kind http --secret token=env:CRM_TOKEN"
    )]
    Grant {
        /// The request's id
        #[arg(add = dynamic_completion::access_requests())]
        id: String,
        /// A secret reference by name; repeat for several
        #[arg(long = "secret", value_name = "NAME=REFERENCE")]
        secrets: Vec<String>,
        /// The kind of system
        #[arg(long, value_parser = connector_kind_parser())]
        kind: Option<String>,
        /// The address of the system, without credentials
        #[arg(long, value_name = "URL")]
        endpoint: Option<String>,
    },
    /// Deny a request
    #[command(after_help = "Example:\n  fairway access-requests deny 019a... --reason 'Use the archive instead.'")]
    Deny {
        /// The request's id
        #[arg(add = dynamic_completion::access_requests())]
        id: String,
        /// The reason, for the author of the use case
        #[arg(long)]
        reason: Option<String>,
    },
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        Command::List { status } => {
            let mut query = vec![("workspace_id", server.workspace_id()?)];
            query.extend(status.as_deref().map(|status| ("status", status)));
            output.list(&server.list(&["access-requests"], &query)?, &COLUMNS)
        }
        Command::Show { id } => {
            let query = [("workspace_id", server.workspace_id()?)];
            let requests = server.list(&["access-requests"], &query)?;
            let found = requests.iter().find(|request| request["access_request_id"] == id.as_str());
            let message = "this workspace has no such access request; `fairway access-requests list` lists all";
            let unknown = || Failure::Unknown { message: message.to_owned(), candidates: Vec::new() };
            output.record(found.ok_or_else(unknown)?)
        }
        Command::Grant { id, secrets, kind, endpoint } => {
            let mut body = json!({ "secret_bindings": Value::Object(parse_secret_references(secrets)?) });
            if let Some(members) = body.as_object_mut() {
                members.extend(kind.as_ref().map(|kind| ("connector_kind".to_owned(), json!(kind))));
                members.extend(endpoint.as_ref().map(|endpoint| ("endpoint".to_owned(), json!(endpoint))));
            }
            let granted = server.post(&["access-requests", id, "grant"], &body)?;
            output.change_result(&granted, "fairway use-cases list")
        }
        Command::Deny { id, reason } => {
            let body = reason.as_ref().map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
            let denied = server.post(&["access-requests", id, "deny"], &body)?;
            output.change_result(&denied, &format!("fairway access-requests show {id}"))
        }
    }
}
