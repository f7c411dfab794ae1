//! The fact log: sequencing and reads.

use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::Database,
    pagination::{ListQuery, RowBytes, SortKey, UNBOUNDED_ROW_BYTES, UnionArm, Values, visible_arms},
    row::{RowExt, decode, read_count},
};
use async_trait::async_trait;
use fairway_domain::{
    access::rights::VisibleScopes,
    audit::{AuditEvent, AuditStore, Fact, FactSequencer, StoredFact},
    id::{FactId, RequestId, WorkspaceId},
    store::{CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_postgres::Row;
use uuid::Uuid;

/// Maximum number of facts that one pass of the sequencer indexes in one tenant's log.
const MAX_FACTS: i32 = 1_000;
/// Maximum number of logs in one pass, which bounds its duration.
const MAX_LOGS: i64 = 10;

/// The fields of a stored fact that audit events show.
#[derive(Deserialize)]
struct FactBody {
    fact_id: FactId,
    kind: String,
    subject: SubjectBody,
    actor: String,
    request_id: RequestId,
    occurred_at: Timestamp,
    #[serde(default)]
    categories: Vec<String>,
}

#[derive(Deserialize)]
struct SubjectBody {
    kind: String,
    id: Uuid,
}

fn event(row: &Row) -> Result<AuditEvent, StoreError> {
    let bytes: &[u8] = row.column("body")?;
    let body: FactBody = decode("body", serde_json::from_slice(bytes).ok())?;
    Ok(AuditEvent {
        event_id: body.fact_id,
        index: decode("index", u64::try_from(row.column::<i64>("index")?).ok())?,
        kind: body.kind,
        subject_kind: body.subject.kind,
        subject_id: body.subject.id,
        actor: body.actor,
        occurred_at: body.occurred_at,
        request_id: body.request_id,
        categories: body.categories,
        leaf_hash: row.column("leaf_hash")?,
    })
}

/// The fields of a stored fact that operations read.
#[derive(Deserialize)]
struct StoredBody {
    kind: String,
    subject: SubjectBody,
    occurred_at: Timestamp,
    detail: Map<String, Value>,
}

#[async_trait]
impl AuditStore for Database {
    async fn find(&self, scope: TenantScope, id: FactId) -> Result<Option<StoredFact>, StoreError> {
        const SQL: &str = "SELECT body FROM fact WHERE tenant_id = $1 AND fact_id = $2";
        let Some(row) = self.read_one(SQL, &[&scope.tenant().uuid(), &id.uuid()]).await? else { return Ok(None) };
        let body: StoredBody = decode("body", serde_json::from_slice(row.column("body")?).ok())?;
        let StoredBody { kind, subject, occurred_at, detail } = body;
        Ok(Some(StoredFact { kind, subject_id: subject.id, occurred_at, detail }))
    }

    async fn list(
        &self,
        scope: TenantScope,
        workspace: Option<WorkspaceId>,
        visible_scopes: Option<&VisibleScopes>,
        page: PageRequest,
    ) -> Result<Page<AuditEvent>, StoreError> {
        // Facts are joined to the rows of the page only, not to skipped rows.
        const FROM: &str = "FROM fact_order";
        const COLUMNS: &str = "index, tenant_id, fact_id";
        let mut values = Values::default();
        let mut conditions = vec![format!("tenant_id = {}", values.bind(scope.tenant().uuid()))];
        if let Some(workspace) = workspace {
            conditions.push(format!("workspace_id = {}", values.bind(workspace.uuid())));
        }
        let (with, branches) = match visible_scopes {
            None => (String::new(), vec![UnionArm { from: FROM.to_owned(), conditions, lateral: None }]),
            Some(visible_scopes) => {
                visible_arms(visible_scopes, FROM, "workspace_id", "workload_id", &conditions, &mut values)
            }
        };
        let listing = ListQuery {
            with,
            columns: COLUMNS,
            key: SortKey::Position("index", "index"),
            post_join: Some("JOIN fact USING (tenant_id, fact_id)".to_owned()),
            row_bytes: RowBytes::Measured { sql: "octet_length(body)", largest: UNBOUNDED_ROW_BYTES },
            arms: branches,
            values,
            is_append_only: true,
        };
        self.fetch_page(listing, page, event).await
    }

    async fn commit_fact(&self, scope: TenantScope, fact: Fact) -> Result<(), CommitError> {
        // An existing fact was written by an earlier attempt whose answer was lost.
        const SQL: &str = concat!(
            "SELECT fairway_commit(true, ",
            commit_tail!(),
            ") WHERE NOT EXISTS (SELECT FROM fact WHERE tenant_id = $1 AND fact_id = $2)"
        );
        let tail = CommitParams::new(scope, &fact, None);
        match self.commit(SQL, &tail.with(&[])).await {
            Err(CommitError::Store(error)) => Err(CommitError::Store(error.of_internal_write())),
            committed => committed.map(|_| ()),
        }
    }
}

#[async_trait]
impl FactSequencer for Database {
    async fn sequence(&self) -> Result<u64, StoreError> {
        const SQL: &str = "SELECT coalesce(sum(fairway_sequence(tenant_id, $1)), 0)::bigint AS count FROM fact_log
            WHERE tenant_id IN (
                SELECT tenant_id FROM fact_log
                WHERE EXISTS (SELECT FROM fact_pending WHERE fact_pending.tenant_id = fact_log.tenant_id)
                LIMIT $2)";
        read_count(&self.write_idempotent(SQL, &[&MAX_FACTS, &MAX_LOGS]).await?)
    }
}
