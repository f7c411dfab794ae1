//! Permissions, and sets of them.

use serde::{Serialize, Serializer};

macro_rules! permissions {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// A permission that a role can grant.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "the wire form beside each variant documents it")]
        pub enum Permission {
            $($name,)*
        }

        impl Permission {
            /// Every permission.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The wire form, such as `asset.view`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

permissions! {
    AssetCreate = "asset.create",
    AssetEdit = "asset.edit",
    AssetView = "asset.view",
    WorkloadCreate = "workload.create",
    WorkloadEdit = "workload.edit",
    WorkloadView = "workload.view",
    WorkloadSuspend = "workload.suspend",
    WorkloadExpose = "workload.expose",
    ReleaseCreate = "release.create",
    ReleaseView = "release.view",
    ReleaseTransition = "release.transition",
    ReleaseApprove = "release.approve",
    ReleaseRollback = "release.rollback",
    ShareLinkManage = "share_link.manage",
    ExecutionRun = "execution.run",
    ExecutionView = "execution.view",
    ExecutionKill = "execution.kill",
    ConnectionRead = "connection.read",
    ConnectionManage = "connection.manage",
    UseCaseAuthor = "use_case.author",
    UseCasePublish = "use_case.publish",
    AccessRequestGrant = "access_request.grant",
    NotificationRead = "notification.read",
    NotificationPreferenceSelfManage = "notification.preference.self_manage",
    NotificationDestinationManage = "notification.destination.manage",
    NotificationDeliveryView = "notification.delivery.view",
    NotificationAuditView = "notification.audit.view",
    AuditView = "audit.view",
    WorkspaceManage = "workspace.manage",
    TenantManage = "tenant.manage",
    PlatformManage = "platform.manage",
}

impl Serialize for Permission {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A set of permissions, as one bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Permissions(u64);

impl Permissions {
    /// Creates the set of these permissions.
    #[must_use]
    pub const fn of(list: &[Permission]) -> Self {
        let mut bits = 0;
        let mut remaining = list;
        while let Some((first, tail)) = remaining.split_first() {
            bits |= 1 << (*first as u64);
            remaining = tail;
        }
        Self(bits)
    }

    /// The permissions that at least one of the two sets contains.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the set contains the permission.
    #[must_use]
    pub const fn has(self, permission: Permission) -> bool {
        self.0 & (1 << (permission as u64)) != 0
    }

    /// The permissions of the set, in the order of their declaration.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.iter().copied().filter(move |permission| self.has(*permission))
    }
}
