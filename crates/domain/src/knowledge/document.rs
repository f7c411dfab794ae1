//! Documents: what is handed in, how it is judged, and what is kept of it.

use super::{Chunking, IndexRevision, SourceType, contract::is_code, retrieval::EmbeddingModel};
use crate::{
    access::ActorRef,
    asset::{
        Asset, AssetRefusal,
        canonical::{Canonical, Checksum},
        kind::AssetKind,
    },
    audit::{Fact, FactKind, Stamp, Subject},
    id::{AssetId, ChunkId, DocumentEntryId, IngestId},
    store::{Change, Revision},
    text::is_name,
    time::Timestamp,
};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

/// Most documents that are added at once.
pub const MAX_DOCUMENTS: usize = 100;
/// Longest text of a document, in bytes.
pub const MAX_TEXT: usize = 1 << 20;
/// Longest texts of all documents that are added at once, in bytes.
pub const MAX_TEXTS: usize = 8 << 20;
/// Longest title, in characters.
pub const MAX_TITLE: usize = 300;
/// Longest name of a source, in bytes.
pub const MAX_SOURCE_REF: usize = 2_000;
/// Most members of a document's metadata.
pub const MAX_METADATA: usize = 50;
/// Longest metadata, in bytes of its canonical form.
pub const LONGEST_METADATA: usize = 8 << 10;
/// Most pieces that one ingest adds and one re-embedding gives a vector.
pub const MAX_CHUNKS: usize = 2_000;

/// What a document is called by those who handed it in; an answer cites it by this name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DocumentId(String);

impl DocumentId {
    /// The pattern that names must match.
    pub const PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$";

    /// Checks a text from outside.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_code(text, 128, b"._:/-").then(|| Self(text.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DocumentId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Where the text of a document is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DocumentSource {
    /// Here.
    Text(String),
    /// Where this says: a path in the artifact store, or an address.
    Ref(String),
}

/// A document that somebody hands in.
#[derive(Clone, PartialEq, Debug)]
pub struct DocumentDraft {
    /// Its name.
    pub document_id: String,
    /// What it is called for people.
    pub title: Option<String>,
    /// Where its text is.
    pub source: DocumentSource,
    /// Values that retrievals can be narrowed to.
    pub metadata: Map<String, Value>,
}

/// What is wrong with one document.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DocumentFault {
    /// Its name has not the form of one.
    #[error("a document's name has 1 to 128 letters, digits and `._:/-`")]
    Name,
    /// Another one that is handed in beside it has the same name.
    #[error("the document is handed in twice")]
    Twice,
    /// The title is no name.
    #[error("a title is one line of 1 to 300 visible characters")]
    Title,
    /// There is no text, or nothing in it.
    #[error("the document has no text")]
    NoText,
    /// The text is too long.
    #[error("a document has at most 1048576 bytes of text")]
    LongText,
    /// The text holds a NUL.
    #[error("the text holds NUL, which no text may")]
    NulInText,
    /// There is too much metadata, or it has no canonical form.
    #[error("metadata has at most 50 members and 8192 bytes, and no number beyond 2^53")]
    Metadata,
    /// The knowledge base takes texts, and the document names a source.
    #[error("documents of this knowledge base are handed in with their text")]
    TextExpected,
    /// The knowledge base takes sources, and the document is a text.
    #[error("documents of this knowledge base name their source")]
    SourceExpected,
    /// The source does not name a content that the caller may see.
    #[error("the source names nothing that you may see")]
    NoSuchSource,
    /// The source is no address that anything is fetched from.
    #[error("the source cannot be fetched")]
    NotFetched,
}

impl DocumentFault {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Name => "invalid_document_id",
            Self::Twice => "duplicate_document_id",
            Self::Title => "invalid_title",
            Self::NoText => "empty_document",
            Self::LongText => "document_too_long",
            Self::NulInText => "nul_in_document",
            Self::Metadata => "invalid_metadata",
            Self::TextExpected => "text_expected",
            Self::SourceExpected => "source_expected",
            Self::NoSuchSource => "source_not_found",
            Self::NotFetched => "source_not_fetched",
        }
    }

    /// The field that it is about.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Name | Self::Twice => "document_id",
            Self::Title => "title",
            Self::NoText | Self::LongText | Self::NulInText | Self::TextExpected => "text",
            Self::Metadata => "metadata",
            Self::SourceExpected | Self::NoSuchSource | Self::NotFetched => "source_ref",
        }
    }
}

/// Why documents are not added, or a contract is not revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KnowledgeRefusal {
    /// The asset is of another kind.
    #[error("the asset is no knowledge base")]
    OtherKind,
    /// The knowledge base has no version that says how documents are read.
    #[error("the knowledge base has no version yet")]
    NoVersion,
    /// The asset takes nothing any more.
    #[error(transparent)]
    Asset(#[from] AssetRefusal),
    /// No document, or too many.
    #[error("1 to 100 documents are added at once")]
    Documents,
    /// Their texts are too long together.
    #[error("documents that are added at once have at most 8388608 bytes of text together; add fewer")]
    Texts,
    /// Their sources were not read in time.
    #[error("the sources of documents that are added at once are read within 30 seconds; add fewer")]
    Slow,
    /// They would be cut into too many pieces.
    #[error(
        "documents that are added at once are cut into at most {} pieces; add fewer, or cut into longer pieces",
        MAX_CHUNKS
    )]
    Chunks,
    /// This one has something wrong.
    #[error("a document cannot be as it is")]
    Document {
        /// Which, counted from zero.
        position: usize,
        /// What.
        fault: DocumentFault,
    },
    /// The model that turns texts into vectors gave none.
    #[error("the embedding model gave no vectors")]
    NoVectors,
    /// The reason of a revocation is no text that people can read.
    #[error("a reason has 1 to 2000 characters, and none but line breaks and tabs that do not show")]
    Reason,
}

impl KnowledgeRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::OtherKind => "not_a_knowledge_base",
            Self::NoVersion => "knowledge_base_without_version",
            Self::Asset(refusal) => refusal.code(),
            Self::Documents => "out_of_bounds",
            Self::Chunks => "too_many_chunks",
            Self::Texts => "documents_too_long",
            Self::Slow => "sources_too_slow",
            Self::Document { fault, .. } => fault.code(),
            Self::NoVectors => "embedding_unavailable",
            Self::Reason => "invalid_reason",
        }
    }
}

/// A piece of a document.
#[derive(Clone, PartialEq, Debug)]
pub struct NewChunk {
    /// Its identifier.
    pub chunk_id: ChunkId,
    /// Where it begins in the text, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// How many tokens it has.
    pub tokens: u32,
    /// Of its text.
    pub digest: Checksum,
    /// How often each word stands in it or in the document's title.
    pub words: BTreeMap<String, u32>,
    /// What it means, by the model of the ingest, and of length one; `None` where it was not asked.
    pub vector: Option<Vec<f32>>,
}

/// A document to keep.
#[derive(Clone, PartialEq, Debug)]
pub struct NewDocument {
    /// Identifies it among all that were ever added.
    pub entry_id: DocumentEntryId,
    /// Its name.
    pub document_id: DocumentId,
    /// What it is called for people.
    pub title: Option<String>,
    /// Where its text came from, if it was not handed in.
    pub source_ref: Option<String>,
    /// Values that retrievals can be narrowed to.
    pub metadata: Map<String, Value>,
    /// Its text.
    pub text: String,
    /// Of its text.
    pub digest: Checksum,
    /// Its pieces, in order.
    pub chunks: Vec<NewChunk>,
}

/// Documents to add to a knowledge base at once. A document of a name that is there takes its place, from the next
/// revision on.
#[derive(Clone, PartialEq, Debug)]
pub struct Ingest {
    /// Its identifier.
    pub ingest_id: IngestId,
    /// The knowledge base.
    pub asset_id: AssetId,
    /// How its documents were cut.
    pub chunking: Chunking,
    /// Whose vectors its pieces have.
    pub embedded_by: Option<EmbeddingModel>,
    /// The documents.
    pub documents: Vec<NewDocument>,
    /// When they were added.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: ActorRef,
}

/// What became of an ingest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ingested {
    /// Its identifier.
    pub ingest_id: IngestId,
    /// The revision of the index that it made.
    pub index_revision: IndexRevision,
    /// The documents.
    pub documents: Vec<Document>,
}

/// A document as it is read back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// Identifies it among all that were ever added.
    pub entry_id: DocumentEntryId,
    /// Its name.
    pub document_id: DocumentId,
    /// What it is called for people; `None` if nothing was said, or it was erased.
    pub title: Option<String>,
    /// Where its text came from, if it was not handed in.
    pub source_ref: Option<String>,
    /// Values that retrievals can be narrowed to.
    pub metadata: Map<String, Value>,
    /// Of its text.
    pub digest: Checksum,
    /// How many bytes the text has.
    pub text_bytes: u32,
    /// Into how many pieces it was cut.
    pub chunk_count: u32,
    /// The revision of the index that it came with.
    pub index_revision: IndexRevision,
    /// Whether retrievals find it now: none of the same name was added later.
    pub current: bool,
    /// When it was added.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: ActorRef,
}

/// Whether an asset takes documents.
///
/// # Errors
/// When it is no knowledge base, or it is over.
pub fn takes_documents(asset: &Asset) -> Result<(), KnowledgeRefusal> {
    match asset.kind {
        AssetKind::KnowledgeBase => {}
        AssetKind::PromptTemplate
        | AssetKind::ModelPolicy
        | AssetKind::ModelConfig
        | AssetKind::PolicyBundle
        | AssetKind::ToolDefinition
        | AssetKind::HookDefinition
        | AssetKind::McpServer
        | AssetKind::Skill
        | AssetKind::Agent
        | AssetKind::OrchestrationFlow
        | AssetKind::Memory
        | AssetKind::EvaluationSuite
        | AssetKind::GuardrailConfig
        | AssetKind::ConnectorDefinition
        | AssetKind::SovereigntyProfile
        | AssetKind::WorkloadProfile
        | AssetKind::SandboxProfile
        | AssetKind::WorkloadHarness => return Err(KnowledgeRefusal::OtherKind),
    }
    if asset.lifecycle.takes_versions() { Ok(()) } else { Err(AssetRefusal::Archived.into()) }
}

/// Judges what is handed in, as far as it can be judged before sources are read.
///
/// # Errors
/// With the first document that cannot be as it is.
pub fn judge(drafts: &[DocumentDraft], from: SourceType) -> Result<Vec<DocumentId>, KnowledgeRefusal> {
    if !(1..=MAX_DOCUMENTS).contains(&drafts.len()) {
        return Err(KnowledgeRefusal::Documents);
    }
    let (mut ids, mut seen) = (Vec::new(), HashSet::new());
    for (position, draft) in drafts.iter().enumerate() {
        let refused = |fault| KnowledgeRefusal::Document { position, fault };
        let id = DocumentId::parse(&draft.document_id).ok_or(refused(DocumentFault::Name))?;
        if !seen.insert(id.clone()) {
            return Err(refused(DocumentFault::Twice));
        }
        if draft.title.as_deref().is_some_and(|title| !is_name(title, MAX_TITLE)) {
            return Err(refused(DocumentFault::Title));
        }
        if !is_metadata(&draft.metadata) {
            return Err(refused(DocumentFault::Metadata));
        }
        match (from, &draft.source) {
            (SourceType::Inline, DocumentSource::Text(text)) => judge_text(text).map_err(refused)?,
            (SourceType::Inline, DocumentSource::Ref(_)) => return Err(refused(DocumentFault::TextExpected)),
            (SourceType::Artifact | SourceType::Http, DocumentSource::Text(_)) => {
                return Err(refused(DocumentFault::SourceExpected));
            }
            (SourceType::Artifact | SourceType::Http, DocumentSource::Ref(source)) => {
                if !(1..=MAX_SOURCE_REF).contains(&source.len()) {
                    return Err(refused(DocumentFault::NoSuchSource));
                }
            }
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Judges a text.
///
/// # Errors
/// When there is nothing in it, or too much, or a NUL, which no column of text takes.
pub fn judge_text(text: &str) -> Result<(), DocumentFault> {
    if text.trim().is_empty() {
        Err(DocumentFault::NoText)
    } else if text.len() > MAX_TEXT {
        Err(DocumentFault::LongText)
    } else if text.contains('\0') {
        Err(DocumentFault::NulInText)
    } else {
        Ok(())
    }
}

fn is_metadata(metadata: &Map<String, Value>) -> bool {
    let canonical = || Canonical::of(&Value::Object(metadata.clone()));
    metadata.len() <= MAX_METADATA && canonical().is_ok_and(|canonical| canonical.bytes().len() <= LONGEST_METADATA)
}

/// A mark for each member of metadata, the same for the same name and value however they are spelled: 32 hexadecimal
/// digits. A document has a value if it has the mark of it.
#[must_use]
pub fn marks(metadata: &Map<String, Value>) -> Vec<String> {
    let mark = |(name, value): (&String, &Value)| {
        let canonical = Canonical::of(&json!({ name: value })).ok()?;
        let digest = blake3::hash(canonical.bytes()).to_hex();
        Some(digest.chars().take(32).collect())
    };
    metadata.iter().filter_map(mark).collect()
}

impl Ingest {
    /// Adds documents to a knowledge base whose index was seen at a revision: they make the next one.
    ///
    /// # Errors
    /// When it takes none, or they have too many pieces.
    pub fn add(
        asset: &Asset,
        ingest_id: IngestId,
        (chunking, embedded_by): (Chunking, Option<EmbeddingModel>),
        documents: Vec<NewDocument>,
        (seen, stamp): (IndexRevision, &Stamp),
    ) -> Result<Change<Self>, KnowledgeRefusal> {
        takes_documents(asset)?;
        let chunks: usize = documents.iter().map(|document| document.chunks.len()).sum();
        if chunks > MAX_CHUNKS {
            return Err(KnowledgeRefusal::Chunks);
        }
        let digests: Vec<&str> = documents.iter().map(|document| document.digest.as_str()).collect();
        let detail = json!({
            "ingest_id": ingest_id,
            "documents": documents.len(),
            "chunks": chunks,
            "digest": Checksum::of(digests.concat().as_bytes()).as_str(),
        });
        let subject = Subject { kind: "asset", id: asset.asset_id.uuid() };
        let fact = Fact::new(FactKind::DocumentsAdded, subject, Some(asset.workspace_id), stamp, detail);
        let (created_at, created_by) = (stamp.at, stamp.actor.clone());
        let asset_id = asset.asset_id;
        let next = Self { ingest_id, asset_id, chunking, embedded_by, documents, created_at, created_by };
        Ok(Change::replacing(next, Revision::new(seen.get()), fact))
    }
}

#[cfg(test)]
mod tests;
