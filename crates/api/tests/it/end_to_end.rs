//! End-to-end test from an empty database to a governed answer and its evidence. It checks every field of the
//! responses.

use crate::support::workspace_fixture::{NAMESPACE, WORKSPACE};
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use uuid::{Uuid, Version};

const FLOW: &str = "\
name: Sort a ticket
description: Asks the policy, then the model.
trigger:
  type: api_request
  inputs_schema:
    ticket: string
entry_step: check
steps:
  - id: check
    type: task
    action: evaluate_policy
    inputs:
      ticket: '{{trigger.ticket}}'
    on_success: classify
  - id: classify
    type: llm_call
    model_policy: '{{release.model_policy}}'
    inputs:
      prompt: '{{release.prompt_template}}'
      message: '{{trigger.ticket}}'
    next: answer
  - id: answer
    type: return
    output:
      category: '{{steps.classify.output}}'
";

/// Asserts that the value is a UUIDv7, and returns it.
#[track_caller]
fn parse_id(value: &Value) -> String {
    let text = value.as_str().unwrap_or_else(|| panic!("no identifier: {value}"));
    assert_eq!(Uuid::parse_str(text).unwrap().get_version(), Some(Version::SortRand), "{text}");
    text.to_owned()
}

/// Parses a timestamp of the API: RFC 3339 in UTC, with `Z`.
#[track_caller]
fn parse_timestamp(value: &Value) -> time::OffsetDateTime {
    let text = value.as_str().unwrap_or_else(|| panic!("no timestamp: {value}"));
    assert!(text.ends_with('Z'), "{text}");
    time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).unwrap()
}

/// The members of an object, sorted.
fn member_names(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario, read from its start to its end")]
async fn governs_a_run_from_an_empty_database_to_its_evidence() {
    let app = TestApp::start().await;

    // Creates the assets: a prompt, a model policy and a policy bundle.
    let created = app
        .post("/v1/assets", json!({ "slug": "ticket-prompt", "asset_kind": "prompt_template", "owner_ref": "team:a" }))
        .as_actor("user:ada")
        .await;
    let prompt = created.expect(201);
    let prompt_id = parse_id(&prompt["asset_id"]);
    parse_timestamp(&prompt["created_at"]);
    assert_eq!(
        prompt,
        json!({
            "asset_id": prompt_id, "slug": "ticket-prompt", "asset_kind": "prompt_template", "owner_ref": "team:a",
            "lifecycle_state": "active", "ownership_tier": "workspace", "workspace_id": WORKSPACE,
            "namespace_id": NAMESPACE, "created_at": prompt["created_at"], "created_by": "user:ada",
        })
    );
    let location = created.header("location").unwrap();
    assert_eq!(app.get(location).await.expect(200), prompt);

    let content = json!({
        "system_prompt": "Sort it.\nOne of: billing (invoice, refund), other.\nTicket: $arg:ticket",
        "variables": [{ "name": "ticket", "type": "string" }],
    });
    let path = format!("/v1/assets/{prompt_id}/versions");
    let created = app.post(&path, json!({ "content": content })).as_actor("user:ada").await;
    let version = created.expect(201);
    let version_id = parse_id(&version["asset_version_id"]);
    // The content has no numbers, so its canonical form equals compact JSON with sorted members.
    let canonical = content.to_string();
    assert_eq!(
        version,
        json!({
            "asset_version_id": version_id, "asset_id": prompt_id, "version_label": "v1", "content": content,
            "change_note": null,
            "artifact_ref": format!("assets/{prompt_id}/{version_id}/content.json"),
            "checksum": format!("blake3:{}", blake3::hash(canonical.as_bytes()).to_hex()),
            "created_at": version["created_at"], "created_by": "user:ada",
        })
    );
    // The artifact contains exactly the bytes that the checksum covers.
    let artifact = app.data_dir().join("artifacts").join(version["artifact_ref"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(artifact).unwrap(), canonical);
    let version_response = app.get(format!("{path}/{version_id}?workspace_id={WORKSPACE}")).await;
    assert_eq!(version_response.expect(200), version);
    let second_version = app.post(&path, json!({ "content": content })).await.expect(201);
    assert_eq!((&second_version["version_label"], &second_version["checksum"]), (&json!("v2"), &version["checksum"]));
    let labelled = app.post(&path, json!({ "content": content, "version_label": "v1" })).await;
    labelled.expect_refusal(409, "duplicate_version_label");
    let listed = app.get(format!("{path}?workspace_id={WORKSPACE}")).await;
    assert_eq!(listed.expect(200).as_array().unwrap().len(), 2);
    assert_eq!(listed.header("x-total-count"), Some("2"));

    let fixtures = app.fixtures();
    let model = fixtures.model_policy("ticket-model").await;
    let rules = json!([
        { "id": "short", "condition": "size(inputs.ticket) < 100", "outcome": "allow", "reason_code": "short_ticket" },
    ]);
    let policy = fixtures.policy_with_rules("ticket-policy", rules).await;

    // A flow is an asset that preserves its YAML source text.
    let created = app
        .post("/v1/flows", json!({ "slug": "ticket-flow", "owner_ref": "team:a", "content_yaml": FLOW }))
        .await
        .expect(201);
    let flow_id = parse_id(&created["asset_id"]);
    assert_eq!(created["asset_kind"], "orchestration_flow");
    assert_eq!(created["content_yaml"], FLOW);
    assert_eq!(created["version"]["content"]["entry_step"], "check");
    assert_eq!(app.get(format!("/v1/flows/{flow_id}?workspace_id={WORKSPACE}")).await.expect(200), created);

    // Creates the workload, which has the status `registered`.
    let body = json!({ "slug": "ticket-classifier", "owner_ref": "team:support", "invocation_mode": "form" });
    let created = app.post("/v1/workloads", body).as_actor("user:ada").await;
    let workload = created.expect(201);
    let workload_id = parse_id(&workload["workload_id"]);
    assert_eq!(
        workload,
        json!({
            "workload_id": workload_id, "slug": "ticket-classifier", "name": workload["name"], "description": "",
            "owner_ref": "team:support", "status": "registered", "invocation_mode": "form", "interface_config": null,
            "management_source": null, "workspace_id": WORKSPACE, "created_at": workload["created_at"],
            "created_by": "user:ada", "updated_at": workload["updated_at"],
        })
    );
    assert_eq!(created.header("etag"), Some("\"1\""));

    // Creates the release, and takes it from draft to active.
    let body = json!({
        "workload_id": workload_id, "environment": "dev", "target_lane": "all", "policy_bundle_id": policy.asset_id,
    });
    let created = app.post("/v1/releases", body).as_actor("user:ada").await;
    let release = created.expect(201);
    let release_id = parse_id(&release["release_id"]);
    assert_eq!(
        release,
        json!({
            "release_id": release_id, "workload_id": workload_id, "environment": "dev", "target_lane": "all",
            "state": "draft", "policy_bundle_id": policy.asset_id, "supersedes_release_id": null,
            "created_at": release["created_at"], "created_by": "user:ada", "updated_at": release["updated_at"],
            "bindings": [], "references": [], "valid_transitions": ["review_ready", "retired"],
        })
    );
    let execute = "/v1/workloads/by-slug/ticket-classifier/execute";
    let body = json!({ "environment": "dev", "inputs": { "ticket": "I want a refund" } });
    app.post(execute, body.clone()).await.expect_refusal(409, "no_active_release");

    let flow_version = parse_id(&flow_version_id(&app, &flow_id).await);
    let bound_versions = [
        (&version_id, "prompt_template"),
        (&model.asset_version_id, "model_policy"),
        (&policy.asset_version_id, "policy_bundle"),
        (&flow_version, "orchestration_flow"),
    ];
    for (version, role) in bound_versions {
        let body = json!({ "asset_version_id": version, "role": role });
        let binding = app.post(format!("/v1/releases/{release_id}/bindings"), body).as_actor("user:ada").await;
        let binding = binding.expect(201);
        assert_eq!(
            binding,
            json!({
                "binding_id": parse_id(&binding["binding_id"]), "release_id": release_id, "asset_version_id": version,
                "role": role, "created_at": binding["created_at"], "created_by": "user:ada",
            })
        );
    }
    let transition = format!("/v1/releases/{release_id}/transition");
    let refusal =
        app.post(&transition, json!({ "to_state": "active" })).await.expect_refusal(409, "invalid_transition");
    assert_eq!(refusal["current_state"], "draft");
    assert_eq!(refusal["valid_transitions"], json!(["review_ready", "retired"]));
    let transition_result =
        app.post(&transition, json!({ "to_state": "review_ready" })).as_actor("user:ada").await.expect(200);
    assert_eq!(
        (&transition_result["state"], &transition_result["previous_state"]),
        (&json!("review_ready"), &json!("draft"))
    );
    assert_eq!((&transition_result["lane"], &transition_result["transitioned_by"]), (&Value::Null, &json!("user:ada")));
    parse_timestamp(&transition_result["transitioned_at"]);
    app.post(&transition, json!({ "to_state": "approved" })).await.expect_refusal(422, "approval_required");
    let verdict = json!({
        "outcome": "approved", "subject_kind": "release", "subject_ref": release_id, "note": "Read and found good.",
    });
    let approvals = format!("/v1/releases/{release_id}/approvals");
    let approval = app.post(&approvals, verdict).as_actor("user:grace").await.expect(201);
    assert_eq!(
        approval,
        json!({
            "approval_id": parse_id(&approval["approval_id"]), "subject_kind": "release", "subject_ref": release_id,
            "outcome": "approved", "approved_by": "user:grace", "approved_at": approval["approved_at"],
            "note": "Read and found good.", "subject_digest": approval["subject_digest"],
        })
    );
    assert_eq!(app.get(&approvals).await.expect(200), json!([approval]));
    let transition_result =
        app.post(&transition, json!({ "to_state": "approved" })).as_actor("user:grace").await.expect(200);
    assert_eq!(transition_result["valid_transitions"], json!(["active", "retired"]));
    let transition_result =
        app.post(&transition, json!({ "to_state": "active" })).as_actor("user:grace").await.expect(200);
    assert_eq!(transition_result["state"], "active");
    let bindings = transition_result["bindings"].as_array().unwrap();
    assert_eq!(bindings.len(), 4);

    let active = app.get(format!("/v1/workloads/{workload_id}/active-release?environment=dev")).await.expect(200);
    assert_eq!((&active["release_id"], &active["state"]), (&json!(release_id), &json!("active")));
    assert_eq!(active, app.get(format!("/v1/releases/{release_id}")).await.expect(200));
    assert_eq!(
        app.get(format!("/v1/releases?workload_id={workload_id}")).await.expect(200)[0]["release_id"],
        release_id
    );

    // Executes the workload, and checks the answer.
    let response = app.post(execute, body).as_actor("user:grace").await;
    let run_result = response.expect(200);
    let execution_id = parse_id(&run_result["execution_id"]);
    assert!(parse_timestamp(&run_result["started_at"]) <= parse_timestamp(&run_result["completed_at"]));
    assert_eq!(
        run_result,
        json!({
            "execution_id": execution_id, "status": "completed", "output": { "category": "billing" },
            "metadata": { "classify": run_result["metadata"]["classify"] }, "error": null,
            "started_at": run_result["started_at"], "completed_at": run_result["completed_at"],
        })
    );
    assert_eq!(run_result["metadata"]["classify"]["provider"], "local");

    // The submitter reads the run with its result. Other callers read the run without the result.
    let execution = app.get(format!("/v1/executions/{execution_id}")).as_actor("user:grace").await.expect(200);
    assert_eq!(
        execution,
        json!({
            "execution_id": execution_id, "workload_id": workload_id, "release_id": release_id, "environment": "dev",
            "lane": "standard", "submitted_by": "user:grace", "delegated_by": null, "status": "completed", "outcome": "success",
            "error": null, "reason_code": "short_ticket", "started_at": run_result["started_at"],
            "completed_at": run_result["completed_at"], "steps": execution["steps"],
            "queued_result": { "result": { "category": "billing" }, "result_at": run_result["completed_at"] },
            "workload_slug": "ticket-classifier", "duration_ms": execution["duration_ms"], "tokens_in": 17, "tokens_out": 1,
            "cost_micros": null,
        })
    );
    let steps: Vec<&Value> = execution["steps"].as_array().unwrap().iter().map(|step| &step["step_id"]).collect();
    assert_eq!(steps, ["check", "classify", "answer"]);
    let foreign = app.get(format!("/v1/executions/{execution_id}")).as_actor("user:ada").await.expect(200);
    assert_eq!(foreign["queued_result"], Value::Null);

    // Reads the evidence of the run in its flat form.
    let evidence = app.get(format!("/v1/executions/{execution_id}/evidence-graph?format=flat")).await.expect(200);
    let sections = [
        "approvals",
        "bindings",
        "evidence_artifacts",
        "execution",
        "obligations",
        "policy_decision",
        "references",
        "release",
        "retrieval_events",
        "workload",
    ];
    assert_eq!(member_names(&evidence), sections);
    assert_eq!(
        evidence["execution"],
        json!({
            "execution_id": execution_id, "workload_id": workload_id, "release_id": release_id,
            "started_at": run_result["started_at"], "finished_at": run_result["completed_at"], "status": "completed",
            "outcome": "success", "error_code": null, "environment": "dev", "lane": "standard",
            "submitted_by": execution["submitted_by"], "delegated_by": null, "input_digest": evidence["execution"]["input_digest"],
            "output_digest": evidence["execution"]["output_digest"],
        })
    );
    assert_eq!(
        evidence["release"],
        json!({ "release_id": release_id, "environment": "dev", "lifecycle_state": "active" })
    );
    assert_eq!(
        evidence["workload"],
        json!({ "workload_id": workload_id, "slug": "ticket-classifier", "owner_ref": "team:support" })
    );
    let slugs = ["ticket-prompt", "ticket-model", "ticket-policy", "ticket-flow"];
    let mut expected: Vec<Value> = bound_versions
        .iter()
        .zip(slugs)
        .map(|((version, role), slug)| json!({ "role": role, "asset_version_id": version, "asset_slug": slug }))
        .collect();
    let mut actual = evidence["bindings"].as_array().unwrap().clone();
    for bindings in [&mut expected, &mut actual] {
        bindings.sort_by_key(|binding| binding["role"].to_string());
    }
    assert_eq!(actual, expected);
    let decision = &evidence["policy_decision"];
    assert_eq!(member_names(decision), ["decision_id", "evaluated_at", "outcome", "reason_code", "rules"]);
    assert_eq!((&decision["outcome"], &decision["reason_code"]), (&json!("allow"), &json!("short_ticket")));
    parse_timestamp(&decision["evaluated_at"]);
    assert_eq!(evidence["obligations"], json!([]));
    assert_eq!(evidence["retrieval_events"], json!([]));
    assert_eq!(evidence["references"], json!([]), "no bound content has references");
    let artifact = &evidence["evidence_artifacts"][0];
    assert_eq!(member_names(artifact), ["artifact_id", "artifact_kind", "created_at", "storage_ref"]);
    let stored = format!("evidence/{execution_id}/{}/", artifact["artifact_id"].as_str().unwrap());
    assert!(artifact["storage_ref"].as_str().unwrap().starts_with(&stored), "{artifact}");
    assert_eq!(
        evidence["approvals"],
        json!([{
            "approval_id": approval["approval_id"], "approved_by": "user:grace",
            "approved_at": approval["approved_at"], "note": "Read and found good.", "note_withheld": false,
        }])
    );

    // Evidence is a snapshot: later changes do not alter it.
    app.patch(format!("/v1/workloads/{workload_id}"), json!({ "owner_ref": "team:other" })).await.expect(200);
    app.post(&transition, json!({ "to_state": "retired" })).await.expect(200);
    let later_graph = app.get(format!("/v1/executions/{execution_id}/evidence-graph")).await.expect(200);
    assert_eq!(later_graph, evidence);
}

/// The identifier of a flow's newest version.
async fn flow_version_id(app: &TestApp, flow_id: &str) -> Value {
    let flow = app.get(format!("/v1/flows/{flow_id}?workspace_id={WORKSPACE}")).await.expect(200);
    flow["asset_version_id"].clone()
}
