//! Commands for flows, the steps of runs.

use crate::{
    asset,
    command_context::CommandContext,
    dynamic_completion,
    failure::{Failure, Finding, Position},
    http_client::required_string,
    output::{Column, print},
    terminal_text::sanitize_lines,
    unknown_names_in_files,
    untrusted_file::{MAX_FILE_BYTES, Source},
};
use clap::Subcommand;
use fairway_domain::flow::{self, FlowProblem};
use serde_json::{Value, json};
use std::path::PathBuf;

const COLUMNS: [Column; 4] =
    [("SLUG", "/slug"), ("STATE", "/lifecycle_state"), ("OWNER", "/owner_ref"), ("CREATED", "/created_at")];

/// The subcommands of `fairway flows`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the flows visible from the workspace
    #[command(after_help = "Example:\n  fairway flows list")]
    List,
    /// Print the newest text of a flow
    #[command(after_help = "Example:\n  fairway flows show ticket-flow > ticket-flow.yaml")]
    Show {
        /// The flow's slug
        #[arg(add = dynamic_completion::flows())]
        slug: String,
    },
    /// Create a flow
    #[command(after_help = "Example:\n  fairway flows create ticket-flow --owner team:support ticket-flow.yaml")]
    Create {
        /// The flow's slug
        slug: String,
        /// The owner, such as team:support
        #[arg(long)]
        owner: String,
        /// The flow as YAML
        file: PathBuf,
        #[command(flatten)]
        version: asset::VersionOptions,
    },
    /// Report every error in a flow by the server's rules, without a server
    #[command(after_help = "Example:\n  fairway flows validate demo/flows/ticket-flow.yaml")]
    Validate {
        /// The flow as YAML
        file: PathBuf,
    },
    /// Add a version to a flow
    #[command(after_help = "Example:\n  fairway flows add-version ticket-flow ticket-flow.yaml")]
    AddVersion {
        /// The flow's slug
        #[arg(add = dynamic_completion::flows())]
        slug: String,
        /// The flow as YAML
        file: PathBuf,
        #[command(flatten)]
        version: asset::VersionOptions,
    },
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    if let Command::Validate { file } = command {
        return check(file, context);
    }
    let (output, server) = context.open()?;
    match command {
        Command::Validate { .. } => Ok(()),
        Command::List => output.list(&server.list(&["flows"], &[("workspace_id", server.workspace_id()?)])?, &COLUMNS),
        Command::Show { slug } => {
            let found = asset::find_asset(&server, slug)?;
            let path = ["flows", required_string(&found, "asset_id")?];
            let flow = server.get(&path, &[("workspace_id", server.workspace_id()?)])?;
            match (output.is_for_people(), flow.get("content_yaml").and_then(Value::as_str)) {
                (true, Some(yaml)) => print(sanitize_lines(yaml).trim_end()),
                (true, None) => output.value(flow.pointer("/version/content").unwrap_or(&Value::Null)),
                (false, _) => output.record(&flow),
            }
        }
        Command::Create { slug, owner, file, version } => {
            let body = json!({
                "slug": slug,
                "owner_ref": owner,
                "content_yaml": read_valid(file)?,
                "version_label": version.label,
                "change_note": version.note,
                "workspace_id": server.workspace_id()?,
            });
            let created = server.post(&["flows"], &body)?;
            output.change_result(&created, &format!("fairway releases create WORKLOAD --env ENVIRONMENT --bind {slug}"))
        }
        Command::AddVersion { slug, file, version } => {
            let body = json!({
                "content_yaml": read_valid(file)?,
                "version_label": version.label,
                "change_note": version.note,
                "workspace_id": server.workspace_id()?,
            });
            let found = asset::find_asset(&server, slug)?;
            let created = server.post(&["flows", required_string(&found, "asset_id")?, "versions"], &body)?;
            output.change_result(&created, &format!("fairway releases create WORKLOAD --env ENVIRONMENT --bind {slug}"))
        }
    }
}

/// Reads the text of a flow, and refuses it when the flow is invalid.
fn read_valid(file: &std::path::Path) -> Result<String, Failure> {
    let source = Source::open(file)?;
    match problems(&source) {
        findings if findings.is_empty() => Ok(source.text),
        findings => Err(Failure::Files(findings)),
    }
}

fn check(file: &std::path::Path, context: &CommandContext) -> Result<(), Failure> {
    let findings = match Source::try_open(file, MAX_FILE_BYTES) {
        Ok(source) => problems(&source),
        Err(finding) => vec![finding],
    };
    let output = context.offline_output();
    if !output.is_for_people() {
        output.value(&json!({ "valid": findings.is_empty(), "errors": findings }))?;
    }
    match (findings.is_empty(), output.is_for_people()) {
        (true, true) => print("valid"),
        (true, false) => Ok(()),
        (false, _) => Err(Failure::Files(findings)),
    }
}

/// Finds the errors of a flow by the server's rules.
pub(crate) fn problems(source: &Source) -> Vec<Finding> {
    let Err(problems) = flow::parse_yaml(&source.text) else { return Vec::new() };
    let is_unknown_name =
        |problem: &FlowProblem| matches!(problem.code, "unknown_step" | "unknown_input" | "unknown_role");
    let has_unknown_names = problems.iter().any(is_unknown_name);
    let flow: Value =
        if has_unknown_names { serde_yaml::from_str(&source.text).unwrap_or_default() } else { Value::Null };
    let to_finding = |problem: FlowProblem| {
        let hint = unknown_names_in_files::flow_hint(&flow, &problem.pointer, problem.code)
            .or_else(|| unknown_names_in_files::key_hint(&problem.pointer, problem.valid_names))
            .unwrap_or_default();
        Finding::whole(&source.name, problem.code, format!("{}{hint}", problem.message))
            .at(problem.line.zip(problem.column).map(|(line, column)| Position { line, column }))
    };
    problems.into_iter().map(to_finding).collect()
}
