//! Knowledge bases: ingestion and re-embedding of documents, access contracts and retrieval.

mod contract_revocation;
mod embedding_selection;
mod ingest;
mod query;
mod reembed;
mod retrieve;
mod served_index_revisions;

pub use ingest::IngestReport;
pub use query::KnowledgeQuery;
pub use reembed::ReembeddingReport;
pub(crate) use retrieve::RetrievedChunksRequest;
pub use retrieve::{ContractCheck, Retrieval, RetrievalFailure, RetrievalRequest};
pub use served_index_revisions::ServedRevisions;

use crate::{
    Failure, Settings, Stores,
    access::ScopeResolver,
    asset::{Artifacts, Assets},
    commit_context::CommitContext,
    environment::Environments,
    idempotency::KeyedRequests,
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    asset::ports::{AssetStore, VersionStore},
    audit::AuditStore,
    execution::provider::{EmbeddingCall, Provider, ProviderError, RouteTarget},
    knowledge::{
        ports::{ChunkSearch, Chunker, ContractRevocationStore, DocumentFetcher, DocumentStore, IndexRevisionStore},
        retrieval::{EmbeddingModel, normalize_vector},
    },
};
use std::sync::Arc;

/// Maximum number of texts in one call to an embedding model.
const MAX_TEXTS_PER_CALL: usize = 64;
/// Maximum number of dimensions of an embedding vector.
const MAX_DIMENSIONS: usize = 8_192;

/// Dependencies of the knowledge base operations other than stores.
#[derive(Clone, Debug)]
pub struct KnowledgeAdapters {
    /// Splits texts into chunks.
    pub splitter: Arc<dyn Chunker>,
    /// Fetches documents from addresses.
    pub fetcher: Arc<dyn DocumentFetcher>,
    /// The configured embedding model. Knowledge bases whose index has vectors of another available model keep that
    /// model.
    pub embedding: EmbeddingModel,
}

/// Normalized vectors of some texts, with the tokens and cost of computing them.
struct EmbeddedTexts {
    vectors: Vec<Vec<f32>>,
    tokens_in: u64,
    cost_micros: Option<u64>,
}

/// Operations on knowledge bases: ingest, retrieval, re-embedding, revocation.
#[derive(Clone)]
pub struct KnowledgeBases {
    context: CommitContext,
    provider: Arc<dyn Provider>,
    settings: Arc<Settings>,
    asset_store: Arc<dyn AssetStore>,
    version_store: Arc<dyn VersionStore>,
    audit_store: Arc<dyn AuditStore>,
    document_store: Arc<dyn DocumentStore>,
    index_revision_store: Arc<dyn IndexRevisionStore>,
    chunk_search: Arc<dyn ChunkSearch>,
    contract_revocation_store: Arc<dyn ContractRevocationStore>,
    scope_resolver: Arc<ScopeResolver>,
    keyed_requests: Arc<KeyedRequests>,
    artifacts: Arc<Artifacts>,
    environments: Arc<Environments>,
    assets: Arc<Assets>,
}

impl KnowledgeBases {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        environments: &Arc<Environments>,
        assets: &Arc<Assets>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            provider: Arc::clone(&shared.provider),
            settings: Arc::clone(&shared.settings),
            asset_store: Arc::clone(&stores.assets),
            version_store: Arc::clone(&stores.versions),
            audit_store: Arc::clone(&stores.audit),
            document_store: Arc::clone(&stores.documents),
            index_revision_store: Arc::clone(&stores.index_revisions),
            chunk_search: Arc::clone(&stores.chunk_search),
            contract_revocation_store: Arc::clone(&stores.contract_revocations),
            scope_resolver: Arc::clone(&common.scope_resolver),
            keyed_requests: Arc::clone(&common.keyed_requests),
            artifacts: Arc::clone(&common.artifacts),
            environments: Arc::clone(environments),
            assets: Arc::clone(assets),
        }
    }
}

impl KnowledgeBases {
    /// Returns the model route by which an embedding model is called.
    fn embedding_route(model: &EmbeddingModel) -> RouteTarget {
        let EmbeddingModel { account, model } = model.clone();
        RouteTarget { route_id: "embedding".to_owned(), provider: account.clone(), model, account_slot: account }
    }

    /// Embeds texts; the vectors have the order of the texts.
    async fn embed_texts(&self, model: &EmbeddingModel, texts: Vec<String>) -> Result<EmbeddedTexts, ProviderError> {
        let mut embedded_texts =
            EmbeddedTexts { vectors: Vec::with_capacity(texts.len()), tokens_in: 0, cost_micros: None };
        for batch in texts.chunks(MAX_TEXTS_PER_CALL) {
            let call = EmbeddingCall { route: Self::embedding_route(model), texts: batch.to_vec() };
            let response = self.provider.embed(&call).await.map_err(|failure| failure.error)?;
            if response.vectors.len() != batch.len() {
                return Err(ProviderError::Malformed);
            }
            for vector in &response.vectors {
                let length = embedded_texts.vectors.first().unwrap_or(vector).len();
                let is_valid_length = vector.len() == length && length <= MAX_DIMENSIONS;
                let vector = normalize_vector(vector).filter(|_| is_valid_length).ok_or(ProviderError::Malformed)?;
                embedded_texts.vectors.push(vector);
            }
            embedded_texts.tokens_in = embedded_texts.tokens_in.saturating_add(response.tokens_in);
            embedded_texts.cost_micros = match (embedded_texts.cost_micros, response.cost_micros) {
                (Some(total), Some(cost)) => Some(total.saturating_add(cost)),
                (total, cost) => total.or(cost),
            };
        }
        Ok(embedded_texts)
    }
}

/// Returns the failure for stored content that the schema of knowledge bases would refuse.
const fn invalid_base() -> Failure {
    Failure::Inconsistent("the stored content of a knowledge base is invalid")
}
