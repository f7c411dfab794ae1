//! Commands for workloads.

use crate::{
    command_context::CommandContext,
    dynamic_completion,
    failure::Failure,
    http_client::{Method, ServerClient, required_string, string_or_empty},
    output::{Column, Output},
    similar_names::unknown_name,
    untrusted_file::Source,
};
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use fairway_domain::workload::{IntendedUse, WorkloadStatus};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

const COLUMNS: [Column; 5] = [
    ("SLUG", "/slug"),
    ("STATUS", "/status"),
    ("MODE", "/invocation_mode"),
    ("OWNER", "/owner_ref"),
    ("UPDATED", "/updated_at"),
];

/// The subcommands of `fairway workloads`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the workloads of the workspace
    #[command(after_help = "Example:\n  fairway workloads list --output json")]
    List {
        /// Only workloads with this status
        #[arg(long, value_parser = PossibleValuesParser::new(WorkloadStatus::ALL.map(WorkloadStatus::as_str)))]
        status: Option<String>,
    },
    /// Show one workload
    #[command(after_help = "Example:\n  fairway workloads show ticket-classifier")]
    Show {
        /// The workload's slug or id
        #[arg(add = dynamic_completion::workloads())]
        slug: String,
    },
    /// Create a workload
    #[command(after_help = "Example:\n  fairway workloads create ticket-classifier --owner team:support --mode form \
        --interface form.yaml")]
    Create {
        /// The workload's slug
        #[arg(add = dynamic_completion::workloads())]
        slug: String,
        /// The owner, such as team:support
        #[arg(long)]
        owner: String,
        /// How callers use the workload
        #[arg(long, default_value = IntendedUse::Form.as_str(), value_parser = PossibleValuesParser::new(IntendedUse::ALL.map(IntendedUse::as_str)))]
        mode: String,
        #[command(flatten)]
        description: Description,
    },
    /// Change fields of a workload; the others stay
    #[command(after_help = "Examples:\n  fairway workloads edit ticket-classifier --name 'Ticket classifier'\n  \
        fairway workloads edit ticket-classifier --interface form.yaml")]
    Edit(Edit),
    /// Suspend a workload: refuses new runs and cancels active ones
    #[command(after_help = "Example:\n  fairway workloads suspend ticket-classifier")]
    Suspend {
        /// The workload's slug or id
        #[arg(add = dynamic_completion::workloads())]
        slug: String,
    },
    /// Resume a suspended workload
    #[command(after_help = "Example:\n  fairway workloads resume ticket-classifier")]
    Resume {
        /// The workload's slug or id
        #[arg(add = dynamic_completion::workloads())]
        slug: String,
    },
}

/// The texts and the interface of a workload.
#[derive(Args)]
pub(crate) struct Description {
    /// The name for people
    #[arg(long)]
    name: Option<String>,
    /// What the workload does
    #[arg(long)]
    description: Option<String>,
    /// A JSON or YAML file with its runtime interface (`interface_config`)
    #[arg(long, value_name = "FILE")]
    interface: Option<PathBuf>,
}

/// Changes of a workload.
#[derive(Args)]
pub(crate) struct Edit {
    /// The workload's slug or id
    #[arg(add = dynamic_completion::workloads())]
    slug: String,
    /// The new owner, such as team:support
    #[arg(long)]
    owner: Option<String>,
    /// How callers use the workload
    #[arg(long, value_parser = PossibleValuesParser::new(IntendedUse::ALL.map(IntendedUse::as_str)))]
    mode: Option<String>,
    #[command(flatten)]
    description: Description,
    /// Remove its runtime interface
    #[arg(long, conflicts_with = "interface")]
    no_interface: bool,
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        Command::List { status } => {
            let mut query = vec![("workspace_id", server.workspace_id()?)];
            query.extend(status.as_deref().map(|status| ("status", status)));
            output.list(&server.list(&["workloads"], &query)?, &COLUMNS)
        }
        Command::Show { slug } => output.record(&find_workload(&server, slug)?),
        Command::Create { slug, owner, mode, description } => create(&server, output, slug, owner, mode, description),
        Command::Edit(edit) => {
            let changed = edit.apply(&server)?;
            output.change_result(&changed, &format!("fairway workloads show {}", edit.slug))
        }
        Command::Suspend { slug } => {
            let changed = set_status(&server, slug, WorkloadStatus::Suspended)?;
            output.change_result(&changed, &format!("fairway workloads resume {slug}"))
        }
        Command::Resume { slug } => {
            let changed = set_status(&server, slug, WorkloadStatus::Registered)?;
            output.change_result(&changed, &format!("fairway run {slug} --env ENVIRONMENT"))
        }
    }
}

fn create(
    server: &ServerClient,
    output: Output,
    slug: &str,
    owner: &str,
    mode: &str,
    description: &Description,
) -> Result<(), Failure> {
    // Reads the file before the first request, so that an invalid file creates no workload.
    let interface = description.interface()?;
    let mut body = description.fields();
    body.insert("slug".to_owned(), json!(slug));
    body.insert("owner_ref".to_owned(), json!(owner));
    body.insert("invocation_mode".to_owned(), json!(mode));
    body.insert("workspace_id".to_owned(), json!(server.workspace_id()?));
    let mut created = server.post(&["workloads"], &Value::Object(body))?;
    if let Some(interface) = interface {
        let path = ["workloads", required_string(&created, "workload_id")?];
        let changed = server.update(&Method::PATCH, &path, &json!({ "interface_config": interface }));
        created = changed.inspect_err(|_| {
            let next = format!("`fairway workloads edit {slug} --interface FILE` adds it");
            crate::output::eprint(&format!("the workload was created without its interface; {next}"));
        })?;
    }
    output.change_result(&created, &format!("fairway releases create {slug} --env ENVIRONMENT --bind VERSION"))
}

impl Description {
    /// The given texts as fields of a request body.
    fn fields(&self) -> Map<String, Value> {
        let texts = [("name", &self.name), ("description", &self.description)];
        texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), json!(text.as_ref()?)))).collect()
    }

    fn interface(&self) -> Result<Option<Value>, Failure> {
        self.interface.as_deref().map(read_interface).transpose()
    }
}

/// Reads an interface from a file, which is the plain interface or a workload manifest with `interface_config`.
fn read_interface(file: &Path) -> Result<Value, Failure> {
    let mut value = Source::open(file)?.value()?.value;
    Ok(value.get_mut("interface_config").map(Value::take).unwrap_or(value))
}

impl Edit {
    fn apply(&self, server: &ServerClient) -> Result<Value, Failure> {
        let mut body = self.description.fields();
        let fields = [("owner_ref", &self.owner), ("invocation_mode", &self.mode)];
        body.extend(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?)))));
        if let Some(interface) = self.description.interface()? {
            body.insert("interface_config".to_owned(), interface);
        } else if self.no_interface {
            body.insert("interface_config".to_owned(), Value::Null);
        }
        if body.is_empty() {
            let message =
                "nothing to change: pass --name, --description, --owner, --mode, --interface or --no-interface";
            return Err(Failure::Usage(message.to_owned()));
        }
        let workload = find_workload(server, &self.slug)?;
        server.update(&Method::PATCH, &["workloads", required_string(&workload, "workload_id")?], &Value::Object(body))
    }
}

fn set_status(server: &ServerClient, slug: &str, status: WorkloadStatus) -> Result<Value, Failure> {
    let workload = find_workload(server, slug)?;
    let path = ["workloads", required_string(&workload, "workload_id")?];
    server.update(&Method::PATCH, &path, &json!({ "status": status.as_str() }))
}

/// Finds a workload by its slug or id.
///
/// # Errors
/// When the workspace has no visible workload with this slug or id; the failure suggests similar slugs.
pub(crate) fn find_workload(server: &ServerClient, slug: &str) -> Result<Value, Failure> {
    if uuid::Uuid::parse_str(slug).is_ok() {
        let found = server.find(&["workloads", slug], &[])?;
        return found.ok_or_else(|| unknown_name("workload", slug, std::iter::empty()));
    }
    let mut workloads = server.list(&["workloads"], &[("workspace_id", server.workspace_id()?)])?;
    match workloads.iter().position(|workload| string_or_empty(workload, "slug") == slug) {
        Some(index) => Ok(workloads.swap_remove(index)),
        None => Err(unknown_name("workload", slug, workloads.iter().map(|workload| string_or_empty(workload, "slug")))),
    }
}
