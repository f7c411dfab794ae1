//! Queries of runs to knowledge bases, and their results.

use crate::{
    execution::routing::EmbeddingPermission,
    id::AssetId,
    knowledge::{
        IndexRevision, KnowledgeBase, RetrievalStrategy,
        contract::{ContractDecision, ContractReason},
        retrieval::{QueryEmbeddingCall, RetrievedChunk},
    },
    time::Timestamp,
};
use serde_json::{Map, Value, json};

/// A knowledge base that a release binds, with its content.
#[derive(Clone, PartialEq, Debug)]
pub struct BoundKnowledgeBase {
    /// The asset of the knowledge base.
    pub asset: AssetId,
    /// The slug of the asset.
    pub slug: String,
    /// The content of the bound version.
    pub base: KnowledgeBase,
}

/// A query of a run to one of its bound knowledge bases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetrievalQuery {
    /// The index of the knowledge base in [`RunPlan::knowledge`](super::plan::RunPlan::knowledge).
    pub knowledge_index: usize,
    /// The text of the query.
    pub query: String,
    /// The requested number of chunks, which can only lower the maximum of the knowledge base.
    pub top_k: Option<u32>,
}

/// The result of a query, with the data that evidence records.
#[derive(Clone, PartialEq, Debug)]
pub struct RetrievalResult {
    /// The decision of the access contract about the query.
    pub decision: ContractDecision,
    /// The revision of the index that was searched.
    pub index_revision: IndexRevision,
    /// The strategy by which the store searched.
    pub strategy: RetrievalStrategy,
    /// The chunks that the search found, best first.
    pub chunks: Vec<RetrievedChunk>,
    /// Whether the search ranked only a part of the matching chunks because of a limit.
    pub is_capped: bool,
    /// The embedding of the query text, if the search needed one.
    pub query_embedding: Option<QueryEmbeddingCall>,
    /// The time at which the query was executed.
    pub retrieved_at: Timestamp,
}

/// The reason why a query returned no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RetrievalError {
    /// The access contract refused the query. The run ends.
    Refused(Box<ContractDecision>),
    /// The account that embeds queries may not receive the query. The value contains the refused route and the reasons.
    NoRoute(Box<EmbeddingPermission>),
    /// The search failed with this error code.
    Failed(&'static str),
}

/// The members of an access contract's decision that evidence records.
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
