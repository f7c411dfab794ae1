//! Workloads.

use crate::{
    asset::ReachParams,
    database::{Database, Param},
    guarded::{Tail, commit_tail},
    row::{Columns, count, known},
};
use async_trait::async_trait;
use fairway_domain::{
    access::OwnerRef,
    id::{WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    search::Words,
    slug::Slug,
    store::{Change, CommitError, Paging, StoreError},
    tenant::TenantScope,
    workload::{
        InvocationMode, Status, Workload,
        interface::{InterfaceConfig, PresentationMode},
        ports::{RuntimeFilter, WorkloadFilter, WorkloadStore},
    },
};
use serde_json::Value;
use tokio_postgres::Row;

pub(crate) const WORKLOAD_COLUMNS: &str = "workload.workload_id, workload.slug, workload.name, workload.description, \
    workload.owner_ref, workload.status, workload.invocation_mode, workload.interface_config, workload.workspace_id, workspace.namespace_id, \
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
        interface_config: interface(row)?,
        workspace_id: row.id("workspace_id")?,
        namespace_id: row.id("namespace_id")?,
        created_at: row.moment("created_at")?,
        created_by: row.actor("created_by")?,
        updated_at: row.moment("updated_at")?,
        revision: row.revision("revision")?,
    })
}

fn interface(row: &Row) -> Result<Option<InterfaceConfig>, StoreError> {
    let document: Option<Value> = row.column("interface_config")?;
    let read = |document| known("interface_config", serde_json::from_value(document).ok());
    document.map(read).transpose()
}

/// A tenant's words as the index holds them.
fn lexemes(scope: TenantScope, words: &Words) -> Vec<String> {
    words.iter().map(|word| format!("{}/{word}", scope.tenant())).collect()
}

/// The question whether each of these words begins one of the text's. Words are letters and digits alone, so nothing
/// in them could end the quotes.
fn question(scope: TenantScope, words: &Words) -> String {
    let parts: Vec<String> = lexemes(scope, words).iter().map(|lexeme| format!("'{lexeme}':*")).collect();
    parts.join(" & ")
}

#[async_trait]
impl WorkloadStore for Database {
    async fn find_by_slug(&self, scope: TenantScope, slug: &Slug) -> Result<Option<Workload>, StoreError> {
        let sql = format!(
            "SELECT {WORKLOAD_COLUMNS} FROM workload JOIN workspace USING (tenant_id, workspace_id)
             WHERE tenant_id = $1 AND workload.slug = $2"
        );
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &slug.as_str()]).await?;
        row.as_ref().map(workload).transpose()
    }

    async fn list_runtime(
        &self,
        scope: TenantScope,
        filter: &RuntimeFilter,
        page: Paging,
    ) -> Result<(Vec<Workload>, u64), StoreError> {
        const WHERE: &str = "FROM workload JOIN workspace USING (tenant_id, workspace_id) WHERE tenant_id = $1
            AND interface_config IS NOT NULL AND status = 'registered'
            AND ($2::text IS NULL OR interface_config ->> 'presentation_mode' = $2)
            AND ($3::text IS NULL OR owner_ref = $3)
            AND ($4::text IS NULL OR search @@ $4::tsquery)
            AND ($5 OR namespace_id = ANY($6) OR workspace_id = ANY($7) OR workload_id = ANY($8))";
        let tenant = scope.tenant().uuid();
        let mode = filter.presentation_mode.map(PresentationMode::as_str);
        let owner = filter.owner.as_ref().map(OwnerRef::as_str);
        let words = filter.words.as_ref().map(|words| question(scope, words));
        let reach = ReachParams::new(filter.reach.as_ref());
        let (limit, offset) = (i64::from(page.limit), i64::from(page.offset));
        let mut params: Vec<Param<'_>> =
            vec![&tenant, &mode, &owner, &words, &reach.all, &reach.namespaces, &reach.workspaces, &reach.workloads];
        let counted = format!("SELECT count(*) FROM (SELECT {WHERE} LIMIT 10001) AS few");
        let total = count(&self.list(&counted, &params).await?)?;
        params.extend_from_slice(&[&limit, &offset]);
        let sql = format!("SELECT {WORKLOAD_COLUMNS} {WHERE} ORDER BY workload_id DESC LIMIT $9 OFFSET $10");
        let rows = self.list(&sql, &params).await?;
        Ok((rows.iter().map(workload).collect::<Result<_, _>>()?, total))
    }

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
                    invocation_mode, workspace_id, revision, created_at, created_by, updated_at,
                    interface_config, search)
                VALUES ($1, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $22, $24,
                    array_to_tsvector($25::text[]))
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
        let interface = next.interface_config.as_ref().map(InterfaceConfig::to_document);
        let words = lexemes(scope, &next.words());
        let own: [Param<'_>; 13] = [
            &id,
            &slug,
            &next.name,
            &next.description,
            &owner,
            &status,
            &mode,
            &workspace,
            &revision,
            &at,
            &by,
            &interface,
            &words,
        ];
        self.commit(SQL, &tail.with(&own)).await.map(|_| ())
    }

    async fn commit(&self, scope: TenantScope, change: Change<Workload>) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH changed AS (
                UPDATE workload SET name = $15, description = $16, owner_ref = $17, status = $18,
                    invocation_mode = $19, revision = $20, updated_at = $21, interface_config = $22,
                    search = array_to_tsvector($23::text[])
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
        let interface = next.interface_config.as_ref().map(InterfaceConfig::to_document);
        let words = lexemes(scope, &next.words());
        let own: [Param<'_>; 11] =
            [&id, &seen, &next.name, &next.description, &owner, &status, &mode, &revision, &at, &interface, &words];
        Self::commit(self, SQL, &tail.with(&own)).await.map(|_| ())
    }
}
