//! Explains refusals of runs by similar slugs, environments with an active release, and the next command. All names
//! come from lists that the caller may read, so no explanation reveals a hidden workload.

use crate::{
    failure::{Candidate, Failure},
    http_client::{ServerClient, string_or_empty},
    similar_names::similar_names,
    terminal_text::{sanitize, shorten},
};
use serde_json::Value;

/// Maximum number of workloads with which a misspelt slug is compared.
const MAX_COMPARED: usize = 2000;

/// Adds the cause and the next step to a refusal of a run.
pub(super) fn explain(server: &ServerClient, slug: &str, environment: &str, failure: Failure) -> Failure {
    if failure.is_refusal("not_found") {
        return unknown_workload(server, slug, environment, failure);
    }
    if failure.is_refusal("no_active_release") {
        return no_active_release(slug, environment, failure);
    }
    if failure.is_refusal("workload_suspended") {
        return failure.with_next(format!("fairway workloads resume {}", display_name(slug)));
    }
    if failure.is_refusal("share_token_required") {
        return failure.with_next(share_link_hint(slug));
    }
    if failure.is_refusal("queue_full") {
        let next = "try again when queued runs have ended; an operator adds workers or raises FAIRWAY_QUEUE_CAP";
        return failure.with_next(next.to_owned());
    }
    ended_run(failure)
}

/// How to run a workload with share links, which this command cannot do: in a browser, or by HTTP.
fn share_link_hint(slug: &str) -> String {
    let slug = display_name(slug);
    format!(
        "`fairway share-links create {slug}` prints an address: open it in a browser, or send its token as \
         `X-Share-Token` to `POST /v1/workloads/by-slug/{slug}/execute`"
    )
}

/// Adds the next command to a refusal with the id of a stored run: the command that explains the run. If the server
/// does not know whether it accepted the run, the next command waits for the run.
fn ended_run(failure: Failure) -> Failure {
    let Failure::Refused(refusal) = &failure else { return failure };
    let Some(id) = refusal.detail.get("execution_id").and_then(Value::as_str).map(sanitize) else { return failure };
    let verb = if refusal.code == "unavailable" { "wait" } else { "explain" };
    failure.with_next(format!("fairway executions {verb} {id}"))
}

/// The failure for a slug without a visible workload. If a visible workload has the slug, another resource is missing.
fn unknown_workload(server: &ServerClient, slug: &str, environment: &str, failure: Failure) -> Failure {
    let slugs = visible_slugs(server);
    if slugs.iter().any(|known| known == slug) {
        return failure;
    }
    let similar = similar_names(slug, slugs.iter().map(String::as_str));
    let next = similar.first().map_or_else(
        || "fairway workloads list".to_owned(),
        |slug| format!("fairway run {} --env {}", sanitize(slug), display_name(environment)),
    );
    let candidates = similar.into_iter().map(Candidate::named).collect();
    let message = format!("no workload `{}` is visible to you", display_name(slug));
    Failure::Unknown { message, candidates }.with_next(next)
}

/// The slugs of the workloads that the caller may list: those of its workspace, and those with a runtime interface.
/// A refused list counts as empty.
fn visible_slugs(server: &ServerClient) -> Vec<String> {
    let workspace_workloads = server
        .workspace_id()
        .and_then(|workspace| server.list_first(&["workloads"], &[("workspace_id", workspace)], MAX_COMPARED));
    let runnable = server.list_first(&["workloads", "runtime-enabled"], &[], MAX_COMPARED);
    let listed = [workspace_workloads, runnable].into_iter().flat_map(Result::unwrap_or_default);
    let mut slugs: Vec<String> = listed.map(|workload| string_or_empty(&workload, "slug").to_owned()).collect();
    slugs.sort_unstable();
    slugs.dedup();
    slugs
}

/// The failure for an environment without an active release. If the caller may view releases, the server's refusal
/// lists the environments with an active release.
fn no_active_release(slug: &str, environment: &str, failure: Failure) -> Failure {
    let Failure::Refused(mut refusal) = failure else { return failure };
    let (slug, environment_name) = (display_name(slug), display_name(environment));
    refusal.message = format!("no release of `{slug}` is active in environment `{environment_name}`");
    let active: Option<Vec<&str>> = refusal
        .detail
        .get("active_environments")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect());
    let next = active.map(|active| {
        let similar = similar_names(environment, active.iter().copied());
        match similar.first().or_else(|| active.first()) {
            Some(environment) => format!("fairway run {slug} --env {}", sanitize(environment)),
            None => format!("fairway releases list --workload {slug}"),
        }
    });
    let refused = Failure::Refused(refusal);
    match next {
        Some(next) => refused.with_next(next),
        None => refused,
    }
}

/// Prepares a name from the command line for an error message.
fn display_name(name: &str) -> String {
    shorten(&sanitize(name)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{failure::Refusal, http_client::Identity};
    use serde_json::json;

    fn refusal(detail: &Value) -> Failure {
        let body = json!({ "detail": detail, "request_id": "r" });
        Failure::Refused(Box::new(Refusal::from_body(409, &body)))
    }

    fn refused(detail: &Value) -> Failure {
        no_active_release("letters", "prod", refusal(detail))
    }

    #[test]
    fn refusals_of_stored_runs_name_the_command_that_explains_them() {
        let explained = |code: &str, id: Value| {
            ended_run(refusal(&json!({ "error": code, "message": "m", "execution_id": id }))).to_string()
        };
        for code in ["policy_denied", "provider_unavailable", "prompt_argument_missing"] {
            assert!(explained(code, json!("019a")).ends_with("\nnext: fairway executions explain 019a"), "{code}");
        }
        assert!(explained("unavailable", json!("019a")).ends_with("\nnext: fairway executions wait 019a"));
        assert!(!explained("queue_full", Value::Null).contains("next:"), "a refusal without a run");
    }

    #[test]
    fn a_required_share_link_names_the_command_that_creates_one() {
        let server = ServerClient::new("http://127.0.0.1:9", Identity::default(), None).unwrap();
        let required = refusal(&json!({ "error": "share_token_required", "message": "m" }));
        let text = explain(&server, "letterbox", "dev", required).to_string();
        assert!(text.contains("\nnext: `fairway share-links create letterbox` prints an address"), "{text}");
        assert!(text.ends_with("`X-Share-Token` to `POST /v1/workloads/by-slug/letterbox/execute`"), "{text}");
    }

    #[test]
    fn names_environments_with_an_active_release_and_the_next_command() {
        let detail = |environments: Value| json!({ "error": "no_active_release", "message": "m", "active_environments": environments });
        let several = refused(&detail(json!(["dev", "production"])));
        assert_eq!(
            several.to_string(),
            "no_active_release: no release of `letters` is active in environment `prod` (request r)\n  \
             active in: dev, production\nnext: fairway run letters --env production"
        );
        let json = several.to_json();
        assert_eq!(json["detail"]["next_command"], "fairway run letters --env production");
        assert_eq!((&json["detail"]["error"], &json["exit_code"]), (&json!("no_active_release"), &json!(1)));
        let none = refused(&detail(json!([]))).to_string();
        assert!(none.ends_with("active in: no environment\nnext: fairway releases list --workload letters"), "{none}");
        let unknown = refused(&json!({ "error": "no_active_release", "message": "m" })).to_string();
        assert!(!unknown.contains("next:") && !unknown.contains("active in:"), "{unknown}");
    }
}
