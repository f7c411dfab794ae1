//! Retrieval: which pieces of documents a query is answered with.
//!
//! By words, a piece's score is the share of the query's words that it holds, where a word counts the more the fewer
//! pieces have it. Words that many pieces have would make every piece a candidate, so that of them only so many are
//! ranked; whoever asks is told.

use super::{RetrievalSettings, document::DocumentId};
use crate::{
    asset::canonical::Checksum,
    id::{ChunkId, DocumentEntryId},
};
use std::{cmp::Ordering, collections::HashMap, time::Duration};

/// Longest query, in bytes. What lies behind is not read.
pub const MAX_QUERY: usize = 32 << 10;
/// Most words of a query: of more, those that the fewest pieces have count.
pub const MOST_WORDS: usize = 32;
/// Most candidates that one look into the index brings.
pub const CANDIDATES: u32 = 500;
/// Most vectors that are compared for one query.
pub const COMPARED: u32 = 20_000;
/// Most bytes of vectors that are compared for one query: they are all in memory at once.
pub const COMPARED_BYTES: usize = 16 << 20;
/// The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009).
const FUSION: f64 = 60.0;

/// Whose vectors pieces have: an account and its model. Vectors of two models cannot be compared.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EmbeddingModel {
    /// The configured endpoint.
    pub account: String,
    /// The model's name there.
    pub model: String,
}

/// Whose vectors the pieces of a revision have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexEmbedding {
    /// There are no pieces.
    Empty,
    /// All of this model.
    Whole(EmbeddingModel),
    /// Those of several models, or some have none. They cannot be searched by vectors.
    Partial,
}

/// How much of a revision one vector search compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VectorCoverage {
    /// Most pieces that one search compares: those that were added first.
    pub limit: u32,
    /// Whether that is every piece that the search could find.
    pub is_complete: bool,
}

/// Something about an index that whoever adds to it has to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexWarning {
    /// A vector search compares at most so many pieces, and there are more.
    VectorSearchCapped {
        /// So many.
        limit: u32,
    },
    /// The pieces have vectors of several models, or some have none.
    PartialEmbedding,
    /// The index keeps the model that it was made by, although another one is configured now.
    OtherModel,
}

impl IndexWarning {
    /// What is to be said of an index, where searches use its vectors.
    #[must_use]
    pub fn of(embedding: &IndexEmbedding, configured: &EmbeddingModel, coverage: VectorCoverage) -> Vec<Self> {
        let model = match embedding {
            IndexEmbedding::Empty => None,
            IndexEmbedding::Whole(model) => (model != configured).then_some(Self::OtherModel),
            IndexEmbedding::Partial => Some(Self::PartialEmbedding),
        };
        let capped = (!coverage.is_complete).then_some(Self::VectorSearchCapped { limit: coverage.limit });
        model.into_iter().chain(capped).collect()
    }

    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::VectorSearchCapped { .. } => "vector_search_capped",
            Self::PartialEmbedding => "embedding_mismatch",
            Self::OtherModel => "embedding_model_kept",
        }
    }

    /// The same for people, with what can be done about it.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Self::VectorSearchCapped { limit } => format!(
                "a vector search compares the {limit} pieces that were added first and finds no other; narrow the \
                 knowledge base with `retrieval.filters`, divide it, or search it by words"
            ),
            Self::PartialEmbedding => {
                "some pieces have vectors of another embedding model, or none, so that searches by vectors are refused; \
                 embed the documents again"
                    .to_owned()
            }
            Self::OtherModel => {
                "the index keeps the embedding model that it was made by; embed the documents again to change to the \
                 configured one"
                    .to_owned()
            }
        }
    }
}

/// What turning a query into a vector took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Embedded {
    /// By whom.
    pub model: EmbeddingModel,
    /// Tokens read, as the provider counts them.
    pub tokens_in: u64,
    /// What the account's prices make of that.
    pub cost_micros: Option<u64>,
    /// How long the one call took.
    pub latency: Duration,
}

/// How many pieces hold a word, and what share of the score it brings.
#[derive(Clone, PartialEq, Debug)]
pub struct WeighedWord {
    /// The word: letters and digits alone.
    pub word: String,
    /// Its share; those of all words of a query make one.
    pub weight: f64,
}

/// How the index is asked for the words of a query.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Looks {
    /// Every word that counts, those that no piece holds too.
    pub words: Vec<WeighedWord>,
    /// The looks into the index: each brings pieces that hold all of these words, at most [`CANDIDATES`] of them.
    pub looks: Vec<Vec<String>>,
    /// Whether some pieces that hold a word of the query are not ranked.
    pub capped: bool,
}

impl Looks {
    /// Plans the looks for words, each with the number of pieces that hold it, among `total` pieces.
    ///
    /// Rare words come first, each with all its pieces. The first word that has more pieces than are ranked ends this: it
    /// brings as many as it may, and, because the best of its pieces hold the more frequent words too, it is looked for
    /// once more with them.
    #[must_use]
    pub fn plan(mut words: Vec<(String, u64)>, total: u64) -> Self {
        words.sort_by(|(one, few), (other, many)| few.cmp(many).then_with(|| one.cmp(other)));
        words.truncate(MOST_WORDS);
        let weights: Vec<f64> = words.iter().map(|(_, pieces)| rarity(*pieces, total)).collect();
        let sum: f64 = weights.iter().sum();
        let known: Vec<&(String, u64)> = words.iter().filter(|(_, pieces)| *pieces > 0).collect();
        let (mut looks, mut candidates) = (Vec::new(), 0_u64);
        let mut frequent: &[&(String, u64)] = &[];
        for (place, (word, pieces)) in known.iter().enumerate() {
            looks.push(vec![word.clone()]);
            candidates = candidates.saturating_add(*pieces);
            if candidates >= u64::from(CANDIDATES) {
                frequent = known.get(place..).unwrap_or_default();
                break;
            }
        }
        let together = |many: &[&(String, u64)]| many.iter().map(|(word, _)| word.clone()).collect::<Vec<_>>();
        if let [first, second, rest @ ..] = frequent {
            looks.push(together(&[*first, *second]));
            if !rest.is_empty() {
                looks.push(together(frequent));
            }
        }
        let capped = frequent.len() > 1 || frequent.iter().any(|(_, pieces)| *pieces > u64::from(CANDIDATES));
        let share = |((word, _), weight): ((String, u64), f64)| WeighedWord { word, weight: weight / sum };
        Self { words: words.into_iter().zip(weights).map(share).collect(), looks, capped }
    }
}

/// How much a word tells: inverse document frequency as BM25 has it, which is never negative.
#[expect(clippy::cast_precision_loss, reason = "a count of pieces need not be exact here")]
fn rarity(pieces: u64, total: u64) -> f64 {
    let without = total.saturating_sub(pieces) as f64;
    ((without + 0.5) / (pieces as f64 + 0.5)).ln_1p()
}

/// A piece that was found, with its score from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hit {
    /// The piece.
    pub chunk_id: ChunkId,
    /// The higher, the better.
    pub score: f64,
}

/// Pieces that were found, best first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Found {
    /// The pieces.
    pub hits: Vec<Hit>,
    /// Whether some that might have been found were not ranked.
    pub capped: bool,
}

impl Found {
    /// The best of them, at most `most`. Of two equals the one with the smaller identifier comes first, so that the same
    /// index gives the same answer.
    #[must_use]
    pub fn best(mut self, most: u32) -> Self {
        self.hits.sort_by(|one, other| {
            let by_score = other.score.partial_cmp(&one.score).unwrap_or(Ordering::Equal);
            by_score.then_with(|| one.chunk_id.cmp(&other.chunk_id))
        });
        self.hits.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        self
    }

    /// What was found by words and what was found by meaning, as one list: reciprocal rank fusion, in which `share` is
    /// that of meaning, scaled so that the first of both has the score one.
    #[must_use]
    pub fn fused(by_words: &Self, by_meaning: &Self, share: f64) -> Self {
        let mut scores: HashMap<ChunkId, f64> = HashMap::new();
        for (found, share) in [(by_words, 1.0 - share), (by_meaning, share)] {
            let mut rank = FUSION;
            for hit in &found.hits {
                rank += 1.0;
                *scores.entry(hit.chunk_id).or_default() += share * (FUSION + 1.0) / rank;
            }
        }
        let hits = scores.into_iter().map(|(chunk_id, score)| Hit { chunk_id, score }).collect();
        Self { hits, capped: by_words.capped || by_meaning.capped }.best(u32::MAX)
    }
}

/// A piece with what it says.
#[derive(Clone, PartialEq, Debug)]
pub struct RetrievedChunk {
    /// The piece.
    pub chunk_id: ChunkId,
    /// The document as it was added.
    pub entry_id: DocumentEntryId,
    /// The document's name, by which an answer cites it.
    pub document_id: DocumentId,
    /// What the document is called for people.
    pub title: Option<String>,
    /// Which piece of the document, counted from zero.
    pub index: u32,
    /// What it says.
    pub text: String,
    /// Of what it says.
    pub digest: Checksum,
    /// How many tokens it has.
    pub tokens: u32,
    /// How well it fits, from 0 to 1.
    pub score: f64,
}

/// How many vectors of that many parts are compared for one query: as many as there is room for, and never more than
/// [`COMPARED`].
#[must_use]
pub fn comparable(parts: usize) -> u32 {
    let bytes = parts.saturating_mul(size_of::<f32>()).max(1);
    u32::try_from(COMPARED_BYTES / bytes).map_or(COMPARED, |vectors| vectors.min(COMPARED))
}

/// Those pieces that are used: of score enough, and no more tokens than the context takes. The first is used however long
/// it is.
#[must_use]
pub fn used(chunks: Vec<RetrievedChunk>, settings: &RetrievalSettings) -> Vec<RetrievedChunk> {
    let mut tokens = 0_u32;
    let mut used: Vec<RetrievedChunk> = Vec::new();
    for chunk in chunks.into_iter().filter(|chunk| chunk.score >= settings.score_threshold) {
        tokens = tokens.saturating_add(chunk.tokens);
        if !used.is_empty() && settings.max_context_tokens.is_some_and(|most| tokens > most) {
            break;
        }
        used.push(chunk);
    }
    used
}

/// The beginning of a query, as far as it is read.
#[must_use]
pub fn readable(query: &str) -> &str {
    let end = query.floor_char_boundary(MAX_QUERY);
    query.get(..end).unwrap_or(query)
}

/// A vector of the same direction and of length one; `None` where there is no direction, or a number is none.
#[must_use]
pub fn direction(vector: &[f32]) -> Option<Vec<f32>> {
    let length = vector.iter().map(|part| f64::from(*part).powi(2)).sum::<f64>().sqrt();
    #[expect(clippy::cast_possible_truncation, reason = "the parts of a vector of length one are within ±1")]
    let scaled = |part: &f32| (f64::from(*part) / length) as f32;
    (length.is_finite() && length > 0.0).then(|| vector.iter().map(scaled).collect())
}

/// How alike two vectors of length one are, from 0 to 1; opposite ones are as unlike as those that share nothing.
#[must_use]
pub fn likeness(one: &[f32], other: &[f32]) -> f64 {
    let product: f32 = one.iter().zip(other).map(|(one, other)| one * other).sum();
    f64::from(product.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
