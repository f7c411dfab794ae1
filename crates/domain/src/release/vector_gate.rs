//! Gates over the bound knowledge bases that are searched by vectors: whether their queries can be embedded, and whether a
//! search compares all of their pieces. They warn and stop nothing, because what serves goes on serving.

use super::{
    StateName,
    gate::{Gate, GateVerdict},
};
use crate::knowledge::retrieval::{EmbeddingModel, IndexWarning};

/// How a bound knowledge base stands at the revision that the release serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VectorStanding {
    /// Its name.
    pub slug: String,
    /// Whether queries can be embedded.
    pub embedding: EmbeddingStanding,
    /// How many pieces a search compares, where there are more.
    pub capped_at: Option<u32>,
}

/// Whether queries to a knowledge base can be embedded by the model that made its index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EmbeddingStanding {
    /// They can.
    Searchable,
    /// Its pieces have vectors of several models, or some have none.
    Partial,
    /// The account of the model that made its index is not configured any more.
    NoAccount(EmbeddingModel),
    /// The bound profile does not let queries go there; the gate of routes tells that.
    NoRoute,
}

/// The gates; none where no knowledge base that is searched by vectors is bound.
#[must_use]
pub fn vector_gates(standings: &[VectorStanding]) -> Vec<Gate> {
    if standings.is_empty() {
        return Vec::new();
    }
    let mut gates = Vec::new();
    let embedding = standings.iter().filter_map(embedding_gate);
    gates.extend(embedding);
    if gates.is_empty() {
        let message = "queries are embedded by the models that made the indexes";
        gates.push(gate("embedding", GateVerdict::Pass, "embedding", message.to_owned()));
    }
    let before = gates.len();
    let capped = |standing: &VectorStanding| {
        let warning = IndexWarning::VectorSearchCapped { limit: standing.capped_at? };
        let message = format!("`{}`: {}", standing.slug, warning.message());
        Some(gate("vector_search", GateVerdict::Warn, warning.code(), message))
    };
    gates.extend(standings.iter().filter_map(capped));
    if gates.len() == before {
        let message = "searches by vectors compare every piece";
        gates.push(gate("vector_search", GateVerdict::Pass, "vector_search", message.to_owned()));
    }
    gates
}

fn embedding_gate(standing: &VectorStanding) -> Option<Gate> {
    let slug = &standing.slug;
    let (code, message) = match &standing.embedding {
        EmbeddingStanding::Searchable | EmbeddingStanding::NoRoute => return None,
        EmbeddingStanding::Partial => (
            "embedding_mismatch",
            format!(
                "`{slug}`: some of the pieces that the release serves have vectors of another embedding model, or none, so \
                 that searches are refused; embed its documents again, and approve a new release if documents were added \
                 since this one was approved"
            ),
        ),
        EmbeddingStanding::NoAccount(EmbeddingModel { account, model }) => (
            "embedding_account_missing",
            format!(
                "`{slug}`: the pieces that the release serves have vectors of `{model}`, and its account `{account}` is not \
                 configured, so that searches are refused; configure the account again, or embed the documents again, and \
                 approve a new release if documents were added since this one was approved"
            ),
        ),
    };
    Some(gate("embedding", GateVerdict::Warn, code, message))
}

fn gate(name: &'static str, verdict: GateVerdict, code: &'static str, message: String) -> Gate {
    Gate { to: StateName::Active, lane: None, name, verdict, code, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(standings: &[VectorStanding]) -> Vec<(&'static str, &'static str)> {
        vector_gates(standings).iter().map(|gate| (gate.verdict.as_str(), gate.code)).collect()
    }

    #[test]
    fn warns_of_each_knowledge_base_that_cannot_be_searched_in_full() {
        let standing = |embedding, capped_at| VectorStanding { slug: "handbook".to_owned(), embedding, capped_at };
        assert_eq!(codes(&[]), []);
        let sound = standing(EmbeddingStanding::Searchable, None);
        assert_eq!(codes(std::slice::from_ref(&sound)), [("pass", "embedding"), ("pass", "vector_search")]);
        let model = EmbeddingModel { account: "old".to_owned(), model: "m".to_owned() };
        let gone = standing(EmbeddingStanding::NoAccount(model), Some(20_000));
        let mixed = standing(EmbeddingStanding::Partial, None);
        assert_eq!(
            codes(&[sound, gone.clone(), mixed]),
            [("warn", "embedding_account_missing"), ("warn", "embedding_mismatch"), ("warn", "vector_search_capped")]
        );
        let gates = vector_gates(&[gone]);
        assert!(gates[0].message.contains("`old`") && gates[1].message.contains("20000"), "{gates:?}");
    }
}
