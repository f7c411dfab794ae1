//! Tenants and workspaces.

use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::Database,
    guarded::{Guarded, Input},
    pagination::{ListQuery, RowBytes, SortKey, Values},
    row::{RowExt, decode},
    workload::with_workload,
};
use async_trait::async_trait;
use fairway_domain::{
    id::{TenantId, WorkspaceId},
    idempotency::KeyedOutcome,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::{
        MAX_PUBLIC_HOSTS, NewWorkspace, Tenant, TenantRecord, TenantScope, TenantSettings, TenantStore, Workspace,
        WorkspaceRecord, WorkspaceStore,
    },
};
use tokio_postgres::Row;

const TENANT_COLUMNS: &str = "tenant_id, slug, name, notifications_enabled, advanced_notifications_enabled, \
    public_hosts, revision, created_at, created_by";

fn tenant(row: &Row) -> Result<Tenant, StoreError> {
    Ok(Tenant::restore(TenantRecord {
        tenant_id: row.id("tenant_id")?,
        slug: row.slug("slug")?,
        name: row.column("name")?,
        settings: TenantSettings {
            notifications_enabled: row.column("notifications_enabled")?,
            advanced_notifications_enabled: row.column("advanced_notifications_enabled")?,
            public_hosts: row.column("public_hosts")?,
        },
        created_at: row.timestamp("created_at")?,
        created_by: row.actor("created_by")?,
        revision: row.revision("revision")?,
    }))
}

#[async_trait]
impl TenantStore for Database {
    async fn find(&self, scope: TenantScope) -> Result<Option<Tenant>, StoreError> {
        let sql = format!("SELECT {TENANT_COLUMNS} FROM tenant WHERE tenant_id = $1");
        self.read_one(&sql, &[&scope.tenant().uuid()]).await?.as_ref().map(tenant).transpose()
    }

    async fn list(&self, page: PageRequest) -> Result<Page<Tenant>, StoreError> {
        let all = vec!["true".to_owned()];
        let key = SortKey::Id("tenant_id", "tenant_id");
        self.fetch_page(
            ListQuery::single(
                TENANT_COLUMNS,
                key,
                "FROM tenant",
                RowBytes::Measured { sql: "octet_length(public_hosts::text)", largest: MAX_PUBLIC_HOSTS * 256 },
                all,
                Values::default(),
            ),
            page,
            tenant,
        )
        .await
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Tenant>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH log AS (INSERT INTO fact_log (tenant_id, size) VALUES ($20, 0)),
             made AS (
                INSERT INTO tenant (tenant_id, slug, name, notifications_enabled, advanced_notifications_enabled,
                    public_hosts, revision, created_at, created_by)
                VALUES ($20, $13, $14, $15, $16, '{}', $17, $18, $19)
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM made), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, decided_on: _, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, key);
        let id = next.tenant_id.uuid();
        let slug = next.slug.as_str();
        let (revision, at, by) = (next.revision.get(), next.created_at.to_datetime(), next.created_by.to_string());
        let settings = &next.settings;
        self.commit(
            SQL,
            &tail.with(&[
                &slug,
                &next.name,
                &settings.notifications_enabled,
                &settings.advanced_notifications_enabled,
                &revision,
                &at,
                &by,
                &id,
            ]),
        )
        .await
        .map(|_| ())
    }

    async fn find_by_host(&self, host: &str) -> Result<Option<TenantId>, StoreError> {
        const SQL: &str = "SELECT tenant_id FROM tenant_public_host WHERE host = $1";
        self.read_one(SQL, &[&host]).await?.map(|row| row.id("tenant_id")).transpose()
    }

    async fn commit_settings(&self, scope: TenantScope, change: Change<Tenant>) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH seen AS (
                SELECT public_hosts FROM tenant WHERE tenant_id = $1 AND revision = $13 FOR UPDATE
             ),
             left_behind AS (
                DELETE FROM tenant_public_host USING seen
                WHERE tenant_id = $1 AND NOT host = ANY($17)
             ),
             taken AS (
                INSERT INTO tenant_public_host (host, tenant_id)
                SELECT DISTINCT host, $1::uuid FROM seen, unnest($17::text[]) AS host
                WHERE NOT host = ANY(seen.public_hosts)
             ),
             changed AS (
                UPDATE tenant SET revision = $14, notifications_enabled = $15, advanced_notifications_enabled = $16,
                    public_hosts = $17
                FROM seen WHERE tenant_id = $1
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM changed), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, decided_on, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, None);
        let seen = decided_on.unwrap_or(next.revision).get();
        let settings = &next.settings;
        let revision = next.revision.get();
        self.commit(
            SQL,
            &tail.with(&[
                &seen,
                &revision,
                &settings.notifications_enabled,
                &settings.advanced_notifications_enabled,
                &settings.public_hosts,
            ]),
        )
        .await
        .map(|_| ())
    }
}

const WORKSPACE_COLUMNS: &str = "workspace.workspace_id, workspace.slug, workspace.name, workspace.namespace_id, \
    namespace.slug AS namespace, workspace.created_at, workspace.created_by";

fn workspace(row: &Row) -> Result<Workspace, StoreError> {
    Ok(Workspace::restore(WorkspaceRecord {
        workspace_id: row.id("workspace_id")?,
        slug: row.slug("slug")?,
        name: row.column("name")?,
        namespace_id: row.id("namespace_id")?,
        namespace: row.slug("namespace")?,
        created_at: row.timestamp("created_at")?,
        created_by: row.actor("created_by")?,
    }))
}

#[async_trait]
impl WorkspaceStore for Database {
    async fn find(&self, scope: TenantScope, id: WorkspaceId) -> Result<Option<Workspace>, StoreError> {
        let sql = format!(
            "SELECT {WORKSPACE_COLUMNS} FROM workspace JOIN namespace USING (tenant_id, namespace_id)
             WHERE workspace.tenant_id = $1 AND workspace_id = $2"
        );
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &id.uuid()]).await?;
        row.as_ref().map(workspace).transpose()
    }

    async fn list(&self, scope: TenantScope, page: PageRequest) -> Result<Page<Workspace>, StoreError> {
        const FROM: &str = "FROM workspace JOIN namespace USING (tenant_id, namespace_id)";
        let mut values = Values::default();
        let conditions = vec![format!("workspace.tenant_id = {}", values.bind(scope.tenant().uuid()))];
        let key = SortKey::Id("workspace.workspace_id", "workspace_id");
        self.fetch_page(
            ListQuery::single(WORKSPACE_COLUMNS, key, FROM, RowBytes::Small, conditions, values),
            page,
            workspace,
        )
        .await
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<NewWorkspace>,
        key: Option<&KeyedOutcome>,
    ) -> Result<Workspace, CommitError> {
        // An existing namespace keeps its identifier. The no-op update makes a concurrent first use wait and then find
        // the row.
        static CREATE: Guarded = Guarded::returning(
            "home AS (
                INSERT INTO namespace (tenant_id, namespace_id, slug)
                SELECT tenant_id, new_namespace_id, namespace_slug FROM input
                ON CONFLICT (tenant_id, slug) DO UPDATE SET slug = excluded.slug
                RETURNING namespace_id
             ),
             made AS (
                INSERT INTO workspace (tenant_id, workspace_id, namespace_id, slug, name, created_at, created_by)
                SELECT tenant_id, workspace_id, home.namespace_id, workspace_slug, workspace_name, created_at, created_by
                FROM input, home
                RETURNING namespace_id
             ),
             assistant AS (
                INSERT INTO workload (tenant_id, workload_id, slug, name, description, owner_ref, status,
                    invocation_mode, revision, management_source, interface_config, search, workspace_id, created_at,
                    created_by, updated_at)
                SELECT tenant_id, workload_id, slug, name, description, owner_ref, status, invocation_mode, revision,
                    management_source, interface_config, array_to_tsvector(words), workspace_id, created_at, created_by,
                    created_at
                FROM input, made
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM assistant)",
            "(SELECT namespace_id FROM made) AS namespace_id",
        );
        let ChangeRecord { next: NewWorkspace { workspace, assistant }, decided_on: _, fact } = change.into_record();
        let input = Input::new(scope)
            .with("new_namespace_id", workspace.namespace_id.uuid())
            .with("namespace_slug", workspace.namespace.as_str())
            .with("workspace_slug", workspace.slug.as_str())
            .with("workspace_name", workspace.name.as_str());
        let rows = self.commit_guarded(&CREATE, scope, &fact, key, with_workload(input, scope, &assistant)).await?;
        let namespace_id = decode("namespace_id", rows.first())?.id("namespace_id")?;
        Ok(Workspace::restore(WorkspaceRecord { namespace_id, ..workspace.into_record() }))
    }
}
