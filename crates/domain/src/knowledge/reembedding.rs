//! Documents that are embedded again: their pieces stay what they are and get vectors of another model, which makes a new
//! revision of the index. Earlier revisions keep their vectors.

use super::{
    Chunking, IndexRevision,
    document::{KnowledgeRefusal, MAX_CHUNKS, takes_documents},
    retrieval::EmbeddingModel,
};
use crate::{
    access::ActorRef,
    asset::Asset,
    audit::{Fact, FactKind, Stamp, Subject},
    id::{AssetId, ChunkId, IngestId},
    store::{Change, Revision},
    time::Timestamp,
};
use serde_json::json;

/// How many pieces one re-embedding gives a vector at most: from one to [`MAX_CHUNKS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkLimit(u32);

impl ChunkLimit {
    /// As many as one commit takes.
    #[must_use]
    pub fn max() -> Self {
        Self(u32::try_from(MAX_CHUNKS).unwrap_or(u32::MAX))
    }

    /// A limit that somebody asks for; `None` where it is out of bounds.
    #[must_use]
    pub fn new(limit: u32) -> Option<Self> {
        (1..=Self::max().0).contains(&limit).then_some(Self(limit))
    }

    /// The number of pieces.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A piece that has no vector of the wanted model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaleChunk {
    /// The piece.
    pub chunk_id: ChunkId,
    /// What it says.
    pub text: String,
}

/// The new vector of a piece.
#[derive(Clone, PartialEq, Debug)]
pub struct NewVector {
    /// The piece as it was.
    pub replaces: ChunkId,
    /// The piece with its new vector.
    pub chunk_id: ChunkId,
    /// The vector, of length one.
    pub vector: Vec<f32>,
}

/// Pieces of a knowledge base that get vectors of another model at once.
#[derive(Clone, PartialEq, Debug)]
pub struct Reembedding {
    /// Its identifier.
    pub ingest_id: IngestId,
    /// The knowledge base.
    pub asset_id: AssetId,
    /// How documents of the knowledge base are cut now.
    pub chunking: Chunking,
    /// Whose vectors they are.
    pub embedded_by: EmbeddingModel,
    /// The vectors.
    pub vectors: Vec<NewVector>,
    /// When this was done.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: ActorRef,
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reembedded {
    /// Its identifier.
    pub ingest_id: IngestId,
    /// The revision of the index that it made.
    pub index_revision: IndexRevision,
    /// Whose vectors the pieces have.
    pub embedded_by: EmbeddingModel,
    /// How many pieces.
    pub chunk_count: u32,
}

impl Reembedding {
    /// Gives pieces of a knowledge base whose index was seen at a revision their new vectors: they make the next revision.
    ///
    /// # Errors
    /// When the knowledge base takes no documents any more, or there are too many pieces.
    pub fn decide(
        asset: &Asset,
        ingest_id: IngestId,
        (chunking, embedded_by): (Chunking, EmbeddingModel),
        vectors: Vec<NewVector>,
        (seen, stamp): (IndexRevision, &Stamp),
    ) -> Result<Change<Self>, KnowledgeRefusal> {
        takes_documents(asset)?;
        if vectors.len() > MAX_CHUNKS {
            return Err(KnowledgeRefusal::Chunks);
        }
        let detail = json!({ "ingest_id": ingest_id, "chunks": vectors.len() });
        let subject = Subject { kind: "asset", id: asset.asset_id.uuid() };
        let fact = Fact::new(FactKind::DocumentsReembedded, subject, Some(asset.workspace_id), stamp, detail);
        let (created_at, created_by) = (stamp.at, stamp.actor.clone());
        let asset_id = asset.asset_id;
        let next = Self { ingest_id, asset_id, chunking, embedded_by, vectors, created_at, created_by };
        Ok(Change::replacing(next, Revision::new(seen.get()), fact))
    }
}
