//! Identification: converts the identity claims of a request into a caller with rights.

use crate::{Failure, Settings, Stores, services::SharedState};
use fairway_domain::{
    access::{
        AccessStore, ActorKind, ActorNameScope, ActorRef, BoundLanes, Caller, CallerAccess, Grant, GrantScope, Rights,
        Role, identity::IdentityStore,
    },
    id::{RequestId, TenantId},
    share_link::is_guest,
    slug::Slug,
    tenant::DEFAULT_TENANT_ID,
};
use moka::sync::Cache;
use std::sync::Arc;

/// How the server verifies the identity claims of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentityMode {
    /// The server listens on loopback only and trusts every claim.
    Local,
    /// Identity providers sign the claims.
    Oidc,
}

impl IdentityMode {
    /// Returns the name of the mode in on-behalf-of fields.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Oidc => "oidc",
        }
    }

    /// Whether a request comes from the operator of the server, on the same machine. A forwarded request comes from
    /// another machine. In local mode, every other request is local, because the server listens on loopback only.
    #[must_use]
    pub const fn is_local_operator_request(self, is_forwarded: bool, is_loopback_peer: bool) -> bool {
        match self {
            Self::Local => !is_forwarded,
            Self::Oidc => !is_forwarded && is_loopback_peer,
        }
    }

    /// The scope in which an actor name identifies one principal. In OIDC mode, each tenant pins its own names.
    pub(crate) const fn name_scope(self) -> ActorNameScope {
        match self {
            Self::Local => ActorNameScope::Installation,
            Self::Oidc => ActorNameScope::Tenant,
        }
    }
}

/// The identity that a request claims.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IdentityClaims {
    /// The actor that the request claims to be.
    pub actor: ActorRef,
    /// The groups to which the actor belongs.
    pub groups: Vec<ActorRef>,
    /// The tenant in which the request works, if the request names one.
    pub tenant: Option<TenantId>,
}

/// Resolves identity claims to callers with rights, and caches these callers.
#[derive(Clone)]
pub struct CallerResolver {
    callers: Cache<IdentityClaims, Arc<Caller>>,
    settings: Arc<Settings>,
    access_store: Arc<dyn AccessStore>,
    identity_store: Arc<dyn IdentityStore>,
}

impl CallerResolver {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            callers: shared.callers.clone(),
            settings: Arc::clone(&shared.settings),
            access_store: Arc::clone(&stores.access),
            identity_store: Arc::clone(&stores.identities),
        }
    }
}

impl CallerResolver {
    /// Returns the cached caller of these claims, without checking that its rights are current.
    pub(crate) fn cached_caller(&self, claims: &IdentityClaims) -> Option<Arc<Caller>> {
        self.callers.get(claims)
    }

    /// Returns the caller of these claims with its current rights. Cached rights are used if the access revision of the
    /// tenant is unchanged; otherwise the store is read.
    ///
    /// # Errors
    /// Not found when the claims name a tenant to which the actor does not belong.
    pub async fn resolve_caller(
        &self,
        mode: IdentityMode,
        claims: &IdentityClaims,
        request_id: RequestId,
    ) -> Result<Caller, Failure> {
        if let Some(cached_caller) = self.callers.get(claims)
            && self.access_store.access_revision(cached_caller.tenant).await? == Some(cached_caller.access_revision)
        {
            return Ok(Caller { request_id, ..Caller::clone(&cached_caller) });
        }
        let caller = self.read_caller(mode, claims, request_id).await?;
        self.cache_caller(claims, &caller);
        Ok(caller)
    }

    /// Caches a caller. In local mode, a named caller without rights is not cached, because requests can invent names.
    /// A share link caller is never cached, because every request must prove its link. A visitor is never cached,
    /// because the access revision of the visited tenant does not cover the rights of its home tenant.
    fn cache_caller(&self, claims: &IdentityClaims, caller: &Caller) {
        let is_verified = self.settings.identity == IdentityMode::Oidc;
        let is_credible = is_verified || !caller.rights.is_empty() || claims.actor.kind() == ActorKind::Anonymous;
        let is_proved_by_tenant = claims.actor.kind() != ActorKind::ShareLink && claims.actor.visitor_home().is_none();
        if is_proved_by_tenant && is_credible {
            self.callers.insert(claims.clone(), Arc::new(caller.clone()));
        }
    }

    /// Returns the submitter of a run that executes in another process. Its rights are current if `bypass_cache` is
    /// set, and they may be empty.
    pub(crate) async fn submitter(
        &self,
        mode: IdentityMode,
        claims: &IdentityClaims,
        request_id: RequestId,
        bypass_cache: bool,
    ) -> Result<Caller, Failure> {
        if !bypass_cache && let Some(cached_caller) = self.callers.get(claims) {
            return Ok(Caller { request_id, ..Caller::clone(&cached_caller) });
        }
        match self.read_caller(mode, claims, request_id).await {
            Ok(caller) => {
                self.cache_caller(claims, &caller);
                Ok(caller)
            }
            Err(Failure::NotFound) => {
                let tenant = claims.tenant.ok_or(Failure::NotFound)?;
                let access_revision =
                    self.access_store.access_revision(tenant).await?.ok_or(Failure::Inconsistent("no such tenant"))?;
                Ok(Caller {
                    tenant,
                    actor: claims.actor.clone(),
                    groups: claims.groups.clone(),
                    rights: Arc::new(Rights::new(Vec::new())),
                    lanes: Arc::new(BoundLanes::from_bindings(&claims.actor, Vec::new())),
                    access_revision,
                    request_id,
                })
            }
            Err(failure) => Err(failure),
        }
    }

    async fn read_caller(
        &self,
        mode: IdentityMode,
        claims: &IdentityClaims,
        request_id: RequestId,
    ) -> Result<Caller, Failure> {
        let mut principals = vec![claims.actor.clone()];
        principals.extend(claims.groups.iter().cloned());
        let names = mode.name_scope();
        let access =
            self.access_store.load_principal(claims.tenant, &principals, names).await?.ok_or(Failure::NotFound)?;
        let kind = claims.actor.kind();
        let rights = match mode {
            _ if kind == ActorKind::System => system_rights(&claims.actor),
            IdentityMode::Local => effective_rights(mode, &claims.actor, &access),
            IdentityMode::Oidc if is_guest(kind) => Rights::new(Vec::new()),
            IdentityMode::Oidc => match claims.actor.visitor_home() {
                Some((_, home_slug)) => self.visitor_rights(claims, &home_slug, &access).await?,
                None => Rights::new(self.member_grants(access.tenant, &principals, &access)),
            },
        };
        // In local mode, an actor without rights in the tenant that it names is not a member of that tenant. In OIDC
        // mode, the token proves the tenant. The tenant of a guest comes from its token or from the host name, never
        // from a claim of the guest.
        let names_own_tenant = mode == IdentityMode::Local && claims.tenant.is_some();
        if !is_guest(kind) && names_own_tenant && rights.is_empty() {
            return Err(Failure::NotFound);
        }
        Ok(Caller {
            tenant: access.tenant,
            actor: claims.actor.clone(),
            groups: claims.groups.clone(),
            rights: Arc::new(rights),
            lanes: Arc::new(BoundLanes::from_bindings(&claims.actor, access.lanes)),
            access_revision: access.access_revision,
            request_id,
        })
    }
}

impl CallerResolver {
    /// Returns the grants of an actor and its groups in the actor's home tenant, as currently stored.
    pub(crate) async fn grants_in_home_tenant(
        &self,
        tenant: TenantId,
        principals: &[ActorRef],
    ) -> Result<Vec<Grant>, Failure> {
        let access = self.access_store.load_principal(Some(tenant), principals, ActorNameScope::Tenant).await?;
        Ok(self.member_grants(tenant, principals, &access.ok_or(Failure::NotFound)?))
    }

    /// Returns the grants of an identity in its own tenant. A new installation has no role bindings, so the
    /// configuration names its first administrators, which belong to the default tenant.
    fn member_grants(&self, tenant: TenantId, principals: &[ActorRef], access: &CallerAccess) -> Vec<Grant> {
        let mut grants = access.grants.clone();
        if tenant == TenantId::from(DEFAULT_TENANT_ID)
            && principals.iter().any(|principal| self.settings.bootstrap_admins.contains(principal))
        {
            grants.push(Grant::of_bootstrap_admin());
        }
        grants
    }

    /// Returns the rights of an actor in a tenant other than its own: its rights on the whole platform, and those
    /// that the visited tenant grants to its visitor name.
    ///
    /// # Errors
    /// Not found when the actor has no right on the platform.
    async fn visitor_rights(
        &self,
        claims: &IdentityClaims,
        home_slug: &Slug,
        local_access: &CallerAccess,
    ) -> Result<Rights, Failure> {
        let home_tenant = self.identity_store.find_tenant(home_slug).await?.ok_or(Failure::NotFound)?;
        let home_actor = |actor: &ActorRef| actor.visitor_home().map(|(actor, _)| actor);
        let principals: Vec<ActorRef> =
            [&claims.actor].into_iter().chain(&claims.groups).filter_map(home_actor).collect();
        let home_access =
            self.access_store.load_principal(Some(home_tenant), &principals, ActorNameScope::Tenant).await?;
        let home_access = home_access.ok_or(Failure::NotFound)?;
        let mut grants = self.member_grants(home_tenant, &principals, &home_access);
        grants.retain(|grant| grant.scope == GrantScope::Platform);
        if grants.is_empty() {
            return Err(Failure::NotFound);
        }
        grants.extend(local_access.grants.iter().filter(|grant| grant.scope != GrantScope::Platform).cloned());
        Ok(Rights::new(grants))
    }
}

/// Returns the rights of a system actor, which a request can never claim to be. Only the generator, which submits runs,
/// has rights.
fn system_rights(actor: &ActorRef) -> Rights {
    let may_run = *actor == ActorRef::system(crate::generator::ACTOR);
    Rights::new(may_run.then_some(Grant::of_role(Role::RuntimeUser, GrantScope::Platform)).into_iter().collect())
}

/// Returns the rights of an actor according to its stored access.
pub(crate) fn effective_rights(mode: IdentityMode, actor: &ActorRef, access: &CallerAccess) -> Rights {
    match mode {
        IdentityMode::Local => local_rights(actor, access),
        IdentityMode::Oidc => Rights::new(access.grants.clone()),
    }
}

/// Returns rights on a local server. The local user has every permission. An actor that never had a role administers
/// the default tenant, so that a user can try every feature. An actor that once had a role has only its current roles,
/// so that a user can also try permissions.
fn local_rights(actor: &ActorRef, access: &CallerAccess) -> Rights {
    let default = TenantId::from(DEFAULT_TENANT_ID);
    let grants = match actor.kind() {
        ActorKind::Anonymous | ActorKind::ShareLink => Vec::new(),
        ActorKind::User if *actor == ActorRef::local() => {
            vec![Grant::of_role(Role::PlatformAdmin, GrantScope::Platform)]
        }
        ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System => {
            if access.ever_bound || access.tenant != default {
                access.grants.clone()
            } else {
                vec![Grant::of_role(Role::TenantAdmin, GrantScope::Tenant(default))]
            }
        }
    };
    Rights::new(grants)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::{access::Permission, access::ResourcePosition, store::Revision};

    fn principal_access(ever_bound: bool) -> CallerAccess {
        CallerAccess {
            tenant: DEFAULT_TENANT_ID.into(),
            ever_bound,
            grants: Vec::new(),
            lanes: Vec::new(),
            access_revision: Revision::FIRST,
        }
    }

    #[test]
    fn only_actors_that_never_held_a_role_administer_the_default_tenant() {
        let default_tenant = ResourcePosition::tenant(DEFAULT_TENANT_ID.into());
        let ada = ActorRef::parse("user:ada").unwrap();
        assert!(local_rights(&ada, &principal_access(false)).allow(Permission::TenantManage, &default_tenant));
        assert!(
            !local_rights(&ada, &principal_access(false))
                .allow(Permission::PlatformManage, &ResourcePosition::INSTALLATION)
        );
        assert!(local_rights(&ada, &principal_access(true)).is_empty());
        assert!(
            local_rights(&ActorRef::local(), &principal_access(true))
                .allow(Permission::PlatformManage, &ResourcePosition::INSTALLATION)
        );
        assert!(local_rights(&ActorRef::anonymous(), &principal_access(false)).is_empty());
    }
}
