//! Knowledge bases: documents, chunk indexes, and the revocation of access contracts.

mod contract;
mod document;
mod ingest;
mod reembedding;
mod revision_models;
mod text_search;
mod vector_search;

use crate::{database::Database, guarded_commit::Input};
use async_trait::async_trait;
use fairway_domain::{
    id::{AssetId, ChunkId, IngestId, ReleaseId, TenantId},
    idempotency::KeyedOutcome,
    knowledge::{
        IndexRevision,
        contract::ContractState,
        contract_revocation::ContractRevocation,
        document::{Document, Ingest, IngestResult},
        ports::{
            ChunkSearch, ContractRevocationStore, DocumentStore, IndexPin, IndexRevisionStore, SameDocumentRevisions,
            SearchScope,
        },
        reembedding::{Reembedding, ReembeddingResult, StaleChunk},
        retrieval::{EmbeddingModel, IndexEmbeddingModels, RetrievedChunk, SearchResults, VectorSearchCoverage},
    },
    search_words::WordSet,
    store::{Change, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
};

/// Builds the lexemes (search terms) of one knowledge base. All knowledge bases share one index, so each has its
/// own prefix.
struct Lexemes {
    prefix: String,
}

impl Lexemes {
    fn of(tenant: TenantId, asset: AssetId) -> Self {
        Self { prefix: IndexRevision::index_term_prefix(tenant, asset) }
    }

    /// The quoted lexeme of a word. A word consists of letters and digits, so it cannot contain a quote.
    fn word(&self, word: &str) -> String {
        format!("'{}/{word}'", self.prefix)
    }

    /// The quoted lexeme of a metadata hash, which consists of hexadecimal digits.
    fn metadata_hash(&self, hash: &str) -> String {
        format!("'{}#{hash}'", self.prefix)
    }
}

/// The value of `embedded_by` for an embedding model; empty for chunks without a vector.
fn model_name(model: Option<&EmbeddingModel>) -> String {
    model.map_or_else(String::new, |EmbeddingModel { account, model }| format!("{account}/{model}"))
}

/// The parameters that identify a revision of an index.
fn revision_params<'v>(scope: TenantScope, asset: AssetId, revision: IndexRevision) -> Input<'v> {
    Input::of_params(scope).with_param("asset_id", asset.uuid()).with_param("revision", revision.get())
}

#[async_trait]
impl DocumentStore for Database {
    async fn commit_documents(
        &self,
        scope: TenantScope,
        change: &Change<Ingest>,
        key: Option<&KeyedOutcome>,
    ) -> Result<IndexRevision, CommitError> {
        ingest::commit_documents(self, scope, change, key).await
    }

    async fn find_ingest(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: IngestId,
    ) -> Result<Option<IngestResult>, StoreError> {
        document::find_ingest(self, scope, asset, id).await
    }

    async fn list_documents(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: PageRequest,
    ) -> Result<Page<Document>, StoreError> {
        document::list(self, scope, asset, page).await
    }

    async fn stale_chunks(
        &self,
        scope: TenantScope,
        asset: AssetId,
        model: &EmbeddingModel,
        limit: u32,
    ) -> Result<Vec<StaleChunk>, StoreError> {
        reembedding::stale_chunks(self, scope, asset, model, limit).await
    }

    async fn commit_reembedding(
        &self,
        scope: TenantScope,
        change: &Change<Reembedding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<IndexRevision, CommitError> {
        reembedding::commit_reembedding(self, scope, change, key).await
    }

    async fn find_reembedding(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: IngestId,
    ) -> Result<Option<ReembeddingResult>, StoreError> {
        reembedding::find_reembedding(self, scope, asset, id).await
    }
}

#[async_trait]
impl IndexRevisionStore for Database {
    async fn current_revision(&self, scope: TenantScope, asset: AssetId) -> Result<IndexRevision, StoreError> {
        document::current_revision(self, scope, asset).await
    }

    async fn index_embedding(
        &self,
        scope: TenantScope,
        asset: AssetId,
        revision: IndexRevision,
    ) -> Result<IndexEmbeddingModels, StoreError> {
        revision_models::model_of_revision(self, scope, asset, revision).await
    }

    async fn revisions_with_same_documents(
        &self,
        scope: TenantScope,
        asset: AssetId,
        revision: IndexRevision,
    ) -> Result<SameDocumentRevisions, StoreError> {
        revision_models::revisions_with_same_documents(self, scope, asset, revision).await
    }

    async fn vector_coverage(
        &self,
        scope: TenantScope,
        search_scope: &SearchScope,
    ) -> Result<VectorSearchCoverage, StoreError> {
        vector_search::coverage(self, scope, search_scope).await
    }

    async fn release_pins(&self, scope: TenantScope, release: ReleaseId) -> Result<Vec<IndexPin>, StoreError> {
        document::release_pins(self, scope, release).await
    }
}

#[async_trait]
impl ChunkSearch for Database {
    async fn text_search(
        &self,
        scope: TenantScope,
        search_scope: &SearchScope,
        words: &WordSet,
    ) -> Result<SearchResults, StoreError> {
        text_search::search_words(self, scope, search_scope, words).await
    }

    async fn vector_search(
        &self,
        scope: TenantScope,
        search_scope: &SearchScope,
        vector: &[f32],
    ) -> Result<SearchResults, StoreError> {
        vector_search::search_vectors(self, scope, search_scope, vector).await
    }

    async fn find_chunks(
        &self,
        scope: TenantScope,
        asset: AssetId,
        ids: &[ChunkId],
    ) -> Result<Vec<RetrievedChunk>, StoreError> {
        text_search::find_chunks(self, scope, asset, ids).await
    }
}

#[async_trait]
impl ContractRevocationStore for Database {
    async fn contract_states(
        &self,
        scope: TenantScope,
        contracts: &[(AssetId, String)],
    ) -> Result<Vec<ContractState>, StoreError> {
        contract::contract_states(self, scope, contracts).await
    }

    async fn commit_contract_revocation(
        &self,
        scope: TenantScope,
        change: Change<ContractRevocation>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        contract::revoke(self, scope, change, key).await
    }

    async fn find_revocation(
        &self,
        scope: TenantScope,
        asset: AssetId,
        contract_id: &str,
    ) -> Result<Option<ContractRevocation>, StoreError> {
        contract::find(self, scope, asset, contract_id).await
    }
}
