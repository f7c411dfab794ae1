//! Role bindings, and the roles and lanes that a principal's bindings grant.

mod identity;
mod principal_binding;
pub(crate) mod session;

use crate::{
    database::{Database, PageBounds, StoredRow},
    guarded_commit::{GuardedCommit, Input, Query},
    row::{parse_json, require_decoded},
    schema::{namespace, role_binding, workload, workspace},
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, IntoSql as _, JoinOnDsl as _, QueryDsl as _, Queryable,
    Selectable, SelectableHelper as _, pg::Pg, sql_types::Bool,
};
use fairway_domain::{
    access::{
        AccessStore, ActorNameScope, ActorRef, CallerAccess, Grant, GrantScope, LaneBinding, ResourcePosition, Role,
        RoleBinding, RoleBindingRecord,
    },
    audit::Fact,
    id::{RoleBindingId, TenantId, WorkspaceId},
    idempotency::KeyedOutcome,
    release::lane::Lane,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::{DEFAULT_TENANT_ID, TenantScope},
    time::Timestamp,
};
use serde::Deserialize;
use time::OffsetDateTime;
use uuid::Uuid;

#[derive(Deserialize)]
struct GrantRow {
    role: String,
    scope_kind: String,
    scope_ref: Option<Uuid>,
}

fn grant(row: &GrantRow) -> Result<Grant, StoreError> {
    let role = require_decoded("role", Role::parse(&row.role))?;
    Ok(Grant::of_role(role, require_decoded("scope_kind", GrantScope::from_parts(&row.scope_kind, row.scope_ref))?))
}

#[derive(Deserialize)]
struct LaneRow {
    principal: String,
    workload_id: Uuid,
    lane: Lane,
}

fn bound_lane(row: LaneRow) -> Result<LaneBinding, StoreError> {
    let principal = require_decoded("principal", ActorRef::parse(&row.principal).ok())?;
    Ok(LaneBinding { principal, workload_id: row.workload_id.into(), lane: row.lane })
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = role_binding, check_for_backend(Pg))]
struct StoredRoleBinding {
    role_binding_id: Uuid,
    principal: String,
    role: String,
    scope_kind: String,
    scope_ref: Option<Uuid>,
    created_at: OffsetDateTime,
    created_by: String,
}

impl StoredRow for StoredRoleBinding {
    type Value = RoleBinding;

    fn id(&self) -> Uuid {
        self.role_binding_id
    }

    fn into_value(self) -> Result<RoleBinding, StoreError> {
        Ok(RoleBinding::restore(RoleBindingRecord {
            role_binding_id: self.role_binding_id.into(),
            principal: require_decoded("principal", ActorRef::parse(&self.principal).ok())?,
            role: require_decoded("role", Role::parse(&self.role))?,
            scope: require_decoded("scope_kind", GrantScope::from_parts(&self.scope_kind, self.scope_ref))?,
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
        }))
    }
}

/// The CTE that increments the access revisions of the tenants in the CTE `changed_tenant`. A CTE of several tenants must
/// lock them in the order of their identifiers.
pub(crate) const INCREMENT_ACCESS_REVISIONS: &str = "
     updated_tenant AS (
        UPDATE tenant SET access_revision = access_revision + 1 FROM changed_tenant
        WHERE tenant.tenant_id = changed_tenant.tenant_id
     )";

#[async_trait]
impl AccessStore for Database {
    async fn load_principal(
        &self,
        tenant: Option<TenantId>,
        principals: &[ActorRef],
        names: ActorNameScope,
    ) -> Result<Option<CallerAccess>, StoreError> {
        // The home tenant is the requested tenant if the request names one. Otherwise it is the default tenant if the
        // principals have a role binding there. If they have none there, it is the first tenant in which they have one.
        // Without any role binding, it is the default tenant.
        static LOAD: Query = Query::new(
            "home AS (
                SELECT coalesce(wanted_tenant, (
                    SELECT tenant_id FROM role_binding WHERE principal = ANY(principals)
                    ORDER BY (tenant_id = default_tenant) DESC, tenant_id LIMIT 1
                ), default_tenant) AS tenant_id, principals, names_are_global
                FROM input
            )
            SELECT tenant.tenant_id, tenant.access_revision,
                EXISTS (SELECT FROM bound_principal WHERE principal = ANY(principals)) AS ever_bound,
                (
                    SELECT coalesce(json_agg(json_build_object(
                        'role', role, 'scope_kind', scope_kind, 'scope_ref', scope_ref)), '[]')::text
                    FROM role_binding
                    WHERE principal = ANY(principals)
                        AND (role_binding.tenant_id = tenant.tenant_id OR (names_are_global AND scope_kind = 'platform'))
                ) AS grants,
                (
                    SELECT coalesce(json_agg(json_build_object(
                        'principal', principal, 'workload_id', workload_id, 'lane', lane)), '[]')::text
                    FROM principal_binding
                    WHERE principal_binding.tenant_id = tenant.tenant_id AND principal = ANY(principals)
                        AND lane IS NOT NULL
                ) AS lanes
            FROM home JOIN tenant USING (tenant_id)",
        );
        let input = Input::one()
            .with("wanted_tenant", tenant.map(TenantId::uuid))
            .with("default_tenant", DEFAULT_TENANT_ID)
            .with("names_are_global", names == ActorNameScope::Installation)
            .with_list("principals", principals.iter().map(ToString::to_string).collect());
        let Some(row) = self.fetch_one(&LOAD, input).await? else { return Ok(None) };
        let grants: Vec<GrantRow> = parse_json(row.column("grants")?)?;
        let lanes: Vec<LaneRow> = parse_json(row.column("lanes")?)?;
        Ok(Some(CallerAccess {
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

    async fn resolve_scope(
        &self,
        scope: TenantScope,
        grant: &GrantScope,
    ) -> Result<Option<ResourcePosition>, StoreError> {
        let tenant = scope.tenant();
        let tenant_id = tenant.uuid();
        let position = |namespace: Uuid, workspace: Option<Uuid>| ResourcePosition {
            tenant: Some(tenant),
            namespace: Some(namespace.into()),
            workspace: workspace.map(Into::into),
            workload: None,
        };
        match grant {
            GrantScope::Platform => Ok(Some(ResourcePosition::INSTALLATION)),
            GrantScope::Tenant(id) => Ok((*id == tenant).then(|| ResourcePosition::tenant(tenant))),
            GrantScope::Namespace(id) => {
                let key = (tenant_id, id.uuid());
                let find = || namespace::table.find(key).select(namespace::namespace_id);
                let found: Option<Uuid> = self.first("namespace", find).await?;
                Ok(found.map(|namespace| position(namespace, None)))
            }
            GrantScope::Workspace(id) => {
                let key = (tenant_id, id.uuid());
                let find = || workspace::table.find(key).select((workspace::namespace_id, workspace::workspace_id));
                let found: Option<(Uuid, Uuid)> = self.first("workspace of a grant", find).await?;
                Ok(found.map(|(namespace, workspace)| position(namespace, Some(workspace))))
            }
            GrantScope::Workload(id) => {
                let key = (tenant_id, id.uuid());
                let find = || {
                    let of_workload = workspace::tenant_id
                        .eq(workload::tenant_id)
                        .and(workspace::workspace_id.eq(workload::workspace_id));
                    workload::table
                        .inner_join(workspace::table.on(of_workload))
                        .filter(workload::tenant_id.eq(key.0).and(workload::workload_id.eq(key.1)))
                        .select((workspace::namespace_id, workspace::workspace_id))
                };
                let found: Option<(Uuid, Uuid)> = self.first("workspace of a workload", find).await?;
                Ok(found.map(|(namespace, workspace)| position(namespace, Some(workspace)).for_workload(*id)))
            }
        }
    }

    async fn bindings_of(
        &self,
        scope: TenantScope,
        principals: &[ActorRef],
        names: ActorNameScope,
    ) -> Result<Vec<RoleBinding>, StoreError> {
        let tenant = scope.tenant().uuid();
        let principals: Vec<String> = principals.iter().map(ToString::to_string).collect();
        let names_are_global = names == ActorNameScope::Installation;
        let find = || {
            let on_platform = role_binding::scope_kind.eq("platform").and(names_are_global.into_sql::<Bool>());
            role_binding::table
                .filter(role_binding::principal.eq_any(principals.clone()))
                .filter(role_binding::tenant_id.eq(tenant).or(on_platform))
                .order(role_binding::role_binding_id)
                .select(StoredRoleBinding::as_select())
        };
        let rows: Vec<StoredRoleBinding> = self.load("bindings of principals", find).await?;
        rows.into_iter().map(StoredRoleBinding::into_value).collect()
    }

    async fn find(&self, scope: TenantScope, id: RoleBindingId) -> Result<Option<RoleBinding>, StoreError> {
        let key = (scope.tenant().uuid(), id.uuid());
        let find = || {
            role_binding::table
                .filter(role_binding::tenant_id.eq(key.0).and(role_binding::role_binding_id.eq(key.1)))
                .select(StoredRoleBinding::as_select())
        };
        self.first("role binding", find).await?.map(StoredRoleBinding::into_value).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        workspace: Option<WorkspaceId>,
        page: PageRequest,
    ) -> Result<Page<RoleBinding>, StoreError> {
        let (tenant, workspace) = (scope.tenant().uuid(), workspace.map(WorkspaceId::uuid));
        let all = || {
            let of_tenant = role_binding::table.filter(role_binding::tenant_id.eq(tenant)).into_boxed::<'static, Pg>();
            match workspace {
                None => of_tenant,
                Some(id) => {
                    of_tenant.filter(role_binding::scope_kind.eq("workspace").and(role_binding::scope_ref.eq(id)))
                }
            }
        };
        let rows = |bounds: PageBounds| {
            let newest = all()
                .select(StoredRoleBinding::as_select())
                .order(role_binding::role_binding_id.desc())
                .limit(bounds.limit)
                .offset(bounds.offset);
            match bounds.after {
                None => newest,
                Some(id) => newest.filter(role_binding::role_binding_id.lt(id)),
            }
        };
        let ids = || all().select(role_binding::role_binding_id);
        self.typed_page("list of role bindings", page, ids, rows).await
    }

    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<RoleBinding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        // A grant also increments the access revisions of other tenants. The first role binding of a local actor
        // removes the actor's implicit rights in the default tenant. A further role binding may change the actor's home
        // tenant.
        static GRANT: GuardedCommit = GuardedCommit::of_parts(
            &[
                "inserted_role_binding AS (
                    INSERT INTO role_binding (tenant_id, role_binding_id, principal, role, scope_kind, scope_ref,
                        created_at, created_by)
                    SELECT tenant_id, role_binding_id, principal, role, scope_kind, scope_ref, created_at, created_by
                    FROM input
                    RETURNING 1
                 ),
                 recorded AS (
                    INSERT INTO bound_principal (principal) SELECT principal FROM input ON CONFLICT DO NOTHING
                 ),
                 changed_tenant AS (
                    SELECT tenant.tenant_id FROM tenant, input
                    WHERE tenant.tenant_id IN (input.tenant_id, default_tenant) OR input.scope_kind = 'platform'
                        OR tenant.tenant_id IN (
                            SELECT bound.tenant_id FROM role_binding AS bound WHERE bound.principal = input.principal)
                    ORDER BY tenant.tenant_id FOR NO KEY UPDATE OF tenant
                 ),",
                INCREMENT_ACCESS_REVISIONS,
            ],
            "(SELECT count(*) = 1 FROM inserted_role_binding)",
            "",
        );
        let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
        let input = Input::new(scope)
            .with("role_binding_id", next.role_binding_id.uuid())
            .with("principal", next.principal.to_string())
            .with("role", next.role.as_str())
            .with("scope_kind", next.scope.kind())
            .with("scope_ref", next.scope.reference())
            .with("created_at", next.created_at.to_datetime())
            .with("created_by", next.created_by.to_string())
            .with("default_tenant", DEFAULT_TENANT_ID);
        self.commit_guarded(&GRANT, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_revocation(&self, scope: TenantScope, id: RoleBindingId, fact: Fact) -> Result<(), CommitError> {
        static REVOKE: GuardedCommit = GuardedCommit::of_parts(
            &[
                "ended AS (
                    DELETE FROM role_binding USING input
                    WHERE role_binding.tenant_id = input.tenant_id
                        AND role_binding.role_binding_id = input.role_binding_id
                    RETURNING scope_kind
                 ),
                 changed_tenant AS (
                    SELECT tenant.tenant_id FROM tenant, input
                    WHERE tenant.tenant_id = input.tenant_id OR EXISTS (SELECT FROM ended WHERE scope_kind = 'platform')
                    ORDER BY tenant.tenant_id FOR NO KEY UPDATE OF tenant
                 ),",
                INCREMENT_ACCESS_REVISIONS,
            ],
            "(SELECT count(*) = 1 FROM ended)",
            "",
        );
        let input = Input::new(scope).with("role_binding_id", id.uuid());
        self.commit_guarded(&REVOKE, scope, &fact, None, input).await.map(|_| ())
    }
}
