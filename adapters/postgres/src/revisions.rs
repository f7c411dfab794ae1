//! Revisions that validate caches: the access revision of a tenant, and the revision of a deployment.

use crate::{
    batch_load::BatchLoader,
    database::{Param, read},
    row::RowExt,
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    id::TenantId,
    release::ports::Revisions,
    store::{Revision, StoreError},
};
use std::collections::HashMap;
use uuid::Uuid;

/// The access revisions of tenants.
pub(crate) struct AccessRevisionLoader(pub(crate) Pool);

#[async_trait]
impl BatchLoader for AccessRevisionLoader {
    type Key = TenantId;
    type Value = Revision;
    const LABEL: &'static str = "access revisions";

    async fn load_batch(&self, tenants: &[TenantId]) -> Result<HashMap<TenantId, Revision>, StoreError> {
        const SQL: &str = "SELECT tenant_id, access_revision FROM tenant WHERE tenant_id = ANY($1)";
        let asked: Vec<Uuid> = tenants.iter().map(|tenant| tenant.uuid()).collect();
        let rows = read(&self.0, SQL, &[&asked]).await?;
        rows.iter().map(|row| Ok((row.id("tenant_id")?, row.revision("access_revision")?))).collect()
    }
}

/// The revisions of deployments, by tenant, workload and environment, with the tenants' access revisions.
pub(crate) struct DeploymentRevisionLoader(pub(crate) Pool);

/// Tenant, workload and environment.
pub(crate) type DeploymentKey = (Uuid, Uuid, String);

#[async_trait]
impl BatchLoader for DeploymentRevisionLoader {
    type Key = DeploymentKey;
    type Value = Revisions;
    const LABEL: &'static str = "revisions of deployments";

    async fn load_batch(&self, places: &[DeploymentKey]) -> Result<HashMap<DeploymentKey, Revisions>, StoreError> {
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
                Ok((place, Revisions { deployment: revisions.0, access: revisions.1 }))
            })
            .collect()
    }
}
