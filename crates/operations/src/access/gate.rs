//! The gate: no operation gets a tenant scope without passing it.

use super::{Demand, Operation};
use crate::{Failure, Services};
use fairway_domain::{
    access::{ActorKind, Caller, GrantScope, Permission, Place, rights::Reach},
    id::WorkspaceId,
    tenant::{DEFAULT_TENANT, DEFAULT_WORKSPACE, TenantScope},
};

/// What of a list a caller sees: everything, or what its grants reach.
pub type Visible = Option<Reach>;

/// The refusal of a caller that lacks a permission.
pub(crate) fn refused(caller: &Caller, permission: Permission) -> Failure {
    match caller.actor.kind() {
        ActorKind::Anonymous => Failure::Anonymous(permission),
        ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System | ActorKind::ShareLink => {
            Failure::Forbidden(permission)
        }
    }
}

/// Lets the caller through to an operation at a place, or says why not.
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
        // A thing that the caller does not see does not exist for it, whatever else it may do.
        Demand::Place { sees, .. } if !holds(sees) => Err(Failure::NotFound),
        Demand::BelowWorkload { sees, .. } if !holds(sees) && holds(Permission::WorkloadView) => {
            Err(refused(caller, sees))
        }
        Demand::BelowWorkload { sees, .. } if !holds(sees) => Err(Failure::NotFound),
        Demand::Place { needs, .. } | Demand::BelowWorkload { needs, .. } if holds(needs) => Ok(scope),
        Demand::Place { needs, .. } | Demand::BelowWorkload { needs, .. } => Err(refused(caller, needs)),
    }
}

/// Lets the caller through to something that it sees, for whatever reason: what the operation needs beyond seeing, it
/// needs where the thing is at home.
pub(crate) fn enter_seen(caller: &Caller, operation: Operation, home: &Place) -> Result<TenantScope, Failure> {
    let Demand::Place { sees, needs } = operation.demand() else {
        return Err(Failure::Corrupt("what is somewhere must demand a permission there"));
    };
    if sees == needs || caller.rights.allow(needs, home) {
        Ok(TenantScope::of(caller))
    } else {
        Err(refused(caller, needs))
    }
}

/// Lets the caller through to a list, with what of it can be seen.
pub(crate) fn enter_list(caller: &Caller, operation: Operation) -> Result<(TenantScope, Visible), Failure> {
    let (Demand::BelowWorkspace(needs) | Demand::Place { needs, .. }) = operation.demand() else {
        return Err(Failure::Corrupt("a list must demand a permission at a place"));
    };
    match caller.rights.reach(needs) {
        Some(reach) if reach == Reach::default() => Err(refused(caller, needs)),
        reach => Ok((TenantScope::of(caller), reach)),
    }
}

impl Services {
    /// The place of a workspace of the caller's tenant. Who holds no role in the tenant does not learn which it has.
    pub(crate) async fn workspace_place(&self, caller: &Caller, id: WorkspaceId) -> Result<Place, Failure> {
        if caller.rights.is_empty() {
            return Err(Failure::NotFound);
        }
        let scope = TenantScope::of(caller);
        let place = self.stores.access.place(scope, &GrantScope::Workspace(id)).await?;
        place.ok_or(Failure::NotFound)
    }

    /// The workspace that something is made in: the one that was named, else the one that the caller's roles name,
    /// else, for who works in the whole default tenant, its first.
    ///
    /// Making things in a workspace that the tenant does not have is refused as not found; in one that it has and the
    /// caller cannot see, as forbidden, because workspaces are known to all of the tenant.
    pub(crate) async fn place_for(
        &self,
        caller: &Caller,
        operation: Operation,
        named: Option<WorkspaceId>,
    ) -> Result<Place, Failure> {
        let tenant_wide = caller.tenant.uuid() == DEFAULT_TENANT && !caller.rights.is_empty();
        let home = || caller.rights.home_workspace().or(tenant_wide.then(|| DEFAULT_WORKSPACE.into()));
        let (Demand::BelowWorkspace(needs) | Demand::Place { needs, .. }) = operation.demand() else {
            return Err(Failure::Corrupt("what is made in a workspace must demand a permission there"));
        };
        if caller.rights.is_empty() {
            return Err(refused(caller, needs));
        }
        let workspace = named.or_else(home).ok_or(Failure::WorkspaceRequired)?;
        let place = self.workspace_place(caller, workspace).await?;
        if caller.rights.allow(needs, &place) { Ok(place) } else { Err(refused(caller, needs)) }
    }
}
