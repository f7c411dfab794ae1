//! Tenants and workspaces.

use crate::{
    Done, Expected, Failure, Services,
    access::{
        Demand, Operation,
        gate::{enter, refused},
    },
    once::{ATTEMPTS, keyed},
};

use fairway_domain::{
    access::{Caller, Place},
    id::{NamespaceId, TenantId, WorkloadId, WorkspaceId},
    idempotency::RequestKey,
    store::{CommitError, Listed, Paging},
    tenant::{Tenant, TenantScope, Workspace},
};

/// Settings to change; what is not named stays.
#[derive(Clone, Debug, Default)]
pub struct SettingsPatch {
    /// Whether facts become notifications.
    pub notifications_enabled: Option<bool>,
    /// Whether the advanced tier is on.
    pub advanced_notifications_enabled: Option<bool>,
    /// Host names of the tenant.
    pub public_hosts: Option<Vec<String>>,
}

impl Services {
    /// All tenants, newest first.
    ///
    /// # Errors
    /// When the caller does not manage the platform.
    pub async fn list_tenants(&self, caller: &Caller, page: Paging) -> Result<Listed<Tenant>, Failure> {
        enter(caller, Operation::ListTenants, &Place::PLATFORM)?;
        Ok(self.stores.tenants.list(page).await?)
    }

    /// Makes a tenant.
    ///
    /// # Errors
    /// When the caller does not manage the platform, or slug or name are not allowed.
    pub async fn create_tenant(
        &self,
        caller: &Caller,
        (slug, name): (&str, &str),
        key: Option<&RequestKey>,
    ) -> Result<Done<Tenant>, Failure> {
        let scope = enter(caller, Operation::CreateTenant, &Place::PLATFORM)?;
        self.once(
            scope,
            key,
            async || {
                let id: TenantId = self.id();
                let change = Tenant::create(id, slug, name, &self.stamp(caller))?;
                let tenant = change.next.clone();
                let outcome = keyed(key, 201, id.uuid());
                self.stores.tenants.commit_new(scope, change, outcome.as_ref()).await?;
                Ok(tenant)
            },
            async |id| {
                let theirs = TenantScope::for_relay(id.into());
                self.stores.tenants.find(theirs).await?.ok_or(Failure::NotFound)
            },
        )
        .await
    }

    /// A tenant's settings.
    ///
    /// # Errors
    /// When it is neither the caller's tenant nor the caller manages the platform, or the caller does not manage it.
    pub async fn tenant_settings(&self, caller: &Caller, id: TenantId) -> Result<Tenant, Failure> {
        // Platform operators read every tenant that they can list, whatever tenant their request works in: `Location` of
        // a created tenant leads here.
        let scope = match enter(caller, Operation::ListTenants, &Place::PLATFORM) {
            Ok(_) => TenantScope::for_relay(id),
            Err(_) => self.enter_tenant(caller, Operation::ReadTenantSettings, id)?,
        };
        self.stores.tenants.find(scope).await?.ok_or(Failure::NotFound)
    }

    /// Changes a tenant's settings.
    ///
    /// # Errors
    /// As [`Self::tenant_settings`]; besides when hosts are named by a caller who does not manage the platform, when a host
    /// is none, another tenant's or nobody's, or when the settings moved.
    pub async fn change_tenant_settings(
        &self,
        caller: &Caller,
        id: TenantId,
        patch: SettingsPatch,
        expected: &Expected,
    ) -> Result<Tenant, Failure> {
        let scope = self.enter_tenant(caller, Operation::ChangeTenantSettings, id)?;
        if patch.public_hosts.is_some() {
            // A host decides whose tenant strangers come to, so a tenant does not take one for itself.
            self.enter_tenant(caller, Operation::ChangePublicHosts, id)?;
        }
        for _ in 0..ATTEMPTS {
            let tenant = self.stores.tenants.find(scope).await?.ok_or(Failure::NotFound)?;
            expected.check(tenant.revision)?;
            let mut settings = tenant.settings.clone();
            settings.notifications_enabled = patch.notifications_enabled.unwrap_or(settings.notifications_enabled);
            settings.advanced_notifications_enabled =
                patch.advanced_notifications_enabled.unwrap_or(settings.advanced_notifications_enabled);
            settings.public_hosts = patch.public_hosts.clone().unwrap_or(settings.public_hosts);
            if settings == tenant.settings {
                return Ok(tenant);
            }
            let change = tenant.configure(settings, &self.settings.operator_hosts, &self.stamp(caller))?;
            let next = change.next.clone();
            match self.stores.tenants.commit_settings(scope, change).await {
                Err(CommitError::Stale) => match expected.on_stale() {
                    Some(failure) => return Err(failure),
                    None => continue,
                },
                committed => committed?,
            }
            self.wake.facts();
            return Ok(next);
        }
        Err(Failure::Contended)
    }

    fn enter_tenant(&self, caller: &Caller, operation: Operation, id: TenantId) -> Result<TenantScope, Failure> {
        if caller.tenant == id {
            return enter(caller, operation, &Place::tenant(id));
        }
        // Platform operators see every tenant, whatever tenant their request works in. Their permissions count where the
        // settings are.
        enter(caller, Operation::ListTenants, &Place::PLATFORM).map_err(|_| Failure::NotFound)?;
        let (Demand::Platform(needs) | Demand::Tenant(needs)) = operation.demand() else {
            return Err(Failure::Corrupt(
                "settings of a tenant must demand a permission on the tenant or the platform",
            ));
        };
        if caller.rights.allow(needs, &Place::tenant(id)) {
            Ok(TenantScope::for_relay(id))
        } else {
            Err(refused(caller, needs))
        }
    }

    /// The tenant's workspaces, newest first.
    ///
    /// # Errors
    /// When the caller has no role in the tenant.
    pub async fn list_workspaces(&self, caller: &Caller, page: Paging) -> Result<Listed<Workspace>, Failure> {
        let scope = enter(caller, Operation::ListWorkspaces, &Place::tenant(caller.tenant))?;
        Ok(self.stores.workspaces.list(scope, page).await?)
    }

    /// One workspace.
    ///
    /// # Errors
    /// When the caller has no role in the tenant, or the tenant no such workspace.
    pub async fn read_workspace(&self, caller: &Caller, id: WorkspaceId) -> Result<Workspace, Failure> {
        let scope = enter(caller, Operation::ReadWorkspace, &Place::tenant(caller.tenant))?;
        self.stores.workspaces.find(scope, id).await?.ok_or(Failure::NotFound)
    }

    /// Makes a workspace with its built-in assistant, and its namespace on first use.
    ///
    /// # Errors
    /// When the caller does not manage the tenant, or slug, name or namespace are not allowed.
    pub async fn create_workspace(
        &self,
        caller: &Caller,
        (slug, name, namespace): (&str, &str, &str),
        key: Option<&RequestKey>,
    ) -> Result<Done<Workspace>, Failure> {
        let scope = enter(caller, Operation::CreateWorkspace, &Place::tenant(caller.tenant))?;
        self.once(
            scope,
            key,
            async || {
                let ids = (self.id::<WorkspaceId>(), self.id::<NamespaceId>(), self.id::<WorkloadId>());
                let change = Workspace::create(ids, slug, name, namespace, &self.stamp(caller))?;
                let outcome = keyed(key, 201, ids.0.uuid());
                Ok(self.stores.workspaces.commit_new(scope, change, outcome.as_ref()).await?)
            },
            async |id| self.read_workspace(caller, id.into()).await,
        )
        .await
    }
}
