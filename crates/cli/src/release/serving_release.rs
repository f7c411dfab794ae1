//! Resolves `WORKLOAD@ENVIRONMENT` for commands that act on the release that serves: `rollback` and `advance`.

use crate::{
    failure::{Candidate, Failure},
    http_client::{ServerClient, required_string, string_or_empty},
    release_and_run_references::find_release,
    terminal_text::{sanitize, shorten},
    workload::find_workload,
};
use fairway_domain::{release::StateName, rollout::RolloutStatus};
use serde_json::Value;

/// Maximum number of releases that a failure lists.
const MAX_CANDIDATES: usize = 5;

/// The id of a release. `WORKLOAD@ENVIRONMENT` is the holder of `lane`; without a lane, the release whose rollout is in
/// progress, else the only active release. Other references are resolved by [`find_release`].
///
/// # Errors
/// When no release serves, or when several do and no rollout is in progress; the failure lists them.
pub(super) fn find(server: &ServerClient, reference: &str, lane: Option<&str>) -> Result<String, Failure> {
    let Some((slug, environment)) = reference.split_once('@') else { return find_release(server, reference) };
    let workload = find_workload(server, slug)?;
    let id = required_string(&workload, "workload_id")?;
    if let Some(lane) = lane {
        let lanes = server.get(&["workloads", id, "lanes"], &[("environment", environment)])?;
        if let Some(holder) = holder(&lanes, lane) {
            return Ok(holder.to_owned());
        }
    }
    let query = [("workload_id", id), ("environment", environment), ("state", StateName::Active.as_str())];
    let serving = server.list(&["releases"], &query)?;
    let target = Target { slug, environment, lane };
    target.choose(&serving)
}

/// Adds the command that rolls back the serving release to a rollback that was refused because of the release's state.
pub(super) fn explain_rollback(server: &ServerClient, release: &str, failure: Failure) -> Failure {
    if !failure.is_refusal("invalid_transition") {
        return failure;
    }
    let found = server.get(&["releases", release], &[]).unwrap_or_default();
    let workload = server.get(&["workloads", string_or_empty(&found, "workload_id")], &[]).unwrap_or_default();
    let (slug, environment) = (string_or_empty(&workload, "slug"), string_or_empty(&found, "environment"));
    not_serving(failure, release, &sanitize(slug), &sanitize(environment))
}

/// Adds to a refusal that the release does not serve, and the command that rolls back the serving release. Without the
/// workload's slug the command contains a placeholder.
fn not_serving(failure: Failure, release: &str, slug: &str, environment: &str) -> Failure {
    let Failure::Refused(mut refusal) = failure else { return failure };
    let state = sanitize(refusal.detail.get("current_state").and_then(Value::as_str).unwrap_or("unknown"));
    refusal.message = format!("release {release} is {state}, and only the release that serves can be rolled back");
    let or_placeholder =
        |text: &str, placeholder: &str| if text.is_empty() { placeholder.to_owned() } else { text.to_owned() };
    let (slug, environment) = (or_placeholder(slug, "WORKLOAD"), or_placeholder(environment, "ENVIRONMENT"));
    Failure::Refused(refusal).with_next(format!("fairway releases rollback {slug}@{environment} --reason WHY"))
}

/// The release that holds a lane, according to the server's list of lanes.
fn holder<'v>(lanes: &'v Value, lane: &str) -> Option<&'v str> {
    let mut lanes = lanes.as_array()?.iter();
    lanes.find(|listed| string_or_empty(listed, "lane") == lane)?.get("holder")?.as_str()
}

/// The workload, environment and lane of a command, for messages.
struct Target<'t> {
    slug: &'t str,
    environment: &'t str,
    lane: Option<&'t str>,
}

impl Target<'_> {
    fn choose(&self, serving: &[Value]) -> Result<String, Failure> {
        let (slug, environment) = (display_name(self.slug), display_name(self.environment));
        let candidates = serving.iter().take(MAX_CANDIDATES).map(candidate).collect();
        if let Some(lane) = self.lane {
            let message = format!("no release of `{slug}` serves lane `{lane}` in environment `{environment}`");
            return Err(Failure::Unknown { message, candidates });
        }
        let in_rollout: Vec<&Value> = serving.iter().filter(|release| has_rollout_in_progress(release)).collect();
        let targets: Vec<&Value> = if in_rollout.is_empty() { serving.iter().collect() } else { in_rollout };
        match targets.as_slice() {
            [only] => required_string(only, "release_id").map(str::to_owned),
            [] => {
                let message = format!("no release of `{slug}` serves environment `{environment}`");
                Err(Failure::Unknown { message, candidates }
                    .with_next(format!("fairway releases list --workload {slug} --env {environment}")))
            }
            several => {
                let message =
                    format!("{} releases of `{slug}` serve lanes of environment `{environment}`", several.len());
                Err(Failure::Unknown { message, candidates }
                    .with_next(format!("fairway releases lanes {slug} --env {environment}")))
            }
        }
    }
}

fn has_rollout_in_progress(release: &Value) -> bool {
    let status = release.pointer("/rollout_state/status").and_then(Value::as_str);
    status.and_then(RolloutStatus::parse) == Some(RolloutStatus::InProgress)
}

fn candidate(release: &Value) -> Candidate {
    let text = |name| string_or_empty(release, name);
    let note = format!("{}, {}, by {}", text("environment"), text("state"), text("created_by"));
    Candidate { name: text("release_id").to_owned(), note: Some(note) }
}

/// Prepares a name from the command line for a message.
fn display_name(name: &str) -> String {
    shorten(&sanitize(name)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Refusal;
    use serde_json::json;

    fn release(id: &str, rollout: Option<&str>) -> Value {
        let rollout = rollout.map(|status| json!({ "status": status }));
        json!({
            "release_id": id, "environment": "prod", "state": "active", "created_by": "user:ada",
            "rollout_state": rollout,
        })
    }

    #[test]
    fn chooses_the_rollout_in_progress_or_the_only_serving_release() {
        let target = Target { slug: "desk", environment: "prod", lane: None };
        assert_eq!(target.choose(&[release("a", None)]).unwrap(), "a");
        assert_eq!(target.choose(&[release("b", Some("in_progress")), release("a", None)]).unwrap(), "b");
        let several = target.choose(&[release("b", Some("completed")), release("a", None)]).unwrap_err().to_string();
        assert!(several.starts_with("2 releases of `desk` serve lanes of environment `prod`"), "{several}");
        assert!(several.contains("`a` (prod, active, by user:ada)"), "{several}");
        assert!(several.ends_with("\nnext: fairway releases lanes desk --env prod"), "{several}");
        let none = target.choose(&[]).unwrap_err().to_string();
        assert!(none.starts_with("no release of `desk` serves environment `prod`\nnext: "), "{none}");
        let lane = Target { lane: Some("guided"), ..target }.choose(&[release("a", None)]).unwrap_err().to_string();
        assert!(lane.starts_with("no release of `desk` serves lane `guided` in environment `prod`; did you"), "{lane}");
        let lanes = json!([{ "lane": "guided", "holder": "a" }, { "lane": "standard", "holder": null }]);
        assert_eq!((holder(&lanes, "guided"), holder(&lanes, "standard")), (Some("a"), None));
    }

    #[test]
    fn refused_rollbacks_of_pending_releases_name_the_command_for_the_serving_one() {
        let refused = || {
            let detail = json!({ "error": "invalid_transition", "message": "no", "current_state": "review_ready" });
            Failure::Refused(Box::new(Refusal::from_body(409, &json!({ "detail": detail }))))
        };
        let text = not_serving(refused(), "019a", "desk", "prod").to_string();
        assert!(text.starts_with("invalid_transition: release 019a is review_ready, and only the release"), "{text}");
        assert!(text.ends_with("\nnext: fairway releases rollback desk@prod --reason WHY"), "{text}");
        let unnamed = not_serving(refused(), "019a", "", "").to_string();
        assert!(unnamed.ends_with("rollback WORKLOAD@ENVIRONMENT --reason WHY"), "{unnamed}");
    }
}
