//! Batch loads of releases.

use super::rows::{self, DEPLOYMENT_COLUMNS, RELEASE_COLUMNS, release_with_deployment};
use crate::{
    batch_load::BatchLoader,
    database::read,
    guarded::{Input, Query},
    row::RowExt,
    schema::release,
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _,
    dsl::{self, auto_type},
};
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
        let input = Input::many().with_all("tenant_id", tenants).with_all("release_id", ids);
        let rows = read(&self.0, LOAD.text(&input)?, &input.params()).await?;
        rows.iter()
            .map(|row| {
                let found = release_with_deployment(row)?;
                Ok(((row.column("tenant_id")?, found.release.release_id.uuid()), found))
            })
            .collect()
    }
}

/// Releases of all tenants in the order of their keys, after one of them: the pages of a background task.
#[auto_type(no_type_alias)]
pub(crate) fn releases_after(after: Option<TenantRelease>, most: u32) -> _ {
    let (tenant, release): (Uuid, Uuid) = key_of(after);
    let limit: i64 = i64::from(most);
    let is_after: dsl::Or<
        dsl::Gt<release::tenant_id, Uuid>,
        dsl::And<dsl::Eq<release::tenant_id, Uuid>, dsl::Gt<release::release_id, Uuid>>,
    > = release::tenant_id.gt(tenant).or(release::tenant_id.eq(tenant).and(release::release_id.gt(release)));
    release::table
        .filter(is_after)
        .order((release::tenant_id, release::release_id))
        .limit(limit)
        .select((release::tenant_id, release::release_id))
}

fn key_of(after: Option<TenantRelease>) -> (Uuid, Uuid) {
    after.map_or((Uuid::nil(), Uuid::nil()), |last| (last.tenant.uuid(), last.release.uuid()))
}

pub(crate) fn tenant_release((tenant, release): (Uuid, Uuid)) -> TenantRelease {
    TenantRelease { tenant: tenant.into(), release: release.into() }
}
