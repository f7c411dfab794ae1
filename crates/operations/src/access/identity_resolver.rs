//! Converts a verified identity into the claims of a caller, and pins the caller's name at its first request.

use super::IdentityClaims;
use crate::{
    Failure, Settings, Stores,
    cache::{CACHE_BYTE_LIMITS, weighted_cache},
    commit_context::CommitContext,
    services::SharedState,
};
use fairway_domain::{
    access::{
        ActorRef,
        identity::{
            IdentityRefusal, IdentityStore, PinnedIdentity, ReplacedFields, TenantClaim, VerifiedIdentity,
            group_actors, tenant_slug,
        },
    },
    audit::{AuditStore, Fact, Stamp},
    id::{RequestId, TenantId},
    slug::Slug,
    store::{CommitError, ConstraintConflict},
    tenant::{DEFAULT_TENANT_ID, TenantScope},
};
use moka::sync::Cache;
use std::{sync::Arc, time::Duration};

/// Time for which a process uses the pinned identity of an access token before it reads that identity from the store
/// again.
const PIN_LIFETIME: Duration = Duration::from_secs(600);
/// Time for which a process records no second fact about the same identity, so that repeated requests do not fill the
/// audit log.
const FACT_LIFETIME: Duration = Duration::from_secs(3600);

/// The subject of an issuer in a tenant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct SubjectKey {
    tenant: TenantId,
    issuer: String,
    subject: String,
}

impl SubjectKey {
    fn heap_bytes(&self) -> usize {
        self.issuer.len().saturating_add(self.subject.len())
    }
}

/// Cache of the pinned identities of recent requests. All clones share the entries.
#[derive(Clone)]
pub(crate) struct PinCache {
    pins: Cache<SubjectKey, Arc<PinnedIdentity>>,
    /// Tenants by slug. The slug of a tenant never changes.
    tenants: Cache<Slug, TenantId>,
    /// Subjects about which this process recently recorded a fact.
    recorded: Cache<SubjectKey, ()>,
}

impl PinCache {
    pub(crate) fn new() -> Self {
        let bytes = |key: &SubjectKey, _: &()| key.heap_bytes();
        Self {
            pins: weighted_cache(CACHE_BYTE_LIMITS.pinned_identities, |key: &SubjectKey, pin: &Arc<PinnedIdentity>| {
                let groups = pin.groups.len().saturating_add(1).saturating_mul(size_of::<ActorRef>().saturating_mul(2));
                key.heap_bytes().saturating_mul(2).saturating_add(groups)
            })
            .time_to_live(PIN_LIFETIME)
            .build(),
            tenants: weighted_cache(CACHE_BYTE_LIMITS.tenants_by_slug, |slug: &Slug, _| slug.as_str().len()).build(),
            recorded: weighted_cache(CACHE_BYTE_LIMITS.recorded_identities, bytes).time_to_live(FACT_LIFETIME).build(),
        }
    }
}

/// Converts the identities that an identity provider proved into claims, and pins their names.
#[derive(Clone)]
pub struct IdentityResolver {
    context: CommitContext,
    settings: Arc<Settings>,
    cache: PinCache,
    identity_store: Arc<dyn IdentityStore>,
    audit_store: Arc<dyn AuditStore>,
}

impl IdentityResolver {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            context: shared.context.clone(),
            settings: Arc::clone(&shared.settings),
            cache: shared.pins.clone(),
            identity_store: Arc::clone(&stores.identities),
            audit_store: Arc::clone(&stores.audit),
        }
    }

    /// Returns the claims of a verified identity in its own tenant, or in the tenant that the request chooses. The
    /// first request of a subject pins its name.
    ///
    /// # Errors
    /// When another subject has the name, the token names no tenant, or its groups are incomplete; not found when the
    /// chosen tenant does not exist. This method does not check whether the actor may work in the chosen tenant: the
    /// identification of the caller does.
    pub async fn resolve_claims(
        &self,
        identity: &VerifiedIdentity,
        chosen_tenant: Option<TenantId>,
        request_id: RequestId,
    ) -> Result<IdentityClaims, Failure> {
        let (tenant, pin) = self.pinned_by_token(identity, request_id).await?;
        let own_claims = IdentityClaims { actor: pin.actor.clone(), groups: pin.groups.clone(), tenant: Some(tenant) };
        self.claims_in(own_claims, chosen_tenant).await
    }

    /// Converts the claims of an identity into claims for the tenant that its request chooses.
    ///
    /// # Errors
    /// Not found when the identity's own tenant no longer exists, or when the name is too long to form a visitor name.
    pub async fn claims_in(
        &self,
        own_claims: IdentityClaims,
        chosen_tenant: Option<TenantId>,
    ) -> Result<IdentityClaims, Failure> {
        match (own_claims.tenant, chosen_tenant) {
            (Some(home_tenant), Some(chosen_tenant)) if chosen_tenant != home_tenant => {
                self.visit(own_claims, home_tenant, chosen_tenant).await
            }
            _ => Ok(own_claims),
        }
    }

    /// Returns the pinned identity of a sign-in, with its tenant. Stores the groups and e-mail address of the
    /// sign-in.
    ///
    /// # Errors
    /// As [`Self::claims`].
    pub async fn pin_signed_in_identity(
        &self,
        identity: &VerifiedIdentity,
        request_id: RequestId,
    ) -> Result<(TenantId, Arc<PinnedIdentity>), Failure> {
        let (key, groups) = self.subject(identity).await?;
        let presented = PinnedIdentity::pin(self.context.new_id(), identity, groups);
        let pin = self.read_or_pin(&key, &presented, ReplacedFields::BY_SIGN_IN, request_id).await?;
        Ok((key.tenant, pin))
    }

    /// Returns the pinned identity of an access token, with its tenant and the groups of the token.
    async fn pinned_by_token(
        &self,
        identity: &VerifiedIdentity,
        request_id: RequestId,
    ) -> Result<(TenantId, Arc<PinnedIdentity>), Failure> {
        let (key, groups) = self.subject(identity).await?;
        if let Some(pin) = self.cache.pins.get(&key).filter(|pin| pin.groups == groups) {
            return Ok((key.tenant, pin));
        }
        let presented = PinnedIdentity { email: None, ..PinnedIdentity::pin(self.context.new_id(), identity, groups) };
        let replaced_fields = ReplacedFields::by_access_token(&identity.groups);
        let pin = self.read_or_pin(&key, &presented, replaced_fields, request_id).await?;
        let tenant = key.tenant;
        self.cache.pins.insert(key, Arc::clone(&pin));
        Ok((tenant, pin))
    }

    /// Returns the key of an identity's subject in its tenant, and the groups of the identity.
    async fn subject(&self, identity: &VerifiedIdentity) -> Result<(SubjectKey, Vec<ActorRef>), Failure> {
        let groups = group_actors(&identity.groups)?;
        let tenant = self.tenant_of(identity).await?;
        Ok((SubjectKey { tenant, issuer: identity.issuer.clone(), subject: identity.subject.clone() }, groups))
    }

    /// Returns the tenant of a verified identity.
    ///
    /// # Errors
    /// When the identity names no tenant.
    pub(crate) async fn tenant_of(&self, identity: &VerifiedIdentity) -> Result<TenantId, Failure> {
        let Some(slug) = tenant_slug(identity)? else { return Ok(DEFAULT_TENANT_ID.into()) };
        let claim = match &identity.tenant {
            TenantClaim::Named { claim, .. } => Some(claim.clone()),
            TenantClaim::NotConfigured | TenantClaim::Missing { .. } => None,
        };
        if let Some(tenant) = self.cache.tenants.get(&slug) {
            return Ok(tenant);
        }
        let tenant_id = self.identity_store.find_tenant(&slug).await?;
        let tenant = tenant_id.ok_or(IdentityRefusal::TenantUnknown { claim })?;
        self.cache.tenants.insert(slug, tenant);
        Ok(tenant)
    }

    async fn read_or_pin(
        &self,
        key: &SubjectKey,
        presented: &PinnedIdentity,
        replaced_fields: ReplacedFields,
        request_id: RequestId,
    ) -> Result<Arc<PinnedIdentity>, Failure> {
        let scope = TenantScope::for_identity(key.tenant);
        let pin = match self.identity_store.refresh(scope, presented, replaced_fields).await? {
            Some(refreshed) => refreshed,
            None => self.pin(scope, key, presented, replaced_fields, request_id).await?,
        };
        let is_admin = |actor: &ActorRef| self.settings.bootstrap_admins.contains(actor);
        if key.tenant == TenantId::from(DEFAULT_TENANT_ID) && (is_admin(&pin.actor) || pin.groups.iter().any(is_admin))
        {
            let fact = pin.bootstrap_fact(&self.stamp(&pin.actor, request_id));
            self.record_once(key, scope, fact).await?;
        }
        Ok(Arc::new(pin))
    }

    /// Pins the name of a subject at its first request.
    async fn pin(
        &self,
        scope: TenantScope,
        key: &SubjectKey,
        presented: &PinnedIdentity,
        replaced_fields: ReplacedFields,
        request_id: RequestId,
    ) -> Result<PinnedIdentity, Failure> {
        let stamp = self.stamp(&presented.actor, request_id);
        match self.identity_store.commit_pin(scope, presented, presented.pinned_fact(&stamp)).await {
            Ok(()) => {
                self.context.notify_facts();
                Ok(presented.clone())
            }
            // A concurrent request has pinned the same subject.
            Err(CommitError::Stale) => {
                self.identity_store.refresh(scope, presented, replaced_fields).await?.ok_or(Failure::Contended)
            }
            Err(CommitError::Conflict(ConstraintConflict::ActorNameTaken)) => {
                let fact = presented.name_conflict_fact(&self.stamp(&ActorRef::anonymous(), request_id));
                self.record_once(key, scope, fact).await?;
                Err(IdentityRefusal::NameTaken.into())
            }
            Err(other) => Err(other.into()),
        }
    }

    /// Records a fact about a subject, at most once an hour in this process.
    async fn record_once(&self, key: &SubjectKey, scope: TenantScope, fact: Fact) -> Result<(), Failure> {
        if !self.cache.recorded.contains_key(key) {
            self.audit_store.commit_fact(scope, fact).await?;
            self.cache.recorded.insert(key.clone(), ());
            self.context.notify_facts();
        }
        Ok(())
    }

    /// Returns the claims with which an actor works in a tenant other than its own.
    async fn visit(
        &self,
        own_claims: IdentityClaims,
        home_tenant: TenantId,
        chosen_tenant: TenantId,
    ) -> Result<IdentityClaims, Failure> {
        let slug = self.identity_store.find_tenant_slug(home_tenant).await?.ok_or(Failure::NotFound)?;
        let groups = own_claims.groups.iter().filter_map(|group| group.visiting_from(&slug)).collect();
        let actor = own_claims.actor.visiting_from(&slug).ok_or(Failure::NotFound)?;
        Ok(IdentityClaims { actor, groups, tenant: Some(chosen_tenant) })
    }

    fn stamp(&self, actor: &ActorRef, request_id: RequestId) -> Stamp {
        Stamp { fact_id: self.context.new_id(), at: self.context.clock.now(), actor: actor.clone(), request_id }
    }
}
