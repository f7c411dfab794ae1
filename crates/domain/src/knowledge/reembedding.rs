//! Re-embedding: chunks keep their text and receive vectors of another model. The new vectors form a new index
//! revision; earlier revisions keep their vectors.

use super::{
    ChunkingSettings, IndexRevision,
    document::{KnowledgeRefusal, MAX_CHUNKS_PER_COMMIT, check_accepts_documents},
    retrieval::EmbeddingModel,
};
use crate::{
    access::ActorRef,
    asset::Asset,
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{AssetId, ChunkId, IngestId},
    store::{Change, Revision, aggregate},
    time::Timestamp,
};
use serde_json::json;

/// The maximum number of chunks to re-embed in one commit, from 1 to [`MAX_CHUNKS_PER_COMMIT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkLimit(u32);

impl ChunkLimit {
    /// The largest limit: as many chunks as one commit may contain.
    #[must_use]
    pub fn max() -> Self {
        Self(u32::try_from(MAX_CHUNKS_PER_COMMIT).unwrap_or(u32::MAX))
    }

    /// Validates a requested limit; `None` if the limit is out of range.
    #[must_use]
    pub fn new(limit: u32) -> Option<Self> {
        (1..=Self::max().0).contains(&limit).then_some(Self(limit))
    }

    /// The limit as a number of chunks.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A chunk that has no vector of the configured model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaleChunk {
    /// The identifier of the chunk whose vector must be replaced.
    pub chunk_id: ChunkId,
    /// The text from which the new vector is computed.
    pub text: String,
}

/// The new vector of a chunk, with the chunk that it replaces.
#[derive(Clone, PartialEq, Debug)]
pub struct NewVector {
    /// The identifier of the chunk whose vector is replaced.
    pub replaces: ChunkId,
    /// The identifier of the new chunk with the same text and the new vector.
    pub chunk_id: ChunkId,
    /// The new vector, normalized to length one.
    pub vector: Vec<f32>,
}

/// New vectors for chunks of a knowledge base, stored in one commit.
#[derive(Clone, PartialEq, Debug)]
pub struct Reembedding(pub(crate) ReembeddingRecord);

/// The fields of [`Reembedding`].
#[derive(Clone, PartialEq, Debug)]
pub struct ReembeddingRecord {
    /// The identifier of the re-embedding.
    pub ingest_id: IngestId,
    /// The knowledge base whose chunks are re-embedded.
    pub asset_id: AssetId,
    /// The current chunking settings of the knowledge base.
    pub chunking: ChunkingSettings,
    /// The model that created the new vectors.
    pub embedded_by: EmbeddingModel,
    /// The new vectors, one for each re-embedded chunk.
    pub vectors: Vec<NewVector>,
    /// The time of the re-embedding.
    pub created_at: Timestamp,
    /// The actor that requested the re-embedding.
    pub created_by: ActorRef,
}

aggregate!(Reembedding, ReembeddingRecord);

/// The result of a re-embedding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReembeddingResult {
    /// The identifier of the re-embedding.
    pub ingest_id: IngestId,
    /// The index revision that the re-embedding created.
    pub index_revision: IndexRevision,
    /// The model that created the new vectors.
    pub embedded_by: EmbeddingModel,
    /// The number of re-embedded chunks.
    pub chunk_count: u32,
}

impl Reembedding {
    /// Decides on new vectors for chunks of a knowledge base whose current index revision is `revision`; the next
    /// revision contains the vectors.
    ///
    /// # Errors
    /// Returns a refusal when the asset does not accept documents, or there are too many chunks.
    pub fn decide(
        asset: &Asset,
        ingest_id: IngestId,
        chunking: ChunkingSettings,
        embedded_by: EmbeddingModel,
        vectors: Vec<NewVector>,
        revision: IndexRevision,
        stamp: &Stamp,
    ) -> Result<Change<Self>, KnowledgeRefusal> {
        check_accepts_documents(asset)?;
        if vectors.len() > MAX_CHUNKS_PER_COMMIT {
            return Err(KnowledgeRefusal::TooManyChunks);
        }
        let detail = json!({ "ingest_id": ingest_id, "chunks": vectors.len() });
        let subject = FactSubject { kind: "asset", id: asset.asset_id.uuid() };
        let fact = Fact::new(FactKind::DocumentsReembedded, subject, Some(asset.workspace_id), stamp, detail);
        let (created_at, created_by) = (stamp.at, stamp.actor.clone());
        let asset_id = asset.asset_id;
        let next =
            Self(ReembeddingRecord { ingest_id, asset_id, chunking, embedded_by, vectors, created_at, created_by });
        Ok(Change::replace(next, Revision::new(revision.get()), fact))
    }
}
