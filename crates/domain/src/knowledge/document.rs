//! Documents: validation of uploads, and their stored form.

use super::{Chunking, IndexRevision, SourceType, contract::is_identifier, retrieval::EmbeddingModel};
use crate::{
    access::ActorRef,
    asset::{
        Asset, AssetRefusal,
        canonical::{Canonical, Checksum},
        kind::AssetKind,
    },
    audit::{Fact, FactKind, Stamp, Subject},
    id::{AssetId, ChunkId, DocumentEntryId, IngestId},
    store::{Change, Revision, aggregate},
    text::is_name,
    time::Timestamp,
};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
};

/// Maximum number of documents in one ingest.
pub const MAX_DOCUMENTS: usize = 100;
/// Maximum length of a document's text, in bytes.
pub const MAX_TEXT_BYTES: usize = 1 << 20;
/// Maximum total length of the texts of one ingest, in bytes.
pub const MAX_INGEST_BYTES: usize = 8 << 20;
/// Maximum length of a title, in characters.
pub const MAX_TITLE_CHARS: usize = 300;
/// Maximum length of a source reference, in bytes.
pub const MAX_SOURCE_REF_BYTES: usize = 2_000;
/// Maximum number of metadata members of a document.
pub const MAX_METADATA_MEMBERS: usize = 50;
/// Maximum length of metadata, in bytes of its canonical form.
pub const MAX_METADATA_BYTES: usize = 8 << 10;
/// Maximum number of chunks of one ingest or one re-embedding.
pub const MAX_CHUNKS: usize = 2_000;

/// Client-chosen identifier of a document; citations use it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DocumentId(String);

impl DocumentId {
    /// Maximum length, in characters.
    pub const MAX_CHARS: usize = 128;
    /// The pattern of valid identifiers.
    pub const PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$";

    /// Parses an external text; `None` when it does not match the pattern.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_identifier(text, Self::MAX_CHARS, b"._:/-").then(|| Self(text.to_owned()))
    }

    /// The identifier as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether an answer cites the document: it contains the identifier in brackets.
    #[must_use]
    pub fn is_cited(id: &str, answer: &str) -> bool {
        answer.contains(&format!("[{id}]"))
    }

    /// The texts in brackets of an answer: the identifiers of the documents that it cites, among others.
    #[must_use]
    pub fn bracketed(answer: &str) -> BTreeSet<&str> {
        answer.split('[').skip(1).filter_map(|rest| rest.split_once(']')).map(|(name, _)| name).collect()
    }
}

impl fmt::Display for DocumentId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Source of a document's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DocumentSource {
    /// The text itself.
    Text(String),
    /// A reference: a path in the artifact store, or a URL.
    Reference(String),
}

/// An uploaded document, not validated.
#[derive(Clone, PartialEq, Debug)]
pub struct DocumentDraft {
    /// Identifier.
    pub document_id: String,
    /// Title.
    pub title: Option<String>,
    /// Source of the text.
    pub source: DocumentSource,
    /// Values that retrieval filters match.
    pub metadata: Map<String, Value>,
}

/// Why a document is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DocumentFault {
    /// The identifier does not match the pattern.
    #[error("a document id has 1 to 128 letters, digits and `._:/-`")]
    InvalidId,
    /// Another document of the same ingest has the same identifier.
    #[error("another document of the request has the same id")]
    DuplicateId,
    /// The title is not a valid name.
    #[error("a title is one line of 1 to 300 visible characters")]
    InvalidTitle,
    /// The text is missing or blank.
    #[error("the document has no text")]
    NoText,
    /// The text is too long.
    #[error("a document has at most 1048576 bytes of text")]
    TextTooLong,
    /// The text contains a NUL character.
    #[error("the text contains a NUL character")]
    NulInText,
    /// The metadata is too large or has no canonical form.
    #[error("metadata has at most 50 members and 8192 bytes, and no number beyond 2^53")]
    InvalidMetadata,
    /// The knowledge base accepts texts, and the document has a reference.
    #[error("documents of this knowledge base require `text`")]
    TextExpected,
    /// The knowledge base accepts references, and the document has a text.
    #[error("documents of this knowledge base require `source_ref`")]
    SourceExpected,
    /// The reference does not name content that is visible to the caller.
    #[error("the source does not exist or is not visible to you")]
    SourceNotFound,
    /// The reference is not a permitted URL.
    #[error("the source cannot be fetched")]
    SourceNotFetched,
}

impl DocumentFault {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::InvalidId => "invalid_document_id",
            Self::DuplicateId => "duplicate_document_id",
            Self::InvalidTitle => "invalid_title",
            Self::NoText => "empty_document",
            Self::TextTooLong => "document_too_long",
            Self::NulInText => "nul_in_document",
            Self::InvalidMetadata => "invalid_metadata",
            Self::TextExpected => "text_expected",
            Self::SourceExpected => "source_expected",
            Self::SourceNotFound => "source_not_found",
            Self::SourceNotFetched => "source_not_fetched",
        }
    }

    /// The field that the fault concerns.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::InvalidId | Self::DuplicateId => "document_id",
            Self::InvalidTitle => "title",
            Self::NoText | Self::TextTooLong | Self::NulInText | Self::TextExpected => "text",
            Self::InvalidMetadata => "metadata",
            Self::SourceExpected | Self::SourceNotFound | Self::SourceNotFetched => "source_ref",
        }
    }
}

/// Why an ingest, a re-embedding or a revocation is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KnowledgeRefusal {
    /// The asset is not a knowledge base.
    #[error("the asset is not a knowledge base")]
    NotAKnowledgeBase,
    /// The knowledge base has no version with chunking settings.
    #[error("the knowledge base has no version yet")]
    NoVersion,
    /// The asset accepts no changes.
    #[error(transparent)]
    Asset(#[from] AssetRefusal),
    /// The ingest has no document, or too many.
    #[error("a request adds 1 to 100 documents")]
    DocumentCount,
    /// The total length of the texts exceeds the limit.
    #[error("the documents of a request have at most 8388608 bytes of text; add fewer documents")]
    TextsTooLong,
    /// Reading the sources took too long.
    #[error("the sources of a request must be readable within 30 seconds; add fewer documents")]
    SourcesTooSlow,
    /// The documents have too many chunks.
    #[error("the documents of a request have at most {} chunks; add fewer documents, or use longer chunks", MAX_CHUNKS)]
    TooManyChunks,
    /// One document is refused.
    #[error("a document is invalid")]
    InvalidDocument {
        /// Index of the document, from zero.
        position: usize,
        /// Fault.
        fault: DocumentFault,
    },
    /// The embedding model returned no vectors.
    #[error("the embedding model returned no vectors")]
    NoVectors,
    /// The reason of a revocation is blank or contains control characters.
    #[error("a reason has 1 to 2000 characters, without control characters other than line breaks and tabs")]
    InvalidReason,
}

impl KnowledgeRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotAKnowledgeBase => "not_a_knowledge_base",
            Self::NoVersion => "knowledge_base_without_version",
            Self::Asset(refusal) => refusal.code(),
            Self::DocumentCount => "out_of_bounds",
            Self::TooManyChunks => "too_many_chunks",
            Self::TextsTooLong => "documents_too_long",
            Self::SourcesTooSlow => "sources_too_slow",
            Self::InvalidDocument { fault, .. } => fault.code(),
            Self::NoVectors => "embedding_unavailable",
            Self::InvalidReason => "invalid_reason",
        }
    }
}

/// A chunk of a new document.
#[derive(Clone, PartialEq, Debug)]
pub struct NewChunk {
    /// Identifier.
    pub chunk_id: ChunkId,
    /// Start in the text, in bytes.
    pub start: usize,
    /// End in the text, in bytes.
    pub end: usize,
    /// Number of tokens.
    pub tokens: u32,
    /// Checksum of its text.
    pub digest: Checksum,
    /// Term frequencies of its text and the document's title.
    pub term_frequencies: BTreeMap<String, u32>,
    /// Vector of length one by the model of the ingest; `None` without an embedding.
    pub vector: Option<Vec<f32>>,
}

/// A new document.
#[derive(Clone, PartialEq, Debug)]
pub struct NewDocument {
    /// Identifier among all documents ever added.
    pub entry_id: DocumentEntryId,
    /// Client-chosen identifier.
    pub document_id: DocumentId,
    /// Title.
    pub title: Option<String>,
    /// Source reference; `None` when the text was uploaded.
    pub source_ref: Option<String>,
    /// Values that retrieval filters match.
    pub metadata: Map<String, Value>,
    /// Text.
    pub text: String,
    /// Checksum of the text.
    pub digest: Checksum,
    /// Chunks, in order.
    pub chunks: Vec<NewChunk>,
}

/// Documents that are added to a knowledge base in one commit. From the next revision on, a document supersedes an
/// earlier one with the same identifier.
#[derive(Clone, PartialEq, Debug)]
pub struct Ingest(pub(crate) IngestRecord);

/// The fields of [`Ingest`].
#[derive(Clone, PartialEq, Debug)]
pub struct IngestRecord {
    /// Identifier.
    pub ingest_id: IngestId,
    /// Knowledge base.
    pub asset_id: AssetId,
    /// Chunking of the documents.
    pub chunking: Chunking,
    /// Model of the chunks' vectors, if any.
    pub embedded_by: Option<EmbeddingModel>,
    /// Documents.
    pub documents: Vec<NewDocument>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Actor.
    pub created_by: ActorRef,
}

aggregate!(Ingest, IngestRecord);

/// Result of an ingest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngestResult {
    /// Identifier.
    pub ingest_id: IngestId,
    /// Index revision that it created.
    pub index_revision: IndexRevision,
    /// Documents.
    pub documents: Vec<Document>,
}

/// A stored document without its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// Identifier among all documents ever added.
    pub entry_id: DocumentEntryId,
    /// Client-chosen identifier.
    pub document_id: DocumentId,
    /// Title; `None` when absent or erased.
    pub title: Option<String>,
    /// Source reference; `None` when the text was uploaded.
    pub source_ref: Option<String>,
    /// Values that retrieval filters match.
    pub metadata: Map<String, Value>,
    /// Checksum of the text.
    pub digest: Checksum,
    /// Length of the text, in bytes.
    pub text_bytes: u32,
    /// Number of chunks.
    pub chunk_count: u32,
    /// Index revision that added it.
    pub index_revision: IndexRevision,
    /// Whether retrieval finds it: no later document has the same identifier.
    pub is_current: bool,
    /// Creation time.
    pub created_at: Timestamp,
    /// Actor.
    pub created_by: ActorRef,
}

/// Checks that an asset accepts documents.
///
/// # Errors
/// Returns a refusal when the asset is not a knowledge base, or is archived.
pub fn check_accepts_documents(asset: &Asset) -> Result<(), KnowledgeRefusal> {
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
        | AssetKind::WorkloadHarness => return Err(KnowledgeRefusal::NotAKnowledgeBase),
    }
    if asset.lifecycle.accepts_versions() { Ok(()) } else { Err(AssetRefusal::Archived.into()) }
}

/// Validates uploaded documents, as far as possible before sources are read.
///
/// # Errors
/// Returns the first refused document.
pub fn validate_drafts(drafts: &[DocumentDraft], from: SourceType) -> Result<Vec<DocumentId>, KnowledgeRefusal> {
    if !(1..=MAX_DOCUMENTS).contains(&drafts.len()) {
        return Err(KnowledgeRefusal::DocumentCount);
    }
    let (mut ids, mut seen) = (Vec::new(), HashSet::new());
    for (position, draft) in drafts.iter().enumerate() {
        let refused = |fault| KnowledgeRefusal::InvalidDocument { position, fault };
        let id = DocumentId::parse(&draft.document_id).ok_or(refused(DocumentFault::InvalidId))?;
        if !seen.insert(id.clone()) {
            return Err(refused(DocumentFault::DuplicateId));
        }
        if draft.title.as_deref().is_some_and(|title| !is_name(title, MAX_TITLE_CHARS)) {
            return Err(refused(DocumentFault::InvalidTitle));
        }
        if !is_valid_metadata(&draft.metadata) {
            return Err(refused(DocumentFault::InvalidMetadata));
        }
        match (from, &draft.source) {
            (SourceType::Inline, DocumentSource::Text(text)) => validate_text(text).map_err(refused)?,
            (SourceType::Inline, DocumentSource::Reference(_)) => return Err(refused(DocumentFault::TextExpected)),
            (SourceType::Artifact | SourceType::Http, DocumentSource::Text(_)) => {
                return Err(refused(DocumentFault::SourceExpected));
            }
            (SourceType::Artifact | SourceType::Http, DocumentSource::Reference(source)) => {
                if !(1..=MAX_SOURCE_REF_BYTES).contains(&source.len()) {
                    return Err(refused(DocumentFault::SourceNotFound));
                }
            }
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Validates a text.
///
/// # Errors
/// Returns a fault when the text is blank, too long, or contains a NUL character, which PostgreSQL cannot store.
pub fn validate_text(text: &str) -> Result<(), DocumentFault> {
    if text.trim().is_empty() {
        Err(DocumentFault::NoText)
    } else if text.len() > MAX_TEXT_BYTES {
        Err(DocumentFault::TextTooLong)
    } else if text.contains('\0') {
        Err(DocumentFault::NulInText)
    } else {
        Ok(())
    }
}

fn is_valid_metadata(metadata: &Map<String, Value>) -> bool {
    let canonical = || Canonical::of(&Value::Object(metadata.clone()));
    metadata.len() <= MAX_METADATA_MEMBERS
        && canonical().is_ok_and(|canonical| canonical.bytes().len() <= MAX_METADATA_BYTES)
}

/// Hashes of the metadata members: 32 hexadecimal digits each, equal for equal names and values in any spelling. A
/// filter matches a document that has the hash of each filter value.
#[must_use]
pub fn metadata_hashes(metadata: &Map<String, Value>) -> Vec<String> {
    let hash = |(name, value): (&String, &Value)| {
        let canonical = Canonical::of(&json!({ name: value })).ok()?;
        let digest = blake3::hash(canonical.bytes()).to_hex();
        Some(digest.chars().take(32).collect())
    };
    metadata.iter().filter_map(hash).collect()
}

impl Ingest {
    /// Adds documents to a knowledge base; the next index revision after `revision` contains them.
    ///
    /// # Errors
    /// Returns a refusal when the asset does not accept documents, or the documents have too many chunks.
    pub fn add(
        asset: &Asset,
        ingest_id: IngestId,
        chunking: Chunking,
        embedded_by: Option<EmbeddingModel>,
        documents: Vec<NewDocument>,
        revision: IndexRevision,
        stamp: &Stamp,
    ) -> Result<Change<Self>, KnowledgeRefusal> {
        check_accepts_documents(asset)?;
        let chunks: usize = documents.iter().map(|document| document.chunks.len()).sum();
        if chunks > MAX_CHUNKS {
            return Err(KnowledgeRefusal::TooManyChunks);
        }
        let digests: Vec<&str> = documents.iter().map(|document| document.digest.as_str()).collect();
        let detail = json!({
            "ingest_id": ingest_id,
            "documents": documents.len(),
            "chunks": chunks,
            "digest": Checksum::blake3_of(digests.concat().as_bytes()).as_str(),
        });
        let subject = Subject { kind: "asset", id: asset.asset_id.uuid() };
        let fact = Fact::new(FactKind::DocumentsAdded, subject, Some(asset.workspace_id), stamp, detail);
        let (created_at, created_by) = (stamp.at, stamp.actor.clone());
        let asset_id = asset.asset_id;
        let next = Self(IngestRecord { ingest_id, asset_id, chunking, embedded_by, documents, created_at, created_by });
        Ok(Change::replace(next, Revision::new(revision.get()), fact))
    }
}

impl Change<Ingest> {
    /// Decides the ingest on a newer revision. Concurrent ingests affect only the revision that it creates.
    pub const fn rebase(&mut self, revision: IndexRevision) {
        self.0.decided_on = Some(Revision::new(revision.get()));
    }

    /// Replaces the embedding model. Returns the documents, whose vectors the caller computes with it before a commit.
    pub fn replace_model(&mut self, model: Option<EmbeddingModel>) -> &mut Vec<NewDocument> {
        self.0.next.0.embedded_by = model;
        &mut self.0.next.0.documents
    }
}

#[cfg(test)]
mod tests;
