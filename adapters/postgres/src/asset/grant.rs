//! Asset grants.

use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::{Database, Param},
    pagination::{ListQuery, RowBytes, SortKey, Values},
    row::RowExt,
    store_error,
};
use async_trait::async_trait;
use fairway_domain::{
    access::{ActorRef, rights::VisibleScopes},
    asset::grant::{AssetGrant, AssetGrantRecord, AssetGrantStore, Grantee},
    audit::Fact,
    id::{AssetGrantId, AssetId},
    idempotency::KeyedOutcome,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
};
use tokio_postgres::Row;
use uuid::Uuid;

const COLUMNS: &str = "grant_id, asset_id, principal, grantee_workspace_id, created_at, created_by";

#[derive(Debug, thiserror::Error)]
#[error("a stored grant has no grantee")]
struct MissingGrantee;

fn grant(row: &Row) -> Result<AssetGrant, StoreError> {
    let grantee = match row.optional_id("grantee_workspace_id")? {
        Some(workspace) => Grantee::Workspace(workspace),
        None if row.column::<Option<&str>>("principal")?.is_some() => Grantee::Principal(row.actor("principal")?),
        None => return Err(store_error::broken(Box::new(MissingGrantee))),
    };
    Ok(AssetGrant::restore(AssetGrantRecord {
        grant_id: row.id("grant_id")?,
        asset_id: row.id("asset_id")?,
        grantee,
        created_at: row.timestamp("created_at")?,
        created_by: row.actor("created_by")?,
    }))
}

fn principal_names(principals: &[ActorRef]) -> Vec<String> {
    principals.iter().map(ToString::to_string).collect()
}

fn read_found(row: Option<Row>) -> Result<bool, StoreError> {
    row.map_or(Ok(false), |row| row.column("found"))
}

#[async_trait]
impl AssetGrantStore for Database {
    async fn find(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: AssetGrantId,
    ) -> Result<Option<AssetGrant>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM asset_grant WHERE tenant_id = $1 AND grant_id = $2 AND asset_id = $3");
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &id.uuid(), &asset.uuid()]).await?;
        row.as_ref().map(grant).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: PageRequest,
    ) -> Result<Page<AssetGrant>, StoreError> {
        let mut values = Values::default();
        let conditions = vec![
            format!("tenant_id = {}", values.bind(scope.tenant().uuid())),
            format!("asset_id = {}", values.bind(asset.uuid())),
        ];
        let key = SortKey::Id("grant_id", "grant_id");
        self.fetch_page(
            ListQuery::single(COLUMNS, key, "FROM asset_grant", RowBytes::Small, conditions, values),
            page,
            grant,
        )
        .await
    }

    async fn granted_assets(
        &self,
        scope: TenantScope,
        assets: &[AssetId],
        principals: &[ActorRef],
        visible_scopes: &VisibleScopes,
    ) -> Result<Vec<AssetId>, StoreError> {
        const SQL: &str = "SELECT asset_id FROM unnest($2::uuid[]) AS asked (asset_id) WHERE EXISTS (
                SELECT FROM asset_grant AS given
                WHERE tenant_id = $1 AND given.asset_id = asked.asset_id AND principal = ANY($3)
            ) OR EXISTS (
                SELECT FROM asset_grant AS given
                WHERE tenant_id = $1 AND given.asset_id = asked.asset_id AND grantee_workspace_id = ANY($4)
            ) OR EXISTS (
                SELECT FROM asset_grant AS given
                JOIN workspace ON workspace.tenant_id = $1 AND workspace_id = grantee_workspace_id
                WHERE given.tenant_id = $1 AND given.asset_id = asked.asset_id AND namespace_id = ANY($5)
            )";
        let assets: Vec<Uuid> = assets.iter().map(|id| id.uuid()).collect();
        let workspaces: Vec<Uuid> = visible_scopes.workspaces.iter().map(|id| id.uuid()).collect();
        let namespaces: Vec<Uuid> = visible_scopes.namespaces.iter().map(|id| id.uuid()).collect();
        let params: [Param<'_>; 5] =
            [&scope.tenant().uuid(), &assets, &principal_names(principals), &workspaces, &namespaces];
        self.read(SQL, &params).await?.iter().map(|row| row.id("asset_id")).collect()
    }

    async fn has_any_grant(&self, scope: TenantScope, principals: &[ActorRef]) -> Result<bool, StoreError> {
        const SQL: &str =
            "SELECT EXISTS (SELECT FROM asset_grant WHERE tenant_id = $1 AND principal = ANY($2)) AS found";
        read_found(self.read_one(SQL, &[&scope.tenant().uuid(), &principal_names(principals)]).await?)
    }

    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<AssetGrant>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH made AS (
                INSERT INTO asset_grant (tenant_id, grant_id, asset_id, principal, grantee_workspace_id, created_at,
                    created_by)
                VALUES ($1, $13, $14, $15, $16, $17, $18)
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM made), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, decided_on: _, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, key);
        let (principal, workspace) = match &next.grantee {
            Grantee::Principal(principal) => (Some(principal.to_string()), None),
            Grantee::Workspace(id) => (None, Some(id.uuid())),
        };
        let (id, asset) = (next.grant_id.uuid(), next.asset_id.uuid());
        let (at, by) = (next.created_at.to_datetime(), next.created_by.to_string());
        self.commit(SQL, &tail.with(&[&id, &asset, &principal, &workspace, &at, &by])).await.map(|_| ())
    }

    async fn commit_revocation(&self, scope: TenantScope, id: AssetGrantId, fact: Fact) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH ended AS (
                DELETE FROM asset_grant WHERE tenant_id = $1 AND grant_id = $13 RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM ended), ",
            commit_tail!(),
            ")"
        );
        let tail = CommitParams::new(scope, &fact, None);
        self.commit(SQL, &tail.with(&[&id.uuid()])).await.map(|_| ())
    }
}
