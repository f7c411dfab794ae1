//! The end of an access contract, said by somebody who may change its knowledge base. It is never taken back.

use super::document::KnowledgeRefusal;
use crate::{
    access::ActorRef,
    asset::Asset,
    audit::{Fact, FactKind, Stamp, Subject},
    id::{AssetId, RevocationId},
    notification::Category,
    store::Change,
    text::{is_blank, is_prose},
    time::Timestamp,
};
use serde_json::json;

/// Longest reason, in characters.
pub const MAX_REASON: usize = 2_000;

/// The end of a contract.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContractRevocation {
    /// Its identifier.
    pub revocation_id: RevocationId,
    /// The knowledge base.
    pub asset_id: AssetId,
    /// The contract.
    pub contract_id: String,
    /// Why, in the words of who said it; `None` if they were erased.
    pub reason: Option<String>,
    /// When.
    pub revoked_at: Timestamp,
    /// By whom.
    pub revoked_by: ActorRef,
}

impl ContractRevocation {
    /// Ends a contract of a knowledge base.
    ///
    /// # Errors
    /// When the reason is no text that people can read.
    pub fn say(
        revocation_id: RevocationId,
        asset: &Asset,
        (contract_id, reason): (&str, &str),
        stamp: &Stamp,
    ) -> Result<Change<Self>, KnowledgeRefusal> {
        if is_blank(reason) || !is_prose(reason, MAX_REASON) {
            return Err(KnowledgeRefusal::Reason);
        }
        // The contract's name is a code of its own grammar; the reason is free text and stays out.
        let detail = json!({ "revocation_id": revocation_id, "contract_id": contract_id });
        let subject = Subject { kind: "asset", id: asset.asset_id.uuid() };
        let fact = Fact::new(FactKind::ContractRevoked, subject, Some(asset.workspace_id), stamp, detail)
            .concerning([Category::ComplianceFindings, Category::PolicyChanges]);
        let next = Self {
            revocation_id,
            asset_id: asset.asset_id,
            contract_id: contract_id.to_owned(),
            reason: Some(reason.to_owned()),
            revoked_at: stamp.at,
            revoked_by: stamp.actor.clone(),
        };
        Ok(Change::creating(next, fact))
    }
}
