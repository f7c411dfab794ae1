//! Where documents and their pieces are kept, how texts are cut, and who fetches them.

use super::{
    Chunking, IndexRevision,
    contract::ContractStanding,
    document::{Document, Ingest, Ingested},
    reembedding::{Reembedded, Reembedding, StaleChunk},
    retrieval::{EmbeddingModel, Found, IndexEmbedding, RetrievedChunk, VectorCoverage},
    revocation::ContractRevocation,
};
use crate::{
    id::{AssetId, ChunkId, IngestId, ReleaseId},
    idempotency::KeyedOutcome,
    search::Words,
    store::{Change, CommitError, Listed, Paging, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::fmt::Debug;

/// Where to look for pieces.
#[derive(Clone, PartialEq, Debug)]
pub struct Within {
    /// The knowledge base.
    pub asset: AssetId,
    /// As it was at this revision.
    pub revision: IndexRevision,
    /// Values that the documents' metadata must have.
    pub filters: Map<String, Value>,
    /// Most pieces.
    pub most: u32,
}

/// The revision of a knowledge base's index that a release was approved with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pin {
    /// The knowledge base.
    pub asset: AssetId,
    /// What it was approved with.
    pub pinned: IndexRevision,
    /// The newest revision that added documents; the pinned one where none did since.
    pub present: IndexRevision,
}

/// Revisions between which no documents were added: their pieces say the same, with vectors of other models perhaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SameDocuments {
    /// The first of them: it added documents.
    pub first: IndexRevision,
    /// The last of them.
    pub last: IndexRevision,
}

/// Keeps documents, their pieces, and the ends of contracts. What it says of contracts is never answered out of a cache.
#[async_trait]
pub trait KnowledgeStore: Send + Sync {
    /// Adds documents, and answers with the revision that they make. Stale when others were added since the decision, or
    /// the knowledge base takes none any more; then the documents can be sent again with another decision.
    async fn commit_documents(
        &self,
        scope: TenantScope,
        change: &Change<Ingest>,
        key: Option<&KeyedOutcome>,
    ) -> Result<IndexRevision, CommitError>;
    /// What became of an ingest.
    async fn find_ingest(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: IngestId,
    ) -> Result<Option<Ingested>, StoreError>;
    /// A page of a knowledge base's documents, newest first, those that others took the place of among them.
    async fn list_documents(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: Paging,
    ) -> Result<Listed<Document>, StoreError>;
    /// The revision of the index as it is now.
    async fn present_revision(&self, scope: TenantScope, asset: AssetId) -> Result<IndexRevision, StoreError>;
    /// How contracts of knowledge bases stand, each by its name, in their order.
    async fn standings(
        &self,
        scope: TenantScope,
        contracts: &[(AssetId, String)],
    ) -> Result<Vec<ContractStanding>, StoreError>;
    /// Ends a contract. Stale when somebody has said so before, or the knowledge base has no contract of that name.
    async fn commit_revocation(
        &self,
        scope: TenantScope,
        change: Change<ContractRevocation>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// The end of a contract, if somebody said so.
    async fn find_revocation(
        &self,
        scope: TenantScope,
        asset: AssetId,
        contract_id: &str,
    ) -> Result<Option<ContractRevocation>, StoreError>;
    /// Pieces that hold words of a query.
    async fn by_words(&self, scope: TenantScope, within: &Within, words: &Words) -> Result<Found, StoreError>;
    /// Whose vectors the pieces of a revision have.
    async fn embedding_of(
        &self,
        scope: TenantScope,
        asset: AssetId,
        revision: IndexRevision,
    ) -> Result<IndexEmbedding, StoreError>;
    /// The revisions with the same documents as this one.
    async fn same_documents(
        &self,
        scope: TenantScope,
        asset: AssetId,
        revision: IndexRevision,
    ) -> Result<SameDocuments, StoreError>;
    /// How much of what a vector search could find it compares.
    async fn vector_coverage(&self, scope: TenantScope, within: &Within) -> Result<VectorCoverage, StoreError>;
    /// Pieces of the present revision without a vector of this model, those that were added first: at most `most`, and no
    /// more bytes of text than the documents of one ingest may have.
    async fn stale_chunks(
        &self,
        scope: TenantScope,
        asset: AssetId,
        model: &EmbeddingModel,
        most: u32,
    ) -> Result<Vec<StaleChunk>, StoreError>;
    /// Gives pieces their new vectors, and answers with the revision that this makes. Stale when documents were added or
    /// embedded since the decision, one of the pieces is not present any more, or the knowledge base takes no documents any
    /// more.
    async fn commit_reembedding(
        &self,
        scope: TenantScope,
        change: &Change<Reembedding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<IndexRevision, CommitError>;
    /// What became of it.
    async fn find_reembedding(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: IngestId,
    ) -> Result<Option<Reembedded>, StoreError>;
    /// Pieces whose vectors are most like this one, which is of length one. Of more pieces than one search compares, those
    /// that were added first are compared.
    async fn by_meaning(&self, scope: TenantScope, within: &Within, vector: &[f32]) -> Result<Found, StoreError>;
    /// What pieces say, in whatever order and with the score zero; those that were erased are not among them.
    async fn chunks(
        &self,
        scope: TenantScope,
        asset: AssetId,
        ids: &[ChunkId],
    ) -> Result<Vec<RetrievedChunk>, StoreError>;
    /// The revisions that a release was approved with, one for each knowledge base that it binds.
    async fn pins(&self, scope: TenantScope, release: ReleaseId) -> Result<Vec<Pin>, StoreError>;
}

/// A piece of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it begins, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// How many tokens it has.
    pub tokens: u32,
}

/// Cuts texts into pieces.
pub trait Splitter: Send + Sync + Debug {
    /// The pieces of a text, in order and without overlap. What is blank between two pieces belongs to none.
    fn split(&self, text: &str, how: Chunking) -> Vec<Piece>;
}

/// Why an address gave no text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FetchError {
    /// Nothing is fetched from there: its name, address or form is not allowed.
    #[error("nothing is fetched from there")]
    Forbidden,
    /// It did not answer, or with no text.
    #[error("the address gave no text")]
    NoText,
    /// It gave more than is taken.
    #[error("the address gave too much")]
    TooLong,
}

/// Fetches texts from addresses.
#[async_trait]
pub trait Fetcher: Send + Sync + Debug {
    /// The text at an address, at most `most` bytes of it.
    async fn fetch(&self, address: &str, most: usize) -> Result<String, FetchError>;
}
