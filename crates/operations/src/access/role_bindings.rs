//! Role bindings: granting and revoking roles.

use super::{Operation, authorize};
use crate::{
    Failure, MaybeReplayed, Stores,
    access::ScopeResolver,
    commit_context::CommitContext,
    idempotency::{KeyedRequests, keyed_outcome},
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    access::{AccessStore, ActorRef, Caller, Grant, GrantScope, Permission, ResourcePosition, Role, RoleBinding},
    audit::FactKind,
    id::{RoleBindingId, WorkspaceId},
    idempotency::RequestKey,
    store::{CommitError, Page, PageRequest},
    tenant::TenantScope,
};
use std::sync::Arc;

/// The parameters of a new role binding.
#[derive(Clone, Debug)]
pub struct CreateRoleBindingParams {
    /// The principal that receives the role.
    pub principal: ActorRef,
    /// The role to grant.
    pub role: Role,
    /// The scope in which the role applies.
    pub scope: GrantScope,
}

/// Returns the permission that is required to manage role bindings at a scope.
const fn management_permission(scope: &GrantScope) -> Permission {
    match scope {
        GrantScope::Platform => Permission::PlatformManage,
        GrantScope::Tenant(_) => Permission::TenantManage,
        GrantScope::Namespace(_) | GrantScope::Workspace(_) | GrantScope::Workload(_) => Permission::WorkspaceManage,
    }
}

/// Grants, lists and revokes roles.
#[derive(Clone)]
pub struct RoleBindings {
    context: CommitContext,
    access_store: Arc<dyn AccessStore>,
    scope_resolver: Arc<ScopeResolver>,
    keyed_requests: Arc<KeyedRequests>,
}

impl RoleBindings {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            context: shared.context.clone(),
            access_store: Arc::clone(&stores.access),
            scope_resolver: Arc::clone(&common.scope_resolver),
            keyed_requests: Arc::clone(&common.keyed_requests),
        }
    }
}

impl RoleBindings {
    /// Lists the built-in roles.
    ///
    /// # Errors
    /// When the caller has no role in the tenant.
    pub fn list_builtin_roles(&self, caller: &Caller) -> Result<[Role; 9], Failure> {
        authorize::authorize(caller, Operation::ListRoles, &ResourcePosition::tenant(caller.tenant)).map(|_| Role::ALL)
    }

    /// Returns the caller's own grants, in the order in which they were read.
    ///
    /// # Errors
    /// Currently none: every caller may read its own grants.
    pub fn list_own_grants<'c>(&self, caller: &'c Caller) -> Result<&'c [Grant], Failure> {
        authorize::authorize(caller, Operation::ReadSession, &ResourcePosition::tenant(caller.tenant))?;
        Ok(caller.rights.grants())
    }

    /// Grants a role to a principal.
    ///
    /// # Errors
    /// When the scope is not found, the caller lacks a permission, or the role cannot be bound at that scope.
    pub async fn create_role_binding(
        &self,
        caller: &Caller,
        draft: CreateRoleBindingParams,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<RoleBinding>, Failure> {
        let scope = TenantScope::for_caller(caller);
        let position = self.manageable_position(caller, &draft.scope).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let (stamp, id) = (self.context.stamp(caller), self.context.new_id::<RoleBindingId>());
                    let CreateRoleBindingParams { principal, role, scope: binding_scope } = draft;
                    let change =
                        RoleBinding::grant(id, principal, role, binding_scope, &position, &caller.rights, &stamp)?;
                    let binding = change.next.clone();
                    let outcome = keyed_outcome(key, 201, id.uuid());
                    self.access_store.commit_grant(scope, change, outcome.as_ref()).await?;
                    Ok(binding)
                },
                async |id| self.access_store.find(scope, id.into()).await?.ok_or(Failure::NotFound),
            )
            .await
    }

    /// Lists the tenant's role bindings, newest first; those of one workspace if `workspace` is given.
    ///
    /// # Errors
    /// When the caller does not manage the workspace, or the tenant if no workspace is given.
    pub async fn list_role_bindings(
        &self,
        caller: &Caller,
        workspace: Option<WorkspaceId>,
        page: PageRequest,
    ) -> Result<Page<RoleBinding>, Failure> {
        let scope = match workspace {
            Some(id) => {
                let position = self.scope_resolver.workspace_position(caller, id).await?;
                authorize::authorize(caller, Operation::ListRoleBindings, &position)?
            }
            None => {
                if !caller.rights.allow(Permission::TenantManage, &ResourcePosition::tenant(caller.tenant)) {
                    return Err(Failure::Forbidden(Permission::TenantManage));
                }
                TenantScope::for_caller(caller)
            }
        };
        Ok(self.access_store.list(scope, workspace, page).await?)
    }

    /// Revokes a role binding.
    ///
    /// # Errors
    /// When the role binding does not exist, or the caller may not manage its scope.
    pub async fn delete_role_binding(&self, caller: &Caller, id: RoleBindingId) -> Result<(), Failure> {
        let scope = TenantScope::for_caller(caller);
        let Some(binding) = self.access_store.find(scope, id).await? else {
            // Authorizing access to an existing binding takes one query for its scope. The request for a missing
            // binding makes an equal query, so that the response time does not reveal whether a binding exists.
            self.access_store.resolve_scope(scope, &GrantScope::Workspace(id.uuid().into())).await?;
            return Err(Failure::NotFound);
        };
        match self.manageable_position(caller, &binding.scope).await {
            // A binding in a scope that the caller does not manage is reported as not found.
            Err(Failure::Forbidden(_)) => return Err(Failure::NotFound),
            position => position?,
        };
        let fact = binding.fact(FactKind::RoleBindingDeleted, &self.context.stamp(caller));
        match self.access_store.commit_revocation(scope, id, fact).await {
            // A concurrent request has revoked the binding.
            Err(CommitError::Stale) => return Err(Failure::NotFound),
            committed => committed?,
        }
        self.context.notify_facts();
        Ok(())
    }

    async fn manageable_position(
        &self,
        caller: &Caller,
        binding_scope: &GrantScope,
    ) -> Result<ResourcePosition, Failure> {
        let scope = TenantScope::for_caller(caller);
        let position = self.access_store.resolve_scope(scope, binding_scope).await?.ok_or(Failure::NotFound)?;
        let required = management_permission(binding_scope);
        if caller.rights.allow(required, &position) {
            return Ok(position);
        }
        // Every member of a tenant sees its namespaces and workspaces, but not its workloads.
        let is_visible = match binding_scope {
            GrantScope::Platform | GrantScope::Tenant(_) => true,
            GrantScope::Namespace(_) | GrantScope::Workspace(_) => !caller.rights.is_empty(),
            GrantScope::Workload(_) => caller.rights.allow(Permission::WorkloadView, &position),
        };
        Err(if is_visible { Failure::Forbidden(required) } else { Failure::NotFound })
    }
}
