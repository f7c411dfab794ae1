//! Concurrent ingestion of several tenants: a tenant that waits for the embedding model does not hold all permits.

use crate::{
    embedding_models::{documents_path, knowledge_base, text_document},
    support::workspace_fixture::knowledge_content,
};
use async_trait::async_trait;
use fairway_domain::execution::provider::{
    Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use fairway_testkit::TestApp;
use serde_json::json;
use std::{
    future::IntoFuture as _,
    sync::{Arc, Mutex},
};
use tokio::sync::watch;

/// A provider that records the texts to embed, and blocks every response until the test releases it.
struct BlockedEmbeddings {
    texts: Mutex<Vec<String>>,
    calls: watch::Sender<usize>,
    is_released: watch::Sender<bool>,
}

#[async_trait]
impl Provider for BlockedEmbeddings {
    async fn complete(&self, _: &ProviderCall, _: Option<&dyn DeltaListener>) -> Result<Completion, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        self.texts.lock().unwrap().extend(call.texts.clone());
        self.calls.send_modify(|count| *count += 1);
        let _ = self.is_released.subscribe().wait_for(|is_released| *is_released).await;
        Ok(Embeddings { vectors: vec![vec![1.0, 0.0]; call.texts.len()], tokens_in: 1, cost_micros: None })
    }

    fn residency(&self, _: &str) -> Option<&str> {
        None
    }
}

/// Threat T45 in `docs/security.md`: the ingestion of two tenants waits for a slow embedding model. A third tenant
/// still gets a permit.
#[tokio::test]
async fn two_tenants_cannot_hold_all_ingestion_permits() {
    let blocked = Arc::new(BlockedEmbeddings {
        texts: Mutex::default(),
        calls: watch::Sender::new(0),
        is_released: watch::Sender::new(false),
    });
    let app = TestApp::builder().provider(blocked.clone()).start().await;
    let fixtures = app.fixtures();
    let mut tenants = Vec::new();
    for name in ["first", "second", "third"] {
        let tenant = fixtures.tenant(name).await;
        let other_workspace = fixtures.in_tenant(&tenant, "").workspace("there", "there").await;
        let mut content = knowledge_content("handbook");
        content["retrieval"] = json!({ "strategy": "vector" });
        let base = fixtures
            .in_tenant(&tenant, &other_workspace)
            .asset_with_version("knowledge_base", "handbook", content)
            .await;
        let path = format!("/v1/assets/{}/documents?workspace_id={other_workspace}", base.asset_id);
        tenants.push((name, tenant, path));
    }
    let send_ingest = |number: usize, tenant: usize| {
        let (name, tenant, path) = &tenants[tenant];
        let request = app.post(path.clone(), text_document(&format!("d{number}"), name)).in_tenant(tenant);
        tokio::spawn(request.into_future())
    };
    let wait_for_calls = async |times: usize| {
        blocked.calls.subscribe().wait_for(|count| *count >= times).await.unwrap();
    };
    let mut requests: Vec<_> = (0..6).map(|number| send_ingest(number, 0)).collect();
    wait_for_calls(4).await;
    requests.extend((0..6).map(|number| send_ingest(number, 1)));
    wait_for_calls(5).await;
    requests.push(send_ingest(0, 2));
    wait_for_calls(6).await;
    let texts = blocked.texts.lock().unwrap().clone();
    assert_eq!(texts, ["first", "first", "first", "first", "second", "third"]);
    blocked.is_released.send_replace(true);
    for request in requests {
        request.await.unwrap().expect(201);
    }
}

/// Threat T45 in `docs/security.md`: the ingestion of one tenant waits for a slow embedding model. Another tenant still
/// gets a permit.
#[tokio::test]
async fn one_tenant_holds_at_most_half_of_the_ingestion_permits() {
    let blocked = Arc::new(BlockedEmbeddings {
        texts: Mutex::default(),
        calls: watch::Sender::new(0),
        is_released: watch::Sender::new(false),
    });
    let app = TestApp::builder().provider(blocked.clone()).start().await;
    let wait_for_calls = async |times: usize| {
        blocked.calls.subscribe().wait_for(|count| *count >= times).await.unwrap();
    };
    let base = knowledge_base(&app, "handbook", json!({ "strategy": "vector" })).await;
    let fixtures = app.fixtures();
    let other_tenant = fixtures.tenant("abroad").await;
    let workspace = fixtures.in_tenant(&other_tenant, "").workspace("there", "there").await;
    let mut content = knowledge_content("handbook");
    content["retrieval"] = json!({ "strategy": "vector" });
    let foreign =
        fixtures.in_tenant(&other_tenant, &workspace).asset_with_version("knowledge_base", "handbook", content).await;
    let mut requests = Vec::new();
    for number in 0..6 {
        let request = app.post(documents_path(&base, ""), text_document(&format!("d{number}"), "mine"));
        requests.push(tokio::spawn(request.into_future()));
    }
    wait_for_calls(4).await;
    let foreign_path = format!("/v1/assets/{}/documents?workspace_id={workspace}", foreign.asset_id);
    let foreign_ingest = app.post(foreign_path, text_document("a", "theirs")).in_tenant(&other_tenant);
    requests.push(tokio::spawn(foreign_ingest.into_future()));
    wait_for_calls(5).await;
    assert_eq!(*blocked.texts.lock().unwrap(), ["mine", "mine", "mine", "mine", "theirs"]);
    blocked.is_released.send_replace(true);
    for request in requests {
        request.await.unwrap().expect(201);
    }
}
