//! Assets and versions.

mod grant;
mod impact;
mod ledger;
mod list;

use crate::{
    database::{Database, Param},
    guarded::{Tail, commit_tail},
    row::{Columns, known},
};
use async_trait::async_trait;
use fairway_domain::{
    asset::{
        Asset, AssetVersion, ChangeNote, Lifecycle, NewVersion, OwnershipTier, VersionLabel,
        canonical::Checksum,
        kind::AssetKind,
        ports::{ArtifactPath, AssetFilter, AssetStore, BlockingRelease},
    },
    id::{AssetId, AssetVersionId},
    idempotency::KeyedOutcome,
    release::StateName,
    slug::Slug,
    store::{Change, CommitError, Listed, Paging, StoreError},
    tenant::TenantScope,
};
use tokio_postgres::Row;
use uuid::Uuid;

const ASSET_COLUMNS: &str = "asset.asset_id, asset.slug, asset.asset_kind, asset.owner_ref, asset.lifecycle_state, \
    asset.ownership_tier, asset.workspace_id, asset.namespace_id, asset.revision, asset.created_at, asset.created_by";

fn asset(row: &Row) -> Result<Asset, StoreError> {
    Ok(Asset {
        asset_id: row.id("asset_id")?,
        slug: row.slug("slug")?,
        kind: row.spelled("asset_kind", AssetKind::parse)?,
        owner_ref: row.owner("owner_ref")?,
        lifecycle: row.spelled("lifecycle_state", Lifecycle::parse)?,
        ownership_tier: row.spelled("ownership_tier", OwnershipTier::parse)?,
        workspace_id: row.id("workspace_id")?,
        namespace_id: row.id("namespace_id")?,
        created_at: row.moment("created_at")?,
        created_by: row.actor("created_by")?,
        revision: row.revision("revision")?,
    })
}

/// A version's columns carry a prefix, so that they can stand beside its asset's.
const VERSION_COLUMNS: &str = "version.asset_version_id, version.asset_id AS version_asset_id, \
    version.version_label, version.content, version.checksum, version.created_at AS version_created_at, \
    version.created_by AS version_created_by, note.body AS change_note";

/// What stands beside a version and can go away.
const NOTE: &str = "LEFT JOIN asset_version_note AS note USING (tenant_id, asset_version_id)";

fn version(row: &Row) -> Result<AssetVersion, StoreError> {
    let (asset_id, asset_version_id) = (row.id("version_asset_id")?, row.id("asset_version_id")?);
    Ok(AssetVersion {
        asset_version_id,
        asset_id,
        version_label: row.spelled("version_label", VersionLabel::parse)?,
        canonical: row.column("content")?,
        artifact_ref: ArtifactPath::of_version(asset_id, asset_version_id),
        checksum: row.spelled("checksum", Checksum::parse)?,
        change_note: row.column::<Option<&str>>("change_note")?.and_then(ChangeNote::parse),
        created_at: row.moment("version_created_at")?,
        created_by: row.actor("version_created_by")?,
    })
}

const INSERT_ASSET: &str = "INSERT INTO asset (tenant_id, asset_id, slug, asset_kind, owner_ref, lifecycle_state, \
    ownership_tier, workspace_id, namespace_id, last_label, revision, created_at, created_by)";

#[async_trait]
impl AssetStore for Database {
    async fn find(&self, scope: TenantScope, id: AssetId) -> Result<Option<Asset>, StoreError> {
        let sql = format!("SELECT {ASSET_COLUMNS} FROM asset WHERE tenant_id = $1 AND asset_id = $2");
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &id.uuid()]).await?;
        row.as_ref().map(asset).transpose()
    }

    async fn list(&self, scope: TenantScope, filter: &AssetFilter, page: Paging) -> Result<Listed<Asset>, StoreError> {
        self.listed(list::assets(scope, filter), page, asset).await
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Asset>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let sql = format!(
            "WITH made AS (
                {INSERT_ASSET} VALUES ($1, $13, $14, $15, $16, $17, $18, $19, $20, 0, $21, $22, $23) RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM made), {})",
            commit_tail!()
        );
        let Change { next, decided_on: _, fact } = change;
        let tail = Tail::new(scope, &fact, key);
        let row = AssetRow::of(&next);
        self.commit(&sql, &tail.with(&row.params())).await.map(|_| ())
    }

    async fn commit_move(
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
        let Change { next, decided_on, fact } = change;
        let tail = Tail::new(scope, &fact, key);
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
        let rows = self.list(SQL, &[&scope.tenant().uuid(), &id.uuid(), &i64::from(limit)]).await?;
        let blocking = |row: &Row| {
            Ok(BlockingRelease {
                release_id: row.id("release_id")?,
                state: row.spelled("state", StateName::parse)?,
                workload_id: row.id("workload_id")?,
                workspace_id: row.id("workspace_id")?,
                namespace_id: row.id("namespace_id")?,
                environment: row.slug("environment")?,
            })
        };
        rows.iter().map(blocking).collect()
    }

    async fn commit_version(
        &self,
        scope: TenantScope,
        change: Change<NewVersion>,
        key: Option<&KeyedOutcome>,
    ) -> Result<AssetVersion, CommitError> {
        let Change { next, decided_on: _, fact } = change;
        let tail = Tail::new(scope, &fact, key);
        let row = VersionRow::of(&next);
        let (beside, more) = row.beside("$13", 21);
        // Updating the asset's row makes versions of one asset wait for each other, so the next label is never given
        // twice. A given label of the form vN moves the count along. The verdict stands first in the last line: were
        // it joined to a version that was not made, PostgreSQL would not ask for it.
        let sql = format!(
            "WITH parent AS (
                UPDATE asset SET last_label = CASE
                    WHEN $15::text IS NULL THEN last_label + 1
                    WHEN $15 ~ '^v[1-9][0-9]{{0,8}}$' THEN greatest(last_label, substr($15, 2)::integer)
                    ELSE last_label END
                WHERE tenant_id = $1 AND asset_id = $14 AND lifecycle_state <> 'archived'
                RETURNING coalesce($15, 'v' || last_label) AS label
             ),
             made AS (
                INSERT INTO asset_version (tenant_id, asset_version_id, asset_id, version_label, content, artifact_ref,
                    checksum, created_at, created_by)
                SELECT $1, $13, $14, label, $16, $17, $18, $19, $20 FROM parent
                RETURNING version_label
             ),
             {beside}
             done AS (SELECT fairway_commit((SELECT count(*) = 1 FROM made), {}))
             SELECT version_label FROM done LEFT JOIN made ON true",
            commit_tail!()
        );
        let mut own = row.params();
        own.extend(more);
        let rows = self.commit(&sql, &tail.with(&own)).await?;
        stored(next, &rows)
    }

    async fn commit_flow(
        &self,
        scope: TenantScope,
        change: Change<(Asset, NewVersion)>,
        key: Option<&KeyedOutcome>,
    ) -> Result<AssetVersion, CommitError> {
        let Change { next: (new_asset, new_version), decided_on: _, fact } = change;
        let tail = Tail::new(scope, &fact, key);
        let parent = AssetRow::of(&new_asset);
        let child = VersionRow::of(&new_version);
        let (beside, more) = child.beside("$24", 32);
        let sql = format!(
            "WITH parent AS (
                {INSERT_ASSET} VALUES ($1, $13, $14, $15, $16, $17, $18, $19, $20,
                    CASE WHEN $26::text IS NULL THEN 1
                         WHEN $26 ~ '^v[1-9][0-9]{{0,8}}$' THEN substr($26, 2)::integer ELSE 0 END,
                    $21, $22, $23)
                RETURNING coalesce($26, 'v1') AS label
             ),
             made AS (
                INSERT INTO asset_version (tenant_id, asset_version_id, asset_id, version_label, content, artifact_ref,
                    checksum, created_at, created_by)
                SELECT $1, $24, $25, label, $27, $28, $29, $30, $31 FROM parent
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
        let rows = self.commit(&sql, &tail.with(&own)).await?;
        stored(new_version, &rows)
    }

    async fn find_version(
        &self,
        scope: TenantScope,
        id: AssetVersionId,
    ) -> Result<Option<(Asset, AssetVersion)>, StoreError> {
        let sql = format!(
            "SELECT {VERSION_COLUMNS}, {ASSET_COLUMNS} FROM asset_version AS version {NOTE} JOIN asset USING (tenant_id, asset_id)
             WHERE tenant_id = $1 AND asset_version_id = $2"
        );
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &id.uuid()]).await?;
        row.map(|row| Ok((asset(&row)?, version(&row)?))).transpose()
    }

    async fn list_versions(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: Paging,
    ) -> Result<Listed<AssetVersion>, StoreError> {
        self.listed(list::versions(scope, asset), page, version).await
    }

    async fn withdraws_route_after(
        &self,
        scope: TenantScope,
        asset: AssetId,
        version: AssetVersionId,
        route_id: &str,
    ) -> Result<bool, StoreError> {
        const SQL: &str = r#"SELECT EXISTS (
                SELECT FROM asset_version
                WHERE tenant_id = $1 AND asset_id = $2 AND asset_version_id > $3
                    AND jsonb_path_exists(content::jsonb,
                        '$.** ? (@.route_id == $route && (@.state == "suspended" || @.state == "retired"))',
                        jsonb_build_object('route', $4::text))
            ) AS withdrawn"#;
        let row = self.read_one(SQL, &[&scope.tenant().uuid(), &asset.uuid(), &version.uuid(), &route_id]).await?;
        known("withdrawn", row)?.column("withdrawn")
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
        let row = match label {
            Some(label) => {
                let sql = format!(
                    "SELECT {VERSION_COLUMNS} FROM asset_version AS version {NOTE}
                     WHERE tenant_id = $1 AND asset_id = $2 AND version_label = $3"
                );
                self.read_one(&sql, &[&tenant, &id, &label.as_str()]).await?
            }
            None => {
                let sql = format!(
                    "SELECT {VERSION_COLUMNS} FROM asset_version AS version {NOTE} WHERE tenant_id = $1 AND asset_id = $2
                     ORDER BY asset_version_id DESC LIMIT 1"
                );
                self.read_one(&sql, &[&tenant, &id]).await?
            }
        };
        Ok(Some((found, row.as_ref().map(version).transpose()?)))
    }

    async fn source_text(&self, scope: TenantScope, version: AssetVersionId) -> Result<Option<String>, StoreError> {
        const SQL: &str = "SELECT body FROM asset_version_source WHERE tenant_id = $1 AND asset_version_id = $2";
        let row = self.read_one(SQL, &[&scope.tenant().uuid(), &version.uuid()]).await?;
        row.map(|row| row.column("body")).transpose()
    }
}

/// The values of `INSERT_ASSET` after the tenant, without the label count, alive while the statement runs.
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
            at: asset.created_at.moment(),
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

/// The values of a version's insert, alive while the statement runs.
struct VersionRow<'a> {
    id: Uuid,
    asset: Uuid,
    label: Option<&'a str>,
    content: &'a str,
    artifact: &'a str,
    checksum: &'a str,
    at: time::OffsetDateTime,
    by: String,
    source: Option<&'a str>,
    note: Option<&'a str>,
    slugs: Vec<&'a str>,
    labels: Vec<Option<&'a str>>,
    pointers: Vec<&'a str>,
}

impl<'a> VersionRow<'a> {
    fn of(version: &'a NewVersion) -> Self {
        Self {
            id: version.asset_version_id.uuid(),
            asset: version.asset_id.uuid(),
            label: version.version_label.as_ref().map(VersionLabel::as_str),
            content: version.canonical.text(),
            artifact: version.artifact_ref.as_str(),
            checksum: version.canonical.checksum().as_str(),
            at: version.created_at.moment(),
            by: version.created_by.to_string(),
            source: version.source_text.as_deref(),
            note: version.change_note.as_ref().map(ChangeNote::as_str),
            slugs: version.references.iter().map(|reference| reference.slug.as_str()).collect(),
            labels: version
                .references
                .iter()
                .map(|reference| reference.version.as_ref().map(VersionLabel::as_str))
                .collect(),
            pointers: version.references.iter().map(|reference| reference.pointer.as_str()).collect(),
        }
    }

    fn params(&self) -> Vec<Param<'_>> {
        vec![&self.id, &self.asset, &self.label, &self.content, &self.artifact, &self.checksum, &self.at, &self.by]
    }

    /// What stands beside the version, as parts of its statement, with their values from this placeholder on. What is
    /// not there has no part: most versions have none of it, and every part of a statement costs.
    fn beside(&self, id: &str, first: usize) -> (String, Vec<Param<'_>>) {
        let (mut sql, mut values): (String, Vec<Param<'_>>) = (String::new(), Vec::new());
        for (table, body) in [("asset_version_source", &self.source), ("asset_version_note", &self.note)] {
            if body.is_some() {
                let value = first.saturating_add(values.len());
                sql.push_str(&format!(
                    "{table}_made AS (
                        INSERT INTO {table} (tenant_id, asset_version_id, body) SELECT $1, {id}, ${value} FROM made
                     ),"
                ));
                values.push(body);
            }
        }
        if !self.slugs.is_empty() {
            let slugs = first.saturating_add(values.len());
            let (labels, pointers) = (slugs.saturating_add(1), slugs.saturating_add(2));
            sql.push_str(&format!(
                "referred AS (
                    INSERT INTO asset_reference (tenant_id, asset_version_id, position, target_slug, target_label,
                        pointer)
                    SELECT $1, {id}, place - 1, slug, label, pointer
                    FROM made, unnest(${slugs}::text[], ${labels}::text[], ${pointers}::text[]) WITH ORDINALITY
                        AS named (slug, label, pointer, place)
                 ),"
            ));
            values.extend_from_slice(&[&self.slugs, &self.labels, &self.pointers]);
        }
        (sql, values)
    }
}

/// The version as it now stands, with the label that the statement gave.
fn stored(version: NewVersion, rows: &[Row]) -> Result<AssetVersion, CommitError> {
    let row = known("version_label", rows.first())?;
    Ok(AssetVersion {
        asset_version_id: version.asset_version_id,
        asset_id: version.asset_id,
        version_label: row.spelled("version_label", VersionLabel::parse)?,
        canonical: version.canonical.text().to_owned(),
        artifact_ref: version.artifact_ref,
        checksum: version.canonical.checksum().clone(),
        change_note: version.change_note,
        created_at: version.created_at,
        created_by: version.created_by,
    })
}
