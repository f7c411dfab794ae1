//! Selection of the index revision and the embedding model for vector search. A query uses the model that created the
//! vectors of the searched revision, regardless of the current configuration.

use super::RetrievalFailure;
use crate::knowledge::KnowledgeBases;
use fairway_domain::{
    asset::content::SovereigntyProfile,
    execution::routing::EmbeddingPermission,
    id::AssetId,
    knowledge::{
        IndexRevision, KnowledgeBase,
        ports::SearchScope,
        retrieval::{EmbeddingModel, IndexEmbeddingModels, IndexWarning},
    },
    store::StoreError,
    tenant::TenantScope,
};

/// An index revision that supports vector search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VectorIndex {
    /// The revision to search.
    pub(crate) revision: IndexRevision,
    /// The model that created the vectors of the revision.
    pub(crate) model: EmbeddingModel,
}

impl KnowledgeBases {
    /// Returns a searchable revision with the same documents as the requested revision, and its model. The requested
    /// revision is used if its model is available. Otherwise the last or the first revision that differs only in its
    /// vectors is used, in this order.
    pub(crate) async fn vector_index(
        &self,
        scope: TenantScope,
        asset: AssetId,
        requested: IndexRevision,
        profile: Option<&SovereigntyProfile>,
    ) -> Result<VectorIndex, RetrievalFailure> {
        let refusal = match self.vector_index_at(scope, asset, requested, profile).await {
            Err(refusal) if refusal.is_model_mismatch() => refusal,
            searchable => return searchable,
        };
        let same_documents = self.index_revision_store.revisions_with_same_documents(scope, asset, requested).await?;
        let equivalent = [same_documents.last, same_documents.first];
        for revision in equivalent.into_iter().filter(|revision| *revision != requested) {
            match self.vector_index_at(scope, asset, revision, profile).await {
                Err(refusal) if refusal.is_model_mismatch() => {}
                searchable => return searchable,
            }
        }
        Err(refusal)
    }

    async fn vector_index_at(
        &self,
        scope: TenantScope,
        asset: AssetId,
        revision: IndexRevision,
        profile: Option<&SovereigntyProfile>,
    ) -> Result<VectorIndex, RetrievalFailure> {
        let model = match self.index_revision_store.index_embedding(scope, asset, revision).await? {
            IndexEmbeddingModels::Empty => self.settings.knowledge.embedding.clone(),
            IndexEmbeddingModels::Uniform(model) => model,
            IndexEmbeddingModels::Mixed => return Err(RetrievalFailure::MixedModels),
        };
        if !self.provider.has_account(&model.account) {
            return Err(RetrievalFailure::NoAccount(model));
        }
        let residency = self.provider.residency(&model.account);
        match EmbeddingPermission::for_route(profile, Self::embedding_route(&model), residency) {
            EmbeddingPermission::Allowed => Ok(VectorIndex { revision, model }),
            refused @ EmbeddingPermission::Refused { .. } => Err(RetrievalFailure::NoRoute(Box::new(refused))),
        }
    }

    /// Returns the embedding model for documents that are added at this revision. It is the model of the index, so that
    /// all vectors have the same model. If that model is unavailable or the vectors have several models, it is the
    /// configured model.
    pub(super) async fn model_for_new_documents(
        &self,
        scope: TenantScope,
        asset: AssetId,
        revision: IndexRevision,
    ) -> Result<EmbeddingModel, StoreError> {
        match self.index_revision_store.index_embedding(scope, asset, revision).await? {
            IndexEmbeddingModels::Uniform(model) if self.provider.has_account(&model.account) => Ok(model),
            IndexEmbeddingModels::Uniform(_) | IndexEmbeddingModels::Empty | IndexEmbeddingModels::Mixed => {
                Ok(self.settings.knowledge.embedding.clone())
            }
        }
    }

    /// Returns warnings about a revision for the author of an ingest; there are none for a knowledge base without
    /// vector search.
    pub(super) async fn index_warnings(
        &self,
        scope: TenantScope,
        asset: AssetId,
        revision: IndexRevision,
        base: &KnowledgeBase,
    ) -> Result<Vec<IndexWarning>, StoreError> {
        if !base.retrieval.strategy.needs_vectors() {
            return Ok(Vec::new());
        }
        let search_scope = SearchScope { asset, revision, filters: base.retrieval.filters.clone(), limit: 0 };
        let embedding = self.index_revision_store.index_embedding(scope, asset, revision).await?;
        let coverage = self.index_revision_store.vector_coverage(scope, &search_scope).await?;
        Ok(IndexWarning::of(&embedding, &self.settings.knowledge.embedding, coverage))
    }
}
