//! Commands for connections, the named external systems of a workspace.

mod check;

use crate::{
    command_context::CommandContext,
    dynamic_completion,
    failure::{Candidate, Failure},
    http_client::{Method, ServerClient, required_string, string_or_empty},
    output::Column,
    terminal_text::{sanitize, shorten},
};
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use fairway_domain::connection::{ConnectionStatus, ConnectorKind};
use serde_json::{Map, Value, json};

const COLUMNS: [Column; 6] = [
    ("CONNECTION", "/connection_id"),
    ("NAME", "/name"),
    ("KIND", "/connector_kind"),
    ("STATUS", "/status"),
    ("HEALTH", "/health"),
    ("EXPIRES", "/expires_at"),
];

/// The subcommands of `fairway connections`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the connections of the workspace, newest first
    #[command(after_help = "Example:\n  fairway connections list")]
    List,
    /// Show a connection with its latest checks
    #[command(after_help = "Example:\n  fairway connections show crm")]
    Show {
        /// The connection's name or id
        #[arg(add = dynamic_completion::connections())]
        connection: String,
    },
    /// Create a connection; secrets are references, never values
    #[command(after_help = "Example:\n  fairway connections create crm --kind http --endpoint \
        https://crm.example.org/api --secret token=env:CRM_TOKEN")]
    Create {
        /// The name, unique in the workspace
        name: String,
        /// The kind of system
        #[arg(long, default_value = "other", value_parser = connector_kind_parser())]
        kind: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Change settings of a connection; the others stay
    #[command(after_help = "Example:\n  fairway connections set crm --status disabled")]
    Set {
        /// The connection's name or id
        #[arg(add = dynamic_completion::connections())]
        connection: String,
        /// The kind of system
        #[arg(long, value_parser = connector_kind_parser())]
        kind: Option<String>,
        #[command(flatten)]
        settings: Settings,
    },
    /// Check the endpoint of a connection
    #[command(after_help = "Example:\n  fairway connections check crm")]
    Check {
        /// The connection's name or id
        #[arg(add = dynamic_completion::connections())]
        connection: String,
    },
    /// Delete a connection
    #[command(after_help = "Example:\n  fairway connections delete crm")]
    Delete {
        /// The connection's name or id
        #[arg(add = dynamic_completion::connections())]
        connection: String,
    },
}

/// The settings of a connection.
#[derive(Args)]
pub(crate) struct Settings {
    /// The address of the system, without credentials
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// A secret reference by name; repeat for several
    #[arg(long = "secret", value_name = "NAME=REFERENCE")]
    secrets: Vec<String>,
    /// The expiry of its credentials, such as 2027-01-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// Whether use cases may use the connection
    #[arg(long, value_parser = PossibleValuesParser::new(ConnectionStatus::ALL.iter().map(|status| status.as_str())))]
    status: Option<String>,
}

pub(crate) fn connector_kind_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(ConnectorKind::ALL.iter().map(|kind| kind.as_str()))
}

/// Parses secret references of the form `NAME=REFERENCE`.
///
/// # Errors
/// When a text has another form. The message does not repeat the text, because it may be a secret value.
pub(crate) fn parse_secret_references(secrets: &[String]) -> Result<Map<String, Value>, Failure> {
    let parse = |text: &String| {
        let (name, reference) = text.split_once('=')?;
        Some((name.to_owned(), json!(reference)))
    };
    let message = "a secret has the form NAME=REFERENCE, such as token=env:CRM_TOKEN";
    secrets.iter().map(|text| parse(text).ok_or_else(|| Failure::Usage(message.to_owned()))).collect()
}

impl Settings {
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        let mut body = Map::new();
        let texts = [("endpoint", &self.endpoint), ("expires_at", &self.expires_at), ("status", &self.status)];
        body.extend(texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), json!(text.as_ref()?)))));
        if !self.secrets.is_empty() {
            body.insert("secret_bindings".to_owned(), Value::Object(parse_secret_references(&self.secrets)?));
        }
        Ok(body)
    }
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        Command::List => output.list(&list(&server)?, &COLUMNS),
        Command::Show { connection } => {
            output.record(&server.get(&["connections", &find_connection(&server, connection)?], &[])?)
        }
        Command::Create { name, kind, settings } => {
            let mut body = settings.body()?;
            body.insert("name".to_owned(), json!(name));
            body.insert("connector_kind".to_owned(), json!(kind));
            body.insert("workspace_id".to_owned(), json!(server.workspace_id()?));
            let created = server.post(&["connections"], &Value::Object(body))?;
            output.change_result(
                &created,
                &format!("fairway connections check {}", required_string(&created, "connection_id")?),
            )
        }
        Command::Set { connection, kind, settings } => {
            let mut body = settings.body()?;
            body.extend(kind.as_ref().map(|kind| ("connector_kind".to_owned(), json!(kind))));
            if body.is_empty() {
                let message = "nothing to change: pass --kind, --endpoint, --secret, --expires-at or --status";
                return Err(Failure::Usage(message.to_owned()));
            }
            let id = find_connection(&server, connection)?;
            let changed = server.update(&Method::PATCH, &["connections", &id], &Value::Object(body))?;
            output.change_result(&changed, &format!("fairway connections check {id}"))
        }
        Command::Check { connection } => check::check(&server, output, &find_connection(&server, connection)?),
        Command::Delete { connection } => {
            let id = find_connection(&server, connection)?;
            server.delete(&["connections", &id])?;
            output.change_result(&json!({ "connection_id": id, "deleted": true }), "fairway connections list")
        }
    }
}

fn list(server: &ServerClient) -> Result<Vec<Value>, Failure> {
    server.list(&["connections"], &[("workspace_id", server.workspace_id()?)])
}

/// Finds a connection by its name, its id, or the unique beginning of its id.
fn find_connection(server: &ServerClient, reference: &str) -> Result<String, Failure> {
    let connections = list(server)?;
    let fits = |connection: &&Value| {
        string_or_empty(connection, "name") == reference
            || string_or_empty(connection, "connection_id").starts_with(reference)
    };
    let candidate = |connection: &Value| Candidate {
        name: string_or_empty(connection, "connection_id").to_owned(),
        note: connection.get("name").and_then(Value::as_str).map(str::to_owned),
    };
    let found: Vec<&Value> = connections.iter().filter(fits).collect();
    if let [only] = found.as_slice() {
        return required_string(only, "connection_id").map(str::to_owned);
    }
    let name = shorten(&sanitize(reference)).into_owned();
    let message = format!("{} connections fit `{name}`; `fairway connections list` lists all", found.len());
    Err(Failure::Unknown { message, candidates: found.iter().take(5).map(|found| candidate(found)).collect() })
}
