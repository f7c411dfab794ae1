//! Explanations of access: whether an actor may perform an operation in a scope, and which role bindings decide.

use super::{CallerResolver, IdentityClaims, Operation, Requirement, authorize};
use crate::{Failure, Settings, Stores, services::CommonOperations};
use fairway_domain::{
    access::{
        AccessStore, ActorRef, Caller, Grant, GrantScope, GrantSource, Permission, ResourcePosition, Rights,
        RoleBinding, identity::IdentityStore,
    },
    id::RoleBindingId,
    tenant::TenantScope,
};
use std::sync::Arc;

/// Request to explain whether an actor may perform an operation.
#[derive(Clone, Debug)]
pub struct AccessExplanationRequest {
    /// The operation whose authorization is explained.
    pub operation: Operation,
    /// The scope in which the operation would take place; `None` for the caller's tenant.
    pub scope: Option<GrantScope>,
    /// The actor whose access is explained; `None` for the caller.
    pub actor: Option<ActorRef>,
}

/// Answer to an [`AccessExplanationRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessExplanation {
    /// Whether the actor may perform the operation.
    pub allowed: bool,
    /// The permission that decides: that of the operation, or the first missing one. `None` if the operation requires
    /// no permission, or any role.
    pub permission: Option<Permission>,
    /// The grants that include the permission in the scope.
    pub by: Vec<DecidingGrant>,
}

/// A grant that includes the deciding permission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecidingGrant {
    /// The role binding that stores the grant; `None` for a grant from the server's configuration or from another
    /// tenant.
    pub role_binding_id: Option<RoleBindingId>,
    /// The granted role, and the scope in which it applies.
    pub grant: Grant,
}

/// Explains which role bindings allow an operation, or which permission is missing.
#[derive(Clone)]
pub struct AccessExplanations {
    settings: Arc<Settings>,
    access_store: Arc<dyn AccessStore>,
    identity_store: Arc<dyn IdentityStore>,
    identities: Arc<CallerResolver>,
}

impl AccessExplanations {
    pub(crate) fn new(stores: &Stores, settings: &Arc<Settings>, common: &CommonOperations) -> Self {
        Self {
            settings: Arc::clone(settings),
            access_store: Arc::clone(&stores.access),
            identity_store: Arc::clone(&stores.identities),
            identities: Arc::clone(&common.identities),
        }
    }

    /// Explains whether an actor may perform an operation in a scope. The explanation considers roles only. A request
    /// may also be allowed or refused because of the resource's state or the ownership of a run.
    ///
    /// # Errors
    /// Not found when the caller does not see the scope; forbidden when the caller asks about another actor without the
    /// permission `workspace.manage` in the scope.
    pub async fn explain(
        &self,
        caller: &Caller,
        query: &AccessExplanationRequest,
    ) -> Result<AccessExplanation, Failure> {
        let tenant_position = ResourcePosition::tenant(caller.tenant);
        let scope = authorize::authorize(caller, Operation::ExplainAccess, &tenant_position)?;
        let position = match &query.scope {
            Some(scope_ref) => self.visible_position(caller, scope_ref).await?,
            None => tenant_position,
        };
        match query.actor.as_ref().filter(|actor| **actor != caller.actor) {
            None => self.explain_for(scope, caller, query.operation, &position).await,
            Some(_) if !caller.rights.allow(Permission::WorkspaceManage, &position) => {
                Err(authorize::missing_permission(caller, Permission::WorkspaceManage))
            }
            Some(actor) => {
                let groups = self.identity_store.groups_of(scope, actor).await?;
                let claims = IdentityClaims { actor: actor.clone(), groups, tenant: Some(caller.tenant) };
                let subject = self.identities.submitter(self.settings.identity, &claims, caller.request_id, true).await;
                self.explain_for(scope, &subject?, query.operation, &position).await
            }
        }
    }

    async fn explain_for(
        &self,
        scope: TenantScope,
        subject: &Caller,
        operation: Operation,
        position: &ResourcePosition,
    ) -> Result<AccessExplanation, Failure> {
        let decision = Decision::of(operation.requirement(), &subject.rights, subject, position);
        let names = self.settings.identity.name_scope();
        let bindings = self.access_store.bindings_of(scope, &subject.principals(), names).await?;
        let deciding_grants = subject.rights.grants().iter().filter(|grant| decision.rests_on(grant));
        let deciding_grants =
            deciding_grants.map(|grant| DecidingGrant { role_binding_id: binding_of(grant, &bindings), grant: *grant });
        Ok(AccessExplanation {
            allowed: decision.allowed,
            permission: decision.permission,
            by: deciding_grants.collect(),
        })
    }

    /// Returns the position of a scope if the caller sees the scope.
    async fn visible_position(&self, caller: &Caller, scope_ref: &GrantScope) -> Result<ResourcePosition, Failure> {
        let scope = TenantScope::for_caller(caller);
        let position = self.access_store.resolve_scope(scope, scope_ref).await?.ok_or(Failure::NotFound)?;
        // Every member of a tenant sees its namespaces and workspaces, but not its workloads.
        let is_visible = match scope_ref {
            GrantScope::Platform | GrantScope::Tenant(_) => true,
            GrantScope::Namespace(_) | GrantScope::Workspace(_) => !caller.rights.is_empty(),
            GrantScope::Workload(_) => caller.rights.allow(Permission::WorkloadView, &position),
        };
        if is_visible { Ok(position) } else { Err(Failure::NotFound) }
    }
}

/// Decision about an operation, computed from the rights of an actor.
struct Decision {
    allowed: bool,
    permission: Option<Permission>,
    /// The position at which the permission is checked; `None` when no grant decides.
    position: Option<ResourcePosition>,
}

impl Decision {
    fn of(requirement: Requirement, rights: &Rights, subject: &Caller, position: &ResourcePosition) -> Self {
        let decide = |permission, position: ResourcePosition| Self {
            allowed: rights.allow(permission, &position),
            permission: Some(permission),
            position: Some(position),
        };
        match requirement {
            Requirement::Nothing => Self { allowed: true, permission: None, position: None },
            Requirement::Membership => {
                Self { allowed: !rights.is_empty(), permission: None, position: Some(*position) }
            }
            Requirement::Platform(required) => decide(required, ResourcePosition::INSTALLATION),
            Requirement::Tenant(required) => decide(required, ResourcePosition::tenant(subject.tenant)),
            Requirement::BelowWorkspace(required) => decide(required, *position),
            Requirement::Resource { view: view_permission, action: required }
            | Requirement::BelowWorkload { view: view_permission, action: required } => {
                let view_decision = decide(view_permission, *position);
                if view_decision.allowed { decide(required, *position) } else { view_decision }
            }
        }
    }

    fn rests_on(&self, grant: &Grant) -> bool {
        match (&self.position, self.permission) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(position), Some(permission)) => Rights::new(vec![*grant]).allow(permission, position),
        }
    }
}

/// Returns the role binding that stores a grant. A grant from the configuration has none, even if a binding grants the
/// same role.
fn binding_of(grant: &Grant, bindings: &[RoleBinding]) -> Option<RoleBindingId> {
    if grant.source != GrantSource::BindingOrRule {
        return None;
    }
    let binding = bindings.iter().find(|binding| binding.role == grant.role && binding.scope == grant.scope);
    binding.map(|binding| binding.role_binding_id)
}
