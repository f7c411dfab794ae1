//! A vector search that compares only some of the chunks is reported to authors, reviewers and callers.

use crate::embedding_models::{
    SEARCH_FLOW, documents_path, gate, knowledge_base, search, text_document, warning_codes,
};
use async_trait::async_trait;
use fairway_domain::execution::provider::{
    Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use fairway_testkit::TestApp;
use serde_json::json;
use std::sync::Arc;

/// A provider whose vectors have the maximum dimension, so that the search limit covers only few of them.
struct LongVectorProvider;

#[async_trait]
impl Provider for LongVectorProvider {
    async fn complete(&self, _: &ProviderCall, _: Option<&dyn DeltaListener>) -> Result<Completion, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        let vector = |text: &String| {
            let mut vector = vec![0.0; 8_192];
            vector[usize::from(!text.contains("leave"))] = 1.0;
            vector
        };
        Ok(Embeddings { vectors: call.texts.iter().map(vector).collect(), tokens_in: 1, cost_micros: None })
    }

    fn residency(&self, _: &str) -> Option<&str> {
        None
    }
}

#[tokio::test]
async fn capped_vector_search_is_reported() {
    let app = TestApp::builder().provider(Arc::new(LongVectorProvider)).start().await;
    let retrieval = json!({ "strategy": "vector", "top_k": 1, "chunk_size_tokens": 16 });
    let base = knowledge_base(&app, "handbook", retrieval).await;
    let first_ingest =
        app.post(documents_path(&base, ""), text_document("leave", "Thirty days of leave.")).await.expect(201);
    assert_eq!(warning_codes(&first_ingest), [""; 0]);
    let fixtures = app.fixtures();
    let versions =
        vec![fixtures.allow_all_policy("policy").await, fixtures.flow("flow", SEARCH_FLOW).await, base.clone()];
    let workload = fixtures.active_workload_with_bindings("desk", versions).await;
    let response = search(&app, &workload).await;
    assert_eq!(response["metadata"], json!({}), "{response}");
    assert_eq!(gate(&app, &workload, "vector_search").await.0, "pass");

    let words = "Go by train wherever there is one, and by bus where there is none at all. ".repeat(600);
    let second_ingest = app.post(documents_path(&base, ""), text_document("travel", &words)).await.expect(201);
    assert!(second_ingest["documents"][0]["chunk_count"].as_u64().unwrap() > 512);
    assert_eq!(warning_codes(&second_ingest), ["vector_search_capped"]);
    assert!(second_ingest["warnings"][0]["message"].as_str().unwrap().contains("512"), "{second_ingest}");
    let response = search(&app, &workload).await;
    assert_eq!(response["metadata"]["find"]["candidates_capped"], true, "{response}");
    assert_eq!(
        response["output"][0]["document_id"], "leave",
        "the chunks that were added first are compared: {response}"
    );
    let query = json!({ "arguments": { "knowledge_base_slug": "handbook", "query": "days of leave" } });
    let found = app.post("/v1/runtime/tools/query_knowledge_base", query).await.expect(200);
    assert_eq!(found["result"]["capped"], true, "{found}");
    let (verdict, code, message) = gate(&app, &workload, "vector_search").await;
    assert_eq!((verdict.as_str(), code.as_str()), ("warn", "vector_search_capped"));
    assert!(message.contains("`handbook`"), "{message}");
}
