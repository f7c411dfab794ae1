//! The revisions that prove what a process remembers: of a tenant's rights, and of what serves where.

use crate::{
    database::{Param, read},
    failure::unsettled,
    gather::{Batch, Gather},
    row::Columns,
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    id::TenantId,
    release::ports::DeploymentPulse,
    store::{Revision, StoreError, StoreFault},
};
use std::{collections::HashMap, hash::Hash, sync::Arc};
use uuid::Uuid;

/// The access revisions of tenants.
pub(crate) struct AccessRevisions(pub(crate) Pool);

impl AccessRevisions {
    async fn read(&self, tenants: &[TenantId]) -> Result<HashMap<TenantId, Revision>, StoreError> {
        const SQL: &str = "SELECT tenant_id, access_revision FROM tenant WHERE tenant_id = ANY($1)";
        let asked: Vec<Uuid> = tenants.iter().map(|tenant| tenant.uuid()).collect();
        let rows = read(&self.0, SQL, &[&asked]).await?;
        rows.iter().map(|row| Ok((row.id("tenant_id")?, row.revision("access_revision")?))).collect()
    }
}

/// The revisions behind the lanes of workloads in environments.
pub(crate) struct DeploymentPulses(pub(crate) Pool);

/// Tenant, workload and environment.
pub(crate) type PulseKey = (Uuid, Uuid, String);

impl DeploymentPulses {
    async fn read(&self, places: &[PulseKey]) -> Result<HashMap<PulseKey, DeploymentPulse>, StoreError> {
        const SQL: &str = "SELECT tenant_id, workload_id, environment, deployment.revision, tenant.access_revision
            FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS asked (tenant_id, workload_id, environment)
            JOIN deployment USING (tenant_id, workload_id, environment) JOIN tenant USING (tenant_id)";
        const ONE: &str = "SELECT tenant_id, workload_id, environment, deployment.revision, tenant.access_revision
            FROM deployment JOIN tenant USING (tenant_id)
            WHERE tenant_id = $1 AND workload_id = $2 AND environment = $3";
        let rows = if let [(tenant, workload, environment)] = places {
            let params: [Param<'_>; 3] = [tenant, workload, environment];
            read(&self.0, ONE, &params).await?
        } else {
            let tenants: Vec<Uuid> = places.iter().map(|(tenant, _, _)| *tenant).collect();
            let workloads: Vec<Uuid> = places.iter().map(|(_, workload, _)| *workload).collect();
            let environments: Vec<&str> = places.iter().map(|(_, _, environment)| environment.as_str()).collect();
            read(&self.0, SQL, &[&tenants, &workloads, &environments]).await?
        };
        rows.iter()
            .map(|row| {
                let place = (row.column("tenant_id")?, row.column("workload_id")?, row.column("environment")?);
                let revisions = (row.revision("revision")?, row.revision("access_revision")?);
                Ok((place, DeploymentPulse { deployment: revisions.0, access: revisions.1 }))
            })
            .collect()
    }
}

/// A revision, or the fact that the shared statement failed: errors cannot be shared.
type Shared<T> = Result<Option<T>, Failed>;

/// The shared statement failed, and whether a later try may succeed.
#[derive(Clone, Copy)]
pub(crate) struct Failed(StoreFault);

#[async_trait]
impl Batch for AccessRevisions {
    type Item = TenantId;
    type Answer = Shared<Revision>;

    async fn together(&self, tenants: Vec<TenantId>) -> Vec<Shared<Revision>> {
        let found = self.read(&distinct(&tenants)).await;
        shared(&tenants, &found)
    }
}

#[async_trait]
impl Batch for DeploymentPulses {
    type Item = PulseKey;
    type Answer = Shared<DeploymentPulse>;

    async fn together(&self, places: Vec<PulseKey>) -> Vec<Shared<DeploymentPulse>> {
        let found = self.read(&distinct(&places)).await;
        shared(&places, &found)
    }
}

impl Gather<AccessRevisions> {
    /// The tenant's access revision, read after this call.
    pub(crate) async fn now(self: &Arc<Self>, tenant: TenantId) -> Result<Option<Revision>, StoreError> {
        match self.ask(tenant).await {
            Some(Ok(revision)) => Ok(revision),
            // Whoever asks again gets an error of its own, which says what is wrong.
            Some(Err(Failed(StoreFault::Broken))) => Ok(self.batch.read(&[tenant]).await?.remove(&tenant)),
            // To ask again now would be to wait twice.
            Some(Err(Failed(StoreFault::Unavailable))) | None => Err(unsettled()),
        }
    }
}

impl Gather<DeploymentPulses> {
    /// The revisions of a place, read after this call.
    pub(crate) async fn now(self: &Arc<Self>, place: PulseKey) -> Result<Option<DeploymentPulse>, StoreError> {
        match self.ask(place.clone()).await {
            Some(Ok(pulse)) => Ok(pulse),
            Some(Err(Failed(StoreFault::Broken))) => {
                Ok(self.batch.read(std::slice::from_ref(&place)).await?.remove(&place))
            }
            Some(Err(Failed(StoreFault::Unavailable))) | None => Err(unsettled()),
        }
    }
}

fn distinct<K: Clone + PartialEq>(keys: &[K]) -> Vec<K> {
    let mut distinct: Vec<K> = Vec::new();
    for key in keys {
        if !distinct.contains(key) {
            distinct.push(key.clone());
        }
    }
    distinct
}

fn shared<K: Eq + Hash, T: Clone>(keys: &[K], found: &Result<HashMap<K, T>, StoreError>) -> Vec<Shared<T>> {
    keys.iter()
        .map(|key| found.as_ref().map(|found| found.get(key).cloned()).map_err(|error| Failed(error.fault)))
        .collect()
}
