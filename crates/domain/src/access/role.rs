//! The built-in roles. Each role is a set of permissions.

use super::{
    permission::{Permission, Permissions},
    rights::GrantScope,
};

/// A built-in role. The variants are ordered from the narrowest to the widest role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Reads assets, workloads, releases and runs.
    Viewer,
    /// Runs workloads.
    RuntimeUser,
    /// Writes assets, workloads, release drafts and use cases, and runs workloads.
    Author,
    /// Approves or rejects releases, and reviews the answers of runs.
    Approver,
    /// Transitions and rolls back releases, suspends workloads, cancels runs, and manages connections and share links.
    Operator,
    /// Reads the audit log and the records of notifications.
    Auditor,
    /// All permissions of the roles above, plus the management of the workspace and of notification destinations.
    WorkspaceAdmin,
    /// Administers everything in a tenant.
    TenantAdmin,
    /// Administers the whole installation.
    PlatformAdmin,
}

use Permission as P;

const VIEWER: Permissions = Permissions::of(&[
    P::AssetView,
    P::WorkloadView,
    P::ReleaseView,
    P::ExecutionView,
    P::NotificationRead,
    P::NotificationPreferenceSelfManage,
]);
const RUNTIME_USER: Permissions =
    Permissions::of(&[P::WorkloadView, P::ExecutionRun, P::NotificationRead, P::NotificationPreferenceSelfManage]);
const AUTHOR: Permissions = VIEWER.union(Permissions::of(&[
    P::AssetCreate,
    P::AssetEdit,
    P::WorkloadCreate,
    P::WorkloadEdit,
    P::ReleaseCreate,
    P::ExecutionRun,
    P::ConnectionRead,
    P::UseCaseAuthor,
    P::UseCasePublish,
]));
const APPROVER: Permissions = VIEWER.union(Permissions::of(&[P::ReleaseApprove, P::ConnectionRead]));
const OPERATOR: Permissions = VIEWER.union(Permissions::of(&[
    P::WorkloadEdit,
    P::WorkloadSuspend,
    P::WorkloadExpose,
    P::ReleaseTransition,
    P::ReleaseRollback,
    P::ShareLinkManage,
    P::ExecutionRun,
    P::ExecutionKill,
    P::ConnectionRead,
    P::ConnectionManage,
    P::AccessRequestGrant,
    P::NotificationDeliveryView,
]));
const AUDITOR: Permissions = VIEWER.union(Permissions::of(&[
    P::AuditView,
    P::NotificationAuditView,
    P::NotificationDeliveryView,
    P::ConnectionRead,
]));
const WORKSPACE_ADMIN: Permissions = RUNTIME_USER
    .union(AUTHOR)
    .union(APPROVER)
    .union(OPERATOR)
    .union(AUDITOR)
    .union(Permissions::of(&[P::NotificationDestinationManage, P::WorkspaceManage]));
const TENANT_ADMIN: Permissions = WORKSPACE_ADMIN.union(Permissions::of(&[P::TenantManage]));
const PLATFORM_ADMIN: Permissions = Permissions::of(Permission::ALL);

/// A set of roles, as one bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Roles(u16);

impl Roles {
    /// Whether the set contains the role.
    #[must_use]
    pub const fn has(self, role: Role) -> bool {
        self.0 & (1 << (role as u16)) != 0
    }

    /// The roles that both sets contain.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The roles of the set, from the narrowest to the widest.
    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |role| self.has(*role))
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<T: IntoIterator<Item = Role>>(roles: T) -> Self {
        Self(roles.into_iter().fold(0, |bits, role| bits | 1 << (role as u16)))
    }
}

impl Role {
    /// Every role, from the narrowest to the widest.
    pub const ALL: [Self; 9] = [
        Self::Viewer,
        Self::RuntimeUser,
        Self::Author,
        Self::Approver,
        Self::Operator,
        Self::Auditor,
        Self::WorkspaceAdmin,
        Self::TenantAdmin,
        Self::PlatformAdmin,
    ];

    /// The wire form, such as `viewer`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::RuntimeUser => "runtime_user",
            Self::Author => "author",
            Self::Approver => "approver",
            Self::Operator => "operator",
            Self::Auditor => "auditor",
            Self::WorkspaceAdmin => "workspace_admin",
            Self::TenantAdmin => "tenant_admin",
            Self::PlatformAdmin => "platform_admin",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// The permissions that the role includes.
    #[must_use]
    pub const fn permissions(self) -> Permissions {
        match self {
            Self::Viewer => VIEWER,
            Self::RuntimeUser => RUNTIME_USER,
            Self::Author => AUTHOR,
            Self::Approver => APPROVER,
            Self::Operator => OPERATOR,
            Self::Auditor => AUDITOR,
            Self::WorkspaceAdmin => WORKSPACE_ADMIN,
            Self::TenantAdmin => TENANT_ADMIN,
            Self::PlatformAdmin => PLATFORM_ADMIN,
        }
    }

    /// Whether the role can be assigned in this scope. An administrator role cannot be confined to a scope below its
    /// own.
    #[must_use]
    pub const fn may_be_bound_at(self, scope: &GrantScope) -> bool {
        match self {
            Self::PlatformAdmin => matches!(scope, GrantScope::Platform),
            Self::TenantAdmin => matches!(scope, GrantScope::Platform | GrantScope::Tenant(_)),
            Self::WorkspaceAdmin => !matches!(scope, GrantScope::Workload(_)),
            Self::Viewer | Self::RuntimeUser | Self::Author | Self::Approver | Self::Operator | Self::Auditor => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_and_their_permissions() {
        let table: Vec<String> = Role::ALL
            .into_iter()
            .map(|role| {
                let list: Vec<_> = role.permissions().iter().map(Permission::as_str).collect();
                format!("{}: {}", role.as_str(), list.join(" "))
            })
            .collect();
        insta::assert_snapshot!(table.join("\n"));
    }
}
