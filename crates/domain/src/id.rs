//! One identifier type for each noun, so that a release id never passes for an asset id.

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
            /// The UUID itself, for rows and wire views.
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
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(out)
            }
        }
    )*};
}

ids! {
    /// An organization, the outermost boundary of visibility.
    TenantId,
    /// A set of workspaces that see one another's assets.
    NamespaceId,
    /// Where assets and workloads live.
    WorkspaceId,
    /// One grant of a role to a principal.
    RoleBindingId,
    /// A principal bound to a workload.
    PrincipalBindingId,
    /// A governed asset.
    AssetId,
    /// One immutable version of an asset.
    AssetVersionId,
    /// An asset shown to somebody who would not see it.
    AssetGrantId,
    /// Documents that were added to a knowledge base at once.
    IngestId,
    /// A document as it was added to a knowledge base.
    DocumentEntryId,
    /// A piece of a document, as it is found.
    ChunkId,
    /// The end of an access contract.
    RevocationId,
    /// A runnable unit.
    WorkloadId,
    /// A set of bindings for one workload in one environment.
    ReleaseId,
    /// One version bound to a release.
    BindingId,
    /// One person's verdict on a release.
    ApprovalId,
    /// A link that opens a workload.
    ShareLinkId,
    /// One run of a workload.
    ExecutionId,
    /// One policy decision taken for a run.
    DecisionId,
    /// A document kept as evidence of a run.
    ArtifactId,
    /// One thing that a step of a run read.
    LineageId,
    /// One entry of the audit log.
    FactId,
    /// One HTTP request.
    RequestId,
}

/// Where fresh identifiers and salts come from; the domain never makes its own.
pub trait Ids: Send + Sync {
    /// A fresh UUIDv7.
    fn fresh(&self) -> Uuid;
    /// 16 bytes that nobody can guess.
    fn salt(&self) -> [u8; 16];
    /// 32 bytes that nobody can guess: 256 bits of the operating system's randomness.
    fn secret(&self) -> [u8; 32];
}
