//! Commits of documents, re-embeddings and contract revocations.

use super::{Decision, store};
use crate::fixture::{
    Fixture, fresh,
    knowledge::{documents, ingest, knowledge_base, reembedding as new_reembedding},
    scope, stamp,
};
use fairway_domain::{
    knowledge::{
        IndexRevision,
        contract_revocation::ContractRevocation,
        ports::{ContractRevocationStore, DocumentStore},
        retrieval::EmbeddingModel,
    },
    tenant::DEFAULT_TENANT_ID,
};
use uuid::Uuid;

pub(super) async fn addition(fixture: &Fixture) -> Decision {
    let (asset, _) = knowledge_base(fixture).await;
    let change = ingest(&asset, documents(&[("leave", "Thirty days of leave.")]), IndexRevision::default());
    let id = asset.asset_id;
    let store = store(fixture);
    Decision::new(async move |key| store.commit_documents(scope(), &change, key.as_ref()).await.map(|_| ()))
        .stale_after(format!("UPDATE asset SET lifecycle_state = 'archived' WHERE asset_id = '{id}'"))
        .stale_after(format!("UPDATE asset SET asset_kind = 'skill' WHERE asset_id = '{id}'"))
        .stale_after(format!("INSERT INTO knowledge_index VALUES ('{DEFAULT_TENANT_ID}', '{id}', 1, 0)"))
}

pub(super) async fn reembedding(fixture: &Fixture) -> Decision {
    let (asset, _) = knowledge_base(fixture).await;
    let id = asset.asset_id;
    let store = store(fixture);
    let added = ingest(&asset, documents(&[("leave", "Thirty days of leave.")]), IndexRevision::default());
    let revision = store.commit_documents(scope(), &added, None).await.unwrap();
    let model = EmbeddingModel { account: "local".to_owned(), model: "m".to_owned() };
    let stale = store.stale_chunks(scope(), id, &model, 10).await.unwrap();
    let change = new_reembedding(&asset, &stale, &model, revision);
    Decision::new(async move |key| store.commit_reembedding(scope(), &change, key.as_ref()).await.map(|_| ()))
        .stale_after(format!("UPDATE asset SET lifecycle_state = 'archived' WHERE asset_id = '{id}'"))
        .stale_after(format!("UPDATE asset SET asset_kind = 'skill' WHERE asset_id = '{id}'"))
        .stale_after(format!("UPDATE knowledge_index SET revision = 2 WHERE asset_id = '{id}'"))
}

pub(super) async fn revocation(fixture: &Fixture) -> Decision {
    let (asset, contract) = knowledge_base(fixture).await;
    let change = ContractRevocation::create(fresh(), &asset, &contract, "It is over.", &stamp()).unwrap();
    let store = store(fixture);
    let concurrent_revocation = format!(
        "INSERT INTO contract_revocation VALUES ('{DEFAULT_TENANT_ID}', '{contract}', '{}', '{}', now(), 'user:eve')",
        Uuid::now_v7(),
        asset.asset_id
    );
    Decision::new(async move |key| store.commit_contract_revocation(scope(), change, key.as_ref()).await)
        .stale_after(concurrent_revocation)
        .stale_after(format!("DELETE FROM access_contract WHERE contract_id = '{contract}'"))
}
