//! Knowledge bases: documents that runs retrieve from, and the contract that says who may.

pub mod contract;
pub mod document;
pub mod ports;
pub mod reading;
pub mod reembedding;
pub mod retrieval;
pub mod revocation;

use crate::id::{AssetId, TenantId};
use contract::{AccessContract, Asked, ContractDecision, ContractStanding, MalformedContract};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// Length of a piece where nobody says, in tokens.
pub const DEFAULT_CHUNK_TOKENS: u32 = 512;
/// Most pieces of one retrieval where nobody says.
pub const DEFAULT_TOP_K: u32 = 5;

/// How often documents were added to a knowledge base: each time makes the next revision of its index, and what was there
/// at a revision is there for ever. Zero is the revision of an empty one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IndexRevision(i64);

impl IndexRevision {
    /// The revision that a row holds.
    #[must_use]
    pub const fn new(count: i64) -> Self {
        Self(count)
    }

    /// The count itself.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl IndexRevision {
    /// What the words of a knowledge base stand behind where those of all lie in one index: eight hexadecimal digits. Two
    /// knowledge bases may have the same; that makes finding slower and finds nothing more.
    #[must_use]
    pub fn prefix(tenant: TenantId, asset: AssetId) -> String {
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

/// Where documents come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SourceType {
    /// They are handed in.
    Inline,
    /// They lie in the artifact store.
    Artifact,
    /// They are fetched from an address.
    Http,
}

impl SourceType {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Inline, Self::Artifact, Self::Http];

    /// The spelling in contents and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Artifact => "artifact",
            Self::Http => "http",
        }
    }

    /// The one of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

/// How documents are cut into pieces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ChunkStrategy {
    /// By length alone.
    Fixed,
    /// At the ends of sentences.
    Sentence,
    /// At headings.
    Heading,
}

impl ChunkStrategy {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Sentence, Self::Heading];

    /// The spelling in contents and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Sentence => "sentence",
            Self::Heading => "heading",
        }
    }

    /// The one of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

/// How pieces are found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Strategy {
    /// By words.
    Lexical,
    /// By meaning.
    Vector,
    /// By both.
    Hybrid,
}

impl Strategy {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Lexical, Self::Vector, Self::Hybrid];

    /// Whether a question goes to a model, which makes a vector of it.
    #[must_use]
    pub const fn asks_a_model(self) -> bool {
        match self {
            Self::Lexical => false,
            Self::Vector | Self::Hybrid => true,
        }
    }

    /// The spelling in contents and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lexical => "lexical",
            Self::Vector => "vector",
            Self::Hybrid => "hybrid",
        }
    }

    /// The one of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

impl Strategy {
    /// Whether pieces need vectors to be found by it.
    #[must_use]
    pub const fn needs_vectors(self) -> bool {
        match self {
            Self::Lexical => false,
            Self::Vector | Self::Hybrid => true,
        }
    }
}

/// How documents are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunking {
    /// Where.
    pub strategy: ChunkStrategy,
    /// Most tokens of a piece.
    pub chunk_tokens: u32,
}

/// How pieces are found, with what holds where nothing is said.
#[derive(Clone, PartialEq, Debug)]
pub struct RetrievalSettings {
    /// By what.
    pub strategy: Strategy,
    /// Most pieces of one retrieval.
    pub top_k: u32,
    /// Least score of a piece that is used, 0 to 1.
    pub score_threshold: f64,
    /// Values that a document's metadata must have.
    pub filters: Map<String, Value>,
    /// Share of meaning against words, 0 to 1.
    pub hybrid_weight: f64,
    /// Most tokens of all pieces together.
    pub max_context_tokens: Option<u32>,
}

/// What the content of a knowledge base says. Its contract may be malformed all the same: what is decided by such a one
/// is refused, and evidence says so.
#[derive(Clone, PartialEq, Debug)]
pub struct KnowledgeBase {
    /// Where its documents come from.
    pub source_type: SourceType,
    /// How they are cut.
    pub chunking: Chunking,
    /// How pieces of them are found.
    pub retrieval: RetrievalSettings,
    /// Who may.
    pub contract: Result<AccessContract, MalformedContract>,
}

/// The content of a version is none of a knowledge base. It was judged when it was made, so this is a fault of what is
/// stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the content is none of a knowledge base")]
pub struct MalformedBase;

impl KnowledgeBase {
    /// Reads a content.
    ///
    /// # Errors
    /// When anything but the contract is not what the schema says.
    pub fn parse(content: &Value) -> Result<Self, MalformedBase> {
        let source_type = content.get("source_type").and_then(Value::as_str).and_then(SourceType::parse);
        let retrieval = content.get("retrieval").unwrap_or(&Value::Null);
        let chunking = Chunking {
            strategy: word(content, "chunk_strategy", ChunkStrategy::parse)?.unwrap_or(ChunkStrategy::Sentence),
            chunk_tokens: number(retrieval, "chunk_size_tokens")?.unwrap_or(DEFAULT_CHUNK_TOKENS),
        };
        let filters = match retrieval.get("filters") {
            None => Map::new(),
            Some(filters) => filters.as_object().ok_or(MalformedBase)?.clone(),
        };
        let retrieval = RetrievalSettings {
            strategy: word(retrieval, "strategy", Strategy::parse)?.unwrap_or(Strategy::Lexical),
            top_k: number(retrieval, "top_k")?.unwrap_or(DEFAULT_TOP_K),
            score_threshold: share(retrieval, "score_threshold")?.unwrap_or(0.0),
            filters,
            hybrid_weight: share(retrieval, "hybrid_weight")?.unwrap_or(0.5),
            max_context_tokens: number(retrieval, "max_context_tokens")?,
        };
        Ok(Self {
            source_type: source_type.ok_or(MalformedBase)?,
            chunking,
            retrieval,
            contract: AccessContract::parse(content.get("access_contract").unwrap_or(&Value::Null)),
        })
    }

    /// The name of the contract, where it has one.
    #[must_use]
    pub fn contract_id(&self) -> Option<&str> {
        self.contract.as_ref().ok().map(AccessContract::contract_id)
    }

    /// Whether somebody may read from it, and every reason for that. What is malformed allows nothing.
    #[must_use]
    pub fn decide(&self, asked: &Asked<'_>, standing: ContractStanding) -> ContractDecision {
        match &self.contract {
            Ok(contract) => contract.decide(asked, standing),
            Err(malformed) => ContractDecision::malformed(*malformed, asked.mode),
        }
    }
}

fn word<T>(object: &Value, field: &str, parse: fn(&str) -> Option<T>) -> Result<Option<T>, MalformedBase> {
    let read = |value: &Value| value.as_str().and_then(parse).ok_or(MalformedBase);
    object.get(field).map(read).transpose()
}

fn number(object: &Value, field: &str) -> Result<Option<u32>, MalformedBase> {
    let read = |value: &Value| match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
        // A number with a fraction of zero is the same number to the schema.
        None => value.as_f64().filter(|number| number.fract() == 0.0).and_then(whole).ok_or(MalformedBase),
        Some(number) => Ok(number),
    };
    object.get(field).map(read).transpose()
}

fn whole(number: f64) -> Option<u32> {
    format!("{number}").parse().ok()
}

fn share(object: &Value, field: &str) -> Result<Option<f64>, MalformedBase> {
    let read = |value: &Value| value.as_f64().filter(|share| (0.0..=1.0).contains(share)).ok_or(MalformedBase);
    object.get(field).map(read).transpose()
}

#[cfg(test)]
mod tests;
