//! Runs that retrieve documents: answers, evidence, and refusals by access contracts.

mod run_records;

use crate::{
    embedding_models::SEARCH_FLOW,
    execution::wait_until_ended,
    support::workspace_fixture::{WORKSPACE, knowledge_content},
};
use fairway_testkit::{
    FaultProxy, ProviderBehaviour, ProxyFault, ScriptedEndpoint, ScriptedResponse, StubProvider, TestApp,
    app::{ActiveWorkload, Response, Version},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// A flow that retrieves documents and calls a model with them.
pub(crate) const RETRIEVAL_FLOW: &str = "\
name: Answer from documents
description: Looks documents up and asks a model about them.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: find
steps:
  - id: find
    type: task
    action: retrieve_documents
    inputs: { query: '{{trigger.ticket}}', knowledge_base: '{{release.knowledge_base}}' }
    on_failure: sorry
  - id: ask
    type: llm_call
    inputs:
      prompt: '{{release.prompt_template}}'
      message: '{{trigger.ticket}}'
      documents: '{{steps.find.output}}'
  - id: done
    type: return
    output: '{{steps.ask.output}}'
  - id: sorry
    type: return
    output: 'Nobody could look.'
";

struct RetrievalWorkload {
    app: TestApp,
    provider: Arc<StubProvider>,
    base: Version,
    workload: ActiveWorkload,
}

impl RetrievalWorkload {
    /// Starts a server with a workload that answers from a handbook. `obligations` are those that its policy imposes.
    async fn start(content: Value, obligations: &[&str]) -> Self {
        let provider = StubProvider::new(ProviderBehaviour::Answers("Thirty days [leave].".to_owned()));
        let app = TestApp::builder().provider(provider.clone()).start().await;
        let fixtures = app.fixtures();
        let base = fixtures.asset_with_version("knowledge_base", "handbook", content).await;
        let documents = json!({ "documents": [
            { "document_id": "leave", "title": "Holidays", "text": "Everybody has thirty days of leave a year." },
            { "document_id": "travel", "text": "Take the train." },
        ] });
        app.post(format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", base.asset_id), documents)
            .await
            .expect(201);
        let mut rule = json!({ "id": "all", "condition": "always", "outcome": "allow", "reason_code": "fine" });
        if !obligations.is_empty() {
            rule["outcome"] = json!("allow_with_obligations");
            rule["obligations"] = json!(obligations);
        }
        let versions = vec![
            fixtures.ticket_prompt("prompt").await,
            fixtures.policy_with_rules("policy", json!([rule])).await,
            fixtures.model_policy("models").await,
            base.clone(),
            fixtures.flow("flow", RETRIEVAL_FLOW).await,
        ];
        let workload = fixtures.active_workload_with_bindings("desk", versions).await;
        Self { app, provider, base, workload }
    }

    async fn execute(&self, ticket: &str) -> Response {
        let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
        self.app.post(self.workload.execute_path(), body).await
    }

    async fn get_of_execution(&self, execution: &Value, suffix: &str) -> Value {
        let id = execution.as_str().unwrap();
        self.app.get(format!("/v1/executions/{id}/{suffix}")).await.expect(200)
    }

    /// The evidence artifacts of one kind of a run.
    async fn evidence_documents(&self, execution: &Value, kind: &str) -> Vec<Value> {
        let evidence = self.get_of_execution(execution, "evidence-graph").await;
        let mut documents = Vec::new();
        for artifact in evidence["evidence_artifacts"].as_array().unwrap() {
            if artifact["artifact_kind"] == kind {
                let path = format!("evidence-artifacts/{}", artifact["artifact_id"].as_str().unwrap());
                documents.push(self.get_of_execution(execution, &path).await);
            }
        }
        documents
    }

    async fn revoke_contract(&self) {
        let path = format!("/v1/assets/{}/access-contract/revoke?workspace_id={WORKSPACE}", self.base.asset_id);
        self.app.post(path, json!({ "contract_id": "handbook", "reason": "it is over" })).await.expect(200);
    }
}

/// If no documents are found, the prompt must not contain the heading for documents. Otherwise the model would be
/// told to cite documents that do not exist.
#[tokio::test]
async fn sends_no_heading_for_documents_when_retrieval_has_no_hit() {
    let setup = RetrievalWorkload::start(knowledge_content("handbook"), &[]).await;
    let response = setup.execute("Zebra crossings?").await.expect(200);
    let evidence = setup.get_of_execution(&response["execution_id"], "evidence-graph").await;
    assert_eq!(evidence["retrieval_events"][0]["retrieved_chunk_count"], 0);
    let call = &setup.provider.calls()[0].conversation;
    let texts: Vec<&str> = call.messages.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(texts, ["Zebra crossings?"]);
}

#[tokio::test]
async fn records_evidence_of_the_documents_behind_an_answer() {
    let setup = RetrievalWorkload::start(knowledge_content("handbook"), &["require_citation"]).await;
    let response = setup.execute("How many days of leave?").await.expect(200);
    assert_eq!((&response["status"], &response["output"]), (&json!("completed"), &json!("Thirty days [leave].")));
    // The documents are a message before the question. They are not part of the system prompt.
    let call = &setup.provider.calls()[0].conversation;
    assert!(!call.system_prompt.contains("thirty days of leave"));
    let texts: Vec<&str> = call.messages.iter().map(|message| message.content.as_str()).collect();
    assert_eq!((texts.len(), texts[1]), (2, "How many days of leave?"));
    assert!(texts[0].ends_with("[leave] Holidays\nEverybody has thirty days of leave a year."), "{}", texts[0]);
    assert!(!texts[0].contains("train"));
    let id = &response["execution_id"];
    let evidence = setup.get_of_execution(id, "evidence-graph").await;
    let event = &evidence["retrieval_events"][0];
    assert_eq!(event["knowledge_base_asset_id"], json!(setup.base.asset_id));
    assert_eq!((&event["query_text"], &event["retrieved_chunk_count"]), (&json!("How many days of leave?"), &json!(1)));
    assert_eq!(evidence["obligations"][0]["obligation_name"], "require_citation");
    assert!(evidence["obligations"][0]["fulfilled_at"].is_string());
    let graph = setup.get_of_execution(id, "evidence-graph?format=graph").await;
    let edges = graph["edges"].as_array().unwrap();
    let retrieved: Vec<&Value> = edges.iter().filter(|edge| edge["relationship"] == "retrieved").collect();
    let node = format!("retrieval_event:{}", event["retrieval_event_id"].as_str().unwrap());
    assert_eq!((retrieved.len(), &retrieved[0]["target"]), (1, &json!(node)));
    let retrieval = &setup.evidence_documents(id, "retrieval_event").await[0];
    let content = &retrieval["content"];
    assert_eq!((&content["index_revision"], &content["strategy"]), (&json!(1), &json!("lexical")));
    assert_eq!((&content["decision"], &content["candidates_capped"]), (&json!("allow"), &json!(false)));
    assert_eq!(content["chunks"][0]["document_id"], "leave");
    assert!(content["chunks"][0]["digest"].as_str().unwrap().starts_with("blake3:"));
    assert!(!content.to_string().contains("How many"), "the query is stored separately");
    let contract = &setup.evidence_documents(id, "contract_decision").await[0]["content"];
    assert_eq!((&contract["contract_id"], &contract["decision"]), (&json!("handbook"), &json!("allow")));
    let cited = &setup.evidence_documents(id, "citations").await[0]["content"];
    assert_eq!((&cited["retrieved"], &cited["cited"]), (&json!(["leave"]), &json!(["leave"])));
    let lineage =
        setup.get_of_execution(id, &format!("context-lineage?workspace_id={WORKSPACE}&origin=knowledge_base")).await;
    let items = lineage["items"].as_array().unwrap();
    assert!(items.iter().any(|item| item["ref"] == "handbook#leave/0" && item["trust"] == "untrusted"), "{lineage}");
}

#[tokio::test]
async fn withholds_query_text_from_callers_that_may_not_cancel_runs() {
    let setup = RetrievalWorkload::start(knowledge_content("handbook"), &[]).await;
    let response = setup.execute("How many days of leave?").await.expect(200);
    setup.app.fixtures().bind_role("user:reader", "viewer", "workspace", Some(WORKSPACE)).await;
    let path = format!("/v1/executions/{}/evidence-graph", response["execution_id"].as_str().unwrap());
    let evidence = setup.app.get(path).as_actor("user:reader").await.expect(200);
    let event = &evidence["retrieval_events"][0];
    assert_eq!((&event["query_text"], &event["query_text_withheld"]), (&Value::Null, &json!(true)));
    assert_eq!(event["retrieved_chunk_count"], 1);
}

/// Titles and passages are read together with the result, so a later revocation of the contract withholds them.
#[tokio::test]
async fn shows_titles_and_passages_of_cited_documents_while_the_contract_allows() {
    let setup = RetrievalWorkload::start(knowledge_content("handbook"), &[]).await;
    let response = setup.execute("How many days of leave? May I take the train?").await.expect(200);
    let path = format!("/v1/executions/{}", response["execution_id"].as_str().unwrap());
    assert_eq!(setup.app.get(&path).await.expect(200).get("citations"), None, "only on request");
    let cited = format!("{path}?include=citations");
    // The run also retrieved `travel`, but the answer does not cite this document.
    let passage = "Everybody has thirty days of leave a year.";
    let leave = json!({ "document_id": "leave", "title": "Holidays", "passages": [passage], "withheld": false });
    assert_eq!(setup.app.get(&cited).await.expect(200)["citations"], json!([leave]));
    setup.app.fixtures().bind_role("user:reader", "viewer", "workspace", Some(WORKSPACE)).await;
    let other_response = setup.app.get(&cited).as_actor("user:reader").await.expect(200);
    assert_eq!(other_response["citations"], json!([]), "without the result there are no citations");
    setup.revoke_contract().await;
    let withheld_document = json!({ "document_id": "leave", "title": null, "passages": [], "withheld": true });
    assert_eq!(setup.app.get(&cited).await.expect(200)["citations"], json!([withheld_document]));
    setup.app.get(format!("{path}?include=everything")).await.expect_refusal(422, "validation_error");
}

/// The stored passage would reveal personal data that the run has masked.
#[tokio::test]
async fn withholds_passages_of_runs_that_masked_texts() {
    let setup = RetrievalWorkload::start(knowledge_content("handbook"), &["redact_output"]).await;
    let response = setup.execute("How many days of leave?").await.expect(200);
    let path = format!("/v1/executions/{}?include=citations", response["execution_id"].as_str().unwrap());
    let withheld_document = json!({ "document_id": "leave", "title": null, "passages": [], "withheld": true });
    assert_eq!(setup.app.get(path).await.expect(200)["citations"], json!([withheld_document]));
}

/// Threat T42 in `docs/security.md`: if a queued result contains documents, only the submitter reads it, and only until
/// its retention ends.
#[tokio::test]
async fn only_the_submitter_reads_a_queued_result_and_its_query() {
    let setup = RetrievalWorkload::start(knowledge_content("handbook"), &[]).await;
    let fixtures = setup.app.fixtures();
    for (actor, role) in [("user:reader", "viewer"), ("user:author", "author")] {
        fixtures.bind_role(actor, role, "workspace", Some(WORKSPACE)).await;
    }
    let other_tenant = fixtures.tenant("abroad").await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "How many canaries on leave?" } });
    let accepted = setup.app.post(setup.workload.execute_path(), body).header("prefer", "respond-async").await;
    let id = accepted.expect(202)["execution_id"].clone();
    let own_run = wait_until_ended(&setup.app, &id).await;
    assert_eq!(own_run["queued_result"]["result"], "Thirty days [leave].");
    let path = format!("/v1/executions/{}", id.as_str().unwrap());
    for actor in ["user:reader", "user:author"] {
        let response = setup.app.get(&path).as_actor(actor).await;
        assert_eq!(response.expect(200)["queued_result"], Value::Null, "{actor}");
        for suffix in ["", "/evidence-graph", "/events", &format!("/context-lineage?workspace_id={WORKSPACE}")] {
            let response = setup.app.get(format!("{path}{suffix}")).as_actor(actor).await;
            for private in ["Thirty days", "thirty days", "canaries"] {
                assert!(!response.text().contains(private), "{actor}, {suffix}: {response}");
            }
        }
    }
    for suffix in ["", "/evidence-graph", "/events"] {
        setup.app.get(format!("{path}{suffix}")).in_tenant(&other_tenant).await.expect_refusal(404, "not_found");
    }
    setup.app.database().set_clock_offset(30 * 24 * 60 * 60 + 60).await.unwrap();
    assert_eq!(setup.app.get(&path).await.expect(200)["queued_result"], Value::Null);
    let events = setup.app.get(format!("{path}/events")).await;
    assert!(!events.text().contains("Thirty days"), "{events}");
}

#[tokio::test]
async fn withholds_answers_without_required_citations() {
    let mut content = knowledge_content("handbook");
    content["access_contract"]["citation_required"] = json!(true);
    // Citations are required by the contract in the first case, and by the policy in the second.
    for setup in [
        RetrievalWorkload::start(content, &[]).await,
        RetrievalWorkload::start(knowledge_content("handbook"), &["require_citation"]).await,
    ] {
        for model_answer in ["Thirty days.", "Thirty days [travel].", "Thirty days [Leave] leave."] {
            setup.provider.set_behaviour(ProviderBehaviour::Answers(model_answer.to_owned()));
            let response = setup.execute("How many days of leave?").await.expect(200);
            assert_eq!((&response["status"], &response["output"]), (&json!("failed"), &Value::Null));
            assert_eq!(response["error"]["code"], "citation_missing");
        }
        setup.provider.set_behaviour(ProviderBehaviour::Answers("[leave]".to_owned()));
        assert_eq!(setup.execute("How many days of leave?").await.expect(200)["output"], "[leave]");
    }
}

#[tokio::test]
async fn revoked_contract_refuses_the_next_run_before_its_first_step() {
    let setup = RetrievalWorkload::start(knowledge_content("handbook"), &[]).await;
    setup.execute("leave").await.expect(200);
    setup.revoke_contract().await;
    let refusal = setup.execute("leave").await.expect_refusal(422, "contract_refused");
    assert_eq!(setup.provider.call_count(), 1, "the provider is not called again");
    let id = &refusal["execution_id"];
    let ended_run = wait_until_ended(&setup.app, id).await;
    assert_eq!((&ended_run["status"], &ended_run["error"]["code"]), (&json!("failed"), &json!("contract_refused")));
    assert_eq!(setup.get_of_execution(id, "evidence-graph").await["retrieval_events"], json!([]));
    let decision = &setup.evidence_documents(id, "contract_decision").await[0]["content"];
    assert_eq!(decision["decision"], "deny");
    assert!(decision["reasons"].as_array().unwrap().contains(&json!("contract_revoked")), "{decision}");
    // An `on_failure` step does not catch a refusal.
    assert_eq!(ended_run["queued_result"], Value::Null);
}

/// Promise R16 in `docs/security.md`: if the state of a contract cannot be read, the contract counts as not in force.
#[tokio::test]
async fn refuses_retrieval_when_the_contract_cannot_be_read() {
    let setup = RetrievalWorkload::start(knowledge_content("handbook"), &[]).await;
    let proxy = FaultProxy::start_for_database(setup.app.database(), 1);
    let provider = StubProvider::new(ProviderBehaviour::Answers("Thirty days [leave].".to_owned()));
    let server = TestApp::builder()
        .sharing_storage_of(&setup.app)
        .through_proxy(&proxy)
        .provider(provider.clone())
        .start()
        .await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "How many days of leave?" } });
    let ask = || server.post(setup.workload.execute_path(), body.clone());
    assert_eq!(ask().await.expect(200)["status"], "completed");
    proxy.set_fault(ProxyFault::Matching("coalesce(contract.revoked"));
    let response = ask().await;
    proxy.set_fault(ProxyFault::None);
    let run = response.expect(200);
    assert_eq!(
        (&run["status"], &run["error"]["code"]),
        (&json!("failed"), &json!("contract_unavailable")),
        "{response}"
    );
    assert_eq!((&run["output"], provider.call_count()), (&Value::Null, 1));
    let id = &run["execution_id"];
    assert_eq!(setup.get_of_execution(id, "evidence-graph").await["retrieval_events"], json!([]));
    assert_eq!(setup.evidence_documents(id, "contract_decision").await, [Value::Null; 0]);
    assert_eq!(ask().await.expect(200)["status"], "completed");
}

#[tokio::test]
async fn refuses_principals_that_the_contract_does_not_name() {
    let mut content = knowledge_content("handbook");
    content["access_contract"]["allowed_principals"] = json!(["user:somebody-else"]);
    content["access_contract"]["allowed_groups"] = json!([]);
    let setup = RetrievalWorkload::start(content, &[]).await;
    setup.execute("leave").await.expect_refusal(422, "contract_refused");
    assert_eq!(setup.provider.call_count(), 0);
}

/// The query is sent to the embedding provider, so the sovereignty profile also applies to this call.
#[tokio::test]
async fn sends_queries_only_to_jurisdictions_that_the_profile_allows() {
    let endpoint = ScriptedEndpoint::start().await;
    let vector = json!({ "data": [{ "index": 0, "embedding": [1.0, 0.0] }], "usage": { "prompt_tokens": 1 } });
    endpoint.respond_with(ScriptedResponse::json(&vector));
    let account = |residency: &str| {
        let url = endpoint.url("/v1");
        format!("[[providers]]\naccount_slot = \"vectors\"\nkind = \"openai\"\nbase_url = \"{url}\"\n{residency}")
    };
    let server = |residency: &str| {
        TestApp::builder().config_file(account(residency)).setting("FAIRWAY_EMBEDDING_ACCOUNT", "vectors")
    };
    let app = server("residency = \"us\"\n").start().await;
    let fixtures = app.fixtures();
    let mut content = knowledge_content("handbook");
    content["retrieval"] = json!({ "strategy": "vector" });
    let base = fixtures.asset_with_version("knowledge_base", "handbook", content).await;
    let documents = json!({ "documents": [{ "document_id": "leave", "text": "Thirty days." }] });
    app.post(format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", base.asset_id), documents).await.expect(201);
    let profile = json!({ "jurisdictions_allowed": ["de"], "fail_mode": "closed" });
    let versions = vec![
        fixtures.allow_all_policy("policy").await,
        fixtures.flow("flow", SEARCH_FLOW).await,
        base,
        fixtures.asset_with_version("sovereignty_profile", "profile", profile).await,
    ];
    let workload = fixtures.active_workload_with_bindings("desk", versions).await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "leave" } });
    for (residency, status) in [("residency = \"us\"\n", 422), ("", 422), ("residency = \"de\"\n", 200)] {
        let app = server(residency).sharing_storage_of(&app).start().await;
        let requests_before = endpoint.request_count();
        let response = app.post(workload.execute_path(), body.clone()).await;
        assert_eq!(response.status, status, "{residency}: {response}");
        assert_eq!(endpoint.request_count() - requests_before, usize::from(status == 200), "{residency}");
        if status == 422 {
            let id = response.expect_refusal(422, "no_compliant_route")["execution_id"].clone();
            let evidence = app.get(format!("/v1/executions/{}/evidence-graph", id.as_str().unwrap())).await.expect(200);
            let artifacts = evidence["evidence_artifacts"].as_array().unwrap().iter();
            let refused_routes: Vec<&Value> =
                artifacts.filter(|artifact| artifact["artifact_kind"] == "route_refused").collect();
            assert_eq!(refused_routes.len(), 1, "{residency}: {evidence}");
        }
    }
}
