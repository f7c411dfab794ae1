//! The built-in tools over plain HTTP, and the runtime information of a deployment.

use crate::{
    execution::wait_until_ended,
    share_link::query_number,
    support::workspace_fixture::{WORKSPACE, knowledge_content},
};
use fairway_testkit::{FaultPoint, FaultProxy, ProviderBehaviour, ProxyFault, StubProvider, TestApp, connect};
use serde_json::{Value, json};

const EXECUTE_FLOW_PATH: &str = "/v1/runtime/tools/execute_flow";

fn execute_flow_body(slug: &str) -> Value {
    json!({ "arguments": { "workload_slug": slug, "environment": "dev", "inputs": { "ticket": "x" } } })
}

#[tokio::test]
async fn execute_flow_starts_an_ordinary_run() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    let run_response = app.post(EXECUTE_FLOW_PATH, execute_flow_body("main")).idempotency_key("once").await;
    let response = run_response.expect(200);
    let result = &response["result"];
    assert_eq!((&response["status"], &result["status"]), (&json!("success"), &json!("completed")), "{response}");
    let execution = app.get(format!("/v1/executions/{}", result["execution_id"].as_str().unwrap())).await.expect(200);
    assert_eq!(execution["queued_result"]["result"], result["output"]);
    assert_eq!(execution["workload_id"], json!(workload.workload_id));
    // The idempotency key of the tool call applies to the run.
    let replay = app.post(EXECUTE_FLOW_PATH, execute_flow_body("main")).idempotency_key("once").await;
    assert_eq!((replay.expect(200), replay.header("idempotency-replayed")), (response.clone(), Some("true")));
    assert_eq!(query_number(&app, "SELECT count(*) FROM execution").await, 1);
    // If the stored result of a run is unreadable, its replay fails and starts no second run.
    let damage_sql = "SET session_replication_role = replica; UPDATE execution_result SET body = '[]'";
    connect(&app.database().url_for_owner()).await.unwrap().batch_execute(damage_sql).await.unwrap();
    let refusal = app
        .post(EXECUTE_FLOW_PATH, execute_flow_body("main"))
        .idempotency_key("once")
        .await
        .expect_refusal(502, "tool_response_malformed");
    assert_eq!(refusal["execution_id"], result["execution_id"]);
    assert_eq!(query_number(&app, "SELECT count(*) FROM execution").await, 1);
}

/// If it is unknown whether the run was accepted, the response reports this together with the run's identifier. No
/// second run starts.
#[tokio::test]
async fn lost_response_is_reported_without_a_second_run() {
    let direct_server = TestApp::builder().setting("FAIRWAY_WORKER_LEASE", "2s").start().await;
    let proxy = FaultProxy::start_for_database(direct_server.database(), 1);
    let proxied_server = TestApp::builder()
        .setting("FAIRWAY_WORKER_LEASE", "2s")
        .sharing_storage_of(&direct_server)
        .through_proxy(&proxy)
        .start()
        .await;
    direct_server.active_workload("main").await;
    for (fault, runs) in [(FaultPoint::Before, 0), (FaultPoint::Late, 1)] {
        proxy.set_fault(ProxyFault::Once("INTO execution (", fault));
        let refusal = proxied_server
            .post(EXECUTE_FLOW_PATH, execute_flow_body("main"))
            .await
            .expect_refusal(503, "tool_response_lost");
        proxy.wait_for_cut_statements().await;
        assert_eq!(query_number(&direct_server, "SELECT count(*) FROM execution").await, runs, "{fault:?}");
        let id = refusal["execution_id"].clone();
        if runs == 0 {
            direct_server
                .get(format!("/v1/executions/{}", id.as_str().unwrap()))
                .await
                .expect_refusal(404, "not_found");
        } else {
            // No worker has the run. After its lease has expired, the run ends with an outcome.
            assert!(wait_until_ended(&direct_server, &id).await["outcome"].is_string());
        }
    }
    assert_eq!(query_number(&direct_server, "SELECT count(*) FROM fact WHERE kind = 'execution.ended'").await, 1);
    assert_eq!(proxy.injected().len(), 2, "each accept had a fault");
}

#[tokio::test]
async fn reports_queued_and_failed_runs() {
    let app =
        TestApp::builder().provider(StubProvider::new(ProviderBehaviour::Blocks)).setting("FAIRWAY_SYNC_WAIT", "1ms");
    let app = app.start().await;
    app.active_workload("slow").await;
    let response = app.post(EXECUTE_FLOW_PATH, execute_flow_body("slow")).await.expect(200);
    assert_eq!((&response["status"], &response["result"]["state"]), (&json!("queued"), &json!("queued")));
    let deny = json!([{ "id": "no", "condition": "always", "outcome": "deny", "reason_code": "not_today" }]);
    let policy = app.fixtures().policy_with_rules("strict", deny).await;
    app.fixtures().active_workload_with_policy("denied", policy).await;
    let response = app.post(EXECUTE_FLOW_PATH, execute_flow_body("denied")).await.expect(200);
    let result = &response["result"];
    assert_eq!((&response["status"], &result["status"]), (&json!("failed"), &json!("denied")), "{response}");
    assert_eq!((&result["error"]["code"], &result["reason_code"]), (&json!("policy_denied"), &json!("not_today")));
    assert!(result["execution_id"].is_string(), "{response}");
}

#[tokio::test]
async fn validates_arguments_against_the_schema() {
    let app = TestApp::start().await;
    for (tool, arguments, path, code) in [
        ("execute_flow", json!({}), "arguments.environment", "missing_field"),
        ("execute_flow", execute_flow_body("A")["arguments"].clone(), "arguments.workload_slug", "wrong_form"),
        ("query_knowledge_base", json!({ "knowledge_base_slug": "a", "query": 1 }), "arguments.query", "wrong_type"),
        ("inspect_evidence", json!({ "execution_id": WORKSPACE, "x": 1 }), "arguments.x", "unknown_field"),
    ] {
        let body = json!({ "arguments": arguments });
        let refusal = app.post(format!("/v1/runtime/tools/{tool}"), body).await.expect_refusal(422, "validation_error");
        let fields = refusal["fields"].as_array().unwrap();
        assert!(fields.iter().any(|field| field["path"] == path && field["code"] == code), "{refusal}");
        assert!(!refusal.to_string().contains("asset"), "{refusal}");
    }
    app.post("/v1/runtime/tools/canary", json!({})).await.expect_refusal(404, "not_found");
    // Only trusted services may send on-behalf-of fields.
    let mut body = execute_flow_body("main");
    body["actor_ref"] = json!("user:mia");
    app.post(EXECUTE_FLOW_PATH, body).await.expect_refusal(422, "forbidden_field");
}

#[tokio::test]
async fn internal_clients_delegate_runs_but_not_reads() {
    let app = TestApp::builder().setting("FAIRWAY_INTERNAL_CLIENTS", "service:portal").start().await;
    let workload = app.active_workload("main").await;
    for principal in ["service:portal", "user:mia"] {
        app.fixtures().bind_role(principal, "runtime_user", "workspace", Some(WORKSPACE)).await;
    }
    let on_behalf = |mut body: Value| {
        body["execution_mode"] = json!("on_behalf_of");
        body["actor_ref"] = json!("user:mia");
        body["actor_type"] = json!("user");
        body["actor_auth_mode"] = json!("local");
        body
    };
    let send = || app.post(EXECUTE_FLOW_PATH, on_behalf(execute_flow_body("main"))).as_actor("service:portal");
    send().await.expect_refusal(403, "principal_not_bound");
    let bindings = format!("/v1/workloads/{}/principal-bindings", workload.workload_id);
    app.put(bindings, json!({ "principal": "user:mia" })).await.expect(200);
    let response = send().await.expect(200);
    let path = format!("/v1/executions/{}", response["result"]["execution_id"].as_str().unwrap());
    let execution = app.get(path).await.expect(200);
    assert_eq!(
        (&execution["submitted_by"], &execution["delegated_by"]),
        (&json!("user:mia"), &json!("service:portal"))
    );
    let query = json!({ "arguments": { "knowledge_base_slug": "a", "query": "x" } });
    let response = app.post("/v1/runtime/tools/query_knowledge_base", on_behalf(query)).as_actor("service:portal");
    response.await.expect_refusal(403, "forbidden_field");
}

#[tokio::test]
async fn knowledge_queries_follow_the_contract_and_record_facts() {
    let app = TestApp::start().await;
    let base = app.fixtures().asset_with_version("knowledge_base", "handbook", knowledge_content("handbook")).await;
    let documents = json!({ "documents": [{ "document_id": "leave", "text": "Thirty days of leave a year." }] });
    let path = format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", base.asset_id);
    app.post(path, documents).await.expect(201);
    let query = || {
        let body = json!({ "arguments": { "knowledge_base_slug": "handbook", "query": "days of leave", "top_k": 1 } });
        app.post("/v1/runtime/tools/query_knowledge_base", body)
    };
    let facts = async |kind: &str| {
        let sql = format!(
            "SELECT count(*) FROM fact WHERE kind = '{kind}' AND convert_from(body, 'UTF8') NOT SIMILAR TO '%(Thirty|days of)%'"
        );
        query_number(&app, &sql).await
    };
    let response = query().await.expect(200);
    let found = &response["result"];
    assert_eq!((&response["status"], &found["contract_id"]), (&json!("success"), &json!("handbook")), "{response}");
    assert_eq!(found["chunks"][0]["text"], "Thirty days of leave a year.");
    assert_eq!(facts("knowledge.read").await, 1);
    // A caller that the access contract does not name is refused. A caller that may not see the knowledge base gets
    // 404.
    app.fixtures().bind_role("user:ada", "author", "workspace", Some(WORKSPACE)).await;
    app.fixtures().bind_role("user:mia", "runtime_user", "workspace", Some(WORKSPACE)).await;
    app.fixtures().bind_role("user:vera", "viewer", "workspace", Some(WORKSPACE)).await;
    query().as_actor("user:ada").await.expect_refusal(422, "contract_refused");
    assert_eq!((facts("knowledge.read").await, facts("knowledge.read_refused").await), (1, 1));
    query().as_actor("user:mia").await.expect_refusal(404, "not_found");
    assert_eq!(query().as_actor("user:vera").await.expect_refusal(403, "forbidden")["permission"], "execution.run");
    let ended = json!({ "contract_id": "handbook", "reason": "over", "workspace_id": WORKSPACE });
    app.post(format!("/v1/assets/{}/access-contract/revoke", base.asset_id), ended).await.expect(200);
    query().await.expect_refusal(422, "contract_refused");
}

/// The embedding model is external, so a fact records the query before the model receives it.
#[tokio::test]
async fn records_queries_before_sending_them_to_a_model() {
    let app = TestApp::start().await;
    let mut content = knowledge_content("handbook");
    content["retrieval"] = json!({ "strategy": "vector" });
    let base = app.fixtures().asset_with_version("knowledge_base", "handbook", content).await;
    let query = async || {
        let body = json!({ "arguments": { "knowledge_base_slug": "handbook", "query": "days of leave" } });
        app.post("/v1/runtime/tools/query_knowledge_base", body).await
    };
    let facts = async || {
        let kinds = "SELECT count(*) FILTER (WHERE kind = 'knowledge.asked') * 10 + count(*) FILTER (WHERE kind = 'knowledge.read') FROM fact";
        query_number(&app, kinds).await
    };
    query().await.expect(200);
    assert_eq!(facts().await, 11, "asked and read");
    let documents = json!({ "documents": [{ "document_id": "leave", "text": "Thirty days of leave a year." }] });
    let path = format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", base.asset_id);
    app.post(path, documents).await.expect(201);
    // A query that fails after the embedding is recorded too.
    let owner = app.database().connect_as_owner().await.unwrap();
    owner.execute("UPDATE knowledge_index_model SET embedded_by = 'other/model'", &[]).await.unwrap();
    let response = query().await;
    assert!(response.status >= 400, "{response}");
    assert_eq!(facts().await, 21, "asked twice, read once");
}

#[tokio::test]
async fn inspect_evidence_requires_read_and_run_permissions() {
    let app = TestApp::start().await;
    app.active_workload("main").await;
    let response = app.post(EXECUTE_FLOW_PATH, execute_flow_body("main")).await.expect(200);
    let id = response["result"]["execution_id"].as_str().unwrap();
    let inspect = || app.post("/v1/runtime/tools/inspect_evidence", json!({ "arguments": { "execution_id": id } }));
    let evidence = app.get(format!("/v1/executions/{id}/evidence-graph")).await.expect(200);
    assert_eq!(inspect().await.expect(200), json!({ "status": "success", "result": evidence }));
    app.fixtures().bind_role("user:vera", "viewer", "workspace", Some(WORKSPACE)).await;
    app.fixtures().bind_role("user:mia", "runtime_user", "workspace", Some(WORKSPACE)).await;
    assert_eq!(inspect().as_actor("user:vera").await.expect_refusal(403, "forbidden")["permission"], "execution.run");
    inspect().as_actor("user:mia").await.expect_refusal(404, "not_found");
}

#[tokio::test]
async fn runtime_information_requires_a_role_and_lists_capabilities() {
    let app = TestApp::start().await;
    let workload = app.active_workload("ticket-sorter").await;
    let read = async |name: &str| app.get(format!("/v1/runtime/{name}?workspace_id={WORKSPACE}")).await.expect(200);
    for name in ["plugins", "system-meta", "mcp-manifest"] {
        app.get(format!("/v1/runtime/{name}")).await.expect_refusal(422, "validation_error");
        // For an anonymous caller, existing and unknown workspaces cause the same refusal.
        for workspace in [WORKSPACE, workload.workload_id.as_str()] {
            let path = format!("/v1/runtime/{name}?workspace_id={workspace}");
            let refusal = app.get(&path).as_actor("anonymous").await.expect_refusal(403, "forbidden");
            assert_eq!(refusal["permission"], "workload.view");
        }
        let unknown_workspace_path = format!("/v1/runtime/{name}?workspace_id={}", workload.workload_id);
        app.get(unknown_workspace_path).await.expect_refusal(404, "not_found");
    }
    let plugins = read("plugins").await;
    assert!(plugins["providers"].as_array().unwrap().contains(&json!({ "account_slot": "local", "kind": "local" })));
    assert_eq!(plugins["actions"], json!(["evaluate_policy", "retrieve_documents"]));
    let meta = read("system-meta").await;
    assert_eq!(meta["capabilities"]["mcp_protocol_versions"], json!(["2025-11-25", "2026-07-28"]));
    assert_eq!(meta["limits"]["request_body_bytes"], 1_048_576);
    // A workload is a tool only if it has a form, and only for callers that may execute it.
    let tool_names = |manifest: Value| -> Vec<String> {
        manifest["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let always = ["execute_flow", "query_knowledge_base", "inspect_evidence"];
    assert_eq!(tool_names(read("mcp-manifest").await), always);
    let form = json!({ "interface_config": { "presentation_mode": "form" } });
    app.patch(format!("/v1/workloads/{}", workload.workload_id), form).await.expect(200);
    let manifest = read("mcp-manifest").await;
    assert_eq!(manifest["tools"][3]["name"], "run_ticket_sorter");
    assert!(manifest["tools"][3]["title"].as_str().unwrap().contains("ticket-sorter"));
    assert_eq!(manifest["truncated"], false);
    app.fixtures().bind_role("user:vera", "viewer", "workspace", Some(WORKSPACE)).await;
    let path = format!("/v1/runtime/mcp-manifest?workspace_id={WORKSPACE}");
    assert_eq!(tool_names(app.get(path).as_actor("user:vera").await.expect(200)), always);
    let other_workspace = app.fixtures().workspace("next-door", "next-door").await;
    let path = format!("/v1/runtime/mcp-manifest?workspace_id={other_workspace}");
    assert_eq!(tool_names(app.get(path).await.expect(200)), always);
}
