//! Batch loads of releases.

use super::rows::{self, DEPLOYMENT_COLUMNS, RELEASE_COLUMNS, release_with_deployment};
use crate::{
    batch_load::BatchLoader,
    database::{Database, read},
    guarded::{Input, Query},
    joins::{UuidPair, database_now},
    row::RowExt,
    schema::release,
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use diesel::{ExpressionMethods as _, IntoSql as _, NullableExpressionMethods as _, QueryDsl as _};
use fairway_domain::{
    release::{
        StateName,
        ports::{ReleaseWithDeployment, TenantRelease},
    },
    rollout::RolloutStatus,
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

/// The releases of all tenants after a key, by key. The condition compares the keys as records, so that one range of an
/// index serves it.
#[diesel::dsl::auto_type(no_type_alias)]
fn keys_after(after: (Uuid, Uuid), limit: i64) -> _ {
    let key = (release::tenant_id, release::release_id);
    release::table
        .filter(key.into_sql::<UuidPair>().gt(after))
        .order((release::tenant_id, release::release_id))
        .limit(limit)
        .select((release::tenant_id, release::release_id))
}

fn key_of(after: Option<TenantRelease>) -> (Uuid, Uuid) {
    // No row has the nil UUID, so it sorts before the first row.
    after.map_or((Uuid::nil(), Uuid::nil()), |last| (last.tenant.uuid(), last.release.uuid()))
}

fn tenant_release((tenant, release): (Uuid, Uuid)) -> TenantRelease {
    TenantRelease { tenant: tenant.into(), release: release.into() }
}

/// Reads a page of the releases that hold lanes, of all tenants.
pub(super) async fn serving_after(
    database: &Database,
    after: Option<TenantRelease>,
    limit: u32,
) -> Result<Vec<TenantRelease>, StoreError> {
    let after = key_of(after);
    let serving = || keys_after(after, i64::from(limit)).filter(release::state.eq(StateName::Active.as_str()));
    let keys = database.load("serving releases", serving).await?;
    Ok(keys.into_iter().map(tenant_release).collect())
}

/// Reads a page of the releases whose rollout may advance, of all tenants.
pub(crate) async fn soaked_after(
    database: &Database,
    after: Option<TenantRelease>,
    limit: u32,
) -> Result<Vec<TenantRelease>, StoreError> {
    let after = key_of(after);
    let soaked = || {
        keys_after(after, i64::from(limit))
            .filter(release::rollout_status.eq(RolloutStatus::InProgress.as_str()))
            .filter(release::rollout_auto_advance.assume_not_null())
            .filter(release::soak_ends_at.le(database_now().nullable()))
    };
    let keys = database.load("soaked releases", soaked).await?;
    Ok(keys.into_iter().map(tenant_release).collect())
}
