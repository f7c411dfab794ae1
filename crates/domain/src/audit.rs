//! Facts: the one append-only record of what happened. Audit log, outbox and invalidation signal at once.

use crate::{
    access::{ActorRef, rights::Reach},
    id::{FactId, RequestId, TenantId, WorkspaceId},
    notification::Category,
    store::{CommitError, Listed, Paging, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Who acts, when, and in which request: what every decision is stamped with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The identifier that the fact of this decision gets.
    pub fact_id: FactId,
    /// The moment of the decision.
    pub at: Timestamp,
    /// Who decided.
    pub actor: ActorRef,
    /// The request that carried the decision.
    pub request_id: RequestId,
}

/// What a fact is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Subject {
    /// The noun, such as `release`.
    pub kind: &'static str,
    /// Its identifier.
    pub id: Uuid,
}

macro_rules! fact_kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// The kinds of facts.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum FactKind {
            $($(#[$doc])* $name,)*
        }

        impl FactKind {
            /// The spelling in the log: `noun.what_happened`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

fact_kinds! {
    /// A tenant was made.
    TenantCreated = "tenant.created",
    /// A tenant's settings changed.
    TenantConfigured = "tenant.configured",
    /// A workspace was made.
    WorkspaceCreated = "workspace.created",
    /// What an environment asks for changed.
    EnvironmentConfigured = "environment.configured",
    /// A role was granted.
    RoleBindingCreated = "role_binding.created",
    /// A granted role was taken back.
    RoleBindingDeleted = "role_binding.deleted",
    /// A principal was bound to a workload.
    PrincipalBindingCreated = "principal_binding.created",
    /// The lane of a bound principal was settled anew.
    PrincipalBindingChanged = "principal_binding.changed",
    /// A principal is not bound to a workload any more.
    PrincipalBindingDeleted = "principal_binding.deleted",
    /// A link that opens a workload was made.
    ShareLinkCreated = "share_link.created",
    /// A link that opens a workload was taken back.
    ShareLinkRevoked = "share_link.revoked",
    /// An asset was made.
    AssetCreated = "asset.created",
    /// An asset was activated, retired or archived.
    AssetMoved = "asset.moved",
    /// An asset was granted to a principal or a workspace.
    AssetGrantCreated = "asset_grant.created",
    /// A grant of an asset was taken back.
    AssetGrantDeleted = "asset_grant.deleted",
    /// A version was added to an asset.
    AssetVersionCreated = "asset_version.created",
    /// The stored artifact of a version is not what the version's checksum names.
    IntegrityMismatch = "asset_version.integrity_mismatch",
    /// Documents were added to a knowledge base.
    DocumentsAdded = "knowledge.documents_added",
    /// Documents of a knowledge base got vectors of another embedding model.
    DocumentsReembedded = "knowledge.documents_reembedded",
    /// What was remembered of a conversation was erased.
    MemoryErased = "memory.erased",
    /// A model is asked for the meaning of a question to a knowledge base, outside of a run.
    KnowledgeAsked = "knowledge.asked",
    /// A knowledge base was searched outside of a run.
    KnowledgeRead = "knowledge.read",
    /// Somebody wanted to search a knowledge base whose access contract does not allow it.
    KnowledgeReadRefused = "knowledge.read_refused",
    /// A tool of a server was not called, because it is not what the release pinned.
    ToolDrifted = "tool.drifted",
    /// An access contract of a knowledge base was revoked.
    ContractRevoked = "access_contract.revoked",
    /// A flow, an asset with its first version, was made.
    FlowCreated = "flow.created",
    /// A workload was made.
    WorkloadCreated = "workload.created",
    /// A workload was described anew, suspended, resumed or retired.
    WorkloadChanged = "workload.changed",
    /// A release was drafted.
    ReleaseCreated = "release.created",
    /// A version was bound to a draft.
    ReleaseBindingAdded = "release.binding_added",
    /// A version was taken out of a draft.
    ReleaseBindingRemoved = "release.binding_removed",
    /// A release changed its state.
    ReleaseTransitioned = "release.transitioned",
    /// A release was taken back from lanes, which those before it hold again.
    ReleaseRolledBack = "release.rolled_back",
    /// A stored document of a release is not what its checksum names.
    ReleaseIntegrityMismatch = "release.integrity_mismatch",
    /// The runs of a release began to speak for taking it back, or no longer do.
    RollbackAdvised = "release.rollback_advised",
    /// A rollout went on to its next lane, or was completed.
    RolloutAdvanced = "rollout.advanced",
    /// The rollout pilot found a reason not to go on.
    RolloutHeld = "rollout.held",
    /// A person gave a verdict on a release.
    ReleaseReviewed = "release.reviewed",
    /// Somebody wanted to approve a release that they had made, where that is not allowed.
    SelfApprovalRefused = "release.self_approval_refused",
    /// A script was let in, and is about to be handed over.
    CodeAccepted = "execution.code_accepted",
    /// A person said how a run came out of which nobody else can say so.
    ExecutionSettled = "execution.settled",
    /// A run ended.
    ExecutionEnded = "execution.ended",
    /// A run was refused by policy.
    ExecutionDenied = "execution.denied",
    /// The steps of a run are over, and its answer waits for a person.
    ExecutionReviewAsked = "execution.review_asked",
    /// A person gave a verdict on the answer of a run, which ended it.
    ExecutionReviewed = "execution.reviewed",
    /// Somebody wanted to review a run of its own.
    SelfReviewRefused = "execution.self_review_refused",
}

/// One entry of a tenant's log. Codes, identifiers, key names and digests only: never free text or payloads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact {
    /// Its identifier.
    pub fact_id: FactId,
    /// What happened.
    pub kind: FactKind,
    /// To what.
    pub subject: Subject,
    /// In which workspace, where there is one.
    pub workspace_id: Option<WorkspaceId>,
    /// By whom.
    pub actor: ActorRef,
    /// In which request.
    pub request_id: RequestId,
    /// When.
    pub occurred_at: Timestamp,
    /// Whom it concerns: what people choose to be told of.
    pub categories: Vec<Category>,
    /// Codes and digests that say more.
    pub detail: Map<String, Value>,
}

impl Fact {
    /// The fact of a decision. `detail` is an object; anything else counts as none.
    #[must_use]
    pub fn new(
        kind: FactKind,
        subject: Subject,
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

    /// The same fact, of these categories.
    #[must_use]
    pub fn concerning(mut self, categories: impl IntoIterator<Item = Category>) -> Self {
        self.categories.extend(categories);
        self
    }

    /// The same fact, saying more. `more` is an object; anything else adds nothing.
    #[must_use]
    pub fn saying(mut self, more: Value) -> Self {
        if let Value::Object(more) = more {
            self.detail.extend(more);
        }
        self
    }

    /// The same fact, told to an owner as well.
    #[must_use]
    pub fn notifying(self, owner: &str) -> Self {
        self.concerning([Category::Reports]).saying(json!({ "notify": owner }))
    }

    /// The bytes that are stored and hashed: RFC 8785 canonical JSON of the whole entry.
    #[must_use]
    pub fn canonical_bytes(&self, tenant: TenantId) -> Vec<u8> {
        // A map built from JSON has string keys and finite numbers, so it always has a canonical form, and the rest are
        // texts: neither step can fail.
        let detail = serde_json_canonicalizer::to_string(&self.detail).unwrap_or_default();
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
        serde_json::to_vec(&entry).unwrap_or_default()
    }
}

/// A fact as it is stored. INVARIANT: members stand in the order of their names, as RFC 8785 demands, so that the
/// plain serializer writes the canonical form; a general one would sort them again for every entry.
#[derive(Serialize)]
struct Entry<'a> {
    actor: String,
    #[serde(skip_serializing_if = "<[Category]>::is_empty")]
    categories: &'a [Category],
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

/// A fact with its place in the log, as auditors read it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditEvent {
    /// The fact's identifier.
    pub event_id: FactId,
    /// Its place, counted from zero without gaps.
    pub index: u64,
    /// What happened.
    pub kind: String,
    /// The noun that it happened to.
    pub subject_kind: String,
    /// Which one.
    pub subject_id: Uuid,
    /// By whom.
    pub actor: String,
    /// When.
    pub occurred_at: Timestamp,
    /// In which request.
    pub request_id: RequestId,
    /// Whom it concerns.
    pub categories: Vec<String>,
    /// The leaf hash of its stored bytes.
    pub leaf_hash: Vec<u8>,
}

/// A fact that is stored, whether or not it has its place in the log yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredFact {
    /// What happened.
    pub kind: String,
    /// To what.
    pub subject_id: Uuid,
    /// When.
    pub occurred_at: Timestamp,
    /// Codes and digests that say more.
    pub detail: Map<String, Value>,
}

/// Reads a tenant's log.
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// One fact, by its identifier.
    async fn find(&self, scope: TenantScope, id: FactId) -> Result<Option<StoredFact>, StoreError>;
    /// Sequenced events, newest first: of one workspace, or of all; where `reach` is given, of its workspaces and workloads
    /// alone.
    async fn list(
        &self,
        scope: TenantScope,
        workspace: Option<WorkspaceId>,
        reach: Option<&Reach>,
        page: Paging,
    ) -> Result<Listed<AuditEvent>, StoreError>;
    /// Stores the fact that something was refused or read, which changed nothing else.
    async fn commit_alone(&self, scope: TenantScope, fact: Fact) -> Result<(), CommitError>;
}

/// Gives facts their place.
#[async_trait]
pub trait FactSequencer: Send + Sync {
    /// Sequences a batch in each log that waits; answers how many facts got a place.
    async fn sequence(&self) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_stored_in_its_canonical_form() {
        let detail = json!({ "z": "\u{1}\"\\\n\u{e9}\u{1f600}", "a": { "y": 1, "b": [true, null, 0.5] }, "\u{fb33}": 1, "\u{1f600}": 2 });
        for (workspace, detail) in [(None, json!({})), (Some(Uuid::from_u128(5).into()), detail)] {
            let stamp = Stamp {
                fact_id: Uuid::from_u128(1).into(),
                at: Timestamp::new(::time::OffsetDateTime::UNIX_EPOCH),
                actor: ActorRef::parse("user:ada").unwrap(),
                request_id: Uuid::from_u128(2).into(),
            };
            let subject = Subject { kind: "release", id: Uuid::from_u128(3) };
            let fact = Fact::new(FactKind::ReleaseCreated, subject, workspace, &stamp, detail);
            let stored = fact.canonical_bytes(Uuid::from_u128(4).into());
            let read: Value = serde_json::from_slice(&stored).unwrap();
            assert_eq!(String::from_utf8(stored).unwrap(), serde_json_canonicalizer::to_string(&read).unwrap());
            assert_eq!(read.as_object().unwrap().len(), 9);
            assert_eq!(read["subject"], json!({ "kind": "release", "id": Uuid::from_u128(3) }));
        }
    }

    #[test]
    fn hashes_an_empty_leaf_as_rfc_6962_says() {
        let hex: String = leaf_hash(b"").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
    }
}
