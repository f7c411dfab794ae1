//! From what a request claims to a caller with rights.

use crate::{Failure, Services};
use fairway_domain::{
    access::{ActorKind, ActorRef, Caller, CallerLanes, Grant, GrantScope, KnownPrincipal, Rights, Role},
    id::{RequestId, TenantId},
    share_link::is_guest,
    tenant::DEFAULT_TENANT,
};
use std::sync::Arc;

/// How far a claim is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentityMode {
    /// A server on loopback believes whoever speaks to it.
    Local,
}

/// Who a request says that it is from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Claims {
    /// The actor.
    pub actor: ActorRef,
    /// Its groups.
    pub groups: Vec<ActorRef>,
    /// The tenant that it wants to work in, if it says.
    pub tenant: Option<TenantId>,
}

impl Services {
    /// The caller behind the claims, with the rights of this moment: those that the process remembers, where the
    /// tenant's access revision proves them, else those in the store.
    ///
    /// # Errors
    /// Not found when the tenant that was asked for is not the actor's.
    pub async fn identify(
        &self,
        mode: IdentityMode,
        claims: &Claims,
        request_id: RequestId,
    ) -> Result<Caller, Failure> {
        if let Some(known) = self.plans.callers.get(claims)
            && self.stores.access.access_revision(known.tenant).await? == Some(known.access_revision)
        {
            return Ok(Caller { request_id, ..Caller::clone(&known) });
        }
        let caller = self.read_caller(mode, claims, request_id).await?;
        self.remember(claims, &caller);
        Ok(caller)
    }

    /// Keeps a caller for its next request, if it may do anything here: requests make names up. A holder of a share link is
    /// never kept, because its link is proved with every request.
    fn remember(&self, claims: &Claims, caller: &Caller) {
        let has_a_say = !caller.rights.is_empty() || claims.actor.kind() == ActorKind::Anonymous;
        if claims.actor.kind() != ActorKind::ShareLink && has_a_say {
            self.plans.callers.insert(claims.clone(), Arc::new(caller.clone()));
        }
    }

    /// Who sent a run that goes on elsewhere, with the rights of this moment, which may be none.
    pub(crate) async fn submitter(
        &self,
        mode: IdentityMode,
        claims: &Claims,
        (request_id, fresh): (RequestId, bool),
    ) -> Result<Caller, Failure> {
        if !fresh && let Some(known) = self.plans.callers.get(claims) {
            return Ok(Caller { request_id, ..Caller::clone(&known) });
        }
        match self.read_caller(mode, claims, request_id).await {
            Ok(caller) => {
                self.remember(claims, &caller);
                Ok(caller)
            }
            Err(Failure::NotFound) => {
                let tenant = claims.tenant.ok_or(Failure::NotFound)?;
                let access_revision =
                    self.stores.access.access_revision(tenant).await?.ok_or(Failure::Corrupt("no such tenant"))?;
                Ok(Caller {
                    tenant,
                    actor: claims.actor.clone(),
                    groups: claims.groups.clone(),
                    rights: Arc::new(Rights::new(Vec::new())),
                    lanes: Arc::new(CallerLanes::of(&claims.actor, Vec::new())),
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
        let known = self.stores.access.principal(claims.tenant, &principals).await?.ok_or(Failure::NotFound)?;
        let rights = if claims.actor.kind() == ActorKind::System {
            system_rights(&claims.actor)
        } else {
            match mode {
                IdentityMode::Local => local_rights(&claims.actor, &known),
            }
        };
        // A tenant in which an actor has no say is not its own. That of somebody without an identity is told by what it brings
        // or by the host that it asks, and never by itself.
        if !is_guest(claims.actor.kind()) && claims.tenant.is_some() && rights.is_empty() {
            return Err(Failure::NotFound);
        }
        Ok(Caller {
            tenant: known.tenant,
            actor: claims.actor.clone(),
            groups: claims.groups.clone(),
            rights: Arc::new(rights),
            lanes: Arc::new(CallerLanes::of(&claims.actor, known.lanes)),
            access_revision: known.access_revision,
            request_id,
        })
    }
}

/// What a part of Fairway may do that sends runs. No request can say that it is one.
fn system_rights(actor: &ActorRef) -> Rights {
    let runs = *actor == ActorRef::system(crate::generator::CREDENTIAL);
    Rights::new(runs.then_some(Grant::of(Role::RuntimeUser, GrantScope::Platform)).into_iter().collect())
}

/// On a local server the person in front of it may do everything, and whoever never held a role administers the
/// default tenant, so that everything can be tried; who once held one has exactly what is left, so that permissions
/// can be tried too.
fn local_rights(actor: &ActorRef, known: &KnownPrincipal) -> Rights {
    let default = TenantId::from(DEFAULT_TENANT);
    let grants = match actor.kind() {
        ActorKind::Anonymous | ActorKind::ShareLink => Vec::new(),
        ActorKind::User if *actor == ActorRef::local() => {
            vec![Grant::of(Role::PlatformAdmin, GrantScope::Platform)]
        }
        ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System => {
            if known.ever_bound || known.tenant != default {
                known.grants.clone()
            } else {
                vec![Grant::of(Role::TenantAdmin, GrantScope::Tenant(default))]
            }
        }
    };
    Rights::new(grants)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::{access::Permission, access::Place, store::Revision};

    fn known(ever_bound: bool) -> KnownPrincipal {
        KnownPrincipal {
            tenant: DEFAULT_TENANT.into(),
            ever_bound,
            grants: Vec::new(),
            lanes: Vec::new(),
            access_revision: Revision::FIRST,
        }
    }

    #[test]
    fn who_never_held_a_role_administers_and_who_lost_it_does_not() {
        let here = Place::tenant(DEFAULT_TENANT.into());
        let ada = ActorRef::parse("user:ada").unwrap();
        assert!(local_rights(&ada, &known(false)).allow(Permission::TenantManage, &here));
        assert!(!local_rights(&ada, &known(false)).allow(Permission::PlatformManage, &Place::PLATFORM));
        assert!(local_rights(&ada, &known(true)).is_empty());
        assert!(local_rights(&ActorRef::local(), &known(true)).allow(Permission::PlatformManage, &Place::PLATFORM));
        assert!(local_rights(&ActorRef::anonymous(), &known(false)).is_empty());
    }
}
