//! Retrieval: evaluates the access contract by its current state, and then searches the index.

use super::embedding_selection::VectorIndex;
use crate::{Failure, knowledge::KnowledgeBases};
use fairway_domain::{
    access::{ActorRef, Caller},
    asset::content::SovereigntyProfile,
    execution::{provider::ProviderError, routing::EmbeddingPermission},
    id::{AssetId, ChunkId, WorkspaceId},
    knowledge::{
        IndexRevision, KnowledgeBase, RetrievalStrategy,
        contract::{AccessMode, ContractDecision, ContractState, KnowledgeAccessRequest},
        ports::SearchScope,
        retrieval::{
            EmbeddingModel, QueryEmbeddingCall, RetrievedChunk, SearchHit, SearchResults, select_chunks, truncate_query,
        },
    },
    search_words::WordSet,
    store::StoreError,
    tenant::TenantScope,
    time::Timestamp,
};
use std::collections::{BTreeSet, HashMap};
use tokio::time::Instant;

/// Hybrid search combines the candidates of a text search and a vector search. Each list has this multiple of the
/// requested number of chunks.
const HYBRID_FACTOR: u32 = 4;

/// One decision to make about an access contract.
#[derive(Clone, Copy, Debug)]
pub struct ContractCheck<'a> {
    /// The knowledge base that owns the contract.
    pub asset: AssetId,
    /// The version of the knowledge base that contains the contract.
    pub base: &'a KnowledgeBase,
    /// The principal, workspace and access mode of the attempted access.
    pub request: KnowledgeAccessRequest<'a>,
}

/// The parameters of a retrieval.
#[derive(Clone, Copy, Debug)]
pub struct RetrievalRequest<'a> {
    /// The knowledge base to search.
    pub asset: AssetId,
    /// The version of the knowledge base whose settings and contract apply.
    pub base: &'a KnowledgeBase,
    /// The index revision that the release pins; `None` for the current revision.
    pub pinned: Option<IndexRevision>,
    /// The actor and its groups; the access contract decides about them.
    pub principals: &'a [ActorRef],
    /// The workspace from which the principals access the knowledge base.
    pub workspace: WorkspaceId,
    /// The purpose of the access; a contract allows each purpose separately.
    pub mode: AccessMode,
    /// The query text.
    pub query: &'a str,
    /// Maximum number of chunks; it cannot exceed the limit of the knowledge base.
    pub top_k: Option<u32>,
    /// The sovereignty profile that restricts the accounts to which the query may be sent; `None` for no restriction.
    pub sovereignty: Option<&'a SovereigntyProfile>,
}

/// The result of a retrieval, with its evidence.
#[derive(Clone, PartialEq, Debug)]
pub struct Retrieval {
    /// The knowledge base that was searched.
    pub asset: AssetId,
    /// The decision of the access contract.
    pub decision: ContractDecision,
    /// The index revision that was searched.
    pub index_revision: IndexRevision,
    /// The search strategy: by text, by vectors, or hybrid.
    pub strategy: RetrievalStrategy,
    /// The chunks, best first.
    pub chunks: Vec<RetrievedChunk>,
    /// Whether the search left some candidates unranked. Either too many chunks contain the words of the query, or the
    /// index has more vectors than one search compares.
    pub is_capped: bool,
    /// The embedding of the query, if the search used vectors.
    pub query_embedding: Option<QueryEmbeddingCall>,
    /// The time at which the retrieval was completed.
    pub retrieved_at: Timestamp,
}

/// Reason why a retrieval failed.
#[derive(Debug, thiserror::Error)]
pub enum RetrievalFailure {
    /// The access contract refuses the retrieval.
    #[error("the knowledge base's contract does not allow this")]
    Refused(ContractDecision),
    /// The vectors of the index belong to several models, or chunks lack vectors.
    #[error("the index has vectors of more than one embedding model")]
    MixedModels,
    /// The account of the model that created the index is no longer configured.
    #[error("the account `{}` that made the index is not configured", .0.account)]
    NoAccount(EmbeddingModel),
    /// The sovereignty profile forbids sending the query to the account of the model that created the index.
    #[error("the query must not be sent to the account that made the index")]
    NoRoute(Box<EmbeddingPermission>),
    /// The model returned no vector for the query.
    #[error("the query could not be embedded")]
    EmbeddingFailed(#[from] ProviderError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RetrievalFailure {
    /// The stable code of the failure; `None` for a fault of the server.
    #[must_use]
    pub const fn code(&self) -> Option<&'static str> {
        match self {
            Self::Refused(_) => Some(ContractDecision::REFUSED_CODE),
            Self::MixedModels | Self::NoAccount(_) => Some("embedding_mismatch"),
            Self::NoRoute(_) => Some("no_compliant_route"),
            Self::EmbeddingFailed(error) => Some(error.code()),
            Self::Store(_) => None,
        }
    }

    /// Whether the failure comes from the embedding model of the index revision. The search of another revision may
    /// then succeed.
    pub(crate) const fn is_model_mismatch(&self) -> bool {
        match self {
            Self::MixedModels | Self::NoAccount(_) | Self::NoRoute(_) => true,
            Self::Refused(_) | Self::EmbeddingFailed(_) | Self::Store(_) => false,
        }
    }
}

/// Request for chunks that the result of a run cites, from one knowledge base.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetrievedChunksRequest<'r> {
    /// The knowledge base that contains the chunks.
    pub(crate) asset: AssetId,
    /// The identifiers of the contracts that allowed the run to retrieve the chunks.
    pub(crate) contracts: &'r BTreeSet<String>,
    /// The identifiers of the chunks that the run retrieved.
    pub(crate) chunks: &'r [ChunkId],
}

impl KnowledgeBases {
    /// Returns the decisions of access contracts in their current state, in the order of `checks`.
    ///
    /// # Errors
    /// When the store fails. The calling code must then allow no access.
    pub async fn contract_decisions(
        &self,
        scope: TenantScope,
        checks: &[ContractCheck<'_>],
    ) -> Result<Vec<ContractDecision>, StoreError> {
        let contract_key = |check: &ContractCheck<'_>| {
            let name = check.base.contract_id().unwrap_or_default();
            (check.asset, name.to_owned())
        };
        let contracts: Vec<(AssetId, String)> = checks.iter().map(contract_key).collect();
        let states = self.contract_revocation_store.contract_states(scope, &contracts).await?;
        // If the store returns too few states, the remaining contracts count as unknown, so they refuse.
        let states = states.into_iter().chain(std::iter::repeat(ContractState::Unknown));
        Ok(checks.iter().zip(states).map(|(check, state)| check.base.decide_access(&check.request, state)).collect())
    }

    /// Returns chunks that a run retrieved, in any order and without erased chunks. Returns `None` if the current
    /// access contract does not allow the caller to retrieve in that workspace. Also returns `None` if a contract that
    /// allowed the run's retrieval is no longer in force.
    ///
    /// # Errors
    /// When a store fails.
    pub(crate) async fn read_chunks(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        retrieved: RetrievedChunksRequest<'_>,
    ) -> Result<Option<Vec<RetrievedChunk>>, Failure> {
        let scope = TenantScope::for_caller(caller);
        let RetrievedChunksRequest { asset, contracts, chunks } = retrieved;
        let contracts: Vec<(AssetId, String)> = contracts.iter().map(|name| (asset, name.clone())).collect();
        let states = self.contract_revocation_store.contract_states(scope, &contracts).await?;
        if states.len() < contracts.len() || states.iter().any(|state| *state != ContractState::InForce) {
            return Ok(None);
        }
        let Some(asset) = self.asset_store.find(scope, asset).await? else { return Ok(None) };
        let base = self.latest_base(scope, &asset).await?;
        let principals = caller.principals();
        let request = KnowledgeAccessRequest { principals: &principals, workspace, mode: AccessMode::Retrieve };
        let check = ContractCheck { asset: asset.asset_id, base: &base, request };
        let decision = self.contract_decisions(scope, &[check]).await?.pop();
        if !decision.is_some_and(|decision| decision.is_allowed()) {
            return Ok(None);
        }
        Ok(Some(self.chunk_search.find_chunks(scope, asset.asset_id, chunks).await?))
    }

    /// Retrieves the chunks that match a query best.
    ///
    /// # Errors
    /// In these cases: the access contract refuses; the index cannot be searched with the strategy of the knowledge
    /// base; a store or the model fails.
    pub async fn retrieve(
        &self,
        scope: TenantScope,
        request: &RetrievalRequest<'_>,
    ) -> Result<Retrieval, RetrievalFailure> {
        let RetrievalRequest { asset, base, pinned, principals, workspace, mode, query, top_k, sovereignty } = *request;
        let check = ContractCheck { asset, base, request: KnowledgeAccessRequest { principals, workspace, mode } };
        // The contract is checked before the search, so that a refused caller uses neither the index nor the model.
        self.require_contract(scope, &check).await?;
        let current_revision = self.index_revision_store.current_revision(scope, asset).await?;
        let settings = &base.retrieval;
        let searched_revision = pinned.map_or(current_revision, |pinned| pinned.min(current_revision));
        let index = if settings.strategy.needs_vectors() {
            Some(self.vector_index(scope, asset, searched_revision, sovereignty).await?)
        } else {
            None
        };
        let revision = index.as_ref().map_or(searched_revision, |index| index.revision);
        let limit = top_k.map_or(settings.top_k, |requested| requested.min(settings.top_k));
        let search_scope = SearchScope { asset, revision, filters: settings.filters.clone(), limit };
        let (hits, embedding) =
            self.search_index(scope, base, index.as_ref(), &search_scope, truncate_query(query)).await?;
        let hits = hits.top(limit);
        let chunks = select_chunks(self.load_chunks(scope, asset, &hits).await?, settings);
        // The search may have waited a minute for a model. The contract is checked again, because it may have been
        // revoked since.
        let decision = self.require_contract(scope, &check).await?;
        Ok(Retrieval {
            asset,
            decision,
            index_revision: revision,
            strategy: settings.strategy,
            chunks,
            is_capped: hits.is_capped,
            query_embedding: embedding,
            retrieved_at: self.context.clock.now(),
        })
    }

    /// Returns the contract's decision if it allows access; a decision that refuses access is the error.
    async fn require_contract(
        &self,
        scope: TenantScope,
        check: &ContractCheck<'_>,
    ) -> Result<ContractDecision, RetrievalFailure> {
        let decision = self.contract_decisions(scope, &[*check]).await?.pop();
        let decision = decision.unwrap_or_else(|| check.base.decide_access(&check.request, ContractState::Unknown));
        if decision.is_allowed() { Ok(decision) } else { Err(RetrievalFailure::Refused(decision)) }
    }

    async fn search_index(
        &self,
        scope: TenantScope,
        base: &KnowledgeBase,
        index: Option<&VectorIndex>,
        search_scope: &SearchScope,
        query: &str,
    ) -> Result<(SearchResults, Option<QueryEmbeddingCall>), RetrievalFailure> {
        let query_words = WordSet::from_texts([query]);
        match (base.retrieval.strategy, index) {
            (RetrievalStrategy::Lexical, _) => {
                Ok((self.chunk_search.text_search(scope, search_scope, &query_words).await?, None))
            }
            (RetrievalStrategy::Vector | RetrievalStrategy::Hybrid, None) => Err(RetrievalFailure::MixedModels),
            (RetrievalStrategy::Vector, Some(index)) => {
                let (hits, embedding) = self.vector_search(scope, &index.model, search_scope, query).await?;
                Ok((hits, Some(embedding)))
            }
            (RetrievalStrategy::Hybrid, Some(index)) => {
                let candidate_scope =
                    SearchScope { limit: search_scope.limit.saturating_mul(HYBRID_FACTOR), ..search_scope.clone() };
                let (vector_hits, embedding) = self.vector_search(scope, &index.model, &candidate_scope, query).await?;
                let text_hits = self.chunk_search.text_search(scope, &candidate_scope, &query_words).await?;
                let weight = base.retrieval.hybrid_weight;
                Ok((SearchResults::fuse(&text_hits, &vector_hits, weight), Some(embedding)))
            }
        }
    }

    /// Searches vectors with the embedding model that created the index, because vectors of different models cannot be
    /// compared.
    async fn vector_search(
        &self,
        scope: TenantScope,
        model: &EmbeddingModel,
        search_scope: &SearchScope,
        query: &str,
    ) -> Result<(SearchResults, QueryEmbeddingCall), RetrievalFailure> {
        let started_at = Instant::now();
        let embedded = self.embed_texts(model, vec![query.to_owned()]).await?;
        let latency = started_at.elapsed();
        let vector = embedded.vectors.first().ok_or(ProviderError::Malformed)?;
        let hits = self.chunk_search.vector_search(scope, search_scope, vector).await?;
        let model = model.clone();
        Ok((
            hits,
            QueryEmbeddingCall { model, tokens_in: embedded.tokens_in, cost_micros: embedded.cost_micros, latency },
        ))
    }

    /// Returns the chunks with their texts, in the same order. Chunks that were erased after the search are omitted.
    async fn load_chunks(
        &self,
        scope: TenantScope,
        asset: AssetId,
        search_results: &SearchResults,
    ) -> Result<Vec<RetrievedChunk>, StoreError> {
        let ids: Vec<ChunkId> = search_results.hits.iter().map(|hit| hit.chunk_id).collect();
        let chunks = self.chunk_search.find_chunks(scope, asset, &ids).await?;
        let mut chunks: HashMap<ChunkId, RetrievedChunk> =
            chunks.into_iter().map(|chunk| (chunk.chunk_id, chunk)).collect();
        let to_scored_chunk =
            |hit: &SearchHit| chunks.remove(&hit.chunk_id).map(|chunk| RetrievedChunk { score: hit.score, ..chunk });
        Ok(search_results.hits.iter().filter_map(to_scored_chunk).collect())
    }
}
