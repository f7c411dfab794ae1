//! Knowledge bases: documents go in, contracts are asked and ended, and runs retrieve.

mod documents;
mod embedding;
mod pin;
mod query;
mod reembed;
mod retrieve;
mod revocation;

pub use documents::IngestReport;
pub use pin::ServedRevisions;
pub use query::KnowledgeQuery;
pub use reembed::ReembeddingReport;
pub use retrieve::{ContractQuestion, Retrieval, RetrievalFailure, RetrievalRequest};

use crate::{Failure, Services};
use fairway_domain::{
    execution::provider::{EmbeddingCall, ProviderError, RoutePoint},
    knowledge::{
        ports::{Fetcher, Splitter},
        retrieval::{EmbeddingModel, direction},
    },
};
use std::sync::Arc;

/// Texts that are turned into vectors by one call.
const TEXTS_AT_ONCE: usize = 64;
/// Longest vector, in parts.
const LONGEST_VECTOR: usize = 8_192;

/// What knowledge bases work with besides their stores.
#[derive(Clone, Debug)]
pub struct KnowledgeSettings {
    /// Cuts texts.
    pub splitter: Arc<dyn Splitter>,
    /// Fetches texts from addresses.
    pub fetcher: Arc<dyn Fetcher>,
    /// Who turns texts into vectors, where a knowledge base has none of another model.
    pub embedding: EmbeddingModel,
}

/// Vectors of length one, and what they took.
struct Vectors {
    vectors: Vec<Vec<f32>>,
    tokens_in: u64,
    cost_micros: Option<u64>,
}

impl Services {
    /// By which route a model turns texts into vectors: queries go there too.
    fn embedding_route(model: &EmbeddingModel) -> RoutePoint {
        let EmbeddingModel { account, model } = model.clone();
        RoutePoint { route_id: "embedding".to_owned(), provider: account.clone(), model, account_slot: account }
    }

    /// Turns texts into vectors of a model, in their order.
    async fn vectors(&self, model: &EmbeddingModel, texts: Vec<String>) -> Result<Vectors, ProviderError> {
        let mut all = Vectors { vectors: Vec::with_capacity(texts.len()), tokens_in: 0, cost_micros: None };
        for portion in texts.chunks(TEXTS_AT_ONCE) {
            let call = EmbeddingCall { route: Self::embedding_route(model), texts: portion.to_vec() };
            let answer = self.provider.embed(&call).await.map_err(|failure| failure.error)?;
            if answer.vectors.len() != portion.len() {
                return Err(ProviderError::Malformed);
            }
            for vector in &answer.vectors {
                let length = all.vectors.first().unwrap_or(vector).len();
                let fits = vector.len() == length && length <= LONGEST_VECTOR;
                let vector = direction(vector).filter(|_| fits).ok_or(ProviderError::Malformed)?;
                all.vectors.push(vector);
            }
            all.tokens_in = all.tokens_in.saturating_add(answer.tokens_in);
            all.cost_micros = match (all.cost_micros, answer.cost_micros) {
                (Some(so_far), Some(more)) => Some(so_far.saturating_add(more)),
                (so_far, more) => so_far.or(more),
            };
        }
        Ok(all)
    }
}

/// What is stored of a knowledge base says something that its schema refuses.
const fn corrupt() -> Failure {
    Failure::Corrupt("a stored content is none of a knowledge base")
}
