//! The artifact index: the versions and objects that maintenance of the artifact store reads.

use crate::{
    database::Database,
    row::{RowExt, decode},
};
use async_trait::async_trait;
use fairway_domain::{
    asset::{
        artifact_index::{ArtifactIndex, VersionKey, VersionRow},
        ports::{ArtifactPath, StoredObject},
    },
    id::AssetVersionId,
    store::StoreError,
    tenant::TenantScope,
};
use time::OffsetDateTime;
use tokio_postgres::Row;
use uuid::Uuid;

/// Interval between two sweeps of the artifact store, across all processes.
const SWEEP_INTERVAL: &str = "6 hours";

fn version_key(row: &Row) -> Result<VersionKey, StoreError> {
    Ok(VersionKey { tenant_id: row.id("tenant_id")?, asset_version_id: row.id("asset_version_id")? })
}

#[async_trait]
impl ArtifactIndex for Database {
    async fn versions_after(&self, behind: Option<VersionKey>, most: u32) -> Result<Vec<VersionKey>, StoreError> {
        const SQL: &str = "SELECT tenant_id, asset_version_id FROM asset_version
            WHERE (tenant_id, asset_version_id) > ($1, $2) ORDER BY tenant_id, asset_version_id LIMIT $3";
        // No row has the nil UUID, so it sorts before the first row.
        let (tenant, version) =
            behind.map_or((Uuid::nil(), Uuid::nil()), |seen| (seen.tenant_id.uuid(), seen.asset_version_id.uuid()));
        self.read(SQL, &[&tenant, &version, &i64::from(most)]).await?.iter().map(version_key).collect()
    }

    async fn find_row(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<VersionRow>, StoreError> {
        const SQL: &str = "SELECT asset_id, content, artifact_ref, checksum FROM asset_version
            WHERE tenant_id = $1 AND asset_version_id = $2";
        let row = self.read_one(SQL, &[&scope.tenant().uuid(), &version.uuid()]).await?;
        row.map(|row| {
            Ok(VersionRow {
                asset_id: row.column("asset_id")?,
                content: row.column("content")?,
                artifact_ref: row.column("artifact_ref")?,
                checksum: row.column("checksum")?,
            })
        })
        .transpose()
    }

    async fn installation_id(&self) -> Result<Uuid, StoreError> {
        let row = self.read_one("SELECT installation_id FROM installation", &[]).await?;
        decode("installation", row)?.column("installation_id")
    }

    async fn find_orphans(&self, objects: Vec<StoredObject>) -> Result<Vec<StoredObject>, StoreError> {
        // Finds versions by asset and version, which an index supports without a tenant: object paths contain no
        // tenant.
        const SQL: &str = "SELECT place
            FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) WITH ORDINALITY
                AS stored (asset_id, asset_version_id, put_at, place)
            WHERE put_at < fairway_now() - fairway_orphan_age() AND NOT EXISTS (
                SELECT FROM asset_version
                WHERE asset_version.asset_version_id = stored.asset_version_id
                    AND asset_version.asset_id = stored.asset_id)";
        let ours: Vec<(Uuid, Uuid, OffsetDateTime, StoredObject)> = objects
            .into_iter()
            .filter_map(|object| {
                let (asset, version) = ArtifactPath::parse_version(&object.path)?;
                Some((asset.uuid(), version.uuid(), object.put_at.to_datetime(), object))
            })
            .collect();
        let assets: Vec<Uuid> = ours.iter().map(|stored| stored.0).collect();
        let versions: Vec<Uuid> = ours.iter().map(|stored| stored.1).collect();
        let moments: Vec<OffsetDateTime> = ours.iter().map(|stored| stored.2).collect();
        let rows = self.read(SQL, &[&assets, &versions, &moments]).await?;
        let mut waste = Vec::new();
        for row in rows {
            let place = usize::try_from(row.column::<i64>("place")?).unwrap_or(0);
            waste.extend(place.checked_sub(1).and_then(|index| ours.get(index)).map(|stored| stored.3.clone()));
        }
        Ok(waste)
    }

    async fn claim_sweep(&self) -> Result<bool, StoreError> {
        let sql = format!(
            "UPDATE chore SET due_at = fairway_now() + interval '{SWEEP_INTERVAL}'
             WHERE name = 'sweep_artifacts' AND due_at <= fairway_now() RETURNING name"
        );
        Ok(!self.write_idempotent(&sql, &[]).await?.is_empty())
    }
}
