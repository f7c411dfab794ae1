//! Role grants, the scopes in which they apply, and the permission check.

use super::{
    permission::{Permission, Permissions},
    resource_position::ResourcePosition,
    role::{Role, Roles},
};
use crate::id::{NamespaceId, TenantId, WorkloadId, WorkspaceId};
use uuid::Uuid;

/// The scope in which a role grant applies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GrantScope {
    /// The grant applies in every tenant.
    Platform,
    /// The grant applies in one tenant.
    Tenant(TenantId),
    /// The grant applies in all workspaces of one namespace.
    Namespace(NamespaceId),
    /// The grant applies in one workspace.
    Workspace(WorkspaceId),
    /// The grant applies to one workload.
    Workload(WorkloadId),
}

impl GrantScope {
    /// The wire forms of all kinds of scopes.
    pub const KINDS: [&str; 5] = ["platform", "tenant", "namespace", "workspace", "workload"];

    /// The wire form of the scope's kind, such as `workspace`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Tenant(_) => "tenant",
            Self::Namespace(_) => "namespace",
            Self::Workspace(_) => "workspace",
            Self::Workload(_) => "workload",
        }
    }

    /// The identifier of the resource that the scope names; `None` for the platform.
    #[must_use]
    pub const fn reference(&self) -> Option<Uuid> {
        match self {
            Self::Platform => None,
            Self::Tenant(id) => Some(id.uuid()),
            Self::Namespace(id) => Some(id.uuid()),
            Self::Workspace(id) => Some(id.uuid()),
            Self::Workload(id) => Some(id.uuid()),
        }
    }

    /// Builds a scope from its kind and the identifier of its resource. Returns `None` if the kind is unknown, or the
    /// identifier is missing or unexpected.
    #[must_use]
    pub fn from_parts(kind: &str, reference: Option<Uuid>) -> Option<Self> {
        match (kind, reference) {
            ("platform", None) => Some(Self::Platform),
            ("tenant", Some(id)) => Some(Self::Tenant(id.into())),
            ("namespace", Some(id)) => Some(Self::Namespace(id.into())),
            ("workspace", Some(id)) => Some(Self::Workspace(id.into())),
            ("workload", Some(id)) => Some(Self::Workload(id.into())),
            _ => None,
        }
    }
}

/// A role with its permissions, in one scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The role that is granted.
    pub role: Role,
    /// The permissions of the grant: those of the role, or single permissions in tests.
    pub permissions: Permissions,
    /// The scope in which the grant applies.
    pub scope: GrantScope,
    /// The source from which the server derived the grant.
    pub source: GrantSource,
}

/// The source from which the server derives a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantSource {
    /// A role binding, or a built-in rule of the server.
    BindingOrRule,
    /// The setting that names the first administrators (`FAIRWAY_BOOTSTRAP_ADMINS`).
    BootstrapAdmins,
}

impl GrantSource {
    /// The wire form of the source; `None` for a role binding or a built-in rule.
    #[must_use]
    pub const fn as_wire(self) -> Option<&'static str> {
        match self {
            Self::BindingOrRule => None,
            Self::BootstrapAdmins => Some("bootstrap_admins"),
        }
    }
}

impl Grant {
    /// Creates a grant with the permissions of the role.
    #[must_use]
    pub const fn of_role(role: Role, scope: GrantScope) -> Self {
        Self { role, permissions: role.permissions(), scope, source: GrantSource::BindingOrRule }
    }

    /// Creates the grant of an administrator that the configuration names.
    #[must_use]
    pub const fn of_bootstrap_admin() -> Self {
        Self { source: GrantSource::BootstrapAdmins, ..Self::of_role(Role::PlatformAdmin, GrantScope::Platform) }
    }
}

/// All grants of an actor, against which permissions are checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    grants: Vec<Grant>,
}

impl Rights {
    /// Creates the rights that consist of these grants.
    #[must_use]
    pub const fn new(grants: Vec<Grant>) -> Self {
        Self { grants }
    }

    /// All grants of the actor.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Whether a grant that covers the position includes the permission.
    #[must_use]
    pub fn allow(&self, permission: Permission, position: &ResourcePosition) -> bool {
        self.grants.iter().any(|grant| grant.permissions.has(permission) && position.is_within(&grant.scope))
    }

    /// The estimated heap memory of the grants, in bytes.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        self.grants.capacity().saturating_mul(size_of::<Grant>())
    }

    /// Whether the actor has no grants.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// The only workspace in which the actor has grants. `None` if the grants name several workspaces or a wider scope.
    /// Grants for single workloads do not count.
    #[must_use]
    pub fn sole_workspace(&self) -> Option<WorkspaceId> {
        let mut sole_workspace = None;
        for grant in &self.grants {
            match (grant.scope, sole_workspace) {
                (GrantScope::Workspace(id), None) => sole_workspace = Some(id),
                (GrantScope::Workspace(id), Some(workspace)) if id == workspace => {}
                (GrantScope::Workload(_), _) => {}
                (
                    GrantScope::Workspace(_) | GrantScope::Platform | GrantScope::Tenant(_) | GrantScope::Namespace(_),
                    _,
                ) => return None,
            }
        }
        sole_workspace
    }

    /// The roles of the grants that cover the position.
    #[must_use]
    pub fn roles_at(&self, position: &ResourcePosition) -> Roles {
        self.grants.iter().filter(|grant| position.is_within(&grant.scope)).map(|grant| grant.role).collect()
    }

    /// The scopes in which the actor has a permission; `None` if a grant covers the whole tenant. Lists contain only
    /// resources in these scopes.
    #[must_use]
    pub fn scope_restriction(&self, permission: Permission) -> Option<VisibleScopes> {
        let mut visible_scopes = VisibleScopes::default();
        for grant in self.grants.iter().filter(|grant| grant.permissions.has(permission)) {
            match grant.scope {
                GrantScope::Platform | GrantScope::Tenant(_) => return None,
                GrantScope::Namespace(id) => visible_scopes.namespaces.push(id),
                GrantScope::Workspace(id) => visible_scopes.workspaces.push(id),
                GrantScope::Workload(id) => visible_scopes.workloads.push(id),
            }
        }
        Some(visible_scopes)
    }
}

/// The scopes in which a caller has a permission. Lists contain only resources in these scopes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VisibleScopes {
    /// The namespaces in which the permission applies.
    pub namespaces: Vec<NamespaceId>,
    /// The workspaces in which the permission applies.
    pub workspaces: Vec<WorkspaceId>,
    /// The workloads for which the permission applies.
    pub workloads: Vec<WorkloadId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    #[test]
    fn grant_applies_only_inside_its_scope() {
        let workspace = ResourcePosition::workspace(id(1).into(), id(2).into(), id(3).into());
        let sibling = ResourcePosition::workspace(id(1).into(), id(2).into(), id(4).into());
        let other_tenant = ResourcePosition::workspace(id(9).into(), id(8).into(), id(7).into());
        let cases = [
            (GrantScope::Platform, [true, true, true]),
            (GrantScope::Tenant(id(1).into()), [true, true, false]),
            (GrantScope::Namespace(id(2).into()), [true, true, false]),
            (GrantScope::Workspace(id(3).into()), [true, false, false]),
        ];
        for (scope, expected) in cases {
            let rights = Rights::new(vec![Grant::of_role(Role::Viewer, scope)]);
            let allowed =
                [workspace, sibling, other_tenant].map(|position| rights.allow(Permission::AssetView, &position));
            assert_eq!(allowed, expected, "{scope:?}");
            assert!(!rights.allow(Permission::AssetEdit, &workspace));
        }
    }
}
