//! Ports of knowledge bases: storage of documents and chunks, chunking, fetching.

use super::{
    Chunking, IndexRevision,
    contract::ContractState,
    document::{Document, Ingest, IngestResult},
    reembedding::{Reembedding, ReembeddingResult, StaleChunk},
    retrieval::{EmbeddingModel, IndexEmbedding, RetrievedChunk, SearchResults, VectorCoverage},
    revocation::ContractRevocation,
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

/// Scope of a chunk search.
#[derive(Clone, PartialEq, Debug)]
pub struct SearchScope {
    /// Knowledge base.
    pub asset: AssetId,
    /// Index revision.
    pub revision: IndexRevision,
    /// Values that the documents' metadata must have.
    pub filters: Map<String, Value>,
    /// Maximum number of chunks.
    pub limit: u32,
}

/// Index revision of a knowledge base that a release was approved with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexPin {
    /// Knowledge base.
    pub asset: AssetId,
    /// Approved revision.
    pub pinned: IndexRevision,
    /// Newest revision that added documents; equals the pinned one when none was added since.
    pub latest: IndexRevision,
}

/// A range of revisions with the same documents. Only the vectors of their chunks may differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RevisionRange {
    /// First revision, which added documents.
    pub first: IndexRevision,
    /// Last revision.
    pub last: IndexRevision,
}

/// Stores the documents and chunks of knowledge bases.
#[async_trait]
pub trait DocumentStore: Send + Sync {
    /// Adds documents and returns the revision that they create. Stale when other documents were added since the
    /// decision, or when the knowledge base no longer accepts documents. After a conflict the caller decides again and
    /// retries.
    async fn commit_documents(
        &self,
        scope: TenantScope,
        change: &Change<Ingest>,
        key: Option<&KeyedOutcome>,
    ) -> Result<IndexRevision, CommitError>;
    /// Finds the result of an ingest.
    async fn find_ingest(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: IngestId,
    ) -> Result<Option<IngestResult>, StoreError>;
    /// Lists a knowledge base's documents, newest first, superseded ones included.
    async fn list_documents(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: PageRequest,
    ) -> Result<Page<Document>, StoreError>;
    /// Chunks of the current revision without a vector of this model, oldest first: at most `limit`, and at most the
    /// text bytes of one ingest.
    async fn stale_chunks(
        &self,
        scope: TenantScope,
        asset: AssetId,
        model: &EmbeddingModel,
        limit: u32,
    ) -> Result<Vec<StaleChunk>, StoreError>;
    /// Stores new vectors of chunks and returns the revision that they create. Stale when documents were added or
    /// embedded since the decision, a chunk is no longer current, or the knowledge base no longer accepts
    /// documents.
    async fn commit_reembedding(
        &self,
        scope: TenantScope,
        change: &Change<Reembedding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<IndexRevision, CommitError>;
    /// Finds the result of a re-embedding.
    async fn find_reembedding(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: IngestId,
    ) -> Result<Option<ReembeddingResult>, StoreError>;
}

/// Reads the revisions of document indexes.
#[async_trait]
pub trait IndexRevisionStore: Send + Sync {
    /// Current revision of the index.
    async fn current_revision(&self, scope: TenantScope, asset: AssetId) -> Result<IndexRevision, StoreError>;
    /// Embedding model of the chunks of a revision.
    async fn index_embedding(
        &self,
        scope: TenantScope,
        asset: AssetId,
        revision: IndexRevision,
    ) -> Result<IndexEmbedding, StoreError>;
    /// The range of revisions with the same documents as this one.
    async fn revisions_with_same_documents(
        &self,
        scope: TenantScope,
        asset: AssetId,
        revision: IndexRevision,
    ) -> Result<RevisionRange, StoreError>;
    /// Share of the searchable chunks that a vector search compares.
    async fn vector_coverage(&self, scope: TenantScope, within: &SearchScope) -> Result<VectorCoverage, StoreError>;
    /// Index revisions that a release was approved with, one for each bound knowledge base.
    async fn release_pins(&self, scope: TenantScope, release: ReleaseId) -> Result<Vec<IndexPin>, StoreError>;
}

/// Searches the chunks of knowledge bases.
#[async_trait]
pub trait ChunkSearch: Send + Sync {
    /// Chunks that contain words of a query.
    async fn text_search(
        &self,
        scope: TenantScope,
        within: &SearchScope,
        words: &WordSet,
    ) -> Result<SearchResults, StoreError>;
    /// Chunks with the nearest vectors; `vector` has length one. If there are more chunks than one search compares, it
    /// compares the oldest.
    async fn vector_search(
        &self,
        scope: TenantScope,
        within: &SearchScope,
        vector: &[f32],
    ) -> Result<SearchResults, StoreError>;
    /// Texts of chunks in any order, with score zero; erased chunks are omitted.
    async fn find_chunks(
        &self,
        scope: TenantScope,
        asset: AssetId,
        ids: &[ChunkId],
    ) -> Result<Vec<RetrievedChunk>, StoreError>;
}

/// Stores revocations of access contracts. Reads of contract states never use a cache.
#[async_trait]
pub trait ContractRevocationStore: Send + Sync {
    /// States of contracts, in the order of the arguments.
    async fn contract_states(
        &self,
        scope: TenantScope,
        contracts: &[(AssetId, String)],
    ) -> Result<Vec<ContractState>, StoreError>;
    /// Revokes a contract. Stale when it is already revoked, or the knowledge base has no contract of that id.
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

/// Range of a chunk in a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkRange {
    /// Start, in bytes.
    pub start: usize,
    /// End, in bytes.
    pub end: usize,
    /// Number of tokens.
    pub tokens: u32,
}

/// Splits texts into chunks.
pub trait Chunker: Send + Sync + Debug {
    /// Ranges in order, without overlap. Blank text between two chunks belongs to neither.
    fn split(&self, text: &str, chunking: Chunking) -> Vec<ChunkRange>;
}

/// Why a fetch fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FetchError {
    /// The name, address or form of the URL is not permitted.
    #[error("the URL is not permitted")]
    Forbidden,
    /// The server did not respond, or the response is not text.
    #[error("the URL returned no text")]
    NoText,
    /// The response exceeds the limit.
    #[error("the response is too long")]
    TooLong,
}

/// Fetches texts from URLs.
#[async_trait]
pub trait DocumentFetcher: Send + Sync + Debug {
    /// Fetches the text at a URL, at most `limit` bytes.
    async fn fetch(&self, url: &str, limit: usize) -> Result<String, FetchError>;
}
