//! Commands for destinations of notifications.

use crate::{
    failure::Failure,
    http_client::{Method, ServerClient, required_string, string_or_empty},
    output::{Column, Output},
};
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use fairway_domain::notification::Channel;
use serde_json::{Map, Value, json};

const COLUMNS: [Column; 4] = [
    ("DESTINATION", "/destination_id"),
    ("TYPE", "/destination_type"),
    ("NAME", "/display_name"),
    ("ENABLED", "/is_enabled"),
];

/// The subcommands of `fairway notifications destinations`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the destinations of the workspace, or of the organization
    #[command(after_help = "Example:\n  fairway notifications destinations list --organization")]
    List(Scope),
    /// Create a destination; secrets are references, never values
    #[command(after_help = "Example:\n  fairway notifications destinations create webhook Incidents --url \
        https://hooks.example.org/in --secret env:HOOK_KEY")]
    Create {
        /// The kind of destination
        #[arg(value_parser = destination_types())]
        destination_type: String,
        /// The name, unique among the destinations of this kind
        name: String,
        /// The address, without credentials
        #[arg(long)]
        url: Option<String>,
        /// The e-mail address
        #[arg(long, conflicts_with = "url")]
        address: Option<String>,
        /// The format of a chat: slack, teams, discord, google_chat or mattermost
        #[arg(long)]
        format: Option<String>,
        /// The reference to the signing or routing key, or to the whole address of a chat
        #[arg(long, value_name = "REFERENCE")]
        secret: Option<String>,
        #[command(flatten)]
        scope: Scope,
    },
    /// Send a test message, and show how the receiver responds
    #[command(after_help = "Example:\n  fairway notifications destinations test ID")]
    Test {
        /// The destination's id
        destination: String,
        #[command(flatten)]
        scope: Scope,
    },
    /// Turn a destination on or off; deliveries that wait when it is turned off are never sent
    #[command(after_help = "Example:\n  fairway notifications destinations set ID --off")]
    Set {
        /// The destination's id
        destination: String,
        /// Deliver notifications to the destination
        #[arg(long, required_unless_present = "off", conflicts_with = "off")]
        on: bool,
        /// Deliver no notifications to the destination
        #[arg(long)]
        off: bool,
        #[command(flatten)]
        scope: Scope,
    },
    /// Delete a destination
    #[command(after_help = "Example:\n  fairway notifications destinations delete ID")]
    Delete {
        /// The destination's id
        destination: String,
        #[command(flatten)]
        scope: Scope,
    },
}

/// The scope of destinations: the workspace or the organization.
#[derive(Args, Clone, Copy)]
pub(crate) struct Scope {
    /// Use the destinations of the organization instead of the workspace
    #[arg(long)]
    organization: bool,
}

impl Scope {
    /// The API path of the scope's destinations, followed by `segments`.
    fn path<'s>(self, server: &'s ServerClient, segments: &[&'s str]) -> Result<Vec<&'s str>, Failure> {
        let mut path = vec!["notifications"];
        if self.organization {
            path.push("organization");
        } else {
            path.extend(["workspaces", server.workspace_id()?]);
        }
        path.push("destinations");
        path.extend(segments);
        Ok(path)
    }
}

fn destination_types() -> PossibleValuesParser {
    let external = Channel::ALL.iter().filter(|channel| **channel != Channel::Portal);
    PossibleValuesParser::new(external.map(|channel| channel.as_str()))
}

pub(super) fn run(command: &Command, server: &ServerClient, output: Output) -> Result<(), Failure> {
    match command {
        Command::List(scope) => output.list(&server.list(&scope.path(server, &[])?, &[])?, &COLUMNS),
        Command::Create { destination_type, name, url, address, format, secret, scope } => {
            let members = [("url", url), ("address", address), ("format", format)];
            let configuration: Map<String, Value> =
                members.iter().filter_map(|(name, value)| Some(((*name).to_owned(), json!(value.as_ref()?)))).collect();
            let body = json!({
                "destination_type": destination_type, "display_name": name, "redacted_metadata": configuration,
                "secret_ref": secret, "is_enabled": true,
            });
            let created = server.post(&scope.path(server, &[])?, &body)?;
            let flag = if scope.organization { " --organization" } else { "" };
            let id = required_string(&created, "destination_id")?;
            output.change_result(&created, &format!("fairway notifications destinations test {id}{flag}"))
        }
        Command::Test { destination, scope } => {
            let tested = server.post(&scope.path(server, &[destination, "test"])?, &json!({}))?;
            output.record(&tested)?;
            match string_or_empty(&tested, "status") {
                "sent" => Ok(()),
                _ => Err(Failure::Failed("the receiver did not accept the test message".to_owned())),
            }
        }
        Command::Set { destination, on, scope, .. } => {
            let path = scope.path(server, &[destination])?;
            let changed = server.update(&Method::PATCH, &path, &json!({ "is_enabled": on }))?;
            output.change_result(&changed, "fairway notifications destinations list")
        }
        Command::Delete { destination, scope } => {
            server.delete(&scope.path(server, &[destination])?)?;
            let deleted = json!({ "destination_id": destination, "deleted": true });
            output.change_result(&deleted, "fairway notifications destinations list")
        }
    }
}
