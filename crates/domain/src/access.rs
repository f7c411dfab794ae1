//! Actors, roles and permissions, and the check whether a caller may act on a resource.

pub mod actor;
pub mod delegation;
pub mod identity;
pub mod on_behalf_of_fields;
mod owner;
pub mod permission;
pub mod principal_binding;
mod resource_position;
pub mod rights;
mod role;
pub mod session;
pub mod sign_in_provider;

use crate::{
    audit::{Fact, FactKind, Stamp, Subject},
    id::{RequestId, RoleBindingId, TenantId, WorkspaceId},
    idempotency::KeyedOutcome,
    store::{Change, CommitError, Page, PageRequest, Revision, StoreError, aggregate},
    tenant::TenantScope,
    time::Timestamp,
};
pub use actor::{ActorKind, ActorRef, ActorRefusal};
use async_trait::async_trait;
pub use owner::OwnerRef;
pub use permission::{Permission, Permissions};
pub use principal_binding::{BoundLanes, LaneBinding};
pub use resource_position::ResourcePosition;
pub use rights::{Grant, GrantScope, GrantSource, Rights};
pub use role::{Role, Roles};
use serde_json::json;
use std::sync::Arc;

/// The authenticated sender of a request, with its permissions. Authentication builds this value before any operation
/// runs.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The tenant that the request works in.
    pub tenant: TenantId,
    /// The actor.
    pub actor: ActorRef,
    /// Groups that the actor belongs to, as `group:` references.
    pub groups: Vec<ActorRef>,
    /// The grants of the caller's roles.
    pub rights: Arc<Rights>,
    /// The lanes that the caller's principal bindings select.
    pub lanes: Arc<BoundLanes>,
    /// The tenant's access revision at which `rights` and `lanes` were read.
    pub access_revision: Revision,
    /// The request's identifier.
    pub request_id: RequestId,
}

/// The scope in which equal actor names denote the same principal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActorNameScope {
    /// All tenants, as in local mode.
    Installation,
    /// One tenant. `user:ada` of another tenant is a different principal, whose bindings do not apply.
    Tenant,
}

/// A stored grant of a role to a principal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleBinding(pub(crate) RoleBindingRecord);

/// The fields of [`RoleBinding`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleBindingRecord {
    /// The identifier of the binding.
    pub role_binding_id: RoleBindingId,
    /// A user, group or service.
    pub principal: ActorRef,
    /// The role.
    pub role: Role,
    /// The scope in which the role applies.
    pub scope: GrantScope,
    /// When the role was granted.
    pub created_at: Timestamp,
    /// The granter.
    pub created_by: ActorRef,
}

aggregate!(RoleBinding, RoleBindingRecord);

/// The reason a role grant is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GrantRefusal {
    /// Only users, groups and services hold roles.
    #[error("only users, groups and services can hold roles")]
    Principal,
    /// The role requires a wider scope.
    #[error("this role requires a wider scope")]
    ScopeTooNarrow,
    /// The granter lacks a permission of the role.
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
    /// The principals whose grants apply to this caller: the actor and its groups.
    #[must_use]
    pub fn principals(&self) -> Vec<ActorRef> {
        std::iter::once(&self.actor).chain(&self.groups).cloned().collect()
    }
}

impl RoleBinding {
    /// Grants a role. The granter needs every permission of the role in the target scope.
    ///
    /// # Errors
    /// When the principal cannot hold roles, the scope is too narrow for the role, or the granter lacks a permission.
    pub fn grant(
        role_binding_id: RoleBindingId,
        principal: ActorRef,
        role: Role,
        scope: GrantScope,
        position: &ResourcePosition,
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
        if let Some(missing) = role.permissions().iter().find(|permission| !granter.allow(*permission, position)) {
            return Err(GrantRefusal::BeyondGranter(missing));
        }
        let next = Self(RoleBindingRecord {
            role_binding_id,
            principal,
            role,
            scope,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
        });
        let fact = next.fact(FactKind::RoleBindingCreated, stamp);
        Ok(Change::create(next, fact))
    }

    /// The audit fact for this grant or its revocation.
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

/// A caller's stored access: its grants, lanes and the access revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrincipalAccess {
    /// The tenant of the caller.
    pub tenant: TenantId,
    /// Whether the caller or one of its groups ever held a role, in any tenant.
    pub ever_bound: bool,
    /// The caller's grants in the tenant, and its platform-wide grants.
    pub grants: Vec<Grant>,
    /// The lanes that the caller's principal bindings in the tenant select.
    pub lanes: Vec<LaneBinding>,
    /// The tenant's access revision at the time of reading.
    pub access_revision: Revision,
}

/// Stores role bindings.
#[async_trait]
pub trait AccessStore: Send + Sync {
    /// Loads the access of an actor and its groups in a tenant. If `tenant` is `None`, the actor's bindings select
    /// the tenant; the default tenant has precedence. Returns `None` when the tenant does not exist.
    async fn load_principal(
        &self,
        tenant: Option<TenantId>,
        principals: &[ActorRef],
        name_scope: ActorNameScope,
    ) -> Result<Option<PrincipalAccess>, StoreError>;
    /// The tenant's current access revision. While it is unchanged, every result of [`Self::load_principal`] for this
    /// tenant stays valid. Each change of a role or principal binding increments the revision of all affected
    /// tenants.
    async fn access_revision(&self, tenant: TenantId) -> Result<Option<Revision>, StoreError>;
    /// Resolves a workload or workspace and its enclosing scopes; `None` when the tenant has no such resource.
    async fn resolve_scope(
        &self,
        scope: TenantScope,
        grant: &GrantScope,
    ) -> Result<Option<ResourcePosition>, StoreError>;
    /// The role bindings of `principals` in the tenant, oldest first. With [`ActorNameScope::Installation`], the result
    /// includes platform-wide bindings.
    async fn bindings_of(
        &self,
        scope: TenantScope,
        principals: &[ActorRef],
        name_scope: ActorNameScope,
    ) -> Result<Vec<RoleBinding>, StoreError>;
    /// Loads one role binding.
    async fn find(&self, scope: TenantScope, id: RoleBindingId) -> Result<Option<RoleBinding>, StoreError>;
    /// Lists the tenant's bindings, newest first, optionally of one workspace.
    async fn list(
        &self,
        scope: TenantScope,
        workspace: Option<WorkspaceId>,
        page: PageRequest,
    ) -> Result<Page<RoleBinding>, StoreError>;
    /// Stores a grant and increments the access revision.
    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<RoleBinding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Revokes a grant and increments the access revision.
    async fn commit_revocation(&self, scope: TenantScope, id: RoleBindingId, fact: Fact) -> Result<(), CommitError>;
}
