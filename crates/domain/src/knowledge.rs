//! Knowledge bases: documents for retrieval, and access contracts.

pub mod contract;
pub mod document;
pub mod ports;
pub mod query_audit;
pub mod reembedding;
pub mod retrieval;
pub mod revocation;

use crate::id::{AssetId, TenantId};
use contract::{AccessContract, ContractDecision, ContractState, KnowledgeAccessRequest, MalformedContract};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// Default length of a chunk, in tokens.
pub const DEFAULT_CHUNK_TOKENS: u32 = 512;
/// Default maximum number of chunks of one retrieval.
pub const DEFAULT_TOP_K: u32 = 5;

/// Revision of a knowledge base's index. Each ingest or re-embedding creates the next revision, and a revision never
/// changes. Zero is the empty index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IndexRevision(i64);

impl IndexRevision {
    /// Wraps a stored revision.
    #[must_use]
    pub const fn new(count: i64) -> Self {
        Self(count)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl IndexRevision {
    /// Term prefix of a knowledge base in the shared full-text index: eight hexadecimal digits. A collision between two
    /// knowledge bases costs search time and never changes results.
    #[must_use]
    pub fn term_prefix(tenant: TenantId, asset: AssetId) -> String {
        let mut name = tenant.uuid().as_bytes().to_vec();
        name.extend_from_slice(asset.uuid().as_bytes());
        blake3::hash(&name).to_hex().chars().take(8).collect()
    }
}

impl fmt::Display for IndexRevision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// Source of a knowledge base's documents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SourceType {
    /// Documents arrive with their text.
    Inline,
    /// Documents reference objects in the artifact store.
    Artifact,
    /// Documents are fetched from a URL.
    Http,
}

impl SourceType {
    /// Every source type.
    pub const ALL: [Self; 3] = [Self::Inline, Self::Artifact, Self::Http];

    /// The spelling in content and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Artifact => "artifact",
            Self::Http => "http",
        }
    }

    /// Parses the spelling; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

/// Strategy that splits documents into chunks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ChunkStrategy {
    /// By length only.
    Fixed,
    /// At the ends of sentences.
    Sentence,
    /// At headings.
    Heading,
}

impl ChunkStrategy {
    /// Every strategy.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Sentence, Self::Heading];

    /// The spelling in content and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Sentence => "sentence",
            Self::Heading => "heading",
        }
    }

    /// Parses the spelling; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

/// Search strategy of a retrieval.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RetrievalStrategy {
    /// Full-text search.
    Lexical,
    /// Vector search.
    Vector,
    /// Both, combined by rank.
    Hybrid,
}

impl RetrievalStrategy {
    /// Every strategy.
    pub const ALL: [Self; 3] = [Self::Lexical, Self::Vector, Self::Hybrid];

    /// Whether a query is embedded by a model.
    #[must_use]
    pub const fn embeds_query(self) -> bool {
        match self {
            Self::Lexical => false,
            Self::Vector | Self::Hybrid => true,
        }
    }

    /// The spelling in content and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lexical => "lexical",
            Self::Vector => "vector",
            Self::Hybrid => "hybrid",
        }
    }

    /// Parses the spelling; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

impl RetrievalStrategy {
    /// Whether chunks need vectors.
    #[must_use]
    pub const fn needs_vectors(self) -> bool {
        match self {
            Self::Lexical => false,
            Self::Vector | Self::Hybrid => true,
        }
    }
}

/// How documents are split into chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunking {
    /// Strategy.
    pub strategy: ChunkStrategy,
    /// Maximum number of tokens of a chunk.
    pub chunk_tokens: u32,
}

/// Retrieval settings, defaults applied.
#[derive(Clone, PartialEq, Debug)]
pub struct RetrievalSettings {
    /// Search strategy.
    pub strategy: RetrievalStrategy,
    /// Maximum number of chunks of one retrieval.
    pub top_k: u32,
    /// Minimum score of a chunk, 0 to 1.
    pub score_threshold: f64,
    /// Values that a document's metadata must have.
    pub filters: Map<String, Value>,
    /// Weight of vector search against full-text search, 0 to 1.
    pub hybrid_weight: f64,
    /// Maximum number of tokens of all chunks together.
    pub max_context_tokens: Option<u32>,
}

/// Parsed content of a knowledge base. A malformed contract is part of the result: it denies every request, and
/// evidence records why.
#[derive(Clone, PartialEq, Debug)]
pub struct KnowledgeBase {
    /// Source of its documents.
    pub source_type: SourceType,
    /// Chunking of its documents.
    pub chunking: Chunking,
    /// Retrieval settings.
    pub retrieval: RetrievalSettings,
    /// Access contract.
    pub contract: Result<AccessContract, MalformedContract>,
}

/// The content is not that of a knowledge base. Validation accepted it earlier, so the stored content is corrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the content is not that of a knowledge base")]
pub struct MalformedKnowledgeBase;

impl KnowledgeBase {
    /// Parses content.
    ///
    /// # Errors
    /// Returns an error when a field other than the contract violates the schema.
    pub fn parse(content: &Value) -> Result<Self, MalformedKnowledgeBase> {
        let source_type = content.get("source_type").and_then(Value::as_str).and_then(SourceType::parse);
        let retrieval = content.get("retrieval").unwrap_or(&Value::Null);
        let chunking = Chunking {
            strategy: parse_word(content, "chunk_strategy", ChunkStrategy::parse)?.unwrap_or(ChunkStrategy::Sentence),
            chunk_tokens: parse_number(retrieval, "chunk_size_tokens")?.unwrap_or(DEFAULT_CHUNK_TOKENS),
        };
        let filters = match retrieval.get("filters") {
            None => Map::new(),
            Some(filters) => filters.as_object().ok_or(MalformedKnowledgeBase)?.clone(),
        };
        let retrieval = RetrievalSettings {
            strategy: parse_word(retrieval, "strategy", RetrievalStrategy::parse)?
                .unwrap_or(RetrievalStrategy::Lexical),
            top_k: parse_number(retrieval, "top_k")?.unwrap_or(DEFAULT_TOP_K),
            score_threshold: parse_share(retrieval, "score_threshold")?.unwrap_or(0.0),
            filters,
            hybrid_weight: parse_share(retrieval, "hybrid_weight")?.unwrap_or(0.5),
            max_context_tokens: parse_number(retrieval, "max_context_tokens")?,
        };
        Ok(Self {
            source_type: source_type.ok_or(MalformedKnowledgeBase)?,
            chunking,
            retrieval,
            contract: AccessContract::parse(content.get("access_contract").unwrap_or(&Value::Null)),
        })
    }

    /// Identifier of the contract, if it is well formed.
    #[must_use]
    pub fn contract_id(&self) -> Option<&str> {
        self.contract.as_ref().ok().map(AccessContract::contract_id)
    }

    /// Decides an access request and gives every reason. A malformed contract denies every request.
    #[must_use]
    pub fn decide(&self, request: &KnowledgeAccessRequest<'_>, state: ContractState) -> ContractDecision {
        match &self.contract {
            Ok(contract) => contract.decide(request, state),
            Err(malformed) => ContractDecision::malformed(*malformed, request.mode),
        }
    }
}

fn parse_word<T>(
    object: &Value,
    field: &str,
    parse: fn(&str) -> Option<T>,
) -> Result<Option<T>, MalformedKnowledgeBase> {
    let read = |value: &Value| value.as_str().and_then(parse).ok_or(MalformedKnowledgeBase);
    object.get(field).map(read).transpose()
}

fn parse_number(object: &Value, field: &str) -> Result<Option<u32>, MalformedKnowledgeBase> {
    let read = |value: &Value| match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
        // The schema accepts a float without a fraction as an integer.
        None => value.as_f64().filter(|number| number.fract() == 0.0).and_then(to_whole).ok_or(MalformedKnowledgeBase),
        Some(number) => Ok(number),
    };
    object.get(field).map(read).transpose()
}

fn to_whole(number: f64) -> Option<u32> {
    format!("{number}").parse().ok()
}

fn parse_share(object: &Value, field: &str) -> Result<Option<f64>, MalformedKnowledgeBase> {
    let read = |value: &Value| value.as_f64().filter(|share| (0.0..=1.0).contains(share)).ok_or(MalformedKnowledgeBase);
    object.get(field).map(read).transpose()
}

#[cfg(test)]
mod tests;
