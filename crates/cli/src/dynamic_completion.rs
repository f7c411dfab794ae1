//! Completion of names and identifiers from the server, for the scripts of `fairway completions`.
//!
//! The shell's script calls this program with the environment variable `COMPLETE`. The program requests the values
//! from the server that the incomplete command line selects, within a second. Errors yield no values and no message,
//! because a message would appear in the middle of the command line.

use crate::{
    command_context::CommandContext,
    command_line::{CommandLine, GlobalOptions},
    failure::Failure,
    http_client::ServerClient,
};
use clap::{CommandFactory as _, FromArgMatches as _};
use clap_complete::{
    CompleteEnv,
    engine::{ArgValueCandidates, CompletionCandidate},
};
use fairway_domain::asset::kind::AssetKind;
use serde_json::Value;
use std::{
    collections::{BTreeSet, HashMap},
    env, io,
    sync::mpsc,
    thread,
    time::Duration,
};

/// The environment variable by which a shell's script requests completions.
pub(crate) const COMPLETION_VARIABLE: &str = "COMPLETE";
/// Maximum number of values for one argument. The newest values are included.
const MAX_VALUES: usize = 200;
/// Maximum time for the server's response. It is short, because a person waits for the completion.
const TIMEOUT: Duration = Duration::from_secs(1);

type Candidates = Result<Vec<CompletionCandidate>, Failure>;

/// Writes the completions if a shell's script started this process; returns `false` for every other start.
///
/// # Errors
/// When the shell is not supported, or the completions cannot be written.
pub(crate) fn write_completions_if_requested() -> io::Result<bool> {
    let directory = env::current_dir().ok();
    let completion = CompleteEnv::with_factory(CommandLine::command).var(COMPLETION_VARIABLE);
    completion.try_complete(env::args_os(), directory.as_deref()).map_err(io::Error::other)
}

pub(crate) fn workloads() -> ArgValueCandidates {
    candidates(|server| list(server, &["workloads"], &[], "/slug", "/name"))
}

pub(crate) fn assets() -> ArgValueCandidates {
    candidates(|server| list(server, &["assets"], &[], "/slug", "/asset_kind"))
}

pub(crate) fn flows() -> ArgValueCandidates {
    let filter = [("asset_kind", AssetKind::OrchestrationFlow.as_str())];
    candidates(move |server| list(server, &["assets"], &filter, "/slug", "/owner_ref"))
}

/// Completes environments with those of the existing releases, because the server has no list of environments.
pub(crate) fn environments() -> ArgValueCandidates {
    candidates(|server| {
        let releases = server.list_first(&["releases"], &[("workspace_id", server.workspace_id()?)], MAX_VALUES)?;
        let names: BTreeSet<&str> = releases.iter().filter_map(|release| text(release, "/environment")).collect();
        Ok(names.into_iter().map(CompletionCandidate::new).collect())
    })
}

pub(crate) fn connections() -> ArgValueCandidates {
    candidates(|server| list(server, &["connections"], &[], "/name", "/status"))
}

pub(crate) fn executions() -> ArgValueCandidates {
    candidates(|server| list(server, &["executions"], &[], "/execution_id", "/status"))
}

pub(crate) fn use_cases() -> ArgValueCandidates {
    candidates(|server| list(server, &["use-cases"], &[], "/use_case_id", "/name"))
}

pub(crate) fn access_requests() -> ArgValueCandidates {
    candidates(|server| {
        list(server, &["access-requests"], &[("status", "pending")], "/access_request_id", "/connection_name")
    })
}

pub(crate) fn erasures() -> ArgValueCandidates {
    candidates(|server| {
        let requested = server.list_first(&["erasures"], &[("status", "requested")], MAX_VALUES)?;
        Ok(requested.iter().filter_map(|erasure| candidate(erasure, "/erasure_id", "/subject")).collect())
    })
}

/// Completes references to releases: `latest`, `WORKLOAD@ENVIRONMENT`, and identifiers.
pub(crate) fn releases() -> ArgValueCandidates {
    candidates(|server| {
        let workspace = server.workspace_id()?;
        let read = |path| server.list_first(&[path], &[("workspace_id", workspace)], MAX_VALUES);
        let workloads = read("workloads")?;
        let slugs: HashMap<&str, &str> = workloads
            .iter()
            .filter_map(|workload| Some((text(workload, "/workload_id")?, text(workload, "/slug")?)))
            .collect();
        let releases = read("releases")?;
        let pair = |release| {
            let slug = slugs.get(text(release, "/workload_id")?)?;
            Some(format!("{slug}@{}", text(release, "/environment")?))
        };
        let pairs: BTreeSet<String> = releases.iter().filter_map(pair).collect();
        let identifiers = releases.iter().filter_map(|release| candidate(release, "/release_id", "/state"));
        let references = pairs.into_iter().chain(["latest".to_owned()]).map(CompletionCandidate::new);
        Ok(references.chain(identifiers).collect())
    })
}

/// Lists resources of the workspace. The member `value` of each item becomes a candidate, and the member `help` its
/// description.
fn list(server: &ServerClient, path: &[&str], filters: &[(&str, &str)], value: &str, help: &str) -> Candidates {
    let mut query = vec![("workspace_id", server.workspace_id()?)];
    query.extend(filters);
    let items = server.list_first(path, &query, MAX_VALUES)?;
    Ok(items.iter().filter_map(|item| candidate(item, value, help)).collect())
}

fn candidate(item: &Value, value: &str, help: &str) -> Option<CompletionCandidate> {
    let help = text(item, help).map(|help| help.to_owned().into());
    Some(CompletionCandidate::new(text(item, value)?).help(help))
}

fn text<'v>(item: &'v Value, pointer: &str) -> Option<&'v str> {
    item.pointer(pointer)?.as_str()
}

fn candidates(read: impl Fn(&ServerClient) -> Candidates + Copy + Send + Sync + 'static) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        let (sender, receiver) = mpsc::channel();
        // The thread needs no cancellation, because the process exits after it has written the completions.
        thread::spawn(move || {
            let found = CommandContext::of(options()).open().and_then(|(_, server)| read(&server));
            sender.send(found.unwrap_or_default())
        });
        receiver.recv_timeout(TIMEOUT).unwrap_or_default()
    })
}

/// The global options of the incomplete command line, which the script passes after `--`.
fn options() -> GlobalOptions {
    let args = env::args_os().skip_while(|word| word != "--").skip(1);
    let parsed = CommandLine::command().ignore_errors(true).try_get_matches_from(args);
    let parsed_options = parsed.and_then(|matches| {
        // clap stores global options that follow a subcommand in the matches of the subcommand.
        let mut innermost = &matches;
        while let Some((_, inner)) = innermost.subcommand() {
            innermost = inner;
        }
        GlobalOptions::from_arg_matches(innermost)
    });
    parsed_options.unwrap_or_default()
}
