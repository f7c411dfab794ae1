//! Documents for runs: which knowledge bases a release binds, what a run wants from one, and what came of it.

use crate::{
    execution::routing::Embedding,
    id::AssetId,
    knowledge::{
        IndexRevision, KnowledgeBase, Strategy,
        contract::{ContractDecision, ContractReason},
        retrieval::{Embedded, RetrievedChunk},
    },
    time::Timestamp,
};
use serde_json::{Map, Value, json};

/// A knowledge base that a release binds.
#[derive(Clone, PartialEq, Debug)]
pub struct BoundKnowledge {
    /// The asset.
    pub asset: AssetId,
    /// Its name.
    pub slug: String,
    /// What the bound version of it says.
    pub base: KnowledgeBase,
}

/// What a run wants from a knowledge base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// Which of those that the release binds.
    pub knowledge: usize,
    /// What it looks for.
    pub query: String,
    /// Most pieces, where fewer are wanted than the knowledge base gives.
    pub top_k: Option<u32>,
}

/// What was retrieved, with all that evidence says of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Retrieved {
    /// Why it could be read.
    pub decision: ContractDecision,
    /// The revision of the index that was searched.
    pub index_revision: IndexRevision,
    /// How it was searched.
    pub strategy: Strategy,
    /// What was found, best first.
    pub chunks: Vec<RetrievedChunk>,
    /// Whether pieces that might have been found were not ranked.
    pub capped: bool,
    /// What turning the query into a vector took, where that was done.
    pub embedded: Option<Embedded>,
    /// When.
    pub retrieved_at: Timestamp,
}

/// Why nothing was retrieved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unretrieved {
    /// The contract does not allow it. That ends the run.
    Refused(Box<ContractDecision>),
    /// What was looked for may not go to the account that would turn it into a vector: the route, and what speaks against
    /// it.
    NoRoute(Box<Embedding>),
    /// The index could not be searched; a code says why.
    Failed(&'static str),
}

/// A decision of a contract, as documents of evidence tell it.
#[must_use]
pub fn told(decision: &ContractDecision) -> Map<String, Value> {
    let reasons: Vec<&str> = decision.reasons.iter().map(|reason| ContractReason::as_str(*reason)).collect();
    let mut told = Map::new();
    told.insert("contract_id".to_owned(), json!(decision.contract_id));
    told.insert("contract_version".to_owned(), json!(decision.version));
    told.insert("access_mode".to_owned(), json!(decision.mode.as_str()));
    told.insert("decision".to_owned(), json!(if decision.is_allowed() { "allow" } else { "deny" }));
    told.insert("reasons".to_owned(), json!(reasons));
    told
}
