//! Actors, roles, permissions, and whether a caller may do a thing in a place.

pub mod actor;
pub mod permission;
pub mod principal_binding;
pub mod rights;

use crate::{
    audit::{Fact, FactKind, Stamp, Subject},
    id::{RequestId, RoleBindingId, TenantId, WorkspaceId},
    idempotency::KeyedOutcome,
    store::{Change, CommitError, Listed, Paging, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
pub use actor::{ActorKind, ActorRef, ActorRefusal, OwnerRef};
use async_trait::async_trait;
pub use permission::{Permission, Permissions, Role, Roles};
pub use principal_binding::{BoundLane, CallerLanes};
pub use rights::{Grant, GrantScope, Place, Rights};
use serde_json::json;
use std::sync::Arc;

/// Who sends a request, settled before any operation runs.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The tenant that the request works in.
    pub tenant: TenantId,
    /// Who acts.
    pub actor: ActorRef,
    /// Groups that the actor belongs to, as `group:` references.
    pub groups: Vec<ActorRef>,
    /// What its roles allow.
    pub rights: Arc<Rights>,
    /// Which lanes serve it by its principal bindings.
    pub lanes: Arc<CallerLanes>,
    /// The tenant's access revision that `rights` and `lanes` were read at.
    pub access_revision: Revision,
    /// The request's identifier.
    pub request_id: RequestId,
}

/// One grant of a role to a principal, as it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleBinding {
    /// Its identifier.
    pub role_binding_id: RoleBindingId,
    /// A user, group or service.
    pub principal: ActorRef,
    /// The role.
    pub role: Role,
    /// Where it holds.
    pub scope: GrantScope,
    /// When it was granted.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: ActorRef,
}

/// Why a role cannot be granted as asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GrantRefusal {
    /// Only users, groups and services hold roles.
    #[error("only users, groups and services hold roles")]
    Principal,
    /// The role's permissions reach further than the scope.
    #[error("this role cannot be bound to so narrow a scope")]
    ScopeTooNarrow,
    /// The granter lacks a permission that the role would give.
    #[error("the granter lacks a permission of the role")]
    BeyondGranter(Permission),
}

impl GrantRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Principal => "invalid_principal",
            Self::ScopeTooNarrow => "scope_too_narrow",
            Self::BeyondGranter(_) => "forbidden",
        }
    }
}

impl Caller {
    /// Everybody that a grant to this caller can name: itself and its groups.
    #[must_use]
    pub fn principals(&self) -> Vec<ActorRef> {
        std::iter::once(&self.actor).chain(&self.groups).cloned().collect()
    }
}

impl RoleBinding {
    /// Grants a role. The granter needs every permission of the role in the place where it will hold.
    ///
    /// # Errors
    /// When the principal cannot hold roles, the scope is too narrow for the role, or the granter lacks a permission.
    pub fn grant(
        role_binding_id: RoleBindingId,
        principal: ActorRef,
        role: Role,
        (scope, place): (GrantScope, &Place),
        granter: &Rights,
        stamp: &Stamp,
    ) -> Result<Change<Self>, GrantRefusal> {
        match principal.kind() {
            ActorKind::User | ActorKind::Group | ActorKind::Service => {}
            ActorKind::System | ActorKind::ShareLink | ActorKind::Anonymous => return Err(GrantRefusal::Principal),
        }
        if !role.may_be_bound_at(&scope) {
            return Err(GrantRefusal::ScopeTooNarrow);
        }
        if let Some(missing) = role.permissions().iter().find(|permission| !granter.allow(*permission, place)) {
            return Err(GrantRefusal::BeyondGranter(missing));
        }
        let next =
            Self { role_binding_id, principal, role, scope, created_at: stamp.at, created_by: stamp.actor.clone() };
        let fact = next.fact(FactKind::RoleBindingCreated, stamp);
        Ok(Change::creating(next, fact))
    }

    /// The fact of this grant or of its end.
    #[must_use]
    pub fn fact(&self, kind: FactKind, stamp: &Stamp) -> Fact {
        let subject = Subject { kind: "role_binding", id: self.role_binding_id.uuid() };
        let workspace = match self.scope {
            GrantScope::Workspace(id) => Some(id),
            GrantScope::Platform | GrantScope::Tenant(_) | GrantScope::Namespace(_) | GrantScope::Workload(_) => None,
        };
        let detail = json!({
            "principal": self.principal.to_string(),
            "role": self.role.as_str(),
            "scope_kind": self.scope.kind(),
            "scope_ref": self.scope.reference(),
        });
        Fact::new(kind, subject, workspace, stamp, detail)
    }
}

/// What the store knows of a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownPrincipal {
    /// The tenant that it works in.
    pub tenant: TenantId,
    /// Whether it ever held a role anywhere.
    pub ever_bound: bool,
    /// Its grants in that tenant, and platform-wide ones.
    pub grants: Vec<Grant>,
    /// The lanes that its principal bindings in that tenant name.
    pub lanes: Vec<BoundLane>,
    /// The tenant's access revision at the time of reading.
    pub access_revision: Revision,
}

/// Keeps role bindings.
#[async_trait]
pub trait AccessStore: Send + Sync {
    /// What is known of an actor and its groups in a tenant; without a tenant, in the one that its bindings name
    /// (the default tenant first). `None` when the tenant does not exist.
    async fn principal(
        &self,
        tenant: Option<TenantId>,
        principals: &[ActorRef],
    ) -> Result<Option<KnownPrincipal>, StoreError>;
    /// The tenant's access revision now. While it stands, everything that [`Self::principal`] said of anybody whose
    /// tenant this is stands too: every change of a role or of a principal binding raises it in each tenant that
    /// may be concerned.
    async fn access_revision(&self, tenant: TenantId) -> Result<Option<Revision>, StoreError>;
    /// The place of a workload or workspace, with all that surrounds it; `None` when the tenant has no such thing.
    async fn place(&self, scope: TenantScope, grant: &GrantScope) -> Result<Option<Place>, StoreError>;
    /// One binding.
    async fn find(&self, scope: TenantScope, id: RoleBindingId) -> Result<Option<RoleBinding>, StoreError>;
    /// The tenant's bindings, newest first; of one workspace, or all.
    async fn list(
        &self,
        scope: TenantScope,
        workspace: Option<WorkspaceId>,
        page: Paging,
    ) -> Result<Listed<RoleBinding>, StoreError>;
    /// Stores a grant and raises the access revision.
    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<RoleBinding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Ends a grant and raises the access revision.
    async fn commit_end(&self, scope: TenantScope, id: RoleBindingId, fact: Fact) -> Result<(), CommitError>;
}
