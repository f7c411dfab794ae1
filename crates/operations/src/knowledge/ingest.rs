//! Ingestion of documents: the server validates them, reads their sources, splits them into chunks, embeds the chunks
//! if the knowledge base uses vectors, and commits everything together.

use super::invalid_base;
use crate::{
    Failure, MaybeReplayed,
    access::{Operation, authorize},
    blocking::{ProcessorWait, permit_failure, run_blocking},
    idempotency::{convert_failure_after_commit, keyed_outcome},
    knowledge::KnowledgeBases,
};
use fairway_domain::{
    access::{Caller, ResourcePosition},
    asset::{Asset, artifact_store::ArtifactPath, canonical::Checksum},
    execution::provider::ProviderError,
    id::{AssetId, IdSource, IngestId, TenantId, WorkspaceId},
    idempotency::RequestKey,
    knowledge::{
        ChunkingSettings, IndexRevision, KnowledgeBase, SourceType,
        document::{
            Document, DocumentDraft, DocumentFault, DocumentId, DocumentSource, Ingest, IngestResult, KnowledgeRefusal,
            MAX_CHUNKS_PER_COMMIT, MAX_INGEST_BYTES, MAX_TEXT_BYTES, NewChunk, NewDocument, check_accepts_documents,
            validate_drafts, validate_text,
        },
        ports::{ChunkSpan, Chunker, FetchError},
        retrieval::{EmbeddingModel, IndexWarning},
    },
    search_words::count_term_frequencies,
    store::{Change, CommitError, Page, PageRequest},
    tenant::TenantScope,
};
use fairway_fair_queue::{AcquireError, FairSemaphore, Limits, Permit};
use fairway_memory_limit::{Admission, admit};
use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};
use tokio::time::timeout;

/// Maximum number of attempts to commit an ingest. Each conflict means that a concurrent ingest or re-embedding was
/// committed.
const MAX_COMMIT_ATTEMPTS: usize = 12;
/// Maximum number of times that the chunks of one ingest are embedded. They are embedded again if the model of the
/// index changes before the commit.
const MAX_EMBEDDINGS: usize = 3;
/// Timeout for reading the sources of all documents of a request.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for embedding all chunks of a request. A request may make hundreds of calls, each with its own timeout, so
/// their total is limited too.
const EMBED_TIMEOUT: Duration = Duration::from_secs(60);

/// Limits on the concurrent ingests of this process, because each occupies memory for its texts and vectors. Tenants
/// take turns. One tenant has at most half of the permits, because an ingest may wait minutes for sources and models.
/// The other half is for tenants without an active ingest, one permit for each of them.
const INGEST_LIMITS: Limits =
    Limits { permits_per_key: 4, permits_for_idle_keys: 4, waiting_per_key: 16, ..Limits::unlimited_per_key(8) };
/// Peak memory of the texts and vectors of one ingest, in bytes.
const INGEST_BYTES: usize = 12 << 20;
/// Maximum time for which an ingest waits for its permit, and then the same time for memory.
const START_TIMEOUT: Duration = Duration::from_secs(10);

static INGEST_PERMITS: LazyLock<FairSemaphore<TenantId>> = LazyLock::new(|| FairSemaphore::new(INGEST_LIMITS));

/// Permit of an ingest, with its memory reservation.
pub(super) struct IngestPermit {
    _permit: Permit<TenantId>,
    _memory: Admission,
}

/// The result of an ingest, with warnings for its author.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngestReport {
    /// The committed ingest.
    pub ingested: IngestResult,
    /// Warnings about the new index revision.
    pub warnings: Vec<IndexWarning>,
}

/// A document with its text, before the text is split into chunks.
struct ReadDocument {
    document_id: DocumentId,
    draft: DocumentDraft,
    text: String,
}

impl KnowledgeBases {
    /// Adds documents to a knowledge base. A document replaces an existing document of the same name.
    ///
    /// # Errors
    /// In these cases: the caller does not see the asset from that workspace or may not edit it; the asset is not a
    /// knowledge base; a document is invalid; the embedding model fails.
    pub async fn add_documents(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: WorkspaceId,
        drafts: Vec<DocumentDraft>,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<IngestReport>, Failure> {
        let (scope, asset) =
            self.assets.authorize_asset_from(caller, Operation::AddDocuments, id, from_workspace).await?;
        let ingest_id: IngestId = self.context.new_id();
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    // Sources and models are slow, and models cost money. The key is therefore reserved, so that a
                    // repeated request does not call them concurrently.
                    let ingest = self.ingest(caller, scope, &asset, ingest_id, drafts, key);
                    self.keyed_requests.with_reserved_key(scope, key, ingest_id.uuid(), ingest).await
                },
                async |ingest| {
                    let ingest = self.document_store.find_ingest(scope, id, ingest.into()).await?;
                    let base = self.latest_base(scope, &asset).await?;
                    self.ingest_report(scope, id, ingest.ok_or(Failure::NotFound)?, &base).await
                },
            )
            .await
    }

    async fn ingest_report(
        &self,
        scope: TenantScope,
        asset: AssetId,
        ingested: IngestResult,
        base: &KnowledgeBase,
    ) -> Result<IngestReport, Failure> {
        let warnings = self.index_warnings(scope, asset, ingested.index_revision, base).await?;
        for warning in &warnings {
            tracing::warn!(
                tenant_id = %scope.tenant(),
                asset_id = %asset,
                ingest_id = %ingested.ingest_id,
                code = warning.code(),
                "an ingest has an index warning; reporting it to the caller"
            );
        }
        Ok(IngestReport { ingested, warnings })
    }

    /// Acquires a permit and memory for an ingest.
    pub(super) async fn ingest_permit(&self, scope: TenantScope) -> Result<IngestPermit, Failure> {
        let permit = INGEST_PERMITS.acquire(scope.tenant(), START_TIMEOUT).await.map_err(permit_failure)?;
        let memory = admit(INGEST_BYTES, START_TIMEOUT).await.map_err(|_| permit_failure(AcquireError::TimedOut))?;
        Ok(IngestPermit { _permit: permit, _memory: memory })
    }

    /// Lists the documents of a knowledge base, newest first. The list is empty for assets of other kinds.
    ///
    /// # Errors
    /// When the caller does not see the asset from that workspace.
    pub async fn list_documents(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: WorkspaceId,
        page: PageRequest,
    ) -> Result<Page<Document>, Failure> {
        let (scope, _) = self.assets.authorize_asset_from(caller, Operation::ListDocuments, id, from_workspace).await?;
        Ok(self.document_store.list_documents(scope, id, page).await?)
    }

    async fn ingest(
        &self,
        caller: &Caller,
        scope: TenantScope,
        asset: &Asset,
        ingest_id: IngestId,
        drafts: Vec<DocumentDraft>,
        key: Option<&RequestKey>,
    ) -> Result<IngestReport, Failure> {
        check_accepts_documents(asset)?;
        let id = asset.asset_id;
        let base = self.latest_base(scope, asset).await?;
        let ids = validate_drafts(&drafts, base.source_type)?;
        if base.source_type == SourceType::Http {
            let home_position = ResourcePosition::workspace(caller.tenant, asset.namespace_id, asset.workspace_id);
            authorize::authorize_visible(caller, Operation::FetchDocuments, &home_position)?;
        }
        let _permit = self.ingest_permit(scope).await?;
        let read_documents =
            with_read_timeout(self.read_documents(caller, base.source_type, ids.into_iter().zip(drafts))).await?;
        let mut documents = self.split_documents(scope, read_documents, base.chunking).await?;
        // The decision and the model use the same revision, so that no vector of a replaced model is added.
        let base_revision = self.index_revision_store.current_revision(scope, id).await?;
        let model = self.ingest_model(scope, id, base_revision, &base).await?;
        self.embed_chunks(scope, id, model.as_ref(), &mut documents).await?;
        let stamp = self.context.stamp(caller);
        let mut change =
            Ingest::decide_addition(asset, ingest_id, base.chunking, model, documents, base_revision, &stamp)?;
        self.commit_ingest(scope, &mut change, &base, key).await?;
        // The report is read from the store, so that the first response and a replay are equal.
        let report = async {
            let ingested = self.document_store.find_ingest(scope, id, ingest_id).await?;
            let ingested = ingested.ok_or(Failure::Inconsistent("a committed ingest is missing"))?;
            self.ingest_report(scope, id, ingested, &base).await
        };
        convert_failure_after_commit(report.await, key)
    }

    /// Commits an ingest on the newest revision. If a concurrent re-embedding changed the model of the index, the
    /// chunks are first embedded with the new model.
    async fn commit_ingest(
        &self,
        scope: TenantScope,
        change: &mut Change<Ingest>,
        base: &KnowledgeBase,
        key: Option<&RequestKey>,
    ) -> Result<(), Failure> {
        let outcome = keyed_outcome(key, 201, change.next.ingest_id.uuid());
        let asset = change.next.asset_id;
        let mut embeddings = 1;
        for _ in 0..MAX_COMMIT_ATTEMPTS {
            match self.document_store.commit_documents(scope, change, outcome.as_ref()).await {
                // A concurrent commit changes only the next revision number and possibly the model. The decision can
                // therefore be rebased.
                Err(CommitError::Stale) => {
                    let current_revision = self.index_revision_store.current_revision(scope, asset).await?;
                    change.rebase(current_revision);
                    let model = self.ingest_model(scope, asset, current_revision, base).await?;
                    if model == change.next.embedded_by {
                        continue;
                    }
                    if embeddings == MAX_EMBEDDINGS {
                        return Err(Failure::Contended);
                    }
                    embeddings += 1;
                    self.embed_chunks(scope, asset, model.as_ref(), change.replace_model(model.clone())).await?;
                }
                committed => return Ok(committed.map(|_| ())?),
            }
        }
        Err(Failure::Contended)
    }

    /// Returns the embedding model for an ingest at this revision; `None` if the knowledge base uses no vectors.
    async fn ingest_model(
        &self,
        scope: TenantScope,
        asset: AssetId,
        revision: IndexRevision,
        base: &KnowledgeBase,
    ) -> Result<Option<EmbeddingModel>, Failure> {
        if !base.retrieval.strategy.needs_vectors() {
            return Ok(None);
        }
        Ok(Some(self.model_for_new_documents(scope, asset, revision).await?))
    }

    /// Returns the newest version of a knowledge base; its settings determine how documents are read.
    pub(super) async fn latest_base(&self, scope: TenantScope, asset: &Asset) -> Result<KnowledgeBase, Failure> {
        let stored = self.asset_store.find_by_slug(scope, &asset.slug, None).await?;
        let version = stored.and_then(|(_, version)| version).ok_or(KnowledgeRefusal::NoVersion)?;
        let content = version.content().map_err(|_| invalid_base())?;
        KnowledgeBase::parse(&content).map_err(|_| invalid_base())
    }

    /// Reads the texts of the documents one after another. All texts are in memory together, so their total size is
    /// limited.
    async fn read_documents(
        &self,
        caller: &Caller,
        source_type: SourceType,
        drafts: impl Iterator<Item = (DocumentId, DocumentDraft)>,
    ) -> Result<Vec<ReadDocument>, Failure> {
        let mut read_documents = Vec::new();
        let mut remaining_bytes = MAX_INGEST_BYTES;
        for (position, (document_id, mut draft)) in drafts.enumerate() {
            let text = match &mut draft.source {
                DocumentSource::Text(text) => std::mem::take(text),
                DocumentSource::Reference(source) => self.read_source(caller, source_type, source, position).await?,
            };
            remaining_bytes = remaining_bytes.checked_sub(text.len()).ok_or(KnowledgeRefusal::TextsTooLong)?;
            read_documents.push(ReadDocument { document_id, draft, text });
        }
        Ok(read_documents)
    }

    async fn read_source(
        &self,
        caller: &Caller,
        source_type: SourceType,
        source: &str,
        position: usize,
    ) -> Result<String, Failure> {
        let refusal = |fault| Failure::from(KnowledgeRefusal::InvalidDocument { position, fault });
        let text = match source_type {
            SourceType::Inline => return Err(refusal(DocumentFault::TextExpected)),
            SourceType::Artifact => {
                let text = self.artifact_text(caller, source).await?;
                text.ok_or_else(|| refusal(DocumentFault::SourceNotFound))?
            }
            SourceType::Http => match self.settings.knowledge.fetcher.fetch(source, MAX_TEXT_BYTES).await {
                Ok(text) => text,
                Err(FetchError::TooLong) => return Err(refusal(DocumentFault::TextTooLong)),
                Err(FetchError::Forbidden | FetchError::NoText) => {
                    return Err(refusal(DocumentFault::SourceNotFetched));
                }
            },
        };
        validate_text(&text).map_err(refusal)?;
        Ok(text)
    }

    /// Returns the text of an artifact, provided that it is the content of a version that the caller may see. Other
    /// objects of the artifact store are not readable.
    async fn artifact_text(&self, caller: &Caller, source: &str) -> Result<Option<String>, Failure> {
        let Some((asset, version)) = ArtifactPath::parse_version(source) else { return Ok(None) };
        let scope = match self.assets.authorize_asset_from_anywhere(caller, Operation::ReadAssetVersion, asset).await {
            Ok((scope, _)) => scope,
            Err(Failure::NotFound) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let stored = self.version_store.find_version(scope, version).await?;
        let Some((parent, version)) = stored.filter(|(parent, _)| parent.asset_id == asset) else { return Ok(None) };
        let bytes = self.artifacts.read_artifact(caller, scope, parent.workspace_id, &version).await?;
        Ok(String::from_utf8(bytes).ok())
    }

    /// Splits texts on the blocking pool, because they may be long.
    async fn split_documents(
        &self,
        scope: TenantScope,
        read_documents: Vec<ReadDocument>,
        chunking: ChunkingSettings,
    ) -> Result<Vec<NewDocument>, Failure> {
        let splitter = Arc::clone(&self.settings.knowledge.splitter);
        let ids = Arc::clone(&self.context.ids);
        let split = move || {
            let mut documents = Vec::with_capacity(read_documents.len());
            let mut chunks = 0_usize;
            for read_document in read_documents {
                let ReadDocument { document_id, draft, text } = read_document;
                let DocumentDraft { title, source, metadata, .. } = draft;
                let entry_id = ids.new_id().into();
                let document_chunks = chunk_text(splitter.as_ref(), ids.as_ref(), title.as_deref(), &text, chunking);
                chunks = chunks.saturating_add(document_chunks.len());
                if chunks > MAX_CHUNKS_PER_COMMIT {
                    return Err(KnowledgeRefusal::TooManyChunks);
                }
                let source_ref = match source {
                    DocumentSource::Text(_) => None,
                    DocumentSource::Reference(source) => Some(source),
                };
                let digest = Checksum::blake3_of(text.as_bytes());
                documents.push(NewDocument {
                    entry_id,
                    document_id,
                    title,
                    source_ref,
                    metadata,
                    text,
                    digest,
                    chunks: document_chunks,
                });
            }
            Ok(documents)
        };
        run_blocking(scope, ProcessorWait::Request, split).await?.map_err(Failure::from)
    }

    /// Embeds every chunk; does nothing if `model` is `None`.
    async fn embed_chunks(
        &self,
        scope: TenantScope,
        asset: AssetId,
        model: Option<&EmbeddingModel>,
        documents: &mut [NewDocument],
    ) -> Result<(), Failure> {
        let Some(model) = model else { return Ok(()) };
        let text_of = |document: &NewDocument, chunk: &NewChunk| {
            document.text.get(chunk.start..chunk.end).unwrap_or_default().to_owned()
        };
        let texts =
            documents.iter().flat_map(|document| document.chunks.iter().map(move |chunk| text_of(document, chunk)));
        let embedded = limit_embed_time(self.embed_texts(model, texts.collect())).await.map_err(|error| {
            tracing::warn!(
                tenant_id = %scope.tenant(),
                asset_id = %asset,
                code = error.code(),
                "failed to embed documents; failing the ingest"
            );
            KnowledgeRefusal::NoVectors
        })?;
        let chunks = documents.iter_mut().flat_map(|document| &mut document.chunks);
        for (chunk, vector) in chunks.zip(embedded.vectors) {
            chunk.vector = Some(vector);
        }
        Ok(())
    }
}

/// Applies [`READ_TIMEOUT`] to the reading of sources.
async fn with_read_timeout<T>(read: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    timeout(READ_TIMEOUT, read).await.unwrap_or(Err(KnowledgeRefusal::SourcesTooSlow.into()))
}

/// Applies [`EMBED_TIMEOUT`] to calls of the embedding model.
pub(super) async fn limit_embed_time<T>(
    embedding: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, ProviderError> {
    timeout(EMBED_TIMEOUT, embedding).await.unwrap_or(Err(ProviderError::TimedOut))
}

fn chunk_text(
    splitter: &dyn Chunker,
    ids: &dyn IdSource,
    title: Option<&str>,
    text: &str,
    chunking: ChunkingSettings,
) -> Vec<NewChunk> {
    let to_chunk = |span: ChunkSpan| {
        let content = text.get(span.start..span.end)?;
        Some(NewChunk {
            chunk_id: ids.new_id().into(),
            start: span.start,
            end: span.end,
            tokens: span.tokens,
            digest: Checksum::blake3_of(content.as_bytes()),
            term_frequencies: count_term_frequencies(title.into_iter().chain([content])),
            vector: None,
        })
    };
    splitter.split(text, chunking).into_iter().filter_map(to_chunk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_sources_share_one_deadline() {
        let outcome: Result<(), Failure> = with_read_timeout(std::future::pending()).await;
        assert!(matches!(outcome, Err(Failure::Knowledge(KnowledgeRefusal::SourcesTooSlow))), "{outcome:?}");
        assert!(with_read_timeout(async { Ok(()) }).await.is_ok());
    }

    /// Each call ends within its own timeout, but there is always another call.
    #[tokio::test(start_paused = true)]
    async fn all_embedding_calls_share_one_deadline() {
        let endless_calls = async {
            loop {
                tokio::time::sleep(Duration::from_secs(9)).await;
            }
        };
        let outcome: Result<(), ProviderError> = limit_embed_time(endless_calls).await;
        assert_eq!(outcome, Err(ProviderError::TimedOut));
        assert_eq!(limit_embed_time(async { Ok(7) }).await, Ok(7));
    }
}
