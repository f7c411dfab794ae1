//! Re-embedding: embeds chunks that have no vector of the configured model, and commits the vectors as a new index
//! revision.

use super::ingest::limit_embed_time;
use crate::{
    Failure, MaybeReplayed,
    access::Operation,
    idempotency::{MAX_ATTEMPTS, convert_failure_after_commit, keyed_outcome},
    knowledge::KnowledgeBases,
};
use fairway_domain::{
    access::Caller,
    asset::Asset,
    id::{AssetId, ChunkId, IngestId, WorkspaceId},
    idempotency::RequestKey,
    knowledge::{
        IndexRevision,
        document::{KnowledgeRefusal, check_accepts_documents},
        reembedding::{ChunkLimit, NewVector, Reembedding, StaleChunk},
        retrieval::{EmbeddingModel, IndexEmbeddingModels, IndexWarning},
    },
    store::CommitError,
    tenant::TenantScope,
};
use std::collections::HashMap;
use uuid::Uuid;

/// The outcome of a re-embedding request.
enum ReembedOutcome {
    /// The request committed a re-embedding.
    Committed,
    /// Every chunk already has a vector of the configured model.
    NothingStale,
}

/// The result of a re-embedding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReembeddingReport {
    /// The new revision, or the current revision if no chunk was stale.
    pub index_revision: IndexRevision,
    /// The model that created the vectors.
    pub embedded_by: EmbeddingModel,
    /// Number of chunks to which this request gave a vector.
    pub chunk_count: u32,
    /// Whether every chunk of the revision has a vector of this model.
    pub is_complete: bool,
    /// Warnings about the index revision.
    pub warnings: Vec<IndexWarning>,
}

impl KnowledgeBases {
    /// Embeds at most `limit` chunks that have no vector of the configured model; a large knowledge base requires
    /// several calls. Until the last of these calls, searches use the revision before the first call.
    ///
    /// # Errors
    /// In these cases: the caller does not see the asset from that workspace or may not edit it; the asset is not a
    /// knowledge base; the embedding model fails.
    pub async fn reembed_next_chunks(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: WorkspaceId,
        limit: ChunkLimit,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<ReembeddingReport>, Failure> {
        let (scope, asset) =
            self.assets.authorize_asset_from(caller, Operation::ReembedDocuments, id, from_workspace).await?;
        let ingest_id: IngestId = self.context.new_id();
        let replay = async |ingest: Uuid| self.reembedding_report(scope, &asset, ingest.into()).await;
        let outcome = self.keyed_requests.idempotent(
            scope,
            key,
            async || {
                let reembedding = self.reembed(caller, scope, &asset, ingest_id, limit, key);
                match self.keyed_requests.with_reserved_key(scope, key, ingest_id.uuid(), reembedding).await? {
                    ReembedOutcome::Committed => {
                        let report = self.reembedding_report(scope, &asset, ingest_id).await;
                        convert_failure_after_commit(report, key).map(Some)
                    }
                    ReembedOutcome::NothingStale => Ok(None),
                }
            },
            async |ingest| replay(ingest).await.map(Some),
        );
        let (report, outcome) = outcome.await?.into_parts();
        if let Some(report) = report {
            return Ok(outcome.with_value(report));
        }
        // A concurrent request with the same key may have embedded the last chunks. Its outcome is then the response.
        if let Some(earlier_outcome) = self.keyed_requests.earlier_outcome(scope, key).await? {
            return Ok(MaybeReplayed {
                value: replay(earlier_outcome.resource).await?,
                replayed: Some(earlier_outcome.status),
            });
        }
        Ok(MaybeReplayed::first(self.unchanged_report(scope, &asset).await?))
    }

    /// Returns the report of a request that found no stale chunk.
    async fn unchanged_report(&self, scope: TenantScope, asset: &Asset) -> Result<ReembeddingReport, Failure> {
        let id = asset.asset_id;
        let base = self.latest_base(scope, asset).await?;
        let model = self.settings.knowledge.embedding.clone();
        let current_revision = self.index_revision_store.current_revision(scope, id).await?;
        let is_complete = if base.retrieval.strategy.needs_vectors() {
            match self.index_revision_store.index_embedding(scope, id, current_revision).await? {
                IndexEmbeddingModels::Empty => true,
                IndexEmbeddingModels::Uniform(index_model) => index_model == model,
                IndexEmbeddingModels::Mixed => false,
            }
        } else {
            true
        };
        let warnings = self.index_warnings(scope, id, current_revision, &base).await?;
        Ok(ReembeddingReport {
            index_revision: current_revision,
            embedded_by: model,
            chunk_count: 0,
            is_complete,
            warnings,
        })
    }

    async fn reembed(
        &self,
        caller: &Caller,
        scope: TenantScope,
        asset: &Asset,
        ingest_id: IngestId,
        limit: ChunkLimit,
        key: Option<&RequestKey>,
    ) -> Result<ReembedOutcome, Failure> {
        check_accepts_documents(asset)?;
        let id = asset.asset_id;
        let base = self.latest_base(scope, asset).await?;
        if !base.retrieval.strategy.needs_vectors() {
            return Ok(ReembedOutcome::NothingStale);
        }
        let _permit = self.ingest_permit(scope).await?;
        let model = self.settings.knowledge.embedding.clone();
        let mut reusable_vectors = HashMap::new();
        for _ in 0..MAX_ATTEMPTS {
            // Each attempt reads the stale chunks again, because concurrent requests may have embedded or replaced some
            // of them.
            let current_revision = self.index_revision_store.current_revision(scope, id).await?;
            let stale_chunks = self.document_store.stale_chunks(scope, id, &model, limit.get()).await?;
            if stale_chunks.is_empty() {
                return Ok(ReembedOutcome::NothingStale);
            }
            let vectors = self.vectors_for(scope, id, &model, stale_chunks, reusable_vectors).await?;
            let outcome = keyed_outcome(key, 200, ingest_id.uuid());
            let stamp = self.context.stamp(caller);
            let change =
                Reembedding::decide(asset, ingest_id, base.chunking, model.clone(), vectors, current_revision, &stamp)?;
            match self.document_store.commit_reembedding(scope, &change, outcome.as_ref()).await {
                // The next attempt uses these vectors again, for those chunks that are still stale.
                Err(CommitError::Stale) => {
                    reusable_vectors = change
                        .next
                        .vectors
                        .clone()
                        .into_iter()
                        .map(|new_vector| (new_vector.replaces, new_vector.vector))
                        .collect();
                }
                committed => {
                    committed?;
                    return Ok(ReembedOutcome::Committed);
                }
            }
        }
        Err(Failure::Contended)
    }

    /// Returns the vectors of the chunks, in their order: reusable vectors where they exist, and new ones from the
    /// model.
    async fn vectors_for(
        &self,
        scope: TenantScope,
        asset: AssetId,
        model: &EmbeddingModel,
        stale_chunks: Vec<StaleChunk>,
        mut reusable_vectors: HashMap<ChunkId, Vec<f32>>,
    ) -> Result<Vec<NewVector>, Failure> {
        let stale_ids: Vec<ChunkId> = stale_chunks.iter().map(|chunk| chunk.chunk_id).collect();
        let missing = stale_chunks.into_iter().filter(|chunk| !reusable_vectors.contains_key(&chunk.chunk_id));
        let (ids, texts): (Vec<_>, Vec<_>) = missing.map(|chunk| (chunk.chunk_id, chunk.text)).unzip();
        let embedded = limit_embed_time(self.embed_texts(model, texts)).await.map_err(|error| {
            tracing::warn!(
                tenant_id = %scope.tenant(),
                asset_id = %asset,
                code = error.code(),
                "failed to re-embed documents; failing the request"
            );
            KnowledgeRefusal::NoVectors
        })?;
        reusable_vectors.extend(ids.into_iter().zip(embedded.vectors));
        let new_vector = |replaces| {
            Some(NewVector { replaces, chunk_id: self.context.new_id(), vector: reusable_vectors.remove(&replaces)? })
        };
        Ok(stale_ids.into_iter().filter_map(new_vector).collect())
    }

    /// Reads the report of a re-embedding from the store, so that a replay returns the same report.
    async fn reembedding_report(
        &self,
        scope: TenantScope,
        asset: &Asset,
        ingest: IngestId,
    ) -> Result<ReembeddingReport, Failure> {
        let id = asset.asset_id;
        let reembedding = self.document_store.find_reembedding(scope, id, ingest).await?.ok_or(Failure::NotFound)?;
        let base = self.latest_base(scope, asset).await?;
        let embedding = self.index_revision_store.index_embedding(scope, id, reembedding.index_revision).await?;
        let warnings = self.index_warnings(scope, id, reembedding.index_revision, &base).await?;
        Ok(ReembeddingReport {
            index_revision: reembedding.index_revision,
            is_complete: embedding == IndexEmbeddingModels::Uniform(reembedding.embedded_by.clone()),
            embedded_by: reembedding.embedded_by,
            chunk_count: reembedding.chunk_count,
            warnings,
        })
    }
}
