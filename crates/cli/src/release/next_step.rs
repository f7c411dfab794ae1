//! Recommends the next command after a verdict or a refused transition of a release.

use crate::{
    failure::{Failure, Refusal},
    http_client::{ServerClient, string_or_empty},
    output::{Output, eprint},
    terminal_text::sanitize,
};
use fairway_domain::release::{StateName, gate::GateResult, review::ReleaseVerdict};
use serde_json::Value;

/// Prints the next step after a verdict. A failure to read the release is not reported, because the verdict is
/// recorded. If the gates cannot be read, the message contains no command.
pub(super) fn report_after_verdict(server: &ServerClient, output: Output, release: &str, verdict: ReleaseVerdict) {
    if !output.is_for_people() {
        return;
    }
    let Ok(found) = server.get(&["releases", release], &[]) else { return };
    let Ok(Value::Array(gates)) = server.get(&["releases", release, "gates"], &[]) else { return };
    let Some(state) = StateName::parse(string_or_empty(&found, "state")) else { return };
    let NextStep { notices, next } = NextStep::after(verdict, release, state, &gates);
    for notice in notices {
        eprint(&notice);
    }
    if verdict == ReleaseVerdict::Approved {
        print_warnings(&gates);
    }
    if let Some(next) = next {
        output.hint(&next);
    }
}

/// The command that follows an activation: it watches the rollout, or runs the workload. A failure to read the workload
/// is not reported, because the release is active.
pub(super) fn after_activation(server: &ServerClient, output: Output, release: &Value, has_rollout: bool) -> String {
    let id = sanitize(string_or_empty(release, "release_id"));
    if has_rollout {
        return format!("fairway releases watch {id}");
    }
    let path = ["workloads", string_or_empty(release, "workload_id")];
    let workload = if output.is_for_people() { server.get(&path, &[]).ok() } else { None };
    let run = workload.and_then(|workload| run_command(&workload, string_or_empty(release, "environment")));
    run.unwrap_or_else(|| format!("fairway releases show {id}"))
}

/// The command that runs a workload, with the required inputs of its form.
fn run_command(workload: &Value, environment: &str) -> Option<String> {
    let slug = workload.get("slug").and_then(Value::as_str)?;
    let mut command = format!("fairway run {} --env {}", sanitize(slug), sanitize(environment));
    let fields = workload.pointer("/interface_config/input_fields").and_then(Value::as_array);
    let is_required = |field: &&Value| field.get("required") == Some(&Value::Bool(true));
    for field in fields.into_iter().flatten().filter(is_required) {
        command.push_str(&format!(" --input {}=VALUE", sanitize(string_or_empty(field, "name"))));
    }
    Some(command)
}

/// Sentences about the state of the release, and the next command.
#[derive(PartialEq, Eq, Debug, Default)]
struct NextStep {
    notices: Vec<String>,
    next: Option<String>,
}

impl NextStep {
    fn after(verdict: ReleaseVerdict, release: &str, state: StateName, gates: &[Value]) -> Self {
        let next = |command: &str| Some(format!("fairway releases {command}"));
        let is_under_review = matches!(state, StateName::ReviewReady | StateName::Approved);
        match (verdict, state) {
            (ReleaseVerdict::ChangesRequested, StateName::Draft) => {
                Self { notices: Vec::new(), next: next(&format!("bind {release} VERSION")) }
            }
            (ReleaseVerdict::Approved, _) if is_under_review => {
                let missing: Vec<String> = missing_approvals(gates).collect();
                let next = if missing.is_empty() {
                    next(&format!("activate {release}"))
                } else {
                    Some(format!("another person runs `fairway releases approve {release}`"))
                };
                Self { notices: missing, next }
            }
            (ReleaseVerdict::Rejected, _) if is_under_review => {
                Self { notices: Vec::new(), next: next(&format!("withdraw {release}")) }
            }
            (ReleaseVerdict::Approved | ReleaseVerdict::Rejected | ReleaseVerdict::ChangesRequested, state) => {
                let notice = format!("the release is {}; the verdict is recorded and changes nothing", state.as_str());
                let next = (state == StateName::Draft).then(|| format!("fairway releases submit {release}"));
                Self { notices: vec![notice], next }
            }
        }
    }
}

/// Prints the warnings of the gates, such as an undeclared input that a rule reads. Warnings block no transition, so a
/// failure to read them is not reported.
pub(super) fn report_gate_warnings(server: &ServerClient, release: &str) {
    let Ok(Value::Array(gates)) = server.get(&["releases", release, "gates"], &[]) else { return };
    print_warnings(&gates);
}

fn print_warnings(gates: &[Value]) {
    for gate in gates.iter().filter(|gate| string_or_empty(gate, "verdict") == GateResult::Warn.as_str()) {
        eprint(&format!("warning: {}", string_or_empty(gate, "message")));
    }
}

/// The server's messages of the blocked approval gates, with the numbers of existing and of required approvals.
fn missing_approvals(gates: &[Value]) -> impl Iterator<Item = String> {
    let is_missing = |gate: &&Value| {
        string_or_empty(gate, "gate") == "approvals" && string_or_empty(gate, "verdict") == GateResult::Blocked.as_str()
    };
    gates.iter().filter(is_missing).map(|gate| format!("approvals: {}", string_or_empty(gate, "message")))
}

/// Adds the next step to a refusal: who can approve, or which commands the state of the release permits.
pub(super) fn explain(server: &ServerClient, release: &str, failure: Failure) -> Failure {
    let is_own = failure.is_refusal("self_approval_not_allowed");
    if is_rejection(&failure)
        && let Some(rejection) = newest_rejection(server, release)
    {
        return rejected(failure, release, &rejection);
    }
    if is_own || failure.is_refusal("approval_required") {
        let found = server.get(&["releases", release], &[]).unwrap_or_default();
        return failure.with_next(approval_hint(release, string_or_empty(&found, "environment"), is_own));
    }
    failure
        .map_refusal("invalid_transition", |refusal| invalid_transition(*refusal, release))
        .map_refusal("release_not_editable", |refusal| not_editable(*refusal, release))
        .map_refusal("activation_blocked", |refusal| {
            Failure::Refused(refusal).with_next(format!("`fairway releases gates {release}` shows all requirements"))
        })
}

/// Whether the server refused an approval or activation because the newest verdict is not an approval.
fn is_rejection(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(refusal)
        if refusal.code == "approval_required" && refusal.detail.get("rejected") == Some(&Value::Bool(true)))
}

/// The newest verdict, if it is not an approval.
fn newest_rejection(server: &ServerClient, release: &str) -> Option<Value> {
    let verdicts = server.list(&["releases", release, "approvals"], &[]).ok()?;
    let at = |verdict: &Value| string_or_empty(verdict, "approved_at").to_owned();
    let newest = verdicts.into_iter().max_by_key(at)?;
    (string_or_empty(&newest, "outcome") != ReleaseVerdict::Approved.as_str()).then_some(newest)
}

/// Adds to a refusal the reviewer, the reason of the rejection, and the command by which the author returns the release
/// to draft.
fn rejected(failure: Failure, release: &str, rejection: &Value) -> Failure {
    let Failure::Refused(mut refusal) = failure else { return failure };
    let text = |name| sanitize(string_or_empty(rejection, name));
    let note = text("note");
    let note = if note.is_empty() { String::new() } else { format!(": {note}") };
    refusal.message = format!("{} by {}{note}", text("outcome"), text("approved_by"));
    let next = format!(
        "{} makes it a draft again, or another person runs {}",
        release_command("withdraw", release),
        release_command("approve", release)
    );
    Failure::Refused(refusal).with_next(next)
}

/// Adds to a refused transition the release, and the commands for the transitions that its state permits.
fn invalid_transition(mut refusal: Refusal, release: &str) -> Failure {
    let state = sanitize(refusal.detail.get("current_state").and_then(Value::as_str).unwrap_or("unknown"));
    refusal.message = format!("release {release} is {state}, and {}", refusal.message);
    let valid = refusal.detail.get("valid_transitions").and_then(Value::as_array).into_iter().flatten();
    let commands: Vec<String> =
        valid.filter_map(Value::as_str).filter_map(command_to).map(|verb| release_command(verb, release)).collect();
    let refused = Failure::Refused(Box::new(refusal));
    match commands.is_empty() {
        true => refused.with_next("fairway releases create WORKLOAD --env ENVIRONMENT --bind VERSION".to_owned()),
        false => refused.with_next(commands.join(", or ")),
    }
}

fn release_command(verb: &str, release: &str) -> String {
    format!("`fairway releases {verb} {release}`")
}

/// The name of the command that requests a transition to a state, if one exists.
fn command_to(state: &str) -> Option<&'static str> {
    match StateName::parse(state)? {
        StateName::Draft => Some("withdraw"),
        StateName::ReviewReady => Some("submit"),
        StateName::Approved => Some("approve"),
        StateName::Active => Some("activate"),
        StateName::Retired => Some("retire"),
        StateName::Superseded => None,
    }
}

/// Adds to a refused edit the way to an editable draft. A release in review can return to draft; in other states, a new
/// release is needed.
fn not_editable(mut refusal: Refusal, release: &str) -> Failure {
    let state = sanitize(refusal.detail.get("current_state").and_then(Value::as_str).unwrap_or("unknown"));
    refusal.message = format!("release {release} is {state}: {}", refusal.message);
    let next = if state == StateName::ReviewReady.as_str() {
        format!("{} makes it a draft again", release_command("withdraw", release))
    } else {
        "`fairway releases create WORKLOAD --env ENVIRONMENT --bind VERSION` drafts another release".to_owned()
    };
    Failure::Refused(Box::new(refusal)).with_next(next)
}

fn approval_hint(release: &str, environment: &str, is_own: bool) -> String {
    let environment = if environment.is_empty() { "ENVIRONMENT".to_owned() } else { sanitize(environment) };
    let options =
        if is_own { "--allow-self-approval true" } else { "--min-approvals COUNT --allow-self-approval true|false" };
    format!(
        "another person runs `fairway releases approve {}`; an administrator changes the rule: `fairway environments set \
         {environment} {options}`",
        sanitize(release)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gate(verdict: &str, message: &str) -> Value {
        json!({ "gate": "approvals", "to_state": "approved", "verdict": verdict, "message": message })
    }

    #[test]
    fn names_activation_only_when_no_approval_is_missing() {
        let after = |state, gates: &[Value]| NextStep::after(ReleaseVerdict::Approved, "019a", state, gates);
        let message = "1 of 2 required people approved the current bindings";
        let missing = after(StateName::ReviewReady, &[gate("blocked", message)]);
        assert_eq!(missing.notices, [format!("approvals: {message}")]);
        assert_eq!(missing.next.as_deref(), Some("another person runs `fairway releases approve 019a`"));
        for state in [StateName::ReviewReady, StateName::Approved] {
            let enough = after(state, &[gate("pass", "enough people approved the bindings")]);
            assert_eq!((enough.notices.len(), enough.next.as_deref()), (0, Some("fairway releases activate 019a")));
        }
    }

    #[test]
    fn the_run_of_an_activated_release_names_required_inputs() {
        let fields = json!([{ "name": "text", "required": true }, { "name": "urgent", "required": false }]);
        let workload = json!({ "slug": "sorter", "interface_config": { "input_fields": fields } });
        let command = run_command(&workload, "dev").unwrap();
        assert_eq!(command, "fairway run sorter --env dev --input text=VALUE");
        let plain = run_command(&json!({ "slug": "sorter", "interface_config": null }), "dev").unwrap();
        assert_eq!(plain, "fairway run sorter --env dev");
        assert_eq!(run_command(&Value::Null, "dev"), None);
    }

    #[test]
    fn says_when_a_verdict_changes_nothing() {
        for state in [StateName::Active, StateName::Superseded, StateName::Retired] {
            for verdict in [ReleaseVerdict::Approved, ReleaseVerdict::Rejected, ReleaseVerdict::ChangesRequested] {
                let step = NextStep::after(verdict, "019a", state, &[]);
                assert!(step.notices.concat().starts_with(&format!("the release is {}; ", state.as_str())), "{step:?}");
                assert_eq!(step.next, None);
            }
        }
        let draft = NextStep::after(ReleaseVerdict::Approved, "019a", StateName::Draft, &[]);
        assert!(draft.notices.concat().contains("the release is draft"), "{draft:?}");
        assert_eq!(draft.next.as_deref(), Some("fairway releases submit 019a"));
        let returned = NextStep::after(ReleaseVerdict::ChangesRequested, "019a", StateName::Draft, &[]);
        assert_eq!(returned.next.as_deref(), Some("fairway releases bind 019a VERSION"));
        let rejected = NextStep::after(ReleaseVerdict::Rejected, "019a", StateName::ReviewReady, &[]);
        assert_eq!(rejected.next.as_deref(), Some("fairway releases withdraw 019a"));
    }

    #[test]
    fn approval_hints_name_the_command_for_the_settings() {
        let own_hint = approval_hint("019a", "production", true);
        assert!(own_hint.contains("`fairway environments set production --allow-self-approval true`"), "{own_hint}");
        let count_hint = approval_hint("019a", "", false);
        assert!(count_hint.contains("`fairway environments set ENVIRONMENT --min-approvals COUNT"), "{count_hint}");
    }

    #[test]
    fn refused_transitions_name_the_release_and_the_commands_of_its_state() {
        let refusal = |code: &str, state: &str, valid: &[&str]| {
            let detail = json!({
                "error": code, "message": "no", "current_state": state, "valid_transitions": valid,
            });
            Refusal::from_body(409, &json!({ "detail": detail }))
        };
        let text =
            invalid_transition(refusal("invalid_transition", "active", &["superseded", "retired"]), "019a").to_string();
        assert!(text.starts_with("invalid_transition: release 019a is active, and no"), "{text}");
        assert!(text.ends_with("next: `fairway releases retire 019a`"), "{text}");
        let text = invalid_transition(refusal("invalid_transition", "retired", &[]), "019a").to_string();
        assert!(text.ends_with("next: fairway releases create WORKLOAD --env ENVIRONMENT --bind VERSION"), "{text}");
        let review = not_editable(refusal("release_not_editable", "review_ready", &[]), "019a").to_string();
        assert!(review.ends_with("next: `fairway releases withdraw 019a` makes it a draft again"), "{review}");
        let active = not_editable(refusal("release_not_editable", "active", &[]), "019a").to_string();
        assert!(active.contains("release 019a is active: no") && active.contains("releases create"), "{active}");
    }
}
