//! Gates of bound knowledge bases with vector search: whether queries can be embedded, and whether a search compares
//! all chunks. They only warn, because these problems do not stop a release that already serves.

use super::{
    StateName,
    gate::{Gate, GateResult},
};
use crate::knowledge::retrieval::{EmbeddingModel, IndexWarning};

/// The state of a bound knowledge base, at the index revision that runs search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VectorIndexStatus {
    /// The slug of the knowledge base.
    pub slug: String,
    /// Whether the model of the index can embed queries.
    pub embedding: QueryEmbeddingStatus,
    /// The maximum number of chunks that one search compares; `None` if a search compares all chunks.
    pub capped_at: Option<u32>,
}

/// Whether the model of an index can embed queries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueryEmbeddingStatus {
    /// The model can embed queries.
    Searchable,
    /// The chunks have vectors of several models, or some chunks have no vector.
    Partial,
    /// The provider account of this embedding model is no longer configured.
    AccountMissing(EmbeddingModel),
    /// The bound sovereignty profile refuses the route to the embedding model. Another gate, for routes, reports this
    /// problem.
    RouteRefused,
}

/// The gates of bound knowledge bases with vector search; empty if the release binds none.
#[must_use]
pub fn vector_gates(statuses: &[VectorIndexStatus]) -> Vec<Gate> {
    if statuses.is_empty() {
        return Vec::new();
    }
    let mut gates = Vec::new();
    let embedding = statuses.iter().filter_map(embedding_gate);
    gates.extend(embedding);
    if gates.is_empty() {
        let message = "queries are embedded by the models that made the indexes";
        gates.push(activation_gate("embedding", GateResult::Pass, "embedding", message.to_owned()));
    }
    let count_before = gates.len();
    let capped_gate = |index_status: &VectorIndexStatus| {
        let warning = IndexWarning::VectorSearchCapped { limit: index_status.capped_at? };
        let message = format!("`{}`: {}", index_status.slug, warning.message());
        Some(activation_gate("vector_search", GateResult::Warn, warning.code(), message))
    };
    gates.extend(statuses.iter().filter_map(capped_gate));
    if gates.len() == count_before {
        let message = "vector searches compare every chunk";
        gates.push(activation_gate("vector_search", GateResult::Pass, "vector_search", message.to_owned()));
    }
    gates
}

fn embedding_gate(index_status: &VectorIndexStatus) -> Option<Gate> {
    let slug = &index_status.slug;
    let (code, message) = match &index_status.embedding {
        QueryEmbeddingStatus::Searchable | QueryEmbeddingStatus::RouteRefused => return None,
        QueryEmbeddingStatus::Partial => (
            "embedding_mismatch",
            format!(
                "`{slug}`: some chunks that the release serves have vectors of another embedding model, or none, so \
                 that searches are refused; embed its documents again, and approve a new release if documents were added \
                 since this one was approved"
            ),
        ),
        QueryEmbeddingStatus::AccountMissing(EmbeddingModel { account, model }) => (
            "embedding_account_missing",
            format!(
                "`{slug}`: the chunks that the release serves have vectors of `{model}`, and its account `{account}` is not \
                 configured, so that searches are refused; configure the account again, or embed the documents again, and \
                 approve a new release if documents were added since this one was approved"
            ),
        ),
    };
    Some(activation_gate("embedding", GateResult::Warn, code, message))
}

fn activation_gate(name: &'static str, verdict: GateResult, code: &'static str, message: String) -> Gate {
    Gate { to: StateName::Active, lane: None, name, verdict, code, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(statuses: &[VectorIndexStatus]) -> Vec<(&'static str, &'static str)> {
        vector_gates(statuses).iter().map(|gate| (gate.verdict.as_str(), gate.code)).collect()
    }

    #[test]
    fn warns_of_partially_searchable_knowledge_bases() {
        let index_status =
            |embedding, capped_at| VectorIndexStatus { slug: "handbook".to_owned(), embedding, capped_at };
        assert_eq!(codes(&[]), []);
        let searchable = index_status(QueryEmbeddingStatus::Searchable, None);
        assert_eq!(codes(std::slice::from_ref(&searchable)), [("pass", "embedding"), ("pass", "vector_search")]);
        let model = EmbeddingModel { account: "old".to_owned(), model: "m".to_owned() };
        let account_missing = index_status(QueryEmbeddingStatus::AccountMissing(model), Some(20_000));
        let mixed = index_status(QueryEmbeddingStatus::Partial, None);
        assert_eq!(
            codes(&[searchable, account_missing.clone(), mixed]),
            [("warn", "embedding_account_missing"), ("warn", "embedding_mismatch"), ("warn", "vector_search_capped")]
        );
        let gates = vector_gates(&[account_missing]);
        assert!(gates[0].message.contains("`old`") && gates[1].message.contains("20000"), "{gates:?}");
    }
}
