//! Documents of knowledge bases: validation before an ingest, and their stored form.

use super::{ChunkingSettings, IndexRevision, SourceType, contract::is_identifier, retrieval::EmbeddingModel};
use crate::{
    access::ActorRef,
    asset::{
        Asset, AssetRefusal,
        canonical::{Canonical, Checksum},
        kind::AssetKind,
    },
    audit::{Fact, FactKind, FactSubject, Stamp},
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

/// The maximum number of documents in one ingest.
pub const MAX_DOCUMENTS_PER_INGEST: usize = 100;
/// The maximum length of a document's text, in bytes.
pub const MAX_TEXT_BYTES: usize = 1 << 20;
/// The maximum total length of the texts of one ingest, in bytes.
pub const MAX_INGEST_BYTES: usize = 8 << 20;
/// The maximum length of a title, in characters.
pub const MAX_TITLE_CHARS: usize = 300;
/// The maximum length of a source reference, in bytes.
pub const MAX_SOURCE_REF_BYTES: usize = 2_000;
/// The maximum number of metadata members of one document.
pub const MAX_METADATA_MEMBERS: usize = 50;
/// The maximum length of a document's metadata, in bytes of their canonical form.
pub const MAX_METADATA_BYTES: usize = 8 << 10;
/// The maximum number of chunks of one ingest or one re-embedding.
pub const MAX_CHUNKS_PER_COMMIT: usize = 2_000;

/// The identifier that a client chooses for a document. Answers cite the document by it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DocumentId(String);

impl DocumentId {
    /// The maximum length of an identifier, in characters.
    pub const MAX_CHARS: usize = 128;
    /// The regular expression of valid identifiers.
    pub const PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$";

    /// Parses an identifier; `None` when the text does not match the pattern.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_identifier(text, Self::MAX_CHARS, b"._:/-").then(|| Self(text.to_owned()))
    }

    /// The identifier as a text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether an answer cites the document with this identifier, that is, contains the identifier in brackets.
    #[must_use]
    pub fn is_cited(id: &str, answer: &str) -> bool {
        answer.contains(&format!("[{id}]"))
    }

    /// The texts in brackets of an answer. They include the identifier of every document that the answer cites.
    #[must_use]
    pub fn bracketed_texts(answer: &str) -> BTreeSet<&str> {
        answer.split('[').skip(1).filter_map(|rest| rest.split_once(']')).map(|(name, _)| name).collect()
    }
}

impl fmt::Display for DocumentId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The source of a document's text in a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DocumentSource {
    /// The request contains this text.
    Text(String),
    /// The text is read from this path in the artifact store, or from this URL.
    Reference(String),
}

/// A document in a request, before validation.
#[derive(Clone, PartialEq, Debug)]
pub struct DocumentDraft {
    /// The identifier that the client chose.
    pub document_id: String,
    /// The title of the document, if any.
    pub title: Option<String>,
    /// The text, or a reference to it.
    pub source: DocumentSource,
    /// The metadata of the document, which filters of retrievals compare.
    pub metadata: Map<String, Value>,
}

/// The reason why a document of an ingest is refused.
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
    /// The text exceeds [`MAX_TEXT_BYTES`].
    #[error("a document has at most 1048576 bytes of text")]
    TextTooLong,
    /// The text contains a NUL character, which PostgreSQL cannot store.
    #[error("the text contains a NUL character")]
    NulInText,
    /// The metadata is too large or has no canonical form.
    #[error("metadata has at most 50 members and 8192 bytes, and no number beyond 2^53")]
    InvalidMetadata,
    /// The knowledge base accepts texts only, but the document has a reference.
    #[error("documents of this knowledge base require `text`")]
    TextExpected,
    /// The knowledge base accepts references only, but the document has a text.
    #[error("documents of this knowledge base require `source_ref`")]
    SourceExpected,
    /// The reference names no content that the caller can see.
    #[error("the source does not exist or is not visible to you")]
    SourceNotFound,
    /// The reference is a URL that may not be fetched.
    #[error("the source cannot be fetched")]
    SourceNotFetched,
}

impl DocumentFault {
    /// The stable code of the fault.
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

    /// The field of the document that the fault concerns.
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

/// The reason why an ingest, a re-embedding or a revocation is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KnowledgeRefusal {
    /// The asset to which documents or vectors are added is not a knowledge base.
    #[error("the asset is not a knowledge base")]
    NotAKnowledgeBase,
    /// The knowledge base has no version with chunking settings.
    #[error("the knowledge base has no version yet")]
    NoVersion,
    /// The state of the asset permits no changes.
    #[error(transparent)]
    Asset(#[from] AssetRefusal),
    /// The ingest has no document, or too many documents.
    #[error("a request adds 1 to 100 documents")]
    DocumentCount,
    /// The texts of all documents together exceed the limit.
    #[error("the documents of a request have at most 8388608 bytes of text; add fewer documents")]
    TextsTooLong,
    /// Reading the sources of the documents took too long.
    #[error("the sources of a request must be readable within 30 seconds; add fewer documents")]
    SourcesTooSlow,
    /// The documents together have too many chunks.
    #[error(
        "the documents of a request have at most {} chunks; add fewer documents, or use longer chunks",
        MAX_CHUNKS_PER_COMMIT
    )]
    TooManyChunks,
    /// A document of the ingest is refused.
    #[error("a document is invalid")]
    InvalidDocument {
        /// The index of the document in the request, from zero.
        position: usize,
        /// The reason why the document is refused.
        fault: DocumentFault,
    },
    /// The texts could not be embedded: the provider failed, did not respond in time, or returned unusable vectors.
    #[error("the embedding model returned no vectors")]
    NoVectors,
    /// The reason of a revocation is blank, too long, or contains control characters.
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

/// A chunk of a document that an ingest adds.
#[derive(Clone, PartialEq, Debug)]
pub struct NewChunk {
    /// The identifier that the chunk receives.
    pub chunk_id: ChunkId,
    /// The byte position of the chunk's start in the document's text.
    pub start: usize,
    /// The byte position after the chunk's end in the document's text.
    pub end: usize,
    /// The number of tokens of the chunk.
    pub tokens: u32,
    /// The checksum of the chunk's text.
    pub digest: Checksum,
    /// The frequency of each term in the chunk's text and the document's title, for full-text search.
    pub term_frequencies: BTreeMap<String, u32>,
    /// The embedding vector of the chunk, normalized to length one; `None` if the ingest embeds no chunks.
    pub vector: Option<Vec<f32>>,
}

/// A document that an ingest adds.
#[derive(Clone, PartialEq, Debug)]
pub struct NewDocument {
    /// The identifier of this entry, unique among all documents that were ever added.
    pub entry_id: DocumentEntryId,
    /// The identifier that the client chose.
    pub document_id: DocumentId,
    /// The title of the document, if any.
    pub title: Option<String>,
    /// The path or URL of the source; `None` when the request contained the text.
    pub source_ref: Option<String>,
    /// The metadata, which retrieval filters compare.
    pub metadata: Map<String, Value>,
    /// The text of the document, from the request or its source.
    pub text: String,
    /// The checksum of the text.
    pub digest: Checksum,
    /// The chunks, in the order of the text.
    pub chunks: Vec<NewChunk>,
}

/// Documents to add to a knowledge base in one commit. From the next index revision on, each document replaces an
/// earlier document with the same identifier.
#[derive(Clone, PartialEq, Debug)]
pub struct Ingest(pub(crate) IngestRecord);

/// The fields of [`Ingest`].
#[derive(Clone, PartialEq, Debug)]
pub struct IngestRecord {
    /// The identifier under which the result of the ingest is found.
    pub ingest_id: IngestId,
    /// The knowledge base that receives the documents.
    pub asset_id: AssetId,
    /// The settings that split the documents into chunks.
    pub chunking: ChunkingSettings,
    /// The model that created the vectors of the chunks, if the ingest embeds them.
    pub embedded_by: Option<EmbeddingModel>,
    /// The documents to add.
    pub documents: Vec<NewDocument>,
    /// The time of the ingest.
    pub created_at: Timestamp,
    /// The actor that added the documents.
    pub created_by: ActorRef,
}

aggregate!(Ingest, IngestRecord);

/// The result of an ingest: the created index revision and the added documents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngestResult {
    /// The identifier of the ingest that had this result.
    pub ingest_id: IngestId,
    /// The index revision that the ingest created.
    pub index_revision: IndexRevision,
    /// The added documents, without their texts.
    pub documents: Vec<Document>,
}

/// A stored document without its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// The identifier of this entry, unique among all documents that were ever added.
    pub entry_id: DocumentEntryId,
    /// The identifier that the client chose.
    pub document_id: DocumentId,
    /// The title; `None` if the document has none or the title was erased.
    pub title: Option<String>,
    /// The path or URL of the source; `None` when the request contained the text.
    pub source_ref: Option<String>,
    /// The metadata, which retrieval filters compare.
    pub metadata: Map<String, Value>,
    /// The checksum of the text.
    pub digest: Checksum,
    /// The length of the text, in bytes.
    pub text_bytes: u32,
    /// The number of chunks of the document.
    pub chunk_count: u32,
    /// The index revision that added the document.
    pub index_revision: IndexRevision,
    /// Whether retrieval can find the document: no later document has the same identifier.
    pub is_current: bool,
    /// The time at which the document was added.
    pub created_at: Timestamp,
    /// The actor that added the document.
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

/// Validates the documents of a request, except for texts that must still be read from sources.
///
/// # Errors
/// Returns the first document that is refused.
pub fn validate_drafts(drafts: &[DocumentDraft], source_type: SourceType) -> Result<Vec<DocumentId>, KnowledgeRefusal> {
    if !(1..=MAX_DOCUMENTS_PER_INGEST).contains(&drafts.len()) {
        return Err(KnowledgeRefusal::DocumentCount);
    }
    let (mut ids, mut unique_ids) = (Vec::new(), HashSet::new());
    for (position, draft) in drafts.iter().enumerate() {
        let refusal = |fault| KnowledgeRefusal::InvalidDocument { position, fault };
        let id = DocumentId::parse(&draft.document_id).ok_or(refusal(DocumentFault::InvalidId))?;
        if !unique_ids.insert(id.clone()) {
            return Err(refusal(DocumentFault::DuplicateId));
        }
        if draft.title.as_deref().is_some_and(|title| !is_name(title, MAX_TITLE_CHARS)) {
            return Err(refusal(DocumentFault::InvalidTitle));
        }
        if !is_valid_metadata(&draft.metadata) {
            return Err(refusal(DocumentFault::InvalidMetadata));
        }
        match (source_type, &draft.source) {
            (SourceType::Inline, DocumentSource::Text(text)) => validate_text(text).map_err(refusal)?,
            (SourceType::Inline, DocumentSource::Reference(_)) => return Err(refusal(DocumentFault::TextExpected)),
            (SourceType::Artifact | SourceType::Http, DocumentSource::Text(_)) => {
                return Err(refusal(DocumentFault::SourceExpected));
            }
            (SourceType::Artifact | SourceType::Http, DocumentSource::Reference(source)) => {
                if !(1..=MAX_SOURCE_REF_BYTES).contains(&source.len()) {
                    return Err(refusal(DocumentFault::SourceNotFound));
                }
            }
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Validates the text of a document.
///
/// # Errors
/// Returns a fault when the text is blank, too long, or contains NUL, which PostgreSQL cannot store.
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

/// The hash of each metadata member, as 32 hexadecimal digits. Equal names with equal values have equal hashes, in any
/// JSON spelling. A document matches a filter if it has the hash of each member of the filter.
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
    /// Adds documents to a knowledge base whose current index revision is `revision`; the next revision contains them.
    ///
    /// # Errors
    /// Returns a refusal when the asset does not accept documents, or the documents have too many chunks.
    pub fn decide_addition(
        asset: &Asset,
        ingest_id: IngestId,
        chunking: ChunkingSettings,
        embedded_by: Option<EmbeddingModel>,
        documents: Vec<NewDocument>,
        revision: IndexRevision,
        stamp: &Stamp,
    ) -> Result<Change<Self>, KnowledgeRefusal> {
        check_accepts_documents(asset)?;
        let chunk_count: usize = documents.iter().map(|document| document.chunks.len()).sum();
        if chunk_count > MAX_CHUNKS_PER_COMMIT {
            return Err(KnowledgeRefusal::TooManyChunks);
        }
        let digests: Vec<&str> = documents.iter().map(|document| document.digest.as_str()).collect();
        let detail = json!({
            "ingest_id": ingest_id,
            "documents": documents.len(),
            "chunks": chunk_count,
            "digest": Checksum::blake3_of(digests.concat().as_bytes()).as_str(),
        });
        let subject = FactSubject { kind: "asset", id: asset.asset_id.uuid() };
        let fact = Fact::new(FactKind::DocumentsAdded, subject, Some(asset.workspace_id), stamp, detail);
        let (created_at, created_by) = (stamp.at, stamp.actor.clone());
        let asset_id = asset.asset_id;
        let next = Self(IngestRecord { ingest_id, asset_id, chunking, embedded_by, documents, created_at, created_by });
        Ok(Change::replace(next, Revision::new(revision.get()), fact))
    }
}

impl Change<Ingest> {
    /// Bases the ingest on a newer index revision, after a concurrent commit. Only the number of the created revision
    /// changes.
    pub const fn rebase(&mut self, revision: IndexRevision) {
        self.0.expected_revision = Some(Revision::new(revision.get()));
    }

    /// Replaces the embedding model, and returns the documents. The caller must compute their vectors with the new
    /// model.
    pub fn replace_model(&mut self, model: Option<EmbeddingModel>) -> &mut Vec<NewDocument> {
        self.0.next.0.embedded_by = model;
        &mut self.0.next.0.documents
    }
}

#[cfg(test)]
mod tests;
