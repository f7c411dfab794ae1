//! Identification: from the identity claims of a request to a caller with rights.

use crate::{Failure, Stores, services::SharedState};
use fairway_domain::{
    access::{AccessStore, ActorKind, ActorRef, Caller, CallerLanes, Grant, GrantScope, PrincipalAccess, Rights, Role},
    id::{RequestId, TenantId},
    share_link::is_guest,
    tenant::DEFAULT_TENANT,
};
use moka::sync::Cache;
use std::sync::Arc;

/// How identity claims are verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentityMode {
    /// The server listens on loopback and trusts every claim.
    Local,
}

impl IdentityMode {
    /// The name of the mode in on-behalf-of fields.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
        }
    }

    /// Whether a request comes from the operator of the server. In local mode the operator is on this machine; a
    /// forwarded request comes from another one.
    #[must_use]
    pub const fn is_operator_request(self, is_forwarded: bool) -> bool {
        match self {
            Self::Local => !is_forwarded,
        }
    }
}

/// The identity that a request claims.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Claims {
    /// The actor.
    pub actor: ActorRef,
    /// The actor's groups.
    pub groups: Vec<ActorRef>,
    /// The tenant to work in, if the request names one.
    pub tenant: Option<TenantId>,
}

/// Identifies callers by their verified claims.
#[derive(Clone)]
pub struct Identities {
    callers: Cache<Claims, Arc<Caller>>,
    access_store: Arc<dyn AccessStore>,
}

impl Identities {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self { callers: shared.callers.clone(), access_store: Arc::clone(&stores.access) }
    }
}

impl Identities {
    /// The cached caller of these claims.
    pub(crate) fn cached(&self, claims: &Claims) -> Option<Arc<Caller>> {
        self.callers.get(claims)
    }

    /// The caller behind the claims, with its current rights: cached ones if the tenant's access revision proves
    /// them, else those of the store.
    ///
    /// # Errors
    /// Not found when the named tenant is not one of the actor's.
    pub async fn identify(
        &self,
        mode: IdentityMode,
        claims: &Claims,
        request_id: RequestId,
    ) -> Result<Caller, Failure> {
        if let Some(known) = self.callers.get(claims)
            && self.access_store.access_revision(known.tenant).await? == Some(known.access_revision)
        {
            return Ok(Caller { request_id, ..Caller::clone(&known) });
        }
        let caller = self.read_caller(mode, claims, request_id).await?;
        self.cache_caller(claims, &caller);
        Ok(caller)
    }

    /// Caches a caller that has any right: requests can invent names. A share link caller is never cached, because
    /// every request proves its link.
    fn cache_caller(&self, claims: &Claims, caller: &Caller) {
        let has_a_say = !caller.rights.is_empty() || claims.actor.kind() == ActorKind::Anonymous;
        if claims.actor.kind() != ActorKind::ShareLink && has_a_say {
            self.callers.insert(claims.clone(), Arc::new(caller.clone()));
        }
    }

    /// The submitter of a run that executes elsewhere, with its current rights, possibly none.
    pub(crate) async fn submitter(
        &self,
        mode: IdentityMode,
        claims: &Claims,
        request_id: RequestId,
        fresh: bool,
    ) -> Result<Caller, Failure> {
        if !fresh && let Some(known) = self.callers.get(claims) {
            return Ok(Caller { request_id, ..Caller::clone(&known) });
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
                    lanes: Arc::new(CallerLanes::from_bindings(&claims.actor, Vec::new())),
                    access_revision,
                    request_id,
                })
            }
            Err(failure) => Err(failure),
        }
    }

    async fn read_caller(&self, mode: IdentityMode, claims: &Claims, request_id: RequestId) -> Result<Caller, Failure> {
        let mut principals = vec![claims.actor.clone()];
        principals.extend(claims.groups.iter().cloned());
        let known = self.access_store.load_principal(claims.tenant, &principals).await?.ok_or(Failure::NotFound)?;
        let rights = if claims.actor.kind() == ActorKind::System {
            system_rights(&claims.actor)
        } else {
            effective_rights(mode, &claims.actor, &known)
        };
        // An actor without rights in a tenant is not a member of it. The tenant of a guest comes from its token or
        // from the host name, never from the guest's own claim.
        if !is_guest(claims.actor.kind()) && claims.tenant.is_some() && rights.is_empty() {
            return Err(Failure::NotFound);
        }
        Ok(Caller {
            tenant: known.tenant,
            actor: claims.actor.clone(),
            groups: claims.groups.clone(),
            rights: Arc::new(rights),
            lanes: Arc::new(CallerLanes::from_bindings(&claims.actor, known.lanes)),
            access_revision: known.access_revision,
            request_id,
        })
    }
}

/// The rights of a component of Fairway that submits runs. No request can claim to be one.
fn system_rights(actor: &ActorRef) -> Rights {
    let runs = *actor == ActorRef::system(crate::generator::ACTOR);
    Rights::new(runs.then_some(Grant::of_role(Role::RuntimeUser, GrantScope::Platform)).into_iter().collect())
}

/// The rights of an actor by its stored access.
pub(crate) fn effective_rights(mode: IdentityMode, actor: &ActorRef, known: &PrincipalAccess) -> Rights {
    match mode {
        IdentityMode::Local => local_rights(actor, known),
    }
}

/// Rights on a local server. The local user has every permission. An actor that never held a role administers the
/// default tenant, so that every feature can be tried. An actor that lost its roles keeps only what is left, so that
/// permissions can be tried too.
fn local_rights(actor: &ActorRef, known: &PrincipalAccess) -> Rights {
    let default = TenantId::from(DEFAULT_TENANT);
    let grants = match actor.kind() {
        ActorKind::Anonymous | ActorKind::ShareLink => Vec::new(),
        ActorKind::User if *actor == ActorRef::local() => {
            vec![Grant::of_role(Role::PlatformAdmin, GrantScope::Platform)]
        }
        ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System => {
            if known.ever_bound || known.tenant != default {
                known.grants.clone()
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

    fn known(ever_bound: bool) -> PrincipalAccess {
        PrincipalAccess {
            tenant: DEFAULT_TENANT.into(),
            ever_bound,
            grants: Vec::new(),
            lanes: Vec::new(),
            access_revision: Revision::FIRST,
        }
    }

    #[test]
    fn only_actors_that_never_held_a_role_administer_the_default_tenant() {
        let here = ResourcePosition::tenant(DEFAULT_TENANT.into());
        let ada = ActorRef::parse("user:ada").unwrap();
        assert!(local_rights(&ada, &known(false)).allow(Permission::TenantManage, &here));
        assert!(!local_rights(&ada, &known(false)).allow(Permission::PlatformManage, &ResourcePosition::INSTALLATION));
        assert!(local_rights(&ada, &known(true)).is_empty());
        assert!(
            local_rights(&ActorRef::local(), &known(true))
                .allow(Permission::PlatformManage, &ResourcePosition::INSTALLATION)
        );
        assert!(local_rights(&ActorRef::anonymous(), &known(false)).is_empty());
    }
}
