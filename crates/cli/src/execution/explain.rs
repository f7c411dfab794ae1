//! Explains an execution on one page: its end, the policy decision, its models, documents, tokens and cost, and the
//! next steps.

mod next_step;
mod unmatched_rules;

use crate::{
    failure::Failure,
    format_units::{cost, milliseconds, tokens},
    http_client::{ServerClient, string_or_empty},
    output::{Output, print},
    terminal_text::sanitize,
};
use serde_json::{Value, json};
use unmatched_rules::UnmatchedRules;

/// Kinds of artifacts that the page shows.
const SHOWN_KINDS: [&str; 4] = ["provider_call", "retrieval_event", "guardrail", "hook"];
/// Maximum number of artifacts that are requested for the page.
const MAX_ARTIFACTS: usize = 40;
/// Width of the page's first column, which contains the labels.
const LABEL_WIDTH: usize = 11;

pub(super) fn run(id: &str, server: &ServerClient, output: Output) -> Result<(), Failure> {
    let execution = server.get(&["executions", id], &[])?;
    // A submitter without permission to view executions can read its run, but not the evidence.
    let evidence = match server.get(&["executions", id, "evidence-graph"], &[]) {
        Err(Failure::Refused(refusal)) if matches!(refusal.status, 403 | 404) => Value::Null,
        evidence => evidence?,
    };
    let (artifacts, omitted) = read_artifacts(id, &evidence, server)?;
    let unmatched = UnmatchedRules::read(&evidence, server);
    let mut next_steps = next_step::next_steps(&execution);
    next_steps.extend(unmatched.as_ref().map(|rules| rules.next_step(&execution)));
    if output.is_for_people() {
        let unmatched = unmatched.as_ref();
        let page = Page { execution: &execution, evidence: &evidence, artifacts: &artifacts, omitted, unmatched };
        return print(&page.render(&next_steps));
    }
    output.value(&json!({
        "execution": execution,
        "evidence": evidence,
        "artifacts": artifacts,
        "omitted_artifacts": omitted,
        "next_steps": next_steps,
    }))
}

/// The summary of an execution, as its page shows it: sections with a label and lines.
///
/// # Errors
/// When the server refuses a read.
pub(crate) fn summarize(
    id: &str,
    evidence: &Value,
    server: &ServerClient,
) -> Result<Vec<(&'static str, Vec<String>)>, Failure> {
    let execution = server.get(&["executions", id], &[])?;
    let (artifacts, omitted) = read_artifacts(id, evidence, server)?;
    let unmatched = UnmatchedRules::read(evidence, server);
    let unmatched = unmatched.as_ref();
    let page = Page { execution: &execution, evidence, artifacts: &artifacts, omitted, unmatched };
    let mut sections = vec![("Workload", vec![page.workload_line()])];
    sections.extend(page.sections());
    Ok(sections)
}

/// Reads the artifacts that the page shows, and counts the artifacts beyond [`MAX_ARTIFACTS`].
fn read_artifacts(id: &str, evidence: &Value, server: &ServerClient) -> Result<(Vec<Value>, usize), Failure> {
    let listed = evidence.get("evidence_artifacts").and_then(Value::as_array).into_iter().flatten();
    let selected: Vec<&Value> =
        listed.filter(|artifact| SHOWN_KINDS.contains(&string_or_empty(artifact, "artifact_kind"))).collect();
    let read = |artifact: &&Value| {
        server.get(&["executions", id, "evidence-artifacts", string_or_empty(artifact, "artifact_id")], &[])
    };
    let artifacts = selected.iter().take(MAX_ARTIFACTS).map(read).collect::<Result<_, _>>()?;
    Ok((artifacts, selected.len().saturating_sub(MAX_ARTIFACTS)))
}

/// The data of an execution from which the page is rendered.
struct Page<'v> {
    execution: &'v Value,
    evidence: &'v Value,
    artifacts: &'v [Value],
    omitted: usize,
    /// The rules of the policy, if none matched.
    unmatched: Option<&'v UnmatchedRules>,
}

impl Page<'_> {
    fn render(&self, next_steps: &[String]) -> String {
        let title = format!(
            "{}: {}",
            sanitize(string_or_empty(self.execution, "execution_id")),
            sanitize(&self.workload_line())
        );
        let mut lines = vec![title, String::new()];
        let mut sections = self.sections();
        sections.push(("Next", next_steps.to_vec()));
        for (label, texts) in sections {
            for (number, text) in texts.into_iter().enumerate() {
                let label = if number == 0 { label } else { "" };
                lines.push(format!("{label:LABEL_WIDTH$}{}", sanitize(&text)));
            }
        }
        lines.join("\n")
    }

    fn sections(&self) -> Vec<(&'static str, Vec<String>)> {
        vec![
            ("Result", self.result()),
            ("Error", self.errors()),
            ("Texts", self.erasure()),
            ("Policy", self.policy()),
            ("Release", self.release()),
            ("Models", self.models()),
            ("Documents", self.documents()),
            ("Checks", self.checks()),
            ("Usage", self.usage()),
        ]
    }

    /// Describes the workload, the environment and the lane of the run.
    fn workload_line(&self) -> String {
        let text = |name: &str| string_or_empty(self.execution, name);
        let workload = match text("workload_slug") {
            "" => text("workload_id"),
            slug => slug,
        };
        format!("{workload} in {}, lane {}", text("environment"), text("lane"))
    }

    /// Describes the erasure of the run's texts; empty if the texts are not erased.
    fn erasure(&self) -> Vec<String> {
        let run = self.evidence.get("execution").unwrap_or(&Value::Null);
        match (string_or_empty(run, "erased_at"), string_or_empty(run, "erasure_id")) {
            ("", _) => Vec::new(),
            (at, id) => vec![format!("erased at {at} (erasure {id}); their digests stay")],
        }
    }

    fn result(&self) -> Vec<String> {
        let run = self.execution;
        let text = |name: &str| string_or_empty(run, name);
        let outcome = match text("outcome") {
            "" => "not ended".to_owned(),
            outcome => format!("outcome {outcome}"),
        };
        let duration = run.get("duration_ms").and_then(Value::as_u64).map(milliseconds);
        let end = duration.map_or_else(String::new, |duration| format!(", ended after {duration}"));
        let delegate = match text("delegated_by") {
            "" => String::new(),
            service => format!(" through {service}"),
        };
        vec![
            format!("{} ({outcome})", text("status")),
            format!("submitted by {}{delegate}, accepted {}{end}", text("submitted_by"), text("started_at")),
        ]
    }

    fn errors(&self) -> Vec<String> {
        let run = self.execution;
        let mut texts = Vec::new();
        if let Some(error) = run.get("error").filter(|error| !error.is_null()) {
            texts.push(format!("{}: {}", string_or_empty(error, "code"), string_or_empty(error, "message")));
        }
        let steps = run.get("steps").and_then(Value::as_array).into_iter().flatten();
        texts.extend(steps.filter_map(|step| {
            let code = step.get("error_code")?.as_str()?;
            Some(format!(
                "step {} ({}) failed: {code}",
                string_or_empty(step, "step_id"),
                string_or_empty(step, "step_type")
            ))
        }));
        if texts.is_empty() { vec!["none".to_owned()] } else { texts }
    }

    fn policy(&self) -> Vec<String> {
        let Some(decision) = self.evidence.get("policy_decision") else {
            return vec![format!("reason {}; the rules need the permission execution.view", self.reason())];
        };
        let failed: Vec<&Value> =
            decision.get("failed_rules").and_then(Value::as_array).into_iter().flatten().collect();
        let rules = texts_of(decision.get("rules"));
        let match_result = match (failed.is_empty(), rules.is_empty()) {
            (false, _) => "because rules could not be evaluated".to_owned(),
            (true, true) => "no rule matched".to_owned(),
            (true, false) => format!("matched rules {}", rules.join(", ")),
        };
        let mut texts = vec![format!(
            "{}, {match_result}, reason {}",
            string_or_empty(decision, "outcome"),
            string_or_empty(decision, "reason_code")
        )];
        texts.extend(failed.into_iter().map(|failed| {
            let rule = string_or_empty(failed, "rule");
            match string_or_empty(failed, "missing_field") {
                "" => format!("rule {rule} could not be evaluated: a type does not fit, or a function failed"),
                field => format!("rule {rule} reads the input {field}, which the run does not have"),
            }
        }));
        texts.extend(self.unmatched.into_iter().flat_map(UnmatchedRules::lines));
        let obligations = self.evidence.get("obligations").and_then(Value::as_array).into_iter().flatten();
        texts.extend(obligations.map(|obligation| {
            let is_fulfilled = obligation.get("fulfilled_at").is_some_and(|at| !at.is_null());
            let state = if is_fulfilled { "fulfilled" } else { "not fulfilled" };
            format!("obligation {}: {state}", string_or_empty(obligation, "obligation_name"))
        }));
        texts
    }

    fn reason(&self) -> &str {
        match string_or_empty(self.execution, "reason_code") {
            "" => "unknown",
            reason => reason,
        }
    }

    fn release(&self) -> Vec<String> {
        let id = string_or_empty(self.execution, "release_id").to_owned();
        let approvals = self.evidence.get("approvals").and_then(Value::as_array).into_iter().flatten();
        let approval_lines = approvals.map(|approval| {
            format!(
                "approved by {} at {}",
                string_or_empty(approval, "approved_by"),
                string_or_empty(approval, "approved_at")
            )
        });
        std::iter::once(id).chain(approval_lines).collect()
    }

    /// The contents of the artifacts of one kind.
    fn contents<'p>(&'p self, kind: &'p str) -> impl Iterator<Item = &'p Value> {
        let of_kind = move |artifact: &&Value| string_or_empty(artifact, "artifact_kind") == kind;
        self.artifacts.iter().filter(of_kind).filter_map(|artifact| artifact.get("content"))
    }

    fn models(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for call in self.contents("provider_call") {
            let text = |name: &str| string_or_empty(call, name);
            let number = |name: &str| call.get(name).and_then(Value::as_u64);
            let parts = [
                tokens(number("tokens_in"), number("tokens_out")).map(|tokens| format!("tokens {tokens}")),
                number("cost_micros").map(|micros| format!("cost {}", cost(micros))),
                number("latency_us").map(|latency| milliseconds(latency / 1_000)),
            ];
            let measures: Vec<String> = parts.into_iter().flatten().collect();
            texts.push(format!(
                "step {}: route {}, model {} of {} by the account {}; {}",
                text("step_id"),
                text("route_id"),
                text("model"),
                text("provider"),
                text("account_slot"),
                measures.join(", ")
            ));
            let attempts = call.get("attempts").and_then(Value::as_array).into_iter().flatten();
            let failed = attempts.filter(|attempt| string_or_empty(attempt, "result") != "answered");
            texts.extend(failed.map(|attempt| format!("  {}", failed_attempt(attempt))));
        }
        if self.omitted > 0 {
            texts.push(format!("{} further records; see `fairway evidence graph`", self.omitted));
        }
        or_none(texts)
    }

    fn documents(&self) -> Vec<String> {
        let texts = self.contents("retrieval_event").map(|event| {
            let chunks = event.get("chunks").and_then(Value::as_array).into_iter().flatten();
            let mut names: Vec<&str> = Vec::new();
            for name in chunks.map(|chunk| string_or_empty(chunk, "document_id")) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            let count = event.get("retrieved_chunk_count").and_then(Value::as_u64).unwrap_or_default();
            let document_list = if names.is_empty() { String::new() } else { format!(" of {}", names.join(", ")) };
            format!("{}: {count} chunks{document_list}", string_or_empty(event, "knowledge_base"))
        });
        or_none(texts.collect())
    }

    /// Describes the guardrails and hooks that changed or stopped the run.
    fn checks(&self) -> Vec<String> {
        let texts = ["guardrail", "hook"].into_iter().flat_map(|kind| {
            self.contents(kind).map(move |check| {
                let members = check.as_object().into_iter().flatten();
                let details = members.filter_map(|(name, value)| {
                    let text = value.as_str()?;
                    (!name.ends_with("digest")).then(|| format!("{name} {text}"))
                });
                format!("{kind}: {}", details.collect::<Vec<_>>().join(", "))
            })
        });
        texts.collect()
    }

    fn usage(&self) -> Vec<String> {
        let number = |name: &str| self.execution.get(name).and_then(Value::as_u64);
        let parts = [
            tokens(number("tokens_in"), number("tokens_out")).map(|tokens| format!("tokens {tokens}")),
            number("cost_micros").map(|micros| format!("cost {}", cost(micros))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        vec![if parts.is_empty() { "no tokens reported".to_owned() } else { parts.join(", ") }]
    }
}

/// Describes a failed attempt of a model call, with the status of the provider's response, or the
/// cause if no response arrived.
fn failed_attempt(attempt: &Value) -> String {
    let text = |name| string_or_empty(attempt, name);
    let failure = format!("route {} failed: {}", text("route_id"), text("result"));
    match (attempt.get("http_status").and_then(Value::as_u64), text("cause")) {
        (Some(status), _) => format!("{failure} (HTTP {status})"),
        (None, "") => failure,
        (None, cause) => format!("{failure} ({})", describe_cause(cause)),
    }
}

/// The cause in words; the code itself if this version does not know it.
fn describe_cause(cause: &str) -> &str {
    match cause {
        "secret_missing" => "the key of the account does not exist where the server runs",
        "secret_malformed" => "the key of the account is empty, too long, or not text",
        "secret_backend_not_configured" => {
            "the key of the account is in a vault or folder that the server does not have"
        }
        "secret_backend_unavailable" => "the source of the account's key is unreachable or denies access",
        "secret_foreign" => "the key of the account is outside the namespace of the tenant",
        "egress_unreachable" => "nothing accepts connections at the base_url of the account",
        "egress_unresolved" => "the host name in the base_url of the account cannot be resolved",
        "egress_tls" => "TLS to the base_url of the account failed: its certificate is not trusted, or it has no TLS",
        "egress_broken" => "the server at the base_url of the account closed the connection without a response",
        "egress_redirected" => "the base_url of the account redirects, and redirections are not followed",
        "egress_timeout" => "no response came within the timeout of the account",
        "egress_too_long" => "the response is too long",
        "egress_encoded" => "the response has a content encoding that was not requested",
        "egress_network"
        | "egress_port"
        | "egress_scheme"
        | "egress_too_many_addresses"
        | "egress_no_address"
        | "egress_credentials"
        | "egress_elsewhere" => "the server may not connect to the base_url of the account; its log has the code",
        code => code,
    }
}

fn or_none(texts: Vec<String>) -> Vec<String> {
    if texts.is_empty() { vec!["none".to_owned()] } else { texts }
}

fn texts_of(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_documented_cause_of_a_call_has_words() {
        let errors = include_str!("../../../../docs/errors.md");
        let (_, rest) = errors.split_once("<!-- codes:egress -->").unwrap();
        let (table, _) = rest.split_once("<!-- /codes:egress -->").unwrap();
        let codes = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(code, _)| code));
        // The server refuses these values when it reads its settings, so no run reports these codes.
        let of_settings = ["egress_allowance", "egress_authorities", "invalid_secret_ref"];
        for code in codes.filter(|code| !of_settings.contains(code)) {
            assert_ne!(describe_cause(code), code);
        }
    }

    #[test]
    fn failed_attempts_show_the_status_or_the_cause() {
        let limited = json!({ "route_id": "main", "result": "provider_busy", "http_status": 429 });
        assert_eq!(failed_attempt(&limited), "route main failed: provider_busy (HTTP 429)");
        let unreachable = json!({ "route_id": "main", "result": "provider_unavailable" });
        assert_eq!(failed_attempt(&unreachable), "route main failed: provider_unavailable");
        let attempt_with_cause = |cause: &str| {
            failed_attempt(&json!({ "route_id": "main", "result": "provider_unavailable", "cause": cause }))
        };
        assert!(
            attempt_with_cause("secret_missing")
                .ends_with("(the key of the account does not exist where the server runs)")
        );
        assert!(
            attempt_with_cause("egress_unreachable")
                .ends_with("(nothing accepts connections at the base_url of the account)")
        );
        assert!(attempt_with_cause("a_later_code").ends_with("provider_unavailable (a_later_code)"));
    }
}
