//! The position of a resource in the hierarchy tenant, namespace, workspace, workload.

use super::rights::GrantScope;
use crate::id::{NamespaceId, TenantId, WorkloadId, WorkspaceId};

/// The position of a resource, with the identifiers of all scopes that enclose it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResourcePosition {
    /// The tenant; `None` if the position is the whole installation.
    pub tenant: Option<TenantId>,
    /// The namespace; `None` if the position is the tenant or the installation.
    pub namespace: Option<NamespaceId>,
    /// The workspace; `None` if the position is wider than a workspace.
    pub workspace: Option<WorkspaceId>,
    /// The workload; `None` if the position is wider than a workload.
    pub workload: Option<WorkloadId>,
}

impl ResourcePosition {
    /// The position of the whole installation.
    pub const INSTALLATION: Self = Self { tenant: None, namespace: None, workspace: None, workload: None };

    /// The position of a whole tenant.
    #[must_use]
    pub const fn tenant(tenant: TenantId) -> Self {
        Self { tenant: Some(tenant), namespace: None, workspace: None, workload: None }
    }

    /// The position of a workspace in its namespace and tenant.
    #[must_use]
    pub const fn workspace(tenant: TenantId, namespace: NamespaceId, workspace: WorkspaceId) -> Self {
        Self { tenant: Some(tenant), namespace: Some(namespace), workspace: Some(workspace), workload: None }
    }

    /// The position of a workload in the workspace that this position names.
    #[must_use]
    pub const fn for_workload(self, workload: WorkloadId) -> Self {
        Self { workload: Some(workload), ..self }
    }

    /// Whether a grant in this scope covers the position.
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
