//! That somebody searched a knowledge base outside of a run, where no evidence of a run would tell.

use super::{
    IndexRevision,
    contract::{ContractDecision, ContractReason},
    retrieval::RetrievedChunk,
};
use crate::{
    asset::Asset,
    audit::{Fact, FactKind, Stamp, Subject},
    id::WorkspaceId,
    notification::Category,
};
use serde_json::{Value, json};

/// What came of a search, or comes before it.
#[derive(Clone, Copy, Debug)]
pub enum Reading<'a> {
    /// The question is about to go to a model, which makes a vector of it: text leaves the house.
    Asked,
    /// These pieces were shown, of the index as it was at this revision.
    Shown(IndexRevision, &'a [RetrievedChunk]),
    /// The contract allowed nothing.
    Refused,
}

impl Reading<'_> {
    /// The fact of it. What was looked for and what was found are texts and stay out; pieces are named.
    #[must_use]
    pub fn fact(self, asset: &Asset, from: WorkspaceId, decision: &ContractDecision, stamp: &Stamp) -> Fact {
        let subject = Subject { kind: "asset", id: asset.asset_id.uuid() };
        let reasons: Vec<&str> = decision.reasons.iter().copied().map(ContractReason::as_str).collect();
        let said = json!({
            "contract_id": decision.contract_id,
            "access_mode": decision.mode.as_str(),
            "reasons": reasons,
        });
        let fact = |kind| Fact::new(kind, subject, Some(from), stamp, said.clone());
        match self {
            Self::Shown(revision, chunks) => {
                let chunks: Vec<Value> = chunks.iter().map(|chunk| json!(chunk.chunk_id)).collect();
                fact(FactKind::KnowledgeRead).saying(json!({ "index_revision": revision.get(), "chunk_ids": chunks }))
            }
            Self::Asked => fact(FactKind::KnowledgeAsked),
            Self::Refused => fact(FactKind::KnowledgeReadRefused).concerning([Category::ComplianceFindings]),
        }
    }
}
