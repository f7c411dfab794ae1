//! Retrieval: the selection of chunks for a query.
//!
//! In full-text search, the score of a chunk is the weighted share of the query's words that the chunk contains. Rare
//! words have more weight. A frequent word would make almost every chunk a candidate. The search therefore ranks only a
//! limited number of chunks for frequent words, and marks the result as capped.

use super::{RetrievalSettings, document::DocumentId};
use crate::{
    asset::canonical::Checksum,
    id::{ChunkId, DocumentEntryId},
};
use std::{cmp::Ordering, collections::HashMap, time::Duration};

/// The maximum length of a query, in bytes; the rest of a longer query is ignored.
pub const MAX_QUERY_BYTES: usize = 32 << 10;
/// The maximum number of words of a query. If a query has more words, only the rarest words count.
pub const MAX_QUERY_WORDS: usize = 32;
/// The maximum number of candidate chunks of one index lookup.
pub const MAX_CANDIDATES: u32 = 500;
/// The maximum number of vectors that one query compares.
pub const MAX_COMPARED_VECTORS: u32 = 20_000;
/// The maximum bytes of vectors that one query compares, because all compared vectors are in memory at once.
pub const MAX_COMPARED_BYTES: usize = 16 << 20;
/// The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009).
const RANK_FUSION_CONSTANT: f64 = 60.0;

/// An embedding model, as a configured account offers it. Vectors of different models are not comparable.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EmbeddingModel {
    /// The name of the configured provider account.
    pub account: String,
    /// The provider's name of the model.
    pub model: String,
}

/// Which embedding models created the vectors of an index revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexEmbeddingModels {
    /// The index has no chunks.
    Empty,
    /// Every chunk has a vector of this model.
    Uniform(EmbeddingModel),
    /// The chunks have vectors of several models, or some have none. Vector search is refused.
    Mixed,
}

/// How many chunks of an index revision a vector search compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VectorSearchCoverage {
    /// The maximum number of chunks that one search compares, oldest first.
    pub limit: u32,
    /// Whether the search compares every chunk that it could return.
    pub is_complete: bool,
}

/// A warning about an index, for the authors who add documents to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexWarning {
    /// The index has more chunks than one vector search compares.
    VectorSearchCapped {
        /// The maximum number of chunks that one search compares.
        limit: u32,
    },
    /// The chunks have vectors of several models, or some have none.
    MixedEmbedding,
    /// All chunks have vectors of one model, which is not the configured one. New documents are embedded with the model
    /// of the chunks.
    ModelKept,
}

impl IndexWarning {
    /// Lists the warnings about the index of a knowledge base that uses vector search.
    #[must_use]
    pub fn of(
        embedding: &IndexEmbeddingModels,
        configured: &EmbeddingModel,
        coverage: VectorSearchCoverage,
    ) -> Vec<Self> {
        let model = match embedding {
            IndexEmbeddingModels::Empty => None,
            IndexEmbeddingModels::Uniform(model) => (model != configured).then_some(Self::ModelKept),
            IndexEmbeddingModels::Mixed => Some(Self::MixedEmbedding),
        };
        let capped = (!coverage.is_complete).then_some(Self::VectorSearchCapped { limit: coverage.limit });
        model.into_iter().chain(capped).collect()
    }

    /// The stable code of the warning.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::VectorSearchCapped { .. } => "vector_search_capped",
            Self::MixedEmbedding => "embedding_mismatch",
            Self::ModelKept => "embedding_model_kept",
        }
    }

    /// The message for people, which suggests a remedy.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Self::VectorSearchCapped { limit } => format!(
                "vector search compares only the {limit} oldest chunks; narrow the knowledge base with \
                 `retrieval.filters`, split it, or use full-text search"
            ),
            Self::MixedEmbedding => {
                "some chunks have vectors of another embedding model, or none, so vector search is refused; embed the \
                 documents again"
                    .to_owned()
            }
            Self::ModelKept => {
                "the index keeps its original embedding model; embed the documents again to switch to the configured \
                 one"
                .to_owned()
            }
        }
    }
}

/// The model that embedded a query, with the tokens, cost and duration of the call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueryEmbeddingCall {
    /// The model that embedded the query.
    pub model: EmbeddingModel,
    /// The input tokens, as the provider counts them.
    pub tokens_in: u64,
    /// The cost in millionths of the account's currency; `None` if no prices are configured for the account.
    pub cost_micros: Option<u64>,
    /// The duration of the embedding call.
    pub latency: Duration,
}

/// A word of a query, with its weight in the score.
#[derive(Clone, PartialEq, Debug)]
pub struct WeightedWord {
    /// The word, which consists of letters and digits only.
    pub word: String,
    /// The share of the word in the score. The shares of all words of a query add up to one.
    pub weight: f64,
}

/// The index lookups that find candidates for the words of a query.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WordSearchPlan {
    /// Every word that counts for the score, including words that no chunk contains.
    pub words: Vec<WeightedWord>,
    /// The lookups. Each lookup returns at most [`MAX_CANDIDATES`] chunks that contain all of its words.
    pub lookups: Vec<Vec<String>>,
    /// Whether the plan leaves some matching chunks unranked.
    pub is_capped: bool,
}

impl WordSearchPlan {
    /// Plans the lookups for words, each given with the number of chunks that contain it. `total` is the number of all
    /// chunks.
    ///
    /// Rare words are looked up first. When the limit of candidates is reached, the remaining words are frequent and
    /// not looked up alone. The best chunks for them probably contain several of these words, so further lookups
    /// combine the words.
    #[must_use]
    pub fn plan(mut words: Vec<(String, u64)>, total: u64) -> Self {
        words.sort_by(|(left_word, left_count), (right_word, right_count)| {
            left_count.cmp(right_count).then_with(|| left_word.cmp(right_word))
        });
        words.truncate(MAX_QUERY_WORDS);
        let weights: Vec<f64> = words.iter().map(|(_, chunks)| inverse_document_frequency(*chunks, total)).collect();
        let sum: f64 = weights.iter().sum();
        let present: Vec<&(String, u64)> = words.iter().filter(|(_, chunks)| *chunks > 0).collect();
        let (mut lookups, mut candidates) = (Vec::new(), 0_u64);
        let mut frequent: &[&(String, u64)] = &[];
        for (index, (word, chunks)) in present.iter().enumerate() {
            lookups.push(vec![word.clone()]);
            candidates = candidates.saturating_add(*chunks);
            if candidates >= u64::from(MAX_CANDIDATES) {
                frequent = present.get(index..).unwrap_or_default();
                break;
            }
        }
        let words_of = |entries: &[&(String, u64)]| entries.iter().map(|(word, _)| word.clone()).collect::<Vec<_>>();
        if let [first, second, rest @ ..] = frequent {
            lookups.push(words_of(&[*first, *second]));
            if !rest.is_empty() {
                lookups.push(words_of(frequent));
            }
        }
        let is_capped = frequent.len() > 1 || frequent.iter().any(|(_, chunks)| *chunks > u64::from(MAX_CANDIDATES));
        let weighted = |((word, _), weight): ((String, u64), f64)| WeightedWord { word, weight: weight / sum };
        Self { words: words.into_iter().zip(weights).map(weighted).collect(), lookups, is_capped }
    }
}

/// Inverse document frequency in the variant of BM25 with `ln(1 + x)`, in which frequent words have no negative weight.
#[expect(clippy::cast_precision_loss, reason = "a count of chunks need not be exact here")]
fn inverse_document_frequency(chunks: u64, total: u64) -> f64 {
    let chunks_without_word = total.saturating_sub(chunks) as f64;
    ((chunks_without_word + 0.5) / (chunks as f64 + 0.5)).ln_1p()
}

/// A chunk that a search found, with its score.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SearchHit {
    /// The identifier of the chunk that was found.
    pub chunk_id: ChunkId,
    /// The score, 0 to 1; a higher score is better.
    pub score: f64,
}

/// The results of a search, best first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SearchResults {
    /// The found chunks with their scores.
    pub hits: Vec<SearchHit>,
    /// Whether some matching chunks were not ranked because of a limit.
    pub is_capped: bool,
}

impl SearchResults {
    /// The best results, at most `limit`. Results with equal scores are ordered by identifier, so that the order
    /// is deterministic.
    #[must_use]
    pub fn top(mut self, limit: u32) -> Self {
        self.hits.sort_by(|left, right| {
            let by_score = right.score.partial_cmp(&left.score).unwrap_or(Ordering::Equal);
            by_score.then_with(|| left.chunk_id.cmp(&right.chunk_id))
        });
        self.hits.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        self
    }

    /// Combines the results of a text search and a vector search by reciprocal rank fusion. `vector_weight` is the
    /// weight of the vector search. A chunk that is first in both searches has the score one.
    #[must_use]
    pub fn fuse(text_results: &Self, vector_results: &Self, vector_weight: f64) -> Self {
        let mut scores: HashMap<ChunkId, f64> = HashMap::new();
        for (results, weight) in [(text_results, 1.0 - vector_weight), (vector_results, vector_weight)] {
            let mut rank = RANK_FUSION_CONSTANT;
            for hit in &results.hits {
                rank += 1.0;
                *scores.entry(hit.chunk_id).or_default() += weight * (RANK_FUSION_CONSTANT + 1.0) / rank;
            }
        }
        let hits = scores.into_iter().map(|(chunk_id, score)| SearchHit { chunk_id, score }).collect();
        Self { hits, is_capped: text_results.is_capped || vector_results.is_capped }.top(u32::MAX)
    }
}

/// A retrieved chunk with its text.
#[derive(Clone, PartialEq, Debug)]
pub struct RetrievedChunk {
    /// The identifier of the chunk, as evidence records it.
    pub chunk_id: ChunkId,
    /// The stored entry of the document that contains the chunk.
    pub entry_id: DocumentEntryId,
    /// The identifier that the client chose for the document; citations contain it.
    pub document_id: DocumentId,
    /// The title of the document, if it has one.
    pub title: Option<String>,
    /// The index of the chunk within the document, from zero.
    pub index: u32,
    /// The text of the chunk.
    pub text: String,
    /// The checksum of the text.
    pub digest: Checksum,
    /// The number of tokens of the chunk.
    pub tokens: u32,
    /// The score of the chunk, 0 to 1; a higher score is better.
    pub score: f64,
}

/// The maximum number of vectors with this number of dimensions that one query compares. Both [`MAX_COMPARED_BYTES`]
/// and [`MAX_COMPARED_VECTORS`] limit it.
#[must_use]
pub fn max_compared_vectors(dimensions: usize) -> u32 {
    let bytes = dimensions.saturating_mul(size_of::<f32>()).max(1);
    u32::try_from(MAX_COMPARED_BYTES / bytes).map_or(MAX_COMPARED_VECTORS, |vectors| vectors.min(MAX_COMPARED_VECTORS))
}

/// Selects the chunks with a sufficient score until the token limit is reached. The first of these chunks is selected
/// even if it alone exceeds the limit.
#[must_use]
pub fn select_chunks(chunks: Vec<RetrievedChunk>, settings: &RetrievalSettings) -> Vec<RetrievedChunk> {
    let mut tokens = 0_u32;
    let mut selected: Vec<RetrievedChunk> = Vec::new();
    for chunk in chunks.into_iter().filter(|chunk| chunk.score >= settings.score_threshold) {
        tokens = tokens.saturating_add(chunk.tokens);
        if !selected.is_empty() && settings.max_context_tokens.is_some_and(|limit| tokens > limit) {
            break;
        }
        selected.push(chunk);
    }
    selected
}

/// Truncates a query to the maximum length at a character boundary.
#[must_use]
pub fn truncate_query(query: &str) -> &str {
    let end = query.floor_char_boundary(MAX_QUERY_BYTES);
    query.get(..end).unwrap_or(query)
}

/// Scales a vector to length one; `None` for a zero vector or a vector with a non-finite number.
#[must_use]
pub fn normalize_vector(vector: &[f32]) -> Option<Vec<f32>> {
    let length = vector.iter().map(|component| f64::from(*component).powi(2)).sum::<f64>().sqrt();
    #[expect(clippy::cast_possible_truncation, reason = "the parts of a vector of length one are within ±1")]
    let scaled = |component: &f32| (f64::from(*component) / length) as f32;
    (length.is_finite() && length > 0.0).then(|| vector.iter().map(scaled).collect())
}

/// The cosine similarity of two vectors of length one. Negative similarities count as zero.
#[must_use]
pub fn unit_vector_similarity(left: &[f32], right: &[f32]) -> f64 {
    let product: f32 = left.iter().zip(right).map(|(left, right)| left * right).sum();
    f64::from(product.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
