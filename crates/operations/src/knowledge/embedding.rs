//! Which revision a vector search reads, and which model turns its query into a vector: the one that made the vectors of
//! that revision, whatever is configured now.

use super::RetrievalFailure;
use crate::Services;
use fairway_domain::{
    asset::content::SovereigntyProfile,
    execution::routing::Embedding,
    id::AssetId,
    knowledge::{
        IndexRevision, KnowledgeBase,
        ports::Within,
        retrieval::{EmbeddingModel, IndexEmbedding, IndexWarning},
    },
    store::StoreError,
    tenant::TenantScope,
};

/// A revision that can be searched by vectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VectorIndex {
    /// The revision.
    pub(crate) revision: IndexRevision,
    /// Whose vectors its pieces have.
    pub(crate) model: EmbeddingModel,
}

impl Services {
    /// A revision with the documents of the wanted one that can be searched by vectors, and its model. That is the wanted one
    /// where its model can be asked. Else it is another one that differs in its vectors alone: the last, because it has those
    /// of the newest model, or the first.
    pub(crate) async fn vector_index(
        &self,
        scope: TenantScope,
        (asset, wanted): (AssetId, IndexRevision),
        profile: Option<&SovereigntyProfile>,
    ) -> Result<VectorIndex, RetrievalFailure> {
        let refusal = match self.vector_index_at(scope, (asset, wanted), profile).await {
            Err(refusal) if refusal.is_of_model() => refusal,
            settled => return settled,
        };
        let same = self.stores.knowledge.same_documents(scope, asset, wanted).await?;
        let others = [same.last, same.first];
        for other in others.into_iter().filter(|other| *other != wanted) {
            match self.vector_index_at(scope, (asset, other), profile).await {
                Err(refusal) if refusal.is_of_model() => {}
                settled => return settled,
            }
        }
        Err(refusal)
    }

    async fn vector_index_at(
        &self,
        scope: TenantScope,
        (asset, revision): (AssetId, IndexRevision),
        profile: Option<&SovereigntyProfile>,
    ) -> Result<VectorIndex, RetrievalFailure> {
        let model = match self.stores.knowledge.embedding_of(scope, asset, revision).await? {
            IndexEmbedding::Empty => self.settings.knowledge.embedding.clone(),
            IndexEmbedding::Whole(model) => model,
            IndexEmbedding::Partial => return Err(RetrievalFailure::OtherModel),
        };
        if !self.provider.has_account(&model.account) {
            return Err(RetrievalFailure::NoAccount(model));
        }
        let residency = self.provider.residency(&model.account);
        match Embedding::of(profile, Self::embedding_route(&model), residency) {
            Embedding::Allowed => Ok(VectorIndex { revision, model }),
            refused @ Embedding::Refused { .. } => Err(RetrievalFailure::NoRoute(Box::new(refused))),
        }
    }

    /// The model that documents which are added at this revision get their vectors from: that of the index, so that the
    /// index stays whole whatever is configured now. Where the index has none that can be asked, it is the configured one.
    pub(super) async fn model_for_new_documents(
        &self,
        scope: TenantScope,
        (asset, revision): (AssetId, IndexRevision),
    ) -> Result<EmbeddingModel, StoreError> {
        match self.stores.knowledge.embedding_of(scope, asset, revision).await? {
            IndexEmbedding::Whole(model) if self.provider.has_account(&model.account) => Ok(model),
            IndexEmbedding::Whole(_) | IndexEmbedding::Empty | IndexEmbedding::Partial => {
                Ok(self.settings.knowledge.embedding.clone())
            }
        }
    }

    /// What whoever adds to an index has to know of a revision of it. A knowledge base that is searched by words alone has
    /// no vectors that anything could be said of.
    pub(super) async fn index_warnings(
        &self,
        scope: TenantScope,
        (asset, revision): (AssetId, IndexRevision),
        base: &KnowledgeBase,
    ) -> Result<Vec<IndexWarning>, StoreError> {
        if !base.retrieval.strategy.needs_vectors() {
            return Ok(Vec::new());
        }
        let within = Within { asset, revision, filters: base.retrieval.filters.clone(), most: 0 };
        let embedding = self.stores.knowledge.embedding_of(scope, asset, revision).await?;
        let coverage = self.stores.knowledge.vector_coverage(scope, &within).await?;
        Ok(IndexWarning::of(&embedding, &self.settings.knowledge.embedding, coverage))
    }
}
