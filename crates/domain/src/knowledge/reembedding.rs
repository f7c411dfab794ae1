//! Re-embedding: chunks keep their text and get vectors of another model, which creates a new index revision. Earlier
//! revisions keep their vectors.

use super::{
    Chunking, IndexRevision,
    document::{KnowledgeRefusal, MAX_CHUNKS, check_accepts_documents},
    retrieval::EmbeddingModel,
};
use crate::{
    access::ActorRef,
    asset::Asset,
    audit::{Fact, FactKind, Stamp, Subject},
    id::{AssetId, ChunkId, IngestId},
    store::{Change, Revision, aggregate},
    time::Timestamp,
};
use serde_json::json;

/// Maximum number of chunks of one re-embedding, from 1 to [`MAX_CHUNKS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkLimit(u32);

impl ChunkLimit {
    /// The largest limit, the capacity of one commit.
    #[must_use]
    pub fn max() -> Self {
        Self(u32::try_from(MAX_CHUNKS).unwrap_or(u32::MAX))
    }

    /// Validates a requested limit; `None` outside the bounds.
    #[must_use]
    pub fn new(limit: u32) -> Option<Self> {
        (1..=Self::max().0).contains(&limit).then_some(Self(limit))
    }

    /// The number of chunks.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A chunk without a vector of the configured model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaleChunk {
    /// Identifier.
    pub chunk_id: ChunkId,
    /// Text.
    pub text: String,
}

/// New vector of a chunk.
#[derive(Clone, PartialEq, Debug)]
pub struct NewVector {
    /// Identifier of the replaced chunk.
    pub replaces: ChunkId,
    /// Identifier of the chunk with the new vector.
    pub chunk_id: ChunkId,
    /// Vector of length one.
    pub vector: Vec<f32>,
}

/// Chunks of a knowledge base that get vectors of another model in one commit.
#[derive(Clone, PartialEq, Debug)]
pub struct Reembedding(pub(crate) ReembeddingRecord);

/// The fields of [`Reembedding`].
#[derive(Clone, PartialEq, Debug)]
pub struct ReembeddingRecord {
    /// Identifier.
    pub ingest_id: IngestId,
    /// Knowledge base.
    pub asset_id: AssetId,
    /// Current chunking of the knowledge base.
    pub chunking: Chunking,
    /// Model of the vectors.
    pub embedded_by: EmbeddingModel,
    /// Vectors.
    pub vectors: Vec<NewVector>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Actor.
    pub created_by: ActorRef,
}

aggregate!(Reembedding, ReembeddingRecord);

/// Result of a re-embedding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReembeddingResult {
    /// Identifier.
    pub ingest_id: IngestId,
    /// Index revision that it created.
    pub index_revision: IndexRevision,
    /// Model of the vectors.
    pub embedded_by: EmbeddingModel,
    /// Number of chunks.
    pub chunk_count: u32,
}

impl Reembedding {
    /// Stores new vectors of chunks; the next index revision after `revision` contains them.
    ///
    /// # Errors
    /// Returns a refusal when the asset does not accept documents, or there are too many chunks.
    pub fn decide(
        asset: &Asset,
        ingest_id: IngestId,
        chunking: Chunking,
        embedded_by: EmbeddingModel,
        vectors: Vec<NewVector>,
        revision: IndexRevision,
        stamp: &Stamp,
    ) -> Result<Change<Self>, KnowledgeRefusal> {
        check_accepts_documents(asset)?;
        if vectors.len() > MAX_CHUNKS {
            return Err(KnowledgeRefusal::TooManyChunks);
        }
        let detail = json!({ "ingest_id": ingest_id, "chunks": vectors.len() });
        let subject = Subject { kind: "asset", id: asset.asset_id.uuid() };
        let fact = Fact::new(FactKind::DocumentsReembedded, subject, Some(asset.workspace_id), stamp, detail);
        let (created_at, created_by) = (stamp.at, stamp.actor.clone());
        let asset_id = asset.asset_id;
        let next =
            Self(ReembeddingRecord { ingest_id, asset_id, chunking, embedded_by, vectors, created_at, created_by });
        Ok(Change::replace(next, Revision::new(revision.get()), fact))
    }
}
