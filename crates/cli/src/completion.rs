//! Completion of names and identifiers from the server, for the scripts of `fairway completions`.
//!
//! The shell's script calls this program with `COMPLETE` set. The values come from the server of the command line that is
//! being completed, with its profile, within a second. Completion has no error output, because it would appear in the middle
//! of the command line: without an answer there are no values.

use crate::{
    command_context::Session,
    command_line::{CommandLine, Global},
    failure::Failure,
    http_client::Server,
};
use clap::{CommandFactory as _, FromArgMatches as _};
use clap_complete::{
    CompleteEnv,
    engine::{ArgValueCandidates, CompletionCandidate},
};
use serde_json::Value;
use std::{
    collections::{BTreeSet, HashMap},
    env, io,
    sync::mpsc,
    thread,
    time::Duration,
};

/// The variable by which a shell's script asks for completions.
pub(crate) const VARIABLE: &str = "COMPLETE";
/// The maximum number of values of one kind, the newest first.
const MAX_VALUES: usize = 200;
/// The maximum time for an answer. A person waits for it.
const TIMEOUT: Duration = Duration::from_secs(1);

type Candidates = Result<Vec<CompletionCandidate>, Failure>;

/// Answers a request of a shell's script; false if the process was not started for one.
///
/// # Errors
/// When the shell is not supported, or the answer cannot be written.
pub(crate) fn answer() -> io::Result<bool> {
    let directory = env::current_dir().ok();
    let completion = CompleteEnv::with_factory(CommandLine::command).var(VARIABLE);
    completion.try_complete(env::args_os(), directory.as_deref()).map_err(io::Error::other)
}

pub(crate) fn workloads() -> ArgValueCandidates {
    candidates(|server| named(server, &["workloads"], &[], "/slug", "/name"))
}

pub(crate) fn assets() -> ArgValueCandidates {
    candidates(|server| named(server, &["assets"], &[], "/slug", "/kind"))
}

pub(crate) fn flows() -> ArgValueCandidates {
    candidates(|server| named(server, &["assets"], &[("kind", "flow")], "/slug", "/name"))
}

/// The environments of releases. An environment exists as soon as something names it.
pub(crate) fn environments() -> ArgValueCandidates {
    candidates(|server| {
        let releases = server.list_first(&["releases"], &[("workspace_id", server.workspace_id()?)], MAX_VALUES)?;
        let names: BTreeSet<&str> = releases.iter().filter_map(|release| text(release, "/environment")).collect();
        Ok(names.into_iter().map(CompletionCandidate::new).collect())
    })
}

pub(crate) fn connections() -> ArgValueCandidates {
    candidates(|server| named(server, &["connections"], &[], "/name", "/status"))
}

pub(crate) fn executions() -> ArgValueCandidates {
    candidates(|server| named(server, &["executions"], &[], "/execution_id", "/status"))
}

pub(crate) fn use_cases() -> ArgValueCandidates {
    candidates(|server| named(server, &["use-cases"], &[], "/use_case_id", "/name"))
}

pub(crate) fn access_requests() -> ArgValueCandidates {
    candidates(|server| {
        named(server, &["access-requests"], &[("status", "pending")], "/access_request_id", "/connection_name")
    })
}

pub(crate) fn erasures() -> ArgValueCandidates {
    candidates(|server| {
        let requested = server.list_first(&["erasures"], &[("status", "requested")], MAX_VALUES)?;
        Ok(requested.iter().filter_map(|erasure| candidate(erasure, "/erasure_id", "/subject")).collect())
    })
}

/// The forms of a reference to a release: `latest`, `WORKLOAD@ENVIRONMENT`, and identifiers.
pub(crate) fn releases() -> ArgValueCandidates {
    candidates(|server| {
        let workspace = server.workspace_id()?;
        let read = |path| server.list_first(&[path], &[("workspace_id", workspace)], MAX_VALUES);
        let workloads = read("workloads")?;
        let slugs: HashMap<&str, &str> =
            workloads.iter().filter_map(|one| Some((text(one, "/workload_id")?, text(one, "/slug")?))).collect();
        let releases = read("releases")?;
        let pair = |release| {
            let slug = slugs.get(text(release, "/workload_id")?)?;
            Some(format!("{slug}@{}", text(release, "/environment")?))
        };
        let pairs: BTreeSet<String> = releases.iter().filter_map(pair).collect();
        let identifiers = releases.iter().filter_map(|release| candidate(release, "/release_id", "/state"));
        let named = pairs.into_iter().chain(["latest".to_owned()]).map(CompletionCandidate::new);
        Ok(named.chain(identifiers).collect())
    })
}

/// The values of one column of a list of the workspace, explained by another.
fn named(server: &Server, path: &[&str], filters: &[(&str, &str)], value: &str, help: &str) -> Candidates {
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

fn candidates(read: impl Fn(&Server) -> Candidates + Copy + Send + Sync + 'static) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        let (sender, receiver) = mpsc::channel();
        // The process ends after the answer, and the thread with it.
        thread::spawn(move || {
            let found = Session::of(options()).open().and_then(|(_, server)| read(&server));
            sender.send(found.unwrap_or_default())
        });
        receiver.recv_timeout(TIMEOUT).unwrap_or_default()
    })
}

/// The global options of the incomplete command line, which the script passes after `--`.
fn options() -> Global {
    let words = env::args_os().skip_while(|word| word != "--").skip(1);
    let parsed = CommandLine::command().ignore_errors(true).try_get_matches_from(words);
    let given = parsed.and_then(|matches| {
        // Global options that follow a command belong to its matches.
        let mut innermost = &matches;
        while let Some((_, inner)) = innermost.subcommand() {
            innermost = inner;
        }
        Global::from_arg_matches(innermost)
    });
    given.unwrap_or_default()
}
