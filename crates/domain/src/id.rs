//! One identifier type for each resource type, so that the compiler rejects a release identifier in place of an
//! asset identifier.

use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// The UUID, as stored in rows and sent to clients.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    )*};
}

ids! {
    /// An organization, the outermost boundary of visibility.
    TenantId,
    /// A set of workspaces that share the visibility of assets.
    NamespaceId,
    /// A container of assets and workloads.
    WorkspaceId,
    /// A grant of a role to a principal.
    RoleBindingId,
    /// A pinned identity: a subject of an issuer under the name that it has in a tenant.
    IdentityId,
    /// A browser session.
    SessionId,
    /// A claim by which one process renews the tokens of a session.
    RenewalId,
    /// A principal bound to a workload.
    PrincipalBindingId,
    /// A governed asset: a versioned configuration object.
    AssetId,
    /// One immutable version of an asset.
    AssetVersionId,
    /// A grant of an asset to a principal or a workspace.
    AssetGrantId,
    /// A batch of documents added to a knowledge base.
    IngestId,
    /// A document of a knowledge base.
    DocumentEntryId,
    /// A chunk of a document.
    ChunkId,
    /// The revocation of an access contract.
    RevocationId,
    /// A workload: a unit that callers run.
    WorkloadId,
    /// A set of bindings for one workload in one environment.
    ReleaseId,
    /// A version bound to a release.
    BindingId,
    /// A verdict on a release.
    ApprovalId,
    /// A share link of a workload.
    ShareLinkId,
    /// A run of a workload.
    ExecutionId,
    /// A policy decision of a run.
    DecisionId,
    /// An evidence artifact of a run.
    ArtifactId,
    /// A lineage item of a run.
    LineageId,
    /// An entry of the audit log.
    FactId,
    /// A notification in a person's inbox.
    NotificationId,
    /// A record that a notification was suppressed instead of delivered.
    SuppressedDecisionId,
    /// A shared external endpoint of notifications.
    DestinationId,
    /// A delivery of a notification outside the inbox.
    DeliveryId,
    /// The notification profile of a person.
    NotificationProfileId,
    /// An announcement: a text of an administrator for many inboxes.
    AnnouncementId,
    /// The notification preferences of a person in one scope.
    PreferenceSetId,
    /// A named external system of a workspace.
    ConnectionId,
    /// One check of a connection.
    ConnectionCheckId,
    /// A request for access to a connection.
    AccessRequestId,
    /// An erasure of all texts of one actor.
    ErasureId,
    /// A use case: a description with its bundle plan.
    UseCaseId,
    /// An HTTP request.
    RequestId,
}

/// The source of identifiers and random bytes; the domain itself generates none.
pub trait IdSource: Send + Sync {
    /// Creates a fresh UUIDv7.
    fn new_id(&self) -> Uuid;
    /// Creates 16 unpredictable bytes.
    fn salt(&self) -> [u8; 16];
    /// 32 unpredictable bytes: 256 bits of the operating system's randomness.
    fn secret(&self) -> [u8; 32];
}
