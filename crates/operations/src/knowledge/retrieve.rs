//! Retrieval for runs: the contract is asked, with what the database says of it now, and then the index.

use super::embedding::VectorIndex;
use crate::Services;
use fairway_domain::{
    access::ActorRef,
    asset::content::SovereigntyProfile,
    execution::{provider::ProviderError, routing::Embedding},
    id::{AssetId, ChunkId, WorkspaceId},
    knowledge::{
        IndexRevision, KnowledgeBase, Strategy,
        contract::{AccessMode, Asked, ContractDecision, ContractStanding},
        ports::Within,
        retrieval::{Embedded, EmbeddingModel, Found, Hit, RetrievedChunk, readable, used},
    },
    search::Words,
    store::StoreError,
    tenant::TenantScope,
    time::Timestamp,
};
use std::collections::HashMap;
use tokio::time::Instant;

/// Of both lists of a hybrid retrieval, how many times as many pieces as are wanted.
const DEEPER: u32 = 4;

/// A contract that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct ContractQuestion<'a> {
    /// The knowledge base.
    pub asset: AssetId,
    /// What the bound version of it says.
    pub base: &'a KnowledgeBase,
    /// Who asks, from where and for what.
    pub asked: Asked<'a>,
}

/// What a run wants to know of a knowledge base.
#[derive(Clone, Copy, Debug)]
pub struct RetrievalRequest<'a> {
    /// The knowledge base.
    pub asset: AssetId,
    /// What the bound version of it says.
    pub base: &'a KnowledgeBase,
    /// The revision that the release was approved with, where it serves that one; else the present one is served.
    pub pinned: Option<IndexRevision>,
    /// Who asks: the actor itself and its groups.
    pub principals: &'a [ActorRef],
    /// From which workspace.
    pub workspace: WorkspaceId,
    /// For what.
    pub mode: AccessMode,
    /// The query.
    pub query: &'a str,
    /// Most pieces, where fewer are wanted than the knowledge base gives.
    pub top_k: Option<u32>,
    /// The profile that says which accounts may turn the query into a vector; `None` where any may.
    pub sovereignty: Option<&'a SovereigntyProfile>,
}

/// What was retrieved, with all that evidence says of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Retrieval {
    /// The knowledge base.
    pub asset: AssetId,
    /// Why it could be read.
    pub decision: ContractDecision,
    /// The revision of the index that was searched.
    pub index_revision: IndexRevision,
    /// How it was searched.
    pub strategy: Strategy,
    /// What was found, best first.
    pub chunks: Vec<RetrievedChunk>,
    /// Whether pieces that might have been found were not ranked: too many hold the query's words, or there are more than
    /// one vector search compares.
    pub capped: bool,
    /// What turning the query into a vector took, where that was done.
    pub embedded: Option<Embedded>,
    /// When.
    pub retrieved_at: Timestamp,
}

/// Why nothing was retrieved.
#[derive(Debug, thiserror::Error)]
pub enum RetrievalFailure {
    /// The contract does not allow it.
    #[error("the knowledge base's contract does not allow this")]
    Refused(ContractDecision),
    /// The index's pieces have vectors of several models, or some have none.
    #[error("the index was made by more than one embedding model")]
    OtherModel,
    /// The index was made by a model whose account is not configured any more.
    #[error("the account `{}` that made the index is not configured", .0.account)]
    NoAccount(EmbeddingModel),
    /// The query may not go to the account of the model that made the index.
    #[error("the query may not go to the account that made the index")]
    NoRoute(Box<Embedding>),
    /// The model gave no vector for the query.
    #[error("the query was not turned into a vector")]
    NoVector(#[from] ProviderError),
    /// The store could not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RetrievalFailure {
    /// The stable code of the failure; `None` where it is a fault of the server.
    #[must_use]
    pub const fn code(&self) -> Option<&'static str> {
        match self {
            Self::Refused(_) => Some(ContractDecision::REFUSED),
            Self::OtherModel | Self::NoAccount(_) => Some("embedding_mismatch"),
            Self::NoRoute(_) => Some("no_compliant_route"),
            Self::NoVector(error) => Some(error.code()),
            Self::Store(_) => None,
        }
    }

    /// Whether it is the model of the revision that stands in the way, so that another revision may do.
    pub(crate) const fn is_of_model(&self) -> bool {
        match self {
            Self::OtherModel | Self::NoAccount(_) | Self::NoRoute(_) => true,
            Self::Refused(_) | Self::NoVector(_) | Self::Store(_) => false,
        }
    }
}

impl Services {
    /// Decides contracts, in their order, by what the database says of them now.
    ///
    /// # Errors
    /// When the store does not answer; then nobody may read anything.
    pub async fn contract_decisions(
        &self,
        scope: TenantScope,
        questions: &[ContractQuestion<'_>],
    ) -> Result<Vec<ContractDecision>, StoreError> {
        let named = |question: &ContractQuestion<'_>| {
            let name = question.base.contract_id().unwrap_or_default();
            (question.asset, name.to_owned())
        };
        let contracts: Vec<(AssetId, String)> = questions.iter().map(named).collect();
        let standings = self.stores.knowledge.standings(scope, &contracts).await?;
        // Were there fewer answers than questions, the rest would be refused.
        let standings = standings.into_iter().chain(std::iter::repeat(ContractStanding::Unknown));
        Ok(questions.iter().zip(standings).map(|(one, standing)| one.base.decide(&one.asked, standing)).collect())
    }

    /// Retrieves pieces of documents for a run.
    ///
    /// # Errors
    /// When the contract refuses, the index cannot be searched as the knowledge base says, or a store or the model does
    /// not answer.
    pub async fn retrieve(
        &self,
        scope: TenantScope,
        request: &RetrievalRequest<'_>,
    ) -> Result<Retrieval, RetrievalFailure> {
        let RetrievalRequest { asset, base, pinned, principals, workspace, mode, query, top_k, sovereignty } = *request;
        let question = ContractQuestion { asset, base, asked: Asked { principals, workspace, mode } };
        // Nothing is looked for, and nobody asked, on behalf of somebody who may not read.
        self.allowed(scope, &question).await?;
        let present = self.stores.knowledge.present_revision(scope, asset).await?;
        let settings = &base.retrieval;
        let wanted = pinned.map_or(present, |pinned| pinned.min(present));
        let index = if settings.strategy.needs_vectors() {
            Some(self.vector_index(scope, (asset, wanted), sovereignty).await?)
        } else {
            None
        };
        let revision = index.as_ref().map_or(wanted, |index| index.revision);
        let most = top_k.map_or(settings.top_k, |wanted| wanted.min(settings.top_k));
        let within = Within { asset, revision, filters: settings.filters.clone(), most };
        let (found, embedded) = self.find(scope, (base, index.as_ref()), &within, readable(query)).await?;
        let found = found.best(most);
        let chunks = used(self.spelled_out(scope, asset, &found).await?, settings);
        // The search may have waited a minute for a model. What was read meanwhile is given to nobody unless the contract
        // is still in force now that it has been read.
        let decision = self.allowed(scope, &question).await?;
        Ok(Retrieval {
            asset,
            decision,
            index_revision: revision,
            strategy: settings.strategy,
            chunks,
            capped: found.capped,
            embedded,
            retrieved_at: self.clock.now(),
        })
    }

    /// The contract's decision, where it is yes.
    async fn allowed(
        &self,
        scope: TenantScope,
        question: &ContractQuestion<'_>,
    ) -> Result<ContractDecision, RetrievalFailure> {
        let decision = self.contract_decisions(scope, &[*question]).await?.pop();
        let decision = decision.unwrap_or_else(|| question.base.decide(&question.asked, ContractStanding::Unknown));
        if decision.is_allowed() { Ok(decision) } else { Err(RetrievalFailure::Refused(decision)) }
    }

    async fn find(
        &self,
        scope: TenantScope,
        (base, index): (&KnowledgeBase, Option<&VectorIndex>),
        within: &Within,
        query: &str,
    ) -> Result<(Found, Option<Embedded>), RetrievalFailure> {
        let words = Words::of([query]);
        match (base.retrieval.strategy, index) {
            (Strategy::Lexical, _) => Ok((self.stores.knowledge.by_words(scope, within, &words).await?, None)),
            (Strategy::Vector | Strategy::Hybrid, None) => Err(RetrievalFailure::OtherModel),
            (Strategy::Vector, Some(index)) => {
                let (found, embedded) = self.by_meaning(scope, (&index.model, within), query).await?;
                Ok((found, Some(embedded)))
            }
            (Strategy::Hybrid, Some(index)) => {
                let deeper = Within { most: within.most.saturating_mul(DEEPER), ..within.clone() };
                let (by_meaning, embedded) = self.by_meaning(scope, (&index.model, &deeper), query).await?;
                let by_words = self.stores.knowledge.by_words(scope, &deeper, &words).await?;
                let share = base.retrieval.hybrid_weight;
                Ok((Found::fused(&by_words, &by_meaning, share), Some(embedded)))
            }
        }
    }

    /// By the model that made the index's vectors: what two models mean cannot be compared.
    async fn by_meaning(
        &self,
        scope: TenantScope,
        (model, within): (&EmbeddingModel, &Within),
        query: &str,
    ) -> Result<(Found, Embedded), RetrievalFailure> {
        let began = Instant::now();
        let made = self.vectors(model, vec![query.to_owned()]).await?;
        let latency = began.elapsed();
        let vector = made.vectors.first().ok_or(ProviderError::Malformed)?;
        let found = self.stores.knowledge.by_meaning(scope, within, vector).await?;
        let model = model.clone();
        Ok((found, Embedded { model, tokens_in: made.tokens_in, cost_micros: made.cost_micros, latency }))
    }

    /// What was found, with what it says, in the same order. What was erased meanwhile is not among it.
    async fn spelled_out(
        &self,
        scope: TenantScope,
        asset: AssetId,
        found: &Found,
    ) -> Result<Vec<RetrievedChunk>, StoreError> {
        let ids: Vec<ChunkId> = found.hits.iter().map(|hit| hit.chunk_id).collect();
        let chunks = self.stores.knowledge.chunks(scope, asset, &ids).await?;
        let mut chunks: HashMap<ChunkId, RetrievedChunk> =
            chunks.into_iter().map(|chunk| (chunk.chunk_id, chunk)).collect();
        let scored = |hit: &Hit| chunks.remove(&hit.chunk_id).map(|chunk| RetrievedChunk { score: hit.score, ..chunk });
        Ok(found.hits.iter().filter_map(scored).collect())
    }
}
