//! Knowledge bases: their settings, documents, index revisions and access contracts.

pub mod contract;
pub mod contract_revocation;
pub mod document;
pub mod ports;
pub mod query_audit;
pub mod reembedding;
pub mod retrieval;

use crate::id::{AssetId, TenantId};
use contract::{AccessContract, ContractDecision, ContractState, KnowledgeAccessRequest, MalformedContract};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// The default length of a chunk, in tokens.
pub const DEFAULT_CHUNK_TOKENS: u32 = 512;
/// The default maximum number of chunks that a retrieval returns.
pub const DEFAULT_TOP_K: u32 = 5;

/// The revision of a knowledge base's index. Each ingest or re-embedding creates the next revision, and an
/// existing revision never changes. Revision zero is the empty index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IndexRevision(i64);

impl IndexRevision {
    /// Creates an index revision from its stored number.
    #[must_use]
    pub const fn new(count: i64) -> Self {
        Self(count)
    }

    /// The number of the index revision, as stored.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl IndexRevision {
    /// The prefix of a knowledge base's terms in the shared full-text index: eight hexadecimal digits. If two knowledge
    /// bases have the same prefix, searches take longer, but find the same chunks.
    #[must_use]
    pub fn index_term_prefix(tenant: TenantId, asset: AssetId) -> String {
        let mut identifiers = tenant.uuid().as_bytes().to_vec();
        identifiers.extend_from_slice(asset.uuid().as_bytes());
        blake3::hash(&identifiers).to_hex().chars().take(8).collect()
    }
}

impl fmt::Display for IndexRevision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The source from which a knowledge base receives its documents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SourceType {
    /// The request that adds a document contains its text.
    Inline,
    /// A document refers to an object in the artifact store.
    Artifact,
    /// A document is fetched from a URL.
    Http,
}

impl SourceType {
    /// Every source type, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::Inline, Self::Artifact, Self::Http];

    /// The wire form in content and API, such as `inline`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Artifact => "artifact",
            Self::Http => "http",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source_type| source_type.as_str() == text)
    }
}

/// The strategy that splits documents into chunks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ChunkStrategy {
    /// Splits by length only.
    Fixed,
    /// Splits at the ends of sentences.
    Sentence,
    /// Splits at headings.
    Heading,
}

impl ChunkStrategy {
    /// Every strategy, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Sentence, Self::Heading];

    /// The wire form in content and API, such as `fixed`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Sentence => "sentence",
            Self::Heading => "heading",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.as_str() == text)
    }
}

/// The search strategy of a retrieval.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RetrievalStrategy {
    /// Full-text search only.
    Lexical,
    /// Vector search only.
    Vector,
    /// Full-text search and vector search, combined by rank.
    Hybrid,
}

impl RetrievalStrategy {
    /// Every strategy, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::Lexical, Self::Vector, Self::Hybrid];

    /// Whether a retrieval sends its query to an embedding model.
    #[must_use]
    pub const fn embeds_query(self) -> bool {
        match self {
            Self::Lexical => false,
            Self::Vector | Self::Hybrid => true,
        }
    }

    /// The wire form in content and API, such as `lexical`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lexical => "lexical",
            Self::Vector => "vector",
            Self::Hybrid => "hybrid",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.as_str() == text)
    }
}

impl RetrievalStrategy {
    /// Whether the strategy requires a vector for every chunk.
    #[must_use]
    pub const fn needs_vectors(self) -> bool {
        match self {
            Self::Lexical => false,
            Self::Vector | Self::Hybrid => true,
        }
    }
}

/// The settings that determine how documents are split into chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkingSettings {
    /// The strategy that selects the boundaries of chunks.
    pub strategy: ChunkStrategy,
    /// The maximum number of tokens of a chunk.
    pub chunk_tokens: u32,
}

/// The retrieval settings of a knowledge base, with defaults for settings that its content omits.
#[derive(Clone, PartialEq, Debug)]
pub struct RetrievalSettings {
    /// The search strategy of a retrieval.
    pub strategy: RetrievalStrategy,
    /// The maximum number of chunks that a retrieval returns.
    pub top_k: u32,
    /// The minimum score of a returned chunk, 0 to 1.
    pub score_threshold: f64,
    /// The metadata members that a returned document must have, with their values.
    pub filters: Map<String, Value>,
    /// The weight of vector search in hybrid search, 0 to 1; full-text search has the rest.
    pub hybrid_weight: f64,
    /// The maximum number of tokens of all returned chunks together.
    pub max_context_tokens: Option<u32>,
}

/// The parsed content of a knowledge base. Content with a malformed access contract is parsed too; that contract then
/// denies every request, and evidence records the reason.
#[derive(Clone, PartialEq, Debug)]
pub struct KnowledgeBase {
    /// The source from which documents come.
    pub source_type: SourceType,
    /// The settings that split documents into chunks.
    pub chunking: ChunkingSettings,
    /// The settings of searches in this knowledge base.
    pub retrieval: RetrievalSettings,
    /// The access contract, or the error that makes it deny every request.
    pub contract: Result<AccessContract, MalformedContract>,
}

/// The stored content is not that of a knowledge base. Validation accepted it earlier, so it is corrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the content is not that of a knowledge base")]
pub struct MalformedKnowledgeBase;

impl KnowledgeBase {
    /// Parses the content of a version.
    ///
    /// # Errors
    /// Returns an error when a field other than the access contract violates the schema.
    pub fn parse(content: &Value) -> Result<Self, MalformedKnowledgeBase> {
        let source_type = content.get("source_type").and_then(Value::as_str).and_then(SourceType::parse);
        let retrieval = content.get("retrieval").unwrap_or(&Value::Null);
        let chunking = ChunkingSettings {
            strategy: parse_enum(content, "chunk_strategy", ChunkStrategy::parse)?.unwrap_or(ChunkStrategy::Sentence),
            chunk_tokens: parse_number(retrieval, "chunk_size_tokens")?.unwrap_or(DEFAULT_CHUNK_TOKENS),
        };
        let filters = match retrieval.get("filters") {
            None => Map::new(),
            Some(filters) => filters.as_object().ok_or(MalformedKnowledgeBase)?.clone(),
        };
        let retrieval = RetrievalSettings {
            strategy: parse_enum(retrieval, "strategy", RetrievalStrategy::parse)?
                .unwrap_or(RetrievalStrategy::Lexical),
            top_k: parse_number(retrieval, "top_k")?.unwrap_or(DEFAULT_TOP_K),
            score_threshold: parse_fraction(retrieval, "score_threshold")?.unwrap_or(0.0),
            filters,
            hybrid_weight: parse_fraction(retrieval, "hybrid_weight")?.unwrap_or(0.5),
            max_context_tokens: parse_number(retrieval, "max_context_tokens")?,
        };
        Ok(Self {
            source_type: source_type.ok_or(MalformedKnowledgeBase)?,
            chunking,
            retrieval,
            contract: AccessContract::parse(content.get("access_contract").unwrap_or(&Value::Null)),
        })
    }

    /// The identifier of the access contract; `None` if the contract is malformed.
    #[must_use]
    pub fn contract_id(&self) -> Option<&str> {
        self.contract.as_ref().ok().map(AccessContract::contract_id)
    }

    /// Decides on an access request, with every reason. A malformed contract denies every request.
    #[must_use]
    pub fn decide_access(&self, request: &KnowledgeAccessRequest<'_>, state: ContractState) -> ContractDecision {
        match &self.contract {
            Ok(contract) => contract.decide(request, state),
            Err(malformed) => ContractDecision::for_malformed_contract(*malformed, request.mode),
        }
    }
}

fn parse_enum<T>(
    object: &Value,
    field: &str,
    parse: fn(&str) -> Option<T>,
) -> Result<Option<T>, MalformedKnowledgeBase> {
    let convert = |value: &Value| value.as_str().and_then(parse).ok_or(MalformedKnowledgeBase);
    object.get(field).map(convert).transpose()
}

fn parse_number(object: &Value, field: &str) -> Result<Option<u32>, MalformedKnowledgeBase> {
    let convert = |value: &Value| match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
        // The schema accepts a float without a fraction as an integer, so the parser must accept it too.
        None => value.as_f64().filter(|number| number.fract() == 0.0).and_then(to_whole).ok_or(MalformedKnowledgeBase),
        Some(number) => Ok(number),
    };
    object.get(field).map(convert).transpose()
}

fn to_whole(number: f64) -> Option<u32> {
    format!("{number}").parse().ok()
}

fn parse_fraction(object: &Value, field: &str) -> Result<Option<f64>, MalformedKnowledgeBase> {
    let convert =
        |value: &Value| value.as_f64().filter(|fraction| (0.0..=1.0).contains(fraction)).ok_or(MalformedKnowledgeBase);
    object.get(field).map(convert).transpose()
}

#[cfg(test)]
mod tests;
