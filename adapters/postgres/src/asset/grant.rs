//! The store of asset grants, which let principals or workspaces read an asset.

use crate::{
    database::{Database, PageBounds, StoredRow},
    guarded_commit::{GuardedCommit, Input, Query},
    row::require_decoded,
    schema::asset_grant,
    store_error,
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _, Queryable, Selectable, SelectableHelper as _,
    pg::Pg,
};
use fairway_domain::{
    access::{ActorRef, rights::VisibleScopes},
    asset::grant::{AssetGrant, AssetGrantRecord, AssetGrantStore, Grantee},
    audit::Fact,
    id::{AssetGrantId, AssetId},
    idempotency::KeyedOutcome,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

#[derive(Debug, thiserror::Error)]
#[error("a stored grant has no grantee")]
struct MissingGrantee;

#[derive(Queryable, Selectable)]
#[diesel(table_name = asset_grant, check_for_backend(Pg))]
struct StoredGrant {
    grant_id: Uuid,
    asset_id: Uuid,
    principal: Option<String>,
    grantee_workspace_id: Option<Uuid>,
    created_at: OffsetDateTime,
    created_by: String,
}

impl StoredRow for StoredGrant {
    type Value = AssetGrant;

    fn id(&self) -> Uuid {
        self.grant_id
    }

    fn into_value(self) -> Result<AssetGrant, StoreError> {
        let grantee = match (self.grantee_workspace_id, self.principal) {
            (Some(workspace), _) => Grantee::Workspace(workspace.into()),
            (None, Some(principal)) => {
                Grantee::Principal(require_decoded("principal", ActorRef::parse(&principal).ok())?)
            }
            (None, None) => return Err(store_error::inconsistent(Box::new(MissingGrantee))),
        };
        Ok(AssetGrant::restore(AssetGrantRecord {
            grant_id: self.grant_id.into(),
            asset_id: self.asset_id.into(),
            grantee,
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
        }))
    }
}

fn principal_names(principals: &[ActorRef]) -> Vec<String> {
    principals.iter().map(ToString::to_string).collect()
}

#[async_trait]
impl AssetGrantStore for Database {
    async fn find(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: AssetGrantId,
    ) -> Result<Option<AssetGrant>, StoreError> {
        let (tenant, asset, id) = (scope.tenant().uuid(), asset.uuid(), id.uuid());
        let find = || {
            asset_grant::table
                .find((tenant, id))
                .filter(asset_grant::asset_id.eq(asset))
                .select(StoredGrant::as_select())
        };
        self.first("asset grant", find).await?.map(StoredGrant::into_value).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        asset: AssetId,
        page: PageRequest,
    ) -> Result<Page<AssetGrant>, StoreError> {
        let (tenant, asset) = (scope.tenant().uuid(), asset.uuid());
        let all = || {
            let of_asset = asset_grant::tenant_id.eq(tenant).and(asset_grant::asset_id.eq(asset));
            asset_grant::table.filter(of_asset).into_boxed::<'static, Pg>()
        };
        let rows = |bounds: PageBounds| {
            let newest = all()
                .select(StoredGrant::as_select())
                .order(asset_grant::grant_id.desc())
                .limit(bounds.limit)
                .offset(bounds.offset);
            match bounds.after {
                None => newest,
                Some(id) => newest.filter(asset_grant::grant_id.lt(id)),
            }
        };
        self.typed_page("list of asset grants", page, || all().select(asset_grant::grant_id), rows).await
    }

    async fn select_granted_assets(
        &self,
        scope: TenantScope,
        assets: &[AssetId],
        principals: &[ActorRef],
        visible_scopes: &VisibleScopes,
    ) -> Result<Vec<AssetId>, StoreError> {
        static FIND: Query = Query::new(
            "SELECT requested.asset_id FROM input, unnest(assets) AS requested (asset_id) WHERE EXISTS (
                SELECT FROM asset_grant AS existing
                WHERE existing.tenant_id = input.tenant_id AND existing.asset_id = requested.asset_id
                    AND principal = ANY(principals)
            ) OR EXISTS (
                SELECT FROM asset_grant AS existing
                WHERE existing.tenant_id = input.tenant_id AND existing.asset_id = requested.asset_id
                    AND grantee_workspace_id = ANY(workspaces)
            ) OR EXISTS (
                SELECT FROM asset_grant AS existing
                JOIN workspace ON workspace.tenant_id = input.tenant_id AND workspace_id = grantee_workspace_id
                WHERE existing.tenant_id = input.tenant_id AND existing.asset_id = requested.asset_id
                    AND namespace_id = ANY(namespaces)
            )",
        );
        let input = Input::new(scope)
            .with_list("assets", assets.iter().map(|id| id.uuid()).collect())
            .with_list("principals", principal_names(principals))
            .with_list("workspaces", visible_scopes.workspaces.iter().map(|id| id.uuid()).collect())
            .with_list("namespaces", visible_scopes.namespaces.iter().map(|id| id.uuid()).collect());
        self.fetch(&FIND, input).await?.iter().map(|row| row.id("asset_id")).collect()
    }

    async fn has_any_grant(&self, scope: TenantScope, principals: &[ActorRef]) -> Result<bool, StoreError> {
        let (tenant, principals) = (scope.tenant().uuid(), principal_names(principals));
        let find = || {
            let granted = asset_grant::tenant_id.eq(tenant).and(asset_grant::principal.eq_any(principals.clone()));
            diesel::select(diesel::dsl::exists(asset_grant::table.filter(granted)))
        };
        Ok(self.first("any asset grant", find).await?.unwrap_or(false))
    }

    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<AssetGrant>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        static GRANT: GuardedCommit = GuardedCommit::new(
            "inserted_asset_grant AS (
                INSERT INTO asset_grant (tenant_id, grant_id, asset_id, principal, grantee_workspace_id, created_at,
                    created_by)
                SELECT tenant_id, grant_id, asset_id, principal, grantee_workspace_id, created_at, created_by FROM input
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM inserted_asset_grant)",
        );
        let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
        let (principal, workspace) = match &next.grantee {
            Grantee::Principal(principal) => (Some(principal.to_string()), None),
            Grantee::Workspace(id) => (None, Some(id.uuid())),
        };
        let input = Input::new(scope)
            .with("grant_id", next.grant_id.uuid())
            .with("asset_id", next.asset_id.uuid())
            .with("principal", principal)
            .with("grantee_workspace_id", workspace)
            .with("created_at", next.created_at.to_datetime())
            .with("created_by", next.created_by.to_string());
        self.commit_guarded(&GRANT, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_revocation(&self, scope: TenantScope, id: AssetGrantId, fact: Fact) -> Result<(), CommitError> {
        static REVOKE: GuardedCommit = GuardedCommit::new(
            "ended AS (
                DELETE FROM asset_grant USING input
                WHERE asset_grant.tenant_id = input.tenant_id AND asset_grant.grant_id = input.grant_id
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM ended)",
        );
        let input = Input::new(scope).with("grant_id", id.uuid());
        self.commit_guarded(&REVOKE, scope, &fact, None, input).await.map(|_| ())
    }
}
