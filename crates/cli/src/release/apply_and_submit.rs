//! `fairway release DIRECTORY`: applies a directory of manifests, submits the drafted releases, and prints who can
//! approve them.

use super::{eligible_approvers::EligibleApprovers, next_step};
use crate::{
    command_context::CommandContext,
    dynamic_completion,
    failure::{Candidate, Failure, candidate_hint},
    http_client::{ServerClient, required_string, string_or_empty},
    output::{Column, eprint, print},
    similar_names::similar_names,
    sync,
    terminal_text::sanitize,
};
use clap::{Args, CommandFactory as _};
use fairway_domain::release::StateName;
use serde_json::{Value, json};
use std::path::PathBuf;

const COLUMNS: [Column; 4] =
    [("WORKLOAD", "/workload"), ("ENV", "/environment"), ("RELEASE", "/release_id"), ("STATE", "/state")];

/// Arguments of `release DIRECTORY`.
#[derive(Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// A directory of manifests to apply and submit
    // Accepts several words, so that a misspelt command with arguments receives a helpful error.
    #[arg(value_name = "DIRECTORY")]
    words: Vec<PathBuf>,
    /// The environment to release to; else the profile's
    #[arg(long, short, value_name = "ENVIRONMENT", add = dynamic_completion::environments())]
    env: Option<String>,
}

/// Plans, applies and submits the releases of one environment.
pub(super) fn run(arguments: &Arguments, context: &CommandContext) -> Result<(), Failure> {
    let directory = match arguments.words.as_slice() {
        [only] if only.is_dir() => only,
        [first, ..] if !first.is_dir() => return Err(no_directory(&first.to_string_lossy())),
        _ => {
            let message = "name one directory, or a command; `fairway releases --help` lists the commands";
            return Err(Failure::Usage(message.to_owned()));
        }
    };
    let environment = context.environment(arguments.env.as_deref())?;
    let (output, server) = context.open()?;
    let mut releases = sync::apply_environment(&server, output, directory, &environment)?;
    for release in &mut releases {
        submit(&server, release)?;
    }
    let under_review =
        releases.iter().find(|release| string_or_empty(release, "state") == StateName::ReviewReady.as_str());
    let approval = under_review.map(|_| EligibleApprovers::read(&server, &environment)).transpose()?;
    if !output.is_for_people() {
        let approval = approval.as_ref().map(EligibleApprovers::to_json);
        return output.value(&json!({ "releases": releases, "approval": approval }));
    }
    output.list(&releases, &COLUMNS)?;
    if let (Some(release), Some(approval)) = (under_review, approval) {
        next_step::report_gate_warnings(&server, required_string(release, "release_id")?);
        print("")?;
        print(&approval.describe())?;
        output.hint(&approval.next_step(required_string(release, "release_id")?));
    }
    Ok(())
}

/// Submits a release for review if it is a draft; leaves releases in other states unchanged.
fn submit(server: &ServerClient, release: &mut Value) -> Result<(), Failure> {
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

/// The failure for a missing directory. It suggests similar commands, because the name may be a misspelt command.
fn no_directory(name: &str) -> Failure {
    let command_line = crate::command_line::CommandLine::command();
    let subcommands = command_line.find_subcommand("releases").into_iter().flat_map(clap::Command::get_subcommands);
    let similar = similar_names(name, subcommands.map(clap::Command::get_name).collect::<Vec<_>>().into_iter());
    let candidates: Vec<Candidate> =
        similar.into_iter().map(|name| Candidate::named(format!("fairway releases {name}"))).collect();
    let hint = candidate_hint(&candidates);
    Failure::Usage(format!("`{}` is neither a directory nor a command{hint}", sanitize(name)))
}
