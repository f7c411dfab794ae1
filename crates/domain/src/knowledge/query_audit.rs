//! The audit of knowledge base queries outside of a run. Facts record them, because they have no run with evidence.

use super::{
    IndexRevision,
    contract::{ContractDecision, ContractReason},
    retrieval::RetrievedChunk,
};
use crate::{
    asset::Asset,
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::WorkspaceId,
    notification_category::NotificationCategory,
};
use serde_json::{Value, json};

/// The stage of a query that a fact records.
#[derive(Clone, Copy, Debug)]
pub enum QueryAuditStage<'a> {
    /// The query text is about to be sent to an embedding model outside of this service.
    Embedding,
    /// The query returned these chunks of this index revision.
    Returned(IndexRevision, &'a [RetrievedChunk]),
    /// The access contract denied the query.
    Refused,
}

impl QueryAuditStage<'_> {
    /// The fact of this stage. It contains the identifiers of the chunks, but neither the query nor the texts of the
    /// results.
    #[must_use]
    pub fn fact(self, asset: &Asset, workspace: WorkspaceId, decision: &ContractDecision, stamp: &Stamp) -> Fact {
        let subject = FactSubject { kind: "asset", id: asset.asset_id.uuid() };
        let reasons: Vec<&str> = decision.reasons.iter().copied().map(ContractReason::as_str).collect();
        let detail = json!({
            "contract_id": decision.contract_id,
            "access_mode": decision.mode.as_str(),
            "reasons": reasons,
        });
        let fact = |kind| Fact::new(kind, subject, Some(workspace), stamp, detail.clone());
        match self {
            Self::Returned(revision, chunks) => {
                let chunks: Vec<Value> = chunks.iter().map(|chunk| json!(chunk.chunk_id)).collect();
                fact(FactKind::KnowledgeSearched)
                    .merge_detail(json!({ "index_revision": revision.get(), "chunk_ids": chunks }))
            }
            Self::Embedding => fact(FactKind::KnowledgeQueryEmbedded),
            Self::Refused => fact(FactKind::KnowledgeSearchRefused)
                .with_notification_categories([NotificationCategory::ComplianceFindings]),
        }
    }
}
