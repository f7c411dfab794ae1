//! Retrieval for runs: bound knowledge bases, queries and results.

use crate::{
    execution::routing::EmbeddingPermission,
    id::AssetId,
    knowledge::{
        IndexRevision, KnowledgeBase, RetrievalStrategy,
        contract::{ContractDecision, ContractReason},
        retrieval::{QueryEmbedding, RetrievedChunk},
    },
    time::Timestamp,
};
use serde_json::{Map, Value, json};

/// A bound knowledge base.
#[derive(Clone, PartialEq, Debug)]
pub struct BoundKnowledgeBase {
    /// The asset of the knowledge base.
    pub asset: AssetId,
    /// The slug of the asset.
    pub slug: String,
    /// The content of the bound version.
    pub base: KnowledgeBase,
}

/// A query to a knowledge base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetrievalQuery {
    /// The index of the queried knowledge base among the bound knowledge bases.
    pub knowledge_index: usize,
    /// The text of the query.
    pub query: String,
    /// The maximum number of chunks, if lower than the maximum of the knowledge base.
    pub top_k: Option<u32>,
}

/// A retrieval result, with the data that evidence records.
#[derive(Clone, PartialEq, Debug)]
pub struct RetrievalResult {
    /// The access contract's decision.
    pub decision: ContractDecision,
    /// The revision of the index that was searched.
    pub index_revision: IndexRevision,
    /// The search strategy that was used.
    pub strategy: RetrievalStrategy,
    /// The retrieved chunks, best first.
    pub chunks: Vec<RetrievedChunk>,
    /// Whether the search ranked only a part of the matching chunks because of a limit.
    pub is_capped: bool,
    /// The cost of embedding the query, if it was embedded.
    pub query_embedding: Option<QueryEmbedding>,
    /// The time of the retrieval.
    pub retrieved_at: Timestamp,
}

/// The reason a retrieval failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RetrievalError {
    /// The access contract refused the query, which ends the run.
    Refused(Box<ContractDecision>),
    /// No embedding account may receive the query. The permission contains the refused route and the reasons.
    NoRoute(Box<EmbeddingPermission>),
    /// The search failed with this code.
    Failed(&'static str),
}

/// The members of a contract decision that evidence records.
#[must_use]
pub fn contract_decision_members(decision: &ContractDecision) -> Map<String, Value> {
    let reasons: Vec<&str> = decision.reasons.iter().map(|reason| ContractReason::as_str(*reason)).collect();
    let mut members = Map::new();
    members.insert("contract_id".to_owned(), json!(decision.contract_id));
    members.insert("contract_version".to_owned(), json!(decision.version));
    members.insert("access_mode".to_owned(), json!(decision.mode.as_str()));
    members.insert("decision".to_owned(), json!(if decision.is_allowed() { "allow" } else { "deny" }));
    members.insert("reasons".to_owned(), json!(reasons));
    members
}
