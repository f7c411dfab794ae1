//! Facts: the append-only record of changes, refusals and audited reads. Sequenced facts form the audit log.

pub mod disclosed_detail;

use crate::{
    access::{ActorRef, rights::VisibleScopes},
    asset::canonical::canonical_text,
    id::{FactId, RequestId, TenantId, WorkspaceId},
    notification_category::NotificationCategory,
    store::{CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The context that each decision records: fact identifier, time, actor and request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The identifier that the fact of the decision receives.
    pub fact_id: FactId,
    /// The time of the decision.
    pub at: Timestamp,
    /// The actor to whom the decision is attributed.
    pub actor: ActorRef,
    /// The request during which the decision is made.
    pub request_id: RequestId,
}

/// The resource that a fact concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct FactSubject {
    /// The resource type, such as `release`.
    pub kind: &'static str,
    /// The identifier of the resource.
    pub id: Uuid,
}

macro_rules! fact_kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// The kinds of facts, named after the events that they record.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum FactKind {
            $($(#[$doc])* $name,)*
        }

        impl FactKind {
            /// Every kind, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stored form: `noun.event`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Parses the stored form; `None` for any other text.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

fact_kinds! {
    /// A tenant was created. The detail contains its slug.
    TenantCreated = "tenant.created",
    /// A tenant's settings changed.
    TenantConfigured = "tenant.configured",
    /// A workspace was created, with its built-in assistant.
    WorkspaceCreated = "workspace.created",
    /// The settings of an environment changed.
    EnvironmentConfigured = "environment.configured",
    /// A principal received a role in a scope.
    RoleBindingCreated = "role_binding.created",
    /// A principal lost a role in a scope.
    RoleBindingDeleted = "role_binding.deleted",
    /// A subject of an issuer was pinned to an actor name.
    IdentityPinned = "identity.pinned",
    /// An identity was refused, because another subject has its actor name.
    IdentityRefused = "identity.refused",
    /// The server authenticated an administrator whom the configuration names instead of a role binding.
    BootstrapAdminSeen = "identity.bootstrap_admin_seen",
    /// A person signed in with a browser.
    SessionStarted = "session.started",
    /// A browser session ended before its expiry.
    SessionEnded = "session.ended",
    /// A principal was bound to a workload.
    PrincipalBindingCreated = "principal_binding.created",
    /// The lane of a bound principal changed.
    PrincipalBindingChanged = "principal_binding.changed",
    /// A principal's binding to a workload was removed.
    PrincipalBindingDeleted = "principal_binding.deleted",
    /// A share link was created.
    ShareLinkCreated = "share_link.created",
    /// A share link was revoked.
    ShareLinkRevoked = "share_link.revoked",
    /// An asset was created, without a version.
    AssetCreated = "asset.created",
    /// An asset was activated, retired or archived.
    AssetLifecycleChanged = "asset.moved",
    /// An asset was granted to a principal or a workspace.
    AssetGrantCreated = "asset_grant.created",
    /// A grant of an asset was revoked.
    AssetGrantDeleted = "asset_grant.deleted",
    /// A version was added to an asset.
    AssetVersionCreated = "asset_version.created",
    /// The stored artifact of a version does not match the version's checksum.
    IntegrityMismatch = "asset_version.integrity_mismatch",
    /// Documents were added to a knowledge base.
    DocumentsAdded = "knowledge.documents_added",
    /// Documents of a knowledge base were re-embedded with another model.
    DocumentsReembedded = "knowledge.documents_reembedded",
    /// The memory of a conversation was erased.
    MemoryErased = "memory.erased",
    /// The text of a knowledge base query outside a run is about to be sent to an embedding model.
    KnowledgeQueryEmbedded = "knowledge.asked",
    /// A knowledge base was searched outside a run.
    KnowledgeSearched = "knowledge.read",
    /// A search of a knowledge base was refused by its access contract.
    KnowledgeSearchRefused = "knowledge.read_refused",
    /// A tool call was refused because the tool's description differs from its pin.
    ToolDrifted = "tool.drifted",
    /// An access contract of a knowledge base was revoked.
    ContractRevoked = "access_contract.revoked",
    /// A flow was created: an asset with its first version.
    FlowCreated = "flow.created",
    /// A workload was created, other than with a workspace or by the publication of a use case.
    WorkloadCreated = "workload.created",
    /// A workload was updated, suspended, resumed or retired.
    WorkloadChanged = "workload.changed",
    /// A release was created as a draft.
    ReleaseCreated = "release.created",
    /// A version was bound to a draft.
    ReleaseBindingAdded = "release.binding_added",
    /// A binding was removed from a draft.
    ReleaseBindingRemoved = "release.binding_removed",
    /// A release changed its state, for example from draft to review.
    ReleaseTransitioned = "release.transitioned",
    /// A release was rolled back, and earlier releases hold its lanes again.
    ReleaseRolledBack = "release.rolled_back",
    /// A stored document of a release does not match its checksum.
    ReleaseIntegrityMismatch = "release.integrity_mismatch",
    /// The rollback recommendation for a release was set or cleared.
    RollbackRecommendationChanged = "release.rollback_advised",
    /// A rollout advanced to its next lane or completed.
    RolloutAdvanced = "rollout.advanced",
    /// The rollout controller put the rollout on hold.
    RolloutHeld = "rollout.held",
    /// A reviewer gave a verdict on a release.
    ReleaseReviewed = "release.reviewed",
    /// An author's attempt to approve its own release was refused.
    SelfApprovalRefused = "release.self_approval_refused",
    /// A script was accepted for execution.
    CodeAccepted = "execution.code_accepted",
    /// A person resolved a run whose outcome was unknown.
    ExecutionResolved = "execution.settled",
    /// A run ended. The detail contains its outcome.
    ExecutionEnded = "execution.ended",
    /// A policy denied a run. The detail contains the reason code.
    ExecutionDenied = "execution.denied",
    /// The steps of a run finished; its answer awaits human review.
    ExecutionReviewRequested = "execution.review_asked",
    /// A reviewer gave a verdict on a run's answer, which ended the run.
    ExecutionReviewed = "execution.reviewed",
    /// A submitter's attempt to review its own run was refused.
    SelfReviewRefused = "execution.self_review_refused",
    /// A connection was created.
    ConnectionCreated = "connection.created",
    /// The settings or the status of a connection changed.
    ConnectionChanged = "connection.changed",
    /// A connection was deleted.
    ConnectionDeleted = "connection.deleted",
    /// The endpoint of a connection was checked.
    ConnectionChecked = "connection.checked",
    /// The credentials of a connection expire soon, or have expired.
    ConnectionExpiring = "connection.expiring",
    /// A request for access to a connection was granted.
    AccessRequestGranted = "access_request.granted",
    /// A request for access to a connection was denied.
    AccessRequestDenied = "access_request.denied",
    /// The erasure of an actor's texts was requested.
    ErasureRequested = "erasure.requested",
    /// The erasure of an actor's texts was approved.
    ErasureApproved = "erasure.approved",
    /// The erasure of an actor's texts was refused or withdrawn.
    ErasureRefused = "erasure.refused",
    /// A requester's attempt to approve its own erasure was refused.
    ErasureSelfApprovalRefused = "erasure.self_approval_refused",
    /// All texts of an erasure are erased.
    ErasureCompleted = "erasure.completed",
    /// A use case was created as a draft.
    UseCaseCreated = "use_case.created",
    /// A use case was refined: a successor replaced it.
    UseCaseRefined = "use_case.refined",
    /// A use case was published. It is now active, or awaits access to connections.
    UseCasePublished = "use_case.published",
    /// A use case that awaited access to connections was activated.
    UseCaseActivated = "use_case.activated",
    /// A use case was archived.
    UseCaseArchived = "use_case.archived",
    /// A use case was returned to draft.
    UseCaseReopened = "use_case.reopened",
    /// A person changed its notification preferences in a scope.
    PreferencesChanged = "notification.preferences_changed",
    /// The default notification profiles of the tenant's roles changed.
    DefaultProfilesChanged = "notification.default_profiles_changed",
    /// A destination of notifications was created.
    DestinationCreated = "notification.destination_created",
    /// A destination of notifications changed.
    DestinationChanged = "notification.destination_changed",
    /// A destination of notifications was deleted.
    DestinationDeleted = "notification.destination_deleted",
    /// A test message was sent to a destination.
    DestinationTested = "notification.destination_tested",
    /// A person requested another attempt of a failed delivery.
    DeliveryRetried = "notification.delivery_retried",
    /// A person changed its notification profile: time zone, digests or chat.
    NotificationProfileChanged = "notification.profile_changed",
    /// An administrator published an announcement.
    AnnouncementMade = "notification.announcement_made",
    /// A recipient marked a notification as unread, read or archived.
    NotificationMarked = "notification.marked",
    /// A recipient marked all its notifications as read.
    InboxRead = "notification.inbox_read",
    /// A governance-relevant notification was not delivered, because its recipient opted out.
    NotificationSuppressed = "notification.suppressed",
}

/// One entry of a tenant's log. It contains only codes, identifiers, key names and digests, and never free text or
/// payloads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact {
    /// The identifier of the fact, created with its stamp.
    pub fact_id: FactId,
    /// The event that the fact records.
    pub kind: FactKind,
    /// The resource that the event affected.
    pub subject: FactSubject,
    /// The workspace of the resource, if it belongs to one.
    pub workspace_id: Option<WorkspaceId>,
    /// The actor to whom the event is attributed.
    pub actor: ActorRef,
    /// The request that caused the event.
    pub request_id: RequestId,
    /// The time of the decision that the fact records.
    pub occurred_at: Timestamp,
    /// The categories in which the fact produces notifications; empty for a fact without notifications.
    pub categories: Vec<NotificationCategory>,
    /// Further codes and digests about the event, by name.
    pub detail: Map<String, Value>,
}

impl Fact {
    /// Creates the fact of a decision. `detail` must be an object; any other JSON counts as empty.
    #[must_use]
    pub fn new(
        kind: FactKind,
        subject: FactSubject,
        workspace_id: Option<WorkspaceId>,
        stamp: &Stamp,
        detail: Value,
    ) -> Self {
        let detail = match detail {
            Value::Object(map) => map,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
        };
        Self {
            fact_id: stamp.fact_id,
            kind,
            subject,
            workspace_id,
            actor: stamp.actor.clone(),
            request_id: stamp.request_id,
            occurred_at: stamp.at,
            categories: Vec::new(),
            detail,
        }
    }

    /// Adds categories in which the fact produces notifications.
    #[must_use]
    pub fn with_notification_categories(mut self, categories: impl IntoIterator<Item = NotificationCategory>) -> Self {
        self.categories.extend(categories);
        self
    }

    /// Merges the members of a JSON object into `detail`; equal keys are replaced. Any other JSON adds nothing.
    #[must_use]
    pub fn merge_detail(mut self, members: Value) -> Self {
        if let Value::Object(members) = members {
            self.detail.extend(members);
        }
        self
    }

    /// Makes the notification projector notify `owner` about the fact.
    #[must_use]
    pub fn notifying_owner(self, owner: &str) -> Self {
        self.with_notification_categories([NotificationCategory::Reports]).merge_detail(json!({ "notify": owner }))
    }

    /// The canonical JSON (RFC 8785) of the whole entry: the bytes that are stored and hashed.
    #[must_use]
    pub fn canonical_bytes(&self, tenant: TenantId) -> Vec<u8> {
        let detail = canonical_text(&self.detail);
        let entry = Entry {
            actor: self.actor.to_string(),
            categories: &self.categories,
            detail: RawValue::from_string(detail).unwrap_or_default(),
            fact_id: self.fact_id,
            kind: self.kind.as_str(),
            occurred_at: self.occurred_at,
            request_id: self.request_id,
            subject: EntrySubject { id: self.subject.id, kind: self.subject.kind },
            tenant_id: tenant,
            workspace_id: self.workspace_id,
        };
        // The serialization cannot fail, because the members are strings.
        serde_json::to_vec(&entry).unwrap_or_default()
    }
}

/// A fact in its stored form. INVARIANT: the fields are declared in lexical order, as RFC 8785 requires, so that the
/// plain serializer writes canonical JSON. A general canonicalizer would have to sort the fields of each entry at run
/// time.
#[derive(Serialize)]
struct Entry<'a> {
    actor: String,
    #[serde(skip_serializing_if = "<[NotificationCategory]>::is_empty")]
    categories: &'a [NotificationCategory],
    detail: Box<RawValue>,
    fact_id: FactId,
    kind: &'static str,
    occurred_at: Timestamp,
    request_id: RequestId,
    subject: EntrySubject,
    tenant_id: TenantId,
    workspace_id: Option<WorkspaceId>,
}

#[derive(Serialize)]
struct EntrySubject {
    id: Uuid,
    kind: &'static str,
}

/// The hash of a log entry as a leaf of a Merkle tree: SHA-256 over a zero byte and the entry (RFC 6962, 2.1).
#[must_use]
pub fn leaf_hash(entry: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update([0_u8]);
    hasher.update(entry);
    hasher.finalize().into()
}

/// A sequenced fact in the form that auditors read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditEvent {
    /// The fact's identifier.
    pub event_id: FactId,
    /// The index of the fact in the log, from zero without gaps.
    pub index: u64,
    /// The stored form of the event's kind, such as `release.created`.
    pub kind: String,
    /// The type of the affected resource.
    pub subject_kind: String,
    /// The identifier of the affected resource.
    pub subject_id: Uuid,
    /// The actor to whom the event is attributed.
    pub actor: String,
    /// The time of the decision that the fact records.
    pub occurred_at: Timestamp,
    /// The request that caused the event.
    pub request_id: RequestId,
    /// The notification categories of the fact, in wire form.
    pub categories: Vec<String>,
    /// The Merkle leaf hash of the fact's stored bytes.
    pub leaf_hash: Vec<u8>,
    /// The workspace of the resource, if it belongs to one.
    pub workspace_id: Option<WorkspaceId>,
    /// The members of the detail that auditors may read, as selected by [`disclosed_detail::disclosed_detail`].
    pub detail: Option<Map<String, Value>>,
}

/// The filters of a list of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AuditFilter {
    /// Only events of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only events about this resource.
    pub subject: Option<Uuid>,
}

/// A stored fact, sequenced or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredFact {
    /// The stored form of the event's kind, such as `release.created`.
    pub kind: String,
    /// The identifier of the affected resource.
    pub subject_id: Uuid,
    /// The time of the decision that the fact records.
    pub occurred_at: Timestamp,
    /// Further codes and digests about the event, by name.
    pub detail: Map<String, Value>,
}

/// Reads a tenant's log, and stores facts without another change.
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// Finds a fact by its identifier, sequenced or not.
    async fn find(&self, scope: TenantScope, id: FactId) -> Result<Option<StoredFact>, StoreError>;
    /// Lists sequenced events, newest first. `visible_scopes` restricts the list to events in these scopes.
    async fn list(
        &self,
        scope: TenantScope,
        filter: AuditFilter,
        visible_scopes: Option<&VisibleScopes>,
        page: PageRequest,
    ) -> Result<Page<AuditEvent>, StoreError>;
    /// Stores a fact that accompanies no other change, such as a refusal or a read. If the outcome of the commit is
    /// unknown, the store is reported as unavailable, because no change of a request depends on the outcome.
    async fn commit_fact(&self, scope: TenantScope, fact: Fact) -> Result<(), CommitError>;
}

/// Assigns committed facts their indexes in the audit log.
#[async_trait]
pub trait FactSequencer: Send + Sync {
    /// Sequences one batch of facts in each log with pending facts; returns the number of sequenced facts.
    async fn sequence(&self) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_entries_in_canonical_form() {
        let detail = json!({ "z": "\u{1}\"\\\n\u{e9}\u{1f600}", "a": { "y": 1, "b": [true, null, 0.5] }, "\u{fb33}": 1, "\u{1f600}": 2 });
        let workspace = || Some(Uuid::from_u128(5).into());
        // The form of an asset version refuses these values.
        let refused_in_content = json!({ "nul": "\u{0}", "large": u64::MAX });
        for (workspace, detail) in [(None, json!({})), (workspace(), detail), (workspace(), refused_in_content)] {
            let stamp = Stamp {
                fact_id: Uuid::from_u128(1).into(),
                at: Timestamp::new(::time::OffsetDateTime::UNIX_EPOCH),
                actor: ActorRef::parse("user:ada").unwrap(),
                request_id: Uuid::from_u128(2).into(),
            };
            let subject = FactSubject { kind: "release", id: Uuid::from_u128(3) };
            let fact = Fact::new(FactKind::ReleaseCreated, subject, workspace, &stamp, detail);
            let stored = fact.canonical_bytes(Uuid::from_u128(4).into());
            let parsed: Value = serde_json::from_slice(&stored).unwrap();
            assert_eq!(String::from_utf8(stored).unwrap(), serde_json_canonicalizer::to_string(&parsed).unwrap());
            assert_eq!(parsed.as_object().unwrap().len(), 9);
            assert_eq!(parsed["subject"], json!({ "kind": "release", "id": Uuid::from_u128(3) }));
        }
    }

    #[test]
    fn hashes_empty_leaf_per_rfc_6962() {
        let hex: String = leaf_hash(b"").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
    }
}
