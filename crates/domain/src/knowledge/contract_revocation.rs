//! Revocation of an access contract, which cannot be undone.

use super::document::KnowledgeRefusal;
use crate::{
    access::ActorRef,
    asset::Asset,
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{AssetId, RevocationId},
    note::MAX_NOTE_CHARS,
    notification_category::NotificationCategory,
    store::Change,
    text::{is_blank, is_blank_or_prose},
    time::Timestamp,
};
use serde_json::json;

/// Validates the reason of a revocation.
///
/// # Errors
/// When the reason is blank, too long, or contains control characters.
pub fn check_reason(reason: &str) -> Result<(), KnowledgeRefusal> {
    let is_valid = !is_blank(reason) && is_blank_or_prose(reason, MAX_NOTE_CHARS);
    if is_valid { Ok(()) } else { Err(KnowledgeRefusal::InvalidReason) }
}

/// The permanent revocation of an access contract.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContractRevocation {
    /// The identifier of this revocation.
    pub revocation_id: RevocationId,
    /// The knowledge base whose contract was revoked.
    pub asset_id: AssetId,
    /// The identifier of the revoked contract.
    pub contract_id: String,
    /// The reason as free text; `None` after its erasure.
    pub reason: Option<String>,
    /// The time of the revocation.
    pub revoked_at: Timestamp,
    /// The actor that revoked the contract.
    pub revoked_by: ActorRef,
}

impl ContractRevocation {
    /// Revokes a contract of a knowledge base.
    ///
    /// # Errors
    /// The errors of [`check_reason`].
    pub fn create(
        revocation_id: RevocationId,
        asset: &Asset,
        contract_id: &str,
        reason: &str,
        stamp: &Stamp,
    ) -> Result<Change<Self>, KnowledgeRefusal> {
        check_reason(reason)?;
        // The fact contains the contract's identifier, whose form is restricted. It omits the reason, because that is
        // free text.
        let detail = json!({ "revocation_id": revocation_id, "contract_id": contract_id });
        let subject = FactSubject { kind: "asset", id: asset.asset_id.uuid() };
        let fact = Fact::new(FactKind::ContractRevoked, subject, Some(asset.workspace_id), stamp, detail)
            .with_notification_categories([
                NotificationCategory::ComplianceFindings,
                NotificationCategory::PolicyChanges,
            ]);
        let next = Self {
            revocation_id,
            asset_id: asset.asset_id,
            contract_id: contract_id.to_owned(),
            reason: Some(reason.to_owned()),
            revoked_at: stamp.at,
            revoked_by: stamp.actor.clone(),
        };
        Ok(Change::create(next, fact))
    }
}
