//! Workloads.

use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::{Database, Param},
    pagination::{ListQuery, RowBytes, SortKey, UnionArm, Values, visible_arms},
    row::{RowExt, decode},
};
use async_trait::async_trait;
use fairway_domain::{
    access::rights::VisibleScopes,
    id::WorkloadId,
    idempotency::KeyedOutcome,
    search::WordSet,
    slug::Slug,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
    workload::{
        InvocationMode, MAX_DESCRIPTION, ManagementSource, Status, Workload, WorkloadRecord,
        interface::{InterfaceConfig, MAX_INTERFACE_BYTES},
        ports::{RuntimeFilter, WorkloadFilter, WorkloadStore},
    },
};
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

pub(crate) const WORKLOAD_COLUMNS: &str = "workload.workload_id, workload.slug, workload.name, workload.description, \
    workload.owner_ref, workload.status, workload.invocation_mode, workload.interface_config, workload.management_source, \
    workload.workspace_id, workspace.namespace_id, \
    workload.revision, workload.created_at, workload.created_by, workload.updated_at";

pub(crate) fn workload(row: &Row) -> Result<Workload, StoreError> {
    Ok(Workload::restore(WorkloadRecord {
        workload_id: row.id("workload_id")?,
        slug: row.slug("slug")?,
        name: row.column("name")?,
        description: row.column("description")?,
        owner_ref: row.owner("owner_ref")?,
        status: row.parsed("status", Status::parse)?,
        invocation_mode: row.parsed("invocation_mode", InvocationMode::parse)?,
        interface_config: interface(row)?,
        management_source: row
            .column::<Option<&str>>("management_source")?
            .map(|source| decode("management_source", ManagementSource::parse(source)))
            .transpose()?,
        workspace_id: row.id("workspace_id")?,
        namespace_id: row.id("namespace_id")?,
        created_at: row.timestamp("created_at")?,
        created_by: row.actor("created_by")?,
        updated_at: row.timestamp("updated_at")?,
        revision: row.revision("revision")?,
    }))
}

/// A description has at most 2,000 characters of up to four bytes, and an interface 64 KiB as JSON. Older interfaces
/// may be larger.
const ROW_BYTES: RowBytes = RowBytes::Measured {
    sql: "(octet_length(description) + coalesce(octet_length(interface_config::text), 0))",
    largest: MAX_DESCRIPTION * 4 + MAX_INTERFACE_BYTES,
};

fn interface(row: &Row) -> Result<Option<InterfaceConfig>, StoreError> {
    let document: Option<Value> = row.column("interface_config")?;
    let read = |document| decode("interface_config", serde_json::from_value(document).ok());
    document.map(read).transpose()
}

/// The lexemes of words, prefixed with the tenant.
fn lexemes(scope: TenantScope, words: &WordSet) -> Vec<String> {
    words.iter().map(|word| format!("{}/{word}", scope.tenant())).collect()
}

/// A `tsquery` that requires a prefix match for each word. Words consist of letters and digits, so they cannot end the
/// quotes.
fn prefix_query(scope: TenantScope, words: &WordSet) -> String {
    let parts: Vec<String> = lexemes(scope, words).iter().map(|lexeme| format!("'{lexeme}':*")).collect();
    parts.join(" & ")
}

/// The list query of workloads that match the conditions and that the caller may see.
fn list_query(conditions: Vec<String>, visible_scopes: Option<&VisibleScopes>, mut values: Values) -> ListQuery {
    const FROM: &str = "FROM workload JOIN workspace USING (tenant_id, workspace_id)";
    let (with, branches) = match visible_scopes {
        None => (String::new(), vec![UnionArm { from: FROM.to_owned(), conditions, lateral: None }]),
        Some(visible_scopes) => {
            let (workspace, workload) = ("workload.workspace_id", "workload.workload_id");
            visible_arms(visible_scopes, FROM, workspace, workload, &conditions, &mut values)
        }
    };
    let key = SortKey::Id("workload.workload_id", "workload_id");
    ListQuery {
        with,
        columns: WORKLOAD_COLUMNS,
        key,
        post_join: None,
        row_bytes: ROW_BYTES,
        arms: branches,
        values,
        is_append_only: false,
    }
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
        page: PageRequest,
    ) -> Result<Page<Workload>, StoreError> {
        let mut values = Values::default();
        let mut conditions = vec![
            format!("workload.tenant_id = {}", values.bind(scope.tenant().uuid())),
            "interface_config IS NOT NULL AND status = 'registered'".to_owned(),
        ];
        if let Some(workspace) = filter.workspace {
            conditions.push(format!("workload.workspace_id = {}", values.bind(workspace.uuid())));
        }
        if let Some(mode) = filter.presentation_mode {
            conditions.push(format!("interface_config ->> 'presentation_mode' = {}", values.bind(mode.as_str())));
        }
        if let Some(owner) = &filter.owner {
            conditions.push(format!("owner_ref = {}", values.bind(owner.as_str().to_owned())));
        }
        if let Some(words) = &filter.words {
            conditions.push(format!("search @@ {}::text::tsquery", values.bind(prefix_query(scope, words))));
        }
        self.fetch_page(list_query(conditions, filter.visible_scopes.as_ref(), values), page, workload).await
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
        page: PageRequest,
    ) -> Result<Page<Workload>, StoreError> {
        let mut values = Values::default();
        let mut conditions = vec![
            format!("workload.tenant_id = {}", values.bind(scope.tenant().uuid())),
            // Built-in workloads belong to no workspace of a user.
            "workload.management_source IS DISTINCT FROM 'platform_builtin'".to_owned(),
        ];
        if let Some(workspace) = filter.workspace {
            conditions.push(format!("workload.workspace_id = {}", values.bind(workspace.uuid())));
        }
        if let Some(status) = filter.status {
            conditions.push(format!("workload.status = {}", values.bind(status.as_str())));
        }
        self.fetch_page(list_query(conditions, filter.visible_scopes.as_ref(), values), page, workload).await
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
                    invocation_mode, revision, management_source, interface_config, search, workspace_id, created_at,
                    created_by, updated_at)
                VALUES ($1, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, array_to_tsvector($23::text[]), $24,
                    $25, $26, $25)
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM made), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, decided_on: _, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, key);
        let row = WorkloadRow::of(scope, &next);
        let (workspace, at, by) =
            (next.workspace_id.uuid(), next.created_at.to_datetime(), next.created_by.to_string());
        let mut own = row.params();
        own.extend_from_slice(&[&workspace, &at, &by]);
        self.commit(SQL, &tail.with(&own)).await.map(|_| ())
    }

    async fn commit_change(&self, scope: TenantScope, change: Change<Workload>) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH changed AS (
                UPDATE workload SET name = $15, description = $16, owner_ref = $17, status = $18,
                    invocation_mode = $19, revision = $20, updated_at = $21, interface_config = $22,
                    search = array_to_tsvector($23::text[])
                WHERE tenant_id = $1 AND workload_id = $13 AND revision = $14
                RETURNING 1
             ),
             stopped AS (
                UPDATE execution_review SET lapses_at = '-infinity' FROM changed
                WHERE tenant_id = $1 AND workload_id = $13 AND $18 <> 'registered'
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM changed), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, decided_on, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, None);
        let (id, seen) = (next.workload_id.uuid(), decided_on.unwrap_or(next.revision).get());
        let (owner, status) = (next.owner_ref.as_str(), next.status.as_str());
        let (mode, revision, at) = (next.invocation_mode.as_str(), next.revision.get(), next.updated_at.to_datetime());
        let interface = next.interface_config.as_ref().map(InterfaceConfig::to_document);
        let words = lexemes(scope, &next.search_words());
        let own: [Param<'_>; 11] =
            [&id, &seen, &next.name, &next.description, &owner, &status, &mode, &revision, &at, &interface, &words];
        Self::commit(self, SQL, &tail.with(&own)).await.map(|_| ())
    }
}

/// The columns of a new workload, without workspace and times, alive while the statement runs.
pub(crate) struct WorkloadRow<'a> {
    id: Uuid,
    slug: &'a str,
    name: &'a str,
    description: &'a str,
    owner: &'a str,
    status: &'static str,
    mode: &'static str,
    revision: i64,
    source: Option<&'static str>,
    interface: Option<Value>,
    words: Vec<String>,
}

impl<'a> WorkloadRow<'a> {
    pub(crate) fn of(scope: TenantScope, workload: &'a Workload) -> Self {
        Self {
            id: workload.workload_id.uuid(),
            slug: workload.slug.as_str(),
            name: &workload.name,
            description: &workload.description,
            owner: workload.owner_ref.as_str(),
            status: workload.status.as_str(),
            mode: workload.invocation_mode.as_str(),
            revision: workload.revision.get(),
            source: workload.management_source.map(ManagementSource::as_str),
            interface: workload.interface_config.as_ref().map(InterfaceConfig::to_document),
            words: lexemes(scope, &workload.search_words()),
        }
    }

    /// Identifier, slug, name, description, owner, status, mode, revision, management source, interface, words.
    pub(crate) fn params(&self) -> Vec<Param<'_>> {
        vec![
            &self.id,
            &self.slug,
            &self.name,
            &self.description,
            &self.owner,
            &self.status,
            &self.mode,
            &self.revision,
            &self.source,
            &self.interface,
            &self.words,
        ]
    }
}
