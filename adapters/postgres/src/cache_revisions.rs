//! The revisions with which caches are validated: the access revision of a tenant, and the revision of a
//! deployment.

use crate::{
    batch_load::BatchLoader,
    database::{StatementPool, read},
    guarded_commit::{Input, Query},
};
use async_trait::async_trait;
use fairway_domain::{
    id::TenantId,
    release::ports::DeploymentAccessRevisions,
    store::{Revision, StoreError},
};
use std::collections::HashMap;
use uuid::Uuid;

/// Loads the access revisions of tenants.
pub(crate) struct AccessRevisionLoader(pub(crate) StatementPool);

#[async_trait]
impl BatchLoader for AccessRevisionLoader {
    type Key = TenantId;
    type Value = Revision;
    const LABEL: &'static str = "access revisions";

    async fn load_batch(&self, tenants: &[TenantId]) -> Result<HashMap<TenantId, Revision>, StoreError> {
        static LOAD_ACCESS_REVISIONS: Query =
            Query::new("SELECT tenant_id, access_revision FROM input JOIN tenant USING (tenant_id)");
        let input = Input::many().with_column("tenant_id", tenants.iter().map(|tenant| tenant.uuid()));
        let rows = read(&self.0, LOAD_ACCESS_REVISIONS.text(&input)?, &input.params()).await?;
        rows.iter().map(|row| Ok((row.id("tenant_id")?, row.revision("access_revision")?))).collect()
    }
}

/// Loads the revisions of deployments, with the access revisions of their tenants.
pub(crate) struct DeploymentRevisionLoader(pub(crate) StatementPool);

/// The key of a deployment: tenant, workload and environment.
pub(crate) type DeploymentKey = (Uuid, Uuid, String);

#[async_trait]
impl BatchLoader for DeploymentRevisionLoader {
    type Key = DeploymentKey;
    type Value = DeploymentAccessRevisions;
    const LABEL: &'static str = "revisions of deployments";

    async fn load_batch(
        &self,
        keys: &[DeploymentKey],
    ) -> Result<HashMap<DeploymentKey, DeploymentAccessRevisions>, StoreError> {
        static LOAD_REVISIONS: Query = Query::new(
            "SELECT tenant_id, workload_id, environment, deployment.revision, tenant.access_revision
            FROM input JOIN deployment USING (tenant_id, workload_id, environment) JOIN tenant USING (tenant_id)",
        );
        let input = Input::many()
            .with_column("tenant_id", keys.iter().map(|(tenant, _, _)| *tenant))
            .with_column("workload_id", keys.iter().map(|(_, workload, _)| *workload))
            .with_column("environment", keys.iter().map(|(_, _, environment)| environment.as_str()));
        let rows = read(&self.0, LOAD_REVISIONS.text(&input)?, &input.params()).await?;
        rows.iter()
            .map(|row| {
                let key = (row.column("tenant_id")?, row.column("workload_id")?, row.column("environment")?);
                let revisions = (row.revision("revision")?, row.revision("access_revision")?);
                Ok((key, DeploymentAccessRevisions { deployment: revisions.0, access: revisions.1 }))
            })
            .collect()
    }
}
