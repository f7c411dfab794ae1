//! `fairway release DIRECTORY`: applies a directory, submits its drafts, and says who can approve them.

use crate::{
    completion,
    failure::{Candidate, Failure, candidate_hint},
    output::{Column, eprint, print},
    reference::similar_names,
    server::{Server, required_string, string_or_empty},
    session::Session,
    sync,
    text::sanitize,
};
use clap::{Args, CommandFactory as _};
use fairway_domain::{access::Permission, release::StateName};
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::PathBuf};

const COLUMNS: [Column; 4] =
    [("WORKLOAD", "/workload"), ("ENV", "/environment"), ("RELEASE", "/release_id"), ("STATE", "/state")];

/// Arguments of `release DIRECTORY`.
#[derive(Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// A directory of manifests to apply and submit
    // Several words are a misspelt command with its arguments.
    #[arg(value_name = "DIRECTORY")]
    words: Vec<PathBuf>,
    /// The environment to release to; else the profile's
    #[arg(long, short, value_name = "ENVIRONMENT", add = completion::environments())]
    env: Option<String>,
}

/// Plans, applies and submits the releases of one environment.
pub(super) fn publish(arguments: &Arguments, session: &Session) -> Result<(), Failure> {
    let directory = match arguments.words.as_slice() {
        [only] if only.is_dir() => only,
        [first, ..] if !first.is_dir() => return Err(no_directory(&first.to_string_lossy())),
        _ => {
            let message = "name one directory, or a command; `fairway releases --help` lists the commands";
            return Err(Failure::Usage(message.to_owned()));
        }
    };
    let environment = session.environment(arguments.env.as_deref())?;
    let (output, server) = session.open()?;
    let mut releases = sync::apply_environment(&server, output, directory, &environment)?;
    for release in &mut releases {
        submit(&server, release)?;
    }
    let waiting = releases.iter().find(|release| string_or_empty(release, "state") == StateName::ReviewReady.as_str());
    let approval = waiting.map(|_| Approval::read(&server, &environment)).transpose()?;
    if !output.is_for_people() {
        let approval = approval.as_ref().map(Approval::to_json);
        return output.value(&json!({ "releases": releases, "approval": approval }));
    }
    output.list(&releases, &COLUMNS)?;
    if let (Some(release), Some(approval)) = (waiting, approval) {
        print("")?;
        print(&approval.describe())?;
        output.hint(&approval.next_step(required_string(release, "release_id")?));
    }
    Ok(())
}

/// Submits a draft for review. Releases in other states stay as they are.
fn submit(server: &Server, release: &mut Value) -> Result<(), Failure> {
    if string_or_empty(release, "state") != StateName::Draft.as_str() {
        return Ok(());
    }
    let submitted = super::transition(server, required_string(release, "release_id")?, StateName::ReviewReady)?;
    if let (Some(members), Some(state)) = (release.as_object_mut(), submitted.get("state")) {
        members.insert("state".to_owned(), state.clone());
    }
    eprint("the draft is submitted; its bindings are frozen");
    Ok(())
}

/// The rules of an approval, and who can give it.
struct Approval {
    min_approvals: u64,
    allows_self_approval: bool,
    /// The roles with the permission.
    roles: Vec<String>,
    /// The principals with such a role; none if the caller may not see role bindings.
    principals: Option<BTreeSet<String>>,
}

impl Approval {
    fn read(server: &Server, environment: &str) -> Result<Self, Failure> {
        let workspace = server.workspace_id()?;
        let settings = readable(server.get(&["workspaces", workspace, "environments", environment, "settings"], &[]))?;
        let settings = settings.unwrap_or_default();
        let Value::Array(all) = server.get(&["roles"], &[])? else {
            return Err(Failure::Failed("the server's response lists no roles".to_owned()));
        };
        let may_approve = |role: &&Value| {
            let granted = role.get("permissions").and_then(Value::as_array).into_iter().flatten();
            granted.filter_map(Value::as_str).any(|name| name == Permission::ReleaseApprove.as_str())
        };
        let roles: Vec<String> =
            all.iter().filter(may_approve).map(|role| string_or_empty(role, "role").to_owned()).collect();
        let bindings = readable(server.list(&["role-bindings"], &[("workspace_id", workspace)]))?;
        let principals = bindings.map(|bindings| {
            let fits = |binding: &&Value| roles.iter().any(|role| role == string_or_empty(binding, "role"));
            bindings.iter().filter(fits).map(|binding| string_or_empty(binding, "principal").to_owned()).collect()
        });
        Ok(Self {
            min_approvals: settings.get("min_approvals").and_then(Value::as_u64).unwrap_or(1),
            allows_self_approval: settings.get("allow_self_approval").and_then(Value::as_bool).unwrap_or_default(),
            roles,
            principals,
        })
    }

    fn to_json(&self) -> Value {
        json!({
            "min_approvals": self.min_approvals,
            "allow_self_approval": self.allows_self_approval,
            "roles": self.roles,
            "principals": self.principals,
        })
    }

    /// The command that approves, and who runs it.
    fn next_step(&self, release: &str) -> String {
        let command = format!("fairway releases approve {release}");
        if self.allows_self_approval { command } else { format!("another person runs `{command}`") }
    }

    fn describe(&self) -> String {
        let people = match self.min_approvals {
            1 => "1 approval is needed".to_owned(),
            several => format!("{several} approvals are needed"),
        };
        let own = if self.allows_self_approval { "the author may approve it too" } else { "not from its author" };
        let roles = self.roles.join(", ");
        let who = match &self.principals {
            Some(principals) if !principals.is_empty() => {
                let names: Vec<String> = principals.iter().map(|name| sanitize(name)).collect();
                format!("can approve: {}", names.join(", "))
            }
            Some(_) | None => format!("can approve: holders of a role among {}", sanitize(&roles)),
        };
        format!("{people}, {own}\n{who}")
    }
}

/// The response, or none if the caller may not see it.
fn readable<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Err(Failure::Refused(refusal)) if matches!(refusal.status, 403 | 404) => Ok(None),
        found => found.map(Some),
    }
}

/// A missing directory may be a misspelt command.
fn no_directory(name: &str) -> Failure {
    let line = crate::command_line::CommandLine::command();
    let known = line.find_subcommand("releases").into_iter().flat_map(clap::Command::get_subcommands);
    let similar = similar_names(name, known.map(clap::Command::get_name).collect::<Vec<_>>().into_iter());
    let candidates: Vec<Candidate> =
        similar.into_iter().map(|name| Candidate::named(format!("fairway releases {name}"))).collect();
    let hint = candidate_hint(&candidates);
    Failure::Usage(format!("`{}` is neither a directory nor a command{hint}", sanitize(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_another_person_where_authors_may_not_approve() {
        let approval = |allows_self_approval| Approval {
            min_approvals: 1,
            allows_self_approval,
            roles: vec!["approver".to_owned()],
            principals: None,
        };
        assert_eq!(approval(true).next_step("019a"), "fairway releases approve 019a");
        assert_eq!(approval(false).next_step("019a"), "another person runs `fairway releases approve 019a`");
    }
}
