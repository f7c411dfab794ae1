//! Workloads.

use crate::{
    asset::ReachParams,
    database::{Database, Param},
    guarded::{Tail, commit_tail},
    row::{Columns, count},
};
use async_trait::async_trait;
use fairway_domain::{
    id::{WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    store::{Change, CommitError, Paging, StoreError},
    tenant::TenantScope,
    workload::{InvocationMode, Status, Workload, WorkloadFilter, WorkloadStore},
};
use tokio_postgres::Row;

pub(crate) const WORKLOAD_COLUMNS: &str = "workload.workload_id, workload.slug, workload.name, workload.description, \
    workload.owner_ref, workload.status, workload.invocation_mode, workload.workspace_id, workspace.namespace_id, \
    workload.revision, workload.created_at, workload.created_by, workload.updated_at";

pub(crate) fn workload(row: &Row) -> Result<Workload, StoreError> {
    Ok(Workload {
        workload_id: row.id("workload_id")?,
        slug: row.slug("slug")?,
        name: row.column("name")?,
        description: row.column("description")?,
        owner_ref: row.owner("owner_ref")?,
        status: row.spelled("status", Status::parse)?,
        invocation_mode: row.spelled("invocation_mode", InvocationMode::parse)?,
        workspace_id: row.id("workspace_id")?,
        namespace_id: row.id("namespace_id")?,
        created_at: row.moment("created_at")?,
        created_by: row.actor("created_by")?,
        updated_at: row.moment("updated_at")?,
        revision: row.revision("revision")?,
    })
}

#[async_trait]
impl WorkloadStore for Database {
    async fn find(&self, scope: TenantScope, id: WorkloadId) -> Result<Option<Workload>, StoreError> {
        let sql = format!(
            "SELECT {WORKLOAD_COLUMNS} FROM workload JOIN workspace USING (tenant_id, workspace_id)
             WHERE tenant_id = $1 AND workload_id = $2"
        );
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &id.uuid()]).await?;
        row.as_ref().map(workload).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        filter: &WorkloadFilter,
        page: Paging,
    ) -> Result<(Vec<Workload>, u64), StoreError> {
        const WHERE: &str = "FROM workload JOIN workspace USING (tenant_id, workspace_id) WHERE tenant_id = $1
            AND ($2::uuid IS NULL OR workspace_id = $2)
            AND ($3::text IS NULL OR status = $3)
            AND ($4 OR namespace_id = ANY($5) OR workspace_id = ANY($6) OR workload_id = ANY($7))";
        let tenant = scope.tenant().uuid();
        let workspace = filter.workspace.map(WorkspaceId::uuid);
        let status = filter.status.map(Status::as_str);
        let reach = ReachParams::new(filter.reach.as_ref());
        let (limit, offset) = (i64::from(page.limit), i64::from(page.offset));
        let mut params: Vec<Param<'_>> =
            vec![&tenant, &workspace, &status, &reach.all, &reach.namespaces, &reach.workspaces, &reach.workloads];
        let counted = format!("SELECT count(*) FROM (SELECT {WHERE} LIMIT 10001) AS few");
        let total = count(&self.list(&counted, &params).await?)?;
        params.extend_from_slice(&[&limit, &offset]);
        let sql = format!("SELECT {WORKLOAD_COLUMNS} {WHERE} ORDER BY workload_id DESC LIMIT $8 OFFSET $9");
        let rows = self.list(&sql, &params).await?;
        Ok((rows.iter().map(workload).collect::<Result<_, _>>()?, total))
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Workload>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH made AS (
                INSERT INTO workload (tenant_id, workload_id, slug, name, description, owner_ref, status,
                    invocation_mode, workspace_id, revision, created_at, created_by, updated_at)
                VALUES ($1, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $22)
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM made), ",
            commit_tail!(),
            ")"
        );
        let Change { next, decided_on: _, fact } = change;
        let tail = Tail::new(scope, &fact, key);
        let (id, slug, owner) = (next.workload_id.uuid(), next.slug.as_str(), next.owner_ref.as_str());
        let (status, mode) = (next.status.as_str(), next.invocation_mode.as_str());
        let (workspace, revision) = (next.workspace_id.uuid(), next.revision.get());
        let (at, by) = (next.created_at.moment(), next.created_by.to_string());
        let own: [Param<'_>; 11] =
            [&id, &slug, &next.name, &next.description, &owner, &status, &mode, &workspace, &revision, &at, &by];
        self.commit(SQL, &tail.with(&own)).await.map(|_| ())
    }

    async fn commit(&self, scope: TenantScope, change: Change<Workload>) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH changed AS (
                UPDATE workload SET name = $15, description = $16, owner_ref = $17, status = $18,
                    invocation_mode = $19, revision = $20, updated_at = $21
                WHERE tenant_id = $1 AND workload_id = $13 AND revision = $14
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM changed), ",
            commit_tail!(),
            ")"
        );
        let Change { next, decided_on, fact } = change;
        let tail = Tail::new(scope, &fact, None);
        let (id, seen) = (next.workload_id.uuid(), decided_on.unwrap_or(next.revision).get());
        let (owner, status) = (next.owner_ref.as_str(), next.status.as_str());
        let (mode, revision, at) = (next.invocation_mode.as_str(), next.revision.get(), next.updated_at.moment());
        let own: [Param<'_>; 9] = [&id, &seen, &next.name, &next.description, &owner, &status, &mode, &revision, &at];
        Self::commit(self, SQL, &tail.with(&own)).await.map(|_| ())
    }
}
