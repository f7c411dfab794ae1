//! One identifier type for each type of resource, so that the compiler rejects the identifier of a release in place of
//! that of an asset.

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
    /// Identifies an organization, the outermost boundary of visibility.
    TenantId,
    /// Identifies a set of workspaces that share the visibility of assets.
    NamespaceId,
    /// Identifies a container of assets and workloads.
    WorkspaceId,
    /// Identifies a grant of a role to a principal.
    RoleBindingId,
    /// Identifies a pinned identity: a subject of an issuer under the name that it has in a tenant.
    IdentityId,
    /// Identifies a browser session.
    SessionId,
    /// Identifies a claim by which one process renews the tokens of a session.
    RenewalId,
    /// Identifies a principal bound to a workload.
    PrincipalBindingId,
    /// Identifies a governed asset: a versioned configuration object.
    AssetId,
    /// Identifies one immutable version of an asset.
    AssetVersionId,
    /// Identifies a grant of an asset to a principal or a workspace.
    AssetGrantId,
    /// Identifies a batch of documents added to a knowledge base.
    IngestId,
    /// Identifies a document of a knowledge base.
    DocumentEntryId,
    /// Identifies a chunk of a document.
    ChunkId,
    /// Identifies the revocation of an access contract.
    RevocationId,
    /// Identifies a workload: a unit that callers run.
    WorkloadId,
    /// Identifies a set of bindings for one workload in one environment.
    ReleaseId,
    /// Identifies a version bound to a release.
    BindingId,
    /// Identifies a verdict on a release.
    ApprovalId,
    /// Identifies a share link of a workload.
    ShareLinkId,
    /// Identifies a run of a workload.
    ExecutionId,
    /// Identifies a policy decision of a run.
    DecisionId,
    /// Identifies an evidence artifact of a run.
    ArtifactId,
    /// Identifies a lineage item of a run.
    LineageId,
    /// Identifies an entry of the audit log.
    FactId,
    /// Identifies a notification in a person's inbox.
    NotificationId,
    /// Identifies a record that a notification was suppressed instead of delivered.
    SuppressedDecisionId,
    /// Identifies a shared external endpoint of notifications.
    DestinationId,
    /// Identifies a delivery of a notification outside the inbox.
    DeliveryId,
    /// Identifies the notification profile of a person.
    NotificationProfileId,
    /// Identifies an announcement: a text of an administrator for many inboxes.
    AnnouncementId,
    /// Identifies the notification preferences of a person in one scope.
    PreferenceSetId,
    /// Identifies a named external system of a workspace.
    ConnectionId,
    /// Identifies one check of a connection.
    ConnectionCheckId,
    /// Identifies a request for access to a connection.
    AccessRequestId,
    /// Identifies an erasure of all texts of one actor.
    ErasureId,
    /// Identifies a use case: a description with its bundle plan.
    UseCaseId,
    /// Identifies an HTTP request.
    RequestId,
}

/// The source of identifiers and random bytes; the domain itself generates none.
pub trait IdSource: Send + Sync {
    /// Creates a fresh UUIDv7.
    fn new_id(&self) -> Uuid;
    /// Creates 16 unpredictable bytes.
    fn salt(&self) -> [u8; 16];
    /// Creates 32 unpredictable bytes from the randomness of the operating system.
    fn secret(&self) -> [u8; 32];
}
