//! Reverse lookups: the versions that refer to an asset, and the releases that bind a version.

use super::{ASSET_COLUMNS, asset};
use crate::{
    database::Database,
    guarded_commit::{Input, Query},
    list_permits::MAX_PAGE_MEMORY_BYTES,
    row::Row,
};
use async_trait::async_trait;
use fairway_domain::{
    asset::{
        VersionLabel,
        impact::{BindingRelease, BindingTarget, ImpactStore, ReferenceTarget, Referrer},
    },
    id::AssetVersionId,
    release::StateName,
    store::StoreError,
    tenant::TenantScope,
};
use uuid::Uuid;

fn parse_label(text: &str) -> Option<VersionLabel> {
    VersionLabel::parse(text)
}

fn referrer(row: &Row) -> Result<Referrer, StoreError> {
    let target_label: Option<&str> = row.column("target_label")?;
    Ok(Referrer {
        asset: asset(row)?,
        asset_version_id: row.id("asset_version_id")?,
        version_label: row.parse_column("version_label", parse_label)?,
        target_slug: row.slug("target_slug")?,
        target_label: target_label.and_then(parse_label),
        pointer: row.column("pointer")?,
    })
}

fn binding_release(row: &Row) -> Result<BindingRelease, StoreError> {
    Ok(BindingRelease {
        release_id: row.id("release_id")?,
        state: row.parse_column("state", StateName::parse)?,
        environment: row.slug("environment")?,
        workload_id: row.id("workload_id")?,
        workload_slug: row.slug("workload_slug")?,
        workspace_id: row.id("workspace_id")?,
        namespace_id: row.id("namespace_id")?,
        asset_version_id: row.id("asset_version_id")?,
        version_label: row.parse_column("version_label", parse_label)?,
    })
}

/// Reads the releases that bind versions of an asset or specific versions. One of the two lists is empty. Each arm of
/// the union has its own index, and reads nothing for an empty list.
///
/// A lateral query reads the newest bindings of each version by the index. A plain join would read all bindings of the
/// tenant if PostgreSQL expects most of them to match. Another lateral query reads the names of the returned rows. Its
/// `LIMIT` prevents a join of the whole table of releases.
static BINDING_RELEASES: Query = Query::new(
    "SELECT bound.release_id, named.*, asset_version_id, version_label
     FROM (
        SELECT version.tenant_id, newest.release_id, version.asset_version_id, version_label
        FROM (
            SELECT tenant_id, asset_version_id, version_label FROM asset_version
            WHERE tenant_id = (SELECT tenant_id FROM input) AND asset_id = ANY((SELECT asset_ids FROM input)::uuid[])
            UNION ALL
            SELECT tenant_id, asset_version_id, version_label FROM asset_version
            WHERE tenant_id = (SELECT tenant_id FROM input)
                AND asset_version_id = ANY((SELECT version_ids FROM input)::uuid[])
        ) AS version
        CROSS JOIN LATERAL (
            SELECT release_id FROM release_binding AS binding
            WHERE binding.tenant_id = version.tenant_id AND binding.asset_version_id = version.asset_version_id
            ORDER BY release_id DESC LIMIT (SELECT max_rows FROM input)
        ) AS newest
        ORDER BY newest.release_id DESC, version.asset_version_id DESC LIMIT (SELECT max_rows FROM input)
     ) AS bound
     CROSS JOIN LATERAL (
        SELECT release.state, release.environment, release.workload_id, workload.slug AS workload_slug,
            release.workspace_id, namespace_id
        FROM release
        JOIN workload USING (tenant_id, workload_id)
        JOIN workspace ON workspace.tenant_id = release.tenant_id AND workspace.workspace_id = release.workspace_id
        WHERE release.tenant_id = bound.tenant_id AND release.release_id = bound.release_id
        LIMIT 1
     ) AS named
     ORDER BY bound.release_id DESC, asset_version_id DESC",
);

#[async_trait]
impl ImpactStore for Database {
    async fn referrers(
        &self,
        scope: TenantScope,
        targets: &[ReferenceTarget],
        known_versions: &[AssetVersionId],
        limit: u32,
    ) -> Result<Vec<Referrer>, StoreError> {
        // `any_version_slugs` has the slugs of targets that are referenced at any version. `labelled` has a pair of
        // slug and label for all others.
        let any_version_slugs: Vec<&str> =
            targets.iter().filter(|target| target.labels.is_none()).map(|target| target.slug.as_str()).collect();
        let labelled: Vec<(&str, &str)> = targets
            .iter()
            .flat_map(|target| {
                let labels = target.labels.iter().flatten();
                labels.map(|label| (target.slug.as_str(), label.as_str()))
            })
            .collect();
        let (slugs, labels): (Vec<&str>, Vec<&str>) = labelled.into_iter().unzip();
        static READ: Query = Query::of_parts(&[
            "SELECT ",
            ASSET_COLUMNS,
            ", asset_version_id, version_label, target_slug, target_label, pointer
             FROM (
                SELECT DISTINCT ON (asset_version_id) reference.tenant_id, asset_version_id, target_slug, target_label,
                    pointer
                FROM input JOIN asset_reference AS reference ON reference.tenant_id = input.tenant_id
                    AND asset_version_id <> ALL(known_versions) AND (
                        target_slug = ANY(any_slugs)
                        OR target_slug = ANY(slugs) AND (target_label IS NULL OR EXISTS (
                            SELECT FROM unnest(slugs, labels) AS pinned (slug, label)
                            WHERE slug = target_slug AND label = target_label)))
                ORDER BY asset_version_id DESC, position
                LIMIT (SELECT max_rows FROM input)
             ) AS found
             JOIN asset_version USING (tenant_id, asset_version_id) JOIN asset USING (tenant_id, asset_id)
             ORDER BY asset_version_id DESC",
        ]);
        let input = Input::new(scope)
            .with_list("any_slugs", any_version_slugs)
            .with_list("slugs", slugs)
            .with_list("labels", labels)
            .with_list("known_versions", known_versions.iter().copied().map(AssetVersionId::uuid).collect())
            .with("max_rows", i64::from(limit));
        let rows = self.read_list(MAX_PAGE_MEMORY_BYTES, READ.text(&input)?, &input.params()).await?;
        rows.iter().map(referrer).collect()
    }

    async fn binding_releases(
        &self,
        scope: TenantScope,
        target: BindingTarget<'_>,
        limit: u32,
    ) -> Result<Vec<BindingRelease>, StoreError> {
        let (assets, versions): (Vec<Uuid>, Vec<Uuid>) = match target {
            BindingTarget::Asset(id) => (vec![id.uuid()], Vec::new()),
            BindingTarget::Versions(ids) => (Vec::new(), ids.iter().copied().map(AssetVersionId::uuid).collect()),
        };
        let input = Input::new(scope)
            .with_list("asset_ids", assets)
            .with_list("version_ids", versions)
            .with("max_rows", i64::from(limit));
        let rows = self.fetch(&BINDING_RELEASES, input).await?;
        rows.iter().map(binding_release).collect()
    }
}
