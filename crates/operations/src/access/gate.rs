//! Authorization. An operation gets its tenant scope only here.

use super::{Demand, Operation};
use crate::{Failure, Services};
use fairway_domain::{
    access::{ActorKind, Caller, GrantScope, Permission, Place, rights::Reach},
    id::WorkspaceId,
    tenant::{DEFAULT_TENANT, DEFAULT_WORKSPACE, TenantScope},
};

/// The part of a list that a caller sees: everything, or the scopes of its role bindings.
pub type ListScope = Option<Reach>;

/// The refusal of a caller that lacks a permission.
pub(crate) fn refused(caller: &Caller, permission: Permission) -> Failure {
    match caller.actor.kind() {
        ActorKind::Anonymous => Failure::Anonymous(permission),
        ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System | ActorKind::ShareLink => {
            Failure::Forbidden(permission)
        }
    }
}

/// Authorizes an operation on a resource scope.
pub(crate) fn enter(caller: &Caller, operation: Operation, place: &Place) -> Result<TenantScope, Failure> {
    let scope = TenantScope::of(caller);
    let holds = |permission| caller.rights.allow(permission, place);
    match operation.demand() {
        Demand::Nothing => Ok(scope),
        Demand::Membership if caller.rights.is_empty() => Err(refused(caller, Permission::WorkloadView)),
        Demand::Membership => Ok(scope),
        Demand::Platform(needs) if caller.rights.allow(needs, &Place::PLATFORM) => Ok(scope),
        Demand::Tenant(needs) if caller.rights.allow(needs, &Place::tenant(caller.tenant)) => Ok(scope),
        Demand::Platform(needs) | Demand::Tenant(needs) => Err(refused(caller, needs)),
        Demand::BelowWorkspace(needs) if holds(needs) => Ok(scope),
        Demand::BelowWorkspace(_) if caller.rights.is_empty() => Err(Failure::NotFound),
        Demand::BelowWorkspace(needs) => Err(refused(caller, needs)),
        // A resource that the caller may not see is not found, whatever else the caller may do.
        Demand::Place { sees, .. } if !holds(sees) => Err(Failure::NotFound),
        Demand::BelowWorkload { sees, .. } if !holds(sees) && holds(Permission::WorkloadView) => {
            Err(refused(caller, sees))
        }
        Demand::BelowWorkload { sees, .. } if !holds(sees) => Err(Failure::NotFound),
        Demand::Place { needs, .. } | Demand::BelowWorkload { needs, .. } if holds(needs) => Ok(scope),
        Demand::Place { needs, .. } | Demand::BelowWorkload { needs, .. } => Err(refused(caller, needs)),
    }
}

/// Authorizes an operation on a resource that the caller sees for any reason. Permissions beyond visibility count in
/// the resource's home scope.
pub(crate) fn authorize_visible(caller: &Caller, operation: Operation, home: &Place) -> Result<TenantScope, Failure> {
    let Demand::Place { sees, needs } = operation.demand() else {
        return Err(Failure::Corrupt("an operation on a scoped resource requires a permission in its scope"));
    };
    if sees == needs || caller.rights.allow(needs, home) {
        Ok(TenantScope::of(caller))
    } else {
        Err(refused(caller, needs))
    }
}

/// Authorizes a list, and returns the scopes that the caller sees.
pub(crate) fn authorize_list(caller: &Caller, operation: Operation) -> Result<(TenantScope, ListScope), Failure> {
    let (Demand::BelowWorkspace(needs) | Demand::Place { needs, .. }) = operation.demand() else {
        return Err(Failure::Corrupt("a list requires a permission in a scope"));
    };
    match caller.rights.reach(needs) {
        Some(reach) if reach == Reach::default() => Err(refused(caller, needs)),
        reach => Ok((TenantScope::of(caller), reach)),
    }
}

impl Services {
    /// The resource scope of a workspace of the caller's tenant. A caller without a role in the tenant gets not
    /// found for every workspace.
    pub(crate) async fn workspace_scope(&self, caller: &Caller, id: WorkspaceId) -> Result<Place, Failure> {
        if caller.rights.is_empty() {
            return Err(Failure::NotFound);
        }
        let scope = TenantScope::of(caller);
        let place = self.stores.access.place(scope, &GrantScope::Workspace(id)).await?;
        place.ok_or(Failure::NotFound)
    }

    /// The workspace for a new resource: the named one, else the one of the caller's roles, else the default
    /// workspace for a member of the default tenant.
    ///
    /// A workspace that does not exist is refused as not found. One in which the caller lacks the permission is
    /// refused as forbidden, because every member of a tenant sees its workspaces.
    pub(crate) async fn place_for(
        &self,
        caller: &Caller,
        operation: Operation,
        named: Option<WorkspaceId>,
    ) -> Result<Place, Failure> {
        let tenant_wide = caller.tenant.uuid() == DEFAULT_TENANT && !caller.rights.is_empty();
        let home = || caller.rights.sole_workspace().or(tenant_wide.then(|| DEFAULT_WORKSPACE.into()));
        let (Demand::BelowWorkspace(needs) | Demand::Place { needs, .. }) = operation.demand() else {
            return Err(Failure::Corrupt("creating a resource requires a permission in its workspace"));
        };
        if caller.rights.is_empty() {
            return Err(refused(caller, needs));
        }
        let workspace = named.or_else(home).ok_or(Failure::WorkspaceRequired)?;
        let place = self.workspace_scope(caller, workspace).await?;
        if caller.rights.allow(needs, &place) { Ok(place) } else { Err(refused(caller, needs)) }
    }
}
