//! Changed embedding models: pinned releases, kept models, and re-embedding.

use crate::{
    guardrail::evidence_documents,
    support::workspace_fixture::{WORKSPACE, knowledge_content},
};
use fairway_testkit::{
    TestApp,
    app::{ActiveWorkload, Builder, Version},
};
use serde_json::{Value, json};

/// A flow that searches documents with the ticket as the query, and returns the found chunks.
pub(crate) const SEARCH_FLOW: &str = "\
name: Search
description: Looks documents up.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: find
steps:
  - id: find
    type: task
    action: retrieve_documents
    inputs: { query: '{{trigger.ticket}}' }
  - id: done
    type: return
    output: '{{steps.find.output}}'
";

/// Builds a server with these local provider accounts. `embedding` is the account for embeddings.
pub(crate) fn server_with_accounts(accounts: &[&str], embedding: &str) -> Builder {
    let account = |name: &&str| format!("[[providers]]\naccount_slot = \"{name}\"\nkind = \"local\"\n");
    TestApp::builder()
        .config_file(accounts.iter().map(account).collect::<String>())
        .setting("FAIRWAY_EMBEDDING_ACCOUNT", embedding)
        .setting("FAIRWAY_EMBEDDING_MODEL", format!("model/of-{embedding}"))
}

pub(crate) fn documents_path(base: &Version, suffix: &str) -> String {
    format!("/v1/assets/{}/documents{suffix}?workspace_id={WORKSPACE}", base.asset_id)
}

pub(crate) fn text_document(document_id: &str, text: &str) -> Value {
    json!({ "documents": [{ "document_id": document_id, "text": text }] })
}

pub(crate) fn warning_codes(result: &Value) -> Vec<&str> {
    result["warnings"].as_array().unwrap().iter().map(|warning| warning["code"].as_str().unwrap()).collect()
}

/// Creates a knowledge base with these retrieval settings.
pub(crate) async fn knowledge_base(app: &TestApp, name: &str, retrieval: Value) -> Version {
    let mut content = knowledge_content(name);
    content["retrieval"] = retrieval;
    app.fixtures().asset_with_version("knowledge_base", name, content).await
}

/// Searches for `days of leave` with the workload.
pub(crate) async fn search(app: &TestApp, workload: &ActiveWorkload) -> Value {
    let body = json!({ "environment": "dev", "inputs": { "ticket": "days of leave" } });
    app.post(workload.execute_path(), body).await.expect(200)
}

/// Runs a search. Returns the account that embedded the query and the searched index revision.
async fn embedding_of_search(app: &TestApp, workload: &ActiveWorkload) -> (String, i64) {
    let response = search(app, workload).await;
    assert_eq!(response["status"], "completed", "{response}");
    assert_eq!(response["output"][0]["document_id"], "leave", "{response}");
    let event = &evidence_documents(app, &response["execution_id"], "retrieval_event").await[0];
    let account = event["embedding"]["account_slot"].as_str().unwrap().to_owned();
    (account, event["index_revision"].as_i64().unwrap())
}

/// The verdict, code and message of the release's gate with this name.
pub(crate) async fn gate(app: &TestApp, workload: &ActiveWorkload, name: &str) -> (String, String, String) {
    let gates = app.get(format!("/v1/releases/{}/gates", workload.release_id)).await.expect(200);
    let gate = gates.as_array().unwrap().iter().find(|gate| gate["gate"] == name).unwrap();
    let field = |name: &str| gate[name].as_str().unwrap().to_owned();
    (field("verdict"), field("code"), field("message"))
}

/// Creates a release that searches a knowledge base. The environment sets `pin_documents`, so the release searches the
/// index revision with which it was approved.
async fn pinned_release(app: &TestApp, base: &Version) -> ActiveWorkload {
    let settings = format!("/v1/workspaces/{WORKSPACE}/environments/dev/settings");
    let pinning = json!({ "min_approvals": 1, "allow_self_approval": true, "pin_documents": true });
    app.put(settings, pinning).await.expect(200);
    let fixtures = app.fixtures();
    let versions =
        vec![fixtures.allow_all_policy("policy").await, fixtures.flow("flow", SEARCH_FLOW).await, base.clone()];
    fixtures.active_workload_with_bindings("desk", versions).await
}

#[tokio::test]
async fn pinned_release_survives_a_changed_embedding_model() {
    let app = server_with_accounts(&["old", "new"], "old").start().await;
    let base = knowledge_base(&app, "handbook", json!({ "strategy": "vector", "top_k": 1 })).await;
    for (name, content) in [("leave", "Thirty days of leave."), ("travel", "Go by train.")] {
        app.post(documents_path(&base, ""), text_document(name, content)).await.expect(201);
    }
    let workload = pinned_release(&app, &base).await;
    assert_eq!(embedding_of_search(&app, &workload).await, ("old".to_owned(), 2));

    // While the old account is configured, queries are embedded with the old model, which matches the stored vectors.
    let changed_server = server_with_accounts(&["old", "new"], "new").sharing_storage_of(&app).start().await;
    assert_eq!(embedding_of_search(&changed_server, &workload).await, ("old".to_owned(), 2));
    assert_eq!(gate(&changed_server, &workload, "embedding").await.0, "pass");

    // Without the old account, the search fails, and the gate names the remedy.
    let moved_server = server_with_accounts(&["new"], "new").sharing_storage_of(&app).start().await;
    let failed = search(&moved_server, &workload).await;
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("embedding_mismatch")));
    let (verdict, code, message) = gate(&moved_server, &workload, "embedding").await;
    assert_eq!((verdict.as_str(), code.as_str()), ("warn", "embedding_account_missing"));
    assert!(message.contains("`handbook`") && message.contains("`old`") && message.contains("again"), "{message}");

    // Re-embedding stores the same documents in a new revision with vectors of the new model.
    let reembed = async |limit: u32| {
        moved_server.post(documents_path(&base, "/reembed"), json!({ "max_chunks": limit })).await.expect(200)
    };
    let first_half = reembed(1).await;
    assert_eq!((&first_half["index_revision"], &first_half["chunk_count"]), (&json!(3), &json!(1)));
    assert_eq!((&first_half["complete"], warning_codes(&first_half)), (&json!(false), vec!["embedding_mismatch"]));
    assert_eq!(
        embedding_of_search(&changed_server, &workload).await,
        ("old".to_owned(), 2),
        "a partial re-embedding does not affect searches"
    );
    let reembedding = reembed(2_000).await;
    let expected = json!({
        "asset_id": base.asset_id, "index_revision": 4, "embedding_account": "new", "embedding_model": "model/of-new",
        "chunk_count": 1, "complete": true, "warnings": [],
    });
    assert_eq!(reembedding, expected);
    assert_eq!(reembed(2_000).await["chunk_count"], 0, "a complete re-embedding has no further chunks");
    assert_eq!(embedding_of_search(&moved_server, &workload).await, ("new".to_owned(), 4));
    assert_eq!(
        embedding_of_search(&changed_server, &workload).await,
        ("old".to_owned(), 2),
        "the pinned revision is used while its model is available"
    );
    assert_eq!(gate(&moved_server, &workload, "embedding").await.0, "pass");
    assert_eq!(gate(&moved_server, &workload, "documents").await.1, "documents", "no documents were added");

    // Documents that are added later are in a new revision. The pinned revision does not change.
    moved_server.post(documents_path(&base, ""), text_document("leave", "Forty days of leave.")).await.expect(201);
    assert_eq!(embedding_of_search(&moved_server, &workload).await, ("new".to_owned(), 4));
    assert_eq!(gate(&moved_server, &workload, "documents").await.1, "documents_drifted");
    let facts = "SELECT count(*) FROM fact WHERE kind = 'knowledge.documents_reembedded'";
    assert_eq!(crate::share_link::query_number(&app, facts).await, 2);
}

/// A changed embedding setting does not affect existing knowledge bases until they are re-embedded.
#[tokio::test]
async fn knowledge_base_keeps_its_model_until_reembedding() {
    let app = server_with_accounts(&["old", "new"], "old").start().await;
    let base = knowledge_base(&app, "handbook", json!({ "strategy": "hybrid" })).await;
    let first_response =
        app.post(documents_path(&base, ""), text_document("leave", "Thirty days of leave.")).await.expect(201);
    assert_eq!(warning_codes(&first_response), [""; 0]);
    let query = |app: &TestApp| {
        let query = json!({ "arguments": { "knowledge_base_slug": "handbook", "query": "days of leave" } });
        app.post("/v1/runtime/tools/query_knowledge_base", query)
    };
    let changed_server = server_with_accounts(&["old", "new"], "new").sharing_storage_of(&app).start().await;
    let added = changed_server
        .post(documents_path(&base, ""), text_document("travel", "Go by train."))
        .idempotency_key("once")
        .await
        .expect(201);
    assert_eq!(warning_codes(&added), ["embedding_model_kept"]);
    let replayed = changed_server
        .post(documents_path(&base, ""), text_document("travel", "Go by train."))
        .idempotency_key("once")
        .await
        .expect(201);
    assert_eq!(replayed, added);
    let found = query(&changed_server).await.expect(200);
    assert_eq!(
        (&found["result"]["chunks"][0]["document_id"], &found["result"]["capped"]),
        (&json!("leave"), &json!(false))
    );

    // The old account is removed. After re-embedding, added documents get vectors of the new model.
    let moved_server = server_with_accounts(&["new"], "new").sharing_storage_of(&app).start().await;
    query(&moved_server).await.expect_refusal(409, "embedding_mismatch");
    let added =
        moved_server.post(documents_path(&base, ""), text_document("food", "Lunch is at noon.")).await.expect(201);
    assert_eq!(warning_codes(&added), ["embedding_mismatch"]);
    query(&moved_server).await.expect_refusal(409, "embedding_mismatch");
    let reembedding =
        moved_server.post(documents_path(&base, "/reembed"), json!({})).idempotency_key("again").await.expect(200);
    assert_eq!((&reembedding["chunk_count"], &reembedding["complete"]), (&json!(2), &json!(true)));
    assert_eq!(
        moved_server.post(documents_path(&base, "/reembed"), json!({})).idempotency_key("again").await.expect(200),
        reembedding
    );
    query(&moved_server).await.expect(200);
    for max_chunks in [0, 2_001] {
        let response = moved_server.post(documents_path(&base, "/reembed"), json!({ "max_chunks": max_chunks })).await;
        assert_eq!(response.expect_refusal(422, "validation_error")["fields"][0]["path"], "max_chunks");
    }
    // Text search needs no vectors, so this knowledge base accepts documents.
    let words = app.fixtures().asset_with_version("knowledge_base", "words", knowledge_content("words")).await;
    app.post(documents_path(&words, ""), text_document("a", "b")).await.expect(201);
    let response = app.post(documents_path(&words, "/reembed"), json!({})).await.expect(200);
    assert_eq!((&response["chunk_count"], &response["index_revision"]), (&json!(0), &json!(1)));
}
