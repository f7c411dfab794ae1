//! The ports of knowledge bases: storage and search of documents and chunks, chunking, and fetching.

use super::{
    ChunkingSettings, IndexRevision,
    contract::ContractState,
    contract_revocation::ContractRevocation,
    document::{Document, Ingest, IngestResult},
    reembedding::{Reembedding, ReembeddingResult, StaleChunk},
    retrieval::{EmbeddingModel, IndexEmbeddingModels, RetrievedChunk, SearchResults, VectorSearchCoverage},
};
use crate::{
    id::{AssetId, ChunkId, IngestId, ReleaseId},
    idempotency::KeyedOutcome,
    search_words::WordSet,
    store::{Change, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::fmt::Debug;

/// The part of an index that a search considers, and the number of chunks to return.
#[derive(Clone, PartialEq, Debug)]
pub struct SearchScope {
    /// The knowledge base to search.
    pub asset: AssetId,
    /// The index revision whose chunks are searched.
    pub revision: IndexRevision,
    /// The metadata members that a document must have, with their values.
    pub filters: Map<String, Value>,
    /// The maximum number of chunks to return.
    pub limit: u32,
}

/// The index revision of a knowledge base with which a release was approved, and later additions of documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexPin {
    /// The knowledge base that the release binds.
    pub asset: AssetId,
    /// The index revision at the approval of the release.
    pub pinned: IndexRevision,
    /// The newest index revision that added documents. It equals `pinned` if no documents were added since the
    /// approval.
    pub latest: IndexRevision,
}

/// A range of index revisions with the same documents. Only the vectors of their chunks may differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SameDocumentRevisions {
    /// The first revision of the range, which added documents.
    pub first: IndexRevision,
    /// The last revision with these documents.
    pub last: IndexRevision,
}

/// Stores the documents and chunks of knowledge bases.
#[async_trait]
pub trait DocumentStore: Send + Sync {
    /// Adds documents, and returns the index revision that the ingest creates. Fails with `Stale` if the index changed
    /// since the decision, or the knowledge base no longer accepts documents. The caller then decides again.
    async fn commit_documents(
        &self,
        scope: TenantScope,
        change: &Change<Ingest>,
        key: Option<&KeyedOutcome>,
    ) -> Result<IndexRevision, CommitError>;
    /// Finds the result of an ingest by its identifier.
    async fn find_ingest(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: IngestId,
    ) -> Result<Option<IngestResult>, StoreError>;
    /// Lists the documents of a knowledge base, newest first, including superseded documents.
    async fn list_documents(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: PageRequest,
    ) -> Result<Page<Document>, StoreError>;
    /// Loads chunks of the current index revision that have no vector of this model, oldest first. Returns at most
    /// `limit` chunks. If their texts together reach `MAX_INGEST_BYTES`, the chunk that reaches it is the last one.
    async fn stale_chunks(
        &self,
        scope: TenantScope,
        asset: AssetId,
        model: &EmbeddingModel,
        limit: u32,
    ) -> Result<Vec<StaleChunk>, StoreError>;
    /// Stores new vectors of chunks, and returns the index revision that they create. Fails with `Stale` if documents
    /// were added or embedded since the decision, or a chunk is no longer current. Also fails with `Stale` if the
    /// knowledge base no longer accepts documents.
    async fn commit_reembedding(
        &self,
        scope: TenantScope,
        change: &Change<Reembedding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<IndexRevision, CommitError>;
    /// Finds the result of a re-embedding by its identifier.
    async fn find_reembedding(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: IngestId,
    ) -> Result<Option<ReembeddingResult>, StoreError>;
}

/// Reads the index revisions of knowledge bases.
#[async_trait]
pub trait IndexRevisionStore: Send + Sync {
    /// The current index revision of a knowledge base.
    async fn current_revision(&self, scope: TenantScope, asset: AssetId) -> Result<IndexRevision, StoreError>;
    /// The embedding models that created the vectors of an index revision.
    async fn index_embedding(
        &self,
        scope: TenantScope,
        asset: AssetId,
        revision: IndexRevision,
    ) -> Result<IndexEmbeddingModels, StoreError>;
    /// The range of index revisions that have the same documents as this revision.
    async fn revisions_with_same_documents(
        &self,
        scope: TenantScope,
        asset: AssetId,
        revision: IndexRevision,
    ) -> Result<SameDocumentRevisions, StoreError>;
    /// How many of the searchable chunks a vector search compares.
    async fn vector_coverage(
        &self,
        scope: TenantScope,
        search_scope: &SearchScope,
    ) -> Result<VectorSearchCoverage, StoreError>;
    /// The index revisions with which a release was approved, one for each knowledge base that it binds.
    async fn release_pins(&self, scope: TenantScope, release: ReleaseId) -> Result<Vec<IndexPin>, StoreError>;
}

/// Searches the chunks of knowledge bases.
#[async_trait]
pub trait ChunkSearch: Send + Sync {
    /// Finds chunks that contain words of a query.
    async fn text_search(
        &self,
        scope: TenantScope,
        search_scope: &SearchScope,
        words: &WordSet,
    ) -> Result<SearchResults, StoreError>;
    /// Finds the chunks with the nearest vectors. `vector` must have length one. If the index has more chunks than one
    /// search may compare, only the oldest chunks are compared.
    async fn vector_search(
        &self,
        scope: TenantScope,
        search_scope: &SearchScope,
        vector: &[f32],
    ) -> Result<SearchResults, StoreError>;
    /// Loads the texts of chunks, in any order and with score zero. The result omits erased chunks.
    async fn find_chunks(
        &self,
        scope: TenantScope,
        asset: AssetId,
        ids: &[ChunkId],
    ) -> Result<Vec<RetrievedChunk>, StoreError>;
}

/// Stores revocations of access contracts. Contract states are always read from the database, so that a revocation
/// takes effect at once.
#[async_trait]
pub trait ContractRevocationStore: Send + Sync {
    /// The recorded states of contracts, in the order of the argument.
    async fn contract_states(
        &self,
        scope: TenantScope,
        contracts: &[(AssetId, String)],
    ) -> Result<Vec<ContractState>, StoreError>;
    /// Revokes a contract. Fails with `Stale` if the contract is already revoked, or if the knowledge base has no
    /// contract with this identifier.
    async fn commit_contract_revocation(
        &self,
        scope: TenantScope,
        change: Change<ContractRevocation>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Finds the revocation of a contract, if any.
    async fn find_revocation(
        &self,
        scope: TenantScope,
        asset: AssetId,
        contract_id: &str,
    ) -> Result<Option<ContractRevocation>, StoreError>;
}

/// The range of bytes of one chunk within a text, and its number of tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkSpan {
    /// The byte position of the chunk's start in the text.
    pub start: usize,
    /// The byte position after the chunk's end in the text.
    pub end: usize,
    /// The number of tokens of the chunk.
    pub tokens: u32,
}

/// Splits the texts of documents into chunks.
pub trait Chunker: Send + Sync + Debug {
    /// The spans of the chunks, in text order and without overlap. No chunk contains the blank text between two chunks.
    fn split(&self, text: &str, chunking: ChunkingSettings) -> Vec<ChunkSpan>;
}

/// The reason why the text at a URL cannot be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FetchError {
    /// The host name, address or form of the URL is not permitted.
    #[error("the URL is not permitted")]
    Forbidden,
    /// The server did not respond, or its response is no text.
    #[error("the URL returned no text")]
    NoText,
    /// The response exceeds the limit of the fetch.
    #[error("the response is too long")]
    TooLong,
}

/// Fetches the texts of documents from URLs.
#[async_trait]
pub trait DocumentFetcher: Send + Sync + Debug {
    /// Fetches the text at a URL. Fails if the text has more than `limit` bytes.
    async fn fetch(&self, url: &str, limit: usize) -> Result<String, FetchError>;
}
