//! Access: actors, roles and permissions, and the check whether a caller may act on a resource.

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
    audit::{Fact, FactKind, FactSubject, Stamp},
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

/// The sender of a request, with its permissions. Authentication builds this value before any operation runs.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The tenant in which the request works.
    pub tenant: TenantId,
    /// The actor that sends the request.
    pub actor: ActorRef,
    /// The groups to which the actor belongs, as `group:` references.
    pub groups: Vec<ActorRef>,
    /// The permissions that the caller has through its roles.
    pub rights: Arc<Rights>,
    /// The lanes that principal bindings select for the caller.
    pub lanes: Arc<BoundLanes>,
    /// The access revision of the tenant when `rights` and `lanes` were read.
    pub access_revision: Revision,
    /// The identifier of the request.
    pub request_id: RequestId,
}

/// Whether an actor name denotes the same principal in all tenants or in one tenant only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActorNameScope {
    /// An actor name denotes the same principal in all tenants, as in local mode.
    Installation,
    /// An actor name denotes a principal of one tenant. `user:ada` of another tenant is another principal, whose
    /// bindings do not apply.
    Tenant,
}

/// A stored assignment of a role to a principal in one scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleBinding(pub(crate) RoleBindingRecord);

/// The fields of [`RoleBinding`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleBindingRecord {
    /// The identifier of the binding.
    pub role_binding_id: RoleBindingId,
    /// The user, group or service that has the role.
    pub principal: ActorRef,
    /// The role that the principal has.
    pub role: Role,
    /// The scope in which the role applies.
    pub scope: GrantScope,
    /// The time at which the role was assigned.
    pub created_at: Timestamp,
    /// The actor that assigned the role.
    pub created_by: ActorRef,
}

aggregate!(RoleBinding, RoleBindingRecord);

/// The reason why the assignment of a role is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GrantRefusal {
    /// The principal is not a user, group or service, so it cannot have a role.
    #[error("only users, groups and services can hold roles")]
    Principal,
    /// The role cannot be confined to a scope this narrow.
    #[error("this role requires a wider scope")]
    ScopeTooNarrow,
    /// The granter does not have this permission of the role in the scope.
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
    /// The principals whose role bindings apply to this caller: the actor and its groups.
    #[must_use]
    pub fn principals(&self) -> Vec<ActorRef> {
        std::iter::once(&self.actor).chain(&self.groups).cloned().collect()
    }
}

impl RoleBinding {
    /// Assigns a role to a principal. The granter needs every permission of the role in the same scope.
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

    /// Builds the fact that this binding was created or revoked. `kind` says which.
    #[must_use]
    pub fn fact(&self, kind: FactKind, stamp: &Stamp) -> Fact {
        let subject = FactSubject { kind: "role_binding", id: self.role_binding_id.uuid() };
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

/// The access of a caller as it is stored: grants, lanes, and the access revision at which they were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallerAccess {
    /// The tenant in which the caller has this access.
    pub tenant: TenantId,
    /// Whether any tenant ever had a role binding for the caller or one of its groups.
    pub ever_bound: bool,
    /// The grants of the caller in the tenant, and its platform-wide grants.
    pub grants: Vec<Grant>,
    /// The lanes that principal bindings in the tenant select for the caller.
    pub lanes: Vec<LaneBinding>,
    /// The access revision of the tenant when the access was read.
    pub access_revision: Revision,
}

/// Stores role bindings, and loads the access of callers.
#[async_trait]
pub trait AccessStore: Send + Sync {
    /// Loads the access of an actor and its groups in a tenant. If `tenant` is `None`, the role bindings of the actor
    /// determine the tenant, and the default tenant has precedence. Returns `None` if the tenant does not exist.
    async fn load_principal(
        &self,
        tenant: Option<TenantId>,
        principals: &[ActorRef],
        name_scope: ActorNameScope,
    ) -> Result<Option<CallerAccess>, StoreError>;
    /// Reads the access revision of a tenant. While it is unchanged, every result of [`Self::load_principal`] for this
    /// tenant stays valid. Each change of a role or principal binding increments the revision of all affected tenants.
    async fn access_revision(&self, tenant: TenantId) -> Result<Option<Revision>, StoreError>;
    /// Finds the position of the resource that a scope names, with all enclosing scopes; `None` if the tenant has no
    /// such resource.
    async fn resolve_scope(
        &self,
        scope: TenantScope,
        grant: &GrantScope,
    ) -> Result<Option<ResourcePosition>, StoreError>;
    /// Lists the role bindings of `principals` in a tenant, oldest first. With [`ActorNameScope::Installation`], the
    /// list includes platform-wide bindings.
    async fn bindings_of(
        &self,
        scope: TenantScope,
        principals: &[ActorRef],
        name_scope: ActorNameScope,
    ) -> Result<Vec<RoleBinding>, StoreError>;
    /// Finds one role binding.
    async fn find(&self, scope: TenantScope, id: RoleBindingId) -> Result<Option<RoleBinding>, StoreError>;
    /// Lists one page of a tenant's role bindings, newest first. With a workspace, the page contains only bindings for
    /// that workspace.
    async fn list(
        &self,
        scope: TenantScope,
        workspace: Option<WorkspaceId>,
        page: PageRequest,
    ) -> Result<Page<RoleBinding>, StoreError>;
    /// Stores a role binding and increments the access revision.
    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<RoleBinding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Deletes a role binding and increments the access revision.
    async fn commit_revocation(&self, scope: TenantScope, id: RoleBindingId, fact: Fact) -> Result<(), CommitError>;
}
