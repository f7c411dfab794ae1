//! Operations on tenants and their settings.

use crate::{
    Failure, MaybeReplayed, Precondition, Settings, Stores,
    access::{
        Operation,
        authorize::{authorize, authorize_tenant, authorize_tenant_view},
    },
    commit_context::CommitContext,
    idempotency::{KeyedRequests, MAX_ATTEMPTS, keyed_outcome},
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    access::{ActorNameScope, Caller, ResourcePosition, identity::IdentityStore},
    audit::Stamp,
    id::TenantId,
    idempotency::RequestKey,
    store::{CommitError, Page, PageRequest},
    tenant::{Tenant, TenantStore},
};
use std::sync::Arc;

/// Changes of a tenant's settings; `None` leaves a setting unchanged.
#[derive(Clone, Debug, Default)]
pub struct TenantSettingsPatch {
    /// Whether facts produce notifications.
    pub notifications_enabled: Option<bool>,
    /// Whether the advanced notification tier is on.
    pub advanced_notifications_enabled: Option<bool>,
    /// Public host names of the tenant; they replace the current ones.
    pub public_hosts: Option<Vec<String>>,
}

/// Creates and lists tenants, and reads and changes their settings.
#[derive(Clone)]
pub struct Tenants {
    context: CommitContext,
    settings: Arc<Settings>,
    tenant_store: Arc<dyn TenantStore>,
    identity_store: Arc<dyn IdentityStore>,
    keyed_requests: Arc<KeyedRequests>,
}

impl Tenants {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            context: shared.context.clone(),
            settings: Arc::clone(&shared.settings),
            tenant_store: Arc::clone(&stores.tenants),
            identity_store: Arc::clone(&stores.identities),
            keyed_requests: Arc::clone(&common.keyed_requests),
        }
    }
}

impl Tenants {
    /// Lists all tenants, newest first.
    ///
    /// # Errors
    /// When the caller does not manage the platform.
    pub async fn list_tenants(&self, caller: &Caller, page: PageRequest) -> Result<Page<Tenant>, Failure> {
        authorize(caller, Operation::ListTenants, &ResourcePosition::INSTALLATION)?;
        Ok(self.tenant_store.list(page).await?)
    }

    /// Creates a tenant. The fact is the first entry in the log of the new tenant. The log of the operator's own tenant
    /// does not contain it, because auditors of that tenant must not learn of other tenants.
    ///
    /// # Errors
    /// When the caller does not manage the platform, or the slug or the name is invalid.
    pub async fn create_tenant(
        &self,
        caller: &Caller,
        slug: &str,
        name: &str,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<Tenant>, Failure> {
        let scope = authorize(caller, Operation::CreateTenant, &ResourcePosition::INSTALLATION)?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let id: TenantId = self.context.new_id();
                    let new_tenant_scope = authorize_tenant(caller, Operation::CreateTenant, id)?;
                    let change = Tenant::create(id, slug, name, &self.stamp_in(id, caller).await?)?;
                    let tenant = change.next.clone();
                    let outcome = keyed_outcome(key, 201, id.uuid());
                    self.tenant_store.commit_new(scope, new_tenant_scope, change, outcome.as_ref()).await?;
                    Ok(tenant)
                },
                async |id| {
                    let scope = authorize_tenant_view(caller, id.into())?;
                    self.tenant_store.find(scope).await?.ok_or(Failure::NotFound)
                },
            )
            .await
    }

    /// Returns a tenant's settings.
    ///
    /// # Errors
    /// Not found for another tenant's settings, unless the caller manages the platform; forbidden when the caller may
    /// not manage the tenant.
    pub async fn tenant_settings(&self, caller: &Caller, id: TenantId) -> Result<Tenant, Failure> {
        let scope = authorize_tenant_view(caller, id)?;
        self.tenant_store.find(scope).await?.ok_or(Failure::NotFound)
    }

    /// Changes a tenant's settings.
    ///
    /// # Errors
    /// As [`Self::tenant_settings`]. Also in these cases: a caller without platform management changes hosts; a host is
    /// invalid or belongs to another tenant or the operator; the settings changed concurrently.
    pub async fn change_tenant_settings(
        &self,
        caller: &Caller,
        id: TenantId,
        patch: TenantSettingsPatch,
        expected: &Precondition,
    ) -> Result<Tenant, Failure> {
        let scope = authorize_tenant(caller, Operation::ChangeTenantSettings, id)?;
        if patch.public_hosts.is_some() {
            // A host determines the tenant of anonymous clients, so only platform operators may assign hosts.
            authorize_tenant(caller, Operation::ChangePublicHosts, id)?;
        }
        for _ in 0..MAX_ATTEMPTS {
            let tenant = self.tenant_store.find(scope).await?.ok_or(Failure::NotFound)?;
            expected.check(tenant.revision)?;
            let mut settings = tenant.settings.clone();
            settings.notifications_enabled = patch.notifications_enabled.unwrap_or(settings.notifications_enabled);
            settings.advanced_notifications_enabled =
                patch.advanced_notifications_enabled.unwrap_or(settings.advanced_notifications_enabled);
            settings.public_hosts = patch.public_hosts.clone().unwrap_or(settings.public_hosts);
            if settings == tenant.settings {
                return Ok(tenant);
            }
            let stamp = self.stamp_in(id, caller).await?;
            let change = tenant.configure(settings, &self.settings.operator_hosts, &stamp)?;
            let changed_tenant = change.next.clone();
            match self.tenant_store.commit_settings(scope, change).await {
                Err(CommitError::Stale) => match expected.stale_failure() {
                    Some(failure) => return Err(failure),
                    None => continue,
                },
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(changed_tenant);
        }
        Err(Failure::Contended)
    }

    /// Creates the stamp of a fact in the log of a tenant that the platform operator changes. If names are unique only
    /// within a tenant and the operator belongs to another one, the stamp contains the operator's visitor name.
    async fn stamp_in(&self, tenant: TenantId, caller: &Caller) -> Result<Stamp, Failure> {
        let stamp = self.context.stamp(caller);
        let is_name_valid_in_tenant = match self.settings.identity.name_scope() {
            ActorNameScope::Installation => true,
            ActorNameScope::Tenant => caller.tenant == tenant,
        };
        if is_name_valid_in_tenant {
            return Ok(stamp);
        }
        let actor = match caller.actor.visitor_home() {
            // The changed tenant is the home tenant of this visitor, so its log contains the visitor's plain name.
            Some((home_actor, home_slug)) if self.identity_store.find_tenant(&home_slug).await? == Some(tenant) => {
                home_actor
            }
            Some(_) => caller.actor.clone(),
            None => {
                let home_slug = self.identity_store.find_tenant_slug(caller.tenant).await?.ok_or(Failure::NotFound)?;
                caller.actor.visiting_from(&home_slug).ok_or(Failure::NotFound)?
            }
        };
        Ok(Stamp { actor, ..stamp })
    }
}
