//! Recommends next steps after an execution, by its status and error code.

use crate::http_client::string_or_empty;
use serde_json::Value;

/// The next steps after an execution, as sentences for a person.
pub(super) fn next_steps(execution: &Value) -> Vec<String> {
    let id = string_or_empty(execution, "execution_id");
    let code = execution.pointer("/error/code").and_then(Value::as_str).unwrap_or_default();
    match string_or_empty(execution, "status") {
        "completed" => vec![format!("Nothing. `fairway evidence graph {id}` shows the complete evidence.")],
        "queued" => {
            vec![format!("A worker will run it: `fairway executions wait {id}`. Check that a worker is running.")]
        }
        "running" => vec![format!("Wait for it: `fairway executions wait {id}`.")],
        "awaiting_review" => {
            vec!["A person with the permission release.approve reviews the answer; its submitter may not.".to_owned()]
        }
        "denied" if code.is_empty() => vec![
            "Change the inputs or the caller so that a rule allows the run, or change the policy bundle.".to_owned(),
            "`fairway policy test DIRECTORY` checks a changed policy without a server.".to_owned(),
        ],
        "unknown" => vec![format!(
            "Find out whether the effect happened, then record it: POST /v1/executions/{id}/settle with outcome success \
             or failure."
        )],
        _ => vec![advice_for_step(code, execution).unwrap_or_else(|| advice_for_code(code).to_owned())],
    }
}

/// The next step for an error that a step of the flow may cause; `None` for other errors and without a failed step.
fn advice_for_step(code: &str, execution: &Value) -> Option<String> {
    if code != "prompt_argument_missing" {
        return None;
    }
    let mut steps = execution.get("steps").and_then(Value::as_array)?.iter();
    let step = steps.find(|step| string_or_empty(step, "error_code") == code)?;
    Some(format!(
        "If the step {} of the flow does not pass the argument, add it to the `inputs` of this step, and release the \
         flow; `fairway releases gates` warns of such variables. Otherwise send the input: `fairway workloads show` \
         with the workload's slug lists the fields of its form.",
        string_or_empty(step, "step_id")
    ))
}

/// The next step for an error code of a run.
fn advice_for_code(code: &str) -> &'static str {
    match code {
        "deadline_exceeded" | "script_timeout" => {
            "Find the slow step above, shorten the work, or raise FAIRWAY_EXECUTION_DEADLINE; then run it again."
        }
        "interrupted" => "The process that ran it stopped. Run it again; if it recurs, read the server's log.",
        "provider_busy" => {
            "The provider limits the rate, or the quota of the account is exhausted: wait, raise it, or add a fallback \
             route to the model policy."
        }
        "provider_timeout" => {
            "Run it again later. If it recurs, check the provider, or add a fallback route to the model policy."
        }
        "provider_unavailable" => {
            "Ask the account by `fairway-server providers test`, which says what is wrong: a missing key, an address that \
             nothing answers, or the provider itself. Or add a fallback route to the model policy."
        }
        "provider_refused" => {
            "Check the model name and the credentials of the provider account, and the request's size."
        }
        "provider_key_refused" => "Replace the account's key; `fairway-server providers test` asks the account again.",
        "provider_unknown_model" => "Correct the model of the route; `fairway-server providers test` can try a name.",
        "provider_content_refused" => "Change the inputs or the prompt: the provider's content rules refused them.",
        "provider_malformed_answer" => "Run it again. If it recurs, check that the account's base_url is a model API.",
        "provider_unknown_account" => "Add the account to [[providers]] in fairway.toml, or change the model policy.",
        "provider_unsupported" => "Choose a route whose provider supports the step, such as tools or embeddings.",
        "no_compliant_route" => {
            "Approve a route that the sovereignty profile permits, or change the profile; the evidence has the reasons."
        }
        "model_policy_missing" | "prompt_missing" => "Bind the missing asset to a new release, and activate it.",
        "prompt_argument_missing" | "prompt_argument_type" | "messages_malformed" | "reference_missing" => {
            "Correct the inputs: the error names the argument, and `fairway workloads show` with the workload's slug lists \
             the fields of its form. Then run it again."
        }
        "prompt_too_large" | "value_too_large" | "schema_budget_exceeded" => {
            "Send smaller inputs, or retrieve fewer documents; then run it again."
        }
        "output_schema_mismatch" => {
            "Run it again. If it recurs, make the prompt state the format, or correct its output_schema."
        }
        "citation_missing" => "Check that documents were found above, and that the prompt asks for citations.",
        "contract_refused" => "Ask the owner of the knowledge base to allow the caller in its access contract.",
        "contract_unavailable" | "knowledge_unavailable" => "Run it again; if it recurs, check the database.",
        "embedding_mismatch" => "Embed the documents again: POST /v1/assets/{asset_id}/documents/reembed.",
        "knowledge_base_unknown" => "Name one of the bound knowledge bases in the step, or bind one.",
        "guardrail_blocked" => "The guardrail above stopped it. Change the inputs, or the guardrail in a new release.",
        "hook_denied" => "The hook above stopped it. Change the inputs, or ask the owner of the hook.",
        "guardrail_unavailable" | "hook_unavailable" => {
            "A check that fails closed gave no result. Mend its service or reduce the value; then run it again."
        }
        "obligation_unavailable" => "This server cannot fulfil an obligation of the policy. Change the policy bundle.",
        "agent_step_limit" | "step_budget_exceeded" => "Raise the limit of the step, or simplify its task.",
        "tool_use_unsupported" => "Set supports_tool_use in a model policy whose model supports tools.",
        "flow_invalid" => "Correct the flow: `fairway flow validate FILE` checks it without a server.",
        "gateway_unreachable" => {
            "Start the runtime gateway, or correct FAIRWAY_RUNTIME_GATEWAY_URL; then run it again."
        }
        "review_lapsed" => "Nobody reviewed the answer in time. Run it again, and ask a reviewer.",
        "review_rejected" => "A reviewer rejected the answer. Ask for the reason before you run it again.",
        "workload_suspended" => "Find out why the workload was suspended; `fairway workloads resume SLUG` resumes it.",
        "workload_retired" => "The workload is retired. Use another one.",
        "cancelled" => "A person cancelled it. Run it again if that was a mistake.",
        "settled_as_failure" => {
            "A person resolved its unknown outcome as a failure. Run it again if it is safe to repeat."
        }
        code if code.starts_with("script_") => "Correct the script; its stdout has the interpreter's message.",
        _ => "Read the steps above and `fairway evidence graph`; docs/errors.md describes the code.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_documented_code_of_a_run_has_advice() {
        let errors = include_str!("../../../../../docs/errors.md");
        let (_, rest) = errors.split_once("<!-- codes:runs -->").unwrap();
        let (table, _) = rest.split_once("<!-- /codes:runs -->").unwrap();
        let codes: Vec<&str> =
            table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(code, _)| code)).collect();
        assert!(codes.len() > 40, "{codes:?}");
        // These codes occur only in steps, or in runs with the status `unknown`, so they need no next step of a run.
        let step_only_codes = ["policy_denied", "gateway_error", "gateway_timeout"];
        for code in codes.iter().filter(|code| !step_only_codes.contains(code)) {
            assert_ne!(advice_for_code(code), advice_for_code("a code of another version"), "{code}");
        }
    }

    #[test]
    fn missing_arguments_name_the_step_of_the_flow() {
        let step = json!({ "step_id": "ask", "step_type": "llm_call", "error_code": "prompt_argument_missing" });
        let mut run = json!({ "status": "failed", "error": { "code": "prompt_argument_missing" }, "steps": [step] });
        let advice = next_steps(&run).join(" ");
        assert!(advice.contains("step ask of the flow") && advice.contains("`inputs` of this step"), "{advice}");
        run["steps"] = json!([]);
        assert_eq!(next_steps(&run), [advice_for_code("prompt_argument_missing")]);
    }

    #[test]
    fn advises_by_status_before_the_code() {
        let steps = |status: &str, code: Value| {
            next_steps(&json!({ "execution_id": "0", "status": status, "error": code })).join(" ")
        };
        assert!(steps("denied", Value::Null).contains("policy"));
        assert!(steps("denied", json!({ "code": "review_rejected" })).contains("reviewer"));
        assert!(steps("unknown", json!({ "code": "gateway_timeout" })).contains("settle"));
        assert!(steps("failed", json!({ "code": "provider_timeout" })).contains("fallback"));
        assert!(steps("running", Value::Null).contains("wait"));
    }
}
