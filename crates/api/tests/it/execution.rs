//! Runs: every outcome, and the callers that can read it.

mod waits;

use fairway_domain::execution::provider::ProviderError;
use fairway_testkit::{
    ProviderBehaviour, StubProvider, TestApp,
    app::{ActiveWorkload, Request, Version},
};
use serde_json::{Value, json};

pub(crate) fn run(app: &TestApp, workload: &ActiveWorkload) -> Request {
    app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": { "ticket": "a refund" } }))
}

async fn fact_count(app: &TestApp, kind: &str) -> i64 {
    let owner = app.database().connect_as_owner().await.unwrap();
    owner.query_one("SELECT count(*) FROM fact WHERE kind LIKE $1", &[&kind]).await.unwrap().get(0)
}

/// Polls the run until it has an outcome, for at most 20 s.
pub(crate) async fn wait_until_ended(app: &TestApp, id: &Value) -> Value {
    let path = format!("/v1/executions/{}", id.as_str().unwrap());
    let poll = async {
        loop {
            let execution = app.get(&path).await.expect(200);
            if execution["outcome"].is_string() {
                return execution;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), poll).await.unwrap()
}

#[tokio::test]
async fn provider_errors_fail_the_run() {
    let provider = StubProvider::new(ProviderBehaviour::Fails(ProviderError::Unavailable));
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let workload = app.active_workload("main").await;
    for (error, code) in [
        (ProviderError::Unavailable, "provider_unavailable"),
        (ProviderError::Refused, "provider_refused"),
        (ProviderError::UnknownAccount, "provider_unknown_account"),
    ] {
        provider.set_behaviour(ProviderBehaviour::Fails(error));
        let response = run(&app, &workload).await.expect(200);
        assert_eq!((&response["status"], &response["output"]), (&json!("failed"), &Value::Null));
        assert_eq!(response["error"]["code"], code);
        assert!(response["error"]["message"].is_string() && response["completed_at"].is_string());
        let ended_run = wait_until_ended(&app, &response["execution_id"]).await;
        assert_eq!((&ended_run["status"], &ended_run["outcome"]), (&json!("failed"), &json!("failure")));
        assert_eq!((&ended_run["error"], &ended_run["queued_result"]), (&response["error"], &Value::Null));
        let path = format!("/v1/executions/{}/evidence-graph", response["execution_id"].as_str().unwrap());
        let evidence = app.get(path).await.expect(200);
        assert_eq!(evidence["execution"]["status"], "failed");
        assert_eq!(evidence["bindings"].as_array().unwrap().len(), 3);
        assert_eq!(evidence["evidence_artifacts"][0]["artifact_kind"], "provider_call");
        assert_eq!(evidence["approvals"].as_array().unwrap().len(), 1);
    }
    let calls = provider.calls();
    assert_eq!(calls.len(), 4, "only a transient error is retried, once");
    assert!(calls[0].conversation.system_prompt.ends_with("Ticket: a refund"), "{:?}", calls[0]);
}

#[tokio::test]
async fn denied_run_records_evidence() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("never".to_owned()));
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let fixtures = app.fixtures();
    let rules = json!([
        { "id": "yes", "condition": "always", "outcome": "allow", "reason_code": "usual" },
        { "id": "no", "condition": "inputs.ticket == 'a refund'", "outcome": "deny", "reason_code": "no_refunds" },
    ]);
    let policy = fixtures.policy_with_rules("strict", rules).await;
    let workload = fixtures.active_workload_with_policy("main", policy).await;
    let refusal = run(&app, &workload).await.expect_refusal(403, "policy_denied");
    assert_eq!(refusal["reason_code"], "no_refunds");
    let ended_run = wait_until_ended(&app, &refusal["execution_id"]).await;
    assert_eq!((&ended_run["status"], &ended_run["outcome"]), (&json!("denied"), &json!("denied")));
    assert_eq!(ended_run["reason_code"], "no_refunds");
    let path = format!("/v1/executions/{}/evidence-graph", refusal["execution_id"].as_str().unwrap());
    let evidence = app.get(path).await.expect(200);
    assert_eq!(evidence["policy_decision"]["outcome"], "deny");
    assert_eq!(evidence["policy_decision"]["reason_code"], "no_refunds");
    assert_eq!(evidence["execution"]["status"], "denied");
    assert_eq!(evidence["release"]["release_id"], workload.release_id);
    assert_eq!(evidence["bindings"].as_array().unwrap().len(), 3);
    assert_eq!((provider.call_count(), fact_count(&app, "execution.%").await), (0, 1));
    // A policy that cannot be evaluated denies the run.
    let body = json!({ "environment": "dev", "inputs": {} });
    let refusal = app.post(workload.execute_path(), body).await.expect_refusal(403, "policy_denied");
    assert_eq!(refusal["reason_code"], "policy_evaluation_error");
    assert_eq!(refusal["failed_rules"], Value::Null, "the caller does not learn the rules");
    let path = format!("/v1/executions/{}/evidence-graph", refusal["execution_id"].as_str().unwrap());
    let decision = &app.get(path).await.expect(200)["policy_decision"];
    assert_eq!(decision["failed_rules"], json!([{ "rule": "no", "missing_field": "ticket" }]));
    assert_eq!(decision["rules"], json!(["yes"]));
    assert_eq!((provider.call_count(), fact_count(&app, "execution.%").await), (0, 2));
}

#[tokio::test]
async fn denial_within_a_flow_ends_the_run_despite_on_failure() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()));
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let fixtures = app.fixtures();
    let yaml = "\
name: Two steps
description: Asks the policy about what the model said.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: ask
steps:
  - id: ask
    type: llm_call
    model_policy: '{{release.model_policy}}'
    inputs: { prompt: '{{release.prompt_template}}', message: '{{trigger.ticket}}' }
    next: check
  - id: check
    type: task
    action: evaluate_policy
    inputs: { ticket: '{{steps.ask.output}}' }
    on_success: answer
    on_failure: answer
  - id: answer
    type: return
    output: '{{steps.ask.output}}'
";
    let rules = json!([
        { "id": "yes", "condition": "always", "outcome": "allow", "reason_code": "usual" },
        { "id": "no", "condition": "inputs.ticket == 'billing'", "outcome": "deny", "reason_code": "no_billing" },
    ]);
    let versions = vec![
        fixtures.ticket_prompt("prompt").await,
        fixtures.model_policy("model").await,
        fixtures.policy_with_rules("policy", rules).await,
        fixtures.flow("flow", yaml).await,
    ];
    let workload = fixtures.active_workload_with_bindings("main", versions).await;
    let refusal = run(&app, &workload).await.expect_refusal(403, "policy_denied");
    assert_eq!(refusal["reason_code"], "no_billing");
    let ended_run = wait_until_ended(&app, &refusal["execution_id"]).await;
    assert_eq!((&ended_run["status"], &ended_run["queued_result"]), (&json!("denied"), &Value::Null));
    let path = format!("/v1/executions/{}/evidence-graph", refusal["execution_id"].as_str().unwrap());
    let evidence = app.get(path).await.expect(200);
    assert_eq!(evidence["policy_decision"]["outcome"], "deny", "the strictest decision is shown");
    provider.set_behaviour(ProviderBehaviour::Answers("other".to_owned()));
    assert_eq!(run(&app, &workload).await.expect(200)["output"], "other");
}

#[tokio::test]
async fn refuses_runs_without_an_active_workload_or_release() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    let path = format!("/v1/workloads/{}", workload.workload_id);
    let status = |status: &str| app.patch(&path, json!({ "status": status }));
    run(&app, &workload).await.expect(200);
    status("suspended").await.expect(200);
    run(&app, &workload).await.expect_refusal(409, "workload_suspended");
    status("registered").await.expect(200);
    run(&app, &workload).await.expect(200);
    // The environment has no active release. The other workload does not exist.
    let body = json!({ "environment": "production", "inputs": {} });
    let refusal = app.post(workload.execute_path(), body.clone()).await.expect_refusal(409, "no_active_release");
    assert_eq!(refusal["active_environments"], json!(["dev"]));
    // Without `release.view`, the refusal does not name other environments.
    app.fixtures().bind_role("user:rita", "runtime_user", "workload", Some(&workload.workload_id)).await;
    let response = app.post(workload.execute_path(), body).as_actor("user:rita").await;
    assert_eq!(response.expect_refusal(409, "no_active_release")["active_environments"], Value::Null);
    let unknown_response = app.post("/v1/workloads/by-slug/nowhere/execute", json!({ "environment": "dev" })).await;
    unknown_response.expect_refusal(404, "not_found");
    app.fixtures().transition(&workload.release_id, "retired").await;
    let refusal = run(&app, &workload).await.expect_refusal(409, "no_active_release");
    assert_eq!(refusal["active_environments"], json!([]));
    status("retired").await.expect(200);
    run(&app, &workload).await.expect_refusal(409, "workload_retired");
    let refusal = status("registered").await.expect_refusal(409, "invalid_transition");
    assert_eq!((&refusal["current_state"], &refusal["valid_transitions"]), (&json!("retired"), &json!([])));
    assert_eq!(
        status("retired").await.expect(200)["status"],
        "retired",
        "the current status is accepted and changes nothing"
    );
}

#[tokio::test]
async fn release_without_a_flow_requires_a_prompt_and_a_model() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let policy = fixtures.allow_all_policy("policy").await;
    let bare = fixtures.active_workload_with_bindings("bare", vec![policy.clone()]).await;
    run(&app, &bare).await.expect_refusal(409, "nothing_to_run");
    let prompt = fixtures.ticket_prompt("prompt").await;
    let incomplete_workload = fixtures.active_workload_with_bindings("half", vec![policy.clone(), prompt]).await;
    run(&app, &incomplete_workload).await.expect_refusal(409, "nothing_to_run");
    // A flow without a model call needs neither a prompt nor a model policy.
    let flow = fixtures.flow("flow", crate::support::workspace_fixture::ECHO_FLOW).await;
    let echo = fixtures.active_workload_with_bindings("echo", vec![policy, flow]).await;
    assert_eq!(run(&app, &echo).await.expect(200)["output"], "a refund");
}

#[tokio::test]
async fn activation_reports_every_missing_requirement() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.workload("main").await;
    let yaml = "\
name: Model
description: Asks a model.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: ask
steps:
  - id: ask
    type: llm_call
    inputs: { prompt: '{{trigger.ticket}}' }
    next: answer
  - id: answer
    type: return
    output: '{{steps.ask.output}}'
";
    let flow = fixtures.flow("flow", yaml).await;
    let release = fixtures.approved_release(&workload, &[flow]).await;
    let path = format!("/v1/releases/{release}/transition");
    let refusal = app.post(&path, json!({ "to_state": "active" })).await.expect_refusal(422, "activation_blocked");
    let missing: Vec<&str> =
        refusal["missing"].as_array().unwrap().iter().map(|gap| gap["code"].as_str().unwrap()).collect();
    assert!(missing.contains(&"policy_bundle_missing") && missing.contains(&"model_policy_missing"), "{missing:?}");
    let path = format!("/v1/releases/{release}/bindings");
    let late_policy = fixtures.allow_all_policy("late").await;
    let late_binding = json!({ "asset_version_id": late_policy.asset_version_id, "role": "policy_bundle" });
    app.post(path, late_binding).await.expect_refusal(409, "release_not_editable");
}

/// A flow with one model call that uses the binding of `role`.
pub(crate) fn model_call_flow(role: &str) -> String {
    format!(
        "\
name: Ask
description: Asks a model.
trigger: {{ type: api_request, inputs_schema: {{ ticket: string }} }}
entry_step: ask
steps:
  - id: ask
    type: llm_call
    model_policy: '{{{{release.{role}}}}}'
    inputs: {{ prompt: '{{{{release.prompt_template}}}}', message: '{{{{trigger.ticket}}}}' }}
    next: answer
  - id: answer
    type: return
    output: '{{{{steps.ask.output}}}}'
"
    )
}

#[tokio::test]
async fn legacy_release_calls_the_configured_model() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()));
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let fixtures = app.fixtures();
    let config = json!({ "provider": "local", "model": "old-one", "temperature": 0.25, "max_tokens": 40 });
    let config = fixtures.asset_with_version("model_config", "old", config).await;
    let (prompt, policy) = (fixtures.ticket_prompt("prompt").await, fixtures.allow_all_policy("policy").await);
    let flow = fixtures.flow("flow", &model_call_flow("model_config")).await;
    let versions = vec![prompt.clone(), policy.clone(), config.clone(), flow];
    let legacy = fixtures.active_workload_with_bindings("legacy", versions.clone()).await;
    assert_eq!(run(&app, &legacy).await.expect(200)["output"], "billing");
    let call = &provider.calls()[0];
    assert_eq!((&*call.route.provider, &*call.route.model, &*call.route.account_slot), ("local", "old-one", "local"));
    assert_eq!((call.conversation.temperature, call.conversation.max_tokens), (Some(0.25), Some(40)));
    // If both are bound, the model policy is used instead of the model configuration, because its route is approved.
    let flow = fixtures.flow("both", &model_call_flow("model_policy")).await;
    let model = fixtures.model_policy("model").await;
    let workload_with_both =
        fixtures.active_workload_with_bindings("both", vec![prompt, policy, config.clone(), model, flow]).await;
    run(&app, &workload_with_both).await.expect(200);
    assert_eq!(provider.calls()[1].route.model, "rules");
    // Activation refuses a model configuration whose asset is retired.
    let workload = fixtures.workload("late").await;
    let late_release = fixtures.approved_release(&workload, &versions).await;
    app.post(
        format!("/v1/assets/{}/retire?workspace_id={}", config.asset_id, crate::support::workspace_fixture::WORKSPACE),
        json!({}),
    )
    .await
    .expect(200);
    let path = format!("/v1/releases/{late_release}/transition");
    let refusal = app.post(&path, json!({ "to_state": "active" })).await.expect_refusal(422, "activation_blocked");
    assert_eq!(refusal["missing"][0]["code"], "model_policy_not_approved");
}

#[tokio::test]
async fn stored_versions_run_after_validation_became_stricter() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let (policy, model) = (fixtures.allow_all_policy("policy").await, fixtures.model_policy("model").await);
    // Changes stored versions in the database, to simulate versions that a later, stricter validation would refuse.
    let owner = app.database().connect_as_owner().await.unwrap();
    let mut sql = "ALTER TABLE asset_version DISABLE TRIGGER append_only;".to_owned();
    for (version, extra) in [
        (&policy, json!({ "extra": 1, "tests": [{ "name": "no", "expect": { "outcome": "deny" } }] })),
        (&model, json!({ "extra": 1, "temperature": 99 })),
    ] {
        sql.push_str(&format!(
            "UPDATE asset_version SET content = (content::jsonb || '{extra}')::text WHERE asset_version_id = '{}';",
            version.asset_version_id
        ));
        let path = format!(
            "/v1/assets/{}/versions?workspace_id={}",
            version.asset_id,
            crate::support::workspace_fixture::WORKSPACE
        );
        let mut content = app.get(path).await.expect(200)[0]["content"].clone();
        content.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let path = format!("/v1/assets/{}/versions", version.asset_id);
        app.post(path, json!({ "content": content })).await.expect_refusal(400, "invalid_content");
    }
    sql.push_str("ALTER TABLE asset_version ENABLE TRIGGER append_only");
    owner.batch_execute(&sql).await.unwrap();
    let workload = fixtures
        .active_workload_with_bindings("main", vec![policy, model, fixtures.ticket_prompt("prompt").await])
        .await;
    assert_eq!(run(&app, &workload).await.expect(200)["output"], "billing");
}

#[tokio::test]
async fn output_must_satisfy_the_prompt_s_schema() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("{\"label\": \"billing\"}".to_owned()));
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let fixtures = app.fixtures();
    let content = json!({
        "system_prompt": "Sort.",
        "output_schema": { "type": "object", "properties": { "label": { "pattern": "^[a-z]+$" } } },
    });
    let prompt = fixtures.asset_with_version("prompt_template", "prompt", content).await;
    let versions = vec![prompt, fixtures.model_policy("model").await, fixtures.allow_all_policy("policy").await];
    let workload = fixtures.active_workload_with_bindings("main", versions).await;
    assert_eq!(run(&app, &workload).await.expect(200)["status"], "completed");
    for output in ["billing", "{\"label\": \"Billing\"}"] {
        provider.set_behaviour(ProviderBehaviour::Answers(output.to_owned()));
        let failed = run(&app, &workload).await.expect(200);
        assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("output_schema_mismatch")));
    }
}

#[tokio::test]
async fn missing_prompt_arguments_return_422() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("x".to_owned()));
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let workload = app.active_workload("main").await;
    for (inputs, code) in [
        (json!({}), "prompt_argument_missing"),
        (json!({ "ticket": 1 }), "prompt_argument_type"),
        (json!({ "ticket": ["x"] }), "prompt_argument_type"),
    ] {
        let body = json!({ "environment": "dev", "inputs": inputs });
        let refusal = app.post(workload.execute_path(), body).await.expect_refusal(422, code);
        let ended_run = wait_until_ended(&app, &refusal["execution_id"]).await;
        assert_eq!((&ended_run["status"], &ended_run["outcome"]), (&json!("failed"), &json!("failure")));
        assert_eq!(ended_run["error"]["code"], code);
        let message = "the argument `ticket` is missing: the run has no value for an input of this name";
        assert_eq!(ended_run["error"]["message"] == message, code == "prompt_argument_missing", "{ended_run}");
    }
    assert_eq!(provider.call_count(), 0);
    // Input values are plain text: tokens in them are never expanded.
    let ticket = "@asset-ref:other !command:drop $arg:ticket {{ticket}} {{ {{x}} }}";
    let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
    app.post(workload.execute_path(), body).await.expect(200);
    assert!(provider.calls()[0].conversation.system_prompt.ends_with(ticket));
}

#[tokio::test]
async fn only_the_submitter_reads_the_result() {
    let app = TestApp::start().await;
    let workspace = Some(crate::support::workspace_fixture::WORKSPACE);
    let workload = app.active_workload("main").await;
    for (actor, role) in [("user:ada", "runtime_user"), ("user:grace", "viewer"), ("user:eve", "runtime_user")] {
        app.fixtures().bind_role(actor, role, "workspace", workspace).await;
    }
    let response = run(&app, &workload).as_actor("user:ada").await.expect(200);
    let path = format!("/v1/executions/{}", response["execution_id"].as_str().unwrap());
    let own_execution = app.get(&path).as_actor("user:ada").await.expect(200);
    assert_eq!(own_execution["queued_result"]["result"], response["output"]);
    // The submitter reads the outcome of its run without a permission. The evidence requires `execution.view`.
    let refusal = app.get(format!("{path}/evidence-graph")).as_actor("user:ada").await.expect_refusal(403, "forbidden");
    assert_eq!(refusal["permission"], "execution.view");
    for actor in ["user:grace", "user:local"] {
        let execution = app.get(&path).as_actor(actor).await.expect(200);
        assert_eq!((&execution["status"], &execution["queued_result"]), (&json!("completed"), &Value::Null), "{actor}");
    }
    app.get(&path).as_actor("user:eve").await.expect_refusal(404, "not_found");
    app.get(&path).as_actor("anonymous").await.expect_refusal(404, "not_found");
    app.get(format!("{path}/evidence-graph?format=dot")).await.expect_refusal(422, "validation_error");
}

#[tokio::test]
async fn activated_lane_serves_the_next_run() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let policy = fixtures.allow_all_policy("policy").await;
    let model = fixtures.model_policy("model").await;
    let prompt = |text: &str| json!({ "system_prompt": text });
    let first_prompt = fixtures.asset_with_version("prompt_template", "one", prompt("Say one.\nOne of: one")).await;
    let second_prompt = Version {
        asset_version_id: fixtures.add_version(&first_prompt.asset_id, prompt("Say two.\nOne of: two")).await,
        ..first_prompt.clone()
    };
    let workload =
        fixtures.active_workload_with_bindings("main", vec![policy.clone(), model.clone(), first_prompt]).await;
    assert_eq!(run(&app, &workload).await.expect(200)["output"], "one");
    let next_release = fixtures.approved_release(&workload.workload_id, &[policy, model, second_prompt]).await;
    // The new release is active only on `restricted`, so the lane `standard` still serves the caller.
    let path = format!("/v1/releases/{next_release}/transition");
    app.post(&path, json!({ "to_state": "active", "lane": "restricted" })).await.expect(200);
    assert_eq!(run(&app, &workload).await.expect(200)["output"], "one");
    app.post(&path, json!({ "to_state": "active", "lane": "standard" })).await.expect(200);
    assert_eq!(run(&app, &workload).await.expect(200)["output"], "two");
    let replaced = app.get(format!("/v1/releases/{next_release}")).await.expect(200);
    assert_eq!(replaced["supersedes_release_id"], workload.release_id);
    let old_release = app.get(format!("/v1/releases/{}", workload.release_id)).await.expect(200);
    assert_eq!(old_release["state"], "active", "it still holds `guided`");
    app.post(&path, json!({ "to_state": "active", "lane": "guided" })).await.expect(200);
    let old_release = app.get(format!("/v1/releases/{}", workload.release_id)).await.expect(200);
    assert_eq!(old_release["state"], "superseded");
}
