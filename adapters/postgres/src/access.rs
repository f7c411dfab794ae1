//! Role bindings, and the access data of a principal.

mod principal_binding;

use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::Database,
    pagination::{ListQuery, RowBytes, SortKey, Values},
    row::{RowExt, decode, parse_json},
};
use async_trait::async_trait;
use fairway_domain::{
    access::{
        AccessStore, ActorRef, Grant, GrantScope, LaneBinding, PrincipalAccess, ResourceScope, Role, RoleBinding,
        RoleBindingRecord,
    },
    audit::Fact,
    id::{RoleBindingId, TenantId, WorkspaceId},
    idempotency::KeyedOutcome,
    release::lane::Lane,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::{DEFAULT_TENANT, TenantScope},
};
use serde::Deserialize;
use tokio_postgres::Row;
use uuid::Uuid;

#[derive(Deserialize)]
struct GrantRow {
    role: String,
    scope_kind: String,
    scope_ref: Option<Uuid>,
}

fn grant(row: &GrantRow) -> Result<Grant, StoreError> {
    let role = decode("role", Role::parse(&row.role))?;
    Ok(Grant::of(role, decode("scope_kind", GrantScope::from_parts(&row.scope_kind, row.scope_ref))?))
}

#[derive(Deserialize)]
struct LaneRow {
    principal: String,
    workload_id: Uuid,
    lane: Lane,
}

fn bound_lane(row: LaneRow) -> Result<LaneBinding, StoreError> {
    let principal = decode("principal", ActorRef::parse(&row.principal).ok())?;
    Ok(LaneBinding { principal, workload_id: row.workload_id.into(), lane: row.lane })
}

fn binding(row: &Row) -> Result<RoleBinding, StoreError> {
    let scope_kind: &str = row.column("scope_kind")?;
    Ok(RoleBinding::restore(RoleBindingRecord {
        role_binding_id: row.id("role_binding_id")?,
        principal: row.actor("principal")?,
        role: row.parsed("role", Role::parse)?,
        scope: decode("scope_kind", GrantScope::from_parts(scope_kind, row.column("scope_ref")?))?,
        created_at: row.timestamp("created_at")?,
        created_by: row.actor("created_by")?,
    }))
}

const BINDING_COLUMNS: &str = "role_binding_id, principal, role, scope_kind, scope_ref, created_at, created_by";

#[async_trait]
impl AccessStore for Database {
    async fn load_principal(
        &self,
        tenant: Option<TenantId>,
        principals: &[ActorRef],
    ) -> Result<Option<PrincipalAccess>, StoreError> {
        // The home tenant: the requested one, else the default tenant if the bindings name it, else the first that
        // they name, else the default tenant.
        const SQL: &str = "
            WITH home AS (
                SELECT coalesce($1, (
                    SELECT tenant_id FROM role_binding WHERE principal = ANY($2)
                    ORDER BY (tenant_id = $3) DESC, tenant_id LIMIT 1
                ), $3) AS tenant_id
            )
            SELECT tenant.tenant_id, tenant.access_revision,
                EXISTS (SELECT FROM bound_principal WHERE principal = ANY($2)) AS ever_bound,
                (
                    SELECT coalesce(json_agg(json_build_object(
                        'role', role, 'scope_kind', scope_kind, 'scope_ref', scope_ref)), '[]')::text
                    FROM role_binding
                    WHERE principal = ANY($2) AND (role_binding.tenant_id = tenant.tenant_id OR scope_kind = 'platform')
                ) AS grants,
                (
                    SELECT coalesce(json_agg(json_build_object(
                        'principal', principal, 'workload_id', workload_id, 'lane', lane)), '[]')::text
                    FROM principal_binding
                    WHERE principal_binding.tenant_id = tenant.tenant_id AND principal = ANY($2) AND lane IS NOT NULL
                ) AS lanes
            FROM home JOIN tenant USING (tenant_id)";
        let names: Vec<String> = principals.iter().map(ToString::to_string).collect();
        let tenant = tenant.map(TenantId::uuid);
        let Some(row) = self.read_one(SQL, &[&tenant, &names, &DEFAULT_TENANT]).await? else {
            return Ok(None);
        };
        let grants: Vec<GrantRow> = parse_json(row.column("grants")?)?;
        let lanes: Vec<LaneRow> = parse_json(row.column("lanes")?)?;
        Ok(Some(PrincipalAccess {
            tenant: row.id("tenant_id")?,
            ever_bound: row.column("ever_bound")?,
            grants: grants.iter().map(grant).collect::<Result<_, _>>()?,
            lanes: lanes.into_iter().map(bound_lane).collect::<Result<_, _>>()?,
            access_revision: row.revision("access_revision")?,
        }))
    }

    async fn access_revision(&self, tenant: TenantId) -> Result<Option<Revision>, StoreError> {
        self.access_revisions.load(tenant).await
    }

    async fn resolve_scope(&self, scope: TenantScope, grant: &GrantScope) -> Result<Option<ResourceScope>, StoreError> {
        let tenant = scope.tenant();
        let found = |row: Option<Row>| -> Result<Option<ResourceScope>, StoreError> {
            let Some(row) = row else { return Ok(None) };
            let namespace = row.optional_id("namespace_id")?;
            let workspace = row.optional_id("workspace_id")?;
            Ok(Some(ResourceScope { tenant: Some(tenant), namespace, workspace, workload: None }))
        };
        match grant {
            GrantScope::Platform => Ok(Some(ResourceScope::PLATFORM)),
            GrantScope::Tenant(id) => Ok((*id == tenant).then(|| ResourceScope::tenant(tenant))),
            GrantScope::Namespace(id) => {
                let sql = "SELECT namespace_id, NULL::uuid AS workspace_id FROM namespace
                    WHERE tenant_id = $1 AND namespace_id = $2";
                found(self.read_one(sql, &[&tenant.uuid(), &id.uuid()]).await?)
            }
            GrantScope::Workspace(id) => {
                let sql = "SELECT namespace_id, workspace_id FROM workspace
                    WHERE tenant_id = $1 AND workspace_id = $2";
                found(self.read_one(sql, &[&tenant.uuid(), &id.uuid()]).await?)
            }
            GrantScope::Workload(id) => {
                let sql =
                    "SELECT namespace_id, workspace_id FROM workload JOIN workspace USING (tenant_id, workspace_id)
                    WHERE tenant_id = $1 AND workload_id = $2";
                let place = found(self.read_one(sql, &[&tenant.uuid(), &id.uuid()]).await?)?;
                Ok(place.map(|place| place.for_workload(*id)))
            }
        }
    }

    async fn find(&self, scope: TenantScope, id: RoleBindingId) -> Result<Option<RoleBinding>, StoreError> {
        let sql = format!("SELECT {BINDING_COLUMNS} FROM role_binding WHERE tenant_id = $1 AND role_binding_id = $2");
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &id.uuid()]).await?;
        row.as_ref().map(binding).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        workspace: Option<WorkspaceId>,
        page: PageRequest,
    ) -> Result<Page<RoleBinding>, StoreError> {
        let mut values = Values::default();
        let mut conditions = vec![format!("tenant_id = {}", values.bind(scope.tenant().uuid()))];
        if let Some(workspace) = workspace {
            let workspace = values.bind(workspace.uuid());
            conditions.push(format!("scope_kind = 'workspace' AND scope_ref = {workspace}"));
        }
        let key = SortKey::Id("role_binding_id", "role_binding_id");
        self.fetch_page(
            ListQuery::single(BINDING_COLUMNS, key, "FROM role_binding", RowBytes::Small, conditions, values),
            page,
            binding,
        )
        .await
    }

    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<RoleBinding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        // Other tenants' access revisions change too. The first role of a local actor removes its rights in the
        // default tenant, and a further role may change its home tenant.
        const SQL: &str = concat!(
            "WITH made AS (
                INSERT INTO role_binding (tenant_id, role_binding_id, principal, role, scope_kind, scope_ref,
                    created_at, created_by)
                VALUES ($1, $13, $14, $15, $16, $17, $18, $19)
                RETURNING 1
             ),
             known AS (INSERT INTO bound_principal (principal) VALUES ($14) ON CONFLICT DO NOTHING),
             locked AS (
                SELECT tenant_id FROM tenant
                WHERE tenant_id IN ($1, $20) OR $16 = 'platform'
                    OR tenant_id IN (SELECT tenant_id FROM role_binding WHERE principal = $14)
                ORDER BY tenant_id FOR NO KEY UPDATE
             ),
             raised AS (
                UPDATE tenant SET access_revision = access_revision + 1 FROM locked
                WHERE tenant.tenant_id = locked.tenant_id
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM made), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, decided_on: _, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, key);
        let (id, principal, role) = (next.role_binding_id.uuid(), next.principal.to_string(), next.role.as_str());
        let (kind, reference) = (next.scope.kind(), next.scope.reference());
        let (at, by) = (next.created_at.to_datetime(), next.created_by.to_string());
        let own = tail.with(&[&id, &principal, &role, &kind, &reference, &at, &by, &DEFAULT_TENANT]);
        self.commit(SQL, &own).await.map(|_| ())
    }

    async fn commit_revocation(&self, scope: TenantScope, id: RoleBindingId, fact: Fact) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH ended AS (
                DELETE FROM role_binding WHERE tenant_id = $1 AND role_binding_id = $13 RETURNING scope_kind
             ),
             locked AS (
                SELECT tenant_id FROM tenant
                WHERE tenant_id = $1 OR EXISTS (SELECT FROM ended WHERE scope_kind = 'platform')
                ORDER BY tenant_id FOR NO KEY UPDATE
             ),
             raised AS (
                UPDATE tenant SET access_revision = access_revision + 1 FROM locked
                WHERE tenant.tenant_id = locked.tenant_id
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM ended), ",
            commit_tail!(),
            ")"
        );
        let tail = CommitParams::new(scope, &fact, None);
        self.commit(SQL, &tail.with(&[&id.uuid()])).await.map(|_| ())
    }
}
