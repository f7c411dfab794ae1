//! Records of suppressed notifications, and the facts that report them.

use super::{NotifiableFact, PROJECTOR_ACTOR, SubjectContext};
use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{FactId, SuppressedDecisionId, WorkloadId, WorkspaceId},
    notification::{
        Channel,
        derived_identifier::EventKey,
        preference::{DecidingScope, Suppression, SuppressionReason},
    },
    notification_category::NotificationCategory,
    store::Revision,
    time::Timestamp,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// The record that a person did not receive a governance-relevant notification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuppressedDecision {
    /// The identifier of the record.
    pub suppressed_decision_id: SuppressedDecisionId,
    /// The person who did not receive the notification.
    pub recipient: ActorRef,
    /// The category of the notification.
    pub category: NotificationCategory,
    /// The kind of the fact that the notification would have reported.
    pub event_kind: String,
    /// The identifier of the fact that the notification would have reported.
    pub event_id: FactId,
    /// The code of the reason why the notification was suppressed.
    pub reason: SuppressionReason,
    /// The source of the deciding setting; `None` if a setting of the tenant decided.
    pub scope: Option<DecidingScope>,
    /// The revision of the deciding settings, if they have one.
    pub revision: Option<Revision>,
    /// The channel whose setting decided; `None` if a setting of the tenant decided.
    pub channel: Option<Channel>,
    /// The channels that were on for the recipient but had no receiver.
    pub unreachable_channels: Vec<Channel>,
    /// The workspace of the fact, if any.
    pub workspace_id: Option<WorkspaceId>,
    /// The workload of the fact, if any.
    pub workload_id: Option<WorkloadId>,
    /// The time at which the fact occurred.
    pub created_at: Timestamp,
}

/// Creates the record of a suppressed notification and the fact that reports it. `at` is the time of that fact.
pub(super) fn suppressed_decision(
    event: EventKey,
    fact: &NotifiableFact,
    subject: &SubjectContext,
    recipient: &ActorRef,
    category: NotificationCategory,
    suppression: Suppression,
    at: Timestamp,
) -> (SuppressedDecision, Fact) {
    let decision = SuppressedDecision {
        suppressed_decision_id: event.suppressed_decision_id(&recipient.to_string(), category, suppression.reason),
        recipient: recipient.clone(),
        category,
        event_kind: fact.kind.as_str().to_owned(),
        event_id: fact.fact_id,
        reason: suppression.reason,
        scope: suppression.scope,
        revision: suppression.revision,
        channel: suppression.channel,
        unreachable_channels: suppression.unreachable,
        workspace_id: fact.workspace_id,
        workload_id: subject.workload_id,
        created_at: fact.occurred_at,
    };
    let stamp = Stamp {
        fact_id: event.suppression_fact_id(decision.suppressed_decision_id),
        at,
        actor: ActorRef::system(PROJECTOR_ACTOR),
        request_id: fact.request_id,
    };
    let record_subject = FactSubject { kind: "suppressed_decision", id: decision.suppressed_decision_id.uuid() };
    let detail = json!({
        "event_id": decision.event_id,
        "category": category,
        "reason_code": suppression.reason.as_str(),
        "workload_id": subject.workload_id,
        "digest": decision.digest(),
    });
    let suppression_fact =
        Fact::new(FactKind::NotificationSuppressed, record_subject, fact.workspace_id, &stamp, detail);
    (decision, suppression_fact)
}

impl SuppressedDecision {
    /// The identifier of the fact that contains the digest of the record. It is derived from the identifier of the
    /// record.
    #[must_use]
    pub fn suppression_fact_id(&self) -> FactId {
        let id = self.suppressed_decision_id;
        EventKey::of_fact(id.uuid().into()).suppression_fact_id(id)
    }

    /// The digest `sha256:<hex>` of the canonical JSON of the record, with the members that API responses have. The
    /// fact that reports the suppression contains this digest, so an auditor can detect every later change of the
    /// record.
    #[must_use]
    pub fn digest(&self) -> String {
        let unreachable: Vec<&str> = self.unreachable_channels.iter().map(|channel| channel.as_str()).collect();
        let record = json!({
            "suppressed_decision_id": self.suppressed_decision_id,
            "recipient": self.recipient,
            "category": self.category,
            "source_event": { "kind": self.event_kind, "id": self.event_id },
            "reason_code": self.reason.as_str(),
            "scope": self.scope.map(DecidingScope::as_str),
            "revision": self.revision,
            "channel": self.channel.map(Channel::as_str),
            "unreachable_channels": unreachable,
            "workspace_id": self.workspace_id,
            "workload_id": self.workload_id,
            "created_at": self.created_at,
        });
        // A JSON map has string keys and finite numbers, so its serialization cannot fail.
        let bytes = serde_json_canonicalizer::to_vec(&record).unwrap_or_default();
        let digest = Sha256::digest(bytes);
        digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }
}
