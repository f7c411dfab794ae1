//! Assets and versions.

mod artifact_index;
mod grant;
mod impact;
mod list;
mod route;
mod versions;

use crate::{
    batch_load::BatchLoader,
    commit_tail::{CommitParams, commit_tail},
    database::{Database, Param, STATEMENT_BYTES, read},
    group_commit::BatchCommitter as _,
    list_permits::PAGE_BYTES,
    row::{RowExt, decode},
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    asset::{
        Asset, AssetRecord, AssetVersion, Lifecycle, NewVersion, OwnershipTier, VersionLabel,
        kind::AssetKind,
        ports::{AssetFilter, AssetStore, BlockingRelease, VersionStore},
    },
    id::{AssetId, AssetVersionId},
    idempotency::KeyedOutcome,
    release::StateName,
    slug::Slug,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
};
pub(crate) use route::RouteStatusLoader;
use std::collections::HashMap;
use tokio_postgres::Row;
use uuid::Uuid;
pub(crate) use versions::VersionCommitter;
use versions::{
    COUNTED_LABEL, NOTE_JOIN, PendingVersion, VersionRow, single_version, single_version_columns, stored_version,
    version,
};

/// Loads assets by tenant and identifier.
pub(crate) struct AssetLoader(pub(crate) Pool);

#[async_trait]
impl BatchLoader for AssetLoader {
    type Key = (Uuid, Uuid);
    type Value = Asset;
    const LABEL: &'static str = "assets";

    async fn load_batch(&self, keys: &[(Uuid, Uuid)]) -> Result<HashMap<(Uuid, Uuid), Asset>, StoreError> {
        let sql = format!(
            "SELECT tenant_id, {ASSET_COLUMNS} FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant_id, asset_id)
             JOIN asset USING (tenant_id, asset_id)"
        );
        let (tenants, ids): (Vec<Uuid>, Vec<Uuid>) = keys.iter().copied().unzip();
        let rows = read(&self.0, &sql, &[&tenants, &ids]).await?;
        rows.iter()
            .map(|row| {
                let found = asset(row)?;
                Ok(((row.column("tenant_id")?, found.asset_id.uuid()), found))
            })
            .collect()
    }
}

const ASSET_COLUMNS: &str = "asset.asset_id, asset.slug, asset.asset_kind, asset.owner_ref, asset.lifecycle_state, \
    asset.ownership_tier, asset.workspace_id, asset.namespace_id, asset.revision, asset.created_at, asset.created_by";

fn asset(row: &Row) -> Result<Asset, StoreError> {
    Ok(Asset::restore(AssetRecord {
        asset_id: row.id("asset_id")?,
        slug: row.slug("slug")?,
        kind: row.parsed("asset_kind", AssetKind::parse)?,
        owner_ref: row.owner("owner_ref")?,
        lifecycle: row.parsed("lifecycle_state", Lifecycle::parse)?,
        ownership_tier: row.parsed("ownership_tier", OwnershipTier::parse)?,
        workspace_id: row.id("workspace_id")?,
        namespace_id: row.id("namespace_id")?,
        created_at: row.timestamp("created_at")?,
        created_by: row.actor("created_by")?,
        revision: row.revision("revision")?,
    }))
}

const INSERT_ASSET: &str = "INSERT INTO asset (tenant_id, asset_id, slug, asset_kind, owner_ref, lifecycle_state, \
    ownership_tier, workspace_id, namespace_id, last_ordinal, last_label, revision, created_at, created_by)";

/// Loads whether versions contain references, by tenant and version.
pub(crate) struct ReferenceLoader(pub(crate) Pool);

#[async_trait]
impl BatchLoader for ReferenceLoader {
    type Key = (Uuid, Uuid);
    type Value = ();
    const LABEL: &'static str = "version references";

    async fn load_batch(&self, keys: &[(Uuid, Uuid)]) -> Result<HashMap<(Uuid, Uuid), ()>, StoreError> {
        // A version with references has one at position 0.
        const SQL: &str = "SELECT tenant_id, asset_version_id
            FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant_id, asset_version_id)
            JOIN asset_reference USING (tenant_id, asset_version_id) WHERE position = 0";
        let (tenants, versions): (Vec<Uuid>, Vec<Uuid>) = keys.iter().copied().unzip();
        let rows = read(&self.0, SQL, &[&tenants, &versions]).await?;
        rows.iter().map(|row| Ok(((row.column("tenant_id")?, row.column("asset_version_id")?), ()))).collect()
    }
}

#[async_trait]
impl AssetStore for Database {
    async fn find(&self, scope: TenantScope, id: AssetId) -> Result<Option<Asset>, StoreError> {
        self.assets.load((scope.tenant().uuid(), id.uuid())).await
    }

    async fn list(
        &self,
        scope: TenantScope,
        filter: &AssetFilter,
        page: PageRequest,
    ) -> Result<Page<Asset>, StoreError> {
        self.fetch_page(list::asset_list(scope, filter), page, asset).await
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let sql = format!(
            "WITH made AS (
                {INSERT_ASSET} VALUES ($1, $13, $14, $15, $16, $17, $18, $19, $20, 0, 0, $21, $22, $23) RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM made), {})",
            commit_tail!()
        );
        let ChangeRecord { next, decided_on: _, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, key);
        let row = AssetRow::of(&next);
        self.commit(&sql, &tail.with(&row.params())).await.map(|_| ())
    }

    async fn commit_lifecycle(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        const MOVE: &str = concat!(
            "WITH moved AS (
                UPDATE asset SET lifecycle_state = $16, revision = $15
                WHERE tenant_id = $1 AND asset_id = $13 AND revision = $14
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM moved), ",
            commit_tail!(),
            ")"
        );
        const ARCHIVE: &str =
            concat!("SELECT fairway_commit(fairway_archive_asset($1, $13, $14, $15), ", commit_tail!(), ")");
        let ChangeRecord { next, decided_on, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, key);
        let (id, seen) = (next.asset_id.uuid(), decided_on.unwrap_or(next.revision).get());
        let (revision, state) = (next.revision.get(), next.lifecycle.as_str());
        match next.lifecycle {
            Lifecycle::Archived => self.commit(ARCHIVE, &tail.with(&[&id, &seen, &revision])).await,
            Lifecycle::Draft | Lifecycle::Active | Lifecycle::Retired => {
                self.commit(MOVE, &tail.with(&[&id, &seen, &revision, &state])).await
            }
        }
        .map(|_| ())
    }

    async fn blocking_releases(
        &self,
        scope: TenantScope,
        id: AssetId,
        limit: u32,
    ) -> Result<Vec<BlockingRelease>, StoreError> {
        const SQL: &str = "SELECT DISTINCT release_id, state, workload_id, workspace_id, namespace_id, environment
            FROM asset_version JOIN release_binding USING (tenant_id, asset_version_id)
            JOIN release USING (tenant_id, release_id) JOIN workspace USING (tenant_id, workspace_id)
            WHERE tenant_id = $1 AND asset_id = $2 AND state IN ('draft', 'review_ready', 'approved', 'active')
            ORDER BY release_id DESC LIMIT $3";
        let rows = self.read_list(PAGE_BYTES, SQL, &[&scope.tenant().uuid(), &id.uuid(), &i64::from(limit)]).await?;
        let blocking = |row: &Row| {
            Ok(BlockingRelease {
                release_id: row.id("release_id")?,
                state: row.parsed("state", StateName::parse)?,
                workload_id: row.id("workload_id")?,
                workspace_id: row.id("workspace_id")?,
                namespace_id: row.id("namespace_id")?,
                environment: row.slug("environment")?,
            })
        };
        rows.iter().map(blocking).collect()
    }

    async fn find_id(&self, scope: TenantScope, slug: &Slug) -> Result<Option<AssetId>, StoreError> {
        const SQL: &str = "SELECT asset_id FROM asset WHERE tenant_id = $1 AND slug = $2";
        let found = self.read_one(SQL, &[&scope.tenant().uuid(), &slug.as_str()]).await?;
        found.map(|row| row.id("asset_id")).transpose()
    }

    async fn find_by_slug(
        &self,
        scope: TenantScope,
        slug: &Slug,
        label: Option<&VersionLabel>,
    ) -> Result<Option<(Asset, Option<AssetVersion>)>, StoreError> {
        let find = format!("SELECT {ASSET_COLUMNS} FROM asset WHERE tenant_id = $1 AND slug = $2");
        let tenant = scope.tenant().uuid();
        let Some(found) = self.read_one(&find, &[&tenant, &slug.as_str()]).await? else { return Ok(None) };
        let found = asset(&found)?;
        let id = found.asset_id.uuid();
        let columns = single_version_columns();
        let row = match label {
            Some(label) => {
                let sql = format!(
                    "SELECT {columns} FROM asset_version AS version {NOTE_JOIN}
                     WHERE tenant_id = $1 AND asset_id = $2 AND version_label = $3"
                );
                self.read_one(&sql, &[&tenant, &id, &label.as_str()]).await?
            }
            None => {
                let sql = format!(
                    "SELECT {columns} FROM asset_version AS version {NOTE_JOIN} WHERE tenant_id = $1 AND asset_id = $2
                     ORDER BY ordinal DESC LIMIT 1"
                );
                self.read_one(&sql, &[&tenant, &id]).await?
            }
        };
        let version = match row {
            Some(row) => Some(single_version(self, scope, &row).await?),
            None => None,
        };
        Ok(Some((found, version)))
    }
}

#[async_trait]
impl VersionStore for Database {
    async fn commit_version(
        &self,
        scope: TenantScope,
        change: Change<NewVersion>,
        key: Option<&KeyedOutcome>,
    ) -> Result<AssetVersion, CommitError> {
        let adding = PendingVersion { scope, change };
        if key.is_none() {
            return self.new_versions.commit(adding).await;
        }
        let bytes = versions::VersionCommitter::payload_bytes(&adding);
        let _turn = self.new_versions.acquire_large_permit(bytes).await?;
        let alone = versions::insert_version(&self.new_versions.operation.committer.0, scope, &adding.change, key);
        self.in_flight().track(STATEMENT_BYTES.scope(bytes, alone)).await
    }

    async fn commit_flow(
        &self,
        scope: TenantScope,
        change: Change<(Asset, NewVersion)>,
        key: Option<&KeyedOutcome>,
    ) -> Result<AssetVersion, CommitError> {
        let ChangeRecord { next: (new_asset, new_version), decided_on: _, fact } = change.into_record();
        let bytes = versions::payload_bytes(&new_version);
        let _turn = self.new_versions.acquire_large_permit(bytes).await?;
        let tail = CommitParams::new(scope, &fact, key);
        let parent = AssetRow::of(&new_asset);
        let child = VersionRow::of(&new_version);
        let (beside, more) = child.attachment_ctes("$24", 32);
        let sql = format!(
            "WITH parent AS (
                {INSERT_ASSET} VALUES ($1, $13, $14, $15, $16, $17, $18, $19, $20, 1,
                    CASE WHEN $26::text IS NULL THEN 1
                         WHEN $26 ~ '{COUNTED_LABEL}' THEN substr($26, 2)::bigint ELSE 0 END,
                    $21, $22, $23)
                RETURNING coalesce($26, 'v1') AS label
             ),
             made AS (
                INSERT INTO asset_version (tenant_id, asset_version_id, asset_id, version_label, ordinal, content,
                    artifact_ref, checksum, created_at, created_by)
                SELECT $1, $24, $25, label, 1, $27, $28, $29, $30, $31 FROM parent
                RETURNING version_label
             ),
             {beside}
             done AS (SELECT fairway_commit((SELECT count(*) = 1 FROM made), {}))
             SELECT version_label FROM done LEFT JOIN made ON true",
            commit_tail!()
        );
        let mut own = parent.params();
        own.extend(child.params());
        own.extend(more);
        let rows = STATEMENT_BYTES.scope(bytes, self.commit(&sql, &tail.with(&own))).await?;
        stored_version(&new_version, decode("version_label", rows.first())?)
    }

    async fn find_version(
        &self,
        scope: TenantScope,
        id: AssetVersionId,
    ) -> Result<Option<(Asset, AssetVersion)>, StoreError> {
        let sql = format!(
            "SELECT {}, {ASSET_COLUMNS} FROM asset_version AS version {NOTE_JOIN} JOIN asset USING (tenant_id, asset_id)
             WHERE tenant_id = $1 AND asset_version_id = $2",
            single_version_columns(),
        );
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &id.uuid()]).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some((asset(&row)?, single_version(self, scope, &row).await?)))
    }

    async fn list_versions(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: PageRequest,
    ) -> Result<Page<AssetVersion>, StoreError> {
        self.fetch_page(list::version_list(scope, asset), page, version).await
    }

    async fn is_route_effective(
        &self,
        scope: TenantScope,
        asset: AssetId,
        version: AssetVersionId,
        route_id: &str,
    ) -> Result<bool, StoreError> {
        let route = (scope.tenant().uuid(), asset.uuid(), version.uuid(), route_id.to_owned());
        Ok(self.routes.load(route).await?.unwrap_or(false))
    }

    async fn has_references(&self, scope: TenantScope, version: AssetVersionId) -> Result<bool, StoreError> {
        Ok(self.referring_versions.load((scope.tenant().uuid(), version.uuid())).await?.is_some())
    }

    async fn source_text(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<String>, StoreError> {
        versions::source_text(self, scope, version).await
    }
}

/// The values of `INSERT_ASSET` after the tenant, without the label counters, alive while the statement runs.
struct AssetRow<'a> {
    id: Uuid,
    slug: &'a str,
    kind: &'static str,
    owner: &'a str,
    state: &'static str,
    tier: &'static str,
    workspace: Uuid,
    namespace: Uuid,
    revision: i64,
    at: time::OffsetDateTime,
    by: String,
}

impl<'a> AssetRow<'a> {
    fn of(asset: &'a Asset) -> Self {
        Self {
            id: asset.asset_id.uuid(),
            slug: asset.slug.as_str(),
            kind: asset.kind.as_str(),
            owner: asset.owner_ref.as_str(),
            state: asset.lifecycle.as_str(),
            tier: asset.ownership_tier.as_str(),
            workspace: asset.workspace_id.uuid(),
            namespace: asset.namespace_id.uuid(),
            revision: asset.revision.get(),
            at: asset.created_at.to_datetime(),
            by: asset.created_by.to_string(),
        }
    }

    fn params(&self) -> Vec<Param<'_>> {
        vec![
            &self.id,
            &self.slug,
            &self.kind,
            &self.owner,
            &self.state,
            &self.tier,
            &self.workspace,
            &self.namespace,
            &self.revision,
            &self.at,
            &self.by,
        ]
    }
}
