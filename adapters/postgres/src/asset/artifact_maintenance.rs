//! Queries for maintenance of the artifact store: keys of versions, orphaned objects, and the claim of a sweep.

use crate::{
    database::Database,
    guarded_commit::{Input, Query},
    row::require_decoded,
    schema::{asset_version, installation},
};
use async_trait::async_trait;
use diesel::{
    ExpressionMethods as _, IntoSql as _, QueryDsl as _,
    sql_types::{Record, Uuid as SqlUuid},
};
use fairway_domain::{
    asset::{
        artifact_maintenance::{ArtifactMaintenanceStore, VersionKey, VersionRow},
        artifact_store::{ArtifactPath, StoredObject},
    },
    id::AssetVersionId,
    store::StoreError,
    tenant::TenantScope,
};
use std::time::Duration;
use time::OffsetDateTime;
use uuid::Uuid;

/// Time between two sweeps of the artifact store, across all processes.
const SWEEP_INTERVAL: Duration = Duration::from_hours(6);

#[async_trait]
impl ArtifactMaintenanceStore for Database {
    async fn versions_after(&self, after: Option<VersionKey>, limit: u32) -> Result<Vec<VersionKey>, StoreError> {
        // Without a cursor the page starts after the nil UUID, which no row has and which sorts before all rows.
        let (tenant, version) =
            after.map_or((Uuid::nil(), Uuid::nil()), |key| (key.tenant_id.uuid(), key.asset_version_id.uuid()));
        let next = || {
            let key =
                (asset_version::tenant_id, asset_version::asset_version_id).into_sql::<Record<(SqlUuid, SqlUuid)>>();
            asset_version::table
                .filter(key.gt((tenant, version)))
                .order((asset_version::tenant_id, asset_version::asset_version_id))
                .limit(i64::from(limit))
                .select((asset_version::tenant_id, asset_version::asset_version_id))
        };
        let found: Vec<(Uuid, Uuid)> = self.load("keys of versions", next).await?;
        let key =
            |(tenant, version): (Uuid, Uuid)| VersionKey { tenant_id: tenant.into(), asset_version_id: version.into() };
        Ok(found.into_iter().map(key).collect())
    }

    async fn find_row(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<VersionRow>, StoreError> {
        let key = (scope.tenant().uuid(), version.uuid());
        let find = || {
            asset_version::table.find(key).select((
                asset_version::asset_id,
                asset_version::content,
                asset_version::artifact_ref,
                asset_version::checksum,
            ))
        };
        let found: Option<(Uuid, String, String, String)> = self.first("stored version", find).await?;
        Ok(found.map(|(asset_id, content, artifact_ref, checksum)| VersionRow {
            asset_id,
            content,
            artifact_ref,
            checksum,
        }))
    }

    async fn installation_id(&self) -> Result<Uuid, StoreError> {
        let found = self.first("installation", || installation::table.select(installation::installation_id)).await?;
        require_decoded("installation", found)
    }

    async fn find_orphans(&self, objects: Vec<StoredObject>) -> Result<Vec<StoredObject>, StoreError> {
        // The query compares asset and version only, because object paths contain no tenant. An index over these
        // two columns serves it.
        static FIND: Query = Query::new(
            "SELECT object_index FROM input
            WHERE put_at < fairway_now() - fairway_orphan_age() AND NOT EXISTS (
                SELECT FROM asset_version
                WHERE asset_version.asset_version_id = input.asset_version_id
                    AND asset_version.asset_id = input.asset_id)",
        );
        let version_objects: Vec<(Uuid, Uuid, OffsetDateTime, StoredObject)> = objects
            .into_iter()
            .filter_map(|object| {
                let (asset, version) = ArtifactPath::parse_version(&object.path)?;
                Some((asset.uuid(), version.uuid(), object.put_at.to_datetime(), object))
            })
            .collect();
        let input = Input::many()
            .with_column("asset_id", version_objects.iter().map(|stored| stored.0))
            .with_column("asset_version_id", version_objects.iter().map(|stored| stored.1))
            .with_column("put_at", version_objects.iter().map(|stored| stored.2))
            .with_column("object_index", (0..).take(version_objects.len()).collect::<Vec<i64>>());
        let rows = self.fetch(&FIND, input).await?;
        let mut orphans = Vec::new();
        for row in rows {
            let index = usize::try_from(row.column::<i64>("object_index")?).ok();
            orphans.extend(index.and_then(|index| version_objects.get(index)).map(|stored| stored.3.clone()));
        }
        Ok(orphans)
    }

    async fn claim_sweep(&self) -> Result<bool, StoreError> {
        self.claim_scheduled_job("sweep_artifacts", SWEEP_INTERVAL).await
    }
}
