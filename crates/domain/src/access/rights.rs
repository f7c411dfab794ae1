//! Grants, the places where they hold, and the one question asked of them.

use super::permission::{Permission, Permissions, Role, Roles};
use crate::id::{NamespaceId, TenantId, WorkloadId, WorkspaceId};
use uuid::Uuid;

/// Where a grant holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GrantScope {
    /// In every tenant.
    Platform,
    /// In one tenant.
    Tenant(TenantId),
    /// In the workspaces of one namespace.
    Namespace(NamespaceId),
    /// In one workspace.
    Workspace(WorkspaceId),
    /// For one workload.
    Workload(WorkloadId),
}

impl GrantScope {
    /// The spellings of all kinds of scopes.
    pub const KINDS: [&str; 5] = ["platform", "tenant", "namespace", "workspace", "workload"];

    /// The spelling of the scope's kind.
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

    /// The identifier of what the grant is confined to; the platform has none.
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

    /// The scope of that kind and reference; `None` where they do not fit together.
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

/// A role, what it allows and where it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The role.
    pub role: Role,
    /// The permissions that decisions go by: the role's, except where a test grants single ones.
    pub permissions: Permissions,
    /// Where it holds.
    pub scope: GrantScope,
}

impl Grant {
    /// A role with its permissions.
    #[must_use]
    pub const fn of(role: Role, scope: GrantScope) -> Self {
        Self { role, permissions: role.permissions(), scope }
    }
}

/// Where something is, with all that surrounds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The tenant; `None` for the platform itself.
    pub tenant: Option<TenantId>,
    /// The namespace, if the place is inside one.
    pub namespace: Option<NamespaceId>,
    /// The workspace, if the place is inside one.
    pub workspace: Option<WorkspaceId>,
    /// The workload, if the place is one.
    pub workload: Option<WorkloadId>,
}

impl Place {
    /// The installation as a whole.
    pub const PLATFORM: Self = Self { tenant: None, namespace: None, workspace: None, workload: None };

    /// A tenant as a whole.
    #[must_use]
    pub const fn tenant(tenant: TenantId) -> Self {
        Self { tenant: Some(tenant), namespace: None, workspace: None, workload: None }
    }

    /// A workspace.
    #[must_use]
    pub const fn workspace(tenant: TenantId, namespace: NamespaceId, workspace: WorkspaceId) -> Self {
        Self { tenant: Some(tenant), namespace: Some(namespace), workspace: Some(workspace), workload: None }
    }

    /// The same place, narrowed to a workload in it.
    #[must_use]
    pub const fn of_workload(self, workload: WorkloadId) -> Self {
        Self { workload: Some(workload), ..self }
    }

    fn is_within(&self, scope: &GrantScope) -> bool {
        match scope {
            GrantScope::Platform => true,
            GrantScope::Tenant(id) => self.tenant == Some(*id),
            GrantScope::Namespace(id) => self.namespace == Some(*id),
            GrantScope::Workspace(id) => self.workspace == Some(*id),
            GrantScope::Workload(id) => self.workload == Some(*id),
        }
    }
}

/// All that an actor's roles allow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    grants: Vec<Grant>,
}

impl Rights {
    /// The rights that these grants give together.
    #[must_use]
    pub const fn new(grants: Vec<Grant>) -> Self {
        Self { grants }
    }

    /// Whether some grant that holds in the place has the permission.
    #[must_use]
    pub fn allow(&self, permission: Permission, place: &Place) -> bool {
        self.grants.iter().any(|grant| grant.permissions.has(permission) && place.is_within(&grant.scope))
    }

    /// Everything that is allowed in the place.
    #[must_use]
    pub fn permissions_at(&self, place: &Place) -> Permissions {
        self.grants
            .iter()
            .filter(|grant| place.is_within(&grant.scope))
            .fold(Permissions::default(), |all, grant| all.with(grant.permissions))
    }

    /// An estimate of the heap memory that the grants take, in bytes.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        self.grants.capacity().saturating_mul(size_of::<Grant>())
    }

    /// Whether there is any grant at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// Whether some grant reaches beyond single tenants.
    #[must_use]
    pub fn reach_every_tenant(&self) -> bool {
        self.allow(Permission::PlatformManage, &Place::PLATFORM)
    }

    /// The one workspace that the grants name, if they name exactly one and nothing wider.
    #[must_use]
    pub fn home_workspace(&self) -> Option<WorkspaceId> {
        let mut home = None;
        for grant in &self.grants {
            match (grant.scope, home) {
                (GrantScope::Workspace(id), None) => home = Some(id),
                (GrantScope::Workspace(id), Some(known)) if id == known => {}
                (GrantScope::Workload(_), _) => {}
                (
                    GrantScope::Workspace(_) | GrantScope::Platform | GrantScope::Tenant(_) | GrantScope::Namespace(_),
                    _,
                ) => return None,
            }
        }
        home
    }

    /// The roles that hold in the place.
    #[must_use]
    pub fn roles_at(&self, place: &Place) -> Roles {
        self.grants.iter().filter(|grant| place.is_within(&grant.scope)).map(|grant| grant.role).collect()
    }

    /// The workspaces and workloads that the grants of a permission are confined to; `None` when a grant covers the
    /// whole tenant. Lists are filtered by it.
    #[must_use]
    pub fn reach(&self, permission: Permission) -> Option<Reach> {
        let mut reach = Reach::default();
        for grant in self.grants.iter().filter(|grant| grant.permissions.has(permission)) {
            match grant.scope {
                GrantScope::Platform | GrantScope::Tenant(_) => return None,
                GrantScope::Namespace(id) => reach.namespaces.push(id),
                GrantScope::Workspace(id) => reach.workspaces.push(id),
                GrantScope::Workload(id) => reach.workloads.push(id),
            }
        }
        Some(reach)
    }
}

/// Where a permission holds that does not hold in the whole tenant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reach {
    /// In these namespaces.
    pub namespaces: Vec<NamespaceId>,
    /// In these workspaces.
    pub workspaces: Vec<WorkspaceId>,
    /// For these workloads.
    pub workloads: Vec<WorkloadId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    #[test]
    fn a_grant_holds_inside_its_scope_and_nowhere_else() {
        let here = Place::workspace(id(1).into(), id(2).into(), id(3).into());
        let there = Place::workspace(id(1).into(), id(2).into(), id(4).into());
        let elsewhere = Place::workspace(id(9).into(), id(8).into(), id(7).into());
        let cases = [
            (GrantScope::Platform, [true, true, true]),
            (GrantScope::Tenant(id(1).into()), [true, true, false]),
            (GrantScope::Namespace(id(2).into()), [true, true, false]),
            (GrantScope::Workspace(id(3).into()), [true, false, false]),
        ];
        for (scope, expected) in cases {
            let rights = Rights::new(vec![Grant::of(Role::Viewer, scope)]);
            let got = [here, there, elsewhere].map(|place| rights.allow(Permission::AssetView, &place));
            assert_eq!(got, expected, "{scope:?}");
            assert!(!rights.allow(Permission::AssetEdit, &here));
        }
    }
}
