//! Vector search over documents.

use super::{document_ids, documents_path, retrieve, text_document};
use crate::support::workspace_fixture::{WORKSPACE, knowledge_content};
use async_trait::async_trait;
use fairway_domain::{
    execution::provider::{
        Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
    },
    search_words::count_term_frequencies,
};
use fairway_testkit::TestApp;
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::Notify;

/// An embedding provider that derives vectors from two fixed lists of words.
struct KeywordEmbedder {
    text_count: AtomicUsize,
    account: &'static str,
}

#[async_trait]
impl Provider for KeywordEmbedder {
    async fn complete(&self, _: &ProviderCall, _: Option<&dyn DeltaListener>) -> Result<Completion, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        self.text_count.fetch_add(call.texts.len(), Ordering::Relaxed);
        let meaning = |text: &String| {
            let words = count_term_frequencies([text.as_str()]);
            let coordinate =
                |keywords: &[&str]| if keywords.iter().any(|word| words.contains_key(*word)) { 1.0 } else { 0.1 };
            vec![coordinate(&["holiday", "leave", "vacation"]), coordinate(&["train", "railway", "journey"])]
        };
        Ok(Embeddings { vectors: call.texts.iter().map(meaning).collect(), tokens_in: 3, cost_micros: Some(2) })
    }

    fn residency(&self, _: &str) -> Option<&str> {
        None
    }

    fn has_account(&self, slot: &str) -> bool {
        slot == self.account
    }
}

#[tokio::test]
async fn vector_search_finds_documents_without_common_words() {
    let meanings = Arc::new(KeywordEmbedder { text_count: AtomicUsize::new(0), account: "local" });
    let app = TestApp::builder().provider(meanings.clone()).start().await;
    for strategy in ["vector", "hybrid"] {
        let mut content = knowledge_content(strategy);
        content["retrieval"] = json!({ "strategy": strategy, "top_k": 1 });
        let base = app.fixtures().asset_with_version("knowledge_base", strategy, content.clone()).await;
        let body = json!({ "documents": [
            { "document_id": "leave", "text": "Thirty days of leave." },
            { "document_id": "travel", "text": "Go by train." },
        ] });
        app.post(documents_path(&base), body).await.expect(201);
        let found = retrieve(&app, &base, &content, "railway").await.unwrap();
        assert_eq!(document_ids(&found), ["travel"], "{strategy}");
        let embedded = found.query_embedding.unwrap();
        assert_eq!((embedded.model.account.as_str(), embedded.model.model.as_str()), ("local", "local-256"));
        assert_eq!((embedded.tokens_in, embedded.cost_micros), (3, Some(2)));
        let embedded_before = meanings.text_count.load(Ordering::Relaxed);
        // A server that only has another account refuses the search, and calls no provider.
        let other_embedder = Arc::new(KeywordEmbedder { text_count: AtomicUsize::new(0), account: "elsewhere" });
        let builder = TestApp::builder().sharing_storage_of(&app).provider(other_embedder.clone());
        let other_server = builder.setting("FAIRWAY_EMBEDDING_ACCOUNT", "elsewhere").start().await;
        let mismatch = retrieve(&other_server, &base, &content, "railway").await.unwrap_err();
        assert_eq!(mismatch.code(), Some("embedding_mismatch"), "{mismatch:?}");
        assert_eq!(
            meanings.text_count.load(Ordering::Relaxed) + other_embedder.text_count.load(Ordering::Relaxed),
            embedded_before
        );
    }
}

/// An embedding provider that signals each call and responds when the test releases it.
struct BlockingEmbedder {
    called: Notify,
    release: Notify,
}

#[async_trait]
impl Provider for BlockingEmbedder {
    async fn complete(&self, _: &ProviderCall, _: Option<&dyn DeltaListener>) -> Result<Completion, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        self.called.notify_one();
        self.release.notified().await;
        Ok(Embeddings { vectors: vec![vec![1.0, 0.0]; call.texts.len()], tokens_in: 3, cost_micros: None })
    }

    fn residency(&self, _: &str) -> Option<&str> {
        None
    }
}

#[tokio::test]
async fn contract_revoked_during_embedding_refuses_retrieval() {
    let embedder = Arc::new(BlockingEmbedder { called: Notify::new(), release: Notify::new() });
    let app = TestApp::builder().provider(embedder.clone()).start().await;
    let mut content = knowledge_content("handbook");
    content["retrieval"] = json!({ "strategy": "vector" });
    let base = app.fixtures().asset_with_version("knowledge_base", "handbook", content.clone()).await;
    embedder.release.notify_one();
    app.post(documents_path(&base), text_document("leave", "Thirty days.")).await.expect(201);
    embedder.called.notified().await;
    embedder.release.notify_one();
    assert_eq!(document_ids(&retrieve(&app, &base, &content, "leave").await.unwrap()), ["leave"]);
    embedder.called.notified().await;
    let revoked = async {
        embedder.called.notified().await;
        let path = format!("/v1/assets/{}/access-contract/revoke?workspace_id={WORKSPACE}", base.asset_id);
        app.post(path, json!({ "contract_id": "handbook", "reason": "it is over" })).await.expect(200);
        embedder.release.notify_one();
    };
    let (result, ()) = tokio::join!(retrieve(&app, &base, &content, "leave"), revoked);
    assert_eq!(result.unwrap_err().code(), Some("contract_refused"));
}

#[tokio::test]
async fn ingest_without_vectors_adds_no_documents() {
    let provider = fairway_testkit::StubProvider::new(fairway_testkit::ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider).start().await;
    let mut content = knowledge_content("handbook");
    content["retrieval"] = json!({ "strategy": "vector" });
    let base = app.fixtures().asset_with_version("knowledge_base", "handbook", content).await;
    let response = app.post(documents_path(&base), text_document("leave", "x")).await;
    response.expect_refusal(503, "embedding_unavailable");
    assert!(response.header("retry-after").is_some());
    assert_eq!(app.get(documents_path(&base)).await.expect(200), json!([]));
}
