//! The position of a resource in the hierarchy of tenants, namespaces, workspaces and workloads.

use super::rights::GrantScope;
use crate::id::{NamespaceId, TenantId, WorkloadId, WorkspaceId};

/// A resource's position in the hierarchy, with all enclosing scopes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResourcePosition {
    /// The tenant; `None` for the installation.
    pub tenant: Option<TenantId>,
    /// The namespace, if any.
    pub namespace: Option<NamespaceId>,
    /// The workspace, if any.
    pub workspace: Option<WorkspaceId>,
    /// The workload, if any.
    pub workload: Option<WorkloadId>,
}

impl ResourcePosition {
    /// The whole installation.
    pub const INSTALLATION: Self = Self { tenant: None, namespace: None, workspace: None, workload: None };

    /// A whole tenant.
    #[must_use]
    pub const fn tenant(tenant: TenantId) -> Self {
        Self { tenant: Some(tenant), namespace: None, workspace: None, workload: None }
    }

    /// A workspace.
    #[must_use]
    pub const fn workspace(tenant: TenantId, namespace: NamespaceId, workspace: WorkspaceId) -> Self {
        Self { tenant: Some(tenant), namespace: Some(namespace), workspace: Some(workspace), workload: None }
    }

    /// Narrows the position of a workspace to one of its workloads.
    #[must_use]
    pub const fn for_workload(self, workload: WorkloadId) -> Self {
        Self { workload: Some(workload), ..self }
    }

    /// Whether a grant that is confined to `scope` covers this resource.
    pub(super) fn is_within(&self, scope: &GrantScope) -> bool {
        match scope {
            GrantScope::Platform => true,
            GrantScope::Tenant(id) => self.tenant == Some(*id),
            GrantScope::Namespace(id) => self.namespace == Some(*id),
            GrantScope::Workspace(id) => self.workspace == Some(*id),
            GrantScope::Workload(id) => self.workload == Some(*id),
        }
    }
}
