//! Batch loads of releases.

use super::rows::{self, DEPLOYMENT_COLUMNS, RELEASE_COLUMNS, release_with_deployment};
use crate::{
    batch_load::BatchLoader,
    database::{Database, read},
    row::RowExt,
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    release::ports::{ReleaseWithDeployment, TenantRelease},
    store::StoreError,
};
use std::collections::HashMap;
use uuid::Uuid;

/// Loads releases with their bindings, references, approvals and deployment, by tenant and identifier.
pub(crate) struct ReleaseLoader(pub(crate) Pool);

#[async_trait]
impl BatchLoader for ReleaseLoader {
    type Key = (Uuid, Uuid);
    type Value = ReleaseWithDeployment;
    const LABEL: &'static str = "releases";

    async fn load_batch(
        &self,
        keys: &[(Uuid, Uuid)],
    ) -> Result<HashMap<(Uuid, Uuid), ReleaseWithDeployment>, StoreError> {
        let sql = format!(
            "SELECT tenant_id, {RELEASE_COLUMNS}, {DEPLOYMENT_COLUMNS}, {}, {}, {}
             FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant_id, release_id)
             JOIN release USING (tenant_id, release_id) JOIN deployment USING (tenant_id, workload_id, environment)",
            rows::BINDINGS,
            rows::REFERENCES,
            rows::APPROVALS
        );
        let (tenants, ids): (Vec<Uuid>, Vec<Uuid>) = keys.iter().copied().unzip();
        let rows = read(&self.0, &sql, &[&tenants, &ids]).await?;
        rows.iter()
            .map(|row| {
                let found = release_with_deployment(row)?;
                Ok(((row.column("tenant_id")?, found.release.release_id.uuid()), found))
            })
            .collect()
    }
}

impl Database {
    /// Runs a statement for releases after `$1` (tenant) and `$2` (release), at most `$3` rows.
    pub(crate) async fn releases_after(
        &self,
        sql: &str,
        after: Option<TenantRelease>,
        most: u32,
    ) -> Result<Vec<TenantRelease>, StoreError> {
        let (tenant, release) =
            after.map_or((Uuid::nil(), Uuid::nil()), |last| (last.tenant.uuid(), last.release.uuid()));
        let rows = self.read(sql, &[&tenant, &release, &i64::from(most)]).await?;
        rows.iter()
            .map(|row| Ok(TenantRelease { tenant: row.id("tenant_id")?, release: row.id("release_id")? }))
            .collect()
    }
}
