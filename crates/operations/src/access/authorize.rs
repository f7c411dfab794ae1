//! Authorization of operations. Only this module creates tenant scopes for the operations of callers.

use super::{Operation, Requirement};
use crate::{Failure, Stores, services::SharedState};
use fairway_domain::{
    access::{AccessStore, ActorKind, Caller, GrantScope, Permission, ResourcePosition, rights::VisibleScopes},
    id::{NamespaceId, TenantId, WorkloadId, WorkspaceId},
    tenant::{DEFAULT_TENANT_ID, DEFAULT_WORKSPACE_ID, TenantScope},
};
use moka::sync::Cache;
use std::sync::Arc;

/// The part of a list that a caller may see: everything (`None`), or the scopes of its role bindings.
pub type ListScope = Option<VisibleScopes>;

/// Returns the refusal for a caller that lacks a permission.
pub(crate) fn missing_permission(caller: &Caller, permission: Permission) -> Failure {
    match caller.actor.kind() {
        ActorKind::Anonymous => Failure::Anonymous(permission),
        ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System | ActorKind::ShareLink => {
            Failure::Forbidden(permission)
        }
    }
}

/// Authorizes an operation on a resource position, and returns the tenant scope for its store calls.
pub(crate) fn authorize(
    caller: &Caller,
    operation: Operation,
    position: &ResourcePosition,
) -> Result<TenantScope, Failure> {
    let scope = TenantScope::for_caller(caller);
    let holds = |permission| caller.rights.allow(permission, position);
    match operation.requirement() {
        Requirement::Nothing => Ok(scope),
        Requirement::Membership if caller.rights.is_empty() => {
            Err(missing_permission(caller, Permission::WorkloadView))
        }
        Requirement::Membership => Ok(scope),
        Requirement::Platform(required) if caller.rights.allow(required, &ResourcePosition::INSTALLATION) => Ok(scope),
        Requirement::Tenant(required) if caller.rights.allow(required, &ResourcePosition::tenant(caller.tenant)) => {
            Ok(scope)
        }
        Requirement::Platform(required) | Requirement::Tenant(required) => Err(missing_permission(caller, required)),
        Requirement::BelowWorkspace(required) if holds(required) => Ok(scope),
        Requirement::BelowWorkspace(_) if caller.rights.is_empty() => Err(Failure::NotFound),
        Requirement::BelowWorkspace(required) => Err(missing_permission(caller, required)),
        // A caller without the view permission receives not found. A refusal as forbidden would reveal that the
        // resource exists.
        Requirement::Resource { view: view_permission, .. } if !holds(view_permission) => Err(Failure::NotFound),
        Requirement::BelowWorkload { view: view_permission, .. }
            if !holds(view_permission) && holds(Permission::WorkloadView) =>
        {
            Err(missing_permission(caller, view_permission))
        }
        Requirement::BelowWorkload { view: view_permission, .. } if !holds(view_permission) => Err(Failure::NotFound),
        Requirement::Resource { action: required, .. } | Requirement::BelowWorkload { action: required, .. }
            if holds(required) =>
        {
            Ok(scope)
        }
        Requirement::Resource { action: required, .. } | Requirement::BelowWorkload { action: required, .. } => {
            Err(missing_permission(caller, required))
        }
    }
}

/// Authorizes an operation on a resource that the caller already sees, for example because of a grant. The permission
/// for the action is checked at the resource's home position.
pub(crate) fn authorize_visible(
    caller: &Caller,
    operation: Operation,
    home_position: &ResourcePosition,
) -> Result<TenantScope, Failure> {
    let Requirement::Resource { view: view_permission, action: required } = operation.requirement() else {
        return Err(Failure::Inconsistent("an operation on a scoped resource requires a permission in its scope"));
    };
    if view_permission == required || caller.rights.allow(required, home_position) {
        Ok(TenantScope::for_caller(caller))
    } else {
        Err(missing_permission(caller, required))
    }
}

/// Authorizes a list, and returns the scopes whose entries the caller sees.
pub(crate) fn authorize_list(caller: &Caller, operation: Operation) -> Result<(TenantScope, ListScope), Failure> {
    let (Requirement::BelowWorkspace(required) | Requirement::Resource { action: required, .. }) =
        operation.requirement()
    else {
        return Err(Failure::Inconsistent("a list requires a permission in a scope"));
    };
    match caller.rights.scope_restriction(required) {
        Some(visible_scopes) if visible_scopes == VisibleScopes::default() => Err(missing_permission(caller, required)),
        visible_scopes => Ok((TenantScope::for_caller(caller), visible_scopes)),
    }
}

/// Authorizes a caller to read the settings of a tenant.
pub(crate) fn authorize_tenant_view(caller: &Caller, id: TenantId) -> Result<TenantScope, Failure> {
    // Platform operators read every tenant that they can list, even if the request belongs to another tenant.
    // Otherwise the `Location` header of a created tenant would lead to not found.
    match authorize(caller, Operation::ListTenants, &ResourcePosition::INSTALLATION) {
        Ok(_) => Ok(TenantScope::for_platform_operator(id)),
        Err(_) => authorize_tenant(caller, Operation::ReadTenantSettings, id),
    }
}

/// Authorizes a caller to change the settings of a tenant: its own tenant or, for platform operators, any tenant.
pub(crate) fn authorize_tenant(caller: &Caller, operation: Operation, id: TenantId) -> Result<TenantScope, Failure> {
    if caller.tenant == id {
        return authorize(caller, operation, &ResourcePosition::tenant(id));
    }
    // Platform operators see every tenant, even if the request belongs to another tenant. The permission to change the
    // settings is checked on the tenant that has these settings.
    authorize(caller, Operation::ListTenants, &ResourcePosition::INSTALLATION).map_err(|_| Failure::NotFound)?;
    let (Requirement::Platform(required) | Requirement::Tenant(required)) = operation.requirement() else {
        return Err(Failure::Inconsistent("tenant settings require a permission on the tenant or the platform"));
    };
    if caller.rights.allow(required, &ResourcePosition::tenant(id)) {
        Ok(TenantScope::for_platform_operator(id))
    } else {
        Err(missing_permission(caller, required))
    }
}

/// Resolves workspaces and workloads to their positions, and authorizes callers on them.
#[derive(Clone)]
pub struct ScopeResolver {
    namespaces: Cache<WorkspaceId, NamespaceId>,
    access_store: Arc<dyn AccessStore>,
}

impl ScopeResolver {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self { namespaces: shared.namespaces.clone(), access_store: Arc::clone(&stores.access) }
    }
}

impl ScopeResolver {
    /// Returns the resource position of a workspace of the caller's tenant. A caller without a role in the tenant
    /// receives not found for every workspace.
    pub(crate) async fn workspace_position(
        &self,
        caller: &Caller,
        id: WorkspaceId,
    ) -> Result<ResourcePosition, Failure> {
        if caller.rights.is_empty() {
            return Err(Failure::NotFound);
        }
        let scope = TenantScope::for_caller(caller);
        let position = self.access_store.resolve_scope(scope, &GrantScope::Workspace(id)).await?;
        position.ok_or(Failure::NotFound)
    }

    /// Selects the workspace for a new resource: the requested workspace, else the only workspace that the caller's
    /// grants name. A member of the default tenant falls back to its default workspace.
    ///
    /// A workspace that does not exist is refused as not found. A workspace in which the caller lacks the permission is
    /// refused as forbidden, because every member of a tenant sees its workspaces.
    pub(crate) async fn position_for_new_resource(
        &self,
        caller: &Caller,
        operation: Operation,
        requested: Option<WorkspaceId>,
    ) -> Result<ResourcePosition, Failure> {
        let tenant_wide = caller.tenant.uuid() == DEFAULT_TENANT_ID && !caller.rights.is_empty();
        let default_workspace = || caller.rights.sole_workspace().or(tenant_wide.then(|| DEFAULT_WORKSPACE_ID.into()));
        let (Requirement::BelowWorkspace(required) | Requirement::Resource { action: required, .. }) =
            operation.requirement()
        else {
            return Err(Failure::Inconsistent("creating a resource requires a permission in its workspace"));
        };
        if caller.rights.is_empty() {
            return Err(missing_permission(caller, required));
        }
        let workspace = requested.or_else(default_workspace).ok_or(Failure::WorkspaceRequired)?;
        let position = self.workspace_position(caller, workspace).await?;
        if caller.rights.allow(required, &position) { Ok(position) } else { Err(missing_permission(caller, required)) }
    }

    /// Returns the resource position of a workload. The namespace of a workspace never changes, so it is cached.
    pub(crate) async fn position_of_workload(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        workload: WorkloadId,
    ) -> Result<ResourcePosition, Failure> {
        if let Some(namespace) = self.namespaces.get(&workspace) {
            return Ok(ResourcePosition::workspace(caller.tenant, namespace, workspace).for_workload(workload));
        }
        let scope = TenantScope::for_caller(caller);
        let position = self.access_store.resolve_scope(scope, &GrantScope::Workspace(workspace)).await?;
        let position = position.ok_or(Failure::Inconsistent("the workspace of a workload is missing"))?;
        if let Some(namespace) = position.namespace {
            self.namespaces.insert(workspace, namespace);
        }
        Ok(position.for_workload(workload))
    }

    pub(crate) async fn namespace_of(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
    ) -> Result<Option<NamespaceId>, Failure> {
        if let Some(namespace) = self.namespaces.get(&workspace) {
            return Ok(Some(namespace));
        }
        let scope = TenantScope::for_caller(caller);
        let position = self.access_store.resolve_scope(scope, &GrantScope::Workspace(workspace)).await?;
        let namespace = position.and_then(|position| position.namespace);
        if let Some(namespace) = namespace {
            self.namespaces.insert(workspace, namespace);
        }
        Ok(namespace)
    }

    /// Returns the position of a workspace of the caller's tenant without checking roles, because a grant may give
    /// access. The calling operation must not reveal whether the workspace exists.
    pub(crate) async fn workspace_position_unchecked(
        &self,
        caller: &Caller,
        id: WorkspaceId,
    ) -> Result<ResourcePosition, Failure> {
        let scope = TenantScope::for_caller(caller);
        self.access_store.resolve_scope(scope, &GrantScope::Workspace(id)).await?.ok_or(Failure::NotFound)
    }

    /// Authorizes a list of one workspace: the requested workspace, else the workspace that the caller's roles
    /// determine.
    pub(crate) async fn authorize_workspace_list(
        &self,
        caller: &Caller,
        operation: Operation,
        workspace: Option<WorkspaceId>,
    ) -> Result<(TenantScope, WorkspaceId), Failure> {
        let (scope, workspace) = match workspace {
            Some(workspace) => {
                let (scope, _) = self.authorize_list_of(caller, operation, Some(workspace)).await?;
                (scope, Some(workspace))
            }
            None => {
                let position = self.position_for_new_resource(caller, operation, None).await?;
                (authorize(caller, operation, &position)?, position.workspace)
            }
        };
        Ok((scope, workspace.ok_or(Failure::WorkspaceRequired)?))
    }

    /// Authorizes a list of one workspace, or of every scope that the caller sees if no workspace is requested.
    pub(crate) async fn authorize_list_of(
        &self,
        caller: &Caller,
        operation: Operation,
        workspace: Option<WorkspaceId>,
    ) -> Result<(TenantScope, ListScope), Failure> {
        let authorized_list = authorize_list(caller, operation)?;
        match workspace {
            None => Ok(authorized_list),
            Some(id) => {
                let position = self.workspace_position(caller, id).await?;
                // A caller that is authorized in the workspace sees every resource that is visible from it. The list
                // therefore needs no filter by scopes.
                authorize(caller, operation, &position).map(|scope| (scope, None))
            }
        }
    }
}

#[cfg(test)]
mod tests;
