//! Loads releases by key, and pages of releases for background tasks.

use super::rows::{self, DEPLOYMENT_COLUMNS, RELEASE_COLUMNS, decode_release_with_deployment};
use crate::{
    batch_load::BatchLoader,
    database::{Database, StatementPool, read},
    guarded_commit::{Input, Query},
};
use async_trait::async_trait;
use fairway_domain::{
    release::ports::{ReleaseWithDeployment, TenantReleaseKey},
    store::StoreError,
};
use std::collections::HashMap;
use uuid::Uuid;

/// Loads releases with their bindings, references, approvals and deployment, by tenant and identifier.
pub(crate) struct ReleaseLoader(pub(crate) StatementPool);

#[async_trait]
impl BatchLoader for ReleaseLoader {
    type Key = (Uuid, Uuid);
    type Value = ReleaseWithDeployment;
    const LABEL: &'static str = "releases";

    async fn load_batch(
        &self,
        keys: &[(Uuid, Uuid)],
    ) -> Result<HashMap<(Uuid, Uuid), ReleaseWithDeployment>, StoreError> {
        static LOAD: Query = Query::of_parts(&[
            "SELECT tenant_id, ",
            RELEASE_COLUMNS,
            ", ",
            DEPLOYMENT_COLUMNS,
            ", ",
            rows::BINDINGS,
            ", ",
            rows::REFERENCES,
            ", ",
            rows::APPROVALS,
            " FROM input JOIN release USING (tenant_id, release_id)
                JOIN deployment USING (tenant_id, workload_id, environment)",
        ]);
        let (tenants, ids): (Vec<Uuid>, Vec<Uuid>) = keys.iter().copied().unzip();
        let input = Input::many().with_column("tenant_id", tenants).with_column("release_id", ids);
        let rows = read(&self.0, LOAD.text(&input)?, &input.params()).await?;
        rows.iter()
            .map(|row| {
                let found = decode_release_with_deployment(row)?;
                Ok(((row.column("tenant_id")?, found.release.release_id.uuid()), found))
            })
            .collect()
    }
}

impl Database {
    /// Reads a page of releases of all tenants, for a background task. `query` compares the keys as records, so
    /// that one index range serves it. The query is text, so that it runs on a point connection: without
    /// statistics, the plan of a typed query would read the whole partial index and sort it.
    pub(crate) async fn releases_after(
        &self,
        query: &Query,
        after: Option<TenantReleaseKey>,
        limit: u32,
    ) -> Result<Vec<TenantReleaseKey>, StoreError> {
        let (tenant, release) =
            after.map_or((Uuid::nil(), Uuid::nil()), |last| (last.tenant.uuid(), last.release.uuid()));
        let input =
            Input::one().with("after_tenant", tenant).with("after_release", release).with("max_rows", i64::from(limit));
        let rows = self.fetch(query, input).await?;
        rows.iter()
            .map(|row| Ok(TenantReleaseKey { tenant: row.id("tenant_id")?, release: row.id("release_id")? }))
            .collect()
    }
}
