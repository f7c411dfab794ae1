//! Reverse look-ups: the versions that refer to an asset, and the releases that bind it.

use super::{ASSET_COLUMNS, asset};
use crate::{database::Database, list_permits::PAGE_BYTES, row::RowExt};
use async_trait::async_trait;
use fairway_domain::{
    asset::{
        VersionLabel,
        impact::{BindingTarget, BoundRelease, ImpactStore, ReferenceTarget, Referrer},
    },
    id::AssetVersionId,
    release::StateName,
    store::StoreError,
    tenant::TenantScope,
};
use tokio_postgres::Row;
use uuid::Uuid;

fn parse_label(text: &str) -> Option<VersionLabel> {
    VersionLabel::parse(text)
}

fn referrer(row: &Row) -> Result<Referrer, StoreError> {
    let target_label: Option<&str> = row.column("target_label")?;
    Ok(Referrer {
        asset: asset(row)?,
        asset_version_id: row.id("asset_version_id")?,
        version_label: row.parsed("version_label", parse_label)?,
        target_slug: row.slug("target_slug")?,
        target_label: target_label.and_then(parse_label),
        pointer: row.column("pointer")?,
    })
}

fn bound_release(row: &Row) -> Result<BoundRelease, StoreError> {
    Ok(BoundRelease {
        release_id: row.id("release_id")?,
        state: row.parsed("state", StateName::parse)?,
        environment: row.slug("environment")?,
        workload_id: row.id("workload_id")?,
        workload_slug: row.slug("workload_slug")?,
        workspace_id: row.id("workspace_id")?,
        namespace_id: row.id("namespace_id")?,
        asset_version_id: row.id("asset_version_id")?,
        version_label: row.parsed("version_label", parse_label)?,
    })
}

#[async_trait]
impl ImpactStore for Database {
    async fn referrers(
        &self,
        scope: TenantScope,
        targets: &[ReferenceTarget],
        known: &[AssetVersionId],
        most: u32,
    ) -> Result<Vec<Referrer>, StoreError> {
        // Targets at any version, then pairs of slug and label.
        let any: Vec<&str> =
            targets.iter().filter(|target| target.labels.is_none()).map(|target| target.slug.as_str()).collect();
        let labelled: Vec<(&str, &str)> = targets
            .iter()
            .flat_map(|target| {
                let labels = target.labels.iter().flatten();
                labels.map(|label| (target.slug.as_str(), label.as_str()))
            })
            .collect();
        let (slugs, labels): (Vec<&str>, Vec<&str>) = labelled.into_iter().unzip();
        let sql = format!(
            "SELECT {ASSET_COLUMNS}, asset_version_id, version_label, target_slug, target_label, pointer
             FROM (
                SELECT DISTINCT ON (asset_version_id) tenant_id, asset_version_id, target_slug, target_label, pointer
                FROM asset_reference AS named
                WHERE tenant_id = $1 AND asset_version_id <> ALL($6) AND (
                    target_slug = ANY($2)
                    OR target_slug = ANY($3) AND (target_label IS NULL OR EXISTS (
                        SELECT FROM unnest($3::text[], $4::text[]) AS pinned (slug, label)
                        WHERE slug = target_slug AND label = target_label)))
                ORDER BY asset_version_id DESC, position
                LIMIT $5
             ) AS found
             JOIN asset_version USING (tenant_id, asset_version_id) JOIN asset USING (tenant_id, asset_id)
             ORDER BY asset_version_id DESC"
        );
        let tenant = scope.tenant().uuid();
        let known: Vec<Uuid> = known.iter().copied().map(AssetVersionId::uuid).collect();
        let rows =
            self.read_list(PAGE_BYTES, &sql, &[&tenant, &any, &slugs, &labels, &i64::from(most), &known]).await?;
        rows.iter().map(referrer).collect()
    }

    async fn binding_releases(
        &self,
        scope: TenantScope,
        bound: BindingTarget<'_>,
        most: u32,
    ) -> Result<Vec<BoundRelease>, StoreError> {
        let (condition, ids): (&str, Vec<Uuid>) = match bound {
            BindingTarget::Asset(id) => ("asset_id = ANY($2)", vec![id.uuid()]),
            BindingTarget::Versions(ids) => {
                ("asset_version_id = ANY($2)", ids.iter().copied().map(AssetVersionId::uuid).collect())
            }
        };
        // Limited before the joins, so that they run for the returned rows only.
        let sql = format!(
            "SELECT release_id, release.state, release.environment, release.workload_id,
                workload.slug AS workload_slug, release.workspace_id, namespace_id, asset_version_id, version_label
             FROM (
                SELECT release_id, asset_version_id, version_label
                FROM asset_version JOIN release_binding USING (tenant_id, asset_version_id)
                WHERE tenant_id = $1 AND {condition}
                ORDER BY release_id DESC, asset_version_id DESC LIMIT $3
             ) AS bound
             JOIN release USING (release_id)
             JOIN workload ON workload.tenant_id = $1 AND workload.workload_id = release.workload_id
             JOIN workspace ON workspace.tenant_id = $1 AND workspace.workspace_id = release.workspace_id
             WHERE release.tenant_id = $1
             ORDER BY release_id DESC, asset_version_id DESC"
        );
        let rows = self.read(&sql, &[&scope.tenant().uuid(), &ids, &i64::from(most)]).await?;
        rows.iter().map(bound_release).collect()
    }
}
