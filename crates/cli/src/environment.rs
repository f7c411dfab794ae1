//! Commands for the settings of environments. An environment needs no creation: it exists once a release or settings
//! name it.

use crate::{
    command_context::CommandContext,
    dynamic_completion,
    failure::{Candidate, Failure, candidate_hint},
    http_client::{Method, ServerClient, string_or_empty},
    output::{Column, Output, eprint},
    similar_names::similar_names,
    terminal_text::{sanitize, shorten},
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const COLUMNS: [Column; 5] = [
    ("ENVIRONMENT", "/environment"),
    ("RELEASES", "/releases"),
    ("APPROVALS", "/min_approvals"),
    ("SELF-APPROVAL", "/allow_self_approval"),
    ("PINNED DOCUMENTS", "/pin_documents"),
];

/// Maximum number of environments that a notice lists.
const MAX_SHOWN: usize = 5;

/// The subcommands of `fairway environments`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the environments that have releases, with their settings
    #[command(after_help = "An environment exists once a release or settings name it.\n\nExample:\n  fairway \
        environments list")]
    List,
    /// Show the settings of an environment
    #[command(after_help = "Example:\n  fairway environments show dev")]
    Show {
        /// The environment; else the profile's
        #[arg(add = dynamic_completion::environments())]
        environment: Option<String>,
        /// The environment, as an option like in other commands
        #[arg(long, short, value_name = "ENVIRONMENT", conflicts_with = "environment", add = dynamic_completion::environments())]
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
    #[arg(add = dynamic_completion::environments())]
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

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    match command {
        Command::List => {
            let (output, server) = context.open()?;
            output.list(&list(&server)?, &COLUMNS)
        }
        Command::Show { environment, env } => {
            let environment = context.environment(environment.as_deref().or(env.as_deref()))?;
            let (output, server) = context.open()?;
            let (tag, settings) = server.get_with_etag(&path(&server, &environment)?)?;
            let notice = match tag {
                None => Notice::New("these are the settings that it would start with"),
                Some(_) => Notice::WithoutRelease,
            };
            report(&server, output, &environment, notice);
            output.record(&settings)
        }
        Command::Set(settings) => {
            let (output, server) = context.open()?;
            let is_configured = is_configured(&server, &settings.environment);
            let notice = if is_configured { Notice::WithoutRelease } else { NEW_BY_COMMAND };
            report(&server, output, &settings.environment, notice);
            let changed = settings.apply(&server)?;
            output.change_result(&changed, &format!("fairway environments show {}", settings.environment))
        }
    }
}

fn path<'p>(server: &'p ServerClient, environment: &'p str) -> Result<[&'p str; 5], Failure> {
    Ok(["workspaces", server.workspace_id()?, "environments", environment, "settings"])
}

/// Counts the releases of the workspace by environment.
fn count_releases(server: &ServerClient) -> Result<BTreeMap<String, usize>, Failure> {
    let mut counts = BTreeMap::new();
    for release in server.list(&["releases"], &[("workspace_id", server.workspace_id()?)])? {
        *counts.entry(string_or_empty(&release, "environment").to_owned()).or_default() += 1;
    }
    Ok(counts)
}

/// The environments with releases, and their settings. A caller that may not read settings receives none.
fn list(server: &ServerClient) -> Result<Vec<Value>, Failure> {
    let row = |(environment, releases): (String, usize)| {
        let settings = server.get(&path(server, &environment)?, &[]);
        let mut row = match settings {
            Err(Failure::Refused(refusal)) if refusal.status == 403 => Value::Null,
            settings => settings?,
        };
        let members = json!({ "environment": environment, "releases": releases });
        match (row.as_object_mut(), members) {
            (Some(row), Value::Object(members)) => row.extend(members),
            (_, members) => row = members,
        }
        Ok(row)
    };
    count_releases(server)?.into_iter().map(row).collect()
}

/// Prints a notice if no release or settings name this environment, because a misspelt name would create an
/// environment. Never fails the command: without permission to read releases or settings, it prints nothing.
pub(crate) fn report_if_new(server: &ServerClient, output: Output, environment: &str) {
    if output.is_for_people() && !is_configured(server, environment) {
        report(server, output, environment, NEW_BY_COMMAND);
    }
}

/// Whether settings name the environment.
fn is_configured(server: &ServerClient, environment: &str) -> bool {
    let found = path(server, environment).and_then(|path| server.get_with_etag(&path));
    found.is_ok_and(|(tag, _)| tag.is_some())
}

/// A notice about an environment that no release names.
#[derive(Clone, Copy)]
enum Notice {
    /// Neither a release nor settings name the environment. The text is the consequence that the notice states, such as
    /// `this command makes it one`.
    New(&'static str),
    /// Only settings name the environment, so a list of environments does not contain it.
    WithoutRelease,
}

/// The notice of a command that creates an environment.
const NEW_BY_COMMAND: Notice = Notice::New("this command makes it one");

/// Prints a notice if no release names this environment.
fn report(server: &ServerClient, output: Output, environment: &str, notice: Notice) {
    if !output.is_for_people() {
        return;
    }
    let Ok(release_counts) = count_releases(server) else { return };
    if let Some(notice) = notice.describe(environment, release_counts.keys().map(String::as_str)) {
        eprint(&notice);
    }
}

impl Notice {
    /// The text of the notice; `None` if the environment has releases.
    fn describe<'n>(self, environment: &str, environments: impl Iterator<Item = &'n str> + Clone) -> Option<String> {
        if environments.clone().any(|name| name == environment) {
            return None;
        }
        let similar = similar_names(environment, environments.clone());
        let hint = if similar.is_empty() {
            let names: Vec<String> = environments.take(MAX_SHOWN).map(sanitize).collect();
            if names.is_empty() { String::new() } else { format!("; environments with releases: {}", names.join(", ")) }
        } else {
            candidate_hint(&similar.into_iter().map(Candidate::named).collect::<Vec<_>>())
        };
        let name = shorten(&sanitize(environment)).into_owned();
        Some(match self {
            Self::New(consequence) => {
                format!("note: `{name}` is no environment of this workspace yet, and {consequence}{hint}")
            }
            Self::WithoutRelease => {
                format!("note: `{name}` has settings but no release, so `fairway environments list` omits it{hint}")
            }
        })
    }
}

impl Settings {
    /// Reads the settings, changes them and writes them back. The entity tag detects a concurrent change.
    fn apply(&self, server: &ServerClient) -> Result<Value, Failure> {
        if self.min_approvals.is_none() && self.allow_self_approval.is_none() && self.pin_documents.is_none() {
            let message = "nothing to change: pass --min-approvals, --allow-self-approval or --pin-documents";
            return Err(Failure::Usage(message.to_owned()));
        }
        let path = path(server, &self.environment)?;
        let (tag, settings) = server.get_with_etag(&path)?;
        let current = |name: &str| settings.get(name).cloned().unwrap_or_default();
        let body = json!({
            "min_approvals": self.min_approvals.map_or_else(|| current("min_approvals"), |count| json!(count)),
            "allow_self_approval":
                self.allow_self_approval.map_or_else(|| current("allow_self_approval"), |allowed| json!(allowed)),
            "pin_documents": self.pin_documents.map_or_else(|| current("pin_documents"), |pinned| json!(pinned)),
        });
        server.update_if_match(&Method::PUT, tag.as_deref(), &path, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_similar_environments_for_a_new_one() {
        let notice = |name: &str, known: &[&str]| NEW_BY_COMMAND.describe(name, known.iter().copied());
        let known = ["dev", "production", "staging"];
        assert_eq!(notice("staging", &known), None);
        let misspelt = notice("stagin", &known).unwrap();
        assert!(misspelt.ends_with("and this command makes it one; did you mean `staging`?"), "{misspelt}");
        let other = notice("load-test", &known).unwrap();
        assert!(other.ends_with("; environments with releases: dev, production, staging"), "{other}");
        assert!(notice("dev", &[]).unwrap().ends_with("makes it one"));
        let configured = Notice::WithoutRelease.describe("stagin", known.iter().copied()).unwrap();
        assert!(configured.starts_with("note: `stagin` has settings but no release, so "), "{configured}");
        assert!(configured.ends_with("; did you mean `staging`?"), "{configured}");
        assert_eq!(Notice::WithoutRelease.describe("dev", known.iter().copied()), None);
    }
}
