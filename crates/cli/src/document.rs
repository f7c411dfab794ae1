//! Commands for the documents of knowledge bases.

mod upload;

use crate::{
    asset::find_asset,
    command_context::CommandContext,
    failure::Failure,
    http_client::{required_string, string_or_empty},
    output::Column,
};
use clap::Subcommand;
use fairway_domain::asset::kind::AssetKind;
use serde_json::Value;

const COLUMNS: [Column; 5] = [
    ("DOCUMENT", "/document_id"),
    ("TITLE", "/title"),
    ("BYTES", "/text_bytes"),
    ("REVISION", "/index_revision"),
    ("ADDED", "/created_at"),
];

/// The subcommands of `fairway documents`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the current documents of a knowledge base, newest first
    #[command(after_help = "Example:\n  fairway documents list people-handbook")]
    List {
        /// The slug of the knowledge base
        knowledge_base: String,
        /// Also list documents that later ones replaced
        #[arg(long)]
        all: bool,
    },
    /// Upload a text file, or the text files below a directory
    Upload(upload::Arguments),
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        Command::List { knowledge_base, all } => {
            let base = find_knowledge_base(&server, knowledge_base)?;
            let path = ["assets", required_string(&base, "asset_id")?, "documents"];
            let mut documents = server.list(&path, &[("workspace_id", server.workspace_id()?)])?;
            documents.retain(|document| *all || is_current(document));
            output.list(&documents, &COLUMNS)
        }
        Command::Upload(arguments) => upload::upload(&server, output, arguments),
    }
}

/// Whether the document has not been replaced by a later document.
fn is_current(document: &Value) -> bool {
    document.get("current").and_then(Value::as_bool).unwrap_or_default()
}

fn find_knowledge_base(server: &crate::http_client::ServerClient, slug: &str) -> Result<Value, Failure> {
    let asset = find_asset(server, slug)?;
    match string_or_empty(&asset, "asset_kind") {
        kind if kind == AssetKind::KnowledgeBase.as_str() => Ok(asset),
        kind => {
            let message =
                format!("the asset is a {kind}; `fairway assets list --kind knowledge_base` lists the others");
            Err(Failure::Usage(message))
        }
    }
}
