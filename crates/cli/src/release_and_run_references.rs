//! Resolves short references to releases and runs on the command line.

use crate::{
    failure::{Candidate, Failure},
    http_client::{ServerClient, required_string, string_or_empty},
    similar_names::{MAX_CANDIDATES, similar_names},
    terminal_text::{sanitize, shorten},
    workload,
};
use fairway_domain::release::StateName;
use serde_json::Value;

/// Minimum length of a text that is treated as the beginning of an identifier.
const MIN_PREFIX: usize = 4;
/// Number of runs, newest first, among which a short reference is resolved.
const MAX_RECENT_RUNS: usize = 200;
/// The forms of a release reference, for messages.
const RELEASE_FORMS: &str =
    "a release is given as WORKLOAD@ENVIRONMENT, its id, the unique beginning of its id, or `latest`";

/// Resolves a reference to a release: `WORKLOAD@ENVIRONMENT`, an id, the unique beginning of an id, or `latest`.
///
/// `WORKLOAD@ENVIRONMENT` is the newest release of the workload in the environment that is neither superseded nor
/// retired. `latest` is the newest release of the workspace.
///
/// # Errors
/// When no release or more than one release matches; the failure lists the candidates.
pub(crate) fn find_release(server: &ServerClient, reference: &str) -> Result<String, Failure> {
    if uuid::Uuid::parse_str(reference).is_ok() {
        return Ok(reference.to_owned());
    }
    if reference == "latest" {
        let found = server.list_first(&["releases"], &[("workspace_id", server.workspace_id()?)], 1)?;
        let newest = found.first().ok_or_else(|| not_found("the workspace has no release".to_owned()))?;
        return required_string(newest, "release_id").map(str::to_owned);
    }
    if let Some((slug, environment)) = reference.split_once('@') {
        return newest_release(server, slug, environment);
    }
    let releases = server.list(&["releases"], &[("workspace_id", server.workspace_id()?)])?;
    match with_prefix(&releases, "release_id", reference).as_slice() {
        [only] => required_string(only, "release_id").map(str::to_owned),
        [] => Err(unknown_release(server, reference)),
        several => Err(Failure::Unknown {
            message: format!("`{}` is the beginning of {} releases", sanitize(reference), several.len()),
            candidates: several.iter().take(MAX_CANDIDATES).map(|release| candidate(release)).collect(),
        }),
    }
}

/// The items whose identifier begins with a reference; empty if the reference is too short or not hexadecimal.
fn with_prefix<'v>(items: &'v [Value], member: &str, reference: &str) -> Vec<&'v Value> {
    let is_prefix =
        reference.len() >= MIN_PREFIX && reference.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    let prefix = reference.to_ascii_lowercase();
    items.iter().filter(|item| is_prefix && string_or_empty(item, member).starts_with(&prefix)).collect()
}

/// Resolves a reference to a run: an id, the unique beginning of an id, or `latest`. Short references are resolved
/// among the newest runs that the caller may see.
///
/// # Errors
/// When no run or more than one run matches; the failure lists the candidates.
pub(crate) fn find_execution(server: &ServerClient, reference: &str) -> Result<String, Failure> {
    if uuid::Uuid::parse_str(reference).is_ok() {
        return Ok(reference.to_owned());
    }
    let limit = if reference == "latest" { 1 } else { MAX_RECENT_RUNS };
    let runs = server.list_first(&["executions"], &[], limit)?;
    choose_execution(&runs, reference)
}

/// The id of the run that matches a reference among `runs`.
fn choose_execution(runs: &[Value], reference: &str) -> Result<String, Failure> {
    if reference == "latest" {
        let newest = runs.first().ok_or_else(|| not_found("you can see no run".to_owned()))?;
        return required_string(newest, "execution_id").map(str::to_owned);
    }
    match with_prefix(runs, "execution_id", reference).as_slice() {
        [only] => required_string(only, "execution_id").map(str::to_owned),
        [] => {
            let name = shorten(&sanitize(reference)).into_owned();
            let forms = "a run is given as its id, the unique beginning of its id, or `latest`";
            Err(not_found(format!("none of the newest {MAX_RECENT_RUNS} runs that you can see fits `{name}`: {forms}")))
        }
        several => Err(Failure::Unknown {
            message: format!("`{}` is the beginning of {} runs", sanitize(reference), several.len()),
            candidates: several.iter().take(MAX_CANDIDATES).map(|run| run_candidate(run)).collect(),
        }),
    }
}

/// The newest release of a workload in an environment that is neither superseded nor retired.
fn newest_release(server: &ServerClient, slug: &str, environment: &str) -> Result<String, Failure> {
    let workload = workload::find_workload(server, slug)?;
    let id = required_string(&workload, "workload_id")?;
    let releases = server.list(&["releases"], &[("workload_id", id)])?;
    let in_environment = |release: &&Value| string_or_empty(release, "environment") == environment;
    let is_open = |release: &&Value| {
        let state = StateName::parse(string_or_empty(release, "state"));
        !matches!(state, Some(StateName::Superseded | StateName::Retired))
    };
    if let Some(found) = releases.iter().filter(in_environment).find(is_open) {
        return required_string(found, "release_id").map(str::to_owned);
    }
    let (slug, environment) = (sanitize(slug), shorten(&sanitize(environment)).into_owned());
    let message = match releases.iter().filter(in_environment).count() {
        0 => format!("workload `{slug}` has no release in environment `{environment}`"),
        count => format!("all {count} releases of workload `{slug}` in `{environment}` are superseded or retired"),
    };
    let mut environments: Vec<&str> =
        releases.iter().filter(is_open).map(|release| string_or_empty(release, "environment")).collect();
    environments.sort_unstable();
    environments.dedup();
    let candidates =
        environments.into_iter().take(MAX_CANDIDATES).map(|name| Candidate::named(format!("{slug}@{name}")));
    Err(Failure::Unknown { message, candidates: candidates.collect() })
}

/// The failure for an unknown release. It suggests `WORKLOAD@ENVIRONMENT`, because the reference is often a
/// workload's slug.
fn unknown_release(server: &ServerClient, reference: &str) -> Failure {
    let slugs = server
        .workspace_id()
        .and_then(|workspace| server.list(&["workloads"], &[("workspace_id", workspace)]))
        .unwrap_or_default();
    let similar = similar_names(reference, slugs.iter().map(|workload| string_or_empty(workload, "slug")));
    let candidates = similar.into_iter().map(|slug| Candidate::named(format!("{slug}@ENVIRONMENT"))).collect();
    let name = shorten(&sanitize(reference)).into_owned();
    Failure::Unknown { message: format!("no visible release fits `{name}`: {RELEASE_FORMS}"), candidates }
}

fn candidate(release: &Value) -> Candidate {
    let text = |name| string_or_empty(release, name);
    Candidate {
        name: text("release_id").to_owned(),
        note: Some(format!("{}, {}, by {}", text("environment"), text("state"), text("created_by"))),
    }
}

fn run_candidate(run: &Value) -> Candidate {
    let text = |name| string_or_empty(run, name);
    Candidate {
        name: text("execution_id").to_owned(),
        note: Some(format!("{}, {}, by {}", text("environment"), text("status"), text("submitted_by"))),
    }
}

fn not_found(message: String) -> Failure {
    Failure::Unknown { message, candidates: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finds_runs_by_latest_and_by_unique_beginnings() {
        let run = |id: &str| json!({ "execution_id": id, "environment": "dev", "status": "failed", "submitted_by": "user:ada" });
        let runs = [run("019a0000-0000-7000-8000-000000000002"), run("019a0000-1111-7000-8000-000000000001")];
        let choose = |reference: &str| choose_execution(&runs, reference);
        assert_eq!(choose("latest").unwrap(), "019a0000-0000-7000-8000-000000000002");
        assert_eq!(choose("019A0000-1").unwrap(), "019a0000-1111-7000-8000-000000000001");
        let several = choose("019a").unwrap_err().to_string();
        assert!(several.starts_with("`019a` is the beginning of 2 runs; did you mean one of these?"), "{several}");
        assert!(several.contains("`019a0000-1111-7000-8000-000000000001` (dev, failed, by user:ada)"), "{several}");
        for unknown in ["ffff", "019", "x", ""] {
            let message = choose(unknown).unwrap_err().to_string();
            assert!(message.contains("or `latest`"), "{unknown}: {message}");
        }
        assert_eq!(choose_execution(&[], "latest").unwrap_err().to_string(), "you can see no run");
    }
}
