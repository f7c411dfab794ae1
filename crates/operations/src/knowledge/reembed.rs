//! Embedding documents again: pieces without a vector of the configured model get one, which makes a revision of the index.

use super::documents::embedded_in_time;
use crate::{
    Done, Failure, Services,
    access::Operation,
    once::{ATTEMPTS, keyed},
};
use fairway_domain::{
    access::Caller,
    asset::Asset,
    id::{AssetId, IngestId, WorkspaceId},
    idempotency::RequestKey,
    knowledge::{
        IndexRevision,
        document::{KnowledgeRefusal, takes_documents},
        reembedding::{ChunkLimit, NewVector, Reembedding, StaleChunk},
        retrieval::{EmbeddingModel, IndexEmbedding, IndexWarning},
    },
    store::{CommitError, Revision},
    tenant::TenantScope,
};

/// What became of embedding documents again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReembeddingReport {
    /// The revision that it made; the present one where there was nothing to do.
    pub index_revision: IndexRevision,
    /// Whose vectors the pieces have.
    pub embedded_by: EmbeddingModel,
    /// How many pieces got a vector.
    pub chunk_count: u32,
    /// Whether every piece of the revision has one of that model.
    pub is_complete: bool,
    /// What there is to know of the revision.
    pub warnings: Vec<IndexWarning>,
}

impl Services {
    /// Gives pieces of a knowledge base without a vector of the configured model one: at most `limit` of them, so that a large
    /// knowledge base takes several calls. Until the last of them, searches read the revision before the first.
    ///
    /// # Errors
    /// When the caller does not see the asset from there or may not edit it, it is no knowledge base, or the embedding model
    /// does not answer.
    pub async fn reembed_documents(
        &self,
        caller: &Caller,
        (id, from): (AssetId, WorkspaceId),
        limit: ChunkLimit,
        key: Option<&RequestKey>,
    ) -> Result<Done<ReembeddingReport>, Failure> {
        let (scope, asset) = self.asset_from(caller, Operation::ReembedDocuments, id, from).await?;
        let done = self.once(
            scope,
            key,
            async || self.reembed(caller, (scope, &asset), limit, key).await,
            async |ingest| self.reembedding_report(scope, &asset, ingest.into()).await,
        );
        match done.await {
            // No piece is left, and it was not a request with this key that embedded the last one.
            Err(Failure::Contended) => Ok(Done::now(self.nothing_to_embed(scope, &asset).await?)),
            done => done,
        }
    }

    /// The report where no piece needs a vector. Contended where one does.
    async fn nothing_to_embed(&self, scope: TenantScope, asset: &Asset) -> Result<ReembeddingReport, Failure> {
        let id = asset.asset_id;
        let base = self.latest_base(scope, asset).await?;
        let model = self.settings.knowledge.embedding.clone();
        let seen = self.stores.knowledge.present_revision(scope, id).await?;
        let needs_vectors = base.retrieval.strategy.needs_vectors();
        if needs_vectors && !self.stores.knowledge.stale_chunks(scope, id, &model, 1).await?.is_empty() {
            return Err(Failure::Contended);
        }
        Ok(ReembeddingReport {
            index_revision: seen,
            embedded_by: model,
            chunk_count: 0,
            is_complete: true,
            warnings: self.index_warnings(scope, (id, seen), &base).await?,
        })
    }

    async fn reembed(
        &self,
        caller: &Caller,
        (scope, asset): (TenantScope, &Asset),
        limit: ChunkLimit,
        key: Option<&RequestKey>,
    ) -> Result<ReembeddingReport, Failure> {
        takes_documents(asset)?;
        let id = asset.asset_id;
        let base = self.latest_base(scope, asset).await?;
        let _permit = self.ingest_permit(scope).await?;
        let model = self.settings.knowledge.embedding.clone();
        let seen = self.stores.knowledge.present_revision(scope, id).await?;
        let stale = if base.retrieval.strategy.needs_vectors() {
            self.stores.knowledge.stale_chunks(scope, id, &model, limit.get()).await?
        } else {
            Vec::new()
        };
        if stale.is_empty() {
            // A twin of this request may have been faster: then its outcome is the answer.
            return Err(Failure::Contended);
        }
        let vectors = self.vectors_of(&model, stale).await?;
        let ingest_id: IngestId = self.id();
        let outcome = keyed(key, 200, ingest_id.uuid());
        let how = (base.chunking, model);
        let mut change = Reembedding::decide(asset, ingest_id, how, vectors, (seen, &self.stamp(caller)))?;
        for _ in 0..=ATTEMPTS {
            match self.stores.knowledge.commit_reembedding(scope, &change, outcome.as_ref()).await {
                // Documents were added meanwhile. Pieces that they replaced are left out.
                Err(CommitError::Stale) => {
                    let seen = self.stores.knowledge.present_revision(scope, id).await?;
                    change.decided_on = Some(Revision::new(seen.get()));
                }
                committed => {
                    committed?;
                    return self.reembedding_report(scope, asset, ingest_id).await;
                }
            }
        }
        Err(Failure::Contended)
    }

    async fn vectors_of(&self, model: &EmbeddingModel, stale: Vec<StaleChunk>) -> Result<Vec<NewVector>, Failure> {
        let (ids, texts): (Vec<_>, Vec<_>) = stale.into_iter().map(|chunk| (chunk.chunk_id, chunk.text)).unzip();
        let made = embedded_in_time(self.vectors(model, texts)).await.map_err(|error| {
            tracing::warn!(code = error.code(), "the embedding model gave no vectors");
            KnowledgeRefusal::NoVectors
        })?;
        let new = |(replaces, vector)| NewVector { replaces, chunk_id: self.id(), vector };
        Ok(ids.into_iter().zip(made.vectors).map(new).collect())
    }

    /// As it is stored, so that a replay tells the same.
    async fn reembedding_report(
        &self,
        scope: TenantScope,
        asset: &Asset,
        ingest: IngestId,
    ) -> Result<ReembeddingReport, Failure> {
        let id = asset.asset_id;
        let found = self.stores.knowledge.find_reembedding(scope, id, ingest).await?.ok_or(Failure::NotFound)?;
        let base = self.latest_base(scope, asset).await?;
        let embedding = self.stores.knowledge.embedding_of(scope, id, found.index_revision).await?;
        let warnings = self.index_warnings(scope, (id, found.index_revision), &base).await?;
        Ok(ReembeddingReport {
            index_revision: found.index_revision,
            is_complete: embedding == IndexEmbedding::Whole(found.embedded_by.clone()),
            embedded_by: found.embedded_by,
            chunk_count: found.chunk_count,
            warnings,
        })
    }
}
