//! The store of assets and their versions.

mod artifact_maintenance;
mod grant;
mod impact;
mod list;
mod route_status;
mod versions;

use crate::{
    batch_load::BatchLoader,
    database::{Database, StatementPool, TASK_STATEMENT_BYTES, read},
    group_commit::BatchCommitter as _,
    guarded_commit::{GuardedCommit, Input, Query},
    list_permits::MAX_PAGE_MEMORY_BYTES,
    row::{Row, require_decoded},
    schema,
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _, Queryable, Selectable, SelectableHelper as _,
    pg::Pg,
};
use fairway_domain::{
    access::{ActorRef, OwnerRef},
    asset::{
        Asset, AssetRecord, AssetVersion, Lifecycle, NewVersion, OwnershipTier, VersionLabel,
        kind::AssetKind,
        ports::{AssetFilter, AssetStore, BlockingRelease, VersionStore},
    },
    id::{AssetId, AssetVersionId, NamespaceId, WorkspaceId},
    idempotency::KeyedOutcome,
    release::StateName,
    slug::Slug,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
pub(crate) use route_status::RouteStatusLoader;
use std::collections::HashMap;
use time::OffsetDateTime;
use uuid::Uuid;
use versions::{CREATE_WITH_VERSION, PendingVersion, VersionSelector, decode_version, stored_version};
pub(crate) use versions::{INSERT_VERSIONS, VersionCommitter};

/// Loads assets by tenant and identifier.
pub(crate) struct AssetLoader(pub(crate) StatementPool);

#[async_trait]
impl BatchLoader for AssetLoader {
    type Key = (Uuid, Uuid);
    type Value = Asset;
    const LABEL: &'static str = "assets";

    async fn load_batch(&self, keys: &[(Uuid, Uuid)]) -> Result<HashMap<(Uuid, Uuid), Asset>, StoreError> {
        static LOAD_ASSETS: Query = Query::of_parts(&[
            "SELECT tenant_id, ",
            ASSET_COLUMNS,
            " FROM input JOIN asset USING (tenant_id, asset_id)",
        ]);
        let (tenants, ids): (Vec<Uuid>, Vec<Uuid>) = keys.iter().copied().unzip();
        let input = Input::many().with_column("tenant_id", tenants).with_column("asset_id", ids);
        let rows = read(&self.0, LOAD_ASSETS.text(&input)?, &input.params()).await?;
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

#[derive(Queryable, Selectable)]
#[diesel(table_name = schema::asset, check_for_backend(Pg))]
struct StoredAsset {
    asset_id: Uuid,
    slug: String,
    asset_kind: String,
    owner_ref: String,
    lifecycle_state: String,
    ownership_tier: String,
    workspace_id: Uuid,
    namespace_id: Uuid,
    revision: i64,
    created_at: OffsetDateTime,
    created_by: String,
}

impl StoredAsset {
    fn into_value(self) -> Result<Asset, StoreError> {
        Ok(Asset::restore(AssetRecord {
            asset_id: self.asset_id.into(),
            slug: require_decoded("slug", Slug::parse(&self.slug).ok())?,
            kind: require_decoded("asset_kind", AssetKind::parse(&self.asset_kind))?,
            owner_ref: require_decoded("owner_ref", OwnerRef::parse(&self.owner_ref).ok())?,
            lifecycle: require_decoded("lifecycle_state", Lifecycle::parse(&self.lifecycle_state))?,
            ownership_tier: require_decoded("ownership_tier", OwnershipTier::parse(&self.ownership_tier))?,
            workspace_id: self.workspace_id.into(),
            namespace_id: self.namespace_id.into(),
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
            revision: Revision::new(self.revision),
        }))
    }
}

/// Decodes an asset from a row with the columns [`ASSET_COLUMNS`].
fn asset(row: &Row) -> Result<Asset, StoreError> {
    let stored = StoredAsset {
        asset_id: row.column("asset_id")?,
        slug: row.column("slug")?,
        asset_kind: row.column("asset_kind")?,
        owner_ref: row.column("owner_ref")?,
        lifecycle_state: row.column("lifecycle_state")?,
        ownership_tier: row.column("ownership_tier")?,
        workspace_id: row.column("workspace_id")?,
        namespace_id: row.column("namespace_id")?,
        revision: row.column("revision")?,
        created_at: row.column("created_at")?,
        created_by: row.column("created_by")?,
    };
    stored.into_value()
}

fn add_asset_columns<'v>(input: Input<'v>, asset: &'v Asset) -> Input<'v> {
    input
        .with("asset_id", asset.asset_id.uuid())
        .with("slug", asset.slug.as_str())
        .with("asset_kind", asset.kind.as_str())
        .with("owner_ref", asset.owner_ref.as_str())
        .with("lifecycle_state", asset.lifecycle.as_str())
        .with("ownership_tier", asset.ownership_tier.as_str())
        .with("workspace_id", asset.workspace_id.uuid())
        .with("namespace_id", asset.namespace_id.uuid())
        .with("revision", asset.revision.get())
        .with("created_at", asset.created_at.to_datetime())
        .with("created_by", asset.created_by.to_string())
}

/// The CTE that inserts new assets. It follows the CTE `new_asset`, which has their columns, including the counters of
/// labels and ordinals.
pub(crate) const INSERT_ASSETS: &str = "
     inserted_asset AS (
        INSERT INTO asset (tenant_id, asset_id, slug, asset_kind, owner_ref, lifecycle_state, ownership_tier,
            workspace_id, namespace_id, last_ordinal, last_label, revision, created_at, created_by)
        SELECT tenant_id, asset_id, slug, asset_kind, owner_ref, lifecycle_state, ownership_tier, workspace_id,
            namespace_id, last_ordinal, last_label, revision, created_at, created_by
        FROM new_asset
        RETURNING 1
     )";

/// Loads whether a version contains references, by tenant and version.
pub(crate) struct ReferencePresenceLoader(pub(crate) StatementPool);

#[async_trait]
impl BatchLoader for ReferencePresenceLoader {
    type Key = (Uuid, Uuid);
    type Value = ();
    const LABEL: &'static str = "version references";

    async fn load_batch(&self, keys: &[(Uuid, Uuid)]) -> Result<HashMap<(Uuid, Uuid), ()>, StoreError> {
        // References are numbered from 0, so a version with references has one at position 0.
        static LOAD_VERSION_REFERENCES: Query = Query::new(
            "SELECT tenant_id, asset_version_id
            FROM input JOIN asset_reference USING (tenant_id, asset_version_id) WHERE position = 0",
        );
        let (tenants, versions): (Vec<Uuid>, Vec<Uuid>) = keys.iter().copied().unzip();
        let input = Input::many().with_column("tenant_id", tenants).with_column("asset_version_id", versions);
        let rows = read(&self.0, LOAD_VERSION_REFERENCES.text(&input)?, &input.params()).await?;
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
        self.fetch_page(list::asset_list_query(scope, filter), page, asset).await
    }

    async fn list_owned_active(
        &self,
        scope: TenantScope,
        namespace: NamespaceId,
        workspace: WorkspaceId,
        kind: AssetKind,
        limit: u32,
    ) -> Result<Vec<Asset>, StoreError> {
        use schema::asset::{
            asset_id, asset_kind, lifecycle_state, namespace_id, ownership_tier, table, tenant_id, workspace_id,
        };
        let (tenant, namespace, workspace) = (scope.tenant().uuid(), namespace.uuid(), workspace.uuid());
        let find = || {
            table
                .filter(tenant_id.eq(tenant).and(namespace_id.eq(namespace)).and(workspace_id.eq(workspace)))
                .filter(asset_kind.eq(kind.as_str()).and(lifecycle_state.eq(Lifecycle::Active.as_str())))
                .filter(ownership_tier.ne(OwnershipTier::PlatformBuiltin.as_str()))
                .order(asset_id.desc())
                .limit(i64::from(limit))
                .select(StoredAsset::as_select())
        };
        self.load("active assets of a workspace", find).await?.into_iter().map(StoredAsset::into_value).collect()
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        static CREATE: GuardedCommit = GuardedCommit::of_parts(
            &["new_asset AS (SELECT input.*, 0 AS last_ordinal, 0 AS last_label FROM input),", INSERT_ASSETS],
            "(SELECT count(*) = 1 FROM inserted_asset)",
            "",
        );
        let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
        self.commit_guarded(&CREATE, scope, &fact, key, add_asset_columns(Input::new(scope), &next)).await.map(|_| ())
    }

    async fn commit_lifecycle(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        static MOVE: GuardedCommit = GuardedCommit::new(
            "moved AS (
                UPDATE asset SET lifecycle_state = input.lifecycle_state, revision = input.revision
                FROM input
                WHERE asset.tenant_id = input.tenant_id AND asset.asset_id = input.asset_id
                    AND asset.revision = expected_revision
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM moved)",
        );
        static ARCHIVE: GuardedCommit =
            GuardedCommit::new("", "fairway_archive_asset(tenant_id, asset_id, expected_revision, revision)");
        let expected_revision = change.replaced_revision()?;
        let ChangeRecord { next, fact, .. } = change.into_record();
        let statement = match next.lifecycle {
            Lifecycle::Archived => &ARCHIVE,
            Lifecycle::Draft | Lifecycle::Active | Lifecycle::Retired => &MOVE,
        };
        let input = Input::new(scope)
            .with("asset_id", next.asset_id.uuid())
            .with("expected_revision", expected_revision.get())
            .with("revision", next.revision.get())
            .with("lifecycle_state", next.lifecycle.as_str());
        self.commit_guarded(statement, scope, &fact, key, input).await.map(|_| ())
    }

    async fn blocking_releases(
        &self,
        scope: TenantScope,
        id: AssetId,
        limit: u32,
    ) -> Result<Vec<BlockingRelease>, StoreError> {
        static READ: Query = Query::new(
            "SELECT DISTINCT release_id, state, workload_id, workspace_id, namespace_id, environment,
                (SELECT workload.slug FROM workload WHERE workload.tenant_id = release.tenant_id
                    AND workload.workload_id = release.workload_id) AS workload_slug
            FROM input JOIN asset_version USING (tenant_id, asset_id)
            JOIN release_binding USING (tenant_id, asset_version_id)
            JOIN release USING (tenant_id, release_id) JOIN workspace USING (tenant_id, workspace_id)
            WHERE state IN ('draft', 'review_ready', 'approved', 'active')
            ORDER BY release_id DESC LIMIT (SELECT max_rows FROM input)",
        );
        let input = Input::new(scope).with("asset_id", id.uuid()).with("max_rows", i64::from(limit));
        let rows = self.read_list(MAX_PAGE_MEMORY_BYTES, READ.text(&input)?, &input.params()).await?;
        let blocking = |row: &Row| {
            Ok(BlockingRelease {
                release_id: row.id("release_id")?,
                state: row.parse_column("state", StateName::parse)?,
                workload_id: row.id("workload_id")?,
                workload_slug: row.slug("workload_slug")?,
                workspace_id: row.id("workspace_id")?,
                namespace_id: row.id("namespace_id")?,
                environment: row.slug("environment")?,
            })
        };
        rows.iter().map(blocking).collect()
    }

    async fn find_id(&self, scope: TenantScope, slug: &Slug) -> Result<Option<AssetId>, StoreError> {
        let (tenant, slug) = (scope.tenant().uuid(), slug.to_string());
        let find = || {
            schema::asset::table
                .filter(schema::asset::tenant_id.eq(tenant).and(schema::asset::slug.eq(slug.clone())))
                .select(schema::asset::asset_id)
        };
        let found: Option<Uuid> = self.first("asset by slug", find).await?;
        Ok(found.map(Into::into))
    }

    async fn find_by_slug(
        &self,
        scope: TenantScope,
        slug: &Slug,
        label: Option<&VersionLabel>,
    ) -> Result<Option<(Asset, Option<AssetVersion>)>, StoreError> {
        if label.is_none()
            && let Some((found, version)) = versions::find(self, scope, VersionSelector::NewestOf(slug)).await?
        {
            return Ok(Some((found, Some(version))));
        }
        let (tenant, slug) = (scope.tenant().uuid(), slug.to_string());
        let find = || {
            schema::asset::table
                .filter(schema::asset::tenant_id.eq(tenant).and(schema::asset::slug.eq(slug.clone())))
                .select(StoredAsset::as_select())
        };
        let Some(found) = self.first("asset with a slug", find).await?.map(StoredAsset::into_value).transpose()? else {
            return Ok(None);
        };
        // Without a label, the result has no version, because the read of the newest version found none.
        let Some(label) = label else { return Ok(Some((found, None))) };
        let version = versions::find(self, scope, VersionSelector::Labelled(found.asset_id, label)).await?;
        Ok(Some((found, version.map(|(_, version)| version))))
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
        let pending = PendingVersion { scope, change };
        if key.is_none() {
            return self.new_versions.commit(pending).await;
        }
        let bytes = versions::VersionCommitter::payload_bytes(&pending);
        let _permit = self.new_versions.acquire_large_permit(bytes).await?;
        let insert = versions::insert_version(self.point_pool(), scope, &pending.change, key);
        self.statements_in_flight().track(TASK_STATEMENT_BYTES.scope(bytes, insert)).await
    }

    async fn commit_flow(
        &self,
        scope: TenantScope,
        change: Change<(Asset, NewVersion)>,
        key: Option<&KeyedOutcome>,
    ) -> Result<AssetVersion, CommitError> {
        let ChangeRecord { next: (new_asset, new_version), expected_revision: _, fact } = change.into_record();
        let bytes = versions::payload_bytes(&new_version);
        let _permit = self.new_versions.acquire_large_permit(bytes).await?;
        let input = versions::add_version_columns(add_asset_columns(Input::new(scope), &new_asset), &new_version);
        let committed = self.commit_guarded(&CREATE_WITH_VERSION, scope, &fact, key, input);
        let rows = TASK_STATEMENT_BYTES.scope(bytes, committed).await?;
        stored_version(&new_version, require_decoded("version_label", rows.first())?)
    }

    async fn find_version(
        &self,
        scope: TenantScope,
        id: AssetVersionId,
    ) -> Result<Option<(Asset, AssetVersion)>, StoreError> {
        versions::find(self, scope, VersionSelector::Id(id)).await
    }

    async fn list_versions(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: PageRequest,
    ) -> Result<Page<AssetVersion>, StoreError> {
        self.fetch_page(list::version_list_query(scope, asset), page, decode_version).await
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
